"""Rows of a run of tokens: what the columns hold, and what a storage format leaves of it."""

from __future__ import annotations

import numpy as np

from ppocli.kernels._jit import inline
from ppocli.kernels.audit_layout import (
    ADV,
    COUNTS_BIT,
    EXACT,
    F_BEYOND,
    F_FACTOR,
    F_KIND,
    F_LIMIT,
    F_POWER,
    F_SCALE_ADV,
    F_SCALE_NEW,
    F_SCALE_OLD,
    FLOATING,
    LOG_RATIO,
    NEW,
    NEW_F,
    OLD,
    OLD_F,
    SCALED,
    SIZE_HIGHEST,
    SIZE_LOWEST,
    SIZE_OFFSET,
    SIZE_SHIFT,
    USED,
    USED_F,
)  # fmt: skip
from ppocli.kernels.layout import P_SCALE, P_SHIFT, WIDTH, Floats, Ints
from ppocli.kernels.load import read
from ppocli.kernels.loops import ADV as ADV_COLUMN
from ppocli.kernels.loops import NEW as NEW_COLUMN
from ppocli.kernels.loops import OLD as OLD_COLUMN
from ppocli.kernels.memory import load, load_bits, load_flags, load_float32, store, store_bits, store_low16
from ppocli.kernels.rounding import Rule, rounded, rounded_within, scaled
from ppocli.kernels.vector import Vector, bits, broadcast, greatest, highest, least, number_of, where

SMALLEST, LARGEST = 2.0**SIZE_LOWEST, np.nextafter(2.0**SIZE_HIGHEST, 0.0)
OFFSET, SHIFT = np.uint64(SIZE_OFFSET), np.uint64(SIZE_SHIFT)


@inline
def load_run(
    addresses: Ints, doubles: int, tails: int, whole: int, start: int, n: int, live: int, p: Floats, s: int
) -> tuple[int, float, float]:
    """Load the columns of a run, 0 where a token does not count, and the advantages as they are used.

    Returns
    -------
    tuple of int, float, float
        How many tokens count; the largest |log-prob| of both columns; the largest |advantage| as used.
    """
    counted = 0
    size = most_used = broadcast(0.0)
    new_at, old_at, adv_at = addresses[NEW_COLUMN], addresses[OLD_COLUMN], addresses[ADV_COLUMN]
    new_double, old_double = doubles >> NEW_COLUMN & 1, doubles >> OLD_COLUMN & 1
    adv_double = doubles >> ADV_COLUMN & 1
    shift, scale = p[P_SHIFT], p[P_SCALE]
    for i in range(0, n, WIDTH):
        new = read(new_at, new_double, start + i, whole, tails, NEW_COLUMN)
        old = read(old_at, old_double, start + i, whole, tails, OLD_COLUMN)
        adv = read(adv_at, adv_double, start + i, whole, tails, ADV_COLUMN)
        on = load_flags(live, i) & (abs(new) < np.inf) & (abs(old) < np.inf) & (abs(adv) < np.inf)
        new, old = where(on, new, 0.0), where(on, old, 0.0)
        used = where(on, (adv - shift) / scale, 0.0)
        store(s, NEW + i, new)
        store(s, OLD + i, old)
        store(s, ADV + i, where(on, adv, 0.0))
        store(s, USED + i, used)
        store_bits(s, COUNTS_BIT + (i >> 3), on)
        counted += number_of(on)
        size = greatest(abs(new), greatest(abs(old), size))
        most_used = greatest(_or_infinite(abs(used)), most_used)
    return counted, highest(size), highest(most_used)


@inline
def _or_infinite(x: Vector) -> Vector:
    """Return x, infinity at NaN."""
    return where(x < np.inf, x, np.inf)


@inline
def count_inexact(s: int, n: int, column: int, rule: Rule) -> int:
    """Return how many values of a row are not numbers of a format."""
    found = 0
    for i in range(0, n, WIDTH):
        x = load(s, column + i)
        y = rounded(x, rule)
        found += number_of((x < y) | (y < x))
    return found


@inline
def keep_sizes(s: int, n: int, of_new: int, of_log_ratio: int, at: int) -> None:
    """Keep the bins of |log_prob| and |log_ratio| of a run."""
    for i in range(0, n, WIDTH):
        size = least(LARGEST, greatest(SMALLEST, abs(load(s, NEW + i))))
        store_low16(of_new, at + i, (bits(size) >> SHIFT) - OFFSET)
        size = least(LARGEST, greatest(SMALLEST, abs(load(s, LOG_RATIO + i))))
        store_low16(of_log_ratio, at + i, (bits(size) >> SHIFT) - OFFSET)


@inline
def _stored(x: Vector, kind: int, within: bool, rule: Rule, scale: float, scales: int, at: int) -> Vector:
    """Return what a storage format leaves of eight values; 0 may have either sign."""
    y = x
    if kind == FLOATING:
        y = rounded_within(x, rule[0], rule[1]) if within else rounded(x, rule)
    elif kind == SCALED:
        y = scaled(x, broadcast(scale))
    elif kind != EXACT:
        y = scaled(x, load_float32(scales, at))
    return y


@inline
def store_log_probs(s: int, n: int, start: int, size: float, one: Floats, scales: Ints) -> float:
    """Write what a storage format leaves of the log-probs of a run; return the largest |log-ratio|.

    `size` is the largest |log-prob|. What is NaN counts as infinite.
    """
    kind = int(one[F_KIND])
    rule = (one[F_FACTOR], one[F_POWER], one[F_LIMIT], one[F_BEYOND])
    scale_new, scale_old = one[F_SCALE_NEW], one[F_SCALE_OLD]
    scales_new, scales_old = scales[0], scales[1]
    within, most = size < 0.5 * rule[2], broadcast(0.0)
    for i in range(0, n, WIDTH):
        new = _stored(load(s, NEW + i), kind, within, rule, scale_new, scales_new, start + i)
        old = _stored(load(s, OLD + i), kind, within, rule, scale_old, scales_old, start + i)
        store(s, NEW_F + i, new)
        store(s, OLD_F + i, old)
        most = greatest(_or_infinite(abs(new - old)), most)
    return highest(most)


@inline
def store_advantages(s: int, n: int, start: int, one: Floats, scales: Ints, p: Floats) -> float:
    """Write what a storage format leaves of the advantages of a run, as they are then used.

    Returns the largest of them, by size.
    """
    kind = int(one[F_KIND])
    rule = (one[F_FACTOR], one[F_POWER], one[F_LIMIT], one[F_BEYOND])
    scale, each, shift, divisor = one[F_SCALE_ADV], scales[2], p[P_SHIFT], p[P_SCALE]
    most = broadcast(0.0)
    for i in range(0, n, WIDTH):
        adv = _stored(load(s, ADV + i), kind, False, rule, scale, each, start + i)
        used = where(load_bits(s, COUNTS_BIT + (i >> 3)), (adv - shift) / divisor, 0.0)
        store(s, USED_F + i, used)
        most = greatest(_or_infinite(abs(used)), most)
    return highest(most)
