"""The totals of thousands of groups, as rows of arrays: 8 KB a group, and its histogram without zeros."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.partials import COLUMNS, EXTREMES, MOMENTS, SEQUENCE_SUM, SUM
from ppocli.engine.totals import KeyedTable, Totals
from ppocli.kernels import grouping, layout, sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.engine.norm_fault import NormFault
    from ppocli.engine.totals import Floats, Ints

SHAPES: dict[str, tuple[int, ...]] = {
    "hi": (len(SUM),),
    "lo": (len(SUM),),
    "m2": (len(MOMENTS), 2),
    "seq_hi": (len(SEQUENCE_SUM),),
    "seq_lo": (len(SEQUENCE_SUM),),
}
COUNTERS: dict[str, tuple[int, ...]] = {
    "nonfinite": (len(SUM), 3),
    "terms": (len(SUM), 3),
    "column_counts": (len(COLUMNS), 4),
    "seq_nonfinite": (len(SEQUENCE_SUM), 3),
    "seq_terms": (len(SEQUENCE_SUM), 3),
}
EDGES: dict[str, tuple[int, ...]] = {"extremes": (len(EXTREMES), 2), "seq_extremes": (sequence.N_EXTREMES, 2)}
COUNTS = ("n_rows", "n_files", "n_tokens", "n_masked", "n_positive")
ALL_ROLES = (1 << len(COLUMNS)) - 1


@dataclass(slots=True, eq=False)
class GroupTotals:
    """Sums, moments, extremes and counters of every group of a run, named as in `ppocli.engine.totals`.

    Attributes
    ----------
    n : int
        Groups so far.
    rows : mapping of name to (capacity, ...) array
    roles : (capacity,) int64
        Columns that every file with valid tokens of the group has, as bits.
    bins : pair of (m,) int64
        Keys and counts of the histograms; see `ppocli.kernels.grouping`.
    prompts : KeyedTable, optional
        States by (group, group_id).
    no_sequences, no_prompts : mapping of group to str
        Why metrics of sequences, or of groups of sequences, are null.
    """

    n: int = 0
    rows: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    bins: tuple[Ints, Ints] = field(
        default_factory=lambda: (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    )
    prompts: KeyedTable | None = None
    too_many_prompts: bool = False
    no_sequences: dict[int, str] = field(default_factory=dict)
    no_prompts: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, shape in SHAPES.items():
            self.rows[name] = np.zeros((0, *shape))
        for name, shape in COUNTERS.items():
            self.rows[name] = np.zeros((0, *shape), dtype=np.int64)
        for name, shape in EDGES.items():
            self.rows[name] = np.zeros((0, *shape))
        for name in (*COUNTS, "roles", "has_sequences", "has_prompts", "stored"):
            self.rows[name] = np.zeros(0, dtype=np.int64)

    def floats(self, name: str) -> Floats:
        """Return rows of numbers."""
        out: Floats = self.rows[name]  # type: ignore[assignment]
        return out

    def ints(self, name: str) -> Ints:
        """Return rows of counts."""
        out: Ints = self.rows[name]  # type: ignore[assignment]
        return out

    def grow(self, n: int) -> None:
        """Make room for n groups; new ones are empty."""
        capacity = self.rows["n_rows"].shape[0]
        if n > capacity:
            capacity = max(n, capacity + capacity // 4, 16)
            for name, old in self.rows.items():
                new = np.zeros((capacity, *old.shape[1:]), dtype=old.dtype)
                if name in EDGES:
                    new[:, :, 0], new[:, :, 1] = np.inf, -np.inf
                elif name == "roles":
                    new[:] = ALL_ROLES
                new[: self.n] = old[: self.n]
                self.rows[name] = new
        self.n = n

    def add_blocks(self, sums: Floats, squares: Floats, extremes: Floats, owners: Ints) -> None:
        """Add the rows of blocks, in order, each to the group it belongs to."""
        grouping.merge_owned(
            sums, squares, owners,
            self.floats("hi"), self.floats("lo"), self.floats("m2"), self.ints("nonfinite"),
        )  # fmt: skip
        own = self.floats("extremes")
        np.minimum.at(own[:, :, 0], owners, extremes[:, :, 0])
        np.maximum.at(own[:, :, 1], owners, extremes[:, :, 1])

    def close(self, order: Ints, owners: Ints, states: Floats, interval: tuple[float, float]) -> None:
        """Add finished sequences to the sums over sequences."""
        grouping.close_owned(
            order, owners, states, *interval, self.floats("seq_hi"), self.floats("seq_lo"),
            self.ints("seq_nonfinite"), self.ints("seq_terms"), self.floats("seq_extremes"),
        )  # fmt: skip

    def add_bins(self, keys: Ints, counts: Ints) -> None:
        """Add to the histograms."""
        self.bins = grouping.merge_bins(*self.bins, keys, counts)

    def totals(self, norm_fault: NormFault | None) -> _TotalsOf:
        """Return what makes the totals of one group after the other."""
        return _TotalsOf(self, norm_fault)


class _TotalsOf:
    """Makes the totals of single groups."""

    def __init__(self, groups: GroupTotals, norm_fault: NormFault | None) -> None:
        self.groups, self.norm_fault = groups, norm_fault
        edges = np.arange(groups.n + 1, dtype=np.int64)
        self._bins = np.searchsorted(groups.bins[0], edges * grouping.BINS_PER_GROUP)
        table = groups.prompts
        self._order = np.zeros(0, dtype=np.int64)
        if table is not None:
            owners = table.keys[: table.n, 0]
            self._order = np.argsort(owners, kind="stable")
            self._prompts = np.searchsorted(owners[self._order], edges)

    def of(self, g: int) -> Totals:
        """Return the totals of a group."""
        groups = self.groups
        bits = int(groups.ints("roles")[g])
        parts: dict[str, Any] = {name: groups.rows[name][g] for name in (*SHAPES, *COUNTERS, *EDGES)}
        parts |= {name: int(groups.ints(name)[g]) for name in COUNTS}
        return Totals(
            **parts,
            bins=self._histogram(g),
            roles=frozenset(role for c, role in enumerate(COLUMNS) if bits >> c & 1),
            has_sequences=bool(groups.ints("has_sequences")[g]),
            no_sequences=groups.no_sequences.get(g) if groups.ints("has_sequences")[g] else None,
            groups=self._table(g),
            no_groups=groups.no_prompts.get(g),
            n_groups_over=groups.too_many_prompts,
            norm_fault=self.norm_fault,
        )

    def _histogram(self, g: int) -> Ints:
        """Return the histogram of a group with its zeros."""
        out = np.zeros(layout.HISTOGRAM_BINS, dtype=np.int64)
        keys, counts = (part[self._bins[g] : self._bins[g + 1]] for part in self.groups.bins)
        out[keys - g * grouping.BINS_PER_GROUP] = counts
        return out

    def _table(self, g: int) -> KeyedTable | None:
        """Return the groups of sequences of a group, in order of first sight."""
        table = self.groups.prompts
        if table is None or not self.groups.ints("has_prompts")[g]:
            return None
        if self.groups.too_many_prompts:
            return KeyedTable()
        own = self._order[self._prompts[g] : self._prompts[g + 1]]
        return KeyedTable(table.keys[own], table.states[own], table.touched[own], table.slots[:0], own.size)
