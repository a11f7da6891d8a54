"""The loops over log-ratios and ratios: each takes one run of tokens and adds to the lanes of the block.

A token's lane is its place in the run, modulo eight. A run's sums are 31 additions deep in a lane, the
block's eight runs come one after the other, and three additions fold the lanes at the end: the error of a
block's sum is at most 41 * 2^-53 of the sum of its |terms|, beside that of the terms themselves.

Tokens that do not count (masked, or behind the end) have 0 in the rows of the columns; where that does not
make a term 0, the term is left out by selection.
"""

from __future__ import annotations

import numpy as np

from ppocli.core.partials import COLUMNS
from ppocli.kernels._jit import inline
from ppocli.kernels.layout import (
    HISTOGRAM_HALF,
    HISTOGRAM_PER_NAT,
    P_SCALE,
    P_SHIFT,
    WIDTH,
    Floats,
    Ints,
    centre,
    lane,
    row,
)
from ppocli.kernels.load import HIGH, LOW, POSITIVE, read
from ppocli.kernels.math import NEAR, exp_and_expm1_minus_x, exp_and_expm1_minus_x_near_0
from ppocli.kernels.memory import (
    add_to,
    count_places,
    count_to,
    load,
    load_flags,
    load_one,
    lower_to,
    prefetch,
    raise_to,
    store,
    store_low16,
)
from ppocli.kernels.vector import any_of, bits, broadcast, fma, greatest, least, number_of, where

NEW, OLD, ADV = (COLUMNS.index(name) for name in ("log_probs", "old_log_probs", "advantages"))
LOG_RATIO, RATIO, STORED_ADV, USED_ADV = (
    row(name) for name in ("log_ratio", "ratio", "advantages", "used_advantages")
)
NEW_LANES, OLD_LANES = lane("log_probs sum"), lane("old_log_probs sum")
A_LOG_RATIO, A_LOG_RATIO_SQ, A_ABS, A_ZERO, A_K3 = (
    lane(name) for name in ("log_ratio", "log_ratio_sq", "log_ratio_abs", "log_ratio_zero", "kl_k3")
)
Q_LOG_RATIO, C_LOG_RATIO = lane("log_ratio square"), centre("log_ratio")
LOW_LOG_RATIO, HIGH_LOG_RATIO = lane("log_ratio low"), lane("log_ratio high")

LAST_BIN = HISTOGRAM_HALF + 1.0
ROUNDER = 1.5 * 2.0**52 + LAST_BIN
"""Adding it rounds to an integer, and leaves the number of the bin in the low bits."""


@inline
def add_log_ratio(
    addresses: Ints, doubles: int, tails: int, whole: int, start: int, n: int, live: int, s: int
) -> bool:
    """Log-ratios of a run, their sums and extremes; returns whether one is further than `NEAR` from 0."""
    added_new = added = squares = moment = sizes = broadcast(0.0)
    low = low_new = low_old = broadcast(np.inf)
    high = high_new = high_old = broadcast(-np.inf)
    zeros = positive_new = positive_old = 0
    middle = load_one(s, C_LOG_RATIO)
    new_address, new_double = addresses[NEW], doubles >> NEW & 1
    old_address, old_double = addresses[OLD], doubles >> OLD & 1
    for i in range(0, n, WIDTH):
        on = load_flags(live, i)
        new = where(on, read(new_address, new_double, start + i, whole, tails, NEW), 0.0)
        old = where(on, read(old_address, old_double, start + i, whole, tails, OLD), 0.0)
        added_new += new
        positive_new += number_of(new > 0.0)
        positive_old += number_of(old > 0.0)
        x = new - old
        store(s, LOG_RATIO + i, x)
        added += x
        squares = fma(x, x, squares)
        off = where(on, x - middle, 0.0)
        moment = fma(off, off, moment)
        sizes += abs(x)
        zeros += number_of(on & (x == 0.0))
        low = least(where(on, x, np.inf), low)
        high = greatest(where(on, x, -np.inf), high)
        low_new = least(where(on, new, np.inf), low_new)
        high_new = greatest(where(on, new, -np.inf), high_new)
        low_old = least(where(on, old, np.inf), low_old)
        high_old = greatest(where(on, old, -np.inf), high_old)
    add_to(s, NEW_LANES, added_new)
    lower_to(s, NEW_LANES + LOW, low_new)
    raise_to(s, NEW_LANES + HIGH, high_new)
    lower_to(s, OLD_LANES + LOW, low_old)
    raise_to(s, OLD_LANES + HIGH, high_old)
    add_to(s, A_LOG_RATIO, added)
    add_to(s, A_LOG_RATIO_SQ, squares)
    add_to(s, Q_LOG_RATIO, moment)
    add_to(s, A_ABS, sizes)
    lower_to(s, LOW_LOG_RATIO, low)
    raise_to(s, HIGH_LOG_RATIO, high)
    count_to(s, A_ZERO, zeros)
    count_to(s, NEW_LANES + POSITIVE, positive_new)
    count_to(s, OLD_LANES + POSITIVE, positive_old)
    return any_of((low < -NEAR) | (high > NEAR))


@inline
def next_run(addresses: Ints, doubles: int, start: int) -> tuple[int, int, int]:
    """Return where the columns of the run at `start` begin."""
    return (
        addresses[NEW] + start * (4 + 4 * (doubles >> NEW & 1)),
        addresses[OLD] + start * (4 + 4 * (doubles >> OLD & 1)),
        addresses[ADV] + start * (4 + 4 * (doubles >> ADV & 1)),
    )


@inline
def _prefetch(ahead: tuple[int, int, int], i: int) -> None:
    """Ask for the next run's columns while this one is evaluated: worth 0.2 ns a token from memory."""
    prefetch(ahead[0] + 8 * i)
    prefetch(ahead[1] + 8 * i)
    prefetch(ahead[2] + 8 * i)


@inline
def fill_ratio(s: int, n: int, kept: int, at: int, ahead: tuple[int, int, int]) -> None:
    """Ratios of a run before any clamp, the k3 terms, and the bins, which are kept from place `at` on."""
    k3 = broadcast(0.0)
    for i in range(0, n, WIDTH):
        _prefetch(ahead, i)
        x = load(s, LOG_RATIO + i)
        ratio, term = exp_and_expm1_minus_x(x)
        store(s, RATIO + i, ratio)
        k3 += term
        place = least(LAST_BIN, greatest(-LAST_BIN, x * HISTOGRAM_PER_NAT))
        store_low16(kept, at + i, bits(place + ROUNDER))
    add_to(s, A_K3, k3)


@inline
def fill_ratio_near_1(s: int, n: int, kept: int, at: int, ahead: tuple[int, int, int]) -> None:
    """Write the same bits where every |log_ratio| is at most `NEAR`."""
    k3 = broadcast(0.0)
    for i in range(0, n, WIDTH):
        _prefetch(ahead, i)
        x = load(s, LOG_RATIO + i)
        ratio, term = exp_and_expm1_minus_x_near_0(x)
        store(s, RATIO + i, ratio)
        k3 += term
        store_low16(kept, at + i, bits(fma(x, HISTOGRAM_PER_NAT, ROUNDER)))
    add_to(s, A_K3, k3)


@inline
def add_histogram(kept: int, n: int, bins: int) -> None:
    """Count the block's tokens in their bins.

    A loop of its own: beside vector loads, stores to bins at the same place of a page would hold these up.
    """
    for i in range(0, n, WIDTH):
        count_places(bins, kept, i)


@inline
def normalise(s: int, n: int, live: int, p: Floats) -> None:
    """Advantages as the objective uses them: (A - shift) / scale."""
    for i in range(0, n, WIDTH):
        adv = (load(s, STORED_ADV + i) - p[P_SHIFT]) / p[P_SCALE]
        store(s, USED_ADV + i, where(load_flags(live, i), adv, 0.0))
