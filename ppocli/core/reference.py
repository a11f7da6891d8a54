"""The formulas in float64 NumPy, one function per equation: what the kernels are tested against.

Arguments are arrays of valid tokens: masked ones have been left out before. Natural logarithms throughout.
NaN in gives NaN out; nothing is replaced. `spec` is the `LossSpec` that defines the loss.

References
----------
.. [1] Schulman et al., "Proximal Policy Optimization Algorithms", arXiv:1707.06347, equation 7.
.. [2] Ye et al., "Mastering Complex Control in MOBA Games with Deep Reinforcement Learning",
   arXiv:1912.09729 (dual clip).
.. [3] Yu et al., "DAPO", arXiv:2503.14476 (separate bounds, token mean).
.. [4] Prime Intellect, "INTELLECT-2", arXiv:2505.07291 (bound on the unclipped branch).
.. [5] Schulman, "Approximating KL Divergence", joschu.net/blog/kl-approx.html (k1, k2, k3).
.. [6] Liu et al., "Understanding R1-Zero-Like Training", arXiv:2503.20783 (sum divided by a constant).
.. [7] Zheng et al., "Group Sequence Policy Optimization", arXiv:2507.18071 (sequence ratio).
.. [8] Engstrom et al., "Implementation Matters in Deep Policy Gradients", arXiv:2005.12729 (value clip).
.. [9] Kong, "A note on importance sampling using standardized weights", 1992 (effective sample size).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.spec import LossSpec
from ppocli.errors import EmptyInput, InputError, UsageProblem

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

# Below this |x| the series of expm1(x) - x is used: above it the subtraction loses at most three bits.
_SERIES_BELOW = 0.5
# The first term left out is below 2**-56 of the sum at |x| = 0.5.
_SERIES_TERMS = 16


def log_ratio(log_probs: Floats, old_log_probs: Floats) -> Floats:
    """Return log_probs - old_log_probs: the log of the probability ratio, nats, (n,) float64."""
    with np.errstate(invalid="ignore"):
        return np.subtract(log_probs, old_log_probs, dtype=np.float64)


def ratio(log_ratio: Floats, clamp: float | None = None) -> Floats:
    """Return exp(log_ratio), with log_ratio first clamped to [-clamp, clamp] if that is given [1]_.

    Above 709.78 the result is inf, below -745.13 it is 0.
    """
    bounded = log_ratio if clamp is None else np.clip(log_ratio, -clamp, clamp)
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(bounded)


def ppo_loss(log_ratio: Floats, advantages: Floats, spec: LossSpec) -> Floats:
    """Return the clipped surrogate of each token, to be minimised.

    loss = -min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A) [1]_ [3]_;
    with `delta` the first product uses min(ratio, delta) [4]_;
    with `dual_clip` = c, where A < 0: loss = min(loss, -c A) [2]_.

    Parameters
    ----------
    log_ratio, advantages : (n,) float64
    spec : LossSpec
        `clip_low`, `clip_high`, `dual_clip`, `delta`, `log_ratio_clamp`.

    Returns
    -------
    (n,) float64
        Exactly 0 where the advantage is 0, whatever the ratio, NaN included. +inf where the ratio
        overflows, the advantage is negative and neither `delta` nor `dual_clip` bounds it.
    """
    r = ratio(log_ratio, spec.log_ratio_clamp)
    # A ratio that is not finite times a zero advantage would be NaN: with ratio 1 the product is 0.
    r = np.where(advantages == 0.0, 1.0, r)
    bounded = r if spec.delta is None else np.minimum(r, spec.delta)
    clipped = np.clip(r, 1.0 - spec.clip_low, 1.0 + spec.clip_high)
    with np.errstate(over="ignore", invalid="ignore"):
        loss = -np.minimum(bounded * advantages, clipped * advantages)
        if spec.dual_clip is not None:
            loss = np.where(advantages < 0.0, np.minimum(loss, -spec.dual_clip * advantages), loss)
    return loss + 0.0


def unclipped_loss(log_ratio: Floats, advantages: Floats, spec: LossSpec) -> Floats:
    """Return -ratio A of each token; exactly 0 where A is 0."""
    r = ratio(log_ratio, spec.log_ratio_clamp)
    r = np.where(advantages == 0.0, 1.0, r)
    with np.errstate(over="ignore", invalid="ignore"):
        return -r * advantages + 0.0


@dataclass(frozen=True, slots=True, eq=False)
class ClipMasks:
    """Which tokens each bound touches, (n,) bool. All comparisons are strict; NaN is in none of them.

    Attributes
    ----------
    low, high
        ratio < 1 - clip_low; ratio > 1 + clip_high; whatever the sign of the advantage.
    active_low, active_high
        `low` and A < 0; `high` and A > 0: the clipped product is strictly the smaller one.
    dual
        A < 0 and the bound -dual_clip A is strictly the smaller loss.
    delta
        A < 0 and ratio > delta.
    """

    low: Bools
    high: Bools
    active_low: Bools
    active_high: Bools
    dual: Bools
    delta: Bools


def clip_masks(log_ratio: Floats, advantages: Floats, spec: LossSpec) -> ClipMasks:
    """Return the decisions of every clip, by comparing the ratio with the bounds."""
    r = ratio(log_ratio, spec.log_ratio_clamp)
    low, high = r < 1.0 - spec.clip_low, r > 1.0 + spec.clip_high
    negative, positive = advantages < 0.0, advantages > 0.0
    above_delta = r > spec.delta if spec.delta is not None else np.zeros(r.shape, np.bool_)
    bounded = r if spec.delta is None else np.minimum(r, spec.delta)
    above_dual = bounded > spec.dual_clip if spec.dual_clip is not None else np.zeros(r.shape, np.bool_)
    return ClipMasks(
        low, high, low & negative, high & positive, above_dual & negative, above_delta & negative
    )


def loss_gradient(log_ratio: Floats, advantages: Floats, spec: LossSpec) -> Floats:
    """Return d loss / d log_probs of each token, before aggregation; old_log_probs is a constant.

    -ratio A where the unclipped product is chosen, 0 where a bound of `clip_masks` cuts it, where
    |log_ratio| > log_ratio_clamp, and where A is 0. On a bound it is -ratio A.
    """
    masks = clip_masks(log_ratio, advantages, spec)
    cut = masks.active_low | masks.active_high | masks.dual | masks.delta
    if spec.log_ratio_clamp is not None:
        cut = cut | (np.abs(log_ratio) > spec.log_ratio_clamp)
    return np.where(cut & ~np.isnan(advantages), 0.0, unclipped_loss(log_ratio, advantages, spec))


def kl_k1(log_ratio: Floats) -> Floats:
    """Return -log_ratio: its mean over samples of the old policy estimates KL(old || new), nats [5]_."""
    return -log_ratio


def kl_k2(log_ratio: Floats) -> Floats:
    """Return log_ratio^2 / 2, nats [5]_."""
    with np.errstate(over="ignore"):
        return 0.5 * np.square(log_ratio)


def kl_k3(log_ratio: Floats) -> Floats:
    """Return expm1(log_ratio) - log_ratio, nats, never negative [5]_.

    By its Taylor series, x^2/2 (1 + x/3 (1 + x/4 (...))), for |x| < 0.5: the difference would lose all digits
    near 0. -inf gives +inf, +inf gives NaN, as the formula has it. The reference KL uses the same function on
    ref_log_probs - log_probs.
    """
    small = np.abs(log_ratio) < _SERIES_BELOW
    x = np.where(small, log_ratio, 0.0)
    tail = np.ones_like(x)
    for k in range(_SERIES_TERMS, 2, -1):
        tail = 1.0 + x / k * tail
    with np.errstate(over="ignore", invalid="ignore"):
        direct = np.expm1(log_ratio) - log_ratio
    return np.where(small, 0.5 * x * x * tail, direct)


def aggregate(
    loss: Floats,
    agg: str,
    *,
    sequence_id: NDArray[Any] | None = None,
    group_id: NDArray[Any] | None = None,
    horizon: int | None = None,
) -> float:
    """Reduce token losses to one number.

    Parameters
    ----------
    loss : (n,) float64
    agg : str
        "token-mean": sum over tokens / n [3]_. "token-sum": the sum. "seq-mean-token-mean",
        "seq-mean-token-sum": mean over sequences of the sequence's mean or sum. "seq-mean-token-sum-norm":
        the latter divided by `horizon` [6]_. "group-mean": mean over groups of the group's token mean.
    sequence_id, group_id : (n,), optional
        Which sequence or group a token belongs to. A sequence without a valid token is not there.
    horizon : int, optional
        Divisor of "seq-mean-token-sum-norm".

    Returns
    -------
    float
        NaN without tokens.
    """
    if loss.size == 0:
        return math.nan
    if agg in ("token-mean", "token-sum"):
        total = float(np.sum(loss))
        return total / loss.size if agg == "token-mean" else total
    members = group_id if agg == "group-mean" else sequence_id
    if members is None:
        raise UsageProblem(f"the aggregation '{agg}' needs to know which tokens belong together")
    codes = np.unique(members, return_inverse=True)[1].reshape(-1)
    sums, counts = np.bincount(codes, weights=loss), np.bincount(codes)
    if agg in ("seq-mean-token-mean", "group-mean"):
        return float(np.mean(sums / counts))
    if agg == "seq-mean-token-sum":
        return float(np.mean(sums))
    if agg == "seq-mean-token-sum-norm" and horizon is not None:
        return float(np.mean(sums)) / horizon
    raise UsageProblem(f"the aggregation '{agg}' is not known, or its horizon is missing")


def sequence_log_ratio(log_ratio: Floats, sequence_id: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return, per sequence in order of its id, the sum and the mean of log_ratio.

    exp(sum) is the product of the token ratios, exp(mean) their geometric mean [7]_.
    """
    codes = np.unique(sequence_id, return_inverse=True)[1].reshape(-1)
    sums = np.bincount(codes, weights=log_ratio).astype(np.float64)
    return sums, sums / np.bincount(codes)


def ess_frac(log_ratio: Floats) -> float:
    """Return (sum w)^2 / (n sum w^2) with w = exp(log_ratio): effective sample size over n [9]_.

    In [1/n, 1]; NaN without tokens. The largest log_ratio is subtracted first, which only widens the range.
    """
    if log_ratio.size == 0:
        return math.nan
    with np.errstate(invalid="ignore", under="ignore"):
        w = np.exp(log_ratio - np.max(log_ratio))
    return float(np.sum(w)) ** 2 / (w.size * float(np.sum(w * w)))


def normalise_advantages(
    advantages: Floats, *, ddof: int = 0, eps: float = 1e-8, form: str = "add"
) -> Floats:
    """Centre and scale advantages by their own mean m and standard deviation s.

    "add": (A - m) / (s + eps); "max": (A - m) / max(s, eps); "var": (A - m) / sqrt(s^2 + eps). s has `ddof`.
    A single value is returned as it is. Where all values are equal, m is that value and s is 0.
    """
    if advantages.size <= 1:
        return advantages.copy()
    with np.errstate(invalid="ignore", divide="ignore"):
        constant = bool(np.min(advantages) == np.max(advantages))
        # The rounded mean of equal values need not equal them; divided by eps the difference would show.
        centred = advantages - (advantages[0] if constant else np.mean(advantages))
        s = 0.0 if constant else float(np.std(advantages, ddof=ddof))
        return centred / {"add": s + eps, "max": max(s, eps), "var": math.sqrt(s * s + eps)}[form]


def value_loss(
    values: Floats, returns: Floats, old_values: Floats | None = None, value_clip: float | None = None
) -> Floats:
    """Return the squared error of each value, without a factor 1/2.

    With `value_clip` = c the larger of (v - R)^2 and (v_old + clip(v - v_old, -c, c) - R)^2 [8]_.
    """
    plain = np.square(values - returns)
    if value_clip is None or old_values is None:
        return plain
    return np.maximum(plain, np.square(_clipped_value(values, old_values, value_clip) - returns))


def value_clip_masks(
    values: Floats, returns: Floats, old_values: Floats, value_clip: float
) -> tuple[Bools, Bools]:
    """Return |v - v_old| > value_clip, and where the clipped square is strictly the larger, (n,) bool."""
    clipped = np.square(_clipped_value(values, old_values, value_clip) - returns)
    return np.abs(values - old_values) > value_clip, clipped > np.square(values - returns)


def _clipped_value(values: Floats, old_values: Floats, value_clip: float) -> Floats:
    """Return the value held within value_clip of the old one."""
    return old_values + np.clip(values - old_values, -value_clip, value_clip)


def explained_variance(returns: Floats, prediction: Floats) -> float:
    """Return 1 - var(returns - prediction) / var(returns), ddof 0; NaN where all returns are equal."""
    if returns.size == 0 or np.min(returns) == np.max(returns):
        return math.nan
    return 1.0 - float(np.var(returns - prediction)) / float(np.var(returns))


def total_loss(
    policy_loss: float,
    spec: LossSpec,
    *,
    value_loss: float | None = None,
    entropy: float | None = None,
    ref_kl: float | None = None,
) -> float:
    """Return policy_loss + vf_coef value_loss - ent_coef entropy + kl_coef ref_kl [1]_.

    Coefficients that `spec` leaves open are 0.5, 0, 0. A term with coefficient 0 is not evaluated: an
    infinite KL does not spoil it. A term that is None is left out; with a given coefficient it makes NaN.
    """
    total = policy_loss
    terms = ((spec.vf_coef, 0.5, value_loss), (spec.ent_coef, 0.0, entropy), (spec.kl_coef, 0.0, ref_kl))
    for sign, (given, default, term) in zip((1.0, -1.0, 1.0), terms, strict=True):
        coefficient = default if given is None else given
        if coefficient == 0.0 or (term is None and given is None):
            continue
        total += sign * coefficient * (math.nan if term is None else term)
    return total


def ppo_clip_loss(
    log_probs_new: ArrayLike, log_probs_old: ArrayLike, advantages: ArrayLike, eps_clip: float = 0.2
) -> float:
    """Return the PPO clipped surrogate loss, -mean(min(ratio A, clip(ratio, 1 - eps, 1 + eps) A)) [1]_.

    ratio = exp(log_probs_new - log_probs_old). `log_probs_old` is a constant, and no gradient flows at all:
    the result is a plain number.

    Parameters
    ----------
    log_probs_new, log_probs_old : array_like of floating point
        Natural logarithms. float16 and bfloat16 (of `ml_dtypes` or torch) are widened to float64, exactly,
        before any arithmetic; torch tensors are detached.
    advantages : array_like of numbers
        Normalise them before, if you mean to.
    eps_clip : float
        Half-width of the interval, in [0, 1].

    Returns
    -------
    float
        To be minimised. NaN if any value is NaN; a token whose advantage is 0 adds exactly 0.

    Raises
    ------
    InputError
        Integer log-probs, values that are not numbers, or shapes that do not fit. Single values go with
        everything; otherwise all shapes have the same number of axes, each of full length or 1, and at least
        one is full: (B, T) with (B, 1) is right, (N,) with (N, 1) would silently become N x N.
    EmptyInput
        No token.
    UsageProblem
        `eps_clip` outside [0, 1].

    Examples
    --------
    >>> import math
    >>> ppo_clip_loss(math.log(0.4), math.log(0.2), 2.0)
    -2.4
    """
    if not 0.0 <= eps_clip <= 1.0:
        raise UsageProblem(f"eps_clip is a number between 0 and 1, not {eps_clip:g}")
    new = _widen("log_probs_new", log_probs_new)
    old = _widen("log_probs_old", log_probs_old)
    adv = _widen("advantages", advantages, whole=True)
    new, old, adv = _paired({"log_probs_new": new, "log_probs_old": old, "advantages": adv})
    spec = LossSpec(clip_low=eps_clip, clip_high=eps_clip)
    with np.errstate(over="ignore", invalid="ignore"):
        ratios = log_ratio(new, old)
        # A zero advantage hides no NaN here: nothing else would tell of it.
        losses = np.where(np.isnan(ratios), np.nan, ppo_loss(ratios, adv, spec))
        return float(np.mean(losses)) + 0.0


def _widen(name: str, value: Any, *, whole: bool = False) -> Floats:
    """Return `value` as float64, exactly; whole numbers only where `whole`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = value.double().numpy() if value.dtype.is_floating_point else value.numpy()
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"'{name}' is a masked array", hint="select the valid values first: .compressed()")
    try:
        array = np.asarray(value)
    except ValueError as problem:
        raise InputError(f"'{name}' is not a rectangular array: {problem}") from None
    # The types of ml_dtypes have kind V and a name of their own; plain void says nothing about its bits.
    special = array.dtype.kind == "V" and array.dtype.name.startswith(("bfloat16", "float"))
    if array.dtype.kind != "f" and not special and not (whole and array.dtype.kind in "iu"):
        hint = "they must be natural logarithms in floating point" if array.dtype.kind in "iub" else None
        raise InputError(f"'{name}' has type {array.dtype}, not floating point", hint=hint)
    return array.astype(np.float64)


def _paired(arrays: dict[str, Floats]) -> list[Floats]:
    """Bring the arrays to one shape, flat; single values are repeated, axes of length 1 stretched."""
    for name, array in arrays.items():
        if array.size == 0:
            raise EmptyInput(f"'{name}' is empty: there is no token to take a mean over")
    full = {name: array for name, array in arrays.items() if array.size > 1}
    shapes = {array.shape for array in full.values()}
    widest = max(shapes, key=math.prod, default=())
    for name, array in full.items():
        fits = array.ndim == len(widest) and all(
            n in (1, m) for n, m in zip(array.shape, widest, strict=True)
        )
        if not fits:
            other = next(key for key, one in full.items() if one.shape == widest)
            raise InputError(
                f"'{other}' has shape {widest} and '{name}' has shape {array.shape}",
                hint="give them the same number of axes: (B, T) goes with (B, 1), (N,) with (N,)",
            )
    return [
        np.broadcast_to(array.reshape(()) if array.size == 1 else array, widest or (1,)).reshape(-1)
        for array in arrays.values()
    ]
