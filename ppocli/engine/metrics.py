"""Every metric of the catalogue, from totals."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

from ppocli.core.formats import FORMATS
from ppocli.core.metrics import METRICS
from ppocli.engine.aggregates import (
    put_aggregates,
    put_groups,
    put_micro_batches,
    put_sequences,
    put_total_loss,
)
from ppocli.engine.summary import (
    Summary,
    add_tallies,
    any_nan,
    exp,
    negated,
    of_greatest,
    of_least,
    quantile_place,
    roles_of,
)
from ppocli.kernels import rare

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec
    from ppocli.engine.totals import Totals

RATIO = ("log_probs", "old_log_probs")
POLICY = (*RATIO, "advantages")


def summarise(totals: Totals, spec: LossSpec) -> Summary:
    """Turn totals into metrics, in the order of the catalogue, with their notes and places."""
    s = Summary(totals, spec)
    if s.has(POLICY):
        put_aggregates(s)
        _put_policy(s)
    if s.has(RATIO):
        _put_ratio(s)
        _put_weights(s)
        put_sequences(s)
    if s.has(("advantages",)):
        _put_advantages(s)
        put_groups(s)
    _put_value(s)
    _put_columns(s)
    if s.has(POLICY):
        put_micro_batches(s)
        put_total_loss(s)
    _put_counts(s)
    order = _order()
    names = sorted(s.metrics, key=lambda name: order.get(name.removesuffix("_finite"), len(order)))
    s.metrics = {name: s.metrics[name] for name in names}
    return s


@cache
def _order() -> dict[str, int]:
    """Return the places of the metrics in the catalogue."""
    return {name: index for index, name in enumerate(METRICS)}


def _put_mean(
    s: Summary, name: str, total: str, selection: str, constant: str | None = None, sign: int = 1
) -> None:
    """Enter the mean of a sum."""
    value = sign * s.mean(total, selection, constant)
    tally = s.tally(total, constant)
    s.put(name, value, roles_of(selection, s.spec), tally if sign > 0 else negated(tally))


def _put_share(s: Summary, name: str, totals: tuple[str, ...], selection: str) -> None:
    """Enter the share of tokens that some counters hold."""
    n = s.count(selection)
    value = sum(s.total(one) for one in totals) / n if n else math.nan
    s.put(name, value, roles_of(selection, s.spec))


def _put_policy(s: Summary) -> None:
    """Loss and clip metrics that need the advantage."""
    n = s.count("policy")
    variance = s.variance("loss", "policy", constant="loss")
    s.put(
        "policy_loss_se",
        math.sqrt(variance / n) if n else math.nan,
        roles_of("policy", s.spec),
        any_nan(s.tally("loss", "loss")),
    )
    _put_mean(s, "unclipped_loss", "unclipped", "policy")
    _put_share(s, "clip_frac_active", ("active_low", "active_high"), "policy")
    _put_share(s, "clip_frac_active_low", ("active_low",), "policy")
    _put_share(s, "clip_frac_active_high", ("active_high",), "policy")
    if s.spec.dual_clip is not None:
        _put_share(s, "dual_clip_frac", ("dual",), "policy")
    if s.spec.delta is not None:
        _put_share(s, "delta_clip_frac", ("delta",), "policy")
    _put_mean(s, "grad_abs_mean", "grad_abs", "policy")
    _put_share(s, "grad_zero_frac", ("grad_zero",), "policy")


def _put_ratio(s: Summary) -> None:
    """Metrics that need the two log-probs."""
    n = s.count("ratio")
    _put_share(s, "clip_frac", ("below", "above"), "ratio")
    _put_share(s, "clip_frac_low", ("below",), "ratio")
    _put_share(s, "clip_frac_high", ("above",), "ratio")
    _put_mean(s, "approx_kl_k1", "log_ratio", "ratio", "log_ratio", sign=-1)
    variance = s.variance("log_ratio", "ratio", constant="log_ratio")
    tally = any_nan(s.tally("log_ratio", "log_ratio"))
    s.put("approx_kl_k1_se", math.sqrt(variance / n) if n else math.nan, RATIO, tally)
    s.put("approx_kl_k2", s.mean("log_ratio_sq", "ratio") / 2, RATIO, s.tally("log_ratio_sq"))
    _put_mean(s, "approx_kl_k3", "kl_k3", "ratio")
    _put_mean(s, "log_ratio_abs_mean", "log_ratio_abs", "ratio")
    _put_share(s, "zero_log_ratio_frac", ("log_ratio_zero",), "ratio")
    _put_ratio_moments(s)
    low, high = s.extreme("log_ratio")
    raw = s.left_out("log_ratio")
    side = 0 if -low > high else 1
    size = max(-low, high) if n else math.nan
    s.put("log_ratio_abs_max", size, RATIO, (raw[0], raw[1] + raw[2], 0), where=s.place("log_ratio", side))
    for percent in (1, 5, 50, 95, 99):
        x = quantile_place(s, percent) if n else math.nan
        why = "beyond the +-32 nats that quantiles are kept for" if n else None
        s.put(f"ratio_p{percent:02d}", exp(_clamped(s, x)), RATIO, _order_tally(s), why=why)


def _clamped(s: Summary, log_ratio: float) -> float:
    """Apply log_ratio_clamp."""
    bound = s.spec.log_ratio_clamp
    return log_ratio if bound is None or math.isnan(log_ratio) else min(max(log_ratio, -bound), bound)


def _order_tally(s: Summary) -> tuple[int, int, int]:
    """Return the tally of an order statistic: a NaN spoils it, infinities only move it."""
    return (s.left_out("ratio")[0], 0, 0)


def _put_ratio_moments(s: Summary) -> None:
    """Mean, deviation and extremes of the ratio."""
    n = s.count("ratio")
    low, high = (exp(_clamped(s, x)) if n else math.nan for x in s.extreme("log_ratio"))
    constant = low == high
    tally = s.left_out("ratio") if constant else s.tally("ratio")
    s.put(
        "ratio_mean",
        low if constant else s.mean("ratio", "ratio"),
        RATIO,
        tally,
        where=s.place("log_ratio", 1),
    )
    deviation = (
        0.0 if constant and math.isfinite(low) else math.sqrt(s.variance("ratio", "ratio")) if n else math.nan
    )
    s.put("ratio_std", deviation, RATIO, any_nan(tally), where=s.place("log_ratio", 1))
    out = s.left_out("ratio")
    s.put("ratio_min", low, RATIO, of_least(low, n, out), where=s.place("log_ratio", 0))
    s.put("ratio_max", high, RATIO, of_greatest(high, n, out), where=s.place("log_ratio", 1))


def _put_weights(s: Summary) -> None:
    """Effective sample size, and what only large log-ratios change."""
    n = s.count("ratio")
    scale = 2.0**-rare.BIG_POWER
    first, second = s.total("ess_1"), s.total("ess_2")
    if s.total("ess_big_1") > 0.0:
        first = first * scale + s.total("ess_big_1")
        second = second * scale * scale + s.total("ess_big_2")
    ess = min(first / second * (first / n), 1.0) if n and second > 0.0 else math.nan
    overflows = s.total("overflow_float64") > 0.0
    why = "the squares of all ratios are 0 in float64" if n and second == 0.0 else None
    tally = any_nan(add_tallies(s.left_out("raw_ratio"), (int(overflows), 0, 0)))
    s.put("ess_frac", math.nan if overflows else ess, RATIO, tally, why=why)
    for kind in ("overflow", "underflow"):
        for name in FORMATS:
            s.put(f"{kind}_{name}", s.total(f"{kind}_{name}"), RATIO)
    s.put("log_ratio_beyond_20", s.total("beyond_20"), RATIO)
    s.put("log_ratio_on_bound", s.total("on_bound"), RATIO)
    if s.spec.log_ratio_clamp is not None:
        s.put("n_log_ratio_clamped", s.total("clamped"), RATIO)


def _put_advantages(s: Summary) -> None:
    """Advantages as stored."""
    roles = ("advantages",)
    n, tally, out = s.count("adv"), s.tally("adv", "adv"), s.left_out("adv")
    low, high = s.extreme("adv")
    _put_mean(s, "adv_mean", "adv", "adv", "adv")
    ddof = s.spec.adv_norm_ddof
    variance = s.variance("adv", "adv", ddof, None if ddof and n < 2 else "adv")
    why = f"needs more than {ddof} tokens with ddof {ddof}" if n <= ddof else None
    s.put("adv_std", math.sqrt(variance), roles, any_nan(tally), why=why)
    low, high = (low, high) if n else (math.nan, math.nan)
    s.put("adv_min", low, roles, of_least(low, n, out), where=s.place("adv", 0))
    s.put("adv_max", high, roles, of_greatest(high, n, out), where=s.place("adv", 1))
    _put_share(s, "zero_advantage_frac", ("adv_zero",), "adv")


def _put_value(s: Summary) -> None:
    """Value loss and explained variance."""
    if s.has(("values", "returns")):
        if s.spec.value_clip is not None and not s.has(("old_values",)):
            s.put_null("value_loss", "value_clip needs a column for old_values")
        else:
            _put_mean(s, "value_loss", "value", "value")
            if s.has(("old_values",)) and s.spec.value_clip is None:
                for name in ("value_clip_frac", "value_clip_frac_active"):
                    s.put_null(name, "value_clip is not given")
            elif s.has(("old_values",)):
                _put_share(s, "value_clip_frac", ("value_outside",), "value")
                _put_share(s, "value_clip_frac_active", ("value_active",), "value")
        _put_explained(s, "explained_variance", "ev")
        if s.has(("old_values",)):
            _put_explained(s, "explained_variance_old", "ev_old")
    elif s.has(("old_values", "returns")):
        _put_explained(s, "explained_variance", "ev_old")


def _put_explained(s: Summary, name: str, selection: str) -> None:
    """Enter 1 - var(returns - prediction) / var(returns)."""
    returns, errors = f"{selection}_return", f"{selection}_error"
    low, high = s.extreme(returns)
    spread = s.variance(returns, selection, constant=returns)
    value = 1.0 - s.variance(errors, selection) / spread if spread > 0.0 else math.nan
    why = "the returns do not vary" if low == high else None
    tally = any_nan(add_tallies(s.tally(returns), s.tally(errors)))
    s.put(name, value, roles_of(selection, s.spec), tally, why=why)


def _put_columns(s: Summary) -> None:
    """Rewards, returns, entropies and the reference policy."""
    for role, name in (("rewards", "reward"), ("returns", "return")):
        if s.has((role,)):
            _put_mean(s, f"{name}_mean", name, name, name)
            variance = s.variance(name, name, constant=name)
            s.put(f"{name}_std", math.sqrt(variance), (role,), any_nan(s.tally(name, name)))
    if s.has(("entropy",)):
        _put_mean(s, "entropy_mean", "entropy", "entropy", "entropy")
    if s.has(("log_probs",)):
        _put_mean(s, "entropy_estimate", "log_prob", "log_prob", sign=-1)
    if s.has(("log_probs", "ref_log_probs")):
        roles = ("log_probs", "ref_log_probs")
        low, high = s.extreme("ref_k1")
        furthest = s.place("ref_k1", 0 if -low > high else 1)
        _put_mean(s, "ref_kl_k1", "ref_k1", "ref", "ref_k1")
        s.put("ref_kl_k2", s.mean("ref_k2", "ref"), roles, s.tally("ref_k2"), where=furthest)
        s.put("ref_kl_k3", s.mean("ref_k3", "ref"), roles, s.tally("ref_k3"), where=s.place("ref_k1", 0))


def _put_counts(s: Summary) -> None:
    """Enter counts, which are known whatever the values are."""
    totals = s.totals
    s.put_count("n_rows", totals.n_rows)
    s.put_count("n_tokens", totals.n_tokens)
    s.put_count("n_masked", totals.n_masked)
    s.put_count("n_files", totals.n_files)
    for k, name in enumerate(("n_null", "n_nan", "n_posinf", "n_neginf")):
        s.put_count(name, int(totals.column_counts[:, k].sum()))
    s.put_count("n_positive_log_probs", totals.n_positive)
