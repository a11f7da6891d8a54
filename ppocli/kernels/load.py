"""Loading of stored columns, a run of tokens at a time: widened to float64, with 0 in place of masked tokens.

Columns are given by address with a flag for their type, so that the loops over them are compiled once and not
for every combination of types, and so that equal values give equal bits whatever type holds them.
"""

from __future__ import annotations

import numpy as np

from ppocli.kernels._jit import inline
from ppocli.kernels.layout import CENTRES, COLUMN_LANES, LANES, RUN, WIDTH, Ints
from ppocli.kernels.memory import (
    add_to,
    count_to,
    load,
    load_flags,
    load_float32,
    load_one,
    lower_to,
    raise_to,
    store,
    store_one,
)
from ppocli.kernels.vector import (
    Vector,
    any_of,
    broadcast,
    fma,
    greatest,
    least,
    number_of,
    total,
    where,
)

LANES_PER_COLUMN = WIDTH * len(COLUMN_LANES)
SUM, SQUARE, LOW, HIGH, ZEROS, POSITIVE = (WIDTH * k for k in range(len(COLUMN_LANES)))


@inline
def count_flags(live: int, n: int) -> int:
    """Return how many of n tokens count."""
    counted = 0
    for i in range(0, n, WIDTH):
        counted += number_of(load_flags(live, i))
    return counted


@inline
def read(address: int, double: int, at: int, whole: int, tails: int, c: int) -> Vector:
    """Read eight values of a column from a token on; those behind the last whole vector from its tail."""
    if at == whole:
        return load(tails, c * WIDTH)
    return load(address, at) if double else load_float32(address, at)


@inline
def set_centres(
    addresses: Ints, doubles: int, tails: int, whole: int, has: int, start: int, live: int, s: int
) -> int:
    """Set the centre of each column: its mean over the first vector with a token that counts.

    Centres only keep second moments from cancelling. Returns where that vector stands in the run.
    """
    i = 0
    while not any_of(load_flags(live, i)):
        i += WIDTH
    on = load_flags(live, i)
    for c in range(addresses.size):
        if has >> c & 1:
            x = read(addresses[c], doubles >> c & 1, start + i, whole, tails, c)
            store_one(s, CENTRES + c, total(where(on, x, 0.0)) / number_of(on))
    return i


@inline
def _load_column(
    address: int, double: int, tails: int, whole: int, start: int, n: int, live: int, s: int, c: int
) -> None:
    """Load a column into its row; add to its sum, second moment, extremes and counts."""
    lanes, middle = LANES + c * LANES_PER_COLUMN, load_one(s, CENTRES + c)
    added = moment = broadcast(0.0)
    low, high = broadcast(np.inf), broadcast(-np.inf)
    zeros = positive = 0
    for i in range(0, n, WIDTH):
        on = load_flags(live, i)
        x = where(on, read(address, double, start + i, whole, tails, c), 0.0)
        store(s, c * RUN + i, x)
        added += x
        off = where(on, x - middle, 0.0)
        moment = fma(off, off, moment)
        low = least(where(on, x, np.inf), low)
        high = greatest(where(on, x, -np.inf), high)
        zeros += number_of(on & (x == 0.0))
        positive += number_of(x > 0.0)
    add_to(s, lanes + SUM, added)
    add_to(s, lanes + SQUARE, moment)
    lower_to(s, lanes + LOW, low)
    raise_to(s, lanes + HIGH, high)
    count_to(s, lanes + ZEROS, zeros)
    count_to(s, lanes + POSITIVE, positive)


@inline
def load_columns(
    addresses: Ints,
    doubles: int,
    tails: int,
    whole: int,
    has: int,
    start: int,
    n: int,
    live: int,
    s: int,
) -> None:
    """Load the n tokens at `start` of the columns in `has` into their rows.

    Parameters
    ----------
    addresses : (N_COLUMNS,) int64
        Of a column's first value: float64 where the bit of `doubles` is set, else float32.
    tails : (N_COLUMNS, WIDTH) float64; whole : int
        What stands behind the last whole vector of the span, and where.
    live : int
        Address of the flags.
    s : (SCRATCH,) float64
    """
    for c in range(addresses.size):
        if has >> c & 1:
            _load_column(addresses[c], doubles >> c & 1, tails, whole, start, n, live, s, c)
