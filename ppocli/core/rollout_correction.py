"""Corrections for tokens that another policy sampled: weights, rejection, and what they leave. Float64 NumPy.

Arguments are arrays of valid tokens, (n,) float64: masked ones have been left out before; `Sequences` says
which of them belong together. log_ratio = old_log_probs - rollout_log_probs, ratio = exp(log_ratio). No
gradient flows into a weight. NaN in gives NaN weights and a token that is not kept.

References
----------
.. [1] Ionides, "Truncated Importance Sampling", 2008; Yao et al., "Your Efficient RL Framework Secretly
   Brings You Off-Policy RL Training", fengyao.notion.site/off-policy-rl (truncated weights).
.. [2] Liu et al., "When Speed Kills Stability", richardli.xyz/rl-collapse (masked weights; sequence and
   geometric level; veto).
.. [3] Ling Team, "Every Step Evolves", arXiv:2510.18855 (IcePop: weights outside two bounds are 0).
.. [4] Schulman, "Approximating KL Divergence", joschu.net/blog/kl-approx.html (k1, k2, k3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core import reference, token_objectives

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ppocli.core.rollout_rules import RejectionRule, WeightRule
    from ppocli.core.sequence_objectives import Sequences

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Importance weights of tokens, (n,) each.

    Attributes
    ----------
    raw : float64
        exp of the level's log-ratio, before any bound. +inf where that overflows and no clamp holds it.
    applied : float64
        After the bounds: what multiplies the loss.
    low, high : bool
        Strictly below the lower bound; strictly above the cap. All False where there is no such bound.
    """

    raw: Floats
    applied: Floats
    low: Bools
    high: Bools

    @property
    def touched(self) -> Bools:
        """Where a bound changed the weight."""
        return self.low | self.high


def level_log_ratio(log_ratio: Floats, sequences: Sequences, level: str) -> Floats:
    """Return the log-ratio that a token's weight is taken from, (n,) nats [2]_.

    "token": its own. "sequence": the sum over its sequence. "geometric": the mean over its sequence.
    """
    if level == "token":
        return log_ratio
    return sequences.spread(sequences.total(log_ratio) if level == "sequence" else sequences.mean(log_ratio))


def importance_weights(log_ratio: Floats, sequences: Sequences, rule: WeightRule) -> Weights:
    """Return the weights of a rule [1]_ [2]_ [3]_.

    w = exp(log-ratio of the level, held within `log_ratio_clamp`); "truncate": min(max(w, low), cap);
    "mask": w where low <= w <= cap, else 0.
    """
    raw = reference.ratio(level_log_ratio(log_ratio, sequences, rule.level), rule.log_ratio_clamp)
    low = np.zeros(raw.shape, np.bool_) if rule.low is None else raw < rule.low
    high = np.zeros(raw.shape, np.bool_) if rule.cap is None else raw > rule.cap
    if rule.mode == "mask":
        return Weights(raw, np.where(low | high, 0.0, raw), low, high)
    applied = raw if rule.low is None else np.maximum(raw, rule.low)
    return Weights(raw, applied if rule.cap is None else np.minimum(applied, rule.cap), low, high)


def batch_norm_factor(weights: Floats, sequences: Sequences, level: str) -> float:
    """Return the mean that batch-normalised weights are divided by: over tokens, or over sequences.

    "token": mean over tokens. Otherwise the mean over sequences of the sequence's mean. NaN without tokens.
    """
    values = weights if level == "token" else sequences.mean(weights)
    return math.fsum(values) / values.size if values.size else math.nan


def total_variation(log_probs: Floats, other: Floats) -> Floats:
    """Return |exp(log_probs) - exp(other)|, the total variation of (p, 1 - p) and (q, 1 - q), in [0, 1].

    By expm1 of the difference, so that close probabilities keep their digits.
    """
    high, low = np.maximum(log_probs, other), np.minimum(log_probs, other)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.where(high == low, 0.0, -np.exp(high) * np.expm1(low - high))


def binary_kl(log_probs: Floats, other: Floats, clamp: float = 0.0) -> Floats:
    """Return the KL of (q, 1 - q) from (p, 1 - p), nats, q = exp(other), p = exp(log_probs).

    With `clamp` = e both probabilities are held within [e, 1 - e] first; 1e-6 in OpenRLHF.
    """
    if clamp:
        low, high = math.log(clamp), math.log1p(-clamp)
        log_probs, other = np.clip(log_probs, low, high), np.clip(other, low, high)
    return token_objectives.binary_kl(log_probs, other)


def token_statistic(
    old_log_probs: Floats,
    rollout_log_probs: Floats,
    statistic: str,
    *,
    log_ratio_clamp: float | None = None,
    prob_clamp: float = 0.0,
) -> Floats:
    """Return what a rejection rule looks at, per token, (n,) [4]_.

    "ratio": log_ratio. "k1": -log_ratio. "k2": log_ratio^2 / 2. "k3": ratio - 1 - log_ratio. "tv": see
    `total_variation`. "binary_kl": see `binary_kl`. The log-ratio is held within `log_ratio_clamp` first, in
    all but the last two.
    """
    if statistic == "tv":
        return total_variation(old_log_probs, rollout_log_probs)
    if statistic == "binary_kl":
        return binary_kl(old_log_probs, rollout_log_probs, prob_clamp)
    log_ratio = reference.log_ratio(old_log_probs, rollout_log_probs)
    bounded = token_objectives.clamped(log_ratio, log_ratio_clamp)
    if statistic == "ratio":
        return bounded
    return {"k1": reference.kl_k1, "k2": reference.kl_k2, "k3": reference.kl_k3}[statistic](bounded)


def over_sequence(values: Floats, sequences: Sequences, level: str) -> Floats:
    """Return the sum, mean, largest or smallest value of each sequence, (m,); NaN where one value is."""
    if level == "seq_sum":
        return sequences.total(values)
    if level == "seq_mean":
        return sequences.mean(values)
    largest = level == "seq_max"
    out = np.full(sequences.lengths.size, -math.inf if largest else math.inf)
    with np.errstate(invalid="ignore"):
        (np.maximum if largest else np.minimum).at(out, sequences.index, values)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Rejection:
    """What a rule decides.

    Attributes
    ----------
    statistic : float64
        (n,) at token level, (m,) at a sequence level. Logarithms for "ratio" and "k1".
    low, high : bool
        Of that shape: strictly below the lower bound, strictly above the upper one.
    kept : (n,) bool
        Tokens that stay.
    """

    statistic: Floats
    low: Bools
    high: Bools
    kept: Bools


def reject(
    old_log_probs: Floats,
    rollout_log_probs: Floats,
    sequences: Sequences,
    rule: RejectionRule,
    *,
    log_ratio_clamp: float | None = None,
    prob_clamp: float = 0.0,
) -> Rejection:
    """Return which tokens a rule keeps, and the values it decided by; see `rollout_rules.RejectionRule`."""
    values = token_statistic(
        old_log_probs,
        rollout_log_probs,
        rule.statistic,
        log_ratio_clamp=log_ratio_clamp,
        prob_clamp=prob_clamp,
    )
    if rule.level != "token":
        values = over_sequence(values, sequences, rule.level)
    lower, upper = decision_bounds(rule)
    low, high = values < lower, values > upper
    inside = ~(low | high | np.isnan(values))
    return Rejection(values, low, high, inside if rule.level == "token" else inside[sequences.index])


def decision_bounds(rule: RejectionRule) -> tuple[float, float]:
    """Return the two ends that the statistic is compared with; logarithms for "ratio" and "k1"."""
    low = -math.inf if rule.low is None else rule.low
    high = math.inf if rule.high is None else rule.high
    if rule.statistic not in ("ratio", "k1"):
        return low, high
    return (math.log(low) if low > 0.0 else -math.inf), (math.log(high) if high > 0.0 else -math.inf)


def kept_by_all(rejections: Sequence[Rejection], n: int) -> Bools:
    """Return the tokens that every rule keeps, (n,); all of them without a rule."""
    kept = np.ones(n, np.bool_)
    for rejection in rejections:
        kept &= rejection.kept
    return kept


def ess_frac(weights: Floats) -> float:
    """Return (sum w)^2 / (n sum w^2) of non-negative weights, in [0, 1]; dropped tokens count with w = 0.

    NaN without tokens, where all weights are 0, and where one is NaN or infinite. The largest weight is
    divided out first, so that no square overflows.
    """
    if weights.size == 0:
        return math.nan
    largest = float(np.max(weights))
    if not 0.0 < largest < math.inf:
        return math.nan
    scaled = weights / largest
    return math.fsum(scaled) ** 2 / (weights.size * math.fsum(scaled * scaled))
