"""Losses of a run of tokens whose columns have been stored: in float64, or with every step rounded.

Each loop adds what it finds to the lanes of the block while it is in registers; of the reference rows are
kept, of other losses none, unless single tokens are looked at.
"""

from __future__ import annotations

import math

import numpy as np

from ppocli.kernels._jit import inline, jit
from ppocli.kernels.audit_layout import (
    COUNTS_BIT,
    GRADIENT,
    GRADIENT_V,
    INVERSE,
    LOG_RATIO,
    LOG_RATIO_V,
    LOSS,
    LOSS_ONLY,
    LOSS_V,
    NEW_F,
    OLD_F,
    RATIO,
    RATIO_V,
    SHIFT_BIT,
    SIDE,
    SIDE_BIT,
    SIDE_V,
    SLOPE_BIT,
    V_BEYOND,
    V_BOTTOM,
    V_CEILING,
    V_CLAMP,
    V_DELTA,
    V_DUAL,
    V_FACTOR,
    V_FLOOR,
    V_KIND,
    V_LIMIT,
    V_POWER,
    V_TOP,
)  # fmt: skip
from ppocli.kernels.audit_sums import (
    NARROW,
    NARROWED,
    NO_COUNTS,
    WIDE,
    add_counts,
    add_losses,
    add_terms,
    no_losses,
    no_terms,
    with_losses,
    with_terms,
)
from ppocli.kernels.layout import WIDTH, Floats
from ppocli.kernels.math import (
    NEAR,
    exp,
    exp_and_expm1_minus_x,
    exp_and_expm1_minus_x_in_the_middle,
    exp_and_expm1_minus_x_near_0,
    exp_in_the_middle,
)
from ppocli.kernels.memory import load, load_bits, store, store_bits
from ppocli.kernels.rounding import Rule, rounded_step, rounded_within
from ppocli.kernels.vector import Flags, Vector, all_of, broadcast, greatest, least, narrowed, where, without

SHORT, AROUND_1, MIDDLE = 0.98 * NEAR, 0.98 * math.log(2.0), 39.0
"""Up to here a log-ratio, rounded to a format of arithmetic, stays below `NEAR`, below ln 2, and below 40: a
step is at most 2^-7."""

TO_FLOAT32, WITHIN, TO_FORMAT = range(3)
"""Ways of rounding a step: to float32; to another format where nothing overflows; where something may."""

LARGE = 2.0**900
"""Up to here an advantage times a ratio of up to e^39 is finite."""

SMALL, LARGEST_RATIO = 3.0, 32.0
"""Log-ratios up to the first, rounded or not, have ratios well below the second."""


@inline
def stays_within(most: float, most_used: float, v: Floats) -> bool:
    """Whether no step can overflow: each result is at most a quarter of the format's limit before rounding.

    `most` is the largest |log-ratio| of a run, `most_used` the largest |advantage|; rounding them and their
    products adds less than 2 %.
    """
    most_factor = max(LARGEST_RATIO, abs(v[V_FLOOR]))
    if v[V_DUAL] < np.inf:
        most_factor = max(most_factor, v[V_DUAL])
    return most < SMALL and most_used * most_factor < 0.25 * v[V_LIMIT]


@inline
def _clamped(x: Vector, ratio: Vector, clamp: float, bottom: float, top: float) -> Vector:
    """Return the ratio at the clamped log-ratio."""
    return where(x > clamp, top, where(x < -clamp, bottom, ratio))


@inline
def _side(low: Flags, high: Flags) -> Vector:
    """Return -1 where the clipped branch is active below, 1 where it is above, else 0."""
    return where(high, 1.0, where(low, -1.0, broadcast(0.0)))


@inline
def _keep(
    s: int, i: int, x: Vector, ratio: Vector, loss: Vector, gradient: Vector, low: Flags, high: Flags
) -> None:
    """Write what was found for eight tokens."""
    store(s, LOG_RATIO_V + i, x)
    store(s, RATIO_V + i, ratio)
    store(s, LOSS_V + i, loss)
    store(s, GRADIENT_V + i, gradient)
    store(s, SIDE_V + i, _side(low, high))


@inline
def _keep_reference(
    s: int, i: int, x: Vector, ratio: Vector, loss: Vector, gradient: Vector, low: Flags, high: Flags
) -> None:
    """Write the same for the reference."""
    store(s, LOG_RATIO + i, x)
    store(s, RATIO + i, ratio)
    store(s, LOSS + i, loss)
    store(s, GRADIENT + i, gradient)
    store(s, SIDE + i, _side(low, high))
    store(s, INVERSE + i, 1.0 / ratio)
    store_bits(s, SIDE_BIT + (i >> 3), low | high)
    store_bits(s, SLOPE_BIT + (i >> 3), abs(gradient) > 0.0)
    store_bits(s, SHIFT_BIT + (i >> 3), abs(x) > 0.0)


@inline
def in_float64(
    s: int, lanes: int, n: int, n_on: int, used: int, most: float, most_used: float, first: bool,
    signs: bool, keep: bool, terms: int, v: Floats,
) -> float:  # fmt: skip
    """Losses of the stored columns, no step rounded but to float64; the formulas are those of `policy`.

    `least` and `greatest` have the ratio last, so that a NaN stays one.

    Parameters
    ----------
    used : int
        The row of the advantages.
    most, most_used : float
        The largest |log-ratio| and |advantage|; infinite where one is NaN.
    first : bool
        This is the reference.
    signs : bool
        Advantages are stored too, so that gradients can change sign.
    keep : bool
        Rows are written.
    terms : int
        Where losses are written, or 0.

    Returns
    -------
    float
        Of the reference, the sum in float32; else 0.
    """
    floor, ceiling, dual, delta = v[V_FLOOR], v[V_CEILING], v[V_DUAL], v[V_DELTA]
    clamp, bottom, top = v[V_CLAMP], v[V_BOTTOM], v[V_TOP]
    near, middle = most < SHORT, most < MIDDLE
    with_delta, with_dual, with_clamp = delta < np.inf, dual < np.inf, clamp < np.inf
    inside = middle and most_used < LARGE
    losses, sums, counts = no_losses(), no_terms(), NO_COUNTS
    for i in range(0, n, WIDTH):
        x = load(s, NEW_F + i) - load(s, OLD_F + i)
        if near:
            ratio, k3 = exp_and_expm1_minus_x_near_0(x)
        elif middle:
            ratio, k3 = exp_and_expm1_minus_x_in_the_middle(x)
        else:
            ratio, k3 = exp_and_expm1_minus_x(x)
        if with_clamp:
            ratio = _clamped(x, ratio, clamp, bottom, top)
        cost = -load(s, used + i)
        low, high = (ratio < floor) & (cost > 0.0), (ratio > ceiling) & (cost < 0.0)
        free, now = ratio * cost, low | high
        held, flat = free, now
        if with_clamp:
            flat = flat | (abs(x) > clamp)
        if with_delta:
            held = least(delta, ratio) * cost
            flat = flat | ((cost > 0.0) & (ratio > delta))
        loss = greatest(least(ceiling, greatest(floor, ratio)) * cost, held)
        if with_dual:
            bound = dual * cost
            by_dual = (cost > 0.0) & (bound < loss)
            loss, flat = where(by_dual, bound, loss), flat | by_dual
        gradient = where(flat, 0.0, free)
        if not inside:  # else a cost of 0 makes both 0
            some = abs(cost) > 0.0
            loss, gradient = where(some, loss, 0.0), where(some, gradient, 0.0)
        store(s, RATIO_V + i, ratio)
        if first:
            _keep_reference(s, i, x, ratio, loss, gradient, low, high)
        if keep:
            _keep(s, i, x, ratio, loss, gradient, low, high)
        if terms:
            store(terms, i, where(load_bits(s, COUNTS_BIT + (i >> 3)), loss, np.nan))
        losses = with_losses(losses, s, i, loss, ratio, now, NARROWED if first else WIDE, True)
        sums, counts = with_terms(
            sums, counts, s, i, x, ratio, gradient, 0.5 * x * x, k3, floor, ceiling, inside, signs
        )
    add_terms(s, lanes, sums)
    add_counts(s, lanes, n, n_on, counts)
    return add_losses(s, lanes, losses, WIDE)


@jit
def _step(x: Vector, way: int, rule: Rule) -> Vector:
    """Round the result of one step."""
    if way == TO_FLOAT32:
        y = narrowed(x)
    elif way == WITHIN:
        y = rounded_within(x, rule[0], rule[1])
    else:
        y = rounded_step(x, rule[0], rule[1], rule[2])
    return y


@inline
def in_format(
    s: int, lanes: int, n: int, n_on: int, used: int, most: float, way: int, again: bool, signs: bool,
    keep: bool, terms: int, v: Floats,
) -> float:  # fmt: skip
    """Losses of the stored columns, each step rounded to the format of the arithmetic.

    Nothing is selected: 0 times infinity is NaN, as it is in a trainer. The clipped branch is active where
    its product is strictly the worse one, which after rounding is not the same as a ratio outside.

    Parameters
    ----------
    way : {TO_FLOAT32, WITHIN, TO_FORMAT}
    again : bool
        The row of ratios holds what `in_float64` found for the same columns, without a clamp. Log-probs that
        are close differ by a number of their format, so that the exp is mostly the same.
    n_on, used, most, signs, keep, terms
        As in `in_float64`.

    Returns
    -------
    float
        The sum in float32.
    """
    rule = (v[V_FACTOR], v[V_POWER], v[V_LIMIT], v[V_BEYOND])
    whole_set = v[V_KIND] != LOSS_ONLY
    floor, ceiling, dual, delta = v[V_FLOOR], v[V_CEILING], v[V_DUAL], v[V_DELTA]
    clamp, bottom, top = v[V_CLAMP], v[V_BOTTOM], v[V_TOP]
    near, around, middle = most < SHORT, most < AROUND_1, most < MIDDLE
    with_delta, with_dual, with_clamp = delta < np.inf, dual < np.inf, clamp < np.inf
    # Ratios are between e^-3 and e^3 then, or between e^-39 and e^39: far from the ends of the format.
    inside = way == WITHIN or (way == TO_FLOAT32 and middle)
    losses, sums, counts = no_losses(), no_terms(), NO_COUNTS
    for i in range(0, n, WIDTH):
        difference = load(s, NEW_F + i) - load(s, OLD_F + i)
        x = _step(difference, way, rule)
        if again and all_of(x == difference):
            power = load(s, RATIO_V + i)
        elif near:
            power = exp_and_expm1_minus_x_near_0(x)[0]
        elif middle:
            power = exp_in_the_middle(x)
        else:
            power = exp(x)
        raw = _step(power, way, rule)
        ratio, cost = raw, -_step(load(s, used + i), way, rule)
        if with_clamp:
            ratio = _clamped(x, raw, clamp, bottom, top)
        free = _step(ratio * cost, way, rule)
        clipped = _step(least(ceiling, greatest(floor, ratio)) * cost, way, rule)
        held = free
        if with_delta:
            held = _step(least(delta, ratio) * cost, way, rule)
        active = clipped > held
        loss, flat = greatest(clipped, held), active
        if with_clamp:
            flat = flat | (abs(x) > clamp)
        if with_delta:
            flat = flat | ((cost > 0.0) & (ratio > delta))
        if with_dual:
            bound = _step(dual * cost, way, rule)
            by_dual = (cost > 0.0) & (bound < loss)
            loss = where(by_dual, bound, loss)
            flat = flat | by_dual
        if terms:
            store(terms, i, where(load_bits(s, COUNTS_BIT + (i >> 3)), loss, np.nan))
        losses = with_losses(losses, s, i, loss, ratio, active, NARROW, whole_set)
        if whole_set:
            gradient = where(flat, 0.0, free)
            if keep:
                high = active & (ratio > ceiling)
                _keep(s, i, x, ratio, loss, gradient, without(active, high), high)
            # From 0.5 to 2 the difference is a number of the format, as the ratio is (Sterbenz).
            above = raw - 1.0 if around else _step(raw - 1.0, way, rule)
            k2, k3 = 0.5 * _step(x * x, way, rule), _step(above - x, way, rule)
            sums, counts = with_terms(
                sums, counts, s, i, x, ratio, gradient, k2, k3, floor, ceiling, inside, signs
            )
    if whole_set:
        add_terms(s, lanes, sums)
        add_counts(s, lanes, n, n_on, counts)
    return add_losses(s, lanes, losses, NARROW)  # each format is a part of float32
