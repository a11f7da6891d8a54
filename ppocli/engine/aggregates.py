"""Aggregations over sequences and groups, and the total loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.partials import KEYED, SEQUENCE_SUM
from ppocli.core.spec import AGGREGATIONS
from ppocli.engine.summary import (
    Summary,
    Tally,
    add_tallies,
    any_nan,
    exp,
    negated,
    nonfinite_of,
    of_greatest,
    of_least,
    roles_of,
)
from ppocli.kernels import sequence

if TYPE_CHECKING:
    from ppocli.engine.totals import Totals

NORM = "seq-mean-token-sum-norm"
POLICY = ("log_probs", "old_log_probs", "advantages")
RATIO = ("log_probs", "old_log_probs")
SELECTION_OF = {"loss": "policy", "value": "value", "entropy": "entropy", "ref_k3": "ref"}
"""The selection that each aggregated term is taken over."""


def horizon_of(s: Summary) -> int:
    """Return the divisor of seq-mean-token-sum-norm."""
    longest = s.totals.seq_extremes[sequence.X_LENGTH, 1]
    return s.spec.horizon or (int(longest) if np.isfinite(longest) else 0)


def over_horizon(metrics: Mapping[str, Any], agg: str, horizon: int) -> dict[str, Any]:
    """Return metrics summarised with a horizon of 1 as they are with the run's, known only at its end."""

    def divided(value: float | None) -> float | None:
        return None if value is None else value / horizon + 0.0

    out = dict(metrics)
    for name in ("policy_loss_by_agg", "policy_loss_by_agg_finite"):
        if NORM in out.get(name, ()):
            out[name] = {**out[name], NORM: divided(out[name][NORM])}
    if agg == NORM:
        for name in ("policy_loss", "policy_loss_finite", "total_loss", "total_loss_finite"):
            if name in out:
                out[name] = divided(out[name])
    return out


def why_not(s: Summary, agg: str) -> str | None:
    """Say why an aggregation cannot be had, or None."""
    if agg.startswith("seq-"):
        if s.totals.no_sequences:
            return s.totals.no_sequences
        if not s.totals.has_sequences:
            return "the input has no sequences: no list columns, no 2-D arrays, no sequence_id"
    if agg == "group-mean":
        if s.totals.groups is None:
            return "the input has no group_id"
        if s.totals.n_groups_over:
            return "more than 1,000,000 groups"
        return s.totals.no_groups
    return None


def aggregate(s: Summary, term: str, agg: str) -> float:
    """Return one term with one aggregation, over finite tokens; NaN where nothing is there."""
    selection = SELECTION_OF[term]
    n = s.count(selection)
    if n == 0:
        return math.nan
    if agg == "token-mean":
        return s.mean(term, selection, _constant(term, agg))
    if agg == "token-sum":
        return s.total(term)
    k = KEYED.index(term)
    if agg == "group-mean":
        table = s.totals.groups
        if table is None:
            return math.nan
        pair = np.zeros(2)
        groups = sequence.mean_over_groups(table.states, table.n, k, pair)
        return float(pair[0] / groups + pair[1] / groups) if groups else math.nan
    n_sequences = sequence_sum(s, f"n_{term}")
    kind = "mean" if agg == "seq-mean-token-mean" else "sum"
    if not n_sequences:
        return math.nan
    value = sequence_sum(s, f"{term}_{kind}") / n_sequences
    return value / horizon_of(s) if agg == NORM else value


def _constant(term: str, agg: str) -> str | None:
    """Return the term where an aggregation is the term's one value if it does not vary."""
    return term if agg == "token-mean" and term in ("loss", "entropy") else None


def tally_of(s: Summary, term: str, agg: str) -> Tally:
    """Return how many terms of an aggregation are not finite."""
    return s.tally(term, _constant(term, agg))


def sequence_sum(s: Summary, name: str) -> float:
    """Return a sum over sequences; infinite or NaN where it overflows."""
    which = SEQUENCE_SUM[name]
    overflow = nonfinite_of(add_tallies(s.totals.seq_nonfinite[which]))
    if overflow:
        return float(overflow)
    return float(s.totals.seq_hi[which] + s.totals.seq_lo[which])


def stored_sequences(totals: Totals) -> int:
    """Return how many sequences have a token, valid or masked."""
    return int(totals.seq_hi[SEQUENCE_SUM["n_sequences"]] + totals.seq_hi[SEQUENCE_SUM["n_empty"]])


def put_aggregates(s: Summary) -> None:
    """Enter the policy loss with every aggregation that the input allows, and the chosen one."""
    table: dict[str, float | None] = {}
    finite: dict[str, float | None] = {}
    roles = roles_of("policy", s.spec)
    for agg in AGGREGATIONS:
        tally = tally_of(s, "loss", agg)
        why = why_not(s, agg)
        if why and agg != s.spec.agg:
            continue
        name = f"policy_loss_by_agg.{agg}"
        if why:
            s.put_null("policy_loss", f"{agg}: {why}")
            continue
        empty = _why_empty(s, agg)
        s.put(name, aggregate(s, "loss", agg), roles, tally, why=empty)
        table[agg] = s.metrics.pop(name)
        if f"{name}_finite" in s.metrics:
            finite[agg] = s.metrics.pop(f"{name}_finite")
        if f"{name}_finite" in s.nulls:
            s.nulls[f"policy_loss_by_agg_finite.{agg}"] = s.nulls.pop(f"{name}_finite")
        if agg == s.spec.agg:
            s.put("policy_loss", aggregate(s, "loss", agg), roles, tally, why=empty)
    s.metrics["policy_loss_by_agg"] = table
    if finite:
        s.metrics["policy_loss_by_agg_finite"] = finite


def _why_empty(s: Summary, agg: str) -> str | None:
    """Say why an aggregation has nothing to take a mean of, or None."""
    if agg.startswith("seq-") and not sequence_sum(s, "n_loss"):
        return "no valid token belongs to a sequence"
    table = s.totals.groups
    if agg == "group-mean" and table is not None and not (table.states[: table.n, sequence.VALID] > 0).any():
        return "no valid token belongs to a group"
    return None


def put_sequences(s: Summary) -> None:
    """Enter the ratios of whole sequences."""
    if not s.totals.has_sequences and not s.totals.no_sequences:
        return
    names: tuple[str, ...] = (
        "seq_ratio_geo",
        "seq_ratio_geo_min",
        "seq_ratio_geo_max",
        "seq_ratio_product",
        "seq_log_ratio_mean",
    )
    names += ("seq_log_ratio_min", "seq_log_ratio_max", "seq_clip_frac", "n_sequences")
    if s.totals.no_sequences:
        for name in names:
            s.put_null(name, s.totals.no_sequences)
        return
    s.put_count("n_sequences", int(sequence_sum(s, "n_sequences")))
    n = sequence_sum(s, "n_log_ratio")
    if not n and s.totals.n_tokens and not sequence_sum(s, "n_sequences"):
        for name in names[:-1]:
            s.put_null(name, "no valid token belongs to a sequence")
        return

    def tally_over(name: str) -> Tally:
        which = SEQUENCE_SUM[name]
        return add_tallies(s.totals.seq_nonfinite[which], s.totals.seq_terms[which])

    def left_out(name: str) -> Tally:
        return add_tallies(s.totals.seq_terms[SEQUENCE_SUM[name]])

    def mean_of(name: str) -> float:
        return sequence_sum(s, name) / n if n else math.nan

    places = s.totals.seq_places
    geo_low, geo_high = (float(x) if n else math.nan for x in s.totals.seq_extremes[sequence.X_GEO])
    low, high = (float(x) if n else math.nan for x in s.totals.seq_extremes[sequence.X_LOG_RATIO])
    geo, total = tally_over("ratio_geo"), tally_over("log_ratio_sum")
    geo_out, out = left_out("ratio_geo"), left_out("log_ratio_sum")
    whole = int(sequence_sum(s, "n_whole_ratio"))
    constant = geo_low == geo_high
    value = exp(geo_low) if constant else mean_of("ratio_geo")
    s.put("seq_ratio_geo", value, RATIO, geo_out if constant else geo)
    # A sequence whose mean log-ratio is -inf has the ratio 0, which is finite.
    least = of_least(exp(geo_low), whole + out[2], geo_out)
    s.put("seq_ratio_geo_min", exp(geo_low), RATIO, least, where=places.get((sequence.X_GEO, 0)))
    greatest = of_greatest(exp(geo_high), whole, geo_out)
    s.put("seq_ratio_geo_max", exp(geo_high), RATIO, greatest, where=places.get((sequence.X_GEO, 1)))
    at_least, at_most = (places.get((sequence.X_LOG_RATIO, side)) for side in (0, 1))
    s.put("seq_ratio_product", mean_of("ratio_product"), RATIO, tally_over("ratio_product"), where=at_most)
    s.put("seq_log_ratio_mean", mean_of("log_ratio_sum"), RATIO, total)
    s.put("seq_log_ratio_min", low, RATIO, of_least(low, whole, out), where=at_least)
    s.put("seq_log_ratio_max", high, RATIO, of_greatest(high, whole, out), where=at_most)
    s.put("seq_clip_frac", mean_of("outside"), RATIO)


def put_groups(s: Summary) -> None:
    """Enter what is known of groups."""
    table = s.totals.groups
    if table is None:
        return
    why = why_not(s, "group-mean")
    if why:
        for name in ("n_groups", "zero_variance_group_frac"):
            s.put_null(name, why)
        return
    states = table.states[: table.n]
    valid = states[:, sequence.VALID] > 0
    known = states[:, sequence.ADV_MIN] <= states[:, sequence.ADV_MAX]
    flat = known & (states[:, sequence.ADV_MIN] == states[:, sequence.ADV_MAX])
    s.put_count("n_groups", int(valid.sum()))
    share = float(flat.sum() / known.sum()) if known.any() else math.nan
    s.put("zero_variance_group_frac", share, ("advantages",))


def put_micro_batches(s: Summary) -> None:
    """Enter the mean over micro-batches of their token means of the loss."""
    batches = s.totals.micro_batches
    if batches is None:
        return
    which = SEQUENCE_SUM["loss_mean"]
    n = batches.seq_hi[SEQUENCE_SUM["n_loss"]]
    tally = add_tallies(batches.seq_nonfinite[which], batches.seq_terms[which])
    value = float(batches.seq_hi[which] + batches.seq_lo[which]) / n if n else math.nan
    overflow = nonfinite_of(add_tallies(batches.seq_nonfinite[which]))
    s.put(
        "policy_loss_micro_batch_mean",
        float(overflow) if overflow else float(value),
        roles_of("policy", s.spec),
        tally,
    )


def put_total_loss(s: Summary) -> None:
    """Enter policy_loss + vf_coef value_loss - ent_coef entropy_mean + kl_coef ref_kl_k3, each so aggregated.

    A term whose coefficient is 0 is not evaluated; one whose column is missing counts only if its coefficient
    was given by hand, and then makes the total null.
    """
    spec = s.spec
    terms: list[tuple[str, float, tuple[str, ...]]] = [("loss", 1.0, roles_of("policy", spec))]
    for term, given, default, sign, roles in (
        ("value", spec.vf_coef, 0.5, 1.0, roles_of("value", spec)),
        ("entropy", spec.ent_coef, 0.0, -1.0, roles_of("entropy", spec)),
        ("ref_k3", spec.kl_coef, 0.0, 1.0, roles_of("ref", spec)),
    ):
        coefficient = default if given is None else given
        if coefficient == 0.0:
            continue
        if s.has(roles):
            terms.append((term, sign * coefficient, roles))
        elif given is not None or (term == "value" and s.has(("values", "returns"))):
            missing = ", ".join(role for role in roles if role not in s.totals.roles)
            s.put_null("total_loss", f"the {term} term needs a column for {missing}")
            return
    why = why_not(s, spec.agg)
    if why:
        s.put_null("total_loss", f"{spec.agg}: {why}")
        return
    # Over the horizon once, at the end: see `over_horizon`.
    agg = "seq-mean-token-sum" if spec.agg == NORM else spec.agg
    value = sum(weight * aggregate(s, term, agg) for term, weight, _ in terms)
    if spec.agg == NORM and not math.isnan(value):
        value /= horizon_of(s)
    tallies = [tally_of(s, term, spec.agg) for term, _, _ in terms]
    tallies = [
        one if weight > 0 else negated(one) for one, (_, weight, _) in zip(tallies, terms, strict=True)
    ]
    roles = tuple(dict.fromkeys(role for _, _, needed in terms for role in needed))
    s.put("total_loss", value, roles, _sum_tally(tallies), why=_why_empty(s, spec.agg))


def _sum_tally(tallies: list[Tally]) -> Tally:
    """Return the counts of a sum of means: NaN if one mean is NaN, else their infinities."""
    if any(nonfinite_of(tally) == "nan" for tally in tallies):
        return any_nan((1, 0, 0))
    return add_tallies(*tallies)
