"""Measures over the whole input: evaluated batch by batch, added in stored order.

A term that needs no sequences is summed over the fixed blocks of 2,048 stored tokens, any other one over
whole sequences; both are added in double-double in stored order, so that how a file was read does not show.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.measures import Measure, Reduction, Sums, finish, resolve
from ppocli.core.rollout_correction import Weights
from ppocli.core.sequence_objectives import Sequences
from ppocli.core.terms import TERMS
from ppocli.core.tokens import Tokens
from ppocli.kernels import layout, merge

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.report import Nonfinite
    from ppocli.core.spec import LossSpec
    from ppocli.engine.totals import Floats, Ints

    Bools = NDArray[np.bool_]

NAN, POSINF, NEGINF = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """A measure under a loss.

    Attributes
    ----------
    spoils : bool
        It is NaN as soon as a masked value of its columns is not finite: the framework multiplies by its
        mask.
    selects : tuple of str
        Columns that do not spoil it.
    """

    spec: LossSpec
    measure: Measure
    spoils: bool = False
    selects: tuple[str, ...] = ()

    @property
    def how(self) -> Reduction:
        """How it is reduced."""
        return resolve(self.measure, self.spec)

    @property
    def roles(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return TERMS[self.measure.term].roles(self.spec, self.measure.term_options)

    @property
    def by_sequence(self) -> bool:
        """Whether it is added up sequence by sequence."""
        term = TERMS[self.measure.term]
        return self.how.over in ("seq", "row") or term.sequences(self.spec, self.measure.term_options)


@dataclass(slots=True, eq=False)
class MeasureTotals:
    """What is known of some measures: of a batch, of a file or of a run.

    Attributes
    ----------
    n, n_stored : (k,) int64
        Summands; stored tokens or sequences.
    hi, lo : (2 k,) float64
        Sums, then sums of squares about the mean (of measures that are deviations), as pairs.
    low, high : (k,) float64
    nonfinite : (k, 3) int64
        Summands, or sums, that are NaN, +inf, -inf.
    missing : dict of index to str
        Why a measure cannot be had.
    """

    k: int
    n: Ints = field(init=False)
    n_stored: Ints = field(init=False)
    hi: Floats = field(init=False)
    lo: Floats = field(init=False)
    low: Floats = field(init=False)
    high: Floats = field(init=False)
    nonfinite: Ints = field(init=False)
    missing: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.n, self.n_stored = np.zeros((2, self.k), dtype=np.int64)
        self.hi, self.lo = np.zeros((2, 2 * self.k))
        self.low, self.high = np.full(self.k, np.inf), np.full(self.k, -np.inf)
        self.nonfinite = np.zeros((self.k, 3), dtype=np.int64)

    def add(self, which: int, rows: Floats, part: Part) -> None:
        """Add the summands of one measure.

        `rows` are their sums in order, (n, 1); of a deviation with their sums of squares about their own mean
        and their numbers, (n, 3).
        """
        if rows.shape[1] == 3:
            self._add_moments(which, rows)
        place = slice(which, which + 1)
        hi, lo = self.hi[place].copy(), self.lo[place].copy()
        overflow = np.zeros((1, 3), dtype=np.int64)
        merge.add_rows(np.ascontiguousarray(rows[:, :1]), hi, lo, overflow)
        self.hi[place], self.lo[place] = hi, lo
        self.nonfinite[which] += overflow[0] + part.nonfinite
        self.n[which] += part.n
        self.n_stored[which] += part.n_stored
        self.low[which] = min(self.low[which], part.low)
        self.high[which] = max(self.high[which], part.high)

    def merge(self, other: MeasureTotals) -> None:
        """Add the totals of the next file."""
        k = self.k
        squares = other.hi[k:] + other.lo[k:]
        for place in np.flatnonzero(other.n):
            row = other.hi[place] + other.lo[place], squares[place], other.n[place]
            self._add_moments(int(place), np.array([row], dtype=np.float64))
        overflow = np.zeros((k, 3), dtype=np.int64)
        hi, lo = self.hi[:k].copy(), self.lo[:k].copy()
        merge.add_rows(np.stack([other.hi[:k], other.lo[:k]]), hi, lo, overflow)
        self.hi[:k], self.lo[:k] = hi, lo
        self.nonfinite += other.nonfinite + overflow
        self.n += other.n
        self.n_stored += other.n_stored
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        for which, why in other.missing.items():
            self.missing.setdefault(which, why)

    def _add_moments(self, which: int, rows: Floats) -> None:
        """Merge sums of squares about the mean, row by row, before the sums are added (Chan et al. 1979)."""
        n, at = float(self.n[which]), self.k + which
        hi, lo = float(self.hi[which]), float(self.lo[which])
        m2 = float(self.hi[at]), float(self.lo[at])
        for total, square, count in rows.tolist():
            if count > 0.0:
                if n > 0.0:
                    delta = (total / count - hi / n) - lo / n
                    square += delta * delta * (n / (n + count)) * count
                m2 = _pair_sum(*m2, square)
                hi, lo = _pair_sum(hi, lo, total)
                n += count
        self.hi[at], self.lo[at] = m2


@dataclass(frozen=True, slots=True)
class Part:
    """Summands of one measure in one batch, but for their sums."""

    n: int
    n_stored: int
    low: float
    high: float
    nonfinite: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Tokens of whole blocks, or of whole sequences.

    Attributes
    ----------
    columns : mapping of role to (n,) float64
        All stored tokens.
    valid : (n,) bool
    offsets : (m + 1,) int64, optional
        Where sequences start. None: the batch is of whole blocks.
    scoped : pair of (n,) float64, optional
        Shift and scale of each token's advantage, where they are normalised within scopes.
    weights : Weights, optional
        Of all stored tokens, where they were made before rules left some of a sequence out.
    """

    columns: Mapping[str, Floats]
    valid: Bools
    offsets: Ints | None = None
    scoped: tuple[Floats, Floats] | None = None
    weights: Weights | None = None

    def tokens(self, roles: Sequence[str], where: Bools, advantages: Floats | None) -> Tokens:
        """Return the tokens that count, with the advantages that the loss uses."""
        columns = {role: self.columns[role][where] for role in roles}
        if advantages is not None:
            columns["advantages"] = advantages[where]
        sequences = None if self.offsets is None else Sequences.from_offsets(self._bounds(where))
        tokens = Tokens(columns, sequences, self.valid[where])
        if self.weights is None:
            return tokens
        every = self.weights
        return tokens.with_weights(
            Weights(every.raw[where], every.applied[where], every.low[where], every.high[where])
        )

    def lengths(self, where: Bools) -> Ints:
        """Return how many tokens of each stored sequence count."""
        return np.diff(self._bounds(where))

    def _bounds(self, where: Bools) -> Ints:
        """Return where sequences start among the tokens that count."""
        before = np.concatenate([[0], np.cumsum(where)])
        bounds: Ints = before[self.offsets]
        return bounds


class MeasureSet:
    """Measures of a run and how they are evaluated.

    Parameters
    ----------
    wanted : sequence of Wanted
    scales : mapping of LossSpec to (shift, scale)
        How each loss normalises the advantages; others use them as stored.
    scoped : collection of LossSpec
        Losses that normalise them within the scopes of the batch instead.
    """

    def __init__(
        self,
        wanted: Sequence[Wanted],
        scales: Mapping[LossSpec, tuple[float, float]] | None = None,
        scoped: Collection[LossSpec] = (),
    ) -> None:
        self.wanted = tuple(dict.fromkeys(wanted))
        self.index = {one: which for which, one in enumerate(self.wanted)}
        self.scales = dict(scales or {})
        self.scoped = frozenset(scoped)
        self.total = MeasureTotals(len(self.wanted))

    @property
    def roles(self) -> frozenset[str]:
        """The columns that some measure needs."""
        return frozenset(role for one in self.wanted for role in one.roles)

    @property
    def by_sequence(self) -> bool:
        """Whether some measure is added up sequence by sequence."""
        return any(one.by_sequence for one in self.wanted)

    def start(self, have: frozenset[str], *, sequences: bool) -> MeasureTotals:
        """Return empty totals of a file with these columns; measures that it cannot have are noted."""
        totals = MeasureTotals(len(self.wanted))
        for which, one in enumerate(self.wanted):
            lacking = [role for role in one.roles if role not in have]
            if lacking:
                totals.missing[which] = f"no column for {', '.join(lacking)}"
            elif one.by_sequence and not sequences:
                totals.missing[which] = "the input has no sequences"
        return totals

    def count_empty(self, totals: MeasureTotals, n: int) -> None:
        """Count n more stored sequences, none of which has a token."""
        for which, one in enumerate(self.wanted):
            if which not in totals.missing and one.how.over == "row":
                totals.n_stored[which] += n

    def evaluate(self, batch: Batch, totals: MeasureTotals) -> list[tuple[int, Floats, Part]]:
        """Return the summands of one batch: of blocks or of sequences, whichever it holds."""
        with np.errstate(all="ignore"):
            return list(self._parts(batch, totals))

    def value(
        self, one: Wanted, totals: MeasureTotals, horizon: float | None
    ) -> tuple[float, Nonfinite | None]:
        """Return a measure's value over its finite summands, and what the others would have made of it."""
        which = self.index[one]
        sums = Sums(
            int(totals.n[which]),
            int(totals.n_stored[which]),
            float(totals.hi[which] + totals.lo[which]),
            float(totals.hi[totals.k + which] + totals.lo[totals.k + which]),
            float(totals.low[which]),
            float(totals.high[which]),
        )
        return finish(one.measure, sums, one.spec, horizon), _nonfinite(one, totals.nonfinite[which])

    def _parts(self, batch: Batch, totals: MeasureTotals) -> Iterator[tuple[int, Floats, Part]]:
        """Yield the summands of each measure that this batch can have."""
        tokens: dict[Any, Tokens] = {}
        for which, one in enumerate(self.wanted):
            if which in totals.missing or one.by_sequence != (batch.offsets is not None):
                continue
            where = np.ones_like(batch.valid) if one.how.over == "stored" else batch.valid
            scale: Any = batch.scoped if one.spec in self.scoped else self.scales.get(one.spec)
            key = (one.how.over == "stored", one.spec in self.scoped, self.scales.get(one.spec))
            if key not in tokens:
                tokens[key] = batch.tokens(self._there(batch), where, self._advantages(batch, scale))
            term = TERMS[one.measure.term]
            values = term.compute(tokens[key], one.spec, **one.measure.term_options)
            if batch.offsets is None:
                rows, part = _of_blocks(one, values, where)
            else:
                rows, part = _of_sequences(one, values, tokens[key], batch.lengths(where))
            if one.spoils and any(
                (~np.isfinite(batch.columns[role]) & ~batch.valid).any()
                for role in one.roles
                if role not in one.selects
            ):
                part.nonfinite[NAN] += 1
            yield which, rows, part

    def _there(self, batch: Batch) -> list[str]:
        """Return the columns that measures need and the batch has."""
        return [role for role in batch.columns if role in self.roles]

    def _advantages(self, batch: Batch, scale: Any) -> Floats | None:
        """Return the normalised advantages, or None where they are as stored."""
        if scale is None or "advantages" not in batch.columns:
            return None
        used: Floats = (batch.columns["advantages"] - scale[0]) / scale[1]
        return used


def _nonfinite(one: Wanted, counts: Ints) -> Nonfinite | None:
    """Return what summands that are not finite make of a measure in float64 arithmetic."""
    nan, posinf, neginf = (int(n) for n in counts)
    if nan or (posinf and neginf) or ((posinf or neginf) and one.how.statistic in ("std", "var")):
        return "nan"
    up, down = ("inf", "-inf") if one.measure.factor > 0 else ("-inf", "inf")
    if posinf and one.how.statistic != "min":
        return "inf" if up == "inf" else "-inf"
    if neginf and one.how.statistic != "max":
        return "-inf" if down == "-inf" else "inf"
    return None


def _clean(values: Floats) -> tuple[Floats, Ints]:
    """Return the values with 0 where they are not finite, and how many are NaN, +inf, -inf."""
    counts = np.zeros(3, dtype=np.int64)
    if np.isfinite(values).all():
        return values, counts
    counts[:] = np.isnan(values).sum(), (values == np.inf).sum(), (values == -np.inf).sum()
    return np.where(np.isfinite(values), values, 0.0), counts


def _edges(values: Floats) -> tuple[float, float]:
    """Return the smallest and the largest finite value."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (np.inf, -np.inf)


def _pair_sum(hi: float, lo: float, x: float) -> tuple[float, float]:
    """Return hi + lo + x as a pair."""
    total = hi + x
    part = total - hi
    low = (hi - (total - part)) + (x - part) + lo
    out = total + low
    return out, low - (out - total)


def _of_blocks(one: Wanted, values: Floats, where: Bools) -> tuple[Floats, Part]:
    """Return sums over blocks."""
    clean, counts = _clean(values)
    n_blocks = -(-where.size // layout.BLOCK)
    at = np.flatnonzero(where)
    rows = _block_sums(clean, at, n_blocks)[:, None]
    if one.how.statistic in ("std", "var"):
        count = _block_sums(np.ones(at.size), at, n_blocks)
        mean = rows[:, 0] / np.maximum(count, 1.0)
        square = _block_sums(np.square(clean - mean[at // layout.BLOCK]), at, n_blocks)
        rows = np.column_stack([rows[:, 0], square, count])
    n = clean.size - int(counts.sum())
    return np.ascontiguousarray(rows), Part(n, where.size, *_edges(values), counts)


def _block_sums(values: Floats, at: Ints, n_blocks: int) -> Floats:
    """Return the sum of each block of values that stand at these places."""
    dense = np.zeros(n_blocks * layout.BLOCK)
    dense[at] = values
    sums: Floats = dense.reshape(n_blocks, layout.BLOCK).sum(axis=1)
    return sums


def _of_sequences(one: Wanted, values: Floats, tokens: Tokens, lengths: Ints) -> tuple[Floats, Part]:
    """Return a row for each sequence with a token."""
    together = tokens.together()
    how = one.how
    if how.within in ("min", "max"):
        edge = together.largest(values) if how.within == "max" else -together.largest(-values)
        summands, n = edge, together.lengths.size
    else:
        summands, n = together.total(values), values.size
        if how.within is not None:
            n = together.lengths.size
        if how.within == "mean":
            summands = summands / (together.lengths + one.spec.seq_eps)
    clean, counts = _clean(summands)
    rows = np.zeros((clean.size, 3 if how.statistic in ("std", "var") else 1))
    rows[:, 0] = clean
    if rows.shape[1] == 3:
        rows[:, 1:] = _moments(one, values, clean, together)
    edges = _edges(summands if how.within is not None else values)
    stored = lengths.size if how.within is not None else int(lengths.sum())
    return rows, Part(n - int(counts.sum()), stored, *edges, counts)


def _moments(one: Wanted, values: Floats, sums: Floats, together: Sequences) -> Floats:
    """Return the sum of squares about their mean of each sequence's summands, and their number, (m, 2)."""
    if one.how.within is not None:
        return np.column_stack([np.zeros(sums.size), np.ones(sums.size)])
    mean = together.spread(sums / together.lengths)
    return np.column_stack([together.total(np.square(values - mean)), together.lengths])
