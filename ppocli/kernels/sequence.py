"""Sums per sequence and per group: pieces are added in stored order, each sum as a pair of float64.

A sequence is closed when it cannot go on: rows of lists at their end, everything else at the end of the file
or when too many are open. Closing turns it into one term of every sum over sequences.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ppocli.core import partials
from ppocli.core.partials import KEYED, PIECE, SEQUENCE_SUM
from ppocli.kernels._jit import jit
from ppocli.kernels.layout import Bytes, Floats, Ints
from ppocli.kernels.math import dd_add, exp
from ppocli.kernels.merge import NAN, NEGINF, POSINF
from ppocli.kernels.merge import add_rows as add_rows_of_sums

Slots: TypeAlias = NDArray[np.int32]
Targets: TypeAlias = tuple[float, float, Floats, Floats, Ints, Ints, Floats, Ints]

N_KEYED = len(KEYED)
STORED, VALID, COUNT, PIECE_SUM = 0, 1, 2, 2 + N_KEYED
HI, LO = 2 + N_KEYED, 2 + 2 * N_KEYED
ADV_MIN, ADV_MAX, FLAGS, FIRST_ROW = range(-4, 0)
N_STATE = 6 + 3 * N_KEYED
"""A state: counts, sums as pairs, the range of the advantages, flags and the row of its first token.

A narrow state keeps the first n of `KEYED` alone, 6 + 3 n numbers in the same order; `HI` is 2 + n there and
`LO` 2 + 2 n.
"""
PIECE_ADV_MIN, PIECE_ADV_MAX, PIECE_FLAGS = (PIECE.index(name) for name in ("adv_min", "adv_max", "flags"))
OF_LOSS, OF_LOG_RATIO = KEYED.index("loss"), KEYED.index("log_ratio")
OF_SQUARES = 1
"""Where `add_moments` keeps squares about the mean; sums are at 0."""

S_SEQUENCES, S_EMPTY, S_COUNT, S_MEAN, S_TOTAL = (
    SEQUENCE_SUM[name] for name in ("n_sequences", "n_empty", "n_loss", "loss_mean", "loss_sum")
)
S_WHOLE, S_GEO, S_PRODUCT, S_OUTSIDE = (
    SEQUENCE_SUM[name] for name in ("n_whole_ratio", "ratio_geo", "ratio_product", "outside")
)
N_SUMS = len(SEQUENCE_SUM)

X_GEO, X_LOG_RATIO, X_LENGTH, X_EMPTY = 0, 1, 2, 3
N_EXTREMES = 4
"""Extremes over sequences: of the mean log-ratio, of the summed one, of the stored length, and of the row
where one without a valid token begins."""

RATIO_FLAGS = partials.FLAG_RATIO_NAN, partials.FLAG_RATIO_POSINF, partials.FLAG_RATIO_NEGINF
LOSS_FLAGS = partials.FLAG_LOSS_NAN, partials.FLAG_LOSS_POSINF, partials.FLAG_LOSS_NEGINF
_NO_BYTES = np.zeros(0, dtype=np.uint8)
_AT_ONCE = 1 << 14
"""States that are looked at together where a table is gone through: a matter of memory."""


# ------------------------------------------------------------------------------------------- pieces


@jit
def _add_pieces(places: Ints, pieces: Floats, states: Floats) -> None:
    """Add pieces, in order, to the states at these places; none at place -1. The states may be narrow."""
    n_keyed = (states.shape[1] - 6) // 3
    hi, lo = 2 + n_keyed, 2 + 2 * n_keyed
    for j in range(places.size):
        at = places[j]
        if at >= 0:
            for k in range(COUNT + n_keyed):
                states[at, k] += pieces[j, k]
            for k in range(n_keyed):
                states[at, hi + k], states[at, lo + k] = dd_add(
                    states[at, hi + k], states[at, lo + k], pieces[j, PIECE_SUM + k], 0.0
                )
            states[at, ADV_MIN] = min(states[at, ADV_MIN], pieces[j, PIECE_ADV_MIN])
            states[at, ADV_MAX] = max(states[at, ADV_MAX], pieces[j, PIECE_ADV_MAX])
            states[at, FLAGS] = int(states[at, FLAGS]) | int(pieces[j, PIECE_FLAGS])


def add_pieces(places: Ints, pieces: Floats, states: Floats) -> None:
    """Add pieces, in order, to the states at these places; none at place -1.

    Parameters
    ----------
    places : (n_pieces,) int64; pieces : (n_pieces, N_PIECE) float64; states : (n_states, N_STATE) float64
    """
    _add_pieces(places, pieces, states)


@jit
def _add_moments(places: Ints, moments: Floats, states: Floats) -> None:
    """Add counts, sums and squares about the mean, in order, to the states at these places."""
    n_keyed = (states.shape[1] - 6) // 3
    hi, lo = 2 + n_keyed, 2 + 2 * n_keyed
    for j in range(places.size):
        at, count = places[j], moments[j, 0]
        if at >= 0 and count > 0.0:
            n, total, square = states[at, COUNT], moments[j, 1], moments[j, 2]
            if n > 0.0:
                delta = (total / count - states[at, hi] / n) - states[at, lo] / n
                square += delta * delta * (n / (n + count)) * count
            states[at, COUNT] = n + count
            states[at, hi], states[at, lo] = dd_add(states[at, hi], states[at, lo], total, 0.0)
            states[at, hi + OF_SQUARES], states[at, lo + OF_SQUARES] = dd_add(
                states[at, hi + OF_SQUARES], states[at, lo + OF_SQUARES], square, 0.0
            )
            states[at, ADV_MIN] = min(states[at, ADV_MIN], moments[j, 3])
            states[at, ADV_MAX] = max(states[at, ADV_MAX], moments[j, 4])
        if at >= 0:
            states[at, STORED] += moments[j, 5]
            states[at, VALID] += moments[j, 6]


def add_moments(places: Ints, moments: Floats, states: Floats) -> None:
    """Merge moments, in order, into the states at these places (Chan et al. 1979); none at place -1.

    Parameters
    ----------
    places : (n,) int64
    moments : (n, 7) float64
        Number, sum, sum of squares about their own mean, smallest and largest of some values; how many values
        there are with those that are not finite, and how many of all of them are infinite.
    states : (n_states, width_of(2) or more) float64
        As `moments_of` reads them.
    """
    _add_moments(places, moments, states)


def moments_of(states: Floats) -> Floats:
    """Return what `add_moments` has made of each state, (n_states, 7) float64, as it takes them."""
    n_keyed = (states.shape[1] - 6) // 3
    hi, lo = 2 + n_keyed, 2 + 2 * n_keyed
    total = states[:, hi] + states[:, lo]
    square = states[:, hi + OF_SQUARES] + states[:, lo + OF_SQUARES]
    edges, counts = states[:, [ADV_MIN, ADV_MAX]], states[:, [STORED, VALID]]
    return np.column_stack([states[:, COUNT], total, square, edges, counts])


def width_of(n_keyed: int) -> int:
    """Return the width of states that keep the first so many of `KEYED`."""
    return 6 + 3 * n_keyed


def widened(states: Floats, width: int = N_STATE) -> Floats:
    """Return narrow states with as many places as states of this width have."""
    n, more = ((one - 6) // 3 for one in (states.shape[1], width))
    out = np.zeros((states.shape[0], width))
    for at in range(3):  # numbers, high parts, low parts
        out[:, 2 + at * more :][:, :n] = states[:, 2 + at * n :][:, :n]
    out[:, :2], out[:, -4:] = states[:, :2], states[:, -4:]
    return out


def _new_states(first_rows: Ints, width: int = N_STATE) -> Floats:
    """Return states without a token that begin in these rows."""
    states = np.zeros((first_rows.size, width))
    states[:, ADV_MIN], states[:, ADV_MAX], states[:, FIRST_ROW] = np.inf, -np.inf, first_rows
    return states


def add_rows(rows: Ints, pieces: Floats, state: Floats, open_row: Ints, *targets: *Targets) -> None:
    """Add pieces of sequences that follow each other, one a row; a new row closes the sequence before it.

    Parameters
    ----------
    rows : (n_pieces,) int64
        The row of each piece.
    pieces : (n_pieces, N_PIECE) float64
    state : (N_STATE,) float64; open_row : (1,) int64
        The sequence that is open; row -1: none. Both are replaced by what is open afterwards.
    targets
        What follows `states` in `close_rows`.
    """
    begins = np.flatnonzero(np.diff(rows, prepend=open_row[0]))
    states = np.concatenate([state[None], _new_states(rows[begins])])
    places = np.zeros(rows.size, dtype=np.int64)
    places[begins] = 1
    _add_pieces(np.cumsum(places), pieces, states)
    started = 1 if open_row[0] < 0 else 0
    close_rows(np.arange(started, states.shape[0] - 1), states, *targets)
    state[:], open_row[0] = states[-1], rows[-1]


# ------------------------------------------------------------------------------------------- closing


@jit
def terms_of(order: Ints, states: Floats, floor: float, ceiling: float, rows: Floats) -> None:
    """Write what each sequence with a token adds to every sum: a row, and one for the low parts."""
    for j in range(order.size):
        at = order[j]
        rows[2 * j, S_SEQUENCES] = 1.0
        for k in range(N_KEYED):
            n = states[at, COUNT + k]
            if n > 0.0:
                rows[2 * j, S_COUNT + k] = 1.0
                for low in range(2):
                    part = states[at, HI + N_KEYED * low + k]
                    rows[2 * j + low, S_MEAN + k] = part / n
                    rows[2 * j + low, S_TOTAL + k] = part
        n = states[at, COUNT + OF_LOG_RATIO]
        if n > 0.0:
            power = states[at, HI + OF_LOG_RATIO] + states[at, LO + OF_LOG_RATIO]
            rows[2 * j, S_PRODUCT] = power
            rows[2 * j, S_GEO] = power / n
            for which in range(S_GEO, S_GEO + 2):
                rows[2 * j, which] = exp(rows[2 * j, which])
            rows[2 * j, S_OUTSIDE] = rows[2 * j, S_GEO] < floor or rows[2 * j, S_GEO] > ceiling


def close_rows(
    order: Ints,
    states: Floats,
    floor: float,
    ceiling: float,
    hi: Floats,
    lo: Floats,
    nonfinite: Ints,
    terms: Ints,
    extremes: Floats,
    places: Ints,
) -> None:
    """Add finished sequences to the sums over sequences, in the order given.

    Parameters
    ----------
    order : (n,) int64
        Rows of `states`.
    states : (n_states, N_STATE) float64
    floor, ceiling : float
        The clip interval, for the vote of the geometric ratio.
    hi, lo : (n_sequence_sums,) float64; nonfinite, terms : (n_sequence_sums, 3) int64
        `nonfinite` counts sums that overflow, `terms` what values that are not finite would have made.
    extremes : (N_EXTREMES, 2) float64; places : (N_EXTREMES, 2) int64
        Smallest and largest, and the row where that sequence begins; the first of equal ones.
    """
    first, is_empty = states[order, FIRST_ROW], states[order, VALID] == 0.0
    _keep_extremes(X_LENGTH, states[order, STORED], first, extremes, places)
    _keep_extremes(X_EMPTY, first[is_empty], first[is_empty], extremes, places)
    hi[S_EMPTY] += is_empty.sum()
    order = order[~is_empty]
    rows = np.zeros((2 * order.size, N_SUMS))
    terms_of(order, states, floor, ceiling, rows)
    add_rows_of_sums(rows, hi, lo, nonfinite)
    flags = states[order, FLAGS].astype(np.int64)
    _tally(flags, terms)
    has_ratio = states[order, COUNT + OF_LOG_RATIO] > 0.0
    hi[S_WHOLE] += (has_ratio & (flags & sum(RATIO_FLAGS) == 0)).sum()
    order = order[has_ratio]
    total = states[order, HI + OF_LOG_RATIO] + states[order, LO + OF_LOG_RATIO]
    first = states[order, FIRST_ROW]
    _keep_extremes(X_LOG_RATIO, total, first, extremes, places)
    _keep_extremes(X_GEO, total / states[order, COUNT + OF_LOG_RATIO], first, extremes, places)


def close_sequence(state: Floats, *targets: *Targets) -> None:
    """Add one finished sequence to the sums over sequences; parameters as in `close_rows`."""
    close_rows(np.zeros(1, dtype=np.int64), state[None], *targets)


def _keep_extremes(which: int, values: Floats, rows: Floats, extremes: Floats, places: Ints) -> None:
    """Keep the smallest and the largest value where they go further, and where they stand."""
    if values.size:
        low, high = int(values.argmin()), int(values.argmax())
        if values[low] < extremes[which, 0]:
            extremes[which, 0], places[which, 0] = values[low], rows[low]
        if values[high] > extremes[which, 1]:
            extremes[which, 1], places[which, 1] = values[high], rows[high]


def _tally(flags: Ints, terms: Ints) -> None:
    """Count the terms that sequences' values which are not finite would have made NaN or infinite."""
    if not flags.any():
        return
    for (nan, posinf, neginf), sums in (
        (RATIO_FLAGS, (S_GEO, S_PRODUCT, S_TOTAL + OF_LOG_RATIO)),
        (LOSS_FLAGS, (S_MEAN + OF_LOSS, S_TOTAL + OF_LOSS)),
    ):
        up, down = flags & posinf != 0, flags & neginf != 0
        is_nan = (flags & nan != 0) | (up & down)
        for which in sums:
            terms[which, NAN] += is_nan.sum()
            terms[which, POSINF] += (up & ~is_nan).sum()
            if which not in (S_GEO, S_PRODUCT):  # exp(-inf) is 0, which is finite
                terms[which, NEGINF] += (down & ~is_nan).sum()


# ------------------------------------------------------------------------------------------- keys


@jit
def _enter(
    table: Slots,
    keys: Ints,
    n: int,
    limit: int,
    first: Ints,
    second: Ints,
    known: Bytes,
    places: Ints,
) -> tuple[int, int]:
    """Find the place of each key, entering those not yet there while there are fewer than `limit`.

    Open addressing with linear probing; place -1 where `known` is 0. Returns how many keys there are then,
    and for how many of the given ones there was a place.
    """
    last = table.size - 1
    for j in range(first.size):
        places[j] = -1
        if known.size == 0 or known[j] != 0:
            mixed = np.uint64(first[j]) * np.uint64(0x9E3779B97F4A7C15)
            mixed += np.uint64(second[j]) * np.uint64(0xC2B2AE3D27D4EB4F)
            mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            slot = np.int64(mixed >> np.uint64(32)) & last
            at = table[slot]
            while at >= 0 and (keys[at, 0] != first[j] or keys[at, 1] != second[j]):
                slot = (slot + 1) & last
                at = table[slot]
            if at < 0:
                if n >= limit:
                    return n, j
                at = table[slot] = n
                keys[n, 0], keys[n, 1] = first[j], second[j]
                n += 1
            places[j] = at
    return n, first.size


def rebuild(table: Slots, keys: Ints, n: int) -> None:
    """Enter the first n rows of `keys` into a table emptied before."""
    table[:] = -1
    first, second = keys[:n].T.copy()
    _enter(table, keys, 0, n, first, second, _NO_BYTES, np.empty(n, dtype=np.int64))


def find(table: Slots, keys: Ints, first: int, second: int) -> int:
    """Return the row of a key, or -1."""
    place = np.empty(1, dtype=np.int64)
    _, found = _enter(table, keys, 0, 0, np.array([first]), np.array([second]), _NO_BYTES, place)
    return int(place[0]) if found else -1


def enter(
    table: Slots, keys: Ints, states: Floats, n: int, limit: int, first: Ints, second: Ints, known: Bytes
) -> tuple[Ints, int]:
    """Return the place of each key (-1 where `known` is 0), entering new ones, and how many there are then.

    Stops before a key that would need more than `limit` states: fewer places are returned.
    """
    places = np.empty(first.size, dtype=np.int64)
    after, taken = _enter(table, keys, n, limit, first, second, known, places)
    states[n:after] = _new_states(np.zeros(after - n, dtype=np.int64), states.shape[1])
    return places[:taken], after


def add_keyed(
    table: Slots,
    keys: Ints,
    states: Floats,
    touched: Ints,
    n: int,
    limit: int,
    first: Ints,
    second: Ints,
    known: Bytes,
    rows: Ints,
    pieces: Floats,
    clock: int,
) -> tuple[int, int]:
    """Add pieces to the state of their key, which is entered at its first sight.

    Stops before a piece that would need more than `limit` states, and returns how many are in use and how
    many pieces were taken. Pieces whose id is null (`known` 0) are passed over.

    Parameters
    ----------
    table : (2^k,) int32; keys : (capacity, 2) int64
    states : (capacity, N_STATE) float64, or narrow
    touched : (capacity,) int64
        When each state was last added to, in pieces. Empty: nobody asks.
    rows : (n_pieces,) int64
        The row where each piece stands.
    """
    places = np.empty(first.size, dtype=np.int64)
    after, taken = _enter(table, keys, n, limit, first, second, known, places)
    there = np.flatnonzero(places[:taken] >= 0)
    places = places[:taken]
    fresh = there[places[there] >= n]
    sight = np.full(after - n, taken)
    np.minimum.at(sight, places[fresh] - n, fresh)
    states[n:after] = _new_states(rows[sight], states.shape[1])
    if touched.size:
        touched[n:after] = 0
        np.maximum.at(touched, places[there], clock + there)
    _add_pieces(places, pieces, states)
    return after, taken


def merge_keyed(
    table: Slots,
    keys: Ints,
    states: Floats,
    n: int,
    limit: int,
    other_keys: Ints,
    other_states: Floats,
    n_other: int,
) -> int:
    """Add one file's groups to those before; return how many there are, or -1 beyond `limit`.

    `other_states` may be narrower than `states`.
    """
    first, second = other_keys[:n_other].T.copy()
    others, places = other_states[:n_other], np.empty(n_other, dtype=np.int64)
    after, taken = _enter(table, keys, n, limit, first, second, _NO_BYTES, places)
    if taken < n_other:
        return -1
    states[n:after] = _new_states(others[places >= n, FIRST_ROW].astype(np.int64), states.shape[1])
    for start in range(0, n_other, _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        for part in _as_pieces(others[some]):
            _add_pieces(places[some], part, states)
    return after


def _as_pieces(states: Floats) -> Floats:
    """Return the high parts of states as pieces, and the low parts as pieces without a token."""
    n = (states.shape[1] - 6) // 3
    pieces = np.zeros((2, states.shape[0], len(PIECE)))
    pieces[0, :, : COUNT + n] = states[:, : COUNT + n]
    pieces[0, :, PIECE_SUM : PIECE_SUM + n] = states[:, 2 + n : 2 + 2 * n]
    pieces[1, :, PIECE_SUM : PIECE_SUM + n] = states[:, 2 + 2 * n : 2 + 3 * n]
    pieces[:, :, PIECE_ADV_MIN], pieces[:, :, PIECE_ADV_MAX] = states[:, ADV_MIN], states[:, ADV_MAX]
    pieces[0, :, PIECE_FLAGS] = states[:, FLAGS]
    return pieces


def mean_over_groups(states: Floats, n: int, which: int, pair: Floats) -> int:
    """Add the token mean of each of n groups to `pair`, (2,) float64; return how many have a token.

    A mean or a total that is not finite makes the pair (that, 0), NaN where both infinities meet.
    """
    n_keyed = (states.shape[1] - 6) // 3
    if which >= n_keyed:
        return 0
    hi, count = 2 + n_keyed + which, 0
    nonfinite = np.zeros((1, 3), dtype=np.int64)
    for start in range(0, n, _AT_ONCE):
        some = states[start : min(start + _AT_ONCE, n)]
        some = some[some[:, COUNT + which] > 0.0]
        means = some[:, [hi, hi + n_keyed]] / some[:, COUNT + which : COUNT + which + 1]
        add_rows_of_sums(means.reshape(-1, 1), pair[:1], pair[1:], nonfinite)
        count += some.shape[0]
    nan, up, down = nonfinite[0] > 0
    if nan or up or down:
        pair[:] = np.nan if nan or (up and down) else np.inf if up else -np.inf, 0.0
    return count
