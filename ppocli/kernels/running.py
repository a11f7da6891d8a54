"""Sums whose order is part of the result: token after token, run after run, in a tree, in a narrow format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.kernels._jit import jit
from ppocli.kernels.layout import RUN, WIDTH
from ppocli.kernels.memory import load, row_address, store
from ppocli.kernels.rounding import EXPONENT, rounded
from ppocli.kernels.vector import any_of, bits, first_of, from_bits, narrowed, number_of, without

if TYPE_CHECKING:
    from ppocli.kernels.layout import Floats

N_LEVELS = 64
"""Levels of the tree: more than there will ever be runs, as a power of two."""

(
    N_TERMS,
    NAIVE, NAIVE_MOVED, NAIVE_IDLE, NAIVE_SINCE,
    BFLOAT16, BFLOAT16_MOVED, BFLOAT16_IDLE, BFLOAT16_SINCE,
    COMPENSATION,
) = range(10)  # fmt: skip
N_RUNNING = 10
"""State of the sums token after token: how many terms, and two sums.

Of the naive ones, in float32 and in bfloat16, also: the number of terms when they last moved, how many terms
but 0 did not move them, and how many of these have come since. The compensated sum is the naive one in
float32 and what that lost.
"""


@jit
def _counted(which: Floats, values: Floats, out: Floats) -> int:
    """Copy the values at which `which` is not NaN; return how many there are."""
    n = 0
    for i in range(values.size):
        out[n] = values[i]
        n += int(which[i] == which[i])
    return n


@jit
def _add_in_order(
    terms: Floats, n: int, total: float, factor: float, power: float, limit: float, beyond: float,
    sums: Floats,
) -> float:  # fmt: skip
    """Add n numbers of a format to a sum that is rounded to it each time; write it before and after each.

    As long as the sum stays between two powers of two its step q is the same, and 1.5 * 2^52 q can stay
    added to it: one addition then adds and rounds, as in `rounded`. Where it leaves them is looked for beside
    that, so that a term has to wait for one addition of the term before, not for four and a rounding.
    """
    low, high, whole, shifted = np.inf, 0.0, 0.0, 0.0
    sums[0] = total
    for i in range(n):
        exact = total + terms[i]
        if low < abs(exact) < high:
            shifted += terms[i]
            total = shifted - whole
        else:
            total = rounded(exact, (factor, power, limit, beyond))
            low = from_bits(bits(total) & EXPONENT)
            high, whole = 2.0 * low, low * factor
            shifted = whole + total
            if not (power <= low and high < limit):  # 0, subnormal, next to the limit, not finite
                low = np.inf
        sums[i + 1] = total
    return total


@jit
def _note_moves(sums: Floats, terms: Floats, n: int, state: Floats, which: int) -> None:
    """Note which of n terms moved a sum, and which but 0 did not.

    Parameters
    ----------
    sums, terms : float64, some numbers longer than n
        The sum before the first term and after each; the terms.
    state : (N_RUNNING,) float64
        Of the sum whose entries begin at `which`, those behind the sum are written.
    """
    s, t = row_address(sums, 0), row_address(terms, 0)
    idle, behind, place = 0, 0, -1
    for i in range(0, n, WIDTH):
        there, stays = first_of(n - i), load(s, i) == load(s, i + 1)
        vain = number_of(there & stays & (abs(load(t, i)) > 0.0))
        idle, behind = idle + vain, behind + vain
        if any_of(without(there, stays)):
            place, behind = i, 0
    since = int(state[which + 3])
    if place >= 0:
        for i in range(place, min(place + WIDTH, n)):
            if sums[i + 1] == sums[i]:
                since += int(terms[i] != 0.0)
            else:
                state[which + 1], since = state[N_TERMS] + (i + 1), 0
    state[which + 2] += idle
    state[which + 3] = since + behind


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
    given, wide, small = np.zeros(RUN), np.zeros(RUN), np.zeros(RUN)
    narrow, sums = np.zeros(RUN, dtype=np.float32), np.zeros(RUN + WIDTH)
    for start in range(0, terms.size, RUN):
        part = terms[start : start + RUN]
        n = _counted(part, part, given)
        for i in range(n):
            narrow[i] = np.float32(given[i])
            wide[i] = np.float64(narrow[i])
        for i in range(0, n, WIDTH):
            short = rounded(load(row_address(wide, 0), i), (factor, power, limit, beyond))
            store(row_address(small, 0), i, short)
        total, lost = np.float32(state[NAIVE]), np.float32(state[COMPENSATION])
        sums[0] = total
        for i in range(n):
            after = total + narrow[i]
            share = after - total
            lost += (total - (after - share)) + (narrow[i] - share)
            total = after
            sums[i + 1] = total
        state[NAIVE], state[COMPENSATION] = total, lost
        _note_moves(sums, wide, n, state, NAIVE)
        state[BFLOAT16] = _add_in_order(small, n, state[BFLOAT16], factor, power, limit, beyond, sums)
        _note_moves(sums, small, n, state, BFLOAT16)
        state[N_TERMS] += n


@jit
def add_in_format(terms: Floats, n: int, rules: Floats, sums: Floats) -> None:
    """Add terms to sums that are rounded to a format after each addition.

    Parameters
    ----------
    terms : (1 + n_sums, at least n) float64
        Numbers of the formats. The first row only says which of the n tokens do not count: it is NaN there.
    rules : (n_sums, 4) float64
    sums : (n_sums,) float64
        Added to.
    """
    given, after = np.zeros(RUN), np.zeros(RUN + WIDTH)
    for start in range(0, n, RUN):
        stop = min(start + RUN, n)
        for v in range(sums.size):
            found = _counted(terms[0, start:stop], terms[1 + v, start:stop], given)
            factor, power, limit, beyond = rules[v]
            sums[v] = _add_in_order(given, found, sums[v], factor, power, limit, beyond, after)


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
