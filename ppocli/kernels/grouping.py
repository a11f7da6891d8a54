"""Tokens sorted by group, and rows of partial results added to the totals of the group they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.kernels._jit import jit
from ppocli.kernels.layout import HISTOGRAM_BINS, HISTOGRAM_HALF, HISTOGRAM_PER_NAT, Bytes, Floats, Ints
from ppocli.kernels.merge import NAN, NEGINF, POSINF, add_rows, merge_moments
from ppocli.kernels.sequence import (
    COUNT,
    FLAGS,
    HI,
    LO,
    LOSS_FLAGS,
    N_SUMS,
    OF_LOG_RATIO,
    OF_LOSS,
    RATIO_FLAGS,
    S_EMPTY,
    S_GEO,
    S_MEAN,
    S_PRODUCT,
    S_TOTAL,
    S_WHOLE,
    STORED,
    VALID,
    X_GEO,
    X_LENGTH,
    X_LOG_RATIO,
    terms_of,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Order: TypeAlias = NDArray[np.int32]

BINS_PER_GROUP = 1 << 14
"""A key of a sparse histogram is the number of the group times this, plus the bin."""

CLOSED_TOGETHER = 1 << 12
"""Sequences that are closed at a time. A matter of memory, never of results."""

_LAST = HISTOGRAM_HALF + 1.0
_ROUNDER = 1.5 * 2.0**52


@jit
def _order(groups: Order, ends: Ints, order: Order) -> None:
    for token in range(groups.size):
        at = ends[groups[token]]
        order[at] = token
        ends[groups[token]] = at + 1


def order_of(groups: Order, counts: Ints) -> Order:
    """Return the tokens sorted by group, those of a group in stored order.

    Parameters
    ----------
    groups : (n,) int32
    counts : (n_groups,) int64
        How many tokens each group has.

    Returns
    -------
    (n,) int32
    """
    order = np.empty(groups.size, dtype=np.int32)
    _order(groups, np.cumsum(counts) - counts, order)
    return order


@jit
def _merge_owned(
    sums: Floats, squares: Floats, owners: Ints, hi: Floats, lo: Floats, m2: Floats, nonfinite: Ints
) -> None:
    for b in range(owners.size):
        g = owners[b]
        merge_moments(sums[b : b + 1], squares[b : b + 1], hi[g], lo[g], m2[g])
        add_rows(sums[b : b + 1], hi[g], lo[g], nonfinite[g])


def merge_owned(
    sums: Floats, squares: Floats, owners: Ints, hi: Floats, lo: Floats, m2: Floats, nonfinite: Ints
) -> None:
    """Add the row of each block, in order, to the totals of its owner.

    Parameters
    ----------
    sums : (n_blocks, n_sums) float64; squares : (n_blocks, n_moments, 2) float64
    owners : (n_blocks,) int64
    hi, lo, m2, nonfinite : (n_groups, ...)
        As in `ppocli.kernels.merge.merge_blocks`, one for each group.
    """
    _merge_owned(sums, squares, owners, hi, lo, m2, nonfinite)


@jit
def _add_owned(rows: Floats, owners: Ints, hi: Floats, lo: Floats, nonfinite: Ints) -> None:
    """Add each row of sums, in order, to the totals of its owner, in double-double."""
    for r in range(owners.size):
        g = owners[r]
        add_rows(rows[r : r + 1], hi[g], lo[g], nonfinite[g])


@jit
def _count_bins(
    new: Floats, old: Floats, counted: Bytes, stops: Ints, owners: Ints, keys: Ints, counts: Ints
) -> int:
    bins = np.zeros(HISTOGRAM_BINS, dtype=np.int64)
    n = start = 0
    for k in range(owners.size):
        low, high = HISTOGRAM_BINS, -1
        for token in range(start, stops[k]):
            if counted[token] != 0 and abs(new[token]) < np.inf and abs(old[token]) < np.inf:
                far = min(_LAST, max(-_LAST, (new[token] - old[token]) * HISTOGRAM_PER_NAT))
                # Rounded to even as the kernel of the loss does it: by adding a number without a fraction.
                at = int((far + (_ROUNDER + _LAST)) - _ROUNDER)
                bins[at] += 1
                low, high = min(low, at), max(high, at)
        start = stops[k]
        for at in range(low, high + 1):
            if bins[at] > 0:
                keys[n], counts[n] = owners[k] * BINS_PER_GROUP + at, bins[at]
                n += 1
                bins[at] = 0
    return n


def count_bins(new: Floats, old: Floats, counted: Bytes, stops: Ints, owners: Ints) -> tuple[Ints, Ints]:
    """Return the bins of the log-ratios of some groups that hold a token, and how many.

    Parameters
    ----------
    new, old : (n,) float64
        Log-probs; tokens where one is not finite are left out.
    counted : (n,) uint8
    stops, owners : (n_groups,) int64
        Where the tokens of each group end, and its number; ascending.

    Returns
    -------
    keys, counts : (m,) int64
        Ascending; a key is the number of the group times `BINS_PER_GROUP`, plus the bin.
    """
    size = int(np.minimum(np.diff(stops, prepend=0), HISTOGRAM_BINS).sum())
    keys, counts = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    n = _count_bins(new, old, counted, stops, owners, keys, counts)
    return keys[:n].copy(), counts[:n].copy()


@jit
def _merge_bins(keys: Ints, counts: Ints, more: Ints, added: Ints, out_keys: Ints, out_counts: Ints) -> int:
    i = j = n = 0
    while i < keys.size or j < more.size:
        if j >= more.size or (i < keys.size and keys[i] < more[j]):
            out_keys[n], out_counts[n] = keys[i], counts[i]
            i += 1
        elif i >= keys.size or more[j] < keys[i]:
            out_keys[n], out_counts[n] = more[j], added[j]
            j += 1
        else:
            out_keys[n], out_counts[n] = keys[i], counts[i] + added[j]
            i += 1
            j += 1
        n += 1
    return n


def merge_bins(keys: Ints, counts: Ints, more: Ints, added: Ints) -> tuple[Ints, Ints]:
    """Return two sparse histograms, each with ascending keys, as one."""
    if not keys.size:
        return more, added
    out_keys: Ints = np.empty(keys.size + more.size, dtype=np.int64)
    out_counts: NDArray[np.int64] = np.empty_like(out_keys)
    n = _merge_bins(keys, counts, more, added, out_keys, out_counts)
    if n < out_keys.size // 2:
        return out_keys[:n].copy(), out_counts[:n].copy()
    return out_keys[:n], out_counts[:n]


def close_owned(
    order: Ints, owners: Ints, states: Floats, floor: float, ceiling: float, hi: Floats, lo: Floats,
    nonfinite: Ints, terms: Ints, extremes: Floats,
) -> None:  # fmt: skip
    """Add finished sequences to the sums over sequences of their owners, in the order given.

    Parameters
    ----------
    order, owners : (n,) int64
        Rows of `states`, and whose they are.
    hi, lo, nonfinite, terms, extremes : (n_groups, ...)
        As in `ppocli.kernels.sequence.close_rows`, one for each group.
    """
    for at in range(0, order.size, CLOSED_TOGETHER):
        part = slice(at, at + CLOSED_TOGETHER)
        _close(order[part], owners[part], states, floor, ceiling, hi, lo, nonfinite, terms, extremes)


def _close(
    order: Ints, owners: Ints, states: Floats, floor: float, ceiling: float, hi: Floats, lo: Floats,
    nonfinite: Ints, terms: Ints, extremes: Floats,
) -> None:  # fmt: skip
    _keep_extremes(extremes[:, X_LENGTH], owners, states[order, STORED])
    is_empty = states[order, VALID] == 0.0
    np.add.at(hi[:, S_EMPTY], owners[is_empty], 1.0)
    order, owners = order[~is_empty], owners[~is_empty]
    rows = np.zeros((2 * order.size, N_SUMS))
    terms_of(order, states, floor, ceiling, rows)
    _add_owned(rows, np.repeat(owners, 2), hi, lo, nonfinite)
    flags = states[order, FLAGS].astype(np.int64)
    _tally(flags, owners, terms)
    n = states[order, COUNT + OF_LOG_RATIO]
    whole = (n > 0.0) & (flags & sum(RATIO_FLAGS) == 0)
    np.add.at(hi[:, S_WHOLE], owners[whole], 1.0)
    order, owners, n = order[n > 0.0], owners[n > 0.0], n[n > 0.0]
    total = states[order, HI + OF_LOG_RATIO] + states[order, LO + OF_LOG_RATIO]
    _keep_extremes(extremes[:, X_LOG_RATIO], owners, total)
    _keep_extremes(extremes[:, X_GEO], owners, total / n)


def _keep_extremes(extremes: Floats, owners: Ints, values: Floats) -> None:
    """Lower the smallest and raise the largest value of each owner."""
    np.minimum.at(extremes[:, 0], owners, values)
    np.maximum.at(extremes[:, 1], owners, values)


def _tally(flags: Ints, owners: Ints, terms: Ints) -> None:
    """Count the terms that sequences' values which are not finite would have made NaN or infinite."""
    marked = np.flatnonzero(flags)
    flags, owners = flags[marked], owners[marked]
    for (nan, posinf, neginf), sums in (
        (RATIO_FLAGS, (S_GEO, S_PRODUCT, S_TOTAL + OF_LOG_RATIO)),
        (LOSS_FLAGS, (S_MEAN + OF_LOSS, S_TOTAL + OF_LOSS)),
    ):
        up, down = flags & posinf != 0, flags & neginf != 0
        is_nan = (flags & nan != 0) | (up & down)
        for which in sums:
            np.add.at(terms[:, which, NAN], owners[is_nan], 1)
            np.add.at(terms[:, which, POSINF], owners[up & ~is_nan], 1)
            if which not in (S_GEO, S_PRODUCT):  # exp(-inf) is 0, which is finite
                np.add.at(terms[:, which, NEGINF], owners[down & ~is_nan], 1)
