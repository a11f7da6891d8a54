"""Where a span is cut into pieces, for sequences, for groups and for micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppocli.kernels import layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.engine.span import Span
    from ppocli.engine.totals import Ints

SEQUENCES, GROUPS, MICRO_BATCHES = "sequences", "groups", "micro-batches"
RUNS_PER_BLOCK = layout.BLOCK // layout.RUN


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Where the pieces of a span start, in as many ways as there are things to sum for.

    Sequences, groups and micro-batches have pieces of their own, which end with their run and where the next
    sequence (group, micro-batch) begins, but nowhere else: no sum depends, not by a bit, on what else is
    asked for or which other ids the input has. Ways that cut alike share their pieces.

    Attributes
    ----------
    starts : (n_pieces,) int64
        One way after the other.
    run_pieces : (n_ways, n_runs + 1) int64
        The first piece of each run.
    places : mapping of what is summed for to slice
        Which pieces are its own.
    ranged : int
        The way for which the range of the advantages is wanted, that of the groups. -1: none.
    """

    starts: Ints
    run_pieces: Ints
    places: Mapping[str, slice]
    ranged: int

    def ways(self) -> Iterator[tuple[slice, Ints]]:
        """Yield the pieces of each way and where they start."""
        for limits in self.run_pieces:
            which = slice(int(limits[0]), int(limits[-1]))
            yield which, self.starts[which]

    def of_block(self, block: int) -> Iterator[slice]:
        """Yield the pieces of a block, those of each way."""
        for limits in self.run_pieces:
            first, last = limits[block * RUNS_PER_BLOCK :][: RUNS_PER_BLOCK + 1][[0, -1]]
            yield slice(int(first), int(last))


def cut(n_tokens: int, begins: Mapping[str, NDArray[np.bool_]]) -> Cut:
    """Cut a span where runs begin, and for each thing to sum for where `begins` says."""
    limits = np.arange(-(-n_tokens // layout.RUN) + 1, dtype=np.int64) * layout.RUN
    starts: list[Ints] = []
    run_pieces: list[Ints] = []
    way_of: dict[str, int] = {}
    for what, flags in begins.items():
        flags[:: layout.RUN] = True
        own = np.flatnonzero(flags)
        way = next((w for w, other in enumerate(starts) if np.array_equal(own, other)), len(starts))
        if way == len(starts):
            run_pieces.append(np.searchsorted(own, limits) + sum(one.size for one in starts))
            starts.append(own)
        way_of[what] = way
    return Cut(
        starts=np.concatenate([np.zeros(0, dtype=np.int64), *starts]),
        run_pieces=np.array(run_pieces, dtype=np.int64).reshape(len(starts), limits.size),
        places={what: slice(*map(int, run_pieces[way][[0, -1]])) for what, way in way_of.items()},
        ranged=way_of.get(GROUPS, -1),
    )


def by_row(span: Span, base_row: int = 0, every: int = 1) -> NDArray[np.bool_]:
    """Return the tokens at which a row begins whose number, `base_row` added, is a multiple of `every`."""
    begins = np.zeros(span.n_tokens, dtype=np.bool_)
    if span.row_starts is None:
        begins[-(base_row + span.origin) % every :: every] = True
        return begins
    starts = span.row_starts - span.origin
    wanted = (starts >= 0) & (starts < span.n_tokens)
    if every > 1:
        wanted &= (base_row + span.first_row + np.arange(starts.size)) % every == 0
    begins[starts[wanted]] = True
    return begins


def by_id(span: Span, *names: str) -> NDArray[np.bool_]:
    """Return the tokens at which one of these ids is another than before."""
    begins = np.zeros(span.n_tokens, dtype=np.bool_)
    for name in names:
        for array in (name, f"{name} present"):
            if array in span.arrays:
                values = span.arrays[array]
                begins[1:] |= values[1:] != values[:-1]
    return begins
