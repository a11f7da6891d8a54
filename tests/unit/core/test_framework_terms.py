"""Terms that few frameworks log, on two sequences of two tokens and one, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ppocli.core.sequence_objectives import Sequences
from ppocli.core.spec import LossSpec
from ppocli.core.terms import TERMS
from ppocli.core.tokens import Tokens

# Ratios 2, 1/2, 3; probabilities of the current policy 0.4, 0.1, 0.6.
NEW, OLD = (0.4, 0.1, 0.6), (0.2, 0.2, 0.2)
ROLLOUT, REF = (0.1, 0.4, 0.2), (0.1, 0.1, 0.3)
ADVANTAGES = (2.0, -1.0, 1.0)
ENTROPY = (0.5, 0.25, 1.0)


def tokens(advantages: tuple[float, ...] = ADVANTAGES) -> Tokens:
    columns = {
        "log_probs": np.log(NEW),
        "old_log_probs": np.log(OLD),
        "rollout_log_probs": np.log(ROLLOUT),
        "ref_log_probs": np.log(REF),
        "advantages": np.array(advantages),
        "entropy": np.array(ENTROPY),
    }
    return Tokens(columns, Sequences.from_offsets(np.array([0, 2, 3])))


def term(name: str, spec: LossSpec | None = None, of: Tokens | None = None, **options: Any) -> list[float]:
    spec = spec or LossSpec()
    batch = of or tokens()
    roles = TERMS[name].roles(spec, options)
    needed = Tokens({role: batch.columns[role] for role in (*roles, "entropy")}, batch.sequences)
    out: list[float] = TERMS[name].compute(needed, spec, **options).tolist()
    return out


def about(*values: float) -> Any:
    return pytest.approx(list(values), rel=1e-14, abs=1e-15)


class TestReferenceKL:
    def test_k1_is_the_difference(self) -> None:
        assert term("ref_kl", LossSpec(ref_kl="k1")) == about(math.log(4), 0.0, math.log(2))

    def test_k3_is_the_inverse_ratio_less_1_plus_the_difference(self) -> None:
        assert term("ref_kl") == about(0.25 - 1 + math.log(4), 0.0, 0.5 - 1 + math.log(2))

    def test_ratio_k1(self) -> None:
        spec = LossSpec(ref_kl="ratio-k1")
        assert term("ref_kl", spec) == about(2 * math.log(4), 0.0, 3 * math.log(2))

    def test_clamp_before_and_cap_after(self) -> None:
        spec = LossSpec(ref_kl="k2", ref_kl_clamp=1.0, ref_kl_cap=0.4)
        assert term("ref_kl", spec) == about(0.4, 0.0, math.log(2) ** 2 / 2)

    def test_times_the_ratio_of_the_token_at_most_delta(self) -> None:
        spec = LossSpec(ref_kl="k1", ref_kl_ratio=True, delta=2.5)
        assert term("ref_kl", spec) == about(2 * math.log(4), 0.0, 2.5 * math.log(2))

    def test_times_the_ratio_of_the_sequence(self) -> None:
        # The geometric mean of 2 and 1/2 is 1.
        spec = LossSpec(ref_kl="k1", ref_kl_ratio=True, objective="gspo")
        assert term("ref_kl", spec) == about(math.log(4), 0.0, 3 * math.log(2))

    def test_penalty(self) -> None:
        spec = LossSpec(ref_kl="k1", kl_coef=0.5)
        assert term("ref_kl", spec, penalty=True) == about(math.log(2), 0.0, math.log(2) / 2)

    def test_no_penalty_needs_no_column(self) -> None:
        assert TERMS["ref_kl"].roles(LossSpec(), {"penalty": True}) == ()
        assert term("ref_kl", penalty=True) == [0.0, 0.0, 0.0]


class TestPenalties:
    def test_entropy_bonus(self) -> None:
        assert term("entropy_bonus", LossSpec(ent_coef=0.1)) == about(0.05, 0.025, 0.1)
        assert TERMS["entropy_bonus"].roles(LossSpec(), {}) == ()

    def test_square_of_the_log_ratio(self) -> None:
        squares = (math.log(2) ** 2, math.log(2) ** 2, math.log(3) ** 2)
        spec = LossSpec(log_ratio_penalty=0.5)
        assert term("log_ratio_penalty", spec) == about(*(0.5 * one for one in squares))


class TestMismatch:
    # old / rollout: 2, 1/2, 1.
    def test_differences(self) -> None:
        assert term("probability_difference") == about(0.1, -0.2, 0.0)
        assert term("distance_from_one") == about(1.0, 0.5, 0.0)
        assert term("multiplicative_error") == about(2.0, 2.0, 1.0)

    def test_divergence_from_the_mixture(self) -> None:
        # Token 0: p = 0.2, q = 0.1, m = 0.15: (4/3 - 1 - log 4/3 + 2/3 - 1 - log 2/3) / 2.
        first = -0.5 * (math.log(4 / 3) + math.log(2 / 3))
        assert term("mixture_divergence") == about(first, first, 0.0)

    def test_entropy_by_weights(self) -> None:
        # new / rollout: 4, 1/4, 3.
        expected = (-4 * math.log(0.4), -0.25 * math.log(0.1), -3 * math.log(0.6))
        assert term("weighted_entropy") == about(*expected)

    def test_behaviour_weighted(self) -> None:
        expected = (0.1 * math.log(1 / 4), 0.4 * math.log(4), 0.2 * math.log(1 / 3))
        assert term("behaviour_weighted") == about(*expected)

    def test_sampling_ratio_of_the_token_and_of_the_sequence(self) -> None:
        assert term("sampling_ratio") == about(2.0, 0.5, 1.0)
        assert term("sampling_ratio", LossSpec(objective="gspo"), less=1.0) == about(0.0, 0.0, 0.0)

    def test_sampling_ratio_as_applied(self) -> None:
        spec = LossSpec(rollout_is="token", rollout_is_cap=1.5)
        assert term("sampling_ratio", spec) == about(1.5, 0.5, 1.0)
        rule = LossSpec(rollout_is="token", rollout_rs=("token_ratio:0.6_3",), rollout_rs_mode="zero")
        assert term("sampling_ratio", rule) == about(2.0, 0.0, 1.0)

    def test_kinds_of_weights(self) -> None:
        spec = LossSpec(rollout_is="token", rollout_is_cap=1.5, rollout_is_low=0.75)
        assert term("weight", spec, kind="excess") == about(0.5, -0.25, 0.0)
        assert term("weight", spec, kind="touched") == [1.0, 1.0, 0.0]
        assert term("weight", LossSpec(), kind="touched") == [0.0, 0.0, 0.0]


class TestRatios:
    def test_of_the_objective(self) -> None:
        assert term("objective_ratio") == about(2.0, 0.5, 3.0)
        assert term("objective_ratio", LossSpec(objective="gspo")) == about(1.0, 1.0, 3.0)

    def test_clipped(self) -> None:
        assert term("objective_ratio", clipped=True) == about(1.2, 0.8, 1.2)
        cispo = LossSpec(objective="cispo", cispo_low=0.0, cispo_high=2.5)
        assert term("objective_ratio", cispo, clipped=True) == about(2.0, 0.5, 2.5)

    def test_averaged_over_the_sequence(self) -> None:
        assert term("objective_ratio", averaged=True) == about(1.25, 1.25, 3.0)

    def test_eps_of_a_sequences_length(self) -> None:
        spec = LossSpec(objective="gspo", ratio_eps=1.0)
        assert term("objective_ratio", spec) == about(1.0, 1.0, math.sqrt(3))

    def test_logarithm(self) -> None:
        log2 = math.log(2.5)
        first = term("logarithm", eps=0.5, power=2)[0]
        assert first == pytest.approx(log2**2, rel=1e-14)
        signed = term("logarithm", eps=0.5, times="advantages")
        assert signed == about(2 * log2, 0.0, math.log(3.5))
        assert term("logarithm", eps=0.0, size=True)[1] == pytest.approx(math.log(2), rel=1e-14)


class TestSequences:
    def test_phi(self) -> None:
        # w = 1 in the first sequence; w = 3, A > 0: 9 exp(3 - 9) in the second.
        assert term("phi", LossSpec(objective="vespo")) == about(0.0, 0.0, 9 * math.exp(-6) - 1)

    def test_phi_with_the_weight_inside(self) -> None:
        # Weights 2, 1/2 capped at 1: w = 1/2 in the first sequence. A > 0: phi = w^2 exp(3 (1 - w)).
        spec = LossSpec(
            objective="vespo", rollout_is="token", rollout_is_cap=1.0, vespo_rollout_is=True,
            vespo_log_high=0.5,
        )  # fmt: skip
        high = math.exp(1.0 + 3 * (1 - math.exp(0.5)))
        first, second = 0.25 * math.exp(1.5), 0.125 * math.exp(1.0)
        assert term("phi", spec) == about(first - 1, second - 1, high - 1)

    def test_loss_times_length_counts_valid_tokens(self) -> None:
        batch = tokens()
        valid = np.array([True, False, True])
        whole = Tokens(batch.columns, batch.sequences, valid)
        # Losses -1.2 * 2, 0.8, -1.2; lengths 1 and 1.
        got = TERMS["loss_times_length"].compute(whole, LossSpec())
        assert got.tolist() == about(-2.4, 0.8, -1.2)
        assert TERMS["loss_times_length"].compute(batch, LossSpec()).tolist() == about(-4.8, 1.6, -1.2)

    def test_held_back_by_the_threshold(self) -> None:
        # The mean of old - new is 0 in the first sequence and -log 3 in the second.
        spec = LossSpec(off_policy_threshold=-0.5)
        assert term("held_back", spec) == [0.0, 1.0, 0.0]
        assert term("held_back", LossSpec(off_policy_threshold=0.5)) == [0.0, 0.0, 0.0]
        # The mean of rollout - new is -(log 4 - log 4) / 2 = 0.
        other = LossSpec(off_policy_threshold=-0.5, off_policy_anchor="rollout")
        assert term("held_back", other) == [0.0, 1.0, 0.0]

    def test_held_back_by_rules(self) -> None:
        spec = LossSpec(rollout_rs=("token_ratio:0.6_1.5",), rollout_rs_mode="zero")
        assert term("held_back", spec) == [1.0, 1.0, 0.0]
        assert term("held_back", spec, side="low") == [0.0, 1.0, 0.0]
        assert term("held_back", spec, side="high") == [1.0, 0.0, 0.0]
        whole = LossSpec(rollout_rs=("seq_mean_ratio:1.1_2",), rollout_rs_mode="zero")
        assert term("held_back", whole, side="low") == [1.0, 1.0, 1.0]

    def test_clip_with_a_weight(self) -> None:
        assert term("clip_kept") == [1.0, 1.0, 1.0]
        spec = LossSpec(rollout_rs=("token_ratio:0.6_3",), rollout_rs_mode="zero")
        assert term("clip_kept", spec) == [1.0, 0.0, 1.0]


class TestTrustRegion:
    # Differences of probabilities: 0.2, -0.1, 0.4.
    def test_dropped(self) -> None:
        spec = LossSpec(objective="dppo-tv", clip_low=0.05, clip_high=0.3)
        assert term("dropped", spec) == [0.0, 1.0, 1.0]
        assert term("dropped", spec, kind="low") == [0.0, 1.0, 0.0]
        assert term("dropped", spec, kind="high") == [0.0, 0.0, 1.0]

    def test_a_zero_advantage_goes_by_the_lower_bound(self) -> None:
        spec = LossSpec(objective="dppo-tv", clip_low=0.05, clip_high=0.3)
        assert term("dropped", spec, tokens((0.0, 0.0, 0.0))) == [0.0, 1.0, 0.0]

    def test_both_sides_whatever_the_advantage(self) -> None:
        spec = LossSpec(objective="dppo-tv", clip_low=0.15, clip_high=0.15, dppo_two_sided=True)
        assert term("dropped", spec, tokens((-1.0, 1.0, -1.0))) == [1.0, 0.0, 1.0]

    def test_means_among_them(self) -> None:
        spec = LossSpec(objective="dppo-tv", clip_low=0.05, clip_high=0.3)
        k3 = [one - 1 - math.log(one) for one in (2.0, 0.5, 3.0)]
        assert term("among", spec) == about(k3[1], k3[1], k3[2])
        assert term("among", spec, where="kept") == about(k3[0], k3[0], 0.0)
        assert term("among", spec, value="positive") == [0.0, 0.0, 1.0]
        assert term("among", spec, value="negative") == [1.0, 1.0, 0.0]


class TestLosses:
    def test_one_ratio_for_a_sequence_in_cispo_and_sapo(self) -> None:
        cispo = LossSpec(objective="cispo", ratio_level="sequence")
        # Ratios 1, 1, and 3 held at 1.2: -w A log p.
        expected = (-2 * math.log(0.4), math.log(0.1), -1.2 * math.log(0.6))
        assert term("loss", cispo) == about(*expected)
        sapo = LossSpec(objective="sapo", ratio_level="sequence", sapo_tau_neg=2.0)
        gate = 1 / (1 + math.exp(-2.0))
        assert term("loss", sapo) == about(-4.0, 1.0, -4 * gate)

    def test_cispo_without_tokens_that_are_clipped(self) -> None:
        spec = LossSpec(objective="cispo", cispo_masked=True, clip_high=1.5)
        # Token 1: ratio 1/2 and A < 0; token 2: ratio 3 > 2.5 and A > 0.
        assert term("loss", spec) == about(-4 * math.log(0.4), 0.0, 0.0)

    def test_two_sided_trust_region(self) -> None:
        spec = LossSpec(objective="dppo-tv", clip_low=0.15, clip_high=0.15, dppo_two_sided=True)
        assert term("loss", spec) == about(0.0, 0.5, 0.0)

    def test_tokens_held_back_have_loss_0(self) -> None:
        spec = LossSpec(off_policy_threshold=-0.5)
        assert term("loss", spec) == about(-2.4, 0.0, -1.2)
        rule = LossSpec(rollout_is="token", rollout_rs=("token_ratio:0.6_3",), rollout_rs_mode="zero")
        assert term("loss", rule) == about(-4.8, 0.0, -1.2)
