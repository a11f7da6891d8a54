"""Terms that few frameworks log: penalties of their losses, weights, shares of a sequence. Float64 NumPy.

`core.terms` lists them; functions take `Tokens`, a `LossSpec` and options and return (n,) float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core import reference
from ppocli.core.rollout_correction import level_log_ratio
from ppocli.core.sequence_objectives import length_share, vespo_phi
from ppocli.core.token_objectives import clamped
from ppocli.core.tokens import NEW, OLD, REF, ROLLOUT, Tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.spec import LossSpec

    Floats = NDArray[np.float64]

_ESTIMATORS: dict[str, Callable[[Floats], Floats]] = {
    "k1": lambda x: x,
    "k2": reference.kl_k2,
    "k3": lambda x: reference.kl_k3(-x),
    "abs": np.abs,
    "ratio-k1": lambda x: x,
}


def ref_kl(tokens: Tokens, spec: LossSpec, *, penalty: bool = False, estimator: str | None = None) -> Floats:
    """Return the estimate of KL(new || ref) of each token, as `ref_kl` and its companions define it.

    x = log_probs - ref_log_probs, held within `ref_kl_clamp`; the estimate of x; times the objective's ratio
    where `ref_kl_ratio` says so; held within `ref_kl_cap`. `penalty`: times kl_coef; without one it is 0, and
    no column is needed. `estimator` overrides the spec's.
    """
    if penalty and not spec.kl_coef:
        return np.zeros(tokens.n)
    kind = spec.ref_kl if estimator is None else estimator
    with np.errstate(over="ignore", invalid="ignore"):
        value = _ESTIMATORS[kind](clamped(tokens.log_ratio(NEW, REF), spec.ref_kl_clamp))
        if kind == "ratio-k1":
            value = tokens.ratio() * value
        if spec.ref_kl_ratio:
            ratio = objective_ratio(tokens, replace(spec, log_ratio_clamp=None))
            value = (ratio if spec.delta is None else np.minimum(ratio, spec.delta)) * value
    if spec.ref_kl_cap is not None:
        value = np.clip(value, -spec.ref_kl_cap, spec.ref_kl_cap)
    return value * spec.kl_coef if penalty and spec.kl_coef else value


def ref_kl_roles(spec: LossSpec, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of `ref_kl`."""
    if options.get("penalty") and not spec.kl_coef:
        return ()
    ratio = spec.ref_kl_ratio or options.get("estimator", spec.ref_kl) == "ratio-k1"
    return NEW, REF, *((OLD,) if ratio else ())


def ref_kl_together(spec: LossSpec, options: Mapping[str, Any]) -> bool:
    """Return whether `ref_kl` needs whole sequences."""
    return bool(ref_kl_roles(spec, options)) and spec.ref_kl_ratio and spec.shares_ratio


def entropy_bonus(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return ent_coef * entropy; 0 without a coefficient, and then no column is needed."""
    return tokens.column("entropy") * spec.ent_coef if spec.ent_coef else np.zeros(tokens.n)


def entropy_roles(spec: LossSpec, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of `entropy_bonus`."""
    return ("entropy",) if spec.ent_coef else ()


def log_ratio_penalty(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return log_ratio_penalty * log_ratio^2."""
    with np.errstate(over="ignore"):
        return spec.log_ratio_penalty * np.square(tokens.log_ratio())


def phi(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return phi - 1 of vespo, 0 on the policy."""
    return (
        vespo_phi(
            tokens.log_ratio(),
            tokens.column("advantages"),
            tokens.together(),
            spec,
            tokens.log_correction(spec),
        )
        - 1.0
    )


def held_back(tokens: Tokens, spec: LossSpec, *, side: str = "") -> Floats:
    """Return 1 where a token counts with loss 0, by `off_policy_threshold` or `rollout_rs`, else 0.

    side "low", "high": by a rule of `rollout_rs` alone, because a statistic passes that bound.
    """
    if side:
        out = np.zeros(tokens.n, dtype=np.bool_)
        for one in tokens.rejected(spec):
            beyond = one.low if side == "low" else one.high
            out |= beyond if one.kept.size == beyond.size else beyond[tokens.together().index]
        return out.astype(np.float64)
    counted = tokens.counted(spec)
    return np.zeros(tokens.n) if counted is None else (~counted).astype(np.float64)


def probability_difference(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return exp(old) - exp(rollout), in [-1, 1] where both are log-probs of tokens."""
    with np.errstate(over="ignore"):
        return np.exp(tokens.column(OLD)) - np.exp(tokens.column(ROLLOUT))


def logarithm(
    tokens: Tokens, spec: LossSpec, *, eps: float = 1e-8, power: int = 1, size: bool = False, times: str = ""
) -> Floats:
    """Return log(ratio + eps), to a power, times a column if named; `size`: the absolute value of that."""
    value = np.log(tokens.ratio() + eps) ** power
    if times:
        value = value * tokens.column(times)
    return np.abs(value) if size else value


def logarithm_roles(spec: LossSpec, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of `logarithm`."""
    return NEW, OLD, *((options["times"],) if options.get("times") else ())


def loss_times_length(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return (loss + kl_coef * ref_kl) * L of each token, L the valid tokens of its sequence."""
    together = tokens.together()
    lengths = together.spread(together.total(tokens.valid.astype(np.float64)))
    return (tokens.terms(spec).loss + ref_kl(tokens, spec, penalty=True)) * lengths


def objective_ratio(
    tokens: Tokens, spec: LossSpec, *, clipped: bool = False, averaged: bool = False
) -> Floats:
    """Return the ratio that the objective takes, of the token or of its sequence.

    `clipped`: held within the objective's bounds. `averaged`: the mean over the sequence, at all its tokens.
    """
    level = "geometric" if spec.shares_ratio else "token"
    log_ratio = level_log_ratio(tokens.log_ratio(), tokens.together(), level)
    if spec.objective == "gspo":
        log_ratio = log_ratio * length_share(tokens.together(), spec)
    value = reference.ratio(log_ratio, spec.log_ratio_clamp)
    if averaged:
        return tokens.together().spread(tokens.together().mean(value))
    if not clipped:
        return value
    bounds = spec.cispo_bounds if spec.objective == "cispo" else (1.0 - spec.clip_low, 1.0 + spec.clip_high)
    return np.clip(value, *bounds)


def sampling_ratio(tokens: Tokens, spec: LossSpec, *, less: float = 0.0) -> Floats:
    """Return exp(old - rollout) - less, as the loss is weighted with it; without a weight as it is.

    Of the token, or of its sequence as a product where the objective has one ratio for it.
    """
    weights, counted = tokens.weights(spec), tokens.counted(spec)
    if weights is not None:
        value = weights.applied
    else:
        level = "sequence" if spec.shares_ratio else "token"
        value = reference.ratio(level_log_ratio(tokens.log_ratio(OLD, ROLLOUT), tokens.together(), level))
    return (value if counted is None else np.where(counted, value, 0.0)) - less


def sampling_together(spec: LossSpec, options: Mapping[str, Any]) -> bool:
    """Return whether `sampling_ratio` needs whole sequences."""
    return spec.shares_ratio or spec.needs_sequences


def distance_from_one(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return |exp(old - rollout) - 1|."""
    with np.errstate(over="ignore"):
        return np.abs(np.expm1(tokens.log_ratio(OLD, ROLLOUT)))


def multiplicative_error(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return exp(|old - rollout|), at least 1."""
    return reference.ratio(np.abs(tokens.log_ratio(OLD, ROLLOUT)))


def mixture_divergence(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return (k3(p, m) + k3(q, m)) / 2, p = exp(old), q = exp(rollout), m = (p + q) / 2.

    k3(p, m) = expm1(log p - log m) - (log p - log m), an estimate of the Jensen-Shannon divergence, nats.
    """
    old, rollout = tokens.column(OLD), tokens.column(ROLLOUT)
    mixture = np.logaddexp(old, rollout) - np.log(2.0)
    return 0.5 * reference.kl_k3(old - mixture) + 0.5 * reference.kl_k3(rollout - mixture)


def weighted_entropy(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return -exp(log_probs - rollout_log_probs) log_probs: its mean estimates the entropy."""
    with np.errstate(over="ignore", invalid="ignore"):
        return -tokens.ratio(NEW, ROLLOUT) * tokens.column(NEW)


def clip_kept(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return 1 where the clip is active and the loss is not multiplied by 0; in cispo, above the bound."""
    masks, factor = tokens.terms(spec).masks, tokens.factor(spec)
    chosen = masks.high if spec.objective == "cispo" else masks.active_low | masks.active_high
    return (chosen if factor is None else chosen & (factor != 0.0)).astype(np.float64)


def behaviour_weighted(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return exp(rollout) (rollout - new)."""
    rollout = tokens.column(ROLLOUT)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.exp(rollout) * (rollout - tokens.column(NEW))


def dropped(tokens: Tokens, spec: LossSpec, *, kind: str = "all") -> Floats:
    """Return 1 where dppo drops a token, else 0: outside its trust region on the side of A, A = 0 being low.

    kind "all"; "low": p falls too far and A < 0; "high": p rises too far and A > 0. With `dppo_two_sided` all
    of them whatever A is.
    """
    masks = tokens.terms(spec).masks
    if kind != "all":
        return (masks.active_low if kind == "low" else masks.active_high).astype(np.float64)
    return _dropped(tokens, spec).astype(np.float64)


def _dropped(tokens: Tokens, spec: LossSpec) -> NDArray[np.bool_]:
    """Return where dppo drops a token."""
    masks = tokens.terms(spec).masks
    if spec.dppo_two_sided:
        return masks.low | masks.high
    return np.where(tokens.column("advantages") > 0.0, masks.high, masks.low)


def among(tokens: Tokens, spec: LossSpec, *, value: str = "k3", where: str = "dropped") -> Floats:
    """Return the mean over the "dropped" or the "kept" tokens of the sequence; 0 where it has none.

    value "k3": expm1(d) - d with d = new - old; "positive", "negative": 1 where A is, else 0.
    """
    chosen = _dropped(tokens, spec) if where == "dropped" else ~_dropped(tokens, spec)
    advantages = tokens.column("advantages")
    values = {
        "k3": lambda: reference.kl_k3(tokens.log_ratio()),
        "positive": lambda: (advantages > 0.0).astype(np.float64),
        "negative": lambda: (advantages < 0.0).astype(np.float64),
    }[value]()
    together = tokens.together()
    count = together.total(chosen.astype(np.float64))
    return together.spread(together.total(np.where(chosen, values, 0.0)) / np.maximum(count, 1.0))
