"""Terms: what a metric is a mean, a sum or an extreme of, per valid token. Float64 NumPy.

`TERMS` is the vocabulary that presets are written in. A term is a function of `Tokens`, a `LossSpec` and
options; it is evaluated over valid tokens, and where its `sequences` says so over whole sequences. NaN and
infinities in a column reach the term as arithmetic has it: the engine counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core import framework_terms, reference
from ppocli.core.correction_terms import kept as kept_term
from ppocli.core.correction_terms import only_kept, over_sequence, rejected, rule, statistic, weight
from ppocli.core.rollout_correction import level_log_ratio
from ppocli.core.sequence_objectives import log_sequence_ratio
from ppocli.core.token_objectives import clamped, sapo
from ppocli.core.tokens import NEW, OLD, ROLLOUT, Tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.spec import LossSpec

    Floats = NDArray[np.float64]

Roles = Callable[["LossSpec", Mapping[str, Any]], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Term:
    """One word of the vocabulary.

    Attributes
    ----------
    compute : callable
        (tokens, spec, **options) to (n,) float64.
    roles : callable
        (spec, options) to the columns that it needs.
    sequences : callable
        (spec, options) to whether it needs whole sequences.
    """

    compute: Callable[..., Any]
    roles: Roles
    sequences: Callable[[LossSpec, Mapping[str, Any]], bool]


def _pair(spec: LossSpec, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the two columns of log-probs, and those that the rules compare where `kept` asks for them."""
    pair = options.get("new", NEW), options.get("old", OLD)
    return (*pair, *spec.correction_pair) if options.get("kept") and spec.rejections else pair


def _policy(spec: LossSpec, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the objective needs."""
    return NEW, OLD, "advantages", *((ROLLOUT,) if spec.reads_rollout else ())


def _mismatch(spec: LossSpec, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the two columns whose difference is the train-inference mismatch."""
    return OLD, ROLLOUT


def _sampling(spec: LossSpec, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what weights need, and what decides which tokens keep theirs."""
    return OLD, ROLLOUT, *((NEW, "advantages") if spec.off_policy_threshold is not None else ())


def _by_spec(spec: LossSpec, options: Mapping[str, Any]) -> bool:
    """Return whether the spec needs them."""
    return spec.needs_sequences


def _by_level(spec: LossSpec, options: Mapping[str, Any]) -> bool:
    """Return whether the option `level` is not that of tokens, or rules are asked that are not."""
    return _level(spec, options) != "token" or _by_rules(spec, options)


def _by_rules(spec: LossSpec, options: Mapping[str, Any]) -> bool:
    """Return whether rules are asked that need whole sequences."""
    return bool(options.get("kept")) and any(rule.level != "token" for rule in spec.rejections)


def _by_any_rule(spec: LossSpec, options: Mapping[str, Any]) -> bool:
    """Return whether some rule, or the part of it that is asked for, needs whole sequences."""
    return _by_rules(spec, {"kept": True}) or str(options.get("part", "")).startswith("mean_")


def _by_weight(spec: LossSpec, options: Mapping[str, Any]) -> bool:
    """Return whether weights, or a mean of them, need whole sequences."""
    return spec.needs_sequences or str(options.get("kind", "")).startswith("mean_")


def _corrected(spec: LossSpec, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the two columns that weights and rules compare."""
    return spec.correction_pair


def _level(spec: LossSpec, options: Mapping[str, Any]) -> str:
    """Return the option `level`; "spec" is the one that the objective has its ratio at."""
    level = str(options.get("level", "token"))
    if level != "spec":
        return level
    if not spec.shares_ratio:
        return "token"
    return "geometric" if spec.sequence_ratio == "geometric" else "sequence"


def _never(spec: LossSpec, options: Mapping[str, Any]) -> bool:
    """Return False."""
    return False


def loss(tokens: Tokens, spec: LossSpec, *, absolute: bool = False) -> Floats:
    """Return the objective's loss of each token, weighted where the spec says so; `absolute`: its size."""
    value = tokens.terms(spec).loss
    return np.abs(value) if absolute else value


def clip(tokens: Tokens, spec: LossSpec, *, kind: str = "active", kept: bool = False) -> Floats:
    """Return 1 where a token is clipped, else 0.

    kind "active": the clipped branch strictly chosen, sign of A considered; "active_low", "active_high": its
    halves; "region": the ratio strictly outside the interval, whatever A; "low", "high": its halves; "dual":
    the dual-clip bound chosen; "delta": ratio above delta, A < 0; "positive", "negative": the region where
    A > 0, where A < 0; "dropped": "active", and `low` where A = 0 (dppo of verl); "capped": not dropped, and
    the ratio at least `dppo_weight_cap`. `kept`: 0 where a rule does not allow the token.
    """
    masks = tokens.terms(spec).masks
    advantages = tokens.advantages(spec)
    region = masks.low | masks.high
    dropped = masks.active_low | masks.active_high | (masks.low & (advantages == 0.0))
    chosen = {
        "active": masks.active_low | masks.active_high,
        "active_low": masks.active_low,
        "active_high": masks.active_high,
        "region": region,
        "low": masks.low,
        "high": masks.high,
        "dual": masks.dual,
        "delta": masks.delta,
        "positive": region & (advantages > 0.0),
        "negative": region & (advantages < 0.0),
        "dropped": dropped,
        "capped": ~dropped & _capped(tokens, spec),
    }
    return only_kept(tokens, spec, chosen[kind].astype(np.float64), kept)


def _capped(tokens: Tokens, spec: LossSpec) -> NDArray[np.bool_]:
    """Return where the weight of dppo is at its cap."""
    cap = np.inf if spec.dppo_weight_cap is None else spec.dppo_weight_cap
    return tokens.ratio(clamp=spec.log_ratio_clamp) >= cap


def distance(
    tokens: Tokens, spec: LossSpec, *, eps: float | None = None, new: str = NEW, old: str = OLD
) -> Floats:
    """Return 1 where |ratio - 1| > eps (None: clip_low), else 0."""
    bound = spec.clip_low if eps is None else eps
    return (np.abs(tokens.ratio(new, old, spec.log_ratio_clamp) - 1.0) > bound).astype(np.float64)


_ESTIMATORS: dict[str, Callable[[Floats], Floats]] = {
    "k1": reference.kl_k1,
    "k2": reference.kl_k2,
    "k3": reference.kl_k3,
    "k3_reverse": lambda d: reference.kl_k3(-d),
    "abs": np.abs,
}


def kl(
    tokens: Tokens,
    spec: LossSpec,
    *,
    estimator: str = "k1",
    new: str = NEW,
    old: str = OLD,
    clamp: float | str | None = None,
    cap: float | None = None,
    kept: bool = False,
) -> Floats:
    """Return an estimate of a KL divergence from d = new - old, nats.

    estimator "k1": -d; "k2": d^2 / 2; "k3": expm1(d) - d; "k3_reverse": expm1(-d) + d; "abs": |d|;
    "ref_kl": that of the spec. d is held within plus or minus `clamp` first ("loss": the loss's own), the
    estimate within plus or minus `cap` afterwards. `kept`: 0 where a rule does not allow the token.
    """
    d = clamped(tokens.log_ratio(new, old), _clamp(spec, clamp))
    value = _ESTIMATORS[spec.ref_kl if estimator == "ref_kl" else estimator](d)
    return only_kept(tokens, spec, value if cap is None else np.clip(value, -cap, cap), kept)


def ratio(
    tokens: Tokens,
    spec: LossSpec,
    *,
    new: str = NEW,
    old: str = OLD,
    level: str = "token",
    clamp: float | str | None = None,
    low: float | None = None,
    high: float | None = None,
    power: int = 1,
    bounds: str | None = None,
    kept: bool = False,
) -> Floats:
    """Return exp(new - old), held within [low, high], to a power.

    level "token": the token's own; "geometric", "sequence": exp of the mean or the sum over its sequence;
    "spec": whichever the objective has. The logarithm is held within plus or minus `clamp` first ("loss": the
    loss's own). bounds "cispo": low and high are those of the spec. `kept`: 0 where a rule does not allow the
    token.
    """
    clamp, level = _clamp(spec, clamp), _level(spec, {"level": level})
    if bounds == "cispo":
        low, high = spec.cispo_bounds
    if level == "token":
        value = tokens.ratio(new, old, clamp)
    else:
        value = reference.ratio(level_log_ratio(tokens.log_ratio(new, old), tokens.together(), level), clamp)
    if low is not None or high is not None:
        value = np.clip(value, low, high)
    with np.errstate(over="ignore"):
        return only_kept(tokens, spec, value if power == 1 else value**power, kept)


def gate(tokens: Tokens, spec: LossSpec, *, side: str = "chosen") -> Floats:
    """Return the scaled gate of sapo, (4 / tau) sigmoid(tau (ratio - 1)).

    side "positive", "negative": with tau_pos, with tau_neg; "chosen": by the sign of the advantage.
    """
    level = _level(spec, {"level": "spec"})
    shared = level_log_ratio(tokens.log_ratio(), tokens.together(), level) if level != "token" else None
    log_ratio = tokens.log_ratio() if shared is None else shared
    # The gate is the loss of A = -1 under one temperature.
    pair = spec.sapo_tau_pos, spec.sapo_tau_neg
    one = -np.ones(tokens.n)
    positive, negative = (sapo(log_ratio, one, tau, tau, spec.log_ratio_clamp).loss for tau in pair)
    if side == "chosen":
        return np.where(tokens.advantages(spec) > 0.0, positive, negative)
    return positive if side == "positive" else negative


def difference(tokens: Tokens, spec: LossSpec, *, a: str, b: str) -> Floats:
    """Return a - b of two columns."""
    return tokens.column(a) - tokens.column(b)


def _clamp(spec: LossSpec, clamp: float | str | None) -> float | None:
    """Return a bound on the log-ratio; "loss" stands for that of the loss."""
    return spec.log_ratio_clamp if isinstance(clamp, str) else clamp


def column(tokens: Tokens, spec: LossSpec, *, role: str, power: int = 1) -> Floats:
    """Return a column as it is, or to a power."""
    return tokens.column(role) if power == 1 else tokens.column(role) ** power


def value_error(
    tokens: Tokens,
    spec: LossSpec,
    *,
    form: str = "max",
    error: str | None = None,
    delta: float | None = None,
    capped: bool = True,
) -> Floats:
    """Return the error of each value against its return.

    form "plain": of v; "clipped": of v_old + clip(v - v_old, -value_clip, value_clip); "max": the larger of
    the two. Without `spec.value_clip` all are "plain". error "square": e^2; "abs": |e|; "huber": e^2 / 2
    within `delta`, else delta (|e| - delta / 2); "smooth-l1": e^2 / (2 delta) within `delta`, else
    |e| - delta / 2. Without them `spec.value_error` and `spec.value_error_delta` hold. `capped`: at most
    `spec.value_error_cap`.
    """
    kind = error or spec.value_error, spec.value_error_delta if delta is None else delta
    value = _error(tokens.column("values") - tokens.column("returns"), *kind)
    if form != "plain" and spec.value_clip is not None:
        moved = _error(_clipped_values(tokens, spec.value_clip) - tokens.column("returns"), *kind)
        value = moved if form == "clipped" else np.maximum(value, moved)
    return value if spec.value_error_cap is None or not capped else np.minimum(value, spec.value_error_cap)


def value_clip(
    tokens: Tokens,
    spec: LossSpec,
    *,
    kind: str = "active",
    error: str | None = None,
    delta: float | None = None,
) -> Floats:
    """Return 1 where a value is clipped, else 0.

    kind "active": the clipped error is strictly the larger; "outside": |v - v_old| > value_clip.
    """
    if spec.value_clip is None:
        return np.zeros(tokens.n)
    if kind == "outside":
        moved = np.abs(tokens.column("values") - tokens.column("old_values"))
        return (moved > spec.value_clip).astype(np.float64)
    how = error or spec.value_error, spec.value_error_delta if delta is None else delta
    plain = _error(tokens.column("values") - tokens.column("returns"), *how)
    clipped = _error(_clipped_values(tokens, spec.value_clip) - tokens.column("returns"), *how)
    return (clipped > plain).astype(np.float64)


def sequence_vote(tokens: Tokens, spec: LossSpec, *, kind: str = "active") -> Floats:
    """Return each sequence's clip decision at all of its tokens, as "active", "active_low", ... of `clip`.

    The sequence's ratio against the bounds, with the sign of the sequence's mean advantage.
    """
    together = tokens.together()
    log_s = log_sequence_ratio(tokens.log_ratio(), together, spec.sequence_ratio)
    masks = reference.clip_masks(log_s, together.mean(tokens.column("advantages")), spec)
    chosen = {
        "active": masks.active_low | masks.active_high,
        "active_low": masks.active_low,
        "active_high": masks.active_high,
        "region": masks.low | masks.high,
        "low": masks.low,
        "high": masks.high,
    }
    return together.spread(chosen[kind].astype(np.float64))


def _clipped_values(tokens: Tokens, clip_range: float) -> Floats:
    """Return values held within the clip range of the old ones."""
    old = tokens.column("old_values")
    return old + np.clip(tokens.column("values") - old, -clip_range, clip_range)


def _error(difference: Floats, error: str, delta: float) -> Floats:
    """Return the error of a difference."""
    with np.errstate(over="ignore"):
        if error == "square":
            return np.square(difference)
        size = np.abs(difference)
        if error == "abs":
            return size
        inside, outside = np.square(difference) / 2.0, delta * (size - delta / 2.0)
        huber = np.where(size <= delta, inside, outside)
        return huber if error == "huber" else huber / delta


def outside_log(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return 1 where d = log_ratio is outside [log(1 - clip_low), log(1 + clip_high)] or NaN, else 0."""
    d = tokens.log_ratio()
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.log1p(-spec.clip_low), np.log1p(spec.clip_high)
        outside: Floats = (np.clip(d, low, high) != d).astype(np.float64)
    return outside


def ratio_distance(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return |ratio - 1| of the ratio that the loss uses."""
    return np.abs(tokens.ratio(clamp=spec.log_ratio_clamp) - 1.0)


def clipped_ratio(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return clip(ratio, 1 - clip_low, 1 + clip_high)."""
    ratios = tokens.ratio(clamp=spec.log_ratio_clamp)
    return np.clip(ratios, 1.0 - spec.clip_low, 1.0 + spec.clip_high)


def dual_ratio(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return the ratio where the dual-clip bound is chosen, else 0."""
    return np.where(tokens.terms(spec).masks.dual, tokens.ratio(clamp=spec.log_ratio_clamp), 0.0)


def smooth_loss(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return max(-ratio A, -s(ratio) A), s a sigmoid in place of the clip.

    s(r) = low + (high - low) / (1 + exp(4 (1/2 - (r - low) / (high - low)))), low = 1 - clip_low,
    high = 1 + clip_high: slope 1 in the middle. Exactly 0 where A is 0 (rl_games).
    """
    ratios, advantages = tokens.ratio(clamp=spec.log_ratio_clamp), tokens.column("advantages")
    low, width = 1.0 - spec.clip_low, spec.clip_low + spec.clip_high
    with np.errstate(over="ignore", invalid="ignore"):
        smooth = low + width / (1.0 + np.exp(4.0 * (0.5 - (ratios - low) / width)))
        loss = np.maximum(-ratios * advantages, -smooth * advantages)
    return np.where(advantages == 0.0, 0.0, loss) + 0.0


def residual(tokens: Tokens, spec: LossSpec, *, role: str = "values") -> Floats:
    """Return returns - prediction, the prediction being the column `role`."""
    return tokens.column("returns") - tokens.column(role)


def _over_sequence_roles(spec: LossSpec, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one or two columns."""
    old = options.get("old", OLD)
    return options.get("new", NEW), *(() if old is None else (old,))


def _value_roles(spec: LossSpec, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return values and returns, and the old values where they are clipped."""
    return "values", "returns", *(("old_values",) if spec.value_clip is not None else ())


TERMS: dict[str, Term] = {
    "loss": Term(loss, _policy, _by_spec),
    "clip": Term(clip, _policy, _by_spec),
    "sequence_vote": Term(sequence_vote, _policy, lambda spec, options: True),
    "distance": Term(distance, _pair, _never),
    "kl": Term(kl, _pair, _by_rules),
    "ratio": Term(ratio, _pair, _by_level),
    "column": Term(column, lambda spec, options: (options["role"],), _never),
    "weight": Term(weight, _corrected, _by_weight),
    "kept": Term(kept_term, _corrected, _by_any_rule),
    "rejected": Term(rejected, _corrected, _by_any_rule),
    "rule": Term(rule, _corrected, _by_any_rule),
    "over_sequence": Term(over_sequence, _over_sequence_roles, lambda spec, options: True),
    "gate": Term(gate, lambda spec, options: (NEW, OLD, "advantages"), _by_spec),
    "difference": Term(difference, lambda spec, options: (options["a"], options["b"]), _never),
    "statistic": Term(statistic, lambda spec, o: (o.get("new", OLD), o.get("old", ROLLOUT)), _never),
    "value_error": Term(value_error, _value_roles, _never),
    "value_clip": Term(value_clip, _value_roles, _never),
    "outside_log": Term(outside_log, _pair, _never),
    "ratio_distance": Term(ratio_distance, _pair, _never),
    "clipped_ratio": Term(clipped_ratio, _pair, _never),
    "dual_ratio": Term(dual_ratio, _policy, _by_spec),
    "smooth_loss": Term(smooth_loss, _policy, _never),
    "residual": Term(residual, lambda spec, options: ("returns", options.get("role", "values")), _never),
    "ref_kl": Term(framework_terms.ref_kl, framework_terms.ref_kl_roles, framework_terms.ref_kl_together),
    "entropy_bonus": Term(framework_terms.entropy_bonus, framework_terms.entropy_roles, _never),
    "phi": Term(framework_terms.phi, _policy, _by_spec),
    "loss_times_length": Term(
        framework_terms.loss_times_length,
        lambda spec, o: (*_policy(spec, o), *framework_terms.ref_kl_roles(spec, {"penalty": True})),
        lambda spec, o: True,
    ),
    "held_back": Term(framework_terms.held_back, _policy, _by_spec),
    "objective_ratio": Term(
        framework_terms.objective_ratio,
        lambda spec, o: (NEW, OLD),
        lambda spec, o: spec.shares_ratio or o.get("averaged", False),
    ),
    "clip_kept": Term(framework_terms.clip_kept, _policy, _by_spec),
    "behaviour_weighted": Term(framework_terms.behaviour_weighted, lambda spec, o: (NEW, ROLLOUT), _never),
    "sampling_ratio": Term(framework_terms.sampling_ratio, _sampling, framework_terms.sampling_together),
    "dropped": Term(framework_terms.dropped, _policy, _by_spec),
    "among": Term(framework_terms.among, _policy, lambda spec, options: True),
    "logarithm": Term(framework_terms.logarithm, framework_terms.logarithm_roles, _never),
    "log_ratio_penalty": Term(framework_terms.log_ratio_penalty, _pair, _never),
    "distance_from_one": Term(framework_terms.distance_from_one, _mismatch, _never),
    "multiplicative_error": Term(framework_terms.multiplicative_error, _mismatch, _never),
    "mixture_divergence": Term(framework_terms.mixture_divergence, _mismatch, _never),
    "weighted_entropy": Term(framework_terms.weighted_entropy, lambda spec, o: (NEW, ROLLOUT), _never),
    "probability_difference": Term(framework_terms.probability_difference, _mismatch, _never),
}
"""The vocabulary."""
