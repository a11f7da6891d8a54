"""Every metric of the engine against the loops of `naive`, on batches full of trouble."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from batch_files import write_batch
from comparison import differences
from hypothesis import assume, given, settings
from strategies import WIDTHS, Batch, batches

import ppocli


def arrays_of(batch: Batch) -> dict[str, Any]:
    """A flat batch as `evaluate` takes arrays."""
    out: dict[str, Any] = {role: values.astype(WIDTHS[batch.dtype]) for role, values in batch.columns.items()}
    if batch.mask is not None:
        out["mask"] = batch.mask
    return out


def looseness(batch: Batch) -> float:
    """How far normalisation magnifies the rounding of the advantages' mean."""
    if batch.settings["adv_norm"] == "none":
        return 1.0
    adv = batch.columns["advantages"]
    adv = adv if batch.mask is None else adv[batch.mask]
    assume(np.isfinite(adv).all() and not any(role == "advantages" for role, _ in batch.nulls))
    if np.ptp(adv) == 0.0:
        return 1.0
    # The sign of an advantage that normalisation puts at 0, up to rounding, has no agreed value.
    assume((np.abs(adv - adv.mean()) > 1e-6 * np.abs(adv).max()).all())
    assume(adv.std() > 1e-100)  # smaller ones lose their squares
    return float(16.0 * (1.0 + np.abs(adv).max() / adv.std()))


def drowned(batch: Batch) -> bool:
    """Whether all ratios are so small that their squares underflow: no effective sample size can be had."""
    with np.errstate(invalid="ignore"):
        d = batch.columns["log_probs"] - batch.columns["old_log_probs"]
    d[[place for role, place in batch.nulls if role in ("log_probs", "old_log_probs")]] = np.nan
    d = d if batch.mask is None else d[batch.mask]
    return bool(np.max(d, initial=-np.inf, where=np.isfinite(d)) < -300.0)


@settings(max_examples=200)
@given(batches())
def test_every_metric_of_every_batch(batch: Batch) -> None:
    loose = looseness(batch)
    assume(not drowned(batch))
    if batch.lengths is None and not batch.nulls:
        report = ppocli.evaluate(**arrays_of(batch), **batch.settings)
    else:
        with tempfile.TemporaryDirectory() as folder:
            report = ppocli.evaluate(write_batch(batch, Path(folder, "batch.parquet")), **batch.settings)
    assert differences(report.metrics, report.nulls, batch.naive(), loose=loose) == []


def test_a_cut_gradient_is_zero_beside_a_bad_column() -> None:
    # The first ratio overflows, but its gradient is cut; the NaN belongs to another metric.
    report = ppocli.evaluate(
        log_probs=np.array([710.0, 0.0]),
        old_log_probs=np.zeros(2),
        advantages=np.ones(2),
        entropy=np.array([np.nan, 1.0]),
    )
    assert report.metrics["grad_abs_mean"] == 0.5
    assert report.metrics["policy_loss"] == -1.1
    assert report.metrics["entropy_mean"] is None
