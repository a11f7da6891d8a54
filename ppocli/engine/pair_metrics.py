"""From the totals of a comparison to its metrics, tables and findings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ppocli.core.drift_metrics import BAND_METRICS, DRIFT_METRICS, REAL_METRICS
from ppocli.core.drift_partials import (
    EXTREMES,
    SUM,
)
from ppocli.core.report import Nonfinite, NullNote, Place
from ppocli.engine.pair_quantiles import abs_quantile, beyond, signed_median, sizes_of
from ppocli.engine.summary import CLEAN, KINDS, Tally, add_tallies, exp, negated, nonfinite_of
from ppocli.kernels import rare

if TYPE_CHECKING:
    from ppocli.core.drift_options import DriftCaps
    from ppocli.engine.pair_totals import PairPlan, PairTotals, Sums


LEAST_SPREAD = 1e-11
"""Below this share of their mean the spread of probabilities is that of their rounding (1e-13 each)."""


LARGEST_PROBABILITY = 8e307
"""The kernel holds log-probs below 709 nats, and so exp of them below 8.2e307."""


@dataclass(slots=True)
class PairSummary:
    """Collects metrics and notes of one set of totals; the rule of strict values is that of `Summary`."""

    totals: PairTotals
    plan: PairPlan
    metrics: dict[str, Any] = field(default_factory=dict)
    nulls: dict[str, NullNote] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Tokens whose values are both finite."""
        return int(self.totals.sums.hi[SUM["n"]])

    def total(self, name: str) -> float:
        """Return a sum over the tokens with finite values."""
        return sum_of(self.totals.sums, SUM[name])

    def mean(self, name: str) -> float:
        """Return a mean; exactly the value where the differences do not vary."""
        low, high = self.extreme("diff")
        if self.n and low == high and name in _OF_CONSTANT:
            return _OF_CONSTANT[name](low)
        return mean_of(self.totals.sums, SUM[name], self.n)

    def tally(self, name: str) -> Tally:
        """Return how many terms of a sum are not finite."""
        which = SUM[name]
        return add_tallies(self.totals.sums.nonfinite[which], self.totals.terms[which])

    def left_out(self, name: str) -> Tally:
        """Return how many terms of tokens left out are not finite."""
        return add_tallies(self.totals.terms[SUM[name]])

    def extreme(self, name: str) -> tuple[float, float]:
        """Return the smallest and largest value of a quantity."""
        low, high = self.totals.extremes[EXTREMES.index(name)]
        return float(low), float(high)

    def put(
        self,
        name: str,
        value: float,
        tally: Tally = CLEAN,
        *,
        why: str | None = None,
        where: Place | None = None,
    ) -> None:
        """Enter a metric; arguments as in `Summary.put`."""
        bad = self._bad_values()
        if self.totals.n_tokens == 0:
            self._null(name, "no valid token")
        elif bad:
            first = self._first_bad()
            self._null(name, f"{bad} at valid tokens", nonfinite_of(tally), first)
            if math.isfinite(value):
                self.metrics[f"{name}_finite"] = value + 0.0
            elif math.isnan(value):
                self._null(f"{name}_finite", why or "no token has finite values")
            else:
                self._null(f"{name}_finite", "overflows float64", _kind(value), where)
        elif why is not None and not math.isfinite(value):
            self._null(name, why)
        elif (kind := nonfinite_of(tally)) or not math.isfinite(value):
            self._null(name, "overflows float64", kind or _kind(value), where)
        else:
            self.metrics[name] = float(value) + 0.0
            if where is not None:
                self.places[name] = where

    def put_share(self, name: str, value: float) -> None:
        """Enter a share of tokens."""
        self.put(name, value / self.n if self.n else math.nan)

    def _null(
        self, name: str, reason: str, nonfinite: Nonfinite | None = None, where: Place | None = None
    ) -> None:
        self.metrics[name] = None
        self.nulls[name] = NullNote(reason, nonfinite, where)

    def put_null(self, name: str, reason: str) -> None:
        """Enter a metric that cannot be said."""
        self._null(name, reason)

    def _bad_values(self) -> str:
        """Say which values are not finite, or nothing."""
        parts = []
        for label, counts in zip((self.plan.a, self.plan.b), self.totals.counts, strict=True):
            found = [f"{int(n):,} {kind}" for n, kind in zip(counts, KINDS, strict=True) if n]
            if found:
                parts.append(f"{' and '.join(found)} in {label}")
        return "; ".join(parts)

    def _first_bad(self) -> Place | None:
        """Return the first place where a side is not finite, by file, row and position."""
        order = self.totals.file_order
        places = self.totals.first_bad.values()
        return min(places, key=lambda p: (order.get(p.path, 0), p.row, p.position or 0), default=None)


_OF_CONSTANT: dict[str, Callable[[float], float]] = {
    "diff": lambda x: x,
    "diff_abs": abs,
    "weight": exp,
    "mult": lambda x: exp(abs(x)),
}
"""Means of quantities of a difference that does not vary."""


def _kind(value: float) -> Nonfinite:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def sum_of(sums: Sums, which: int) -> float:
    """Return a sum; infinite or NaN where it overflows."""
    overflow = nonfinite_of(add_tallies(sums.nonfinite[which]))
    return float(overflow) if overflow else float(sums.hi[which] + sums.lo[which])


def mean_of(sums: Sums, which: int, n: int) -> float:
    """Return a mean; NaN of nothing."""
    if not n:
        return math.nan
    if sums.nonfinite[which].any():
        return sum_of(sums, which)
    return float(sums.hi[which] / n + sums.lo[which] / n)


def summarise_pair(totals: PairTotals, plan: PairPlan, caps: DriftCaps) -> PairSummary:
    """Turn totals into metrics, in the order of the catalogue.

    Parameters
    ----------
    caps : DriftCaps
        What was asked for; their rules are the first of the plan.
    """
    s = PairSummary(totals, plan)
    _put_differences(s)
    if not plan.real:
        _put_weights(s)
        _put_capped(s, caps)
        _put_probabilities(s)
        put_sequences(s)
    _put_counts(s)
    order = {name: index for index, name in enumerate(DRIFT_METRICS)}
    names = sorted(s.metrics, key=lambda name: order[name.removesuffix("_finite")])
    s.metrics = {name: s.metrics[name] for name in names if not plan.real or _is_real(name)}
    return s


def _is_real(name: str) -> bool:
    base = name.removesuffix("_finite")
    return base in REAL_METRICS or base.startswith("n_")


def _put_differences(s: PairSummary) -> None:
    """Differences: means, quantiles, extremes, shares."""
    low, high = s.extreme("diff") if s.n else (math.nan, math.nan)
    left = s.left_out("diff")
    order = (left[0], 0, 0)
    s.put("diff_mean", s.mean("diff"), s.tally("diff"))
    s.put("diff_p50", signed_median(s), order)
    s.put("diff_abs_mean", s.mean("diff_abs"), s.tally("diff_abs"))
    for percent in (50, 90, 99):
        value, why = abs_quantile(s, percent)
        s.put(f"diff_abs_p{percent}", value, order, why=why)
    side = 0 if -low > high else 1
    place = s.totals.places.get(("diff", side))
    s.put("diff_abs_max", max(-low, high) if s.n else math.nan, (left[0], left[1] + left[2], 0), where=place)
    s.put("diff_min", low, (left[0], 0, left[2]), where=s.totals.places.get(("diff", 0)))
    s.put("diff_max", high, (left[0], left[1], 0), where=s.totals.places.get(("diff", 1)))
    sizes = sizes_of(s.totals.bins)
    s.put_share("frac_abs_gt_0_5", float(sizes[beyond(0.5) :].sum()))
    s.put_share("frac_abs_gt_1", float(sizes[beyond(1.0) :].sum()))
    s.put_share("bit_equal_frac", s.total("equal"))


def _put_weights(s: PairSummary) -> None:
    """Divergences and weights."""
    n, places = s.n, s.totals.places
    low, high = s.extreme("diff") if n else (math.nan, math.nan)
    highest = places.get(("diff", 1))
    s.put("drift_kl_k1", -s.mean("diff"), negated(s.tally("diff")))
    s.put("drift_kl_k2", s.mean("diff_sq") / 2.0, s.tally("diff_sq"))
    s.put("drift_kl_k3", s.mean("k3"), s.tally("k3"), where=None)
    s.put("weight_mean", s.mean("weight"), s.tally("weight"), where=None)
    out = s.left_out("weight")
    s.put("weight_min", exp(low) if n else math.nan, (out[0], 0, 0), where=places.get(("diff", 0)))
    s.put("weight_max", exp(high) if n else math.nan, (out[0], out[1], 0), where=highest)
    tally = (sum(s.left_out("weight")), 0, 0)
    s.put("ess_frac", _ess(s), tally, why="the weights leave the range of float64" if n else None)
    for k, name in enumerate(BAND_METRICS):
        s.put_share(name, s.total(f"band_{k}"))
    squares = s.mean("weight_sq")
    if n and low == high:
        squares = exp(2.0 * low)
    s.put("chi2_token", squares - 1.0, s.tally("weight_sq"))
    s.put("mult_prob_error", s.mean("mult"), s.tally("mult"))


def _ess(s: PairSummary) -> float:
    """Return (sum w)^2 / (n sum w^2), large weights scaled down."""
    if not s.n:
        return math.nan
    low, high = s.extreme("diff")
    if low == high:
        return 1.0
    small_1, small_2, big_1, big_2 = (s.total(name) for name in ("ess_1", "ess_2", "ess_big_1", "ess_big_2"))
    if big_1 > 0.0:
        down = math.ldexp(1.0, -rare.BIG_POWER)
        first, second = big_1 + small_1 * down, big_2 + small_2 * down * down
    else:
        first, second = small_1, small_2
    return first * (first / second) / s.n if 0.0 < second < math.inf else math.nan


def _put_capped(s: PairSummary, caps: DriftCaps) -> None:
    """Means under the caps that were given, or why there are none."""
    at = 0
    if caps.tis_cap is not None:
        _put_rule(s, at, "tis_weight_mean", "tis_frac_capped")
        at += 1
    else:
        for name in ("tis_weight_mean", "tis_frac_capped"):
            s.put_null(name, "tis_cap is not given")
    if caps.mask_low is not None or caps.mask_high is not None:
        _put_rule(s, at, "masked_weight_mean", "masked_frac")
    else:
        for name in ("masked_weight_mean", "masked_frac"):
            s.put_null(name, "mask_low and mask_high are not given")


def _put_rule(s: PairSummary, at: int, mean: str, share: str) -> None:
    """Enter what one rule at token level makes of the weights."""
    out = s.left_out("weight")
    s.put(mean, mean_of(s.totals.by_rule, 3 * at, s.n), (out[0], 0, 0))
    s.put_share(share, sum_of(s.totals.by_rule, 3 * at + 2))


def _put_probabilities(s: PairSummary) -> None:
    """Differences and correlation of the probabilities."""
    gap = s.extreme("prob_gap")[1]
    if gap > LARGEST_PROBABILITY:
        gap = math.inf
    s.put("prob_diff_max", gap if s.n else math.nan)
    s.put_share("frac_confident_gap", s.total("confident"))
    constant = [
        label for label, varies in zip((s.plan.a, s.plan.b), s.totals.varies, strict=True) if not varies
    ]
    why = f"the probabilities of {' and '.join(constant)} do not vary" if constant else "overflows float64"
    aa, bb, ab = (float(value) for value in s.totals.moments[5:8])
    # The smaller probability of a token is taken from the larger, and has its rounding.
    middle = max(abs(s.totals.moments[1]), abs(s.totals.moments[3])) / max(s.n, 1)
    value = math.nan
    if not math.isfinite(aa + bb + ab):
        why = "overflows float64"
    elif not constant and math.sqrt(min(aa, bb) / max(s.n, 1)) <= LEAST_SPREAD * middle:
        why = "a side's probabilities vary by less than they are rounded"
    elif not constant:
        value = min(max(ab / math.sqrt(aa) / math.sqrt(bb), -1.0), 1.0)
    s.put("prob_pearson", value, (sum(s.left_out("diff")), 0, 0), why=why)


SEQUENCE_NAMES = (
    "chi2_seq", "log_ppl_diff", "ppl_ratio", "ppl_ratio_of_means", "seq_diff_sum_min", "seq_diff_sum_max",
)  # fmt: skip


def put_sequences(s: PairSummary) -> None:
    """Enter what is taken over sequences, where there are some."""
    totals = s.totals
    if totals.no_sequences:
        for name in SEQUENCE_NAMES:
            s.put_null(name, totals.no_sequences)
        return
    if not totals.has_sequences:
        return
    n = int(totals.sequences.hi[0])
    tally = [add_tallies(totals.sequences.nonfinite[k], totals.sequence_terms[k]) for k in range(4)]
    s.put("chi2_seq", mean_of(totals.sequences, 1, n) - 1.0, tally[1])
    mean = mean_of(totals.sequences, 2, n)
    s.put("log_ppl_diff", mean, tally[2])
    s.put("ppl_ratio", mean_of(totals.sequences, 3, n), tally[3])
    s.put("ppl_ratio_of_means", exp(mean) if n else math.nan, (tally[2][0], tally[2][1], 0))
    low, high = (float(value) if n else math.nan for value in totals.sequence_extremes)
    s.put("seq_diff_sum_min", low, (tally[2][0], 0, tally[2][1]), where=totals.sequence_places.get(0))
    s.put("seq_diff_sum_max", high, (tally[2][0], tally[2][2], 0), where=totals.sequence_places.get(1))


def _put_counts(s: PairSummary) -> None:
    """Enter counts, which are known whatever the values are."""
    totals = s.totals
    for name in ("n_rows", "n_tokens", "n_masked", "n_files"):
        s.metrics[name] = int(getattr(totals, name))
    if totals.no_sequences:
        s.put_null("n_sequences", totals.no_sequences)
    elif totals.has_sequences:
        s.metrics["n_sequences"] = totals.n_sequences
    for k, name in enumerate(("n_null", "n_nan", "n_posinf", "n_neginf")):
        s.metrics[name] = int(totals.counts[:, k].sum())
