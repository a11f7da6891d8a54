"""Histograms of log_ratio for reports: few bars, out of the fine bins that quantiles are taken from."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.objective_texts import clip_ends
from ppocli.core.report import Bin
from ppocli.kernels.layout import HISTOGRAM_HALF, HISTOGRAM_PER_NAT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.spec import LossSpec
    from ppocli.engine.totals import Totals

MOST_BARS = 40
"""Bars of the same width between the two open ones."""
TAIL = 5e-3
"""Share of the tokens that may stand in each open bar, where the clip interval does not reach further."""
MARGIN = 0.25
"""What is shown beyond the clip interval, as a part of its distance from 0."""
FARTHEST = 2.0
"""A bound of the clip interval further from 0, in nats, does not widen the histogram."""


def histograms(totals: Totals, spec: LossSpec) -> dict[str, tuple[Bin, ...]]:
    """Return the histograms of log_ratio and of |log_ratio| over the tokens where it is finite.

    Parameters
    ----------
    totals : Totals
        Their `bins` are 1/128 nat wide, centred on 0, with an open one at either end beyond 32 nats.
    spec : LossSpec
        The histogram of log_ratio reaches beyond its clip interval.

    Returns
    -------
    dict of name to tuple of Bin
        "log_ratio": bars of one width, an odd multiple of 1/128, so that one is centred on 0, with an open
        one at either end. "log_ratio_abs": the bars end next to powers of two, at (2^k - 1/2) / 128. The
        counts of each add up to the number of tokens. Empty where there is no such token.
    """
    if not totals.bins.any():
        return {}
    return {
        "log_ratio": _signed(totals.bins, *_shown(totals.bins, spec)),
        "log_ratio_abs": _sizes(totals.bins),
    }


def _shown(bins: NDArray[np.int64], spec: LossSpec) -> tuple[int, int]:
    """Return the first and the last fine bin that get a bar, counted from the one at 0."""
    reached, n = np.cumsum(bins), int(bins.sum())
    first = int(np.searchsorted(reached, math.floor(TAIL * n) + 1)) - HISTOGRAM_HALF - 1
    last = int(np.searchsorted(reached, n - math.floor(TAIL * n))) - HISTOGRAM_HALF - 1
    ends = [end for end in clip_ends(spec.to_dict()) if end is not None and abs(end) <= FARTHEST]
    wanted = [round((1.0 + MARGIN) * end * HISTOGRAM_PER_NAT) for end in ends]
    low, high = min([first, 0, *wanted]), max([last, 0, *wanted])
    return max(low, -HISTOGRAM_HALF), min(high, HISTOGRAM_HALF)


def _signed(bins: NDArray[np.int64], low: int, high: int) -> tuple[Bin, ...]:
    """Return bars as wide as needed for `MOST_BARS` of them to hold the fine bins from `low` to `high`."""
    half = 0
    while _group(high, half) - _group(low, half) >= MOST_BARS:
        half += 1
    width = 2 * half + 1
    farthest = (HISTOGRAM_HALF - half) // width  # the last bar that does not need part of the open end
    groups = range(max(_group(low, half), -farthest), min(_group(high, half), farthest) + 2)
    edges = [_edge(width * one - half) for one in groups]
    starts = [width * one - half + HISTOGRAM_HALF + 1 for one in groups]
    counts = [int(bins[start:end].sum()) for start, end in pairwise(starts)]
    inner = [Bin(a, b, n) for (a, b), n in zip(pairwise(edges), counts, strict=True)]
    below, above = int(bins[: starts[0]].sum()), int(bins[starts[-1] :].sum())
    return Bin(None, edges[0], below), *inner, Bin(edges[-1], None, above)


def _group(index: int, half: int) -> int:
    """Return which bar holds a fine bin; a bar holds as many as `half` on either side of its centre."""
    return (index + half) // (2 * half + 1)


def _edge(index: int) -> float:
    """Return the lower end of a fine bin."""
    return (index - 0.5) / HISTOGRAM_PER_NAT


def _sizes(bins: NDArray[np.int64]) -> tuple[Bin, ...]:
    """Return bars of |log_ratio| by octave, up to the last that holds a token; the last of all is open."""
    middle = HISTOGRAM_HALF + 1
    sizes = bins[middle:].copy()
    sizes[1:] += bins[:middle][::-1]
    starts = [0, *(2**k for k in range(HISTOGRAM_HALF.bit_length()))]
    ends = [*starts[1:], sizes.size]
    counts = [int(sizes[start:end].sum()) for start, end in zip(starts, ends, strict=True)]
    last = max(k for k, count in enumerate(counts) if count)
    lows = [0.0, *(_edge(start) for start in starts[1:])]
    highs = [*lows[1:], None]
    return tuple(map(Bin, lows[: last + 1], highs[: last + 1], counts[: last + 1]))
