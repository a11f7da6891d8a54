"""Sums, extremes and counts of a run of tokens, added to the lanes of its block."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ppocli.kernels._jit import inline
from ppocli.kernels.audit_layout import (
    COUNTS,
    COUNTS_BIT,
    DUMPED,
    EXTREMES,
    GRADIENT,
    INVERSE,
    LANES,
    LANES_PER_VARIANT,
    LOG_RATIO,
    LOSS,
    LOWEST,
    N_EXTREMES,
    N_RESULTS,
    RATIO,
    RESULTS,
    SHIFT_BIT,
    SIDE_BIT,
    SLOPE_BIT,
    SUMS,
    extreme_lane,
    result_lane,
    row,
)  # fmt: skip
from ppocli.kernels.layout import WIDTH, Floats
from ppocli.kernels.memory import add_to, count_to, load, load_bits, lower_to, raise_to, row_address, store
from ppocli.kernels.vector import (
    Flags,
    Vector,
    broadcast,
    fma,
    greatest,
    highest,
    least,
    lowest,
    narrowed,
    number_of,
    total,
    where,
    without,
)  # fmt: skip

DUMPED_ROWS = np.array([row(name) for name in DUMPED])
N_LANES = len(RESULTS)
N_LOWEST = len(LOWEST)

(
    A_LOSS, A_LOSS_FLOAT32, A_LOSS_ABS, A_LOG_RATIO, A_K2, A_K3, A_RATIO, A_RATIO_SQ, A_GRADIENT,
    A_GRADIENT_ERROR,
) = (result_lane(name) for name in SUMS)  # fmt: skip
(
    A_BELOW, A_ABOVE, A_ACTIVE, A_ON, A_OFF, A_OVERFLOW, A_UNDERFLOW, A_ZERO, A_TO_ZERO, A_VANISHED,
    A_APPEARED, A_REVERSED,
) = (result_lane(name) for name in COUNTS)  # fmt: skip
X_RATIO_LOW, X_RATIO_HIGH, X_RATIO_ERROR, X_LOG_RATIO_ERROR, X_FLIP = (
    extreme_lane(name) for name in EXTREMES
)

Losses: TypeAlias = tuple[Vector, Vector, Vector, Vector, int, int]
"""Sums of losses, of these in float32, in float32 arithmetic; the worst flip; flips on and off."""
Terms: TypeAlias = tuple[
    Vector, Vector, Vector, Vector, Vector, Vector, Vector, Vector, Vector, Vector, Vector
]
"""Nine sums and largest errors, the lowest and the highest ratio, in the order of `add_terms`."""
Counts: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
"""In the order of `add_counts`."""

WIDE, NARROWED, NARROW = range(3)
"""Losses in float64; also rounded to float32 and added up in it; numbers of float32, also added up in it."""


@inline
def no_losses() -> Losses:
    """Return the sums of no losses."""
    zero = broadcast(0.0)
    return zero, zero, zero, broadcast(-1.0), 0, 0


@inline
def with_losses(
    so_far: Losses, s: int, i: int, loss: Vector, ratio: Vector, now: Flags, what: int, worst_too: bool
) -> Losses:
    """Add eight losses, and the clip decisions that flipped: those of `now` that are not the reference's."""
    losses, rounded_losses, narrow, worst, n_on, n_off = so_far
    losses = losses + loss
    if what == NARROWED:
        term = narrowed(loss)
        rounded_losses = rounded_losses + term
        narrow = narrowed(narrow + term)
    elif what == NARROW:
        narrow = narrowed(narrow + loss)
    was = load_bits(s, SIDE_BIT + (i >> 3))
    on, off = without(now, was), without(was, now)
    n_on, n_off = n_on + number_of(on), n_off + number_of(off)
    if worst_too:
        change = abs(ratio - load(s, RATIO + i))
        change = where(change < np.inf, change, np.inf)  # a ratio that became NaN is as bad as can be
        worst = where(on | off, greatest(change, worst), worst)
    return losses, rounded_losses, narrow, worst, n_on, n_off


@inline
def add_losses(s: int, lanes: int, found: Losses, what: int) -> float:
    """Add the losses of a run to the lanes of its block; return the sum in float32, or 0.

    That sum has eight lanes, folded in float64 and rounded.
    """
    losses, rounded_losses, narrow, worst, n_on, n_off = found
    add_to(s, lanes + A_LOSS, losses)
    add_to(s, lanes + A_LOSS_FLOAT32, losses if what == NARROW else rounded_losses)
    raise_to(s, lanes + X_FLIP, worst)
    count_to(s, lanes + A_ON, n_on)
    count_to(s, lanes + A_OFF, n_off)
    return narrowed(total(narrow))


@inline
def no_terms() -> Terms:
    """Return the sums and extremes of no terms."""
    zero = broadcast(0.0)
    return zero, zero, zero, zero, zero, zero, zero, zero, zero, broadcast(np.inf), broadcast(-np.inf)


NO_COUNTS = (0, 0, 0, 0, 0, 0, 0, 0, 0)


@inline
def with_terms(
    sums: Terms, counts: Counts, s: int, i: int, x: Vector, ratio: Vector, slope: Vector, k2: Vector,
    k3: Vector, floor: float, ceiling: float, inside: bool, signs: bool,
) -> tuple[Terms, Counts]:  # fmt: skip
    """Add everything else about eight tokens: KL terms, ratios, gradients, and what became of them.

    Where a token does not count the log-ratio is 0, the ratio 1, the loss 0.

    Parameters
    ----------
    x, ratio, slope, k2, k3 : float64
        Log-ratio, ratio, gradient and terms of the KLs.
    inside : bool
        No ratio can overflow or become 0.
    signs : bool
        Gradients can change sign.
    """
    sum_x, sum_k2, sum_k3, ratios, squares, slopes, slope_errors, errors, shifts, lows, highs = sums
    n_below, n_above, n_over, n_under, n_zero, n_to_zero, n_vanished, n_appeared, n_reversed = counts
    on = load_bits(s, COUNTS_BIT + (i >> 3))
    sum_x, sum_k2, sum_k3 = sum_x + x, sum_k2 + k2, sum_k3 + k3
    ratios = where(on, ratios + ratio, ratios)
    squares = where(on, fma(ratio, ratio, squares), squares)
    lows, highs = where(on, least(ratio, lows), lows), where(on, greatest(ratio, highs), highs)
    was, was_x = load(s, RATIO + i), load(s, LOG_RATIO + i)
    errors = greatest(abs(ratio - was) * load(s, INVERSE + i), errors)
    shifts = greatest(abs(x - was_x), shifts)
    n_below, n_above = n_below + number_of(ratio < floor), n_above + number_of(ratio > ceiling)
    if not inside:
        n_over += number_of(without(was < np.inf, abs(ratio) < np.inf))
        n_under += number_of((ratio == 0.0) & (was > 0.0))
    zero = x == 0.0
    n_zero, n_to_zero = (
        n_zero + number_of(zero),
        n_to_zero + number_of(zero & load_bits(s, SHIFT_BIT + (i >> 3))),
    )
    old_slope = load(s, GRADIENT + i)
    slopes = slopes + abs(slope)
    slope_errors = slope_errors + abs(slope - old_slope)
    there, gone = load_bits(s, SLOPE_BIT + (i >> 3)), slope == 0.0
    n_vanished += number_of(there & gone)
    n_appeared += number_of(without(without(on, there), gone))  # NaN is not 0
    if signs:
        n_reversed += number_of(slope * old_slope < 0.0)
    return (
        (sum_x, sum_k2, sum_k3, ratios, squares, slopes, slope_errors, errors, shifts, lows, highs),
        (n_below, n_above, n_over, n_under, n_zero, n_to_zero, n_vanished, n_appeared, n_reversed),
    )


@inline
def add_terms(s: int, lanes: int, sums: Terms) -> None:
    """Add the terms of a run to the lanes of its block."""
    sum_x, sum_k2, sum_k3, ratios, squares, slopes, slope_errors, errors, shifts, lows, highs = sums
    add_to(s, lanes + A_LOG_RATIO, sum_x)
    add_to(s, lanes + A_K2, sum_k2)
    add_to(s, lanes + A_K3, sum_k3)
    add_to(s, lanes + A_RATIO, ratios)
    add_to(s, lanes + A_RATIO_SQ, squares)
    add_to(s, lanes + A_GRADIENT, slopes)
    add_to(s, lanes + A_GRADIENT_ERROR, slope_errors)
    raise_to(s, lanes + X_RATIO_ERROR, errors)
    raise_to(s, lanes + X_LOG_RATIO_ERROR, shifts)
    lower_to(s, lanes + X_RATIO_LOW, lows)
    raise_to(s, lanes + X_RATIO_HIGH, highs)


@inline
def add_counts(s: int, lanes: int, n: int, n_on: int, counts: Counts) -> None:
    """Add the counts of a run, n_on tokens of which count, to the lanes of its block."""
    n_below, n_above, n_over, n_under, n_zero, n_to_zero, n_vanished, n_appeared, n_reversed = counts
    count_to(s, lanes + A_BELOW, n_below)
    count_to(s, lanes + A_ABOVE, n_above)
    count_to(s, lanes + A_OVERFLOW, n_over)
    count_to(s, lanes + A_UNDERFLOW, n_under)
    count_to(s, lanes + A_ZERO, n_zero - (((n + WIDTH - 1) & -WIDTH) - n_on))
    count_to(s, lanes + A_TO_ZERO, n_to_zero)
    count_to(s, lanes + A_VANISHED, n_vanished)
    count_to(s, lanes + A_APPEARED, n_appeared)
    count_to(s, lanes + A_REVERSED, n_reversed)


@inline
def add_sizes(s: int, lanes: int, n: int) -> None:
    """Add the sizes of the losses of the reference, and its active clips."""
    sizes, n_active = broadcast(0.0), 0
    for i in range(0, n, WIDTH):
        sizes += abs(load(s, LOSS + i))
        n_active += number_of(load_bits(s, SIDE_BIT + (i >> 3)))
    add_to(s, lanes + A_LOSS_ABS, sizes)
    count_to(s, lanes + A_ACTIVE, n_active)


@inline
def begin_variants(s: int, n_variants: int) -> None:
    """Clear the lanes of all variants."""
    for v in range(n_variants):
        lanes = LANES + v * LANES_PER_VARIANT
        for q in range(N_LANES + N_EXTREMES):
            low = q >= N_LANES and q < N_LANES + N_LOWEST
            store(s, lanes + q * WIDTH, np.inf if low else -np.inf if q >= N_LANES else 0.0)


@inline
def finish_variants(s: int, b: int, n_variants: int, results: Floats, extremes: Floats) -> None:
    """Fold the lanes into the rows of block b."""
    for v in range(n_variants):
        lanes = LANES + v * LANES_PER_VARIANT
        for q in range(N_LANES):
            results[b, v * N_RESULTS + q] = total(load(s, lanes + q * WIDTH))
        for e in range(N_EXTREMES):
            x = load(s, lanes + (N_LANES + e) * WIDTH)
            extremes[b, v * N_EXTREMES + e] = lowest(x) if e < N_LOWEST else highest(x)


@inline
def give_rows(s: int, n: int, dump: Floats, first: int, at: int) -> None:
    """Write what was found for the tokens of a run."""
    for d in range(DUMPED_ROWS.size):
        for i in range(0, n, WIDTH):
            store(row_address(dump, first + d), at + i, load(s, DUMPED_ROWS[d] + i))
