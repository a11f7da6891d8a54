"""Terms about tokens of another policy, against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ppocli.core.correction_terms import kept, over_sequence, rejected, rule, weight
from ppocli.core.sequence_objectives import Sequences
from ppocli.core.spec import LossSpec
from ppocli.core.terms import clip, difference, gate, kl, ratio
from ppocli.core.tokens import Tokens

TWO, THREE, HALF = math.log(2.0), math.log(3.0), math.log(0.5)


def tokens(**columns: list[float]) -> Tokens:
    """Two sequences: the first two tokens, and the third."""
    arrays = {role: np.array(values) for role, values in columns.items()}
    return Tokens(arrays, Sequences.from_ids(np.array([0, 0, 1])))


def drifted() -> Tokens:
    """Old over rollout ratios 2, 1/2 and 3."""
    return tokens(
        log_probs=[-1.0, -1.0, -1.0],
        old_log_probs=[TWO - 2.0, HALF - 2.0, THREE - 2.0],
        rollout_log_probs=[-2.0, -2.0, -2.0],
        advantages=[1.0, -1.0, 2.0],
    )


def test_weights_of_tokens() -> None:
    spec = LossSpec(rollout_is="token", rollout_is_cap=2.5)
    assert weight(drifted(), spec) == pytest.approx([2.0, 0.5, 2.5])
    assert weight(drifted(), spec, kind="raw", power=2) == pytest.approx([4.0, 0.25, 9.0])
    assert weight(drifted(), spec, kind="high").tolist() == [0.0, 0.0, 1.0]
    # Without a lower bound it is 1 / 2.5.
    assert weight(drifted(), spec, kind="under").tolist() == [0.0, 0.0, 0.0]
    assert weight(drifted(), LossSpec(rollout_is="token", rollout_is_cap=1.9), kind="under").tolist() == [
        0.0,
        1.0,
        0.0,
    ]


def test_means_of_weights_by_sequence() -> None:
    # Means 1.25 and 3.
    spec = LossSpec(rollout_is="token", rollout_is_cap=2.5, rollout_is_low=1.25)
    assert weight(drifted(), spec, kind="mean_high").tolist() == [0.0, 0.0, 1.0]
    assert weight(drifted(), spec, kind="mean_reached").tolist() == [1.0, 1.0, 1.0]


def test_without_a_weight_it_is_one() -> None:
    assert weight(drifted(), LossSpec()).tolist() == [1.0, 1.0, 1.0]
    assert weight(drifted(), LossSpec(), kind="high").tolist() == [0.0, 0.0, 0.0]


def test_tokens_that_rules_allow() -> None:
    spec = LossSpec(rollout_rs=("token_ratio:0.4_2.5",), rollout_rs_mode="zero")
    assert kept(drifted(), spec).tolist() == [1.0, 1.0, 0.0]
    assert rejected(drifted(), spec).tolist() == [0.0, 0.0, 1.0]
    new_over_old = [math.exp(1.0 - TWO), math.exp(1.0 - HALF), 0.0]
    assert ratio(drifted(), spec, kept=True) == pytest.approx(new_over_old)
    assert kl(drifted(), spec, kept=True) == pytest.approx([TWO - 1.0, HALF - 1.0, 0.0])
    # 2 / e and 2 e over 1, A = 1 and -1: neither is clipped on the side of its advantage, and e / 3 is in.
    assert clip(drifted(), spec, kind="region", kept=True).tolist() == [1.0, 1.0, 0.0]


def test_rejected_tokens_have_no_loss_and_still_count() -> None:
    spec = LossSpec(objective="is", rollout_rs=("token_ratio:0.4_2.5",), rollout_rs_mode="zero")
    assert drifted().terms(spec).loss == pytest.approx([-math.exp(1.0 - TWO), math.exp(1.0 - HALF), 0.0])


def test_a_bound_that_holds_only_what_a_rule_does_not_allow() -> None:
    spec = LossSpec(
        rollout_is="token", rollout_is_cap=1.5, rollout_rs=("seq_max_ratio:0_2.5",), rollout_rs_mode="clamp"
    )
    assert weight(drifted(), spec) == pytest.approx([2.0, 0.5, 1.5])
    assert weight(drifted(), spec, kind="high").tolist() == [0.0, 0.0, 1.0]
    assert kl(drifted(), spec, kept=True)[2] == pytest.approx(THREE - 1.0)


def test_parts_of_a_rule() -> None:
    spec = LossSpec(rollout_rs=("seq_mean_ratio:0.5_2",))
    first = 0.0  # (log 2 + log 1/2) / 2
    assert rule(drifted(), spec, name="seq_mean_ratio", part="value") == pytest.approx(
        [first, first, THREE], abs=1e-15
    )
    assert rule(drifted(), spec, name="seq_mean_ratio", part="high").tolist() == [0.0, 0.0, 1.0]
    assert rule(drifted(), spec, name="seq_mean_ratio", part="out").tolist() == [0.0, 0.0, 1.0]
    assert rule(drifted(), spec, name="seq_mean_ratio", part="held") == pytest.approx(
        [0.0, 0.0, TWO], abs=1e-15
    )
    by_token = LossSpec(rollout_rs=("token_k2:0.3",))
    assert rule(drifted(), by_token, name="token_k2", part="mean_high").tolist() == [0.0, 0.0, 1.0]
    assert rule(drifted(), by_token, name="token_k2", part="value", power=2)[0] == pytest.approx(TWO**4 / 4.0)


def test_sums_and_means_over_sequences() -> None:
    pair = {"new": "old_log_probs", "old": "rollout_log_probs"}
    assert over_sequence(drifted(), LossSpec(), then="expm1", level="sequence", times=2.0, **pair) == (
        pytest.approx([0.0, 0.0, 8.0], rel=1e-14, abs=1e-15)
    )
    eps = LossSpec(seq_eps=1.0)
    assert over_sequence(drifted(), eps, new="rollout_log_probs", old=None, then="abs") == pytest.approx(
        [4.0 / 3.0, 4.0 / 3.0, 1.0]
    )
    assert over_sequence(drifted(), LossSpec(), clamp=1.0, **pair)[2] == 1.0


def test_old_policy_that_is_the_sampler() -> None:
    spec = LossSpec(rollout_is="token", rollout_is_cap=2.0, rollout_bypass=True)
    given = tokens(log_probs=[TWO, 0.0, THREE], old_log_probs=[0.0] * 3, advantages=[1.0] * 3)
    assert weight(given, spec) == pytest.approx([2.0, 1.0, 2.0])
    assert spec.correction_pair == ("log_probs", "old_log_probs")
    assert not spec.reads_rollout


def test_mean_advantage_of_a_sequence() -> None:
    spec = LossSpec(objective="is", adv_level="sequence")
    assert drifted().advantages(spec).tolist() == [0.0, 0.0, 2.0]
    assert drifted().terms(spec).loss == pytest.approx([0.0, 0.0, -2.0 * math.exp(1.0 - THREE)])


def test_gates_of_sapo() -> None:
    spec = LossSpec(objective="sapo", sapo_tau_pos=2.0, sapo_tau_neg=4.0)
    given = tokens(log_probs=[TWO, 0.0, 0.0], old_log_probs=[0.0] * 3, advantages=[1.0, -1.0, 0.0])
    positive = 4.0 / 2.0 / (1.0 + math.exp(-2.0))
    assert gate(given, spec, side="positive") == pytest.approx([positive, 1.0, 1.0])
    assert gate(given, spec) == pytest.approx([positive, 0.5, 0.5])
    shared = LossSpec(objective="sapo", sapo_tau_pos=2.0, sapo_tau_neg=4.0, ratio_level="sequence")
    root = 4.0 / 2.0 / (1.0 + math.exp(-2.0 * (math.sqrt(2.0) - 1.0)))
    assert gate(given, shared, side="positive") == pytest.approx([root, root, 1.0])
    # The loss is minus the gate times A; its gradient is the same for both tokens of the sequence.
    terms = given.terms(shared)
    assert terms.loss[0] == pytest.approx(-root)
    assert terms.gradient[0] == terms.gradient[1]


def test_dropped_and_capped_tokens_of_dppo() -> None:
    spec = LossSpec(objective="dppo-tv", clip_low=0.1, clip_high=0.1, dppo_weight_cap=1.5)
    given = tokens(
        log_probs=[math.log(0.4), math.log(0.2), math.log(0.02)],
        old_log_probs=[math.log(0.2), math.log(0.4), math.log(0.01)],
        advantages=[1.0, 0.0, 1.0],
    )
    assert clip(given, spec, kind="active").tolist() == [1.0, 0.0, 0.0]
    assert clip(given, spec, kind="dropped").tolist() == [1.0, 1.0, 0.0]
    assert clip(given, spec, kind="capped").tolist() == [0.0, 0.0, 1.0]


def test_difference_of_columns() -> None:
    assert difference(drifted(), LossSpec(), a="advantages", b="rollout_log_probs").tolist() == [
        3.0,
        1.0,
        4.0,
    ]


def test_weights_join_the_geometric_mean_of_gmpo() -> None:
    spec = LossSpec(objective="gmpo", rollout_is="token")
    given = tokens(
        log_probs=[0.0] * 3, old_log_probs=[0.0] * 3, advantages=[1.0] * 3, rollout_log_probs=[-TWO, TWO, TWO]
    )
    # Ratios 1; weights 2 and 1/2 have the geometric mean 1.
    assert given.terms(spec).loss == pytest.approx([-1.0, -1.0, -0.5], rel=1e-9)


def test_length_with_an_epsilon_in_gmpo() -> None:
    spec = LossSpec(objective="gmpo", seq_eps=1.0, clip_low=1.0, clip_high=1.0)
    given = tokens(log_probs=[0.3, 0.6, 0.5], old_log_probs=[0.0] * 3, advantages=[1.0] * 3)
    g, h = math.exp(0.9 / 3.0), math.exp(0.5 / 2.0)
    assert given.terms(spec).loss == pytest.approx([-g, -g, -h])
    assert given.terms(spec).gradient == pytest.approx([-g * 2.0 / 3.0, -g * 2.0 / 3.0, -h / 2.0])
