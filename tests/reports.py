"""Reports made by hand: what the engine would return for data whose numbers are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ppocli.core.metrics import METRICS
from ppocli.core.report import (
    Bin,
    ColumnReport,
    EvalReport,
    Finding,
    Group,
    InputReport,
    NullNote,
    Place,
    Skipped,
    WorstToken,
)
from ppocli.core.spec import AGGREGATIONS, LossSpec

ODD_NAME = "[red]x[/red] \x1b[31m|ü\n.parquet"
"""A file name with Rich markup, an escape sequence, a Markdown bar, a non-ASCII letter and a newline."""


def one_input(path: str = "rollouts.parquet", **changes: Any) -> InputReport:
    """An input of 3 rows, 7 valid and 2 masked tokens."""
    columns = {
        "log_probs": ColumnReport("log_probs", "float32"),
        "old_log_probs": ColumnReport("old_log_probs", "float32"),
        "advantages": ColumnReport("advantages", "float32"),
        "mask": ColumnReport("mask", "bool"),
    }
    made = InputReport(path, "parquet", "list", rows=3, bytes=1234, tokens=7, masked=2, columns=columns)
    return replace(made, **changes)


def counts() -> dict[str, int]:
    """The counts of `one_input`."""
    return {"n_rows": 3, "n_tokens": 7, "n_masked": 2, "n_sequences": 3, "n_files": 1} | dict.fromkeys(
        ("n_null", "n_nan", "n_posinf", "n_neginf", "n_positive_log_probs"), 0
    )


def report(metrics: dict[str, Any] | None = None, **changes: Any) -> EvalReport:
    """A small report with a few metrics; anything can be replaced."""
    usual = {
        "policy_loss": -0.0124817,
        "policy_loss_by_agg": {name: -0.25 * (k + 1) for k, name in enumerate(AGGREGATIONS)},
        "clip_frac": 0.1234,
        "clip_frac_active": 0.0902,
        "approx_kl_k3": 0.00412306,
        "overflow_float16": 0,
        "underflow_float16": 0,
    }
    made = EvalReport(
        settings=LossSpec().to_dict(),
        inputs=(one_input(),),
        skipped=(),
        metrics={**usual, **counts(), **(metrics or {})},
        nulls={},
        run={"threads": 2, "seconds": 0.25},
    )
    return replace(made, **changes)


def full() -> EvalReport:
    """Give every metric of the catalogue a value of its own: 1.00001, 1.00002, ...; counts 1001, ..."""
    metrics: dict[str, Any] = {}
    for number, one in enumerate(METRICS.values(), 1):
        metrics[one.name] = 1000 + number if one.unit == "count" else 1.0 + number / 1e5
    metrics["policy_loss_by_agg"] = {name: 2.0 + k / 1e5 for k, name in enumerate(AGGREGATIONS)}
    return report(metrics, worst=worst_tokens(), findings=(overflow(),), histograms=histograms())


def histograms() -> dict[str, tuple[Bin, ...]]:
    """Seven tokens in bars of 0.125 nats."""
    ends = (None, -0.1875, -0.0625, 0.0625, 0.1875, None)
    sizes = (0.0, 0.00390625, 0.01171875, None)
    return {
        "log_ratio": tuple(Bin(ends[k], ends[k + 1], n) for k, n in enumerate((1, 0, 4, 1, 1))),
        "log_ratio_abs": tuple(Bin(sizes[k], sizes[k + 1], n) for k, n in enumerate((4, 1, 2))),
    }


def overflow(path: str = "rollouts.parquet") -> Finding:
    """A warning with a place."""
    return Finding(
        "PPO102",
        "warning",
        12,
        "12 ratios overflow float16",
        "train this batch in float32 or bfloat16",
        Place(path, 812044, 3, 1555),
    )


def worst_tokens(path: str = "rollouts.parquet") -> tuple[WorstToken, ...]:
    """Two tokens: the largest |log_ratio| (whose ratio overflows) and the largest |loss|."""
    return (
        WorstToken(
            "log_ratio", Place(path, 812044, 3, 1555), -0.5, -1000.5, 2.0, 1000.0, None, -2.4, "clipped"
        ),
        WorstToken("loss", Place(path, 7, 0), -1.0, -1.5, -3.0, 0.5, 1.64872, 4.94616, "unclipped"),
    )


def with_nulls() -> EvalReport:
    """A NaN in the advantages, an infinite ratio, returns that do not vary; -0.0 as a value."""
    where = Place("rollouts.parquet", 1, 2)
    by_agg = dict.fromkeys(AGGREGATIONS)
    return report(
        {
            "policy_loss": None,
            "policy_loss_finite": -0.5,
            "policy_loss_by_agg": by_agg,
            "policy_loss_by_agg_finite": dict.fromkeys(AGGREGATIONS, -0.5),
            "ratio_max": None,
            "explained_variance": None,
            "adv_min": -0.0,
            "n_nan": 2,
        },
        nulls={
            "policy_loss": NullNote("2 NaN in advantages", "nan", where),
            **{
                f"policy_loss_by_agg.{name}": NullNote("2 NaN in advantages", "nan", where) for name in by_agg
            },
            "ratio_max": NullNote("a ratio overflows float64", "inf", where),
            "explained_variance": NullNote("all returns are equal"),
        },
        findings=(Finding("PPO101", "error", 2, "2 NaN at valid tokens", "look at the reward model", where),),
    )


def several(*paths: str) -> EvalReport:
    """One group for each path; the k-th has policy loss k / 8, the second one's is null."""
    names = paths or ("a.parquet", "b.parquet", "c.parquet")
    groups = []
    for number, path in enumerate(names):
        value = None if number == 1 else number / 8
        nulls = {"policy_loss": NullNote("1 NaN in advantages", "nan", Place(path, 0))} if number == 1 else {}
        metrics = {"n_tokens": 1048576 + number, "policy_loss": value, "clip_frac": 0.5, "approx_kl_k3": 0.25}
        metrics |= {"n_rows": 3, "n_masked": 2, "ess_frac": 0.75 + number / 100}
        groups.append(Group({"file": path}, metrics, nulls))
    return report({"n_files": len(names)}, inputs=tuple(map(one_input, names)), groups=tuple(groups))


def steps() -> EvalReport:
    """Five groups: steps 8 to 10, text, no value; the losses are 0.5, 0.25, null, 1, 0.875."""
    values = ((8, 0.5, None), (9, 0.25, -0.25), (10, None, None), ("b", 1.0, None), (None, 0.875, -0.125))
    groups = []
    for number, (key, value, change) in enumerate(values):
        note = NullNote("1 NaN in advantages", "nan")
        metrics = {"n_tokens": 4096 + number, "policy_loss": value, "clip_frac": 0.5, "approx_kl_k3": 0.25}
        metrics |= {"n_rows": 3, "n_masked": 2}
        changes = {"policy_loss": change, "clip_frac": 0.0} if number else {}
        groups.append(
            Group({"step": key}, metrics, {} if value is not None else {"policy_loss": note}, change=changes)
        )
    return report(groups=tuple(groups))


def empty() -> EvalReport:
    """No valid token: one file without rows, one all masked."""
    inputs = (
        one_input("none.parquet", rows=0, tokens=0, masked=0),
        one_input("masked.npz", tokens=0, masked=9),
    )
    nothing = {
        "policy_loss": None,
        "clip_frac": None,
        "clip_frac_active": None,
        "approx_kl_k3": None,
        "policy_loss_by_agg": dict.fromkeys(AGGREGATIONS),
        "n_tokens": 0,
        "n_masked": 9,
        "n_sequences": 0,
    }
    names = ["policy_loss", "clip_frac", "clip_frac_active", "approx_kl_k3"]
    names += [f"policy_loss_by_agg.{one}" for one in AGGREGATIONS]
    return report(
        nothing, inputs=inputs, nulls={name: NullNote("no valid token") for name in names}, exit_code=5
    )


def odd_names() -> EvalReport:
    """A file with an odd name, and one with odd columns, in every place where a name is shown."""
    columns = {"log_probs": ColumnReport("[bold]lp\x07", "float32")}
    first = one_input(ODD_NAME, columns=columns, notes=(f"scalar repeated in {ODD_NAME}",))
    made = several(ODD_NAME, "b.parquet")
    return replace(
        made,
        inputs=(first, one_input("b.parquet")),
        findings=(overflow(ODD_NAME),),
        worst=worst_tokens(ODD_NAME),
        skipped=(Skipped(ODD_NAME, "not a Parquet file"),),
    )


BY_NAME = {
    "full": full,
    "nulls": with_nulls,
    "several": several,
    "steps": steps,
    "empty": empty,
    "odd": odd_names,
    "small": report,
}
