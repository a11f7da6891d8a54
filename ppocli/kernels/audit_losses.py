"""Losses of a run of tokens whose columns have been stored: in float64, or with every step rounded."""

from __future__ import annotations

import numpy as np

from ppocli.kernels._jit import inline, jit
from ppocli.kernels.audit_layout import (
    GRADIENT_V,
    INVERSE,
    K2_V,
    K3_V,
    LOG_RATIO,
    LOG_RATIO_V,
    LOSS_ONLY,
    LOSS_V,
    NEW_F,
    OLD_F,
    RATIO_V,
    SIDE_V,
    V_BEYOND,
    V_BOTTOM,
    V_CEILING,
    V_CLAMP,
    V_DELTA,
    V_DUAL,
    V_FACTOR,
    V_FLOAT32,
    V_FLOOR,
    V_KIND,
    V_LIMIT,
    V_POWER,
    V_TOP,
)  # fmt: skip
from ppocli.kernels.layout import RUN, WIDTH, Floats
from ppocli.kernels.math import exp, exp_and_expm1_minus_x, exp_and_expm1_minus_x_near_0
from ppocli.kernels.memory import load, store
from ppocli.kernels.rounding import Rule, rounded_step
from ppocli.kernels.vector import Flags, Vector, all_of, broadcast, greatest, least, narrowed, where, without


@inline
def _clamped(x: Vector, ratio: Vector, clamp: float, bottom: float, top: float) -> Vector:
    """Return the ratio at the clamped log-ratio."""
    return where(x > clamp, top, where(x < -clamp, bottom, ratio))


@inline
def _put(
    s: int, i: int, x: Vector, ratio: Vector, loss: Vector, gradient: Vector, low: Flags, high: Flags
) -> None:
    """Write what was found for eight tokens."""
    store(s, LOG_RATIO_V + i, x)
    store(s, RATIO_V + i, ratio)
    store(s, LOSS_V + i, loss)
    store(s, GRADIENT_V + i, gradient)
    store(s, SIDE_V + i, where(high, 1.0, where(low, -1.0, broadcast(0.0))))


@inline
def in_float64(s: int, n: int, used: int, near: bool, v: Floats) -> None:
    """Losses of the stored columns, no step rounded but to float64; the formulas are those of `policy`.

    `used` is the row of the advantages.

    `least` and `greatest` have the ratio last, so that a NaN stays one.
    """
    floor, ceiling, dual, delta = v[V_FLOOR], v[V_CEILING], v[V_DUAL], v[V_DELTA]
    clamp, bottom, top = v[V_CLAMP], v[V_BOTTOM], v[V_TOP]
    for i in range(0, n, WIDTH):
        x = load(s, NEW_F + i) - load(s, OLD_F + i)
        if near:
            raw, k3 = exp_and_expm1_minus_x_near_0(x)
        else:
            raw, k3 = exp_and_expm1_minus_x(x)
        ratio, cost = _clamped(x, raw, clamp, bottom, top), -load(s, used + i)
        low, high = (ratio < floor) & (cost > 0.0), (ratio > ceiling) & (cost < 0.0)
        free, held = ratio * cost, least(delta, ratio)
        clipped = least(ceiling, greatest(floor, ratio)) * cost
        surrogate, bound = greatest(clipped, held * cost), dual * cost
        by_dual = (cost > 0.0) & (bound < surrogate)
        by_delta = (cost > 0.0) & (ratio > delta)
        flat = low | high | by_dual | by_delta | (abs(x) > clamp)
        some = abs(cost) > 0.0
        loss = where(some, where(by_dual, bound, surrogate), 0.0)
        _put(s, i, x, ratio, loss, where(without(some, flat), free, 0.0), low, high)
        store(s, K2_V + i, 0.5 * x * x)
        store(s, K3_V + i, k3)


@jit
def _step(x: Vector, is_float32: bool, rule: Rule) -> Vector:
    """Round the result of one step."""
    return narrowed(x) if is_float32 else rounded_step(x, rule[0], rule[1], rule[2])


@inline
def in_format(s: int, n: int, used: int, near: bool, again: bool, v: Floats) -> None:
    """Losses of the stored columns, each step rounded to the format of the arithmetic.

    Nothing is selected: 0 times infinity is NaN, as it is in a trainer. The clipped branch is active where
    its product is strictly the worse one, which after rounding is not the same as a ratio outside.

    `again`: the rows hold what `in_float64` found for the same columns, without a clamp. Log-probs that are
    close differ by a number of their format, so that the exp is mostly the same.
    """
    rule = (v[V_FACTOR], v[V_POWER], v[V_LIMIT], v[V_BEYOND])
    narrow, whole_set = v[V_FLOAT32] > 0.0, v[V_KIND] != LOSS_ONLY
    floor, ceiling, dual, delta = v[V_FLOOR], v[V_CEILING], v[V_DUAL], v[V_DELTA]
    clamp, bottom, top = v[V_CLAMP], v[V_BOTTOM], v[V_TOP]
    with_delta, with_dual = delta < np.inf, dual < np.inf
    for i in range(0, n, WIDTH):
        difference = load(s, NEW_F + i) - load(s, OLD_F + i)
        x = _step(difference, narrow, rule)
        if again and all_of(x == difference):
            power = load(s, RATIO_V + i)
        elif near:
            power = exp_and_expm1_minus_x_near_0(x)[0]
        else:
            power = exp(x)
        raw = _step(power, narrow, rule)
        ratio, cost = _clamped(x, raw, clamp, bottom, top), -_step(load(s, used + i), narrow, rule)
        free = _step(ratio * cost, narrow, rule)
        clipped = _step(least(ceiling, greatest(floor, ratio)) * cost, narrow, rule)
        held = free
        flat = abs(x) > clamp
        if with_delta:
            held = _step(least(delta, ratio) * cost, narrow, rule)
            flat = flat | ((cost > 0.0) & (ratio > delta))
        active = clipped > held
        loss = greatest(clipped, held)
        if with_dual:
            bound = _step(dual * cost, narrow, rule)
            by_dual = (cost > 0.0) & (bound < loss)
            loss = where(by_dual, bound, loss)
            flat = flat | by_dual
        high = active & (ratio > ceiling)
        _put(s, i, x, ratio, loss, where(active | flat, 0.0, free), without(active, high), high)
        if whole_set:
            store(s, K2_V + i, 0.5 * _step(x * x, narrow, rule))
            # Near 1 the difference is a number of the format, as the ratio is (Sterbenz).
            above = raw - 1.0 if near else _step(raw - 1.0, narrow, rule)
            store(s, K3_V + i, _step(above - x, narrow, rule))


@inline
def keep_reference(s: int, n: int) -> None:
    """Keep what was found as the reference."""
    for i in range(0, n, WIDTH):
        for k in range(5):
            store(s, LOG_RATIO + k * RUN + i, load(s, LOG_RATIO_V + k * RUN + i))
        store(s, INVERSE + i, 1.0 / load(s, RATIO_V + i))
