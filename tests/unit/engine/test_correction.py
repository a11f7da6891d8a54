"""Corrections against the rollout policy, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ppocli
from ppocli.core.metrics import METRICS

LN2 = math.log(2.0)
# Two sequences of two tokens. Weights exp(old - rollout): 2, 1 and 1/2, 4; losses -1, -1, 1, 1 (ratio 1).
BATCH: dict[str, Any] = {
    "log_probs": np.array([[-1.0, -1.0], [-2.0, -2.0]]),
    "old_log_probs": np.array([[-1.0, -1.0], [-2.0, -2.0]]),
    "rollout_log_probs": np.array([[-1.0 - LN2, -1.0], [-2.0 + LN2, -2.0 - 2 * LN2]]),
    "advantages": np.array([[1.0, 1.0], [-1.0, -1.0]]),
}


def metrics(**settings: Any) -> dict[str, Any]:
    return dict(ppocli.evaluate(**BATCH, **settings).metrics)


def test_token_weights_with_a_cap() -> None:
    got = metrics(rollout_is="token", rollout_is_cap=3.0)
    assert got["policy_loss"] == pytest.approx((-2.0 - 1.0 + 0.5 + 3.0) / 4)
    assert got["policy_loss_uncorrected"] == 0.0
    assert got["rollout_weight_raw_mean"] == pytest.approx(7.5 / 4)
    assert got["rollout_weight_raw_max"] == pytest.approx(4.0)
    assert got["rollout_weight_mean"] == pytest.approx(6.5 / 4)
    assert (got["rollout_weight_min"], got["rollout_weight_max"]) == (pytest.approx(0.5), 3.0)
    assert got["rollout_weight_capped_frac"] == 0.25
    assert got["rollout_weight_low_frac"] == 0.0
    assert got["rollout_weight_ess_frac"] == pytest.approx(6.5**2 / (4 * (4 + 1 + 0.25 + 9)))


def test_masked_weights_are_zero_outside_their_bounds() -> None:
    got = metrics(rollout_is="token", rollout_is_cap=2.5, rollout_is_low=0.75, rollout_is_mode="mask")
    assert got["policy_loss"] == pytest.approx((-2.0 - 1.0 + 0.0 + 0.0) / 4)
    assert (got["rollout_weight_capped_frac"], got["rollout_weight_low_frac"]) == (0.25, 0.25)


@pytest.mark.parametrize(
    ("level", "first", "second"),
    [("sequence", 2.0, 2.0), ("geometric", math.sqrt(2.0), math.sqrt(2.0))],
)
def test_weights_of_sequences(level: str, first: float, second: float) -> None:
    got = metrics(rollout_is=level)
    assert got["policy_loss_by_agg"]["token-sum"] == pytest.approx(-2 * first + 2 * second, abs=1e-15)
    assert got["rollout_weight_raw_mean"] == pytest.approx((first + second) / 2)


def test_rejected_tokens_are_not_there() -> None:
    got = metrics(rollout_rs=("token_ratio:0.6_3",))
    assert (got["n_tokens"], got["n_masked"], got["rollout_rejected_frac"]) == (2, 0, 0.5)
    assert got["policy_loss"] == -1.0
    assert got["adv_mean"] == 1.0


def test_rejected_sequences_are_not_there() -> None:
    # k3 of a token is w - 1 - ln w: the second sequence's mean is the larger one.
    k3 = [(w - 1 - math.log(w)) for w in (2.0, 1.0, 0.5, 4.0)]
    bound = (sum(k3[:2]) + sum(k3[2:])) / 4
    got = metrics(rollout_rs=(f"seq_mean_k3:{bound}",))
    assert (got["n_tokens"], got["n_sequences"], got["policy_loss"]) == (2, 1, -1.0)


def test_weights_come_from_all_tokens_and_statistics_precede_rejection() -> None:
    got = metrics(rollout_is="sequence", rollout_rs=("token_ratio:0.6_3",))
    # The first sequence keeps both tokens, at weight 2; the second loses both.
    assert got["policy_loss"] == pytest.approx(-2.0)
    assert got["rollout_weight_raw_mean"] == pytest.approx(2.0)
    assert got["policy_loss_uncorrected"] == 0.0


def test_the_callers_mask_is_left_alone() -> None:
    mask = np.ones((2, 2), dtype=np.uint8)
    got = ppocli.evaluate(**BATCH, mask=mask, rollout_rs=("token_ratio:0.6_3",))
    assert got.metrics["n_tokens"] == 2
    assert mask.all()


def test_without_a_correction_there_are_no_such_metrics() -> None:
    named = {name for name, one in METRICS.items() if one.section == "correction"}
    assert not named & metrics().keys()
    assert named - {"rollout_rejected_frac"} <= metrics(rollout_is="token").keys()
