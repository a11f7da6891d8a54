"""Laws that hold for every batch, whatever the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppocli

N = 5000


def draw(seed: int, n: int = N, spread: float = 0.3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    old = -rng.exponential(1.0, n)
    return {
        "log_probs": old + rng.normal(0, spread, n),
        "old_log_probs": old,
        "advantages": rng.normal(0, 1, n),
    }


def metrics(columns: dict[str, np.ndarray], **settings: Any) -> dict[str, Any]:
    return dict(ppocli.evaluate(**columns, **settings).metrics)


@given(st.integers(0, 2**32 - 1))
def test_on_policy_nothing_is_clipped(seed: int) -> None:
    columns = draw(seed, 300)
    columns["log_probs"] = columns["old_log_probs"]
    one = metrics(columns)
    mean = float(np.mean(columns["advantages"]))
    assert one["policy_loss"] == pytest.approx(-mean, rel=1e-12, abs=1e-15)
    for name in (
        "approx_kl_k1",
        "approx_kl_k2",
        "approx_kl_k3",
        "clip_frac",
        "clip_frac_active",
        "log_ratio_abs_max",
    ):
        assert one[name] == 0.0, name
    for name in ("ratio_mean", "ratio_min", "ratio_max", "ratio_p01", "ratio_p50", "ratio_p99", "ess_frac"):
        assert one[name] == 1.0, name
    assert one["ratio_std"] == 0.0
    assert one["zero_log_ratio_frac"] == 1.0


@given(st.integers(0, 2**32 - 1))
def test_turning_the_advantages_swaps_the_clipped_sides(seed: int) -> None:
    columns = draw(seed, 300)
    turned = {**columns, "advantages": -columns["advantages"]}
    one, other = metrics(columns), metrics(turned)
    assert one["adv_mean"] == -other["adv_mean"]
    assert one["unclipped_loss"] == -other["unclipped_loss"]
    assert one["clip_frac"] == other["clip_frac"]
    # A token outside the interval is cut for one sign of its advantage and not for the other.
    cut = one["clip_frac_active"] + other["clip_frac_active"]
    assert cut == pytest.approx(one["clip_frac"], rel=1e-15)


@given(st.integers(0, 2**32 - 1))
def test_the_clipped_loss_is_never_below_the_unclipped_one(seed: int) -> None:
    one = metrics(draw(seed, 300, spread=1.0))
    assert one["policy_loss"] >= one["unclipped_loss"]
    assert one["approx_kl_k3"] >= 0.0
    assert 0.0 < one["ess_frac"] <= 1.0
    assert one["clip_frac"] == pytest.approx(one["clip_frac_low"] + one["clip_frac_high"], rel=1e-15)


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100.0))
def test_the_loss_scales_with_the_advantages(seed: int, factor: float) -> None:
    columns = draw(seed, 300)
    scaled = {**columns, "advantages": factor * columns["advantages"]}
    size = factor * float(np.mean(np.abs(columns["advantages"]))) * 4
    assert metrics(scaled)["policy_loss"] == pytest.approx(
        factor * metrics(columns)["policy_loss"], abs=1e-13 * size
    )


def test_masked_tokens_do_not_count() -> None:
    columns = draw(7)
    mask = np.random.default_rng(8).random(N) < 0.6
    poisoned = {role: np.where(mask, values, np.nan) for role, values in columns.items()}
    with_mask = metrics({**poisoned, "mask": mask})
    without = metrics({role: values[mask] for role, values in columns.items()})
    # The same sums in other blocks: equal to rounding.
    for name, value in without.items():
        if isinstance(value, float):
            assert with_mask[name] == pytest.approx(value, rel=1e-11, abs=1e-13), name
    assert with_mask["n_masked"] == N - int(mask.sum())
    assert with_mask["n_nan"] == 0


def test_a_split_by_sequences_changes_no_mean(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 400, 60)
    columns = draw(4, int(lengths.sum()))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    table = pa.table({role: pa.ListArray.from_arrays(offsets, values) for role, values in columns.items()})
    pq.write_table(table, tmp_path / "whole.parquet")
    pieces = []
    for number, (start, stop) in enumerate([(0, 1), (1, 30), (30, 31), (31, 60)]):
        pieces.append(tmp_path / f"piece{number}.parquet")
        pq.write_table(table.slice(start, stop - start), pieces[-1])
    whole = ppocli.evaluate(tmp_path / "whole.parquet").metrics
    split = ppocli.evaluate(pieces).metrics
    assert split["n_files"] == 4
    scales = {
        "adv_mean": np.mean(np.abs(columns["advantages"])),
        "approx_kl_k1": np.mean(np.abs(columns["log_probs"] - columns["old_log_probs"])),
        "entropy_estimate": np.mean(np.abs(columns["log_probs"])),
        "ratio_mean": whole["ratio_mean"],
        "approx_kl_k3": whole["approx_kl_k3"],
        "seq_ratio_geo": whole["seq_ratio_geo"],
    }
    for name, scale in scales.items():
        assert abs(split[name] - whole[name]) <= 2.0**-47 * scale, name
    for name in ("n_rows", "n_tokens", "n_sequences", "clip_frac", "ratio_max", "ratio_p50", "adv_min"):
        assert split[name] == whole[name], name


def test_quantiles_are_within_half_a_bin() -> None:
    rng = np.random.default_rng(11)
    for _ in range(1000):
        n = int(rng.integers(1, 400))
        log_ratio = rng.normal(0.0, rng.choice([0.02, 0.3, 3.0]), n)
        zero = np.zeros(n)
        got = metrics({"log_probs": log_ratio, "old_log_probs": zero, "advantages": zero})
        exact = np.quantile(np.exp(log_ratio), [0.01, 0.05, 0.5, 0.95, 0.99], method="inverted_cdf")
        for name, want in zip(("p01", "p05", "p50", "p95", "p99"), exact, strict=True):
            assert got[f"ratio_{name}"] == pytest.approx(want, rel=0.004), name
