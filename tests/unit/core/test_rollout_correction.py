"""Weights, rejection and what they leave, against values worked out by hand or with the math module."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ppocli.core import rollout_correction
from ppocli.core.rollout_rules import RejectionRule, WeightRule, parse_rejection
from ppocli.core.sequence_objectives import Sequences

# Two sequences: ratios 2, 1/8 (product 1/4, geometric 1/2) and 3.
LOG_RATIO = np.log([2.0, 0.125, 3.0])
SEQUENCES = Sequences.from_ids(np.array([0, 0, 1]))
ROLLOUT = np.log([0.25, 0.5, 0.1])
OLD = ROLLOUT + LOG_RATIO


@pytest.mark.parametrize(
    ("rule", "raw", "applied", "touched"),
    [
        (WeightRule(), [2, 0.125, 3], [2, 0.125, 3], [0, 0, 0]),
        (WeightRule(cap=2.5), [2, 0.125, 3], [2, 0.125, 2.5], [0, 0, 1]),
        (WeightRule(cap=2.5, low=0.5), [2, 0.125, 3], [2, 0.5, 2.5], [0, 1, 1]),
        (WeightRule(cap=2.5, low=0.5, mode="mask"), [2, 0.125, 3], [2, 0, 0], [0, 1, 1]),
        (WeightRule("sequence", cap=2.0), [0.25, 0.25, 3], [0.25, 0.25, 2], [0, 0, 1]),
        (WeightRule("geometric", low=0.75), [0.5, 0.5, 3], [0.75, 0.75, 3], [1, 1, 0]),
        (WeightRule("geometric", cap=1.0, mode="mask"), [0.5, 0.5, 3], [0.5, 0.5, 0], [0, 0, 1]),
        (WeightRule("sequence", log_ratio_clamp=0.0), [1, 1, 1], [1, 1, 1], [0, 0, 0]),
    ],
)
def test_weights(rule: WeightRule, raw: list[float], applied: list[float], touched: list[int]) -> None:
    weights = rollout_correction.importance_weights(LOG_RATIO, SEQUENCES, rule)
    assert weights.raw.tolist() == pytest.approx(raw, rel=1e-15)
    assert weights.applied.tolist() == pytest.approx(applied, rel=1e-15)
    assert weights.touched.tolist() == [bool(one) for one in touched]


def test_a_weight_on_the_cap_is_not_touched() -> None:
    weights = rollout_correction.importance_weights(
        np.zeros(1), Sequences.from_ids(np.zeros(1)), WeightRule(cap=1.0, low=1.0, mode="mask")
    )
    assert weights.applied.tolist() == [1.0]
    assert not weights.touched.any()


def test_weights_that_overflow_are_infinite_and_nan_stays() -> None:
    sequences = Sequences.from_ids(np.array([0, 1]))
    log_ratio = np.array([800.0, math.nan])
    plain = rollout_correction.importance_weights(log_ratio, sequences, WeightRule())
    assert plain.raw[0] == math.inf
    assert math.isnan(plain.raw[1])
    capped = rollout_correction.importance_weights(log_ratio, sequences, WeightRule(cap=2.0, mode="mask"))
    assert capped.applied[0] == 0.0
    assert math.isnan(capped.applied[1])


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("token_ratio:0.1_2.5", [1, 1, 0]),
        # k1 is -log ratio: its bounds are those of 1 / ratio.
        ("token_k1:0.4_10", [1, 1, 0]),
        ("token_k1:0.1_2.5", [1, 0, 1]),
        ("token_k2:0.5", [1, 0, 0]),
        ("token_k3:1", [1, 0, 1]),
        ("seq_sum_ratio:0.3_4", [0, 0, 1]),
        ("seq_mean_ratio:0.4_2", [1, 1, 0]),
        ("seq_sum_k3:1.5", [0, 0, 1]),
        ("seq_mean_k3:0.8", [1, 1, 0]),
        ("seq_max_k3:1.19", [0, 0, 1]),
        ("veto:0.2", [0, 0, 1]),
        # Probabilities 0.5 and 0.25, 0.0625 and 0.5, 0.3 and 0.1.
        ("token_tv:0.25", [1, 0, 1]),
        ("seq_max_tv:0.25", [0, 0, 1]),
        # 0.25 log(0.5) + 0.75 log(1.5) = 0.1308; 0.6365...; 0.1 log(1/3) + 0.9 log(0.9/0.7) = 0.1163.
        ("token_binary_kl:0.12", [0, 0, 1]),
    ],
)
def test_rejection(text: str, kept: list[int]) -> None:
    found = rollout_correction.reject(OLD, ROLLOUT, SEQUENCES, parse_rejection(text))
    assert found.kept.tolist() == [bool(one) for one in kept]


def test_k3_values() -> None:
    found = rollout_correction.reject(OLD, ROLLOUT, SEQUENCES, RejectionRule("seq_sum", "k3", high=9.0))
    want = [(2 - 1 - math.log(2)) + (0.125 - 1 - math.log(0.125)), 3 - 1 - math.log(3)]
    assert found.statistic.tolist() == pytest.approx(want, rel=1e-14)


def test_bounds_are_inside_and_nan_is_not() -> None:
    sequences = Sequences.from_ids(np.array([0, 0, 1]))
    old, rollout = np.array([-1.0, -3.0, math.nan]), np.array([-1.0, -3.0, -1.0])
    found = rollout_correction.reject(old, rollout, sequences, RejectionRule("token", "ratio", 1.0, 1.0))
    assert found.kept.tolist() == [True, True, False]
    assert not found.low.any()
    assert not found.high.any()


def test_sequences_with_nan_are_dropped_whole() -> None:
    sequences = Sequences.from_ids(np.array([0, 0, 1]))
    old, rollout = np.array([-1.0, math.nan, -2.0]), np.full(3, -1.0)
    for level in ("seq_sum", "seq_mean", "seq_max"):
        found = rollout_correction.reject(old, rollout, sequences, RejectionRule(level, "k3", high=9.0))
        assert found.kept.tolist() == [False, False, True]


def test_kept_by_all_without_rules_keeps_everything() -> None:
    assert rollout_correction.kept_by_all([], 3).tolist() == [True, True, True]


def test_total_variation_keeps_the_digits_of_close_probabilities() -> None:
    a, b = np.array([-0.5]), np.array([-0.5 - 2.0**-40])
    want = math.exp(-0.5) * 2.0**-40
    assert rollout_correction.total_variation(a, b)[0] == pytest.approx(want, rel=1e-11)
    assert rollout_correction.total_variation(a, a).tolist() == [0.0]
    assert rollout_correction.total_variation(np.array([-math.inf]), np.array([0.0])).tolist() == [1.0]


def test_binary_kl_with_a_clamp_is_finite_at_certainty() -> None:
    kl = rollout_correction.binary_kl(np.array([0.0]), np.array([math.log(0.5)]), 1e-6)
    want = 0.5 * math.log(0.5 / (1 - 1e-6)) + 0.5 * math.log(0.5 / 1e-6)
    assert kl[0] == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize(
    ("weights", "want"),
    [
        ([1.0, 1.0, 1.0, 1.0], 1.0),
        ([1.0, 1.0, 0.0, 0.0], 0.5),
        ([3.0, 1.0], 16 / (2 * 10)),
        ([1e300, 1e300], 1.0),
    ],
)
def test_effective_sample_size(weights: list[float], want: float) -> None:
    assert rollout_correction.ess_frac(np.array(weights)) == pytest.approx(want, rel=1e-15)


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [math.inf, 1.0], [math.nan, 1.0]])
def test_effective_sample_size_that_is_not_defined(weights: list[float]) -> None:
    assert math.isnan(rollout_correction.ess_frac(np.array(weights)))


def test_batch_norm_factor_is_over_tokens_or_over_sequences() -> None:
    weights = np.array([1.0, 3.0, 5.0])
    assert rollout_correction.batch_norm_factor(weights, SEQUENCES, "token") == 3.0
    assert rollout_correction.batch_norm_factor(weights, SEQUENCES, "sequence") == 3.5
    nothing = Sequences.from_ids(np.array([], dtype=np.int64))
    assert math.isnan(rollout_correction.batch_norm_factor(np.array([]), nothing, "token"))
