"""Objectives in which a token's loss depends on that token alone, in float64 NumPy, one function each.

Arguments are arrays of valid tokens, (n,) float64: masked ones have been left out before. A is the advantage,
log_ratio = log_probs - old_log_probs, ratio = exp(log_ratio). Losses are to be minimised. old_log_probs,
advantages and rollout log-probs are constants. A zero advantage makes its product with the ratio or the
log-prob exactly 0, whatever they are, NaN included. Otherwise NaN in a column that the loss uses gives NaN.

References
----------
.. [1] Schulman et al., "Trust Region Policy Optimization", arXiv:1502.05477 (is).
.. [2] Williams, "Simple statistical gradient-following algorithms", 1992; Chu et al., "GPG",
   arXiv:2504.02546 (reinforce).
.. [3] MiniMax, "MiniMax-M1", arXiv:2506.13585 (cispo).
.. [4] Gao et al., "Soft Adaptive Policy Optimization", arXiv:2511.20347 (sapo).
.. [5] Qi et al., "Rethinking the Trust Region in LLM Reinforcement Learning", arXiv:2602.04879 (dppo).
.. [6] Richemond et al., "Offline Regularised Reinforcement Learning for Large Language Models Alignment",
   arXiv:2405.19107 (dro).
.. [7] Hilton et al., "Batch size-invariance for policy optimization", arXiv:2110.00641; Fu et al., "AReaL",
   arXiv:2505.24298 (decoupled).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core import reference
from ppocli.core.reference import ClipMasks
from ppocli.core.spec import SEQUENCE_OBJECTIVES
from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.spec import LossSpec

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ObjectiveTerms:
    """What an objective makes of each token.

    Attributes
    ----------
    loss : (n,) float64
        Before aggregation, to be minimised.
    gradient : (n,) float64
        d (sum of loss) / d log_probs of the token, signed: for the objectives of this module the derivative
        of its own loss. Its absolute value is what `grad_abs_mean` averages.
    masks : ClipMasks
        `low`, `high`: the region, whatever the advantage. `active_low`: `low` and A < 0; `active_high`:
        `high` and A > 0. All False where an objective has no bound.
    """

    loss: Floats
    gradient: Floats
    masks: ClipMasks


def token_terms(
    log_probs: Floats,
    old_log_probs: Floats,
    advantages: Floats,
    spec: LossSpec,
    rollout_log_probs: Floats | None = None,
) -> ObjectiveTerms:
    """Return loss, gradient and clip decisions of each token under `spec.objective`.

    Raises
    ------
    UsageProblem
        An objective of `core.sequence_objectives`, or decoupled without `rollout_log_probs`.
    """
    if spec.objective in SEQUENCE_OBJECTIVES:
        raise UsageProblem(f"'{spec.objective}' needs to know which tokens belong together")
    log_ratio = reference.log_ratio(log_probs, old_log_probs)
    clamp = spec.log_ratio_clamp
    match spec.objective:
        case "is":
            return importance_sampling(log_ratio, advantages, spec)
        case "reinforce":
            return reinforce(log_probs, advantages)
        case "cispo":
            return bounded_cispo(log_probs, log_ratio, advantages, spec)
        case "sapo":
            return sapo(log_ratio, advantages, spec.sapo_tau_pos, spec.sapo_tau_neg, clamp)
        case "dppo-tv" | "dppo-kl":
            return dppo(log_probs, old_log_probs, advantages, spec)
        case "dro":
            return dro(log_probs, log_ratio, advantages, spec.dro_beta, clamp)
        case "decoupled":
            if rollout_log_probs is None:
                raise UsageProblem("'decoupled' needs rollout_log_probs, the policy that sampled the tokens")
            weight = behaviour_weight(old_log_probs, rollout_log_probs, spec.rollout_is_cap)
            return decoupled(log_ratio, advantages, weight, spec)
    return ppo(log_ratio, advantages, spec)


def ppo(log_ratio: Floats, advantages: Floats, bounds: LossSpec) -> ObjectiveTerms:
    """Return the terms of the clipped surrogate, as `core.reference` defines it."""
    return ObjectiveTerms(
        reference.ppo_loss(log_ratio, advantages, bounds),
        reference.loss_gradient(log_ratio, advantages, bounds),
        reference.clip_masks(log_ratio, advantages, bounds),
    )


def importance_sampling(log_ratio: Floats, advantages: Floats, bounds: LossSpec) -> ObjectiveTerms:
    """Return loss = -ratio A, the surrogate without a clip [1]_.

    gradient = -ratio A, and 0 where |log_ratio| > log_ratio_clamp. Nothing counts as clipped. Both are
    infinite where the ratio overflows.
    """
    loss = reference.unclipped_loss(log_ratio, advantages, bounds)
    return ObjectiveTerms(loss, held(loss, log_ratio, bounds.log_ratio_clamp), unclipped(loss))


def reinforce(log_probs: Floats, advantages: Floats) -> ObjectiveTerms:
    """Return loss = -A log_probs; no ratio, no bound [2]_. gradient = -A. verl calls it gpg."""
    return weighted_log_probs(np.ones_like(log_probs), log_probs, advantages, unclipped(log_probs))


def cispo(
    log_probs: Floats, log_ratio: Floats, advantages: Floats, low: float, high: float, clamp: float | None
) -> ObjectiveTerms:
    """Return loss = -w A log_probs with the constant w = clip(ratio, low, high) [3]_.

    gradient = -w A: the clip bounds a token's weight and cuts no gradient. The region is ratio < low or
    ratio > high. The weight is clipped there whatever the sign of A; the active masks keep their general
    meaning.
    """
    r = reference.ratio(log_ratio, clamp)
    masks = signed_masks(r < low, r > high, advantages)
    return weighted_log_probs(np.clip(r, low, high), log_probs, advantages, masks)


def bounded_cispo(log_probs: Floats, log_ratio: Floats, advantages: Floats, spec: LossSpec) -> ObjectiveTerms:
    """Return cispo with the bounds of a spec; `cispo_masked`: loss and gradient 0 where active."""
    terms = cispo(log_probs, log_ratio, advantages, *spec.cispo_bounds, spec.log_ratio_clamp)
    if not spec.cispo_masked:
        return terms
    cut = terms.masks.active_low | terms.masks.active_high
    return ObjectiveTerms(np.where(cut, 0.0, terms.loss), np.where(cut, 0.0, terms.gradient), terms.masks)


def sapo(
    log_ratio: Floats, advantages: Floats, tau_pos: float, tau_neg: float, clamp: float | None
) -> ObjectiveTerms:
    """Return loss = -A (4 / tau) sigmoid(tau (ratio - 1)), tau = tau_pos where A > 0, else tau_neg [4]_.

    gradient = -4 A ratio s (1 - s) with s the sigmoid: -A on the policy, 0 as the ratio goes to 0 or to
    infinity, and 0 where |log_ratio| > clamp. The gate is soft: nothing counts as clipped. An infinite ratio
    has loss -4 A / tau.
    """
    bounded = clamped(log_ratio, clamp)
    tau = np.where(advantages > 0.0, tau_pos, tau_neg)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        x = tau * (reference.ratio(bounded) - 1.0)
        # With exp(-|x|) neither end overflows: where the ratio does, the slope is 0 instead of inf times 0.
        tail = np.exp(-np.abs(x))
        gate = np.where(x >= 0.0, 1.0, tail) / (1.0 + tail)
        slope = np.exp(bounded - np.abs(x)) / np.square(1.0 + tail)
        loss = -product(4.0 / tau * gate, advantages)
        gradient = -4.0 * product(slope, advantages)
    return ObjectiveTerms(loss + 0.0, held(gradient, log_ratio, clamp) + 0.0, unclipped(loss))


def dppo(log_probs: Floats, old_log_probs: Floats, advantages: Floats, spec: LossSpec) -> ObjectiveTerms:
    """Return loss = -ratio A inside the trust region, 0 outside of it on the side that A pushes to [5]_.

    With p = exp(log_probs), q = exp(old_log_probs): under dppo-tv `high` is p - q > clip_high and `low` is
    p - q < -clip_low; under dppo-kl `high` is p > q and not (KL <= clip_high), `low` is p < q and not
    (KL <= clip_low), with `binary_kl`: a divergence that is not a number is outside. Tokens in `active_high`
    or `active_low` are dropped: loss and gradient 0. verl and prime-rl also drop those in `low` with A = 0,
    which changes their fraction and no loss.

    With `dppo_two_sided` all tokens in `low` or `high` are dropped.

    gradient = -ratio A; 0 where dropped and where |log_ratio| > log_ratio_clamp. With `dppo_weight_cap` = c
    the loss is -w A log_probs with the constant w = min(ratio, c) and the gradient -w A. The clamp holds for
    the ratio, not for p and q.
    """
    masks = trust_region(log_probs, old_log_probs, advantages, spec)
    log_ratio = reference.log_ratio(log_probs, old_log_probs)
    if spec.dppo_weight_cap is None:
        kept = importance_sampling(log_ratio, advantages, spec)
    else:
        weight = np.minimum(reference.ratio(log_ratio, spec.log_ratio_clamp), spec.dppo_weight_cap)
        kept = weighted_log_probs(weight, log_probs, advantages, masks)
    dropped = masks.low | masks.high if spec.dppo_two_sided else masks.active_low | masks.active_high
    return ObjectiveTerms(np.where(dropped, 0.0, kept.loss), np.where(dropped, 0.0, kept.gradient), masks)


def trust_region(log_probs: Floats, old_log_probs: Floats, advantages: Floats, spec: LossSpec) -> ClipMasks:
    """Return which tokens are outside the trust region of dppo-tv or dppo-kl [5]_; see `dppo`."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        difference = np.exp(log_probs) - np.exp(old_log_probs)
    low, high = spec.clip_low, spec.clip_high
    if spec.objective == "dppo-tv":
        return signed_masks(difference < -low, difference > high, advantages)
    kl = binary_kl(log_probs, old_log_probs, spec.dppo_kl_eps)
    return signed_masks((difference < 0.0) & ~(kl <= low), (difference > 0.0) & ~(kl <= high), advantages)


def binary_kl(log_probs: Floats, old_log_probs: Floats, eps: float = 0.0) -> Floats:
    """Return q log(q / p) + (1 - q) log((1 - q + eps) / (1 - p + eps)), nats [5]_.

    The KL of (q, 1 - q) from (p, 1 - p), p = exp(log_probs), q = exp(old_log_probs); never negative with
    eps = 0. The second term is 0 where q = 1. +inf where p = 1 > q and eps = 0; NaN where a probability is
    above 1 + eps (densities are no probabilities).
    """
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        rest_q, rest_p = -np.expm1(old_log_probs), -np.expm1(log_probs)
        rest = rest_q * (np.log(rest_q + eps) - np.log(rest_p + eps))
        rest = np.where((rest_q == 0.0) & (rest_p >= 0.0), 0.0, rest)
        return np.exp(old_log_probs) * (old_log_probs - log_probs) + rest


def dro(
    log_probs: Floats, log_ratio: Floats, advantages: Floats, beta: float, clamp: float | None
) -> ObjectiveTerms:
    """Return loss = -A log_probs + (beta / 2) log_ratio^2 [6]_.

    gradient = -A + beta log_ratio. The penalty does not depend on the advantage, and so it stays where A is
    0; it is constant, its gradient 0, where |log_ratio| > clamp. Nothing counts as clipped.
    """
    bounded = clamped(log_ratio, clamp)
    terms = reinforce(log_probs, advantages)
    with np.errstate(over="ignore", invalid="ignore"):
        loss = terms.loss + beta * reference.kl_k2(bounded)
        gradient = terms.gradient + held(beta * bounded, log_ratio, clamp)
    return ObjectiveTerms(loss, gradient, terms.masks)


def behaviour_weight(old_log_probs: Floats, rollout_log_probs: Floats, cap: float | None) -> Floats:
    """Return min(exp(old_log_probs - rollout_log_probs), cap): the proximal over the sampling policy [7]_."""
    weight = reference.ratio(reference.log_ratio(old_log_probs, rollout_log_probs))
    return weight if cap is None else np.minimum(weight, cap)


def decoupled(log_ratio: Floats, advantages: Floats, weight: Floats, bounds: LossSpec) -> ObjectiveTerms:
    """Return the clipped surrogate against the proximal policy, times the constant behaviour weight [7]_.

    loss = weight * ppo_loss, gradient = weight * its gradient; log_ratio is the current over the proximal
    policy (old_log_probs), the weight the proximal over the sampling policy, as `behaviour_weight` has it.
    The clip decisions are those of ppo.
    """
    terms = ppo(log_ratio, advantages, bounds)
    loss, gradient = (weighted(weight, term, advantages) for term in (terms.loss, terms.gradient))
    return ObjectiveTerms(loss, gradient, terms.masks)


def weighted_log_probs(
    weight: Floats, log_probs: Floats, advantages: Floats, masks: ClipMasks
) -> ObjectiveTerms:
    """Return loss = -weight A log_probs and gradient = -weight A: the weight is a constant."""
    with np.errstate(over="ignore", invalid="ignore"):
        loss = -product(weight * log_probs, advantages)
        gradient = -product(weight, advantages)
    return ObjectiveTerms(loss + 0.0, np.where(np.isnan(loss), np.nan, gradient) + 0.0, masks)


def product(weight: Floats, factor: Floats) -> Floats:
    """Return weight * factor; exactly 0 where the factor is 0, whatever the weight."""
    return np.where(factor == 0.0, 1.0, weight) * factor


def weighted(weight: Floats, term: Floats, advantages: Floats) -> Floats:
    """Return weight * term, a loss or gradient; a weight that is NaN shows unless the advantage is 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.isnan(weight) & (advantages != 0.0), np.nan, product(weight, term)) + 0.0


def clamped(log_ratio: Floats, clamp: float | None) -> Floats:
    """Return log_ratio held within plus or minus the clamp, if there is one."""
    return log_ratio if clamp is None else np.clip(log_ratio, -clamp, clamp)


def held(gradient: Floats, log_ratio: Floats, clamp: float | None) -> Floats:
    """Return the gradient, 0 where a clamp holds log_ratio and so the ratio has no slope; NaN stays."""
    if clamp is None:
        return gradient
    return np.where((np.abs(log_ratio) > clamp) & ~np.isnan(gradient), 0.0, gradient)


def signed_masks(low: Bools, high: Bools, advantages: Floats) -> ClipMasks:
    """Return the masks of a region with their active halves; no dual clip, no delta."""
    none = np.zeros(low.shape, np.bool_)
    return ClipMasks(low, high, low & (advantages < 0.0), high & (advantages > 0.0), none, none)


def unclipped(like: Floats) -> ClipMasks:
    """Return masks in which no token is clipped."""
    none = np.zeros(like.shape, np.bool_)
    return ClipMasks(none, none, none, none, none, none)
