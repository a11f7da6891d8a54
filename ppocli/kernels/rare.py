"""Scalar work on few tokens: what only large log-ratios can change, and the terms of single tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.partials import RARE_SUMS
from ppocli.kernels._jit import jit
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
)
from ppocli.kernels.math import exp

if TYPE_CHECKING:
    from ppocli.kernels.layout import Floats, Ints

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


@jit()
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
    for j in range(wanted.size):
        row = sums[wanted[j]]
        row[:] = 0.0
        for i in range(limits[j], limits[j + 1]):
            x = log_ratio[i]
            size = abs(x)
            for f in range(N_FORMATS):
                row[O1 + f] += 1.0 if x > OVERFLOW[f] else 0.0
                row[U1 + f] += 1.0 if x < UNDERFLOW[f] else 0.0
            row[BEYOND] += 1.0 if size > 20.0 else 0.0
            row[ON_BOUND] += 1.0 if size == 10.0 or size == 20.0 else 0.0
            row[CLAMPED] += 1.0 if size > clamp else 0.0
            ratio = exp(x - BIG_SHIFT) if x > BIG else exp(x)
            first, second = (B1, B2) if x > BIG else (E1, E2)
            row[first] += ratio
            row[second] += ratio * ratio


@jit()
def _token_loss(ratio: float, adv: float, p: Floats) -> float:
    """Loss of one token, as the block kernel has it."""
    if adv == 0.0:
        return 0.0
    surrogate = min(min(ratio, p[P_DELTA]) * adv, min(max(ratio, p[P_CLIP_FLOOR]), p[P_CLIP_CEILING]) * adv)
    bounded = max(surrogate, p[P_DUAL] * adv) if adv < 0.0 else surrogate
    return -float(bounded)


@jit()
def token_terms(log_ratio: Floats, adv: Floats, p: Floats, ratio: Floats, loss: Floats) -> None:
    """Write ratio and loss of each token: (n,) float64, finite; the same bits as the block kernel's."""
    for i in range(log_ratio.size):
        ratio[i] = exp(min(max(log_ratio[i], -p[P_CLAMP]), p[P_CLAMP]))
        loss[i] = _token_loss(ratio[i], (adv[i] - p[P_SHIFT]) / p[P_SCALE], p)
