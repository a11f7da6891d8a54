"""`drift` against loops: every metric, any layout, values of every kind; one answer whatever the chunks."""

from __future__ import annotations

import json
import math
from typing import Any

import naive_drift
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_drift import Pair

import ppocli

BIN = 1.0 / 128.0
BOUND = 2.0**-47
HUGE = 1e300

VALUES = st.one_of(
    st.floats(-30.0, 0.0, width=32),
    st.sampled_from([0.0, -0.0, -1e-9, -1e-30, -0.5, -1.0, -20.0, -745.5, -1000.0, 3.0]),
)
ODD = st.sampled_from([math.nan, math.inf, -math.inf])


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    """Sequences of pairs; b near a, far from it or equal to it; sometimes values that are not finite."""
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    n = sum(lengths)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    a = np.array(draw(st.lists(VALUES, min_size=n, max_size=n)), dtype=float)
    spread = draw(st.sampled_from([0.0, 1e-12, 1e-3, 0.3, 5.0, 300.0]))
    b = a - rng.normal(0.0, 1.0, n) * spread
    if draw(st.booleans()) and n:
        side = draw(st.sampled_from([a, b]))
        side[draw(st.integers(0, n - 1))] = draw(ODD)
    mask = rng.random(n) < draw(st.sampled_from([1.0, 0.7]))
    return {"a": a, "b": b, "lengths": lengths, "mask": mask}


def rows(values: np.ndarray, lengths: list[int]) -> list[np.ndarray]:
    return np.split(values, np.cumsum(lengths)[:-1])


def pairs_of(batch: dict[str, Any], *, sequences: bool) -> list[Pair]:
    index = np.repeat(np.arange(len(batch["lengths"])), batch["lengths"])
    return [
        Pair(float(a), float(b), int(i) if sequences else None, bool(m))
        for a, b, i, m in zip(batch["a"], batch["b"], index, batch["mask"], strict=True)
    ]


def check(report: ppocli.DriftReport, want: naive_drift.Result, *, strict: bool) -> None:
    """Compare every metric, or its twin over finite tokens, with the loops."""
    for name, value in want.metrics.items():
        key = name if strict else f"{name}_finite"
        got = report.metrics[key]
        if got is None and name.startswith("diff") and "_p" in name and abs(value) > 1000.0:
            continue  # beyond the range of quantiles
        if got is None:
            assert value is None or not math.isfinite(value) or want.scale.get(name, 0.0) > HUGE, name
            continue
        assert math.isfinite(got)
        if "_p" in name and name.startswith("diff"):
            assert got == pytest.approx(value, rel=BIN, abs=2.0**-40), name
        elif name in want.scale:
            assert abs(got - value) <= BOUND * want.scale[name] + 1e-300, name
        elif value is None and name in ("prob_pearson", "ess_frac"):
            continue
        elif name == "chi2_seq":
            assert got == pytest.approx(value, rel=1e-11, abs=1e-13)
        elif name in ("prob_diff_max", "prob_pearson"):
            assert got == pytest.approx(value, rel=1e-9, abs=1e-9), name
        else:
            assert got == pytest.approx(value, rel=1e-11, abs=1e-300), name


@given(batches(), st.booleans())
def test_every_metric(batch: dict[str, Any], ragged: bool) -> None:
    a, b, mask = batch["a"], batch["b"], batch["mask"]
    caps = {"tis_cap": 1.5, "mask_low": 0.5, "mask_high": 2.0}
    if ragged:
        a, b, mask = (rows(one, batch["lengths"]) for one in (a, b, mask))
    report = ppocli.drift(old_log_probs=a, rollout_log_probs=b, mask=mask, allow_empty=True, **caps)
    pairs = pairs_of(batch, sequences=ragged)
    valid = [pair for pair in pairs if pair.valid]
    strict = all(naive_drift.is_finite(pair) for pair in valid)
    want = naive_drift.drift(pairs, 1.5, (0.5, 2.0))
    assert report.metrics["n_tokens"] == len(valid)
    if ragged and valid:
        assert report.metrics["n_sequences"] == len({pair.sequence for pair in valid})
    if not valid:
        assert report.nulls["diff_mean"].reason == "no valid token"
        return
    check(report, want, strict=strict)
    for name, value in report.metrics.items():
        if value is None:
            assert report.nulls[name].reason
    json.dumps(report.to_dict(), allow_nan=False)


def test_strict_values_name_the_place_and_what_arithmetic_gives() -> None:
    report = ppocli.drift(
        old_log_probs=[np.array([-1.0, -2.0]), np.array([-1.0, math.nan])],
        rollout_log_probs=[np.array([-1.5, -math.inf]), np.array([-1.0, -1.0])],
    )
    note = report.nulls["diff_mean"]
    assert note.reason == "1 NaN in old_log_probs; 1 -inf in rollout_log_probs at valid tokens"
    assert note.nonfinite == "nan"
    assert note.where is not None
    assert (note.where.row, note.where.position) == (0, 1)
    assert report.metrics["diff_mean_finite"] == 0.25
    assert (report.metrics["n_nan"], report.metrics["n_neginf"]) == (1, 1)
    assert report.findings[0].code == "PPO101"


@pytest.mark.parametrize(("value", "side", "kind"), [(-math.inf, "b", "inf"), (-math.inf, "a", "-inf")])
def test_an_infinity_gives_its_kind(value: float, side: str, kind: str) -> None:
    a, b = np.array([-1.0, -2.0]), np.array([-1.5, -2.0])
    (a if side == "a" else b)[0] = value
    nulls = ppocli.drift(old_log_probs=a, rollout_log_probs=b).nulls
    assert nulls["diff_mean"].nonfinite == kind
    assert nulls["weight_max"].nonfinite == ("inf" if kind == "inf" else None)
    assert nulls["drift_kl_k1"].nonfinite == ("-inf" if kind == "inf" else "inf")
    assert nulls["mult_prob_error"].nonfinite == "inf"


def big(n_rows: int = 60) -> dict[str, Any]:
    """Some 15,000 tokens, long and empty rows, outliers."""
    rng = np.random.default_rng(7)
    lengths = [int(n) for n in rng.integers(0, 500, n_rows)]
    n = sum(lengths)
    b = (-rng.exponential(1.0, n)).astype(np.float16).astype(float)
    a = (b + 0.05 * rng.standard_t(3, n)).astype(np.float16).astype(float)
    a[[17, 5000]] = -60.0
    ids = np.repeat(np.arange(n_rows), lengths)
    return {"a": a, "b": b, "lengths": lengths, "mask": rng.random(n) < 0.9, "ids": ids}


SAME = ("metrics", "nulls", "by_position", "by_probability", "by_step", "sequences", "histogram",
        "corrections", "comparisons", "findings", "worst", "places")  # fmt: skip


def answer(**settings: Any) -> str:
    document = ppocli.drift(worst=5, tis_cap=1.2, **settings).to_dict()
    return json.dumps({key: document.get(key) for key in SAME}, sort_keys=True)


@pytest.fixture(scope="module")
def columns() -> dict[str, Any]:
    batch = big()
    rng = np.random.default_rng(3)
    n = batch["a"].size
    return {
        "old_log_probs": batch["a"],
        "rollout_log_probs": batch["b"],
        "log_probs": (batch["a"] + rng.normal(0, 0.1, n)).astype(np.float16).astype(float),
        "advantages": rng.normal(0, 1, n).astype(np.float16).astype(float),
        "mask": batch["mask"],
        "sequence_id": batch["ids"],
        "step": batch["ids"] // 20,
    }


@pytest.mark.parametrize("chunk_rows", [1, 61, 2048, 5000])
def test_chunks_change_nothing(columns: dict[str, Any], chunk_rows: int) -> None:
    if chunk_rows == 1:
        columns = {name: values[:300] for name, values in columns.items()}
    assert answer(chunk_rows=chunk_rows, by="step", **columns) == answer(by="step", **columns)


def test_float_types_change_nothing(columns: dict[str, Any]) -> None:
    narrow = dict(columns)
    for name in ("old_log_probs", "rollout_log_probs", "log_probs", "advantages"):
        narrow[name] = columns[name].astype(np.float16)
    single = {**columns, "old_log_probs": columns["old_log_probs"].astype(np.float32)}
    assert answer(**narrow) == answer(**columns) == answer(**single)


def test_ids_and_rows_of_lists_agree(columns: dict[str, Any]) -> None:
    batch = big()
    as_rows = {
        name: rows(values, batch["lengths"])
        for name, values in columns.items()
        if name not in ("sequence_id", "step")
    }
    flat = {name: values for name, values in columns.items() if name != "step"}
    one, other = (ppocli.drift(worst=5, **given) for given in (as_rows, flat))
    for key in ("by_position", "by_probability", "histogram", "corrections"):
        assert getattr(one, key) == getattr(other, key)
    skip = ("n_rows", "n_files")
    assert {k: v for k, v in one.metrics.items() if k not in skip} == {
        k: v for k, v in other.metrics.items() if k not in skip
    }
    assert [pair.where.position for pair in one.worst] == [pair.where.position for pair in other.worst]


def test_interleaved_ids_give_the_same_sequences(columns: dict[str, Any]) -> None:
    """Time-major rows: the k-th tokens of all sequences stand together."""
    batch = big()
    position = np.concatenate([np.arange(n) for n in batch["lengths"]])
    order = np.lexsort((batch["ids"], position))
    mixed = {name: values[order] for name, values in columns.items() if name != "step"}
    plain = ppocli.drift(**{name: values for name, values in columns.items() if name != "step"})
    report = ppocli.drift(**mixed)
    assert [one.n for one in report.by_position] == [one.n for one in plain.by_position]
    for one, other in zip(report.by_position, plain.by_position, strict=True):
        assert one.diff_mean == pytest.approx(other.diff_mean, rel=1e-10)
    for name in ("chi2_seq", "log_ppl_diff", "ppl_ratio", "n_sequences"):
        assert report.metrics[name] == pytest.approx(plain.metrics[name], rel=1e-11)


@settings(max_examples=20)
@given(st.integers(1, 6000), st.integers(0, 100))
def test_positions_and_probabilities_are_counted_once(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = -rng.exponential(1.0, n)
    a = b + rng.normal(0, 0.1, n)
    ids = np.sort(rng.integers(0, max(n // 50, 1), n))
    report = ppocli.drift(old_log_probs=a, rollout_log_probs=b, sequence_id=ids)
    starts = np.searchsorted(ids, ids)
    position = np.arange(n) - starts
    for part in report.by_position:
        inside = (position >= part.low) & (position <= (math.inf if part.high is None else part.high))
        assert part.n == inside.sum()
        assert part.diff_mean == pytest.approx(float(np.mean((a - b)[inside])), rel=1e-9, abs=1e-15)
        assert part.diff_abs_mean == pytest.approx(float(np.mean(np.abs(a - b)[inside])), rel=1e-11)
    assert sum(part.n for part in report.by_position) == n
    p = np.exp(b)
    for part in report.by_probability:
        inside = (p >= part.low) & (p < (math.inf if part.high is None else part.high))
        assert part.n == inside.sum()
        assert part.diff_abs_mean == pytest.approx(float(np.mean(np.abs(a - b)[inside])), rel=1e-9)
    assert sum(part.n for part in report.by_probability) == n
    assert sum(bar.n for bar in report.histogram) == n
    for bar in report.histogram:
        high = math.inf if bar.high is None else bar.high
        inside = (np.abs(a - b) > bar.low) & (np.abs(a - b) <= high)
        assert bar.n == inside.sum() + (np.sum(a == b) if bar.low == 0.0 else 0)
