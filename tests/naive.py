"""Every metric of `eval` by loops and `math.fsum`: what the package is held against. Shares no code with it.

A token is a dict: role -> number or None (a null); `mask` 0 or 1 (absent: 1); `sequence` and `group` any key
(None: a null id; absent: the input has none); `row` its row over all files. `evaluate` gives
`metrics`, `nonfinite` and `scale`: the mean |term| that the error of a mean is measured in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Token = dict[str, Any]
Pair = tuple[float | None, float | None]  # a value, and its scale where it is a mean

LOG_PROB_ROLES = {"log_probs", "old_log_probs", "rollout_log_probs", "ref_log_probs"}
AGGREGATIONS = (
    "token-mean",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
    "token-sum",
    "group-mean",
)
# Largest finite value and smallest positive value, as their definitions give them.
FORMATS = {
    "float16": (65504.0, 2.0**-24),
    "bfloat16": (255 * 2.0**120, 2.0**-133),
    "float32": (16777215 * 2.0**104, 2.0**-149),
    "float64": (9007199254740991 * 2.0**971, 5e-324),
    "float8_e4m3fn": (448.0, 2.0**-9),
    "float8_e5m2": (57344.0, 2.0**-16),
}


@dataclass
class Settings:
    """What changes a number; the defaults of `eval`."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    delta: float | None = None
    log_ratio_clamp: float | None = None
    agg: str = "token-mean"
    horizon: int | None = None
    adv_norm: str = "none"
    adv_norm_ddof: int = 0
    adv_norm_eps: float = 1e-8
    adv_norm_form: str = "add"
    value_clip: float | None = None
    vf_coef: float | None = None
    ent_coef: float | None = None
    kl_coef: float | None = None
    micro_batch: int | None = None


@dataclass
class Result:
    """The metrics by name (None: null), what the null ones would have been, and the scales of means."""

    settings: Settings
    metrics: dict[str, Any] = field(default_factory=dict)
    nonfinite: dict[str, str] = field(default_factory=dict)
    scale: dict[str, float] = field(default_factory=dict)


# ---- arithmetic ------------------------------------------------------------------------------------------


def total(terms: Iterable[float]) -> float:
    """The correctly rounded sum; infinities and NaN as float64 addition has them."""
    terms = list(terms)
    if any(math.isnan(x) for x in terms) or {math.inf, -math.inf} <= set(terms):
        return math.nan
    if any(math.isinf(x) for x in terms):
        return math.inf if math.inf in terms else -math.inf
    try:
        return math.fsum(terms)
    except OverflowError:
        exact = sum(map(Fraction, terms))
        try:
            return float(exact)
        except OverflowError:
            return math.inf if exact > 0 else -math.inf


def mean(terms: Iterable[float]) -> float:
    terms = list(terms)
    return total(terms) / len(terms)


def mean_of(terms: Iterable[float]) -> Pair:
    terms = list(terms)
    return mean(terms), mean([abs(x) for x in terms])


def variance(terms: Iterable[float], ddof: int = 0) -> float:
    """Two passes, corrected for the rounding of the mean."""
    terms = list(terms)
    n = len(terms)
    if n <= ddof:
        return math.nan
    centre = mean(terms)
    if math.isinf(centre):
        return math.nan
    rest = [x - centre for x in terms]
    left, squares = total(rest), total(x * x for x in rest)
    if not math.isfinite(squares):
        return squares
    return max(0.0, squares - left * left / n) / (n - ddof)


def exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def expm1_minus(x: float) -> float:
    """expm1(x) - x without cancellation: the series, summed exactly enough, for |x| < 1."""
    if abs(x) < 1.0:
        terms, term = [], x * x / 2
        for k in range(3, 30):
            terms.append(term)
            term *= x / k
        return math.fsum(terms)
    try:
        return math.expm1(x) - x
    except OverflowError:
        return math.inf


def smaller(x: float, y: float) -> float:
    return math.nan if math.isnan(x) or math.isnan(y) else min(x, y)


def larger(x: float, y: float) -> float:
    return math.nan if math.isnan(x) or math.isnan(y) else max(x, y)


def between(x: float, low: float, high: float) -> float:
    return smaller(larger(x, low), high)


def smallest_of(values: Iterable[float]) -> float:
    values = list(values)
    return math.nan if any(map(math.isnan, values)) else min(values)


def largest_of(values: Iterable[float]) -> float:
    values = list(values)
    return math.nan if any(map(math.isnan, values)) else max(values)


# ---- one token -------------------------------------------------------------------------------------------


def log_ratio(t: Token) -> float:
    return t["log_probs"] - t["old_log_probs"]


def bounded_log_ratio(t: Token, s: Settings) -> float:
    d = log_ratio(t)
    return d if s.log_ratio_clamp is None else between(d, -s.log_ratio_clamp, s.log_ratio_clamp)


def ratio(t: Token, s: Settings) -> float:
    return exp(bounded_log_ratio(t, s))


def is_low(t: Token, s: Settings) -> bool:
    return ratio(t, s) < 1 - s.clip_low


def is_high(t: Token, s: Settings) -> bool:
    return ratio(t, s) > 1 + s.clip_high


def is_dual(t: Token, a: float, s: Settings) -> bool:
    r = ratio(t, s) if s.delta is None else smaller(ratio(t, s), s.delta)
    return s.dual_clip is not None and a < 0 and r > s.dual_clip


def is_delta(t: Token, a: float, s: Settings) -> bool:
    return s.delta is not None and a < 0 and ratio(t, s) > s.delta


def unclipped(t: Token, a: float, s: Settings) -> float:
    r = ratio(t, s)
    if a == 0:
        return 0.0
    return -r * a


def loss(t: Token, a: float, s: Settings) -> float:
    r = ratio(t, s)
    if a == 0:
        return 0.0
    free = r if s.delta is None else smaller(r, s.delta)
    held = between(r, 1 - s.clip_low, 1 + s.clip_high)
    out = -smaller(free * a, held * a)
    if s.dual_clip is not None and a < 0:
        out = smaller(out, -s.dual_clip * a)
    return out


def gradient(t: Token, a: float, s: Settings) -> float:
    """d loss / d log_probs."""
    if math.isnan(a):
        return math.nan
    cut = (is_low(t, s) and a < 0) or (is_high(t, s) and a > 0) or is_dual(t, a, s) or is_delta(t, a, s)
    if s.log_ratio_clamp is not None and abs(log_ratio(t)) > s.log_ratio_clamp:
        cut = True
    return 0.0 if cut else unclipped(t, a, s)


def value_squares(t: Token, s: Settings) -> tuple[float, float]:
    """The plain square and the clipped one."""
    clip = s.value_clip
    error = t["values"] - t["returns"]
    if clip is None:
        return error * error, error * error
    held = t["old_values"] + between(t["values"] - t["old_values"], -clip, clip) - t["returns"]
    return error * error, held * held


# ---- many tokens -----------------------------------------------------------------------------------------


def by_key(tokens: list[Token], name: str) -> list[list[Token]]:
    """The tokens of each key, in order of first sight; a null key belongs nowhere."""
    out: dict[Hashable, list[Token]] = {}
    for t in tokens:
        if t.get(name) is not None:
            out.setdefault(t[name], []).append(t)
    return list(out.values())


def objective_advantages(tokens: list[Token], s: Settings, valid: list[Token]) -> list[float]:
    """The advantages that the objective uses; normalised by the finite ones among all valid tokens."""
    stored = [t["advantages"] for t in tokens]
    known = [t["advantages"] for t in valid if t["advantages"] is not None and math.isfinite(t["advantages"])]
    if s.adv_norm == "none" or len(known) < 2:
        return stored
    if min(known) == max(known):
        centre, deviation = known[0], 0.0
    else:
        centre, deviation = mean(known), math.sqrt(variance(known, s.adv_norm_ddof))
    scale = {
        "add": deviation + s.adv_norm_eps,
        "max": larger(deviation, s.adv_norm_eps),
        "var": math.sqrt(deviation * deviation + s.adv_norm_eps),
    }[s.adv_norm_form]
    return [(a - centre) / scale if scale else math.nan for a in stored]


def aggregate(tokens: list[Token], terms: list[float], agg: str, horizon: int | None) -> Pair:
    """One aggregation of the terms, and the same of their absolute values."""
    if agg == "token-mean":
        return mean_of(terms)
    if agg == "token-sum":
        return total(terms), total(map(abs, terms))
    key = {"group-mean": "group", "micro-batch-mean": "micro_batch"}.get(agg, "sequence")
    members: dict[Hashable, list[float]] = {}
    for t, x in zip(tokens, terms, strict=True):
        if t.get(key) is not None:
            members.setdefault(t[key], []).append(x)
    if not members:
        return None, None
    inner = total if agg.startswith("seq-mean-token-sum") else mean
    divisor = horizon if agg == "seq-mean-token-sum-norm" else 1
    assert divisor is not None
    value = mean(inner(xs) for xs in members.values())
    scale = mean(inner([abs(x) for x in xs]) for xs in members.values())
    return value / divisor, scale / divisor


def quantile(values: list[float], percent: int) -> float:
    """The smallest value whose cumulative share reaches the percentage."""
    values = sorted(values)
    for seen, value in enumerate(values, 1):
        if 100 * seen >= percent * len(values):
            return value
    raise AssertionError


def ess_frac(log_ratios: list[float]) -> float:
    """NaN where a ratio is infinite; the largest log-ratio is taken out, so that no square overflows."""
    top = largest_of(log_ratios)
    if not math.isfinite(exp(top)):
        return math.nan
    weights = [exp(d - top) for d in log_ratios]
    return total(weights) * total(weights) / (len(weights) * total(w * w for w in weights))


def explained_variance(tokens: list[Token], prediction: str) -> float | None:
    returns = [t["returns"] for t in tokens]
    if smallest_of(returns) == largest_of(returns):
        return None
    spread = variance(returns)
    if spread == 0:  # the squares of values near 1e-160 underflow
        return math.nan
    return 1 - variance([t["returns"] - t[prediction] for t in tokens]) / spread


# ---- the whole document ----------------------------------------------------------------------------------

Formula = Callable[[list[Token]], Pair]


def OFF(tokens: list[Token]) -> Pair:
    """The formula of a metric whose setting is off: null in any case."""
    return None, None


def evaluate(tokens: list[Token], *, n_rows: int | None = None, n_files: int = 1, **choices: Any) -> Result:
    s = Settings(**choices)
    valid = [t for t in tokens if t.get("mask", 1)]
    out = Result(s)
    used: set[str] = set()
    for name, (roles, formula) in formulas(tokens, s).items():
        if all(role in t for role in roles for t in tokens):
            strict(out, name, roles, formula, valid)
            used |= set(roles)
    gather_aggregations(out)
    counts(out, tokens, valid, len(tokens) if n_rows is None else n_rows, n_files, used)
    return out


def strict(out: Result, name: str, roles: tuple[str, ...], formula: Formula, valid: list[Token]) -> None:
    """Null where a value that the formula uses is null, NaN or infinite; then also over the finite ones."""
    finite = [t for t in valid if all(is_finite(t[r]) for r in roles)]
    present = [t for t in valid if all(is_present(t[r]) for r in roles)]
    if name == "total_loss" and formula is not OFF:
        value, scale = formula(valid, usable=is_present)
    else:
        value, scale = formula(present) if present else (None, None)
    out.metrics[name] = value
    if value is not None and not math.isfinite(value):
        out.nonfinite[name] = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        out.metrics[name] = None
    if scale is not None:
        out.scale[name] = scale
    if len(finite) == len(valid):
        return
    out.metrics[name] = None
    if formula is OFF:
        return
    if name == "total_loss":
        value, scale = formula(valid, usable=is_finite)
    else:
        value, scale = formula(finite) if finite or name in COUNTED else (None, None)
    out.metrics[f"{name}_finite"] = value if value is not None and math.isfinite(value) else None
    if scale is not None:
        out.scale[f"{name}_finite"] = scale


def is_present(x: float | None) -> bool:
    return x is not None


def is_finite(x: float | None) -> bool:
    return x is not None and math.isfinite(x)


COUNTED = {
    *(f"{side}_{name}" for side in ("overflow", "underflow") for name in FORMATS),
    *("log_ratio_beyond_20", "log_ratio_on_bound", "n_log_ratio_clamped"),
}
"""Counts: 0 over no token."""

POLICY = ("log_probs", "old_log_probs", "advantages")
RATIO = ("log_probs", "old_log_probs")


def formulas(tokens: list[Token], s: Settings) -> dict[str, tuple[tuple[str, ...], Formula]]:
    """Every formula by name, with the roles it uses."""
    out: dict[str, tuple[tuple[str, ...], Formula]] = {}
    out.update(objective_formulas(tokens, s))
    out.update(ratio_formulas(s))
    if any("sequence" in t for t in tokens):
        out.update(sequence_formulas(s))
    out.update(data_formulas(tokens, s))
    out.update(value_formulas(tokens, s))
    out.update(reference_formulas())
    return out


def objective_formulas(tokens: list[Token], s: Settings) -> dict[str, tuple[tuple[str, ...], Formula]]:
    valid = [t for t in tokens if t.get("mask", 1)]

    def losses(ts: list[Token]) -> list[float]:
        return [loss(t, a, s) for t, a in zip(ts, objective_advantages(ts, s, valid), strict=True)]

    def per_token(fn: Callable[[Token, float, Settings], float]) -> Formula:
        return lambda ts: mean_of(
            float(fn(t, a, s)) for t, a in zip(ts, objective_advantages(ts, s, valid), strict=True)
        )

    def active_low(t: Token, a: float, s: Settings) -> bool:
        return is_low(t, s) and a < 0

    def active_high(t: Token, a: float, s: Settings) -> bool:
        return is_high(t, s) and a > 0

    horizon = s.horizon
    if horizon is None:
        horizon = max((len(one) for one in by_key(tokens, "sequence")), default=None)
    out: dict[str, tuple[tuple[str, ...], Formula]] = {
        "policy_loss": (POLICY, lambda ts: aggregate(ts, losses(ts), s.agg, horizon)),
        "policy_loss_se": (POLICY, lambda ts: (math.sqrt(variance(losses(ts)) / len(ts)), None)),
        "unclipped_loss": (POLICY, per_token(unclipped)),
        "clip_frac": (RATIO, lambda ts: mean_of(float(is_low(t, s) or is_high(t, s)) for t in ts)),
        "clip_frac_low": (RATIO, lambda ts: mean_of(float(is_low(t, s)) for t in ts)),
        "clip_frac_high": (RATIO, lambda ts: mean_of(float(is_high(t, s)) for t in ts)),
        "clip_frac_active": (POLICY, per_token(lambda t, a, s: active_low(t, a, s) or active_high(t, a, s))),
        "clip_frac_active_low": (POLICY, per_token(active_low)),
        "clip_frac_active_high": (POLICY, per_token(active_high)),
        "grad_abs_mean": (POLICY, per_token(lambda t, a, s: abs(gradient(t, a, s)))),
        "grad_zero_frac": (POLICY, per_token(lambda t, a, s: gradient(t, a, s) == 0)),
    }
    if s.dual_clip is not None:
        out["dual_clip_frac"] = (POLICY, per_token(is_dual))
    if s.delta is not None:
        out["delta_clip_frac"] = (POLICY, per_token(is_delta))
    for agg in AGGREGATIONS:
        needs = "group" if agg == "group-mean" else "sequence" if agg.startswith("seq") else None
        if needs is None or any(needs in t for t in tokens):
            out[f"policy_loss_by_agg.{agg}"] = (
                POLICY,
                lambda ts, agg=agg: aggregate(ts, losses(ts), agg, horizon),
            )
    if s.micro_batch is not None:
        for t in tokens:
            t["micro_batch"] = t["row"] // s.micro_batch
        out["policy_loss_micro_batch_mean"] = (
            POLICY,
            lambda ts: aggregate(ts, losses(ts), "micro-batch-mean", None),
        )
    out["total_loss"] = total_formula(tokens, s, losses, horizon)
    return out


def total_formula(
    tokens: list[Token],
    s: Settings,
    losses: Callable[[list[Token]], list[float]],
    horizon: int | None,
) -> tuple[tuple[str, ...], Formula]:
    """All terms with the chosen aggregation; a term whose coefficient is 0 is not there."""
    stored = set().union(*tokens)
    value_roles = ("values", "returns") + (("old_values",) if s.value_clip is not None else ())
    terms: list[tuple[float | None, float, tuple[str, ...], Callable[[Token], float]]] = [
        (s.vf_coef, 0.5, value_roles, lambda t: larger(*value_squares(t, s))),
        (s.ent_coef, 0.0, ("entropy",), lambda t: -t["entropy"]),
        (
            s.kl_coef,
            0.0,
            ("log_probs", "ref_log_probs"),
            lambda t: expm1_minus(t["ref_log_probs"] - t["log_probs"]),
        ),
    ]
    chosen = []
    missing = False
    for given, default, roles, term in terms:
        coefficient = default if given is None else given
        if coefficient and stored >= set(roles):
            chosen.append((coefficient, roles, term))
        elif coefficient and (
            given is not None or (roles is value_roles and stored >= {"values", "returns"})
        ):
            missing = True

    def formula(ts: list[Token], *, usable: Callable[[float | None], bool] | None = None) -> Pair:
        """Each term over the tokens whose own values are usable: the total of the terms' finite twins."""

        def own(roles: tuple[str, ...]) -> list[Token]:
            return ts if usable is None else [t for t in ts if all(usable(t[r]) for r in roles)]

        value, scale = 0.0, 0.0
        for coefficient, roles, term in [(1.0, POLICY, None), *chosen]:
            kept = own(roles)
            if not kept and usable is is_present:
                continue
            terms = losses(kept) if term is None else [term(t) for t in kept]
            more, size = aggregate(kept, terms, s.agg, horizon) if kept else (None, None)
            if more is None or size is None:
                return None, None
            value, scale = value + coefficient * more, scale + abs(coefficient) * size
        return value, scale

    roles = POLICY + tuple(role for _, roles, _ in chosen for role in roles)
    return roles, OFF if missing else formula


def ratio_formulas(s: Settings) -> dict[str, tuple[tuple[str, ...], Formula]]:
    def mean_log(fn: Callable[[float], float]) -> tuple[tuple[str, ...], Formula]:
        return RATIO, lambda ts: mean_of(fn(log_ratio(t)) for t in ts)

    def count(fn: Callable[[float], bool]) -> tuple[tuple[str, ...], Formula]:
        return RATIO, lambda ts: (sum(fn(log_ratio(t)) for t in ts), None)

    out: dict[str, tuple[tuple[str, ...], Formula]] = {
        "approx_kl_k1": mean_log(lambda d: -d),
        "approx_kl_k1_se": (
            RATIO,
            lambda ts: (math.sqrt(variance([log_ratio(t) for t in ts]) / len(ts)), None),
        ),
        "approx_kl_k2": mean_log(lambda d: d * d / 2),
        "approx_kl_k3": mean_log(expm1_minus),
        "ratio_mean": (RATIO, lambda ts: mean_of(ratio(t, s) for t in ts)),
        "ratio_std": (RATIO, lambda ts: (math.sqrt(variance([ratio(t, s) for t in ts])), None)),
        "ratio_min": (RATIO, lambda ts: (smallest_of(ratio(t, s) for t in ts), None)),
        "ratio_max": (RATIO, lambda ts: (largest_of(ratio(t, s) for t in ts), None)),
        "log_ratio_abs_mean": mean_log(abs),
        "log_ratio_abs_max": (RATIO, lambda ts: (largest_of(abs(log_ratio(t)) for t in ts), None)),
        "zero_log_ratio_frac": mean_log(lambda d: float(d == 0)),
        "log_ratio_beyond_20": count(lambda d: abs(d) > 20),
        "log_ratio_on_bound": count(lambda d: abs(d) in (10.0, 20.0)),
        "ess_frac": (RATIO, lambda ts: (ess_frac([log_ratio(t) for t in ts]), None)),
    }
    if s.log_ratio_clamp is not None:
        bound = s.log_ratio_clamp
        out["n_log_ratio_clamped"] = count(lambda d: abs(d) > bound)
    for percent in (1, 5, 50, 95, 99):
        out[f"ratio_p{percent:02d}"] = (
            RATIO,
            lambda ts, percent=percent: (quantile([ratio(t, s) for t in ts], percent), None),
        )
    for name, (largest, least) in FORMATS.items():
        above, below = math.log(largest), math.log(least) - math.log(2)
        out[f"overflow_{name}"] = count(lambda d, above=above: d > above)
        out[f"underflow_{name}"] = count(lambda d, below=below: d < below)
    return out


def sequence_formulas(s: Settings) -> dict[str, tuple[tuple[str, ...], Formula]]:
    def over(
        fn: Callable[[list[float]], float], reduce: Callable[[list[float]], Pair]
    ) -> tuple[Any, Formula]:
        def formula(ts: list[Token]) -> Pair:
            sequences = by_key(ts, "sequence")
            if not sequences:
                return None, None
            return reduce([fn([log_ratio(t) for t in one]) for one in sequences])

        return RATIO, formula

    def geometric(ds: list[float]) -> float:
        return exp(mean(ds))

    def outside(ds: list[float]) -> float:
        return float(geometric(ds) < 1 - s.clip_low or geometric(ds) > 1 + s.clip_high)

    def least(xs: list[float]) -> Pair:
        return smallest_of(xs), None

    def most(xs: list[float]) -> Pair:
        return largest_of(xs), None

    return {
        "seq_ratio_geo": over(geometric, mean_of),
        "seq_ratio_geo_min": over(geometric, least),
        "seq_ratio_geo_max": over(geometric, most),
        "seq_ratio_product": over(lambda ds: exp(total(ds)), mean_of),
        "seq_log_ratio_mean": over(total, mean_of),
        "seq_log_ratio_min": over(total, least),
        "seq_log_ratio_max": over(total, most),
        "seq_clip_frac": over(outside, mean_of),
    }


def data_formulas(tokens: list[Token], s: Settings) -> dict[str, tuple[tuple[str, ...], Formula]]:
    def moments(role: str, name: str, ddof: int) -> dict[str, tuple[tuple[str, ...], Formula]]:
        return {
            f"{name}_mean": ((role,), lambda ts: mean_of(t[role] for t in ts)),
            f"{name}_std": ((role,), lambda ts: (math.sqrt(variance([t[role] for t in ts], ddof)), None)),
        }

    def equal_groups(ts: list[Token]) -> Pair:
        groups = by_key(ts, "group")
        return (
            mean_of(float(len({t["advantages"] for t in one}) == 1) for one in groups)
            if groups
            else (None, None)
        )

    adv = ("advantages",)
    out = {
        **moments("advantages", "adv", s.adv_norm_ddof),
        "adv_min": (adv, lambda ts: (smallest_of(t["advantages"] for t in ts), None)),
        "adv_max": (adv, lambda ts: (largest_of(t["advantages"] for t in ts), None)),
        "zero_advantage_frac": (adv, lambda ts: mean_of(float(t["advantages"] == 0) for t in ts)),
        **moments("rewards", "reward", 0),
        **moments("returns", "return", 0),
    }
    if any("group" in t for t in tokens):
        out["zero_variance_group_frac"] = (adv, equal_groups)
    return out


def value_formulas(tokens: list[Token], s: Settings) -> dict[str, tuple[tuple[str, ...], Formula]]:
    stored = set().union(*tokens)
    clip = s.value_clip
    roles = ("values", "returns") if clip is None else ("values", "old_values", "returns")
    clipped = clip is not None and "old_values" in stored
    out: dict[str, tuple[tuple[str, ...], Formula]] = {
        "value_loss": (roles, lambda ts: mean_of(larger(*value_squares(t, s)) for t in ts))
        if clip is None or clipped
        else (("values", "returns"), OFF),
        "explained_variance_old": (
            ("returns", "old_values"),
            lambda ts: (explained_variance(ts, "old_values"), None),
        ),
    }
    if "values" in stored or "old_values" in stored:
        prediction = "values" if "values" in stored else "old_values"
        out["explained_variance"] = (
            ("returns", prediction),
            lambda ts: (explained_variance(ts, prediction), None),
        )
        if prediction == "old_values":
            del out["explained_variance_old"]
    three = ("values", "old_values", "returns")
    if clip is None:
        out["value_clip_frac"] = out["value_clip_frac_active"] = (three, OFF)
    else:
        out["value_clip_frac"] = (
            three,
            lambda ts: mean_of(float(abs(t["values"] - t["old_values"]) > clip) for t in ts),
        )
        out["value_clip_frac_active"] = (
            three,
            lambda ts: mean_of(float(value_squares(t, s)[1] > value_squares(t, s)[0]) for t in ts),
        )
    return out


def reference_formulas() -> dict[str, tuple[tuple[str, ...], Formula]]:
    def mean_log(fn: Callable[[float], float]) -> tuple[tuple[str, ...], Formula]:
        return ("log_probs", "ref_log_probs"), lambda ts: mean_of(
            fn(t["log_probs"] - t["ref_log_probs"]) for t in ts
        )

    return {
        "entropy_mean": (("entropy",), lambda ts: mean_of(t["entropy"] for t in ts)),
        "entropy_estimate": (("log_probs",), lambda ts: mean_of(-t["log_probs"] for t in ts)),
        "ref_kl_k1": mean_log(lambda x: x),
        "ref_kl_k2": mean_log(lambda x: x * x / 2),
        "ref_kl_k3": mean_log(lambda x: expm1_minus(-x)),
    }


def gather_aggregations(out: Result) -> None:
    """Move `policy_loss_by_agg.NAME` into the mapping that the document has."""
    for suffix in ("", "_finite"):
        prefix = "policy_loss_by_agg."
        names = [n for n in out.metrics if n.startswith(prefix) and n.endswith("_finite") == bool(suffix)]
        if names:
            out.metrics[f"policy_loss_by_agg{suffix}"] = {
                n.removeprefix(prefix).removesuffix("_finite"): out.metrics.pop(n) for n in names
            }


def counts(
    out: Result, tokens: list[Token], valid: list[Token], n_rows: int, n_files: int, used: set[str]
) -> None:
    """What is stored, and what is wrong in the columns that some metric uses."""
    stored = [t[r] for t in valid for r in used]
    numbers = [x for x in stored if x is not None]
    out.metrics.update(
        n_rows=n_rows,
        n_tokens=len(valid),
        n_masked=len(tokens) - len(valid),
        n_files=n_files,
        n_null=len(stored) - len(numbers),
        n_nan=sum(map(math.isnan, numbers)),
        n_posinf=numbers.count(math.inf),
        n_neginf=numbers.count(-math.inf),
        n_positive_log_probs=sum(
            1 for t in valid for r in used & LOG_PROB_ROLES if t[r] is not None and t[r] > 0
        ),
    )
    if any("sequence" in t for t in tokens):
        out.metrics["n_sequences"] = len(by_key(valid, "sequence"))
    if any("group" in t for t in tokens):
        out.metrics["n_groups"] = len(by_key(valid, "group"))
