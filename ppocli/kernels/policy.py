"""The loop over the objective: ratios, losses and gradients of one run of tokens."""

from __future__ import annotations

import numpy as np

from ppocli.kernels._jit import inline
from ppocli.kernels.layout import (
    P_CLAMP,
    P_CLIP_CEILING,
    P_CLIP_FLOOR,
    P_DELTA,
    P_DUAL,
    WIDTH,
    Floats,
    centre,
    lane,
    row,
)
from ppocli.kernels.loops import LOG_RATIO, RATIO
from ppocli.kernels.memory import (
    add_to,
    count_to,
    load,
    load_flags,
    load_one,
    lower_to,
    raise_to,
    store,
    store_one,
)
from ppocli.kernels.vector import (
    Flags,
    Vector,
    broadcast,
    fma,
    greatest,
    least,
    number_of,
    total,
    where,
    without,
)

LOSS = row("loss")
A_RATIO, A_BELOW, A_ABOVE, A_RAW_RATIO, A_RAW_RATIO_SQ = (
    lane(name) for name in ("ratio", "below", "above", "raw_ratio", "raw_ratio_sq")
)
A_LOSS, A_UNCLIPPED, A_ACTIVE_LOW, A_ACTIVE_HIGH = (
    lane(name) for name in ("loss", "unclipped", "active_low", "active_high")
)
A_GRAD, A_GRAD_ZERO, A_DUAL, A_DELTA = (lane(name) for name in ("grad_abs", "grad_zero", "dual", "delta"))
Q_RATIO, Q_LOSS, C_RATIO, C_LOSS = lane("ratio square"), lane("loss square"), centre("ratio"), centre("loss")
LOW_LOSS, HIGH_LOSS = lane("loss low"), lane("loss high")


@inline
def _loss(
    ratio: Vector, cost: Vector, low: Flags, high: Flags, floor: float, ceiling: float
) -> tuple[Vector, Vector, Flags, Flags]:
    """Return loss, unclipped loss, where that is neither 0 nor NaN, and where the loss depends on log_probs.

    The clipped ratio counts where `low` (A < 0 and the ratio is below the interval) or `high` (A > 0 and it
    is above), else the ratio. Where A = 0 the loss is 0, whatever the ratio. `cost` is -A.
    """
    free = ratio * cost
    some = abs(free) > 0.0
    loss = where(some | low, where(low, floor, where(high, ceiling, ratio)) * cost, 0.0)
    return loss, free, some, without(some, low | high)


@inline
def _guarded_loss(
    s: int, i: int, ratio: Vector, cost: Vector, low: Flags, high: Flags, p: Floats
) -> tuple[Vector, Vector, Flags, Flags]:
    """Return the same with dual clip and delta; count where these decide.

    loss = -min(min(ratio, delta) A, clip(ratio) A), and where A < 0 at most -dual A.
    """
    losing = cost > 0.0
    some = losing | (cost < 0.0)
    clipped = least(greatest(ratio, p[P_CLIP_FLOOR]), p[P_CLIP_CEILING]) * cost
    surrogate = greatest(least(ratio, p[P_DELTA]) * cost, clipped)
    bound = p[P_DUAL] * cost
    by_dual, by_delta = losing & (bound < surrogate), losing & (ratio > p[P_DELTA])
    count_to(s, A_DUAL, number_of(by_dual))
    count_to(s, A_DELTA, number_of(by_delta))
    free = ratio * cost
    flat = low | high | by_dual | by_delta | (abs(load(s, LOG_RATIO + i)) > p[P_CLAMP])
    return where(some, where(by_dual, bound, surrogate), 0.0), free, some, without(abs(free) > 0.0, flat)


@inline
def _clamped(s: int, i: int, on: Flags, ratio: Vector, clamp: float, ends: tuple[float, float]) -> Vector:
    """Return the ratio at the clamped log-ratio; add the ratio before the clamp to its own sums."""
    add_to(s, A_RAW_RATIO, where(on, ratio, 0.0))
    add_to(s, A_RAW_RATIO_SQ, where(on, ratio * ratio, 0.0))
    log_ratio = load(s, LOG_RATIO + i)
    return where(log_ratio > clamp, ends[1], where(log_ratio < -clamp, ends[0], ratio))


@inline
def set_policy_centres(
    s: int, live: int, i: int, advantages: int, p: Floats, ends: tuple[float, float]
) -> None:
    """Set the centres of ratio and loss: their means over the vector at place i."""
    on = load_flags(live, i)
    ratio = least(greatest(load(s, RATIO + i), ends[0]), ends[1])
    cost = -load(s, advantages + i)
    clipped = least(greatest(ratio, p[P_CLIP_FLOOR]), p[P_CLIP_CEILING]) * cost
    loss = greatest(least(ratio, p[P_DELTA]) * cost, clipped)
    loss = where(cost > 0.0, least(p[P_DUAL] * cost, loss), where(cost < 0.0, loss, 0.0))
    store_one(s, C_RATIO, total(where(on, ratio, 0.0)) / number_of(on))
    store_one(s, C_LOSS, total(where(on, loss, 0.0)) / number_of(on))


@inline
def _add_to_block(
    s: int,
    ratios: Vector,
    ratio_moment: Vector,
    losses: Vector,
    moment: Vector,
    unclipped: Vector,
    gradients: Vector,
) -> None:
    """Add the sums of a run to those of the block."""
    add_to(s, A_RATIO, ratios)
    add_to(s, Q_RATIO, ratio_moment)
    add_to(s, A_LOSS, losses)
    add_to(s, Q_LOSS, moment)
    add_to(s, A_UNCLIPPED, unclipped)
    add_to(s, A_GRAD, gradients)


@inline
def add_policy(
    s: int,
    n: int,
    live: int,
    counted: int,
    advantages: int,
    p: Floats,
    guards: Floats | None,
    ends: tuple[float, float],
) -> None:
    """Add ratio, loss and the gradient |d loss / d log_probs| = ratio |A|, or 0 where flat.

    Parameters
    ----------
    counted, advantages : int
        Tokens of the run that count; the row that A stands in.
    guards : (N_PARAMETERS,) float64, or None
        p where dual clip, delta or a clamp of the log-ratio is used.
    ends : tuple of float
        The ratios at the two ends of the clamp.
    """
    floor, ceiling, ratio_middle, loss_middle = (
        p[P_CLIP_FLOOR],
        p[P_CLIP_CEILING],
        load_one(s, C_RATIO),
        load_one(s, C_LOSS),
    )
    ratios = ratio_moment = losses = moment = unclipped = gradients = broadcast(0.0)
    low_loss, high_loss = broadcast(np.inf), broadcast(-np.inf)
    n_below = n_above = n_low = n_high = n_steep = 0
    for i in range(0, n, WIDTH):
        on = load_flags(live, i)
        ratio, cost = load(s, RATIO + i), -load(s, advantages + i)
        if guards is not None:
            ratio = _clamped(s, i, on, ratio, p[P_CLAMP], ends)
        below, above = on & (ratio < floor), on & (ratio > ceiling)
        low, high = below & (cost > 0.0), above & (cost < 0.0)
        if guards is None:
            loss, free, some, steep = _loss(ratio, cost, low, high, floor, ceiling)
        else:
            loss, free, some, steep = _guarded_loss(s, i, ratio, cost, low, high, p)
        store(s, LOSS + i, loss)
        ratios = where(on, ratios + ratio, ratios)
        ratio_off, off = where(on, ratio - ratio_middle, 0.0), where(on, loss - loss_middle, 0.0)
        ratio_moment, moment = fma(ratio_off, ratio_off, ratio_moment), fma(off, off, moment)
        losses += loss
        unclipped = where(some, unclipped + free, unclipped)
        gradients = where(steep, gradients + abs(free), gradients)
        low_loss = least(where(on, loss, np.inf), low_loss)
        high_loss = greatest(where(on, loss, -np.inf), high_loss)
        n_below, n_above = n_below + number_of(below), n_above + number_of(above)
        n_low, n_high = n_low + number_of(low), n_high + number_of(high)
        n_steep += number_of(steep)
    _add_to_block(s, ratios, ratio_moment, losses, moment, unclipped, gradients)
    lower_to(s, LOW_LOSS, low_loss)
    raise_to(s, HIGH_LOSS, high_loss)
    count_to(s, A_BELOW, n_below)
    count_to(s, A_ABOVE, n_above)
    count_to(s, A_ACTIVE_LOW, n_low)
    count_to(s, A_ACTIVE_HIGH, n_high)
    count_to(s, A_GRAD_ZERO, counted - n_steep)
