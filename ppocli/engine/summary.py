"""Totals to metrics: one value or one reason for each name of the catalogue whose columns exist."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.metrics import METRICS
from ppocli.core.partials import COLUMNS, EXTREMES, MOMENTS, SELECTIONS, SUM
from ppocli.core.report import Nonfinite, NullNote, Place
from ppocli.engine.norm_fault import NormFault
from ppocli.kernels import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ppocli.core.spec import LossSpec
    from ppocli.engine.totals import Ints, Totals

KINDS = ("null", "NaN", "+inf", "-inf")
Tally = tuple[int, int, int]
"""How many terms are NaN, +inf, -inf."""

CLEAN: Tally = (0, 0, 0)


def exp(x: float) -> float:
    """Return exp(x), infinite where it overflows."""
    return math.inf if x > 709.782712893384 else math.exp(x)


def add_tallies(*tallies: Sequence[int] | Ints) -> Tally:
    """Add counts of terms."""
    nan = posinf = neginf = 0
    for one in tallies:
        # Item by item NumPy's numbers take five times as long, and a summary adds a hundred of these.
        more = one.tolist() if isinstance(one, np.ndarray) else one
        nan, posinf, neginf = nan + more[0], posinf + more[1], neginf + more[2]
    return nan, posinf, neginf


def negated(tally: Tally) -> Tally:
    """Return the counts of the negated terms."""
    return tally[0], tally[2], tally[1]


def nonfinite_of(tally: Tally) -> Nonfinite | None:
    """Return what a sum with such terms is in float64 arithmetic, or None if it is finite."""
    nan, posinf, neginf = tally
    if nan or (posinf and neginf):
        return "nan"
    if posinf:
        return "inf"
    return "-inf" if neginf else None


def any_nan(tally: Tally) -> Tally:
    """Return the counts for a quantity that any term that is not finite makes NaN, such as a variance."""
    return (sum(tally), 0, 0)


def of_least(value: float, n: int, out: Tally) -> Tally:
    """Return what the smallest of some terms is, as a tally of one.

    Parameters
    ----------
    value : float
        The smallest of the n terms that are there.
    out : Tally
        Terms that are left out.
    """
    nan, up, down = out
    if down or (n and value == -math.inf):
        return nan, 0, 1
    return nan, int((up > 0 and not n) or (n > 0 and value == math.inf)), 0


def of_greatest(value: float, n: int, out: Tally) -> Tally:
    """Return what the largest of some terms is; see `of_least`."""
    return negated(of_least(-value, n, negated(out)))


@dataclass(slots=True)
class Summary:
    """Collects metrics and notes of one set of totals.

    Attributes
    ----------
    metrics : dict of name to number or None
    nulls : dict of name to NullNote
    places : dict of name to Place
        Where extremes stand.
    """

    totals: Totals
    spec: LossSpec
    metrics: dict[str, Any] = field(default_factory=dict)
    nulls: dict[str, NullNote] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    _bad: dict[str, str] = field(default_factory=dict)
    _reached: Ints | None = None
    _is_clean: bool = field(init=False)

    def __post_init__(self) -> None:
        # Looked at once: of thousands of groups, each of whose metrics would look at its own counts.
        of = self.totals
        self._is_clean = not (of.nonfinite.any() or of.terms.any() or of.column_counts.any())

    def total(self, name: str) -> float:
        """Return a sum over the finite tokens of its selection; infinite or NaN where it overflows."""
        which = SUM[name]
        if self._is_clean:
            return float(self.totals.hi[which] + self.totals.lo[which])
        overflow = nonfinite_of(add_tallies(self.totals.nonfinite[which]))
        return float(overflow) if overflow else float(self.totals.hi[which] + self.totals.lo[which])

    def count(self, selection: str) -> int:
        """Return how many tokens a selection held."""
        return int(self.totals.hi[SUM[f"n_{selection}"]])

    def tally(self, name: str, constant: str | None = None) -> Tally:
        """Return how many terms of a mean are not finite.

        Where the quantity called `constant` does not vary no sum is taken, and none overflows.
        """
        if self._is_clean:
            return CLEAN
        if constant is not None and self.is_constant(constant):
            return self.left_out(name)
        which = SUM[name]
        return add_tallies(self.totals.nonfinite[which], self.totals.terms[which])

    def left_out(self, name: str) -> Tally:
        """Return how many terms of tokens left out are not finite: what an extreme would see of them."""
        return CLEAN if self._is_clean else add_tallies(self.totals.terms[SUM[name]])

    def extreme(self, name: str) -> tuple[float, float]:
        """Return the smallest and largest value of a quantity."""
        low, high = self.totals.extremes[EXTREMES.index(name)]
        return float(low), float(high)

    def is_constant(self, name: str) -> bool:
        """Whether a quantity has one value at all finite tokens of its selection."""
        low, high = self.extreme(name)
        return low == high

    def mean(self, name: str, selection: str, constant: str | None = None) -> float:
        """Return a mean; exactly the value where the quantity called `constant` does not vary."""
        n = self.count(selection)
        if n == 0:
            return math.nan
        if constant is not None and self.is_constant(constant):
            return self.extreme(constant)[0]
        which = SUM[name]
        if not self._is_clean and self.totals.nonfinite[which].any():
            return self.total(name)
        return float(self.totals.hi[which] / n + self.totals.lo[which] / n)

    def variance(self, name: str, selection: str, ddof: int = 0, constant: str | None = None) -> float:
        """Return a variance; exactly 0 where the quantity called `constant` does not vary."""
        n = self.count(selection)
        if n <= ddof:
            return math.nan
        if constant is not None and self.is_constant(constant):
            return 0.0
        if not self._is_clean and self.totals.nonfinite[SUM[name]].any():
            return math.nan
        high_part, low_part = self.totals.m2[MOMENTS.index(name)]
        return max(float(high_part + low_part), 0.0) / (n - ddof)

    def has(self, roles: Iterable[str]) -> bool:
        """Whether all these columns exist."""
        return set(roles) <= self.totals.roles

    def put(
        self,
        name: str,
        value: float,
        roles: Sequence[str],
        tally: Tally | None = None,
        *,
        why: str | None = None,
        where: Place | None = None,
    ) -> None:
        """Enter a metric under the rule of strict values.

        Parameters
        ----------
        value : float
            Over the tokens whose `roles` are all finite. NaN: cannot be said, for the reason `why`.
        tally : Tally, optional
            Terms that are not finite, of tokens left out and of finite tokens whose term overflows. None: a
            share or a count, finite whatever the terms are.
        """
        bad = self.bad_values(roles)
        fault = self._norm_fault() if {"log_probs", "advantages"} <= set(roles) else None
        kind = nonfinite_of(tally or CLEAN)
        if fault is not None and tally is not None and (fault.nonfinite or not fault.has_twin):
            kind = fault.nonfinite
        if self.totals.n_tokens == 0:
            self._null(name, "no valid token")
        elif bad or fault is not None:
            reason = f"{bad} at valid tokens" if fault is None or bad else fault.reason
            self._null(name, reason, kind, self._first_bad(roles))
            if fault is not None and not fault.has_twin:
                return
            if math.isfinite(value):
                self._enter(f"{name}_finite", value)
            elif math.isnan(value):
                self._null(
                    f"{name}_finite", why or "no token has finite values, or their ratio overflows float64"
                )
            else:
                self._null(f"{name}_finite", "overflows float64", _kind(value), where)
        elif why is not None and not math.isfinite(value):
            self._null(name, why)
        elif kind or not math.isfinite(value):
            kind = kind or _kind(value)
            self._null(name, self._overflow(roles, kind), kind, where)
        else:
            self._enter(name, value)
            if where is not None and name.endswith(("_min", "_max")):
                self.places[name] = where

    def put_share(self, name: str, value: float, roles: Sequence[str]) -> None:
        """Enter a share that is known even where every token was dropped."""
        if self.totals.n_tokens:
            self.put(name, value, roles)
        else:
            self._enter(name, value)

    def put_null(self, name: str, reason: str, nonfinite: Nonfinite | None = None) -> None:
        """Enter a metric that cannot be said."""
        self._null(name, reason, nonfinite)

    def put_count(self, name: str, value: int) -> None:
        """Enter a whole number that is known in any case."""
        self.metrics[name] = int(value)

    def place(self, name: str, side: int) -> Place | None:
        """Return where an extreme stands."""
        return self.totals.places.get((name, side))

    def _overflow(self, roles: Sequence[str], kind: Nonfinite) -> str:
        """Say why finite values give a metric that is not."""
        undefined = self.spec.scoped or self.spec.adv_norm_degenerate == "formula"
        if kind == "nan" and "advantages" in roles and undefined:
            return "the advantages cannot be normalised, or a product overflows float64"
        return "overflows float64"

    def _norm_fault(self) -> NormFault | None:
        """Return why normalised advantages cannot be said, of all tokens or of some."""
        n = self.totals.n_undefined
        if self.totals.norm_fault is not None or not n:
            return self.totals.norm_fault
        where = "in scopes without a deviation, or whose statistics overflow"
        tokens = "1 token" if n == 1 else f"{n:,} tokens"
        return NormFault(f"the advantages of {tokens} cannot be normalised: {where}", None, has_twin=True)

    def _enter(self, name: str, value: float) -> None:
        """Write a finite number, whole where the unit is a count; -0.0 becomes 0.0."""
        base = name.removesuffix("_finite")
        is_count = base in METRICS and METRICS[base].unit == "count"
        self.metrics[name] = int(value) if is_count else float(value) + 0.0

    def _null(
        self, name: str, reason: str, nonfinite: Nonfinite | None = None, where: Place | None = None
    ) -> None:
        """Write a null with its note."""
        self.metrics[name] = None
        self.nulls[name] = NullNote(reason, nonfinite, where)

    def bad_values(self, roles: Sequence[str]) -> str:
        """Say which values are not finite in these columns, or nothing."""
        if self._is_clean:
            return ""
        return "; ".join(said for role in roles if (said := self._bad_in(role)))

    def _bad_in(self, role: str) -> str:
        """Say the same of one column."""
        if role not in self._bad:
            counts = self.totals.column_counts[COLUMNS.index(role)].tolist() if role in COLUMNS else ()
            found = [f"{n:,} {kind}" for n, kind in zip(counts, KINDS, strict=False) if n]
            self._bad[role] = f"{' and '.join(found)} in {role}" if found else ""
        return self._bad[role]

    def bin_reached(self, n: int) -> int:
        """Return the first bin up to which the histogram holds n tokens."""
        if self._reached is None:
            self._reached = np.cumsum(self.totals.bins)
        return int(np.searchsorted(self._reached, n))

    def _first_bad(self, roles: Sequence[str]) -> Place | None:
        """Return the first place where one of these columns is not finite, by file, row and position."""
        places = [self.totals.first_bad[role] for role in roles if role in self.totals.first_bad]
        order = self.totals.file_order
        return min(places, key=lambda p: (order.get(p.path, 0), p.row, p.position or 0), default=None)


def _kind(value: float) -> Nonfinite:
    """Name a value that is not finite."""
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def roles_of(selection: str, spec: LossSpec) -> tuple[str, ...]:
    """Return the columns of a selection, with those that a value clip or a correction adds."""
    clipped = selection == "value" and spec.value_clip is not None
    corrected = selection == "policy" and spec.reads_rollout
    more = (*(("old_values",) if clipped else ()), *(("rollout_log_probs",) if corrected else ()))
    return (*SELECTIONS[selection], *more)


def quantile_place(s: Summary, percent: int) -> float:
    """Return the log-ratio of a quantile: the centre of the first bin whose cumulative share reaches it.

    In the two end bins, which hold all that is further than 32 nats from 0, the bound of `log_ratio_clamp`
    where that is nearer, else NaN. Never outside the extremes.
    """
    n = s.count("ratio")
    target = -(-n * percent // 100)
    index = s.bin_reached(max(target, 1))
    if index in (0, layout.HISTOGRAM_BINS - 1):
        bound = s.spec.log_ratio_clamp
        if bound is None or bound * layout.HISTOGRAM_PER_NAT > layout.HISTOGRAM_HALF:
            return math.nan
        return bound if index else -bound
    low, high = s.extreme("log_ratio")
    return min(max((index - layout.HISTOGRAM_HALF - 1) / layout.HISTOGRAM_PER_NAT, low), high)
