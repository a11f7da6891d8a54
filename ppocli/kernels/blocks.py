"""What both block kernels share: lanes of a block, sums of one column, sums per piece of a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.kernels import loops
from ppocli.kernels._jit import jit
from ppocli.kernels.layout import (
    EXTREME_OWNERS,
    HIGHEST,
    LANE_OWNERS,
    LANES,
    LOWEST,
    RUN,
    SQUARE_OWNERS,
    SQUARES,
)

if TYPE_CHECKING:
    from ppocli.kernels.layout import Floats, Ints

LANE_OWNER = np.array(LANE_OWNERS)
SQUARE_OWNER = np.array(SQUARE_OWNERS)
EXTREME_OWNER = np.array(EXTREME_OWNERS)


@jit()
def begin(s: Floats, uses: int) -> None:
    """Clear the lanes of the selections in use."""
    for q in range(LANE_OWNER.size):
        if uses >> LANE_OWNER[q] & 1:
            s[LANES + q * RUN : LANES + (q + 1) * RUN] = 0.0
    for m in range(SQUARE_OWNER.size):
        if uses >> SQUARE_OWNER[m] & 1:
            s[SQUARES + m * RUN : SQUARES + (m + 1) * RUN] = 0.0
    for e in range(EXTREME_OWNER.size):
        if uses >> EXTREME_OWNER[e] & 1:
            s[LOWEST + e * RUN : LOWEST + (e + 1) * RUN] = np.inf
            s[HIGHEST + e * RUN : HIGHEST + (e + 1) * RUN] = -np.inf


@jit()
def finish(s: Floats, uses: int, sums: Floats, squares: Floats, extremes: Floats) -> None:
    """Fold the lanes of the selections in use into the block's rows."""
    for q in range(LANE_OWNER.size):
        if uses >> LANE_OWNER[q] & 1:
            sums[q] = loops.fold_sum(s[LANES + q * RUN : LANES + (q + 1) * RUN])
    for m in range(SQUARE_OWNER.size):
        if uses >> SQUARE_OWNER[m] & 1:
            squares[m, 1] = loops.fold_sum(s[SQUARES + m * RUN : SQUARES + (m + 1) * RUN])
    for e in range(EXTREME_OWNER.size):
        if uses >> EXTREME_OWNER[e] & 1:
            extremes[e, 0] = loops.fold_min(s[LOWEST + e * RUN : LOWEST + (e + 1) * RUN])
            extremes[e, 1] = loops.fold_max(s[HIGHEST + e * RUN : HIGHEST + (e + 1) * RUN])


@jit()
def set_centre(x: Floats, n: int, seen: float, squares: Floats, moment: int) -> float:
    """Return the centre of a block's second moment: the mean of its first run."""
    if seen == 0:
        squares[moment, 0] = loops.sum_span(x, 0, n) / n
    return float(squares[moment, 0])


@jit()
def add_column(
    s: Floats, offset: int, n: int, seen: float, lane: int, moment: int, extreme: int, squares: Floats
) -> None:
    """Sum, second moment and extremes of one row of scratch; a negative number leaves that part out."""
    x = s[offset : offset + RUN]
    loops.add_plain(x, n, s[LANES + lane * RUN : LANES + (lane + 1) * RUN])
    if moment >= 0:
        centre = set_centre(x, n, seen, squares, moment)
        loops.add_square(x, n, centre, s[SQUARES + moment * RUN : SQUARES + (moment + 1) * RUN])
    if extreme >= 0:
        add_extremes(s, offset, n, extreme)


@jit()
def add_extremes(s: Floats, offset: int, n: int, extreme: int) -> None:
    """Extremes of one row of scratch."""
    loops.add_extremes(
        s[offset : offset + RUN],
        n,
        s[LOWEST + extreme * RUN : LOWEST + (extreme + 1) * RUN],
        s[HIGHEST + extreme * RUN : HIGHEST + (extreme + 1) * RUN],
    )


@jit()
def add_pieces(
    x: Floats, bounds: Ints, first: int, last: int, count: int, total: int, pieces: Floats
) -> None:
    """Write number and sum of the tokens of each piece of a sequence inside the run."""
    for j in range(last - first):
        pieces[first + j, count] = bounds[j + 1] - bounds[j]
        pieces[first + j, total] = loops.sum_span(x, bounds[j], bounds[j + 1])


@jit()
def pieces_until(starts: Ints, piece: int, last: int, stop: int) -> int:
    """Return the first piece that starts at or after a token."""
    while piece < last and starts[piece] < stop:
        piece += 1
    return piece
