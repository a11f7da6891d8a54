"""Sums per sequence and per group: pieces are added in stored order, each sequence as a pair of float64.

A sequence is closed when it cannot go on: rows of lists at their end, everything else at the end of the file
or when too many are open. Closing turns it into one term of every sum over sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.partials import (
    FLAG_LOSS_NAN,
    FLAG_LOSS_NEGINF,
    FLAG_LOSS_POSINF,
    FLAG_RATIO_NAN,
    FLAG_RATIO_NEGINF,
    FLAG_RATIO_POSINF,
    KEYED,
    PIECE,
    SEQUENCE_SUM,
)
from ppocli.kernels._jit import jit
from ppocli.kernels.math import dd_add, exp
from ppocli.kernels.merge import NAN, NEGINF, POSINF, add_to

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.kernels.layout import Bytes, Floats, Ints

N_KEYED = len(KEYED)
STORED, VALID, COUNT, PIECE_SUM = 0, 1, 2, 2 + N_KEYED
HI, LO = 2 + N_KEYED, 2 + 2 * N_KEYED
ADV_MIN, ADV_MAX, FLAGS, FIRST_ROW = 2 + 3 * N_KEYED, 3 + 3 * N_KEYED, 4 + 3 * N_KEYED, 5 + 3 * N_KEYED
N_STATE = 6 + 3 * N_KEYED
PIECE_ADV_MIN, PIECE_ADV_MAX, PIECE_FLAGS = (
    PIECE.index("adv_min"),
    PIECE.index("adv_max"),
    PIECE.index("flags"),
)
OF_LOSS, OF_LOG_RATIO = KEYED.index("loss"), KEYED.index("log_ratio")

S_SEQUENCES, S_COUNT = SEQUENCE_SUM["n_sequences"], SEQUENCE_SUM["n_loss"]
S_MEAN, S_TOTAL = SEQUENCE_SUM["loss_mean"], SEQUENCE_SUM["loss_sum"]
S_GEO, S_PRODUCT, S_OUTSIDE = (
    SEQUENCE_SUM["ratio_geo"],
    SEQUENCE_SUM["ratio_product"],
    SEQUENCE_SUM["outside"],
)
S_LOG_RATIO_SUM = S_TOTAL + OF_LOG_RATIO

X_GEO, X_LOG_RATIO, X_LENGTH = 0, 1, 2
N_EXTREMES = 3
"""Extremes over sequences: of the mean log-ratio, of the summed one, and of the stored length."""


@jit()
def clear_state(state: Floats, row: int) -> None:
    """Begin a sequence whose first token stands in `row`."""
    state[:] = 0.0
    state[ADV_MIN], state[ADV_MAX], state[FIRST_ROW] = np.inf, -np.inf, row


@jit()
def add_piece(state: Floats, piece: Floats) -> None:
    """Add a piece to the state of its sequence or group."""
    state[STORED] += piece[STORED]
    state[VALID] += piece[VALID]
    for k in range(N_KEYED):
        state[COUNT + k] += piece[COUNT + k]
        state[HI + k], state[LO + k] = dd_add(state[HI + k], state[LO + k], piece[PIECE_SUM + k], 0.0)
    state[ADV_MIN] = min(state[ADV_MIN], piece[PIECE_ADV_MIN])
    state[ADV_MAX] = max(state[ADV_MAX], piece[PIECE_ADV_MAX])
    state[FLAGS] = int(state[FLAGS]) | int(piece[PIECE_FLAGS])


@jit()
def add_state(state: Floats, other: Floats) -> None:
    """Add the state of a group in one file to its state over the files before."""
    state[STORED] += other[STORED]
    state[VALID] += other[VALID]
    for k in range(N_KEYED):
        state[COUNT + k] += other[COUNT + k]
        state[HI + k], state[LO + k] = dd_add(state[HI + k], state[LO + k], other[HI + k], other[LO + k])
    state[ADV_MIN] = min(state[ADV_MIN], other[ADV_MIN])
    state[ADV_MAX] = max(state[ADV_MAX], other[ADV_MAX])
    state[FLAGS] = int(state[FLAGS]) | int(other[FLAGS])


@jit()
def _keep_extreme(which: int, value: float, row: int, extremes: Floats, places: Ints) -> None:
    """Keep a smallest and a largest value, with the first row of the sequence that had it first."""
    if value < extremes[which, 0]:
        extremes[which, 0], places[which, 0] = value, row
    if value > extremes[which, 1]:
        extremes[which, 1], places[which, 1] = value, row


@jit()
def _tally(
    terms: Ints, which: int, flags: int, nan: int, posinf: int, neginf: int, neginf_counts: bool
) -> None:
    """Count a term that values which are not finite would have made NaN or infinite."""
    if flags & nan or (flags & posinf and flags & neginf):
        terms[which, NAN] += 1
    elif flags & posinf:
        terms[which, POSINF] += 1
    elif flags & neginf and neginf_counts:
        terms[which, NEGINF] += 1


@jit()
def close_sequence(
    state: Floats,
    floor: float,
    ceiling: float,
    hi: Floats,
    lo: Floats,
    nonfinite: Ints,
    terms: Ints,
    extremes: Floats,
    places: Ints,
) -> None:
    """Add a finished sequence to the sums over sequences.

    Parameters
    ----------
    state : (N_STATE,) float64
    floor, ceiling : float
        The clip interval, for the vote of the geometric ratio.
    hi, lo : (n_sequence_sums,) float64; nonfinite, terms : (n_sequence_sums, 3) int64
        `nonfinite` counts sums that overflow, `terms` what values that are not finite would have made.
    extremes : (N_EXTREMES, 2) float64; places : (N_EXTREMES, 2) int64
        Smallest and largest, and the row where that sequence begins.
    """
    _keep_extreme(X_LENGTH, state[STORED], int(state[FIRST_ROW]), extremes, places)
    if state[VALID] == 0.0:
        return
    add_to(hi, lo, S_SEQUENCES, 1.0, 0.0, nonfinite)
    for k in range(N_KEYED):
        n = state[COUNT + k]
        if n > 0.0:
            add_to(hi, lo, S_COUNT + k, 1.0, 0.0, nonfinite)
            add_to(hi, lo, S_MEAN + k, state[HI + k] / n, state[LO + k] / n, nonfinite)
            add_to(hi, lo, S_TOTAL + k, state[HI + k], state[LO + k], nonfinite)
    flags = int(state[FLAGS])
    if flags:
        for which in (S_GEO, S_PRODUCT):
            _tally(terms, which, flags, FLAG_RATIO_NAN, FLAG_RATIO_POSINF, FLAG_RATIO_NEGINF, False)
        _tally(terms, S_LOG_RATIO_SUM, flags, FLAG_RATIO_NAN, FLAG_RATIO_POSINF, FLAG_RATIO_NEGINF, True)
        for which in (S_MEAN + OF_LOSS, S_TOTAL + OF_LOSS):
            _tally(terms, which, flags, FLAG_LOSS_NAN, FLAG_LOSS_POSINF, FLAG_LOSS_NEGINF, True)
    n = state[COUNT + OF_LOG_RATIO]
    if n > 0.0:
        total = state[HI + OF_LOG_RATIO] + state[LO + OF_LOG_RATIO]
        ratio = exp(total / n)
        add_to(hi, lo, S_GEO, ratio, 0.0, nonfinite)
        add_to(hi, lo, S_PRODUCT, exp(total), 0.0, nonfinite)
        add_to(hi, lo, S_OUTSIDE, 1.0 if ratio < floor or ratio > ceiling else 0.0, 0.0, nonfinite)
        row = int(state[FIRST_ROW])
        _keep_extreme(X_GEO, total / n, row, extremes, places)
        _keep_extreme(X_LOG_RATIO, total, row, extremes, places)


@jit()
def add_rows(
    rows: Ints,
    pieces: Floats,
    state: Floats,
    open_row: Ints,
    floor: float,
    ceiling: float,
    hi: Floats,
    lo: Floats,
    nonfinite: Ints,
    terms: Ints,
    extremes: Floats,
    places: Ints,
) -> None:
    """Add pieces of sequences that follow each other, one a row; a new row closes the sequence before it.

    Parameters
    ----------
    rows : (n_pieces,) int64
        The row of each piece.
    state : (N_STATE,) float64; open_row : (1,) int64
        The sequence that is open; row -1: none.
    """
    for j in range(rows.size):
        if rows[j] != open_row[0]:
            if open_row[0] >= 0:
                close_sequence(state, floor, ceiling, hi, lo, nonfinite, terms, extremes, places)
            open_row[0] = rows[j]
            clear_state(state, rows[j])
        add_piece(state, pieces[j])


@jit()
def _slot_of(table: NDArray[np.int32], keys: Ints, first: int, second: int) -> int:
    """Return the slot that holds a key, or the empty one where it belongs (linear probing)."""
    last = table.size - 1
    mixed = np.uint64(first) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(second) * np.uint64(
        0xC2B2AE3D27D4EB4F
    )
    mixed ^= mixed >> np.uint64(29)
    slot = int((mixed * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(32)) & last
    while table[slot] >= 0:
        row = table[slot]
        if keys[row, 0] == first and keys[row, 1] == second:
            break
        slot = (slot + 1) & last
    return slot


@jit()
def rebuild(table: NDArray[np.int32], keys: Ints, n: int) -> None:
    """Enter the first n rows into an empty table."""
    table[:] = -1
    for row in range(n):
        table[_slot_of(table, keys, keys[row, 0], keys[row, 1])] = row


@jit()
def find(table: NDArray[np.int32], keys: Ints, first: int, second: int) -> int:
    """Return the row of a key, or -1."""
    return int(table[_slot_of(table, keys, first, second)])


@jit()
def add_keyed(
    table: NDArray[np.int32],
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
    table : (2^k,) int32; keys : (capacity, 2) int64; states : (capacity, N_STATE) float64
    touched : (capacity,) int64
        When each state was last added to, in pieces.
    rows : (n_pieces,) int64
        The row where each piece stands.
    """
    for j in range(first.size):
        if known.size > 0 and known[j] == 0:
            continue
        slot = _slot_of(table, keys, first[j], second[j])
        place = table[slot]
        if place < 0:
            if n >= limit:
                return n, j
            place = n
            table[slot] = place
            keys[place, 0], keys[place, 1] = first[j], second[j]
            clear_state(states[place], rows[j])
            n += 1
        add_piece(states[place], pieces[j])
        touched[place] = clock + j
    return n, first.size


@jit()
def merge_keyed(
    table: NDArray[np.int32],
    keys: Ints,
    states: Floats,
    n: int,
    limit: int,
    other_keys: Ints,
    other_states: Floats,
    n_other: int,
) -> int:
    """Add one file's groups to those before; return how many there are, or -1 beyond `limit`."""
    for j in range(n_other):
        slot = _slot_of(table, keys, other_keys[j, 0], other_keys[j, 1])
        row = table[slot]
        if row < 0:
            if n >= limit:
                return -1
            row = n
            table[slot] = row
            keys[row, 0], keys[row, 1] = other_keys[j, 0], other_keys[j, 1]
            clear_state(states[row], other_states[j, FIRST_ROW])
            n += 1
        add_state(states[row], other_states[j])
    return n


@jit()
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
    """Close sequences in the order given."""
    for j in range(order.size):
        close_sequence(states[order[j]], floor, ceiling, hi, lo, nonfinite, terms, extremes, places)


@jit()
def mean_over_groups(states: Floats, n: int, which: int, limits: Floats) -> int:
    """Return sums over groups of their token means, as a pair, and the number of groups with a token.

    `limits` (2,) is the pair to add to.
    """
    groups = 0
    for row in range(n):
        count = states[row, COUNT + which]
        if count > 0.0:
            groups += 1
            limits[0], limits[1] = dd_add(
                limits[0], limits[1], states[row, HI + which] / count, states[row, LO + which] / count
            )
    return groups
