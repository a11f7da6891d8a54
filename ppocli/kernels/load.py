"""Widening of stored columns to float64, one run of tokens at a time.

A column arrives as bytes with a flag for its type, so that the reductions are compiled once and not for every
combination of types, and so that equal values give equal bits whatever type holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.kernels._jit import jit
from ppocli.kernels.layout import N_COLUMNS, RUN

if TYPE_CHECKING:
    from ppocli.kernels.layout import Bytes, Floats, Ints


@jit()
def _load_run(
    column: Bytes, is_double: int, start: int, index: Ints, masked: bool, n: int, out: Floats
) -> tuple[int, int]:
    """Write n values of a column to `out`; return how many are not finite and how many positive."""
    if is_double:
        wide = column.view(np.float64)
        for k in range(n):
            out[k] = wide[start + index[k]] if masked else wide[start + k]
    else:
        narrow = column.view(np.float32)
        for k in range(n):
            out[k] = narrow[start + index[k]] if masked else narrow[start + k]
    bad = 0
    positive = 0
    for k in range(n):
        bad += (out[k] - out[k]) != 0.0
        positive += out[k] > 0.0
    return bad, positive


@jit()
def _select(
    mask: Bytes, start: int, starts: Ints, first: int, last: int, n: int, index: Ints, bounds: Ints
) -> int:
    """List the valid tokens of a run and where its pieces start among them; return how many there are."""
    n_pieces = max(last - first, 1)
    bounds[0] = 0
    for j in range(1, n_pieces):
        bounds[j] = starts[first + j] - start
    bounds[n_pieces] = n
    if mask.size == 0:
        return n
    kept = 0
    for j in range(n_pieces):
        lower = bounds[j]
        bounds[j] = kept
        for k in range(lower, bounds[j + 1]):
            index[kept] = k
            kept += mask[start + k]
    bounds[n_pieces] = kept
    return kept


@jit()
def gather(
    columns: tuple[Bytes, ...],
    doubles: int,
    mask: Bytes,
    start: int,
    stop: int,
    wanted: int,
    log_prob_columns: int,
    starts: Ints,
    first: int,
    last: int,
    s: Floats,
    index: Ints,
    bounds: Ints,
) -> tuple[int, int, int]:
    """Load the valid tokens of a run into the column rows of scratch.

    Parameters
    ----------
    columns : tuple of N_COLUMNS (bytes,) uint8
        float64 where the bit of `doubles` is set, else float32.
    mask : (n_tokens,) or (0,) uint8
    start, stop : int
        The run's tokens.
    wanted, log_prob_columns : int
        Columns to load, and which of them hold log-probs, as bits.
    starts, first, last
        Where pieces start; pieces first to last - 1 begin in this run, the first at its start.
    bounds : (RUN + 1,) int64
        Written: where each piece starts among the valid tokens.

    Returns
    -------
    n, bad, positive : int
        Valid tokens, values that are not finite, log-probs above 0.
    """
    n = _select(mask, start, starts, first, last, stop - start, index, bounds)
    bad = 0
    positive = 0
    for c in range(N_COLUMNS):
        if wanted >> c & 1:
            row = s[c * RUN : (c + 1) * RUN]
            wrong, above = _load_run(columns[c], doubles >> c & 1, start, index, mask.size > 0, n, row)
            bad += wrong
            if log_prob_columns >> c & 1:
                positive += above
    return n, bad, positive
