"""Ordered merging of partial results: blocks into their file, files into the run."""

from __future__ import annotations

import numpy as np

from ppocli.core.partials import MOMENTS, SUM
from ppocli.kernels._jit import inline, jit
from ppocli.kernels.layout import FIRST_COUNT, SQUARE_OWNERS, WIDTH, Floats, Ints
from ppocli.kernels.math import dd_add
from ppocli.kernels.memory import load, row_address, store
from ppocli.kernels.vector import all_of, greatest

MOMENT_SUM = np.array([SUM[name] for name in MOMENTS])
MOMENT_COUNT = np.array([FIRST_COUNT + owner for owner in SQUARE_OWNERS])
NAN, POSINF, NEGINF = 0, 1, 2


@inline
def add_to(hi: Floats, lo: Floats, which: int, x_hi: float, x_lo: float, nonfinite: Ints) -> None:
    """Add to a total; a term or a total that is not finite is counted instead."""
    new_hi, new_lo = dd_add(hi[which], lo[which], x_hi, x_lo)
    if abs(new_hi) < np.inf:
        hi[which], lo[which] = new_hi, new_lo
    else:
        nonfinite[which, NAN if new_hi != new_hi else POSINF if new_hi > 0.0 else NEGINF] += 1


@jit
def add_rows(rows: Floats, hi: Floats, lo: Floats, nonfinite: Ints) -> None:
    """Add rows of sums, in order, to totals in double-double.

    Parameters
    ----------
    rows : (n_rows, n) float64
    hi, lo : (n,) float64
    nonfinite : (n, 3) int64
        How many terms, or totals, were NaN, +inf, -inf; such a total stays as it was.
    """
    n = hi.size
    at_hi, at_lo = row_address(hi, 0), row_address(lo, 0)
    for b in range(rows.shape[0]):
        for start in range(0, n, WIDTH):
            if start + WIDTH <= n:
                new_hi, new_lo = dd_add(
                    load(at_hi, start), load(at_lo, start), load(row_address(rows, b), start), 0.0
                )
                if all_of(abs(new_hi) < np.inf):
                    store(at_hi, start, new_hi)
                    store(at_lo, start, new_lo)
                    continue
            for which in range(start, start + WIDTH if start + WIDTH < n else n):
                add_to(hi, lo, which, rows[b, which], 0.0, nonfinite)


@jit
def merge_moments(sums: Floats, squares: Floats, hi: Floats, lo: Floats, m2: Floats) -> None:
    """Merge second moments about the mean, row by row (Chan, Golub, LeVeque 1979).

    M2 = M2a + M2b + (mean_b - mean_a)^2 n_a n_b / (n_a + n_b); a row has the sums of x and of (x - centre)^2.
    """
    for m in range(m2.shape[0]):
        count, which = MOMENT_COUNT[m], MOMENT_SUM[m]
        n_a, a_hi, a_lo = hi[count], hi[which], lo[which]
        for b in range(sums.shape[0]):
            n_b, b_sum, middle = sums[b, count], sums[b, which], squares[b, m, 0]
            if n_b > 0.0:
                off = b_sum - n_b * middle
                within = greatest(0.0, squares[b, m, 1] - off * off / n_b)  # NaN stays
                if n_a > 0.0:
                    # Each quotient is rounded once; the low part decides where the means nearly cancel.
                    delta = (b_sum / n_b - a_hi / n_a) - a_lo / n_a
                    within += delta * delta * (n_a / (n_a + n_b)) * n_b
                m2[m, 0], m2[m, 1] = dd_add(m2[m, 0], m2[m, 1], within, 0.0)
                n_a += n_b
                a_hi, a_lo = dd_add(a_hi, a_lo, b_sum, 0.0)


def merge_blocks(sums: Floats, squares: Floats, hi: Floats, lo: Floats, m2: Floats, nonfinite: Ints) -> None:
    """Add the rows of all blocks, in order, to a file's totals.

    Parameters
    ----------
    sums : (n_blocks, n_sums) float64
    squares : (n_blocks, n_moments, 2) float64
        Centre c and sum of (x - c)^2.
    hi, lo : (n_sums,) float64
    m2 : (n_moments, 2) float64
        Sum of squares about the mean, as a pair.
    nonfinite : (n_sums, 3) int64
        How many sums were NaN, +inf, -inf.
    """
    merge_moments(sums, squares, hi, lo, m2)
    add_rows(sums, hi, lo, nonfinite)


def merge_row(
    hi: Floats, lo: Floats, m2: Floats, nonfinite: Ints, x_hi: Floats, x_lo: Floats, x_m2: Floats
) -> None:
    """Add a file's totals to those of the run: its high parts as one row and its low parts as the next."""
    count = np.maximum(x_hi[MOMENT_COUNT], 1.0)
    squares = np.zeros((2, len(MOMENTS), 2))
    squares[0, :, 0], squares[0, :, 1] = x_hi[MOMENT_SUM] / count, x_m2.sum(axis=1)
    merge_blocks(np.stack([x_hi, x_lo]), squares, hi, lo, m2, nonfinite)
