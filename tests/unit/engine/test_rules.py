"""Rules that leave tokens out: in windows, in batches, and what is measured before them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ppocli

RNG = np.random.default_rng(7)


def sequences(*lengths: int, drift: list[float] | None = None) -> dict[str, Any]:
    """Lists of rows; the old policy differs from the sampler by `drift` at every token of a row."""
    rows = [RNG.normal(-1.0, 0.3, n) for n in lengths]
    apart = [0.0] * len(lengths) if drift is None else drift
    return {
        "log_probs": [row + 0.05 for row in rows],
        "old_log_probs": rows,
        "rollout_log_probs": [row - d for row, d in zip(rows, apart, strict=True)],
        "advantages": [np.full(len(row), 1.0 + i) for i, row in enumerate(rows)],
    }


def test_windows_of_a_file_without_a_mask() -> None:
    """A span whose sequences end in several windows."""
    given = sequences(*[700] * 12, drift=[0.0, 2.0] * 6)
    rules = {"objective": "is", "rollout_rs": ("seq_mean_ratio:0.5_2",)}
    for rows in (None, 700, 1000):
        report = ppocli.evaluate(**given, **rules, chunk_rows=rows)
        assert report.metrics["n_tokens"] == 6 * 700
        # Rows 0, 2, ... 10 stay: advantages 1, 3, ... 11, ratios exp(0.05).
        assert report.metrics["policy_loss"] == pytest.approx(-6.0 * math.exp(0.05), rel=1e-12)


def test_a_batch_in_which_nothing_is_left_out_beside_one_with() -> None:
    given = sequences(40_000, 40_000, 40_000, drift=[0.0, 0.0, 2.0])
    report = ppocli.evaluate(**given, objective="is", rollout_rs=("seq_mean_ratio:0.5_2",))
    assert report.metrics["n_tokens"] == 80_000
    assert report.metrics["policy_loss"] == pytest.approx(-1.5 * math.exp(0.05), rel=1e-12)


@pytest.mark.parametrize("rule", ["token_ratio:0.5_2", "seq_mean_ratio:0.5_2"])
def test_what_is_logged_of_the_sampler_is_over_all_tokens(rule: str) -> None:
    given = sequences(3, 5, drift=[0.0, 2.0])
    like = ppocli.evaluate(**given, like="verl", rollout_rs=(rule,)).like
    assert like is not None
    # k1 is -drift; the two sequences have 3 and 5 tokens.
    assert like.metrics["rollout_corr/kl"] == pytest.approx(-2.0 * 5.0 / 8.0, rel=1e-8)
    assert like.metrics["rollout_corr/log_ppl_diff"] == pytest.approx(-1.0, rel=1e-8)
    assert like.metrics["rollout_corr/rollout_rs_masked_fraction"] == pytest.approx(5.0 / 8.0, rel=1e-8)
    assert like.metrics["rollout_corr/rollout_rs_seq_masked_fraction"] == 0.5
    assert like.metrics["actor/ppo_kl"] == pytest.approx(-0.05, rel=1e-8)


def test_weights_of_sequences_are_made_before_tokens_are_left_out() -> None:
    old = np.array([0.0, 0.0])
    rollout = old - np.log([1.5, 4.0])
    given = {"log_probs": [old], "old_log_probs": [old], "rollout_log_probs": [rollout]}
    report = ppocli.evaluate(
        **given,
        advantages=[np.array([1.0, 1.0])],
        like="openrlhf",
        objective="is",
        rollout_is="sequence",
        rollout_rs=("token_ratio:0.5_2",),
        rollout_rs_mode="drop",
        log_ratio_clamp=None,
    )
    # The weight is 6, the product; the second token is left out.
    assert report.metrics["policy_loss"] == pytest.approx(-6.0, rel=1e-12)
    assert report.like is not None
    assert report.like.metrics["train/policy_loss"] == pytest.approx(-6.0, rel=1e-12)


def test_everything_left_out() -> None:
    given = sequences(3, drift=[2.0])
    report = ppocli.evaluate(**given, like="verl", rollout_rs=("token_ratio:0.5_2",), allow_empty=True)
    assert report.like is not None
    assert report.like.metrics["actor/pg_loss"] is None
    assert report.like.metrics["rollout_corr/kl"] == pytest.approx(-2.0, rel=1e-8)
    assert report.like.metrics["rollout_corr/rollout_rs_masked_fraction"] == pytest.approx(1.0, rel=1e-8)


def test_stored_sequences_without_a_token_count_as_zero() -> None:
    ones = np.ones((3, 2))
    mask = np.array([[1, 1], [1, 0], [0, 0]])
    like = ppocli.evaluate(
        log_probs=0.0 * ones, old_log_probs=0.0 * ones, advantages=-ones, mask=mask, like="skyrl",
        agg="seq-mean-token-mean",
    ).like  # fmt: skip
    assert like is not None
    assert like.metrics["policy/policy_loss"] == pytest.approx(2.0 / 3.0, rel=1e-12)


def test_mean_over_groups_under_a_preset() -> None:
    ones = np.ones((3, 2))
    columns = {"log_probs": 0.0 * ones, "old_log_probs": 0.0 * ones}
    group_id = np.array([[7, 7], [7, 7], [9, 9]])
    advantages = -np.array([[1.0, 1.0], [3.0, 3.0], [10.0, 10.0]])
    report = ppocli.evaluate(
        **columns, advantages=advantages, group_id=group_id, like="verl", agg="group-mean", loss_scale=2.0
    )
    assert report.like is not None
    assert report.like.metrics["actor/pg_loss"] == pytest.approx(2.0 * (2.0 + 10.0) / 2.0, rel=1e-12)
    without = ppocli.evaluate(**columns, advantages=advantages, like="verl", agg="group-mean").like
    assert without is not None
    assert without.metrics["actor/pg_loss"] is None


def test_optional_metrics_are_left_out_without_their_columns() -> None:
    ones = np.ones((2, 2))
    columns = {"log_probs": -ones, "old_log_probs": -ones, "advantages": ones}
    like = ppocli.evaluate(**columns, like="verl").like
    assert like is not None
    assert "rollout_corr/kl" not in like.metrics
    assert like.metrics["critic/vf_loss"] is None
    assert like.definitions.keys() == like.metrics.keys()
    with_entropy = ppocli.evaluate(**columns, entropy=3.0 * ones, like="verl").like
    assert with_entropy is not None
    assert with_entropy.metrics["actor/entropy"] == 3.0
