"""Ordered merging of partial results: blocks into their file, files into the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.partials import MOMENTS, SUM
from ppocli.kernels._jit import jit
from ppocli.kernels.layout import SQUARE_OWNERS
from ppocli.kernels.math import dd_add

if TYPE_CHECKING:
    from ppocli.kernels.layout import Floats, Ints

MOMENT_SUM = np.array([SUM[name] for name in MOMENTS])
MOMENT_COUNT = np.array([SUM["n_ratio"] + owner for owner in SQUARE_OWNERS])
NAN, POSINF, NEGINF = 0, 1, 2


@jit()
def add_to(hi: Floats, lo: Floats, which: int, x_hi: float, x_lo: float, nonfinite: Ints) -> None:
    """Add to a total; a term or a total that is not finite is counted instead."""
    if abs(x_hi) < np.inf:
        new_hi, new_lo = dd_add(hi[which], lo[which], x_hi, x_lo)
        if abs(new_hi) < np.inf:
            hi[which], lo[which] = new_hi, new_lo
            return
        x_hi = new_hi
    nonfinite[which, NAN if x_hi != x_hi else POSINF if x_hi > 0.0 else NEGINF] += 1


@jit()
def _merge_moments(hi: Floats, lo: Floats, m2: Floats, x_hi: Floats, x_lo: Floats, x_m2: Floats) -> None:
    """Merge second moments about the mean, before their sums are merged (Chan, Golub, LeVeque 1979).

    M2 = M2a + M2b + (mean_b - mean_a)^2 n_a n_b / (n_a + n_b)
    """
    for m in range(MOMENT_SUM.size):
        count, total = MOMENT_COUNT[m], MOMENT_SUM[m]
        n_b = x_hi[count]
        if n_b == 0.0:
            continue
        n_a = hi[count]
        if n_a > 0.0:
            # Both quotients are rounded once; the low parts decide where the means nearly cancel.
            delta = (x_hi[total] / n_b - hi[total] / n_a) + (x_lo[total] / n_b - lo[total] / n_a)
            m2[m, 0], m2[m, 1] = dd_add(m2[m, 0], m2[m, 1], delta * delta * (n_a / (n_a + n_b)) * n_b, 0.0)
        m2[m, 0], m2[m, 1] = dd_add(m2[m, 0], m2[m, 1], x_m2[m, 0], x_m2[m, 1])


@jit()
def merge_row(
    hi: Floats, lo: Floats, m2: Floats, nonfinite: Ints, x_hi: Floats, x_lo: Floats, x_m2: Floats
) -> None:
    """Add one row of sums and second moments to totals."""
    _merge_moments(hi, lo, m2, x_hi, x_lo, x_m2)
    for which in range(hi.size):
        add_to(hi, lo, which, x_hi[which], x_lo[which], nonfinite)


@jit()
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
        How many block sums were NaN, +inf, -inf.
    """
    zero = np.zeros(hi.size)
    row_m2 = np.zeros((MOMENT_SUM.size, 2))
    for b in range(sums.shape[0]):
        for m in range(MOMENT_SUM.size):
            n = sums[b, MOMENT_COUNT[m]]
            off = sums[b, MOMENT_SUM[m]] - n * squares[b, m, 0]
            row_m2[m, 0] = max(squares[b, m, 1] - off * off / n, 0.0) if n > 0.0 else 0.0
        merge_row(hi, lo, m2, nonfinite, sums[b], zero, row_m2)
