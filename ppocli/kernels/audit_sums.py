"""Sums, extremes and counts of a run of tokens, added to the lanes of its block."""

from __future__ import annotations

import numpy as np

from ppocli.kernels._jit import inline
from ppocli.kernels.audit_layout import (
    COUNTS,
    DUMPED,
    EXTREMES,
    GRADIENT,
    GRADIENT_V,
    INVERSE,
    K2_V,
    K3_V,
    LANES,
    LANES_PER_VARIANT,
    LOG_RATIO,
    LOG_RATIO_V,
    LOSS_V,
    LOWEST,
    N_EXTREMES,
    N_RESULTS,
    ON,
    RATIO,
    RATIO_V,
    RESULTS,
    SIDE,
    SIDE_V,
    SUMS,
    extreme_lane,
    result_lane,
    row,
)  # fmt: skip
from ppocli.kernels.layout import WIDTH, Floats
from ppocli.kernels.memory import add_to, count_to, load, lower_to, raise_to, row_address, store
from ppocli.kernels.vector import (
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


@inline
def add_losses(s: int, lanes: int, n: int, in_float32: bool) -> float:
    """Add the losses of a run and the clip decisions that flipped; return the sum in float32, or 0.

    That sum has eight lanes, folded in float64 and rounded.
    """
    losses = rounded_losses = narrow = broadcast(0.0)
    worst = broadcast(-1.0)
    n_on = n_off = 0
    for i in range(0, n, WIDTH):
        loss = load(s, LOSS_V + i)
        losses += loss
        if in_float32:
            term = narrowed(loss)
            rounded_losses += term
            narrow = narrowed(narrow + term)
        was, now = abs(load(s, SIDE + i)) > 0.0, abs(load(s, SIDE_V + i)) > 0.0
        on, off = without(now, was), without(was, now)
        n_on, n_off = n_on + number_of(on), n_off + number_of(off)
        change = abs(load(s, RATIO_V + i) - load(s, RATIO + i))
        change = where(change < np.inf, change, np.inf)  # a ratio that became NaN is as bad as can be
        worst = greatest(where(on | off, change, -1.0), worst)
    add_to(s, lanes + A_LOSS, losses)
    add_to(s, lanes + A_LOSS_FLOAT32, rounded_losses)
    raise_to(s, lanes + X_FLIP, worst)
    count_to(s, lanes + A_ON, n_on)
    count_to(s, lanes + A_OFF, n_off)
    return narrowed(total(narrow))


@inline
def add_terms(
    s: int, lanes: int, n: int, n_on: int, floor: float, ceiling: float, near: bool, first: bool, signs: bool
) -> None:
    """Add everything else about a run: KL terms, ratios, gradients, and what became of them.

    Parameters
    ----------
    n_on : int
        Tokens of the run that count. At the others the log-ratio is 0, the ratio 1, the loss 0.
    near : bool
        All log-ratios are small: no ratio can overflow or become 0.
    first : bool
        This is the reference: the sizes of its losses are added, and its active clips.
    signs : bool
        Advantages are stored too, so that gradients can change sign.
    """
    k1 = k2 = k3 = ratios = squares = sizes = slopes = slope_errors = errors = shifts = broadcast(0.0)
    lows, highs = broadcast(np.inf), broadcast(-np.inf)
    n_below = n_above = n_active = n_over = n_under = n_zero = n_to_zero = 0
    n_vanished = n_appeared = n_reversed = 0
    for i in range(0, n, WIDTH):
        on = load(s, ON + i) > 0.0
        x, ratio = load(s, LOG_RATIO_V + i), load(s, RATIO_V + i)
        k1 += x
        k2 += load(s, K2_V + i)
        k3 += load(s, K3_V + i)
        if first:
            sizes += abs(load(s, LOSS_V + i))
            n_active += number_of(abs(load(s, SIDE_V + i)) > 0.0)
        ratios = where(on, ratios + ratio, ratios)
        squares = where(on, fma(ratio, ratio, squares), squares)
        lows, highs = least(where(on, ratio, np.inf), lows), greatest(where(on, ratio, -np.inf), highs)
        was, was_x = load(s, RATIO + i), load(s, LOG_RATIO + i)
        errors = greatest(abs(ratio - was) * load(s, INVERSE + i), errors)
        shifts = greatest(abs(x - was_x), shifts)
        n_below, n_above = n_below + number_of(ratio < floor), n_above + number_of(ratio > ceiling)
        if not near:
            n_over += number_of(without(was < np.inf, abs(ratio) < np.inf))
            n_under += number_of((ratio == 0.0) & (was > 0.0))
        zero = x == 0.0
        n_zero, n_to_zero = n_zero + number_of(zero), n_to_zero + number_of(zero & (abs(was_x) > 0.0))
        slope, old_slope = load(s, GRADIENT_V + i), load(s, GRADIENT + i)
        slopes += abs(slope)
        slope_errors += abs(slope - old_slope)
        there, remains = abs(old_slope) > 0.0, abs(slope) > 0.0
        n_vanished += number_of(there & (slope == 0.0))
        n_appeared += number_of(without(remains, there))
        if signs:
            n_reversed += number_of(slope * old_slope < 0.0)
    add_to(s, lanes + A_LOSS_ABS, sizes)
    add_to(s, lanes + A_LOG_RATIO, k1)
    add_to(s, lanes + A_K2, k2)
    add_to(s, lanes + A_K3, k3)
    add_to(s, lanes + A_RATIO, ratios)
    add_to(s, lanes + A_RATIO_SQ, squares)
    add_to(s, lanes + A_GRADIENT, slopes)
    add_to(s, lanes + A_GRADIENT_ERROR, slope_errors)
    lower_to(s, lanes + X_RATIO_LOW, lows)
    raise_to(s, lanes + X_RATIO_HIGH, highs)
    raise_to(s, lanes + X_RATIO_ERROR, errors)
    raise_to(s, lanes + X_LOG_RATIO_ERROR, shifts)
    count_to(s, lanes + A_BELOW, n_below)
    count_to(s, lanes + A_ABOVE, n_above)
    count_to(s, lanes + A_ACTIVE, n_active)
    count_to(s, lanes + A_OVERFLOW, n_over)
    count_to(s, lanes + A_UNDERFLOW, n_under)
    count_to(s, lanes + A_ZERO, n_zero - (((n + WIDTH - 1) & -WIDTH) - n_on))
    count_to(s, lanes + A_TO_ZERO, n_to_zero)
    count_to(s, lanes + A_VANISHED, n_vanished)
    count_to(s, lanes + A_APPEARED, n_appeared)
    count_to(s, lanes + A_REVERSED, n_reversed)


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
def give_terms(s: int, n: int, terms: int, at: int) -> None:
    """Write the losses of a run, NaN where a token does not count."""
    for i in range(0, n, WIDTH):
        store(terms, at + i, where(load(s, ON + i) > 0.0, load(s, LOSS_V + i), np.nan))


@inline
def give_rows(s: int, n: int, dump: Floats, first: int, at: int) -> None:
    """Write what was found for the tokens of a run."""
    for d in range(DUMPED_ROWS.size):
        for i in range(0, n, WIDTH):
            store(row_address(dump, first + d), at + i, load(s, DUMPED_ROWS[d] + i))
