"""Differences per sequence: pieces are added in stored order, and finished sequences turned into terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.drift_partials import PIECE
from ppocli.kernels._jit import jit
from ppocli.kernels.math import dd_add, exp
from ppocli.kernels.sequence import Slots
from ppocli.kernels.sequence import _enter as enter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.kernels.layout import Bytes, Floats, Ints

STATE = (
    "stored", "valid", "n", "diff", "diff_low", "diff_abs", "k3", "flags", "n_loss", "loss", "loss_low",
    "first_row",
)  # fmt: skip
"""What is kept of a sequence; sums of differences and losses as pairs of float64."""
STORED, VALID, N, DIFF, DIFF_LOW, ABS, K3, FLAGS, N_LOSS, LOSS, LOSS_LOW, FIRST_ROW = range(len(STATE))
P_STORED, P_VALID, P_N, P_DIFF, P_ABS, P_K3, P_FLAGS, P_N_LOSS, P_LOSS = (
    PIECE.index(name)
    for name in ("stored", "valid", "n", "diff", "diff_abs", "k3", "flags", "n_loss", "loss")
)

SEQUENCE_SUMS = ("n", "chi2", "log_ppl_diff", "ppl_ratio")
"""Sums over sequences; the sums of each rule follow them."""
RULE_SUMS = ("weight", "weight_sq", "touched", "seq_touched", "loss")
"""What is kept of a rule at a level of sequences: sums over tokens, and how many it changes of each."""
RULE_LEVEL, RULE_LOW, RULE_HIGH, RULE_BELOW, RULE_ABOVE = range(5)
"""A rule: 0 for the product of the token ratios, 1 for their geometric mean; bounds and replacements."""

_KNOWN = np.zeros(0, dtype=np.uint8)


@jit
def add_pieces(places: Ints, pieces: Floats, states: Floats) -> None:
    """Add pieces, in order, to the states at these places; none at place -1."""
    for j in range(places.size):
        at = places[j]
        if at >= 0:
            states[at, STORED] += pieces[j, P_STORED]
            states[at, VALID] += pieces[j, P_VALID]
            states[at, N] += pieces[j, P_N]
            states[at, DIFF], states[at, DIFF_LOW] = dd_add(
                states[at, DIFF], states[at, DIFF_LOW], pieces[j, P_DIFF], 0.0
            )
            states[at, ABS] += pieces[j, P_ABS]
            states[at, K3] += pieces[j, P_K3]
            states[at, FLAGS] = int(states[at, FLAGS]) | int(pieces[j, P_FLAGS])
            states[at, N_LOSS] += pieces[j, P_N_LOSS]
            states[at, LOSS], states[at, LOSS_LOW] = dd_add(
                states[at, LOSS], states[at, LOSS_LOW], pieces[j, P_LOSS], 0.0
            )


@jit
def terms(states: Floats, rules: Floats, rows: Floats) -> None:
    """Write what each sequence adds to every sum: a row, and one for the low parts.

    Parameters
    ----------
    states : (n, len(STATE)) float64
        Sequences with at least one token whose difference is finite.
    rules : (n_rules, 5) float64
    rows : (2 n, len(SEQUENCE_SUMS) + n_rules * len(RULE_SUMS)) float64
        Zeros before.
    """
    for j in range(states.shape[0]):
        n = states[j, N]
        total = states[j, DIFF] + states[j, DIFF_LOW]
        rows[2 * j, 0] = 1.0
        rows[2 * j, 1] = exp(2.0 * total)
        rows[2 * j, 2] = -states[j, DIFF] / n
        rows[2 * j + 1, 2] = -states[j, DIFF_LOW] / n
        rows[2 * j, 3] = exp(-total / n)
        for r in range(rules.shape[0]):
            weight = exp(total if rules[r, RULE_LEVEL] == 0.0 else total / n)
            is_low, is_high = weight < rules[r, RULE_LOW], weight > rules[r, RULE_HIGH]
            if is_low:
                weight = rules[r, RULE_BELOW]
            if is_high:
                weight = rules[r, RULE_ABOVE]
            at = 4 + 5 * r
            rows[2 * j, at] = n * weight
            rows[2 * j, at + 1] = n * weight * weight
            if is_low or is_high:
                rows[2 * j, at + 2], rows[2 * j, at + 3] = n, 1.0
            loss = states[j, LOSS] + states[j, LOSS_LOW]
            rows[2 * j, at + 4] = weight * loss if loss != 0.0 else 0.0


@jit
def lookup(table: Slots, keys: Ints, codes: Ints, places: Ints) -> None:
    """Write the place of each id (its second key, the first being 0) in a table, or -1."""
    last = table.size - 1
    for j in range(codes.size):
        mixed = np.uint64(codes[j]) * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        slot = np.int64(mixed >> np.uint64(32)) & last
        at = table[slot]
        while at >= 0 and keys[at, 1] != codes[j]:
            slot = (slot + 1) & last
            at = table[slot]
        places[j] = at


def add_keyed(
    table: Slots,
    keys: Ints,
    states: Floats,
    touched: Ints,
    n: int,
    limit: int,
    codes: Ints,
    known: NDArray[np.uint8],
    rows: Ints,
    pieces: Floats,
    clock: int,
) -> tuple[int, int]:
    """Add pieces to the state of their id; arguments and result as in `ppocli.kernels.sequence.add_keyed`."""
    places = np.empty(codes.size, dtype=np.int64)
    zeros = np.zeros(codes.size, dtype=np.int64)
    after, taken = enter(table, keys, n, limit, zeros, codes, known, places)
    places = places[:taken]
    there = np.flatnonzero(places >= 0)
    sight = np.full(after, taken)
    np.minimum.at(sight, places[there], there)
    states[n:after] = new_states(rows[sight[n:]])
    touched[n:after] = 0
    np.maximum.at(touched, places[there], clock + there)
    add_pieces(places, pieces, states)
    return after, taken


def new_states(first_rows: Ints) -> Floats:
    """Return states without a token that begin in these rows."""
    states = np.zeros((first_rows.size, len(STATE)))
    states[:, FIRST_ROW] = first_rows
    return states


def no_nulls() -> Bytes:
    """Return the marks of ids of which none is null."""
    return _KNOWN
