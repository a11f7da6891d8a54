"""Sums whose order is part of the result: token after token, run after run, in a tree, in a narrow format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.kernels._jit import jit
from ppocli.kernels.rounding import rounded
from ppocli.kernels.vector import bits, from_bits, narrowed

if TYPE_CHECKING:
    from ppocli.kernels.layout import Floats

N_LEVELS = 64
"""Levels of the tree: more than there will ever be runs, as a power of two."""

(
    N_TERMS,
    NAIVE, NAIVE_MOVED, NAIVE_IDLE, NAIVE_SINCE,
    BFLOAT16, BFLOAT16_MOVED, BFLOAT16_IDLE, BFLOAT16_SINCE,
    COMPENSATED, COMPENSATION,
) = range(11)  # fmt: skip
N_RUNNING = 11
"""State of the sums token after token: how many terms, and three sums.

Of the naive ones, in float32 and in bfloat16, also: the number of terms when they last moved, how many terms
but 0 did not move them, and how many of these have come since. Of the compensated one: what it lost.
"""

LAST_PLACE = np.uint64(45)  # the lowest bit of a bfloat16 in a float64
HALF_PLACE, ONE = np.uint64((1 << 44) - 1), np.uint64(1)
SMALLEST_NORMAL, LARGEST_SAFE = 2.0**-126, 2.0**127


@jit
def add_running(terms: Floats, bfloat16: Floats, state: Floats) -> None:
    """Add terms to running sums, one after the other.

    The compensated sum is that of Kahan and Babuska: what each addition loses is added up beside it.

    Parameters
    ----------
    terms : (n,) float64
        NaN where a token does not count. They are rounded to float32, and to bfloat16 for that sum.
    bfloat16 : (4,) float64
        `Precision.rule` of bfloat16.
    state : (N_RUNNING,) float64
        Written.
    """
    factor, power, limit, beyond = bfloat16
    n = int(state[N_TERMS])
    moved, idle, since = int(state[NAIVE_MOVED]), int(state[NAIVE_IDLE]), int(state[NAIVE_SINCE])
    b_moved, b_idle, b_since = (
        int(state[BFLOAT16_MOVED]),
        int(state[BFLOAT16_IDLE]),
        int(state[BFLOAT16_SINCE]),
    )
    naive, narrow = np.float32(state[NAIVE]), state[BFLOAT16]
    total, lost = np.float32(state[COMPENSATED]), np.float32(state[COMPENSATION])
    for i in range(terms.size):
        if terms[i] != terms[i]:
            continue
        n += 1
        t = np.float32(terms[i])
        after = naive + t
        # Products instead of choices: which way a sum goes is too random for a branch.
        stays = int(after == naive)
        vain = stays * int(t != np.float32(0.0))
        naive, moved, idle, since = after, n + (moved - n) * stays, idle + vain, (since + vain) * stays
        after = total + t
        part = after - total
        lost += (total - (after - part)) + (t - part)
        total = after
        small = rounded(np.float64(t), (factor, power, limit, beyond))
        exact = narrow + small
        # The same as `rounded` where nothing is subnormal and nothing overflows, in a third of its time.
        word = bits(exact)
        word = (word + HALF_PLACE + ((word >> LAST_PLACE) & ONE)) >> LAST_PLACE
        next_narrow = from_bits(word << LAST_PLACE)
        if not SMALLEST_NORMAL <= abs(exact) < LARGEST_SAFE:
            next_narrow = rounded(exact, (factor, power, limit, beyond))
        stays = int(next_narrow == narrow)
        vain = stays * int(small != 0.0)
        narrow, b_moved, b_idle = next_narrow, n + (b_moved - n) * stays, b_idle + vain
        b_since = (b_since + vain) * stays
    state[N_TERMS], state[NAIVE], state[BFLOAT16] = n, naive, narrow
    state[NAIVE_MOVED], state[NAIVE_IDLE], state[NAIVE_SINCE] = moved, idle, since
    state[BFLOAT16_MOVED], state[BFLOAT16_IDLE], state[BFLOAT16_SINCE] = b_moved, b_idle, b_since
    state[COMPENSATED], state[COMPENSATION] = total, lost


@jit
def add_in_format(terms: Floats, n: int, rules: Floats, sums: Floats) -> None:
    """Add terms to sums that are rounded to a format after each addition.

    Parameters
    ----------
    terms : (1 + n_sums, at least n) float64
        The first row only says which of the n tokens do not count: it is NaN there.
    rules : (n_sums, 4) float64
    sums : (n_sums,) float64
        Added to.
    """
    for i in range(n):
        if terms[0, i] == terms[0, i]:
            for v in range(sums.size):
                rule = (rules[v, 0], rules[v, 1], rules[v, 2], rules[v, 3])
                sums[v] = rounded(sums[v] + terms[1 + v, i], rule)


@jit
def add_runs(runs: Floats, in_order: Floats, tree: Floats, n_before: int) -> None:
    """Add sums of runs in float32: one after the other, and in a binary tree.

    Parameters
    ----------
    runs : (n, n_variants) float64
        Values of float32.
    in_order : (n_variants,) float64
        Added to.
    tree : (N_LEVELS, n_variants) float64
        Level k holds the sum of 2^k runs where bit k of the number of runs so far is set. Written.
    n_before : int
        Runs so far.
    """
    for r in range(runs.shape[0]):
        for v in range(runs.shape[1]):
            in_order[v] = narrowed(in_order[v] + runs[r, v])
            carry, level, n = runs[r, v], 0, n_before + r
            while n & 1:
                carry = narrowed(tree[level, v] + carry)
                level += 1
                n >>= 1
            tree[level, v] = carry


def fold_tree(tree: Floats, n_runs: int) -> Floats:
    """Return the sums of all runs in float32: what is left of the tree, from its smallest part on."""
    total = np.zeros(tree.shape[1], dtype=np.float32)
    for level in range(N_LEVELS):
        if n_runs >> level & 1:
            with np.errstate(over="ignore", invalid="ignore"):
                total = tree[level].astype(np.float32) + total
    return total.astype(np.float64)
