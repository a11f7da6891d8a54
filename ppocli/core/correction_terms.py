"""Terms about tokens of another policy: weights, rules, and what a sequence's log-ratios add up to.

As in `core.terms`, whose vocabulary they belong to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.rollout_correction import Rejection, decision_bounds, reject, token_statistic
from ppocli.core.token_objectives import clamped
from ppocli.core.tokens import NEW, OLD, ROLLOUT, Tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.rollout_rules import RejectionRule
    from ppocli.core.spec import LossSpec

    Floats = NDArray[np.float64]


def only_kept(tokens: Tokens, spec: LossSpec, values: Floats, kept: bool) -> Floats:
    """Return the values, 0 where a rule takes the token out and `kept` asks for that."""
    if not kept or not spec.rejections or spec.rollout_rs_mode == "clamp":
        return values
    return np.where(tokens.kept(spec), values, 0.0)


def weight(
    tokens: Tokens, spec: LossSpec, *, kind: str = "applied", power: int = 1, kept: bool = False
) -> Floats:
    """Return the weight against the rollout policy.

    kind "applied", "raw": after the bounds, before them; "log": the logarithm of a token's raw one, 0 where
    that is beyond a bound; "excess": applied - 1; "low", "high", "touched": 1 where the raw one is beyond
    that bound, beyond either; "under": as "low", and without a lower bound 1 where it is below 1 / cap;
    "mean_high", "mean_reached": 1 where the sequence's mean (over length + `seq_eps`) of the raw ones is
    above the cap, is at least that lower bound. `kept`: 0 where a rule does not allow the token. Without a
    weight it is 1, and no bound is passed.
    """
    weights = tokens.weights(spec)
    if kind == "log":
        d = tokens.log_ratio(OLD, ROLLOUT)
        return d if weights is None else np.where(weights.low | weights.high, 0.0, d)
    if weights is None:
        return only_kept(tokens, spec, np.full(tokens.n, float(kind in ("applied", "raw"))), kept)
    if kind == "excess":
        value = weights.applied - 1.0
    elif kind in ("applied", "raw", "low", "high", "touched"):
        value = np.asarray(getattr(weights, kind), dtype=np.float64)
    else:
        raw = weights.raw if kind == "under" else _sequence_mean(tokens, spec, weights.raw)
        cap = np.inf if spec.rollout_is_cap is None else spec.rollout_is_cap
        floor = 1.0 / cap if spec.rollout_is_low is None else spec.rollout_is_low
        chosen = {"mean_high": raw > cap, "mean_reached": raw >= floor, "under": raw < floor}[kind]
        value = chosen.astype(np.float64)
    with np.errstate(over="ignore"):
        return only_kept(tokens, spec, value if power == 1 else value**power, kept)


def statistic(tokens: Tokens, spec: LossSpec, *, name: str, new: str = OLD, old: str = ROLLOUT) -> Floats:
    """Return a statistic of rules: "ratio" (its logarithm), "k1", "k2", "k3", "tv", "binary_kl"."""
    return token_statistic(tokens.column(new), tokens.column(old), name)


def kept(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return 1 where every rule allows the token, else 0."""
    return tokens.kept(spec).astype(np.float64)


def rejected(tokens: Tokens, spec: LossSpec) -> Floats:
    """Return 1 where some rule does not allow the token, else 0."""
    return 1.0 - kept(tokens, spec)


def rule(tokens: Tokens, spec: LossSpec, *, name: str, part: str, power: int = 1) -> Floats:
    """Return what the rule of this name looks at, or decides.

    part "value": its statistic, at a sequence level the sequence's (a mean over length + `seq_eps`); "held":
    that, held within the bounds, a missing lower one being 0; "low", "high": 1 where it is beyond that bound;
    "mean_low", "mean_high": the same of the sequence's mean of a token-level statistic; "out": 1 where the
    rule does not allow the token.
    """
    which = next(one for one in spec.rejections if one.name == name)
    decided = tokens.once(("rule", which), lambda: _decide(tokens, spec, which))
    if part == "out":
        return (~decided.kept).astype(np.float64)
    low, high = decision_bounds(which)
    together = tokens.together()
    value = decided.statistic
    if which.level == "seq_mean":
        value = value * (together.lengths / (together.lengths + spec.seq_eps))
    if which.level != "token":
        value = together.spread(value)
    if part in ("low", "high"):
        decision = (decided.low if part == "low" else decided.high).astype(np.float64)
        return decision if which.level == "token" else together.spread(decision)
    if part in ("mean_low", "mean_high"):
        by_sequence = _sequence_mean(tokens, spec, value) if which.level == "token" else value
        return (by_sequence > high if part == "mean_high" else by_sequence < low).astype(np.float64)
    if part == "held":
        value = np.clip(value, 0.0 if np.isneginf(low) else low, high)
    return value if power == 1 else value**power


def over_sequence(
    tokens: Tokens,
    spec: LossSpec,
    *,
    new: str = NEW,
    old: str | None = OLD,
    level: str = "geometric",
    clamp: float | None = None,
    times: float = 1.0,
    then: str | None = None,
) -> Floats:
    """Return f(times * x) at every token, x the sequence's mean or sum of new - old (old None: of new).

    level "geometric": the sum over length + `seq_eps`; "sequence": the sum. x is held within plus or minus
    `clamp`. then "abs": the size; "expm1": exp - 1; None: as it is. With "expm1" a stored sequence without a
    valid token, whose x is 0, counts as 0 too.
    """
    values = tokens.column(new) if old is None else tokens.log_ratio(new, old)
    x = (
        tokens.together().spread(tokens.together().total(values))
        if level == "sequence"
        else _sequence_mean(tokens, spec, values)
    )
    x = times * clamped(x, clamp)
    if then is None:
        return x
    with np.errstate(over="ignore"):
        return np.abs(x) if then == "abs" else np.expm1(x)


def _decide(tokens: Tokens, spec: LossSpec, which: RejectionRule) -> Rejection:
    """Apply one rule."""
    numerator, denominator = (tokens.column(role) for role in spec.correction_pair)
    return reject(
        numerator,
        denominator,
        tokens.together(),
        which,
        log_ratio_clamp=spec.rollout_is_clamp,
        prob_clamp=spec.rollout_rs_prob_clamp,
    )


def _sequence_mean(tokens: Tokens, spec: LossSpec, values: Floats) -> Floats:
    """Return the sequence's sum over length + `seq_eps`, at each of its tokens."""
    together = tokens.together()
    return together.spread(together.total(values) / (together.lengths + spec.seq_eps))
