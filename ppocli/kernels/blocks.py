"""What both block kernels share: their scratch, the lanes of a block, and the sums per piece of sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ppocli.kernels._jit import inline
from ppocli.kernels.layout import (
    BLOCK,
    EXTREME_OWNERS,
    FIRST_COUNT,
    HISTOGRAM_BINS,
    HISTOGRAM_COPIES,
    LANES,
    LOW_LANES,
    N_COLUMNS,
    N_SUMS,
    RARE_FIRST,
    RUN,
    SCRATCH,
    SQUARE_CENTRES,
    SQUARE_LANES,
    SQUARE_OWNERS,
    SUM_LANES,
    SUM_OWNERS,
    WIDTH,
    Bytes,
    Floats,
    Ints,
    Places,
    lane,
)
from ppocli.kernels.load import LANES_PER_COLUMN
from ppocli.kernels.memory import load, load_flags, load_one, store
from ppocli.kernels.vector import (
    Flags,
    broadcast,
    first_of,
    highest,
    lowest,
    number_of,
    total,
    where,
    without,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

Stored: TypeAlias = tuple[Ints, int, int, Floats, Bytes, int]

SUM_LANE, SUM_OWNER = np.array(SUM_LANES), np.array(SUM_OWNERS)
SQUARE_LANE, SQUARE_OWNER, SQUARE_CENTRE = (
    np.array(table) for table in (SQUARE_LANES, SQUARE_OWNERS, SQUARE_CENTRES)
)
LOW_LANE, EXTREME_OWNER = np.array(LOW_LANES), np.array(EXTREME_OWNERS)
LOG_RATIO_LANES = lane("log_ratio")
OTHER_SUMS = N_SUMS - RARE_FIRST


@dataclass(slots=True, eq=False)
class Workspace:
    """Scratch of the workers, made once and used for every file.

    Attributes
    ----------
    scratch : (n_workers, SCRATCH) float64
    kept : (n_workers, BLOCK) uint16
        Bins of a block's tokens.
    bins : (n_workers, HISTOGRAM_BINS * HISTOGRAM_COPIES) int64
    """

    n_workers: int
    scratch: Floats = field(init=False)
    kept: Places = field(init=False)
    bins: Ints = field(init=False)

    def __post_init__(self) -> None:
        n = self.n_workers
        self.scratch = aligned((n, SCRATCH), np.float64)
        self.kept = aligned((n, BLOCK), np.uint16)
        self.bins = aligned((n, HISTOGRAM_BINS * HISTOGRAM_COPIES), np.int64)

    def workers_for(self, n_blocks: int) -> int:
        """Return how many workers to start: each is worth 0.05 to 0.1 ms, what 32 blocks take is 0.16 ms."""
        return max(1, min(self.n_workers, n_blocks // 32))

    def histogram(self) -> Ints:
        """Return the counts per bin, of all workers together."""
        return folded(self.bins, HISTOGRAM_COPIES)


def folded(bins: Ints, copies: int) -> Ints:
    """Return the sums of the copies that stand side by side, of all rows together."""
    # `sum` over so short an axis takes 0.3 ms, as long as a small file.
    counts: Ints = np.einsum("wbc->b", bins.reshape(bins.shape[0], -1, copies))
    return counts


def aligned(shape: tuple[int, int], dtype: Any) -> NDArray[Any]:
    """Return zeros that start on a page: vectors across two cache lines cost the kernel 7 %."""
    page = 4096
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    memory = np.zeros(size + page, dtype=np.uint8)
    start = -memory.ctypes.data % page
    aligned: NDArray[Any] = memory[start : start + size].view(dtype)
    return aligned.reshape(shape)


def stored(columns: Sequence[NDArray[Any]], mask: Bytes, n_tokens: int) -> Stored:
    """Describe the columns and the mask of a span for a kernel.

    Returns
    -------
    addresses : (N_COLUMNS,) int64; doubles : int
        Of the first values; float64 where the bit is set, else float32.
    mask : int
        Its address, or 0.
    tails : (N_COLUMNS, WIDTH) float64
        What stands behind the last whole vector of the span: kernels touch nothing behind a column's end.
    edge : (2, RUN) uint8
        Flags of a run that is all valid, and of the last run.
    n_tokens : int

    Raises
    ------
    ValueError
        Where the elements of an array do not follow each other.
    """
    if not all(array.flags.c_contiguous for array in (*columns, mask)):
        raise ValueError("kernels take contiguous arrays")
    addresses = np.array([column.ctypes.data for column in columns], dtype=np.int64)
    doubles = sum(1 << c for c, column in enumerate(columns) if column.dtype == np.float64)
    whole, run = n_tokens & -WIDTH, n_tokens & -RUN
    tails = np.zeros((N_COLUMNS, WIDTH))
    for c, column in enumerate(columns):
        tails[c, : n_tokens - whole] = column[whole:] if column.size == n_tokens else 0.0
    edge = np.ones((2, RUN), dtype=np.uint8)
    edge[1, n_tokens - run :] = 0
    if mask.size:
        edge[1, : n_tokens - run] = mask[run:]
    return addresses, doubles, mask.ctypes.data if mask.size else 0, tails, edge, n_tokens


@inline
def stop_of(start: int, size: int, n_tokens: int) -> int:
    """Return where a block or run ends; Numba's `min` takes 0.1 s to compile."""
    return start + size if start + size < n_tokens else n_tokens


@inline
def flags_of(mask: int, start: int, n: int, edge: int) -> int:
    """Return where the flags of a run stand, in whole vectors; `edge` is the address of `edge`."""
    if n & (WIDTH - 1):
        return edge + RUN
    return edge if mask == 0 else mask + start


@inline
def begin(s: int, extremes: Floats) -> None:
    """Clear the lanes and centres."""
    for i in range(LANES, SCRATCH, WIDTH):
        store(s, i, 0.0)
    for e in range(extremes.shape[1]):  # not LOW_LANE.size: LLVM unrolls loops whose length it knows
        store(s, LOW_LANE[e], np.inf)
        store(s, LOW_LANE[e] + WIDTH, -np.inf)


@inline
def finish(s: int, b: int, uses: int, counted: int, sums: Floats, squares: Floats, extremes: Floats) -> None:
    """Fold the lanes of the selections in use into the rows of block b."""
    for q in range(sums.shape[1] - OTHER_SUMS):
        if uses >> SUM_OWNER[q] & 1:
            sums[b, q] = total(load(s, SUM_LANE[q]))
            sums[b, FIRST_COUNT + SUM_OWNER[q]] = counted
    for m in range(squares.shape[1]):
        if uses >> SQUARE_OWNER[m] & 1:
            squares[b, m, 0] = load_one(s, SQUARE_CENTRE[m])
            squares[b, m, 1] = total(load(s, SQUARE_LANE[m]))
    for e in range(extremes.shape[1]):
        if uses >> EXTREME_OWNER[e] & 1:
            extremes[b, e, 0] = lowest(load(s, LOW_LANE[e]))
            extremes[b, e, 1] = highest(load(s, LOW_LANE[e] + WIDTH))


@inline
def is_spoiled(s: int, addresses: Ints, has: int) -> bool:
    """Whether a value at a token that counts is not finite, which the sums of columns and log-ratios show.

    They show a sum of finite values that overflows, too; looking at its block again does no harm.
    """
    spoiled = not abs(total(load(s, LOG_RATIO_LANES))) < np.inf
    for c in range(addresses.size):
        if has >> c & 1 and not abs(total(load(s, LANES + c * LANES_PER_COLUMN))) < np.inf:
            spoiled = True
    return spoiled


@inline
def pieces_until(starts: Ints, piece: int, last: int, stop: int) -> int:
    """Return the first piece that starts at or after a token."""
    while piece < last and starts[piece] < stop:
        piece += 1
    return piece


@inline
def within(begin: int, end: int, i: int, live: int) -> Flags:
    """Return the flags of the tokens from i on that count and stand between two places of the run."""
    on = load_flags(live, i)
    if i < begin or i + WIDTH > end:
        on = without(on & first_of(end - i), first_of(begin - i))
    return on


@inline
def add_pieces(
    s: int, live: int, run: int, n: int, starts: Ints, first: int, last: int, uses: int, terms: Ints,
    pieces: Floats,
) -> None:  # fmt: skip
    """Write number and sum of the terms of each piece of a sequence inside the run.

    Parameters
    ----------
    starts : (n_pieces,) int64
        Pieces first to last - 1 cut this run, the first at its start.
    terms : (n_terms, 4) int64
        Row, selection, and columns of `pieces` for the number and the sum.
    """
    for j in range(first, last):
        begin, end = starts[j] - run, starts[j + 1] - run if j + 1 < last else n
        for t in range(terms.shape[0]):
            if uses >> terms[t, 1] & 1:
                added, counted = broadcast(0.0), 0
                for i in range(begin & -WIDTH, end, WIDTH):
                    on = within(begin, end, i, live)
                    added = where(on, added + load(s, terms[t, 0] + i), added)
                    counted += number_of(on)
                pieces[j, terms[t, 2]] = counted
                pieces[j, terms[t, 3]] = total(added)
