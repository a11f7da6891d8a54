"""Reports of `drift`, `parity` and `convert` made by hand; each number is its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import reports

from ppocli.core.convert_report import ConvertReport, WrittenColumn
from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.core.drift_report import Bar, Correction, DriftReport, Part, SequencePart, WorstPair
from ppocli.core.parity_report import Framework, ParityCell, ParityReport
from ppocli.core.report import Finding, NullNote, Place

LONG = "clipped surrogate with dual clip, weighted in the decoupled loss; chosen aggregation"


def parity(**changes: Any) -> ParityReport:
    """Two frameworks: one knows all four quantities, the other's clip fraction is undefined here."""
    frameworks = (
        Framework(
            "trl",
            "TRL",
            "1.0",
            {"agg": "seq-mean-token-mean"},
            {
                "loss": ParityCell("loss", -0.375, "mean over sequences of the token mean"),
                "clip fraction": ParityCell("clip_ratio/region_mean", 0.25, "share of tokens clipped"),
                "approx KL": ParityCell("objective/kl", 0.0625, "mean(log_ratio^2 / 2)"),
                "value loss": ParityCell("loss/value_avg", 0.5, "mean of the squares"),
            },
        ),
        Framework(
            "verl",
            "verl",
            "0.7.0",
            {},
            {
                "loss": ParityCell("ppo_actor/update/actor_loss/policy_loss/avg", -0.125, LONG),
                "clip fraction": ParityCell(
                    "actor/pg_clipfrac", None, "clipped branch strictly chosen", NullNote("1 NaN", "nan")
                ),
            },
        ),
    )
    made = ParityReport({"columns": {}}, (reports.one_input(),), (), frameworks, 7, run={"seconds": 0.5})
    return replace(made, **changes)


def drift(**changes: Any) -> DriftReport:
    """Give every metric of drift a value of its own: 3.00001, 3.00002, ...; every table has a row or two."""
    metrics: dict[str, Any] = {}
    for number, one in enumerate(DRIFT_METRICS.values(), 1):
        metrics[one.name] = 3000 + number if one.unit == "count" else 3.0 + number / 1e5
    metrics |= {name: value for name, value in reports.counts().items() if name in DRIFT_METRICS}
    metrics["tis_weight_mean"] = None
    where = Place("rollouts.parquet", 1, 2, 1555)
    made = DriftReport(
        settings={"tis_cap": None},
        a="old_log_probs",
        b="rollout_log_probs",
        inputs=(reports.one_input(),),
        skipped=(),
        metrics=metrics,
        nulls={"tis_weight_mean": NullNote("tis_cap is not given")},
        by_position=(Part(4, 0.125, 0.25, 0, 0, 0.03125), Part(3, -0.5, 0.75, 1, None, 0.0625)),
        by_probability=(Part(5, 0.375, 0.4375, None, 0.5, 0.015625), Part(2, None, None, 0.5, None)),
        sequences=(SequencePart(Place("rollouts.parquet", 2), 3, 0.1875, 0.3125, 0.0078125, 0.875),),
        histogram=(Bar(0.0, 0.0625, 6), Bar(0.0625, None, 1)),
        corrections=(
            Correction("token", "truncate", None, 2.0, 0.28125, None, 1.5, 0.96875, -0.25, 0.046875),
        ),
        findings=(Finding("PPO501", "warning", 7, "a constant offset", "look at the temperature", where),),
        worst=(WorstPair(where, -0.5, -4.5, 4.0, 54.59815),),
        run={"seconds": 0.5},
    )
    return replace(made, **changes)


def converted() -> ConvertReport:
    """Two columns of 9 tokens in 3 rows."""
    columns = {
        "log_probs": WrittenColumn("float32", "bfloat16", "token"),
        "rewards": WrittenColumn("float64", "float64", "row"),
    }
    return ConvertReport(
        settings={"layout": "auto"},
        path="out.parquet",
        bytes=1234,
        rows=3,
        tokens=9,
        layout="list",
        columns=columns,
        left_out=("prompt",),
        verified=True,
        inputs=(reports.one_input(),),
        run={"seconds": 0.5},
    )
