"""Totals of a file or of a run, and the plan of what is computed."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ppocli.core.partials import (
    COLUMNS,
    EXTREMES,
    KEYED,
    LANE_SUMS,
    MOMENTS,
    SELECTIONS,
    SEQUENCE_SUM,
    SUM,
)
from ppocli.engine.data_checks import DataChecks
from ppocli.kernels import layout, merge, sequence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ppocli.core.report import Place
    from ppocli.core.spec import LossSpec
    from ppocli.engine.norm_fault import NormFault

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OWN_PAGES = 1 << 20
"""Bytes from which on an array that grows has pages of its own."""
MOVED_TOGETHER = 1 << 13
"""States that are moved at a time. A matter of memory, never of results."""
_NO_SLOTS = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the kernels are asked to do for one file.

    Attributes
    ----------
    roles : frozenset of str
        Columns that exist and that some selection needs; no other is read or counted.
    parameters : (N_PARAMETERS,) float64
    uses, has : int
        Selections and columns as bits.
    needs : tuple of int
        Columns of each selection as bits.
    computed : bool
        The terms of the loss stand beside the columns (`engine.policy`); the kernels leave them out.
    """

    roles: frozenset[str]
    parameters: Floats
    uses: int
    has: int
    needs: tuple[int, ...]
    computed: bool = False

    @property
    def n_keyed(self) -> int:
        """How many of `KEYED`, from the first on, have a selection of this plan."""
        used = [self.uses >> layout.SELECTION[name] & 1 for name in map(LANE_SUMS.__getitem__, KEYED)]
        return max(place for place, one in enumerate((1, *used)) if one)

    def columns_of(self, uses: int) -> int:
        """Return the columns that some selections need, as bits."""
        return sum_bits(need for which, need in enumerate(self.needs) if uses >> which & 1)


def sum_bits(values: Iterable[int]) -> int:
    """Return the union of bit sets."""
    return reduce(or_, values, 0)


def make_plan(spec: LossSpec, roles: Collection[str], only: Collection[str] | None = None, shift: float = 0.0,
              scale: float = 1.0, *, computed: bool = False) -> Plan:  # fmt: skip
    """Choose selections by the columns that exist.

    Parameters
    ----------
    only : collection of str, optional
        Names of selections to keep; None: all.
    shift, scale : float
        The objective uses (A - shift) / scale.
    computed : bool
        The terms of the loss are computed beside the kernels.
    """
    have = set(roles) & set(COLUMNS)
    needs = [sum(1 << COLUMNS.index(role) for role in selected) for selected in SELECTIONS.values()]
    value_roles = set(SELECTIONS["value"])
    if spec.value_clip is not None:
        value_roles.add("old_values")
        needs[layout.SELECTION["value"]] |= 1 << COLUMNS.index("old_values")
    uses = 0
    for name, selected in SELECTIONS.items():
        if (name == "policy" and computed) or (name == "rollout" and not spec.reads_rollout):
            continue
        if (value_roles if name == "value" else set(selected)) <= have and (only is None or name in only):
            uses |= 1 << layout.SELECTION[name]
    parameters = np.full(layout.N_PARAMETERS, np.inf)
    parameters[layout.P_CLIP_FLOOR] = 1.0 - spec.clip_low
    parameters[layout.P_CLIP_CEILING] = 1.0 + spec.clip_high
    optional = (
        (layout.P_DUAL, spec.dual_clip),
        (layout.P_DELTA, spec.delta),
        (layout.P_CLAMP, spec.log_ratio_clamp),
        (layout.P_VALUE_CLIP, spec.value_clip),
    )
    for place, value in optional:
        if value is not None:
            parameters[place] = value
    parameters[layout.P_SHIFT], parameters[layout.P_SCALE] = shift, scale
    has = sum_bits(need for which, need in enumerate(needs) if uses >> which & 1)
    used = frozenset(role for c, role in enumerate(COLUMNS) if has >> c & 1)
    return Plan(used, parameters, uses, has, tuple(needs), computed)


_COUNTS = (
    "n_rows",
    "n_files",
    "n_tokens",
    "n_masked",
    "n_positive",
    "n_null_ids",
    "n_null_groups",
    "n_rejected",
    "n_undefined",
    "n_stored_sequences",
)


def _zeros(*shape: int) -> Floats:
    return np.zeros(shape)


def returned_zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return zeros whose memory goes back to the system as soon as nobody uses them.

    Of what is smaller than 32 MB the C library keeps holes that stay resident: 30 MB while tables grow.
    """
    pages = _own_pages(math.prod(shape) * np.dtype(dtype).itemsize)
    return np.zeros(shape, dtype=dtype) if pages is None else np.frombuffer(pages, dtype).reshape(shape)


def _own_pages(size: int) -> mmap.mmap | None:
    """Return so many bytes with pages of their own; None where they are few or there is no such thing."""
    if size < OWN_PAGES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return None
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _resized(pages: mmap.mmap, size: int) -> bool:
    """Resize without a copy; not while an array is there that uses them, nor where the system cannot."""
    try:
        pages.resize(size)
    except (BufferError, OSError, SystemError, ValueError):
        return False
    return True


@dataclass(slots=True, eq=False)
class KeyedTable:
    """States by a pair of integers, in order of first sight.

    `touched`, when each state was last added to, is kept only where it has a place for every state.
    """

    keys: Ints = field(default_factory=lambda: np.zeros((1024, 2), dtype=np.int64))
    states: Floats = field(default_factory=lambda: _zeros(1024, sequence.N_STATE))
    touched: Ints = field(default_factory=lambda: np.zeros(1024, dtype=np.int64))
    slots: NDArray[np.int32] = field(default_factory=lambda: np.full(2048, -1, dtype=np.int32))
    n: int = 0
    _pages: dict[str, mmap.mmap] = field(default_factory=dict)

    @classmethod
    def narrow(cls, n_keyed: int, *, timed: bool) -> KeyedTable:
        """Return a table that keeps the first so many of `KEYED`; `timed`: when states were last added to."""
        states = _zeros(1024, sequence.width_of(n_keyed))
        return cls(states=states, touched=np.zeros(1024 if timed else 0, dtype=np.int64))

    def widen(self, width: int) -> None:
        """Let narrow states keep as much as states of this width do."""
        self._pages.pop("states", None)
        self.states = sequence.widened(self.states, width)

    def reserve(self, n: int) -> None:
        """Make room for n rows."""
        capacity = self.keys.shape[0]
        if n <= capacity:
            return
        while capacity < n:
            capacity *= 2
        for name in ("keys", "states", "touched"):
            if getattr(self, name).shape[0]:
                self._extend(name, capacity)
        self.slots = _NO_SLOTS  # let go of before the new are made
        self.slots = returned_zeros((2 * capacity,), np.int32)
        sequence.rebuild(self.slots, self.keys, self.n)

    def _extend(self, name: str, capacity: int) -> None:
        """Give an array more rows. Its own pages are moved, not copied: states of a million are 100 MB."""
        old, pages = getattr(self, name), self._pages.pop(name, None)
        dtype, shape = old.dtype, (capacity, *old.shape[1:])
        size = math.prod(shape) * dtype.itemsize
        if pages is not None:
            setattr(self, name, _NO_SLOTS)
            del old
            if _resized(pages, size):
                self._pages[name] = pages
                setattr(self, name, np.frombuffer(pages, dtype).reshape(shape))
                return
            old = np.frombuffer(pages, dtype).reshape(-1, *shape[1:])
        pages = _own_pages(size)
        new = np.zeros(shape, dtype) if pages is None else np.frombuffer(pages, dtype).reshape(shape)
        new[: self.n] = old[: self.n]
        setattr(self, name, new)
        if pages is not None:
            self._pages[name] = pages

    def keep(self, rows: Ints) -> None:
        """Keep these rows, which ascend, and forget the rest."""
        for name in ("keys", "states", "touched"):
            values = getattr(self, name)
            for at in range(0, rows.size, MOVED_TOGETHER):
                some = rows[at : at + MOVED_TOGETHER]
                values[at : at + some.size] = values[some]
        self.n = rows.size
        sequence.rebuild(self.slots, self.keys, self.n)


@dataclass(frozen=True, slots=True)
class Suspect:
    """How often something suspicious was met at valid tokens, and where first."""

    count: int
    where: Place


@dataclass(slots=True, eq=False)
class Totals:
    """Sums, moments, extremes and counters of a file or of a run.

    Attributes
    ----------
    hi, lo : (n_sums,) float64; m2 : (n_moments, 2) float64
    nonfinite, terms : (n_sums, 3) int64
        Sums of finite tokens that are NaN, +inf, -inf, and such terms of tokens that are left out.
    extremes : (n_extremes, 2) float64; places : mapping of (name, side) to Place
        Side 0 is the smallest, 1 the largest.
    bins : (HISTOGRAM_BINS,) int64
    column_counts : (n_columns, 4) int64
        Null, NaN, +inf and -inf at valid tokens of each column.
    first_bad : mapping of role to Place
    seq_hi, seq_lo, seq_nonfinite, seq_terms, seq_extremes : sums and extremes over sequences
    seq_places : mapping of (which, side) to Place
    groups : KeyedTable, optional
    no_sequences : str, optional
        Why sequence metrics are null, or None.
    has_sequences : bool
    n_rows, n_files, n_tokens, n_masked, n_positive : int
        Rows and files; valid and masked tokens; log-probs above 0.
    n_null_ids : int
        Stored tokens without a sequence id; they count in no sequence metric.
    micro_batches : Totals, optional
        Means over micro-batches, in its sums over sequences. Of a whole run only.
    norm_fault : NormFault, optional
    suspects : mapping of name to Suspect
        Values at valid tokens that findings speak of.
    checks : DataChecks
        What the columns say about themselves and each other.
    normal_scopes : (int, int), optional
        Scopes of the normalisation whose advantages vary, and those of them that have mean 0 and deviation 1.
    n_null_groups : int
        Stored tokens without a group or a step; they count in no group metric.
    n_rejected : int
        Valid tokens that a rule of `rollout_rs` dropped; they are masked from there on.
    n_undefined : int
        Valid tokens with finite columns whose advantage cannot be normalised.
    n_stored_sequences : int
        Sequences, those without a valid token and rows without a token included.
    no_groups : str, optional
        Why group metrics are null, or None.
    n_groups_over : bool
        There were more groups than are kept: group metrics are null.
    """

    hi: Floats = field(default_factory=lambda: _zeros(len(SUM)))
    lo: Floats = field(default_factory=lambda: _zeros(len(SUM)))
    m2: Floats = field(default_factory=lambda: _zeros(len(MOMENTS), 2))
    nonfinite: Ints = field(default_factory=lambda: np.zeros((len(SUM), 3), dtype=np.int64))
    terms: Ints = field(default_factory=lambda: np.zeros((len(SUM), 3), dtype=np.int64))
    extremes: Floats = field(default_factory=lambda: np.tile([np.inf, -np.inf], (len(EXTREMES), 1)))
    places: dict[tuple[str, int], Place] = field(default_factory=dict)
    bins: Ints = field(default_factory=lambda: np.zeros(layout.HISTOGRAM_BINS, dtype=np.int64))
    column_counts: Ints = field(default_factory=lambda: np.zeros((len(COLUMNS), 4), dtype=np.int64))
    first_bad: dict[str, Place] = field(default_factory=dict)
    seq_hi: Floats = field(default_factory=lambda: _zeros(len(SEQUENCE_SUM)))
    seq_lo: Floats = field(default_factory=lambda: _zeros(len(SEQUENCE_SUM)))
    seq_nonfinite: Ints = field(default_factory=lambda: np.zeros((len(SEQUENCE_SUM), 3), dtype=np.int64))
    seq_terms: Ints = field(default_factory=lambda: np.zeros((len(SEQUENCE_SUM), 3), dtype=np.int64))
    seq_extremes: Floats = field(default_factory=lambda: np.tile([np.inf, -np.inf], (sequence.N_EXTREMES, 1)))
    seq_places: dict[tuple[int, int], Place] = field(default_factory=dict)
    groups: KeyedTable | None = None
    has_sequences: bool = False
    no_sequences: str | None = None
    roles: frozenset[str] = frozenset()
    n_rows: int = 0
    n_files: int = 0
    n_tokens: int = 0
    n_masked: int = 0
    n_positive: int = 0
    n_null_ids: int = 0
    n_null_groups: int = 0
    n_rejected: int = 0
    n_undefined: int = 0
    n_stored_sequences: int = 0
    no_groups: str | None = None
    n_groups_over: bool = False
    file_order: dict[str, int] = field(default_factory=dict)
    micro_batches: Totals | None = None
    norm_fault: NormFault | None = None
    suspects: dict[str, Suspect] = field(default_factory=dict)
    checks: DataChecks = field(default_factory=DataChecks)
    normal_scopes: tuple[int, int] | None = None

    def merge(self, other: Totals, group_limit: int) -> None:
        """Add the totals of the next file."""
        merge.merge_row(self.hi, self.lo, self.m2, self.nonfinite, other.hi, other.lo, other.m2)
        self.nonfinite += other.nonfinite
        self.terms += other.terms
        for which, name in enumerate(EXTREMES):
            self._keep(name, which, other)
        self.bins += other.bins
        self.column_counts += other.column_counts
        for role, place in other.first_bad.items():
            self.first_bad.setdefault(role, place)
        for name, one in other.suspects.items():
            self.add_suspect(name, one.count, one.where)
        self.checks.merge(other.checks)
        self._merge_sequences(other)
        self._merge_groups(other, group_limit)
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_suspect(self, name: str, count: int, where: Place) -> None:
        """Count something suspicious, met after all that was counted before."""
        before = self.suspects.get(name)
        self.suspects[name] = Suspect(count + before.count, before.where) if before else Suspect(count, where)

    def _keep(self, name: str, which: int, other: Totals) -> None:
        """Keep the extremes of the other file where they go further."""
        if other.extremes[which, 0] < self.extremes[which, 0]:
            self.extremes[which, 0] = other.extremes[which, 0]
            if (name, 0) in other.places:
                self.places[name, 0] = other.places[name, 0]
        if other.extremes[which, 1] > self.extremes[which, 1]:
            self.extremes[which, 1] = other.extremes[which, 1]
            if (name, 1) in other.places:
                self.places[name, 1] = other.places[name, 1]

    def _merge_sequences(self, other: Totals) -> None:
        """Add sums over sequences."""
        rows = np.stack([other.seq_hi, other.seq_lo])
        merge.add_rows(rows, self.seq_hi, self.seq_lo, self.seq_nonfinite)
        self.seq_nonfinite += other.seq_nonfinite
        self.seq_terms += other.seq_terms
        for which in range(sequence.N_EXTREMES):
            if other.seq_extremes[which, 0] < self.seq_extremes[which, 0]:
                self.seq_extremes[which, 0] = other.seq_extremes[which, 0]
                if (which, 0) in other.seq_places:
                    self.seq_places[which, 0] = other.seq_places[which, 0]
            if other.seq_extremes[which, 1] > self.seq_extremes[which, 1]:
                self.seq_extremes[which, 1] = other.seq_extremes[which, 1]
                if (which, 1) in other.seq_places:
                    self.seq_places[which, 1] = other.seq_places[which, 1]

    def _merge_groups(self, other: Totals, limit: int) -> None:
        """Add groups by key."""
        if other.groups is None:
            return
        # A file's groups know their first row in the file; a run's in all of its files.
        other.groups.states[: other.groups.n, sequence.FIRST_ROW] += self.n_rows
        self.n_groups_over |= other.n_groups_over
        if self.n_groups_over:
            self.groups = KeyedTable.narrow(0, timed=False)
            return
        if self.groups is None:
            self.groups = other.groups  # which is in nobody else's use once its file has been reported
            return
        mine, theirs = self.groups, other.groups
        if mine.states.shape[1] < theirs.states.shape[1]:
            mine.widen(theirs.states.shape[1])
        mine.reserve(min(mine.n + theirs.n, limit))
        n = sequence.merge_keyed(
            mine.slots, mine.keys, mine.states, mine.n, limit, theirs.keys, theirs.states, theirs.n
        )
        if n < 0:
            self.n_groups_over = True
        else:
            mine.n = int(n)
