"""Scalar work on few tokens: what only large log-ratios can change, and the terms of single tokens."""

from __future__ import annotations

import numpy as np

from ppocli.core.partials import RARE_SUMS
from ppocli.kernels._jit import inline, jit
from ppocli.kernels.layout import (
    OVERFLOW_LOGS,
    P_CLAMP,
    P_CLIP_CEILING,
    P_CLIP_FLOOR,
    P_DELTA,
    P_DUAL,
    P_SCALE,
    P_SHIFT,
    UNDERFLOW_LOGS,
    WIDTH,
    Floats,
    Ints,
)
from ppocli.kernels.math import exp
from ppocli.kernels.memory import load, row_address
from ppocli.kernels.vector import broadcast, first_of, fma, number_of, total, where, without

OVERFLOW, UNDERFLOW = np.array(OVERFLOW_LOGS), np.array(UNDERFLOW_LOGS)
N_FORMATS = len(OVERFLOW_LOGS)

BIG = 300.0
"""Above this log-ratio the square of a ratio comes near the end of float64 (at 354.9)."""
BIG_POWER = 600
"""Big ratios are summed times 2^-600: then neither they nor their squares leave float64."""
BIG_SHIFT = BIG_POWER * np.log(2.0)

E1, E2, B1, B2 = (RARE_SUMS.index(name) for name in ("ess_1", "ess_2", "ess_big_1", "ess_big_2"))
O1, U1 = RARE_SUMS.index("overflow_float16"), RARE_SUMS.index("underflow_float16")
BEYOND, ON_BOUND, CLAMPED = (RARE_SUMS.index(name) for name in ("beyond_20", "on_bound", "clamped"))


@jit
def _count_rare(log_ratio: Floats, limits: Ints, wanted: Ints, clamp: float, sums: Floats) -> None:
    """Do the work of `count_rare` on log-ratios with a vector of padding behind them."""
    for j in range(wanted.size):
        row = sums[wanted[j]]
        row[:] = 0.0
        small_1 = small_2 = big_1 = big_2 = broadcast(0.0)
        for i in range(limits[j], limits[j + 1], WIDTH):
            on = first_of(limits[j + 1] - i)
            x = where(on, load(row_address(log_ratio, 0), i), 0.0)
            size = abs(x)
            for f in range(N_FORMATS):
                row[O1 + f] += number_of(x > OVERFLOW[f])
                row[U1 + f] += number_of(x < UNDERFLOW[f])
            row[BEYOND] += number_of(size > 20.0)
            row[ON_BOUND] += number_of((size == 10.0) | (size == 20.0))
            row[CLAMPED] += number_of(size > clamp)
            big = x > BIG
            small = without(on, big)
            ratio = exp(where(big, x - BIG_SHIFT, x))
            small_1, small_2 = (
                where(small, small_1 + ratio, small_1),
                where(small, fma(ratio, ratio, small_2), small_2),
            )
            big_1, big_2 = where(big, big_1 + ratio, big_1), where(big, fma(ratio, ratio, big_2), big_2)
        row[E1], row[E2], row[B1], row[B2] = total(small_1), total(small_2), total(big_1), total(big_2)


def count_rare(log_ratio: Floats, limits: Ints, wanted: Ints, clamp: float, sums: Floats) -> None:
    """Count overflow and underflow per format, clamp bounds and log-ratios beyond them; weights for the ESS.

    Parameters
    ----------
    log_ratio : (n,) float64
        Finite log-ratios of the valid tokens of some blocks.
    limits : (n_wanted + 1,) int64; wanted : (n_wanted,) int64
        Where each block's log-ratios start, and which block that is.
    clamp : float
        log_ratio_clamp, or infinity.
    sums : (n_blocks, N_RARE) float64
        The wanted rows are written anew.
    """
    _count_rare(np.append(log_ratio, np.zeros(WIDTH)), limits, wanted, clamp, sums)


@inline
def _token_loss(ratio: float, adv: float, p: Floats) -> float:
    """Loss of one token, as the block kernel has it."""
    if adv == 0.0:
        return 0.0
    surrogate = min(min(ratio, p[P_DELTA]) * adv, min(max(ratio, p[P_CLIP_FLOOR]), p[P_CLIP_CEILING]) * adv)
    bounded = max(surrogate, p[P_DUAL] * adv) if adv < 0.0 else surrogate
    return -float(bounded)


@jit
def token_terms(log_ratio: Floats, adv: Floats, p: Floats, ratio: Floats, loss: Floats) -> None:
    """Write ratio and loss of each token: (n,) float64, finite; the same bits as the block kernel's."""
    for i in range(log_ratio.size):
        ratio[i] = exp(min(max(log_ratio[i], -p[P_CLAMP]), p[P_CLAMP]))
        loss[i] = _token_loss(ratio[i], (adv[i] - p[P_SHIFT]) / p[P_SCALE], p)
