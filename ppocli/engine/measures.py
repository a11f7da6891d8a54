"""Measures over the whole input: evaluated batch by batch, added in stored order.

A term that needs no sequences is summed over the fixed blocks of 2,048 stored tokens, any other one over
whole sequences; both are added in double-double in stored order, so that how a file was read does not show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    """

    spec: LossSpec
    measure: Measure
    spoils: bool = False

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
        Sums, then sums of squares, as pairs.
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
        """Add the summands of one measure; `rows` are their sums and sums of squares, (n, 2), in order."""
        places = np.array([which, self.k + which])
        hi, lo = self.hi[places], self.lo[places]
        overflow = np.zeros((2, 3), dtype=np.int64)
        merge.add_rows(rows, hi, lo, overflow)
        self.hi[places], self.lo[places] = hi, lo
        self.nonfinite[which] += overflow[0] + part.nonfinite
        self.n[which] += part.n
        self.n_stored[which] += part.n_stored
        self.low[which] = min(self.low[which], part.low)
        self.high[which] = max(self.high[which], part.high)

    def merge(self, other: MeasureTotals) -> None:
        """Add the totals of the next file."""
        overflow = np.zeros((2 * self.k, 3), dtype=np.int64)
        merge.add_rows(np.stack([other.hi, other.lo]), self.hi, self.lo, overflow)
        self.nonfinite += other.nonfinite + overflow[: self.k]
        self.n += other.n
        self.n_stored += other.n_stored
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        for which, why in other.missing.items():
            self.missing.setdefault(which, why)


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
    weights : Weights, optional
        Of all stored tokens, where they were made before rules left some of a sequence out.
    """

    columns: Mapping[str, Floats]
    valid: Bools
    offsets: Ints | None = None
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
    """

    def __init__(
        self, wanted: Sequence[Wanted], scales: Mapping[LossSpec, tuple[float, float]] | None = None
    ) -> None:
        self.wanted = tuple(dict.fromkeys(wanted))
        self.index = {one: which for which, one in enumerate(self.wanted)}
        self.scales = dict(scales or {})
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
            scale = self.scales.get(one.spec)
            key = (one.how.over == "stored", scale)
            if key not in tokens:
                tokens[key] = batch.tokens(self._there(batch), where, self._advantages(batch, scale))
            term = TERMS[one.measure.term]
            values = term.compute(tokens[key], one.spec, **one.measure.term_options)
            if batch.offsets is None:
                rows, part = _of_blocks(one, values, where)
            else:
                rows, part = _of_sequences(one, values, tokens[key], batch.lengths(where))
            if one.spoils and any(
                (~np.isfinite(batch.columns[role]) & ~batch.valid).any() for role in one.roles
            ):
                part.nonfinite[NAN] += 1
            yield which, rows, part

    def _there(self, batch: Batch) -> list[str]:
        """Return the columns that measures need and the batch has."""
        return [role for role in batch.columns if role in self.roles]

    def _advantages(self, batch: Batch, scale: tuple[float, float] | None) -> Floats | None:
        """Return the normalised advantages, or None where they are as stored."""
        if scale is None or "advantages" not in batch.columns:
            return None
        return (batch.columns["advantages"] - scale[0]) / scale[1]


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


def _of_blocks(one: Wanted, values: Floats, where: Bools) -> tuple[Floats, Part]:
    """Return sums over blocks."""
    clean, counts = _clean(values)
    n_blocks = -(-where.size // layout.BLOCK)
    dense = np.zeros((2, n_blocks * layout.BLOCK))
    at = np.flatnonzero(where)
    dense[0, at] = clean
    if one.how.statistic in ("std", "var"):
        dense[1, at] = np.square(clean - one.measure.option("about", 0.0))
    rows = dense.reshape(2, n_blocks, layout.BLOCK).sum(axis=2).T
    n = clean.size - int(counts.sum())
    return np.ascontiguousarray(rows), Part(n, where.size, *_edges(values), counts)


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
    rows = np.zeros((clean.size, 2))
    rows[:, 0] = clean
    if how.statistic in ("std", "var"):
        rows[:, 1] = _squares(one, values, clean, together)
    edges = _edges(summands if how.within is not None else values)
    stored = lengths.size if how.within is not None else int(lengths.sum())
    return rows, Part(n - int(counts.sum()), stored, *edges, counts)


def _squares(one: Wanted, values: Floats, summands: Floats, together: Sequences) -> Floats:
    """Return the sums of squares of each sequence's summands."""
    about = one.measure.option("about", 0.0)
    if one.how.within is not None:
        squares: Floats = np.square(summands - about)
        return squares
    return together.total(np.square(values - about))
