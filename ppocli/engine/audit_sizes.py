"""Histograms of |log_prob| and |log_ratio|: quantiles, shares and counts by powers of two."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppocli.kernels import audit_layout

if TYPE_CHECKING:
    from ppocli.core.report import Number
    from ppocli.engine.totals import Ints


def quantile(bins: Ints, percent: int) -> Number:
    """Return the middle of the bin that holds a quantile; None without tokens, 0 below 2^-40."""
    n = int(bins.sum())
    if not n:
        return None
    place = int(np.searchsorted(np.cumsum(bins), max(-(-n * percent // 100), 1)))
    return (_bin_start(place) + _bin_start(place + 1)) / 2.0 if place else 0.0


def _bin_start(place: int) -> float:
    """Return the lower end of a bin."""
    octave, part = divmod(place, audit_layout.SIZES_PER_OCTAVE)
    return math.ldexp(1.0 + part / audit_layout.SIZES_PER_OCTAVE, audit_layout.SIZE_LOWEST + octave)


def below(bins: Ints, size: float) -> int:
    """Return how many values are smaller than a size: exact for powers of two, else to within a bin."""
    if not size > 0.0 or not math.isfinite(size):
        return 0
    mantissa, exponent = math.frexp(size)
    octave = exponent - 1 - audit_layout.SIZE_LOWEST
    part = int((2.0 * mantissa - 1.0) * audit_layout.SIZES_PER_OCTAVE)
    return int(bins[: max(octave * audit_layout.SIZES_PER_OCTAVE + part, 0)].sum())


def octaves(bins: Ints) -> tuple[tuple[float, int], ...]:
    """Return counts by powers of two, without empty ends."""
    counts = bins.reshape(-1, audit_layout.SIZES_PER_OCTAVE).sum(axis=1)
    full = np.flatnonzero(counts)
    if not full.size:
        return ()
    out = []
    for k in range(int(full[0]), int(full[-1]) + 1):
        start = math.ldexp(1.0, audit_layout.SIZE_LOWEST + k) if k else 0.0
        out.append((start, int(counts[k])))
    return tuple(out)
