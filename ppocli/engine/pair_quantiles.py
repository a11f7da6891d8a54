"""Quantiles of a - b and of its absolute value, from the histogram that the kernels fill."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ppocli.core.drift_partials import (
    FIRST_BIN,
    LARGE_BIN,
    LOWEST_OCTAVE,
    NEGATIVE_BINS,
    OCTAVE_BINS,
    bin_bounds,
)

if TYPE_CHECKING:
    from ppocli.engine.pair_totals import Ints, PairTotals


class Counted(Protocol):
    """What a quantile is taken from."""

    totals: PairTotals

    @property
    def n(self) -> int:
        """Tokens whose values are both finite."""

    def total(self, name: str) -> float:
        """Return a sum."""

    def extreme(self, name: str) -> tuple[float, float]:
        """Return the smallest and largest value of a quantity."""


def sizes_of(bins: Ints) -> Ints:
    """Return the counts of |diff| by bin."""
    return bins[: LARGE_BIN + 1] + bins[NEGATIVE_BINS : NEGATIVE_BINS + LARGE_BIN + 1]


def beyond(bound: float) -> int:
    """Return the first bin above a power of two."""
    return FIRST_BIN + (int(math.log2(bound)) - LOWEST_OCTAVE) * OCTAVE_BINS


def abs_quantile(s: Counted, percent: int) -> tuple[float, str | None]:
    """Return a quantile of |diff|, the middle of its bin within the extremes, or why it is not known."""
    if not s.n:
        return math.nan, None
    sizes, zeros = sizes_of(s.totals.bins), int(s.total("equal"))
    target = max(-(-s.n * percent // 100), 1)
    if target <= zeros:
        return 0.0, None
    index = int(np.searchsorted(np.cumsum(sizes), target))
    low, high = s.extreme("diff")
    return _middle(index, *_size_range(low, high)), "beyond the 1,024 nats that quantiles are kept for"


def _size_range(low: float, high: float) -> tuple[float, float]:
    """Return the smallest that |diff| can be and the largest that it is."""
    return (max(low, -high, 0.0), max(-low, high))


def _middle(index: int, least: float, most: float) -> float:
    """Return the middle of a bin of |diff|, held within its extremes; NaN in the last bin."""
    if index == LARGE_BIN:
        return most if least >= bin_bounds(LARGE_BIN)[0] and least == most else math.nan
    low, high = bin_bounds(index)
    return min(max((low + high) / 2.0, least), most)


def signed_median(s: Counted) -> float:
    """Return the median of diff, as `abs_quantile` does."""
    if not s.n:
        return math.nan
    bins = s.totals.bins
    negative = bins[NEGATIVE_BINS : NEGATIVE_BINS + LARGE_BIN + 1]
    below, target = int(negative.sum()), max(-(-s.n // 2), 1)
    low, high = s.extreme("diff")
    if target <= below:
        # Counted from the largest |diff| of the negative ones on.
        index = LARGE_BIN - int(np.searchsorted(np.cumsum(negative[::-1]), target))
        return -_middle(index, max(-high, 0.0), -low)
    zeros = int(s.total("equal"))
    if target <= below + zeros:
        return 0.0
    index = int(np.searchsorted(np.cumsum(bins[: LARGE_BIN + 1]), target - below))
    return _middle(index, max(low, 0.0), high)
