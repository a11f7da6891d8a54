"""Losses computed beside the kernels: against loops over the tokens, and one answer for any reading."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core.spec import OBJECTIVES, SEQUENCE_OBJECTIVES
from ppocli.errors import InputError, UsageProblem

B, T = 37, 90
LOW, HIGH = 0.1, 0.15


def batch(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    old = -rng.exponential(1.0, (B, T))
    return {
        "log_probs": old + rng.normal(0.0, 0.2, (B, T)),
        "old_log_probs": old,
        "advantages": np.where(rng.random((B, T)) < 0.05, 0.0, rng.normal(0.0, 1.0, (B, T))),
        "rollout_log_probs": old + rng.normal(0.0, 0.1, (B, T)),
        "mask": rng.random((B, T)) < 0.8,
    }


def loss_of(objective: str, new: float, old: float, rollout: float, adv: float, mean: float) -> float:
    """The loss of one token by the papers' formulas; `mean` is its sequence's mean log-ratio."""
    ratio = math.exp(new - old)

    def surrogate(r: float) -> float:
        return -min(r * adv, min(max(r, 1.0 - LOW), 1.0 + HIGH) * adv)

    if objective == "is":
        return -ratio * adv
    if objective == "reinforce":
        return -adv * new
    if objective == "gspo":
        return surrogate(math.exp(mean))
    if objective == "cispo":
        return -min(max(ratio, 1.0 - LOW), 1.0 + HIGH) * adv * new
    if objective == "decoupled":
        return math.exp(old - rollout) * surrogate(ratio)
    if objective == "dppo-tv":
        moved = math.exp(new) - math.exp(old)
        return 0.0 if (adv > 0 and moved > HIGH) or (adv < 0 and moved < -LOW) else -ratio * adv
    if objective == "dro":
        return -adv * new + 0.025 * (new - old) ** 2
    assert objective == "sapo"
    tau = 1.0 if adv > 0 else 1.05
    return -adv * 4.0 / tau / (1.0 + math.exp(-tau * (ratio - 1.0)))


def losses(objective: str, columns: dict[str, np.ndarray]) -> list[list[float]]:
    """The losses of each sequence's valid tokens."""
    out = []
    for i in range(B):
        tokens = [
            [
                float(columns[role][i, t])
                for role in ("log_probs", "old_log_probs", "rollout_log_probs", "advantages")
            ]
            for t in range(T)
            if columns["mask"][i, t]
        ]
        mean = math.fsum(new - old for new, old, _, _ in tokens) / max(len(tokens), 1)
        out.append([loss_of(objective, *token, mean) for token in tokens])
    return out


@pytest.mark.parametrize(
    "objective", ["is", "reinforce", "gspo", "cispo", "decoupled", "dppo-tv", "dro", "sapo"]
)
def test_against_loops(objective: str) -> None:
    columns = batch()
    got = ppocli.evaluate(**columns, objective=objective, clip_low=LOW, clip_high=HIGH).metrics
    rows = losses(objective, columns)
    flat = [x for row in rows for x in row]
    by_agg = got["policy_loss_by_agg"]
    assert got["policy_loss"] == pytest.approx(math.fsum(flat) / len(flat), rel=1e-12)
    assert by_agg["token-sum"] == pytest.approx(math.fsum(flat), rel=1e-12)
    means = [math.fsum(row) / len(row) for row in rows]
    assert by_agg["seq-mean-token-mean"] == pytest.approx(math.fsum(means) / B, rel=1e-12)
    mean = math.fsum(flat) / len(flat)
    variance = math.fsum((x - mean) ** 2 for x in flat) / len(flat)
    assert got["policy_loss_se"] == pytest.approx(math.sqrt(variance / len(flat)), rel=1e-10)


def write(path: Path, columns: dict[str, np.ndarray], kind: str, row_group: int) -> Path:
    """Write the valid and the masked tokens as lists, as flat rows, or as flat rows in time-major order."""
    if kind == "list":
        table = pa.table({role: list(values) for role, values in columns.items()})
    else:
        order = np.arange(B * T) if kind == "flat" else np.arange(B * T).reshape(B, T).T.ravel()
        arrays = {role: values.ravel()[order] for role, values in columns.items()}
        table = pa.table({**arrays, "sequence_id": np.repeat(np.arange(B), T)[order]})
    pq.write_table(table, path, row_group_size=row_group)
    return path


@pytest.mark.parametrize("objective", [one for one in OBJECTIVES if one != "ppo"])
@pytest.mark.parametrize("kind", ["list", "flat"])
def test_one_answer_however_it_is_read(tmp_path: Path, objective: str, kind: str) -> None:
    columns = batch(1)
    small = write(tmp_path / "small.parquet", columns, kind, 5 if kind == "list" else 700)
    large = write(tmp_path / "large.parquet", columns, kind, 10**6)
    settings: dict[str, Any] = {"objective": objective, "clip_low": LOW, "clip_high": HIGH}
    one = ppocli.evaluate(small, **settings, chunk_rows=97, threads=1)
    other = ppocli.evaluate(large, **settings, worst=3)
    assert dict(one.metrics) == dict(other.metrics)


@pytest.mark.parametrize("objective", SEQUENCE_OBJECTIVES)
def test_sequences_may_be_interleaved(tmp_path: Path, objective: str) -> None:
    columns = batch(2)
    mixed = write(tmp_path / "mixed.parquet", columns, "time", 500)
    sorted_ = write(tmp_path / "sorted.parquet", columns, "flat", 500)
    settings: dict[str, Any] = {"objective": objective, "clip_low": LOW, "clip_high": HIGH}
    one, other = (ppocli.evaluate(path, **settings).metrics for path in (mixed, sorted_))
    for name in ("policy_loss", "clip_frac", "clip_frac_active", "grad_abs_mean"):
        assert one[name] == pytest.approx(other[name], rel=1e-12), name


def test_a_sequence_objective_needs_sequences() -> None:
    flat = {role: values.ravel() for role, values in batch().items()}
    with pytest.raises(InputError, match="needs to know which tokens belong together"):
        ppocli.evaluate(**flat, objective="gspo")


def test_decoupled_needs_the_rollout_policy() -> None:
    columns = batch()
    del columns["rollout_log_probs"]
    with pytest.raises(InputError, match="no column for rollout_log_probs"):
        ppocli.evaluate(**columns, objective="decoupled")


def test_a_bound_without_a_weight_is_refused() -> None:
    with pytest.raises(UsageProblem, match="no weight is asked for"):
        ppocli.evaluate(**batch(), rollout_is_cap=2.0)


def test_a_nan_is_never_hidden() -> None:
    columns = batch()
    columns["mask"][3, 5] = True
    columns["rollout_log_probs"][3, 5] = math.nan
    report = ppocli.evaluate(**columns, objective="decoupled", clip_low=LOW, clip_high=HIGH)
    assert report.metrics["policy_loss"] is None
    note = report.nulls["policy_loss"]
    assert (note.nonfinite, note.where and (note.where.row, note.where.position)) == ("nan", (3, 5))
    columns["mask"][3, 5] = False
    flat = [x for row in losses("decoupled", columns) for x in row]
    assert report.metrics["policy_loss_finite"] == pytest.approx(math.fsum(flat) / len(flat), rel=1e-12)


def test_an_infinite_loss_is_not_a_missing_value() -> None:
    """exp(800) overflows, and `is` does not bound it: the loss is infinite, not null for want of a value."""
    columns = {"log_probs": [0.0, -1.0], "old_log_probs": [-800.0, -1.0], "advantages": [-1.0, 1.0]}
    report = ppocli.evaluate(**{role: np.array(values) for role, values in columns.items()}, objective="is")
    assert report.metrics["policy_loss"] is None
    assert report.nulls["policy_loss"].nonfinite == "inf"
    assert "overflows" in report.nulls["policy_loss"].reason


def test_worst_tokens_carry_the_loss_of_the_objective() -> None:
    columns = batch()
    report = ppocli.evaluate(**columns, objective="cispo", clip_low=LOW, clip_high=HIGH, worst=1)
    worst = next(one for one in report.worst if one.by == "loss")
    assert abs(worst.loss or 0.0) == max(abs(x) for row in losses("cispo", columns) for x in row)


@pytest.mark.parametrize("objective", [one for one in OBJECTIVES if one != "dro"])
def test_a_zero_advantage_beside_a_nan_spoils_the_mean_of_no_loss(objective: str) -> None:
    # Every token of the sequence has advantage 0, so that a NaN in what they share does no harm, either.
    columns = batch()
    columns["advantages"][3] = 0.0
    columns["mask"][3] = True
    columns["log_probs"][3, 5] = math.nan
    got = ppocli.evaluate(**columns, objective=objective)
    assert got.metrics["policy_loss"] is None
    assert got.nulls["policy_loss"].nonfinite is None
    assert got.nulls["approx_kl_k1"].nonfinite == "nan"
    columns["advantages"][3, 5] = 1.0
    assert ppocli.evaluate(**columns, objective=objective).nulls["policy_loss"].nonfinite == "nan"
