from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np
import pytest

from ppocli.core import covariance_objectives as covariance
from ppocli.core import sequence_objectives, token_objectives
from ppocli.core.sequence_objectives import Sequences, objective_terms
from ppocli.core.spec import OBJECTIVES, SEQUENCE_OBJECTIVES, LossSpec
from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from ppocli.core.token_objectives import ObjectiveTerms

LN2 = math.log(2.0)
BOUNDS = LossSpec(clip_low=0.2, clip_high=0.28)


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def terms_of(
    objective: str,
    log_ratio: Any,
    advantages: Any,
    log_probs: Any = -1.0,
    offsets: list[int] | None = None,
    **parameters: Any,
) -> ObjectiveTerms:
    """The terms of tokens whose old log-prob is what makes the log-ratio; one sequence unless given."""
    advantages, log_ratio = np.atleast_1d(advantages), np.atleast_1d(log_ratio)
    new = np.broadcast_to(np.asarray(log_probs, float), advantages.shape)
    old = new - log_ratio
    spec = replace(parameters.pop("bounds", BOUNDS), objective=objective, **parameters)
    sequences = Sequences.from_offsets(np.array(offsets or [0, advantages.size]))
    return objective_terms(new, old, advantages, spec, rollout_log_probs=old - LN2, sequences=sequences)


# ---- names and parameters --------------------------------------------------------------------------------


def test_sequence_objectives_are_objectives() -> None:
    assert set(SEQUENCE_OBJECTIVES) <= set(OBJECTIVES)


@pytest.mark.parametrize(
    "parameters",
    [
        {"objective": "pppo"},
        {"sequence_ratio": "harmonic"},
        {"cispo_low": -0.1},
        {"cispo_high": math.inf},
        {"cispo_low": 1.5},  # above 1 + clip_high
        {"sapo_tau_pos": 0.0},
        {"sapo_tau_neg": math.nan},
        {"dppo_weight_cap": 0.0},
        {"dppo_kl_eps": -1e-9},
        {"dro_beta": -1.0},
        {"vespo_k_pos": -1.0},
        {"vespo_lambda_neg": 0.0},
        {"rollout_is_cap": -2.0},
    ],
)
def test_a_parameter_outside_its_range_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem, match=next(iter(parameters))):
        LossSpec(**parameters)


def test_cispo_bounds_are_absolute_or_around_one() -> None:
    assert BOUNDS.cispo_bounds == (0.8, 1.28)
    assert replace(BOUNDS, cispo_low=0.0, cispo_high=5.0).cispo_bounds == (0.0, 5.0)


def test_what_an_objective_needs_is_asked_for() -> None:
    one = array(-1.0)
    for objective in SEQUENCE_OBJECTIVES:
        with pytest.raises(UsageProblem, match="belong together"):
            objective_terms(one, one, one, LossSpec(objective))
    with pytest.raises(UsageProblem, match="rollout_log_probs"):
        objective_terms(one, one, one, LossSpec("decoupled"))


# ---- one token, values by hand ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "ratio", "advantage", "loss", "gradient"),
    [
        # log_probs = -1, bounds [0.8, 1.28], behaviour weight 2
        ("ppo", 2.0, 3.0, -3.84, 0.0),
        ("ppo", 2.0, -3.0, 6.0, 6.0),
        ("is", 2.0, 3.0, -6.0, -6.0),
        ("is", 0.5, -3.0, 1.5, 1.5),
        ("reinforce", 2.0, 3.0, 3.0, -3.0),
        ("reinforce", 0.5, -3.0, -3.0, 3.0),
        ("cispo", 2.0, 3.0, 3.84, -3.84),
        ("cispo", 0.5, -3.0, -2.4, 2.4),
        ("cispo", 1.125, 2.0, 2.25, -2.25),
        ("decoupled", 2.0, 3.0, -7.68, 0.0),
        ("decoupled", 2.0, -3.0, 12.0, 12.0),
        ("dro", 1.0, 3.0, 3.0, -3.0),
        # one token is a sequence: the same numbers as the token's ratio gives
        ("gspo", 2.0, 3.0, -3.84, 0.0),
        ("gspo", 2.0, -3.0, 6.0, 6.0),
        # log-space bounds: exp(0.28) and exp(-0.2)
        ("gmpo", 2.0, 3.0, -3.0 * math.exp(0.28), 0.0),
        ("gmpo", 2.0, -3.0, 6.0, 6.0),
        ("gmpo", 0.5, -3.0, 3.0 * math.exp(-0.2), 0.0),
        # w^2 e^(3 - 3 w) = 4 e^-3, w^3 e^(2 - 2 w) = 8 e^-2
        ("vespo", 2.0, 3.0, 12.0 * math.exp(-3.0), -12.0 * math.exp(-3.0)),
        ("vespo", 2.0, -3.0, -24.0 * math.exp(-2.0), 24.0 * math.exp(-2.0)),
        ("vespo", 1.0, 3.0, 3.0, -3.0),
    ],
)
def test_one_token(objective: str, ratio: float, advantage: float, loss: float, gradient: float) -> None:
    terms = terms_of(objective, math.log(ratio), advantage)
    assert terms.loss[0] == pytest.approx(loss, rel=1e-14)
    assert terms.gradient[0] == pytest.approx(gradient, rel=1e-14)


def test_sapo_on_the_policy_is_two_over_tau() -> None:
    terms = terms_of("sapo", [0.0, 0.0], array(3.0, -3.0))
    assert terms.loss == pytest.approx([-6.0, 6.0 / 1.05], rel=1e-15)
    assert terms.gradient == pytest.approx([-3.0, 3.0], rel=1e-15)


@pytest.mark.parametrize("log_ratio", [-700.0, -3.0, -0.4, 0.6, 3.0, 6.0])
@pytest.mark.parametrize("advantage", [1.7, -1.7])
def test_sapo_against_many_digits(log_ratio: float, advantage: float) -> None:
    with mpmath.workdps(500):  # 1 - s is e^-424
        tau = mpmath.mpf(1.0 if advantage > 0 else 1.05)
        r = mpmath.exp(mpmath.mpf(log_ratio))
        s = 1 / (1 + mpmath.exp(-tau * (r - 1)))
        loss, gradient = -advantage * 4 / tau * s, -advantage * 4 * r * s * (1 - s)
    new = array(0.0)
    terms = token_objectives.sapo(new + log_ratio, array(advantage), 1.0, 1.05, None)
    assert terms.loss[0] == pytest.approx(float(loss), rel=1e-14)
    # exp(x) carries the rounding of x: |x| units of 2^-53, and here |x| reaches tau e^6 = 424.
    assert terms.gradient[0] == pytest.approx(float(gradient), rel=2e-13, abs=1e-300)


def test_sapo_at_the_ends() -> None:
    terms = terms_of("sapo", [1000.0, -1000.0], array(1.0, 1.0))
    assert terms.loss == pytest.approx([-4.0, -4.0 / (1.0 + math.e)], rel=1e-15)
    assert terms.gradient.tolist() == [0.0, 0.0]


def test_dro_adds_half_beta_times_the_square() -> None:
    terms = terms_of("dro", [0.5, -2.0, 3.0], array(2.0, -1.0, 0.0), -1.0, dro_beta=0.7)
    assert terms.loss == pytest.approx([2.0 + 0.35 * 0.25, -1.0 + 0.35 * 4.0, 0.35 * 9.0], rel=1e-15)
    # The penalty holds whatever the advantage, a zero one included.
    assert terms.gradient == pytest.approx([-2.0 + 0.35, 1.0 - 1.4, 2.1], rel=1e-15)


def test_decoupled_caps_the_behaviour_weight() -> None:
    assert terms_of("decoupled", LN2, -3.0, rollout_is_cap=1.5).loss[0] == pytest.approx(9.0, rel=1e-15)
    weight = token_objectives.behaviour_weight(array(-1.0, -1.0), array(-1.0 - LN2, -1.0 + LN2), 1.5)
    assert weight == pytest.approx([1.5, 0.5], rel=1e-15)


# ---- dppo ------------------------------------------------------------------------------------------------

# new and old probabilities: up by 0.3, down by 0.3, up by 0.05
DPPO_NEW = np.log(array(0.8, 0.8, 0.2, 0.2, 0.55, 0.45))
DPPO_OLD = np.log(array(0.5, 0.5, 0.5, 0.5, 0.5, 0.5))
DPPO_SIGN = array(1.0, -1.0, 1.0, -1.0, 1.0, -1.0)


@pytest.mark.parametrize(
    ("objective", "bounds"),
    [
        ("dppo-tv", LossSpec(clip_low=0.1, clip_high=0.1)),
        # KL(0.5 || 0.8) = 0.223, KL(0.5 || 0.55) = 0.005
        ("dppo-kl", LossSpec(clip_low=0.1, clip_high=0.1)),
    ],
)
def test_dppo_drops_what_leaves_the_region_the_way_it_is_pushed(objective: str, bounds: LossSpec) -> None:
    spec = replace(bounds, objective=objective)
    terms = objective_terms(DPPO_NEW, DPPO_OLD, DPPO_SIGN, spec)
    assert terms.masks.high.tolist() == [True, True, False, False, False, False]
    assert terms.masks.low.tolist() == [False, False, True, True, False, False]
    assert terms.masks.active_high.tolist() == [True, False, False, False, False, False]
    assert terms.masks.active_low.tolist() == [False, False, False, True, False, False]
    assert terms.loss == pytest.approx([0.0, 1.6, -0.4, 0.0, -1.1, 0.9], rel=1e-14)
    assert terms.gradient == pytest.approx(terms.loss, rel=1e-15)


def test_dppo_thresholds_are_separate() -> None:
    spec = LossSpec("dppo-tv", clip_low=0.4, clip_high=0.1)
    assert objective_terms(DPPO_NEW, DPPO_OLD, DPPO_SIGN, spec).loss[3] == pytest.approx(0.4, rel=1e-14)
    spec = LossSpec("dppo-kl", clip_low=0.1, clip_high=0.3)
    assert objective_terms(DPPO_NEW, DPPO_OLD, DPPO_SIGN, spec).loss[0] == pytest.approx(-1.6, rel=1e-14)


def test_dppo_with_a_weight_cap_is_a_weighted_log_prob() -> None:
    spec = LossSpec("dppo-tv", clip_low=0.1, clip_high=0.1, dppo_weight_cap=1.25)
    terms = objective_terms(DPPO_NEW, DPPO_OLD, DPPO_SIGN, spec)
    weights = array(0.0, -1.25, 0.4, 0.0, 1.1, -0.9)
    assert terms.loss == pytest.approx(-weights * DPPO_NEW, rel=1e-14)
    assert terms.gradient == pytest.approx(-weights, rel=1e-14)


@pytest.mark.parametrize(("p", "q"), [(0.3, 0.7), (1e-9, 0.5), (0.999999, 0.2), (0.5, 1e-12), (0.4, 0.4)])
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_binary_kl_against_many_digits(p: float, q: float, eps: float) -> None:
    new, old = math.log(p), math.log(q)
    with mpmath.workdps(50):
        big_p, big_q = mpmath.exp(mpmath.mpf(new)), mpmath.exp(mpmath.mpf(old))
        exact = big_q * (mpmath.mpf(old) - new)
        exact += (1 - big_q) * mpmath.log((1 - big_q + eps) / (1 - big_p + eps))
    got = token_objectives.binary_kl(array(new), array(old), eps)
    assert got[0] == pytest.approx(float(exact), rel=1e-12, abs=1e-16)


def test_binary_kl_at_the_ends() -> None:
    kl = token_objectives.binary_kl(
        array(0.0, 0.0, -1.0, 0.5, -1.0), array(0.0, -1.0, 0.0, -1.0, -800.0), 0.0
    )
    assert kl[:3].tolist() == [0.0, math.inf, 1.0]
    assert math.isnan(kl[3])  # a density above 1 is no probability
    assert kl[4] == pytest.approx(-math.log1p(-math.exp(-1.0)), rel=1e-15)


def test_binary_kl_of_a_density_above_one_is_no_number() -> None:
    assert np.isnan(token_objectives.binary_kl(array(0.5, -1.0, 0.5), array(0.0, 0.5, 0.5), 1e-8)).all()


def test_a_divergence_that_is_no_number_is_outside() -> None:
    spec = LossSpec("dppo-kl", clip_low=1.0, clip_high=1e300)
    terms = objective_terms(array(0.5, 0.5), array(-1.0, -1.0), array(1.0, -1.0), spec)
    assert terms.masks.high.tolist() == [True, True]
    assert terms.loss == pytest.approx([0.0, math.exp(1.5)], rel=1e-15)
    terms = objective_terms(array(-1.0, -1.0), array(0.5, 0.5), array(1.0, -1.0), spec)
    assert terms.masks.low.tolist() == [True, True]
    assert terms.loss == pytest.approx([-math.exp(-1.5), 0.0], rel=1e-15)


# ---- laws ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("log_ratio", [0.0, 0.4, -0.4, 1000.0, -1000.0])
@pytest.mark.parametrize("cap", [None, 3.0])
def test_a_zero_advantage_adds_exactly_zero(objective: str, log_ratio: float, cap: float | None) -> None:
    bounds = LossSpec(clip_low=1.0, clip_high=2.0) if objective.startswith("dppo") else BOUNDS
    terms = terms_of(objective, log_ratio, 0.0, -2.0, bounds=bounds, dro_beta=0.0, dppo_weight_cap=cap)
    for values in (terms.loss, terms.gradient):
        assert values.tolist() == [0.0]
        assert math.copysign(1.0, values[0]) == 1.0


@pytest.mark.parametrize("objective", ["ppo", "is", "reinforce", "cispo", "sapo", "gspo", "gmpo"])
def test_a_zero_advantage_hides_an_infinite_log_prob(objective: str) -> None:
    one = Sequences.from_offsets(np.array([0, 1]))
    new, old, zero = array(-math.inf), array(-1.0), array(0.0)
    assert objective_terms(new, old, zero, LossSpec(objective), sequences=one).loss.tolist() == [0.0]


def test_a_ratio_on_the_bound_is_not_clipped() -> None:
    masks = terms_of("cispo", [0.0, 0.0], array(1.0, -1.0), cispo_low=1.0, cispo_high=1.0).masks
    assert not (masks.low | masks.high).any()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("clamp", [None, 0.1])
def test_nan_is_not_hidden(objective: str, clamp: float | None) -> None:
    spec = replace(BOUNDS, objective=objective, log_ratio_clamp=clamp, dppo_weight_cap=2.0)
    good, one = array(-1.0), Sequences.from_offsets(np.array([0, 1]))
    for place in ("log_probs", "advantages"):
        new = array(math.nan) if place != "advantages" else array(-0.5)
        adv = array({"log_probs": 1.0, "advantages": math.nan}[place])
        terms = objective_terms(new, good, adv, spec, rollout_log_probs=good, sequences=one)
        assert math.isnan(terms.loss[0]), place
        assert math.isnan(terms.gradient[0]), place
        decided = ["active_low", "active_high", "dual", "delta"]
        decided += ["low", "high"] if place != "advantages" else []
        assert not any(getattr(terms.masks, name)[0] for name in decided), place


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_zero_advantage_adds_exactly_0_whatever_the_ratio(objective: str, bad: float) -> None:
    spec = replace(BOUNDS, objective=objective)
    new, adv = array(bad, -1.5), array(0.0, 0.0)
    one = Sequences.from_offsets(np.array([0, 2]))
    terms = objective_terms(new, array(-1.0, -1.0), adv, spec, rollout_log_probs=new, sequences=one)
    if objective == "dro":  # its penalty does not depend on the advantage
        assert math.isnan(terms.loss[0]) == math.isnan(bad)
    else:
        assert terms.loss.tolist() == [0.0, 0.0]
        assert terms.gradient.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("objective", ["reinforce", "is", "sapo", "dro", "vespo"])
def test_objectives_without_a_bound_clip_nothing(objective: str) -> None:
    masks = terms_of(objective, [3.0, -3.0], array(1.0, -1.0)).masks
    assert not any(
        getattr(masks, name).any() for name in ("low", "high", "active_low", "active_high", "dual", "delta")
    )


@pytest.mark.parametrize("objective", ["ppo", "cispo", "decoupled", "gspo", "gmpo"])
def test_region_and_active_clips(objective: str) -> None:
    log_ratio, advantages = array(1.0, 1.0, 1.0, -1.0, -1.0, 0.1), array(1.0, -1.0, 0.0, 1.0, -1.0, 1.0)
    masks = terms_of(objective, log_ratio, advantages, offsets=[0, 1, 2, 3, 4, 5, 6]).masks
    assert masks.high.tolist() == [True, True, True, False, False, False]
    assert masks.low.tolist() == [False, False, False, True, True, False]
    assert masks.active_high.tolist() == [True, False, False, False, False, False]
    assert masks.active_low.tolist() == [False, False, False, False, True, False]


SMOOTH = {
    "ppo": {},
    "is": {},
    "sapo": {},
    "dro": {"dro_beta": 0.7},
    "decoupled": {"rollout_is_cap": 1.1},
    "dppo-tv": {},
    "dppo-kl": {},
    "gspo": {"bounds": LossSpec(clip_low=0.05, clip_high=0.08)},
    "gspo dual": {"bounds": LossSpec(clip_low=0.05, clip_high=0.08, dual_clip=1.15)},
    "gspo product": {"sequence_ratio": "product"},
    "gmpo": {},
}


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("clamp", [None, 0.4])
def test_gradient_is_the_slope_of_the_summed_loss(name: str, clamp: float | None) -> None:
    """Central differences, one token at a time; none of the tokens lies on a kink."""
    parameters = dict(SMOOTH[name])
    bounds = replace(parameters.pop("bounds", BOUNDS), log_ratio_clamp=clamp)
    spec = replace(bounds, objective=name.split()[0], **parameters)
    rng = np.random.default_rng(11)
    n, step = 40, 1e-6
    new, d = -rng.exponential(1.0, n) - 0.01, rng.normal(0.0, 0.5, n)
    rollout, adv = new - d + rng.normal(0.0, 0.2, n), rng.normal(0.0, 1.0, n)
    sequences = Sequences.from_offsets(np.array([0, 1, 9, 9, 22, 40]))

    def total(log_probs: np.ndarray) -> float:
        terms = objective_terms(log_probs, new - d, adv, spec, rollout_log_probs=rollout, sequences=sequences)
        return math.fsum(terms.loss)

    moves = step * np.eye(n)
    slope = np.array([(total(new + move) - total(new - move)) / (2.0 * step) for move in moves])
    terms = objective_terms(new, new - d, adv, spec, rollout_log_probs=rollout, sequences=sequences)
    assert np.count_nonzero(terms.gradient) > (4 if clamp is None else 0)
    assert terms.gradient == pytest.approx(slope, abs=2e-7 * max(1.0, float(np.abs(slope).max())))


# ---- sequences -------------------------------------------------------------------------------------------


def test_sequences_from_offsets_and_from_interleaved_labels() -> None:
    values = array(1.0, 2.0, 3.0, 10.0)
    contiguous = Sequences.from_offsets(np.array([0, 3, 3, 4]))
    assert contiguous.lengths.tolist() == [3, 1]  # the empty one is not there
    assert contiguous.total(values).tolist() == [6.0, 10.0]
    interleaved = Sequences.from_ids(np.array(["b", "a", "b", "b"]))
    assert interleaved.lengths.tolist() == [1, 3]
    assert interleaved.mean(array(1.0, 10.0, 2.0, 3.0)).tolist() == [10.0, 2.0]
    assert interleaved.spread(array(5.0, 7.0)).tolist() == [7.0, 5.0, 7.0, 7.0]


def test_no_tokens_no_sequences() -> None:
    nothing = Sequences.from_offsets(np.array([0, 0]))
    assert nothing.lengths.size == 0
    empty = array()
    for objective in OBJECTIVES:
        spec = LossSpec(objective)
        terms = objective_terms(empty, empty, empty, spec, rollout_log_probs=empty, sequences=nothing)
        assert terms.loss.shape == terms.gradient.shape == terms.masks.low.shape == (0,)


def test_gspo_by_hand() -> None:
    """Ratios exp(0.2) = 1.2214 (held at 1.1), exp(-0.3) = 0.7408 (held at 0.9 where A < 0)."""
    log_ratio, advantages = array(0.5, -0.1, -0.3), array(2.0, -1.0, -4.0)
    bounds = LossSpec(clip_low=0.1, clip_high=0.1)
    terms = terms_of("gspo", log_ratio, advantages, offsets=[0, 2, 3], bounds=bounds)
    s = math.exp(0.2)
    assert terms.loss == pytest.approx([-2.2, s, 3.6], rel=1e-14)
    # The first sequence: d loss / d log s is 0 and s; every token has their mean.
    assert terms.gradient == pytest.approx([s / 2.0, s / 2.0, 0.0], rel=1e-14)
    assert terms.masks.high.tolist() == [True, True, False]
    assert terms.masks.active_high.tolist() == [True, False, False]
    assert terms.masks.active_low.tolist() == [False, False, True]
    own = terms_of("gspo", log_ratio, advantages, offsets=[0, 2, 3], bounds=bounds, gspo_token_gradient=True)
    assert own.gradient == pytest.approx([0.0, s, 0.0], rel=1e-14)


def test_token_gradient_agrees_where_a_sequence_has_one_advantage() -> None:
    log_ratio, advantages = array(0.02, -0.4, 0.1, 0.3), array(-1.5, -1.5, 0.5, 0.5)
    both = [
        terms_of("gspo", log_ratio, advantages, offsets=[0, 2, 4], gspo_token_gradient=own).gradient
        for own in (False, True)
    ]
    assert both[0] == pytest.approx(both[1], rel=1e-14)
    assert np.count_nonzero(both[0]) == 4


def test_sequence_votes_take_the_sign_of_the_mean_advantage() -> None:
    log_ratio = array(0.5, 0.3, -0.5, -0.5, -0.5, 0.0)
    advantages = array(3.0, -1.0, 1.0, 1.0, -3.0, 5.0)
    sequences = Sequences.from_offsets(np.array([0, 2, 5, 5, 6]))
    votes = sequence_objectives.sequence_votes(
        log_ratio, advantages, sequences, replace(BOUNDS, objective="gspo")
    )
    assert votes.high.tolist() == [True, False, False]
    assert votes.low.tolist() == [False, True, False]
    assert votes.active_high.tolist() == [True, False, False]
    assert votes.active_low.tolist() == [False, True, False]


@pytest.mark.parametrize("bounds", [BOUNDS, replace(BOUNDS, dual_clip=1.5), replace(BOUNDS, delta=1.4)])
def test_a_sequence_needs_two_sums_of_advantages(bounds: LossSpec) -> None:
    """-(min(s, c) sum A+ + max(s, c) sum A-), the second ratio held by delta and by the dual clip."""
    rng = np.random.default_rng(5)
    for log_s in (-0.5, -0.1, 0.1, 0.3, 0.6):
        adv = rng.normal(0.0, 1.0, 9)
        got = math.fsum(terms_of("gspo", np.full(9, log_s), adv, bounds=bounds).loss)
        s = math.exp(log_s)
        c = min(max(s, 0.8), 1.28)
        upper = max(min(s, bounds.delta or math.inf), c)
        upper = min(upper, bounds.dual_clip or math.inf)
        plus, minus = math.fsum(adv[adv > 0.0]), math.fsum(adv[adv < 0.0])
        assert got == pytest.approx(-(min(s, c) * plus + upper * minus), rel=1e-13)


def test_a_product_ratio_that_overflows_stays_finite_as_a_logarithm() -> None:
    log_ratio, sequences = array(500.0, 400.0, -1.0), Sequences.from_offsets(np.array([0, 2, 3]))
    log_s = sequence_objectives.log_sequence_ratio(log_ratio, sequences, "product")
    assert log_s.tolist() == [900.0, -1.0]
    product = {"sequence_ratio": "product", "offsets": [0, 2, 3]}
    terms = terms_of("gspo", log_ratio, array(1.0, 0.0, 1.0), **product)
    assert terms.loss == pytest.approx([-1.28, 0.0, -math.exp(-1.0)], rel=1e-14)
    assert terms.masks.high.tolist() == [True, True, False]
    assert terms_of("gspo", log_ratio, array(-1.0, 0.0, 1.0), **product).loss[0] == math.inf


def test_gmpo_by_hand() -> None:
    """Exponents min(0.5, 0.28), max(-0.5, -0.2), 0 and 0.1: their mean over four tokens is 0.045."""
    log_ratio, advantages = array(0.5, -0.5, 0.7, 0.1), array(2.0, -1.0, 0.0, 3.0)
    terms = terms_of("gmpo", log_ratio, advantages)
    g = math.exp(0.045)
    assert terms.loss == pytest.approx([-2.0 * g, g, 0.0, -3.0 * g], rel=1e-14)
    # The mean advantage is 1; only the last token is not held.
    assert terms.gradient == pytest.approx([0.0, 0.0, 0.0, -g], rel=1e-14)


def test_gmpo_one_side_of_the_clip_only() -> None:
    terms = terms_of("gmpo", array(-3.0, 1.0), array(1.0, -1.0))
    assert terms.loss == pytest.approx([-math.exp(-1.0), math.exp(-1.0)], rel=1e-14)
    assert terms.gradient.tolist() == [0.0, 0.0]  # the mean advantage is 0


def test_vespo_weighs_the_whole_sequence() -> None:
    """w = 2 * 1.5 / 3 = 1 in the first sequence; w = 0 and w = inf have weight 0."""
    log_ratio = np.array([LN2, math.log(1.5), -math.log(3.0), -1000.0, 1000.0])
    terms = terms_of("vespo", log_ratio, array(2.0, -1.0, 0.0, 1.0, -1.0), -0.5, offsets=[0, 3, 4, 5])
    assert terms.loss == pytest.approx([1.0, -0.5, 0.0, 0.0, 0.0], abs=1e-15)
    assert terms.gradient == pytest.approx([-2.0, 1.0, 0.0, 0.0, 0.0], abs=1e-15)


def test_the_batch_of_the_literature_page() -> None:
    """28 tokens in four sequences: a token vote of 0.714 and a sequence vote of 0.750 for the same gspo."""
    rng = np.random.default_rng(7)
    lengths, width = np.array([12, 5, 3, 8]), 16
    mask = np.arange(width)[None] < lengths[:, None]
    old = np.where(mask, -rng.exponential(1.2, mask.shape), 0.0)
    d = np.where(mask, rng.normal(0.0, 0.25, mask.shape), 0.0)
    d[0, 3], d[1, 2], d[3, 1], d[3, 6] = 1.9, -1.6, 1.3, -0.9
    new = np.minimum(old + d, 0.0)
    adv = np.broadcast_to(np.array([1.2, -0.7, -1.4, 0.9])[:, None], mask.shape)[mask]
    sequences = Sequences.from_ids(np.nonzero(mask)[0])
    spec = LossSpec("gspo", clip_low=3e-4, clip_high=4e-4)
    masks = objective_terms(new[mask], old[mask], adv, spec, sequences=sequences).masks
    votes = sequence_objectives.sequence_votes((new - old)[mask], adv, sequences, spec)
    assert (masks.active_low | masks.active_high).mean() == 20 / 28
    assert (votes.active_low | votes.active_high).mean() == 0.75


def test_vespo_clamps_each_token() -> None:
    """Clamped, 1, -0.5 and 3 become 1, -0.5 and 1: w = exp(1.5)."""
    bounds = LossSpec(log_ratio_clamp=1.0)
    terms = terms_of("vespo", array(1.0, -0.5, 3.0), array(1.0, 0.0, 0.0), bounds=bounds)
    assert terms.loss[0] == pytest.approx(math.exp(3.0 + 3.0 - 3.0 * math.exp(1.5)), rel=1e-13)


# ---- chosen by covariance --------------------------------------------------------------------------------

COV_LOG_PROBS, COV_ADVANTAGES = array(-1.0, -2.0, -3.0, -6.0), array(2.0, 1.0, 0.0, -3.0)
"""Means -3 and 0: covariances 4, 1, 0, 9."""


def test_covariance() -> None:
    assert covariance.covariance(COV_LOG_PROBS, COV_ADVANTAGES).tolist() == [4.0, 1.0, 0.0, 9.0]


def test_clip_cov_drops_candidates_between_the_limits() -> None:
    # The first token is already clipped by its ratio.
    log_ratio = array(1.0, 0.0, 0.0, 0.1)
    candidates = covariance.clip_cov_candidates(COV_LOG_PROBS, log_ratio, COV_ADVANTAGES, BOUNDS, 0.5, 9.5)
    assert candidates.tolist() == [False, True, False, True]
    loss = covariance.clip_cov_loss(log_ratio, COV_ADVANTAGES, BOUNDS, candidates)
    assert loss == pytest.approx([-2.56, 0.0, 0.0, 0.0], rel=1e-15)
    open_limits = covariance.clip_cov_candidates(
        COV_LOG_PROBS, array(0.0, 0.0, 0.0, 0.0), COV_ADVANTAGES, BOUNDS, 1.0, 9.0
    )
    assert open_limits.tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("n", "candidates", "share", "count"),
    [(100, 50, 0.2, 20), (100, 5, 0.2, 5), (9, 5, 0.1, 1), (9, 0, 0.5, 0)],
)
def test_clip_cov_count(n: int, candidates: int, share: float, count: int) -> None:
    assert covariance.clip_cov_count(n, candidates, share) == count


def test_kl_cov_penalises_the_largest() -> None:
    chosen = covariance.kl_cov_chosen(COV_LOG_PROBS, COV_ADVANTAGES, 0.5)
    assert chosen.tolist() == [True, False, False, True]
    assert covariance.kl_cov_chosen(COV_LOG_PROBS, COV_ADVANTAGES, 0.01).sum() == 1
    loss = covariance.kl_cov_loss(array(-LN2, LN2, 5.0, LN2), COV_ADVANTAGES, BOUNDS, chosen, 0.5)
    assert loss == pytest.approx([-1.0 + 0.5 * LN2, -2.0, 0.0, 6.0 + 0.5 * LN2], rel=1e-15)
