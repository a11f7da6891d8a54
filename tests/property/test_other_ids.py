"""Ids, groups and micro-batches that a metric does not need change no bit of it.

The terms are of very different sizes and cancel, so that any other order of additions would show.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppocli

N = 3000
OF_GROUPS = ("n_groups", "zero_var", "policy_loss_by_agg.group", "policy_loss_by_agg_finite.group")
OF_MICRO_BATCHES = ("policy_loss_micro_batch_mean",)
OF_SEQUENCES = ("seq_", "n_sequences", "policy_loss_by_agg.seq", "policy_loss_by_agg_finite.seq")
SEEDS = st.integers(0, 2**32 - 1)


def draw(seed: int, n_bad: int = 0) -> dict[str, np.ndarray]:
    """Columns whose terms range over some forty powers of ten, with so many values that are not finite."""
    rng = np.random.default_rng(seed)

    def wild(low: float, high: float) -> np.ndarray:
        return rng.normal(0, 1, N) * 10.0 ** rng.uniform(low, high, N)

    old = -rng.exponential(1.0, N)
    new, adv = old + np.clip(wild(-12, 1), -30, 30), wild(-20, 20)
    new[rng.integers(0, N, n_bad)] = np.nan
    adv[rng.integers(0, N, n_bad)] = np.inf
    return {
        "log_probs": new,
        "old_log_probs": old,
        "advantages": adv,
        "values": wild(-10, 10),
        "returns": wild(-10, 10),
        "entropy": wild(-20, 20),
        "ref_log_probs": old + np.clip(wild(-12, 1), -30, 30),
        "mask": rng.random(N) < 0.9,
    }


def ids(seed: int, n: int, longest: int) -> np.ndarray:
    """Numbers that change now and then, every few tokens or every few hundred, and come back."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, n)
    return np.repeat(rng.integers(0, 40, n), lengths)[:n]


def metrics(columns: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """All metrics by name, nested ones dotted."""
    report = ppocli.evaluate(**columns, vf_coef=0.5, ent_coef=0.1, kl_coef=0.1, **settings)
    found: dict[str, Any] = {}
    for name, value in report.metrics.items():
        found |= {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
    return found


def assert_same(one: dict[str, Any], other: dict[str, Any], but: tuple[str, ...]) -> None:
    """Compare bits, but of metrics that need what only one of them had and so begin."""
    names = {name for name in one.keys() | other.keys() if not name.startswith(but)}
    assert {name for name in names if one[name] != other[name]} == set()
    assert "seq_log_ratio_mean" in names or "policy_loss_by_agg.group-mean" in names


def rows_of(columns: dict[str, np.ndarray], seed: int, longest: int) -> dict[str, Any]:
    """The same tokens as rows of different lengths, empty ones among them."""
    limits = np.random.default_rng(seed).integers(0, longest + 1, N).cumsum()
    limits = [*limits[limits < N].tolist(), N]
    return {
        role: [values[a:b] for a, b in zip([0, *limits[:-1]], limits, strict=True)]
        for role, values in columns.items()
    }


@pytest.mark.parametrize("agg", ["token-mean", "seq-mean-token-sum"])
@given(SEEDS, st.sampled_from([1, 4, 700]), st.sampled_from([1, 9, 500]), st.sampled_from([0, 2]))
def test_groups_and_steps_beside_sequences_by_id(
    agg: str, seed: int, length: int, group: int, n_bad: int
) -> None:
    columns = {**draw(seed, n_bad), "sequence_id": ids(seed, N, length)}
    bare = metrics(columns, agg=agg)
    columns |= {"group_id": ids(seed + 1, N, group), "step": ids(seed + 2, N, 300)}
    assert_same(bare, metrics(columns, agg=agg), OF_GROUPS)


@given(SEEDS, st.sampled_from([4, 700]), st.sampled_from([1, 7, 1000]))
def test_micro_batches_beside_sequences_by_id(seed: int, length: int, size: int) -> None:
    columns = {**draw(seed), "sequence_id": ids(seed, N, length)}
    agg = "seq-mean-token-sum"
    assert_same(metrics(columns, agg=agg), metrics(columns, agg=agg, micro_batch=size), OF_MICRO_BATCHES)


@given(SEEDS, st.sampled_from([6, 700]), st.sampled_from([1, 3, 64]))
def test_groups_and_micro_batches_beside_rows(seed: int, length: int, size: int) -> None:
    columns = rows_of(draw(seed), seed, length)
    bare = metrics(columns)
    n_rows = len(columns["log_probs"])
    groups = {"group_id": np.random.default_rng(seed).integers(0, 5, n_rows)}
    assert_same(bare, metrics({**columns, **groups}), OF_GROUPS)
    assert_same(bare, metrics(columns, micro_batch=size), OF_MICRO_BATCHES)
    one, other = metrics({**columns, **groups}, micro_batch=size), metrics({**columns, **groups})
    assert_same(one, other, OF_MICRO_BATCHES)
    alone = metrics(columns, micro_batch=size)
    assert one["policy_loss_micro_batch_mean"] == alone["policy_loss_micro_batch_mean"]


@given(SEEDS, st.sampled_from([1, 30, 700]), st.sampled_from([4, 300]), st.sampled_from([None, 5]))
def test_sequences_beside_groups(seed: int, length: int, group: int, size: int | None) -> None:
    columns = {**draw(seed), "group_id": ids(seed, N, group)}
    settings = {"agg": "group-mean", "micro_batch": size}
    one, other = (
        metrics(these, **settings) for these in (columns, {**columns, "sequence_id": ids(seed, N, length)})
    )
    assert_same(one, other, OF_SEQUENCES)
