"""The kernel that compares two columns of log-probs: differences, weights, probabilities, and their tails.

The same blocks, runs and vectors as `ppocli.kernels.ppo`. Masked tokens are left out while a run is loaded; a
block with a value that is not finite is given back, to be evaluated again without such tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.kernels._jit import inline, jit, parallel
from ppocli.kernels.blocks import flags_of, pieces_until, stop_of, stored, within
from ppocli.kernels.layout import (
    BLOCK,
    RUN,
    WIDTH,
    Bytes,
    Floats,
    Ints,
    Places,
)
from ppocli.kernels.load import count_flags
from ppocli.kernels.math import (
    dd_add,
)
from ppocli.kernels.memory import (
    count_spread_places,
    load,
    load_one,
    row_address,
    store,
)
from ppocli.kernels.vector import (
    broadcast,
    highest,
    lowest,
    number_of,
    total,
    where,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
from ppocli.kernels.drift_layout import (
    CENTRE_A,
    CENTRE_B,
    CLEAN,
    CLEAN_SQ,
    COUNT,
    DIFF,
    EXTREME_LANES,
    K3,
    L_DIFF,
    LANES,
    MOMENT_LANES,
    N_EXTREMES,
    N_LANES,
    N_MOMENTS,
    P_ABS,
    P_DIFF,
    P_K3,
    P_N,
    PER_RULE,
    SCRATCH,
    PairWorkspace,
    reach_of,
)
from ppocli.kernels.drift_loops import (
    add_classes,
    add_difference,
    add_probabilities,
    add_rules,
    add_weights,
    next_run,
    set_centres,
    set_first,
)

# ------------------------------------------------------------------------------------------- blocks


@inline
def _add_pieces(
    s: int, live: int, run: int, n: int, starts: Ints, first: int, last: int, pieces: Floats
) -> None:
    """Write number and sums of each piece of a sequence inside the run; the first starts with it."""
    for j in range(first, last):
        begin, end = starts[j] - run, starts[j + 1] - run if j + 1 < last else n
        added = sizes = k3 = broadcast(0.0)
        counted = 0
        for i in range(begin & -WIDTH, end, WIDTH):
            on = within(begin, end, i, live)
            x = load(s, DIFF + i)
            added, sizes = where(on, added + x, added), where(on, sizes + abs(x), sizes)
            k3 = where(on, k3 + load(s, K3 + i), k3)
            counted += number_of(on)
        pieces[j, P_N], pieces[j, P_DIFF] = counted, total(added)
        pieces[j, P_ABS], pieces[j, P_K3] = total(sizes), total(k3)


@inline
def _begin(s: int) -> None:
    """Clear the lanes and centres."""
    for i in range(LANES, SCRATCH, WIDTH):
        store(s, i, 0.0)
    for e in range(N_EXTREMES):
        store(s, EXTREME_LANES + 2 * WIDTH * e, np.inf)
        store(s, EXTREME_LANES + 2 * WIDTH * e + WIDTH, -np.inf)


@inline
def _finish(
    s: int, b: int, counted: int, sums: Floats, by_rule: Floats, moments: Floats, extremes: Floats
) -> bool:
    """Fold the lanes into the rows of block b; whether a value is not finite."""
    clean, clean_sq = total(load(s, CLEAN)), total(load(s, CLEAN_SQ))
    for r in range(by_rule.shape[1]):
        lanes = CLEAN + 2 * WIDTH + PER_RULE * r
        by_rule[b, r, 0] = clean + total(load(s, lanes))
        by_rule[b, r, 1] = clean_sq + total(load(s, lanes + WIDTH))
        by_rule[b, r, 2] = total(load(s, lanes + 2 * WIDTH))
    for q in range(N_LANES):
        sums[b, q] = total(load(s, LANES + WIDTH * q))
    sums[b, COUNT] = counted
    moments[b, 0], moments[b, 1] = load_one(s, CENTRE_A), load_one(s, CENTRE_B)
    for m in range(N_MOMENTS):
        moments[b, 2 + m] = total(load(s, MOMENT_LANES + WIDTH * m))
    for e in range(extremes.shape[1]):
        extremes[b, e, 0] = lowest(load(s, EXTREME_LANES + 2 * WIDTH * e))
        extremes[b, e, 1] = highest(load(s, EXTREME_LANES + 2 * WIDTH * e + WIDTH))
    return not abs(total(load(s, L_DIFF))) < np.inf


@parallel
def _evaluate(
    worker: int,
    n_workers: int,
    addresses: Ints,
    doubles: int,
    mask: int,
    tails: Floats,
    edge: Bytes,
    n_tokens: int,
    wanted: Ints,
    starts: Ints,
    block_pieces: Ints,
    rules: Floats,
    reach: Floats,
    scratch: Floats,
    places: Places,
    bins: Ints,
    sums: Floats,
    by_rule: Floats,
    moments: Floats,
    extremes: Floats,
    pieces: Floats,
    bad: Ints,
    finite: int,
) -> None:
    """Evaluate one worker's share of the blocks."""
    s, kept, tail = row_address(scratch, worker), row_address(places, worker), row_address(tails, 0)
    whole, ones = n_tokens & -WIDTH, row_address(edge, 0)
    for k in range(worker * wanted.size // n_workers, (worker + 1) * wanted.size // n_workers):
        b = wanted[k]
        _begin(s)
        piece, at, counted = block_pieces[b], 0, 0
        for run in range(b * BLOCK, stop_of(b * BLOCK, BLOCK, n_tokens), RUN):
            n = stop_of(run, RUN, n_tokens) - run
            live = flags_of(mask, run, n, ones)
            n_live = n if mask == 0 else count_flags(live, n)
            if counted == 0 and n_live > 0:
                set_first(addresses, doubles, tail, whole, run, live, s)
                set_centres(s)
            far, wide = add_difference(addresses, doubles, tail, whole, run, n, live, s, kept, at, reach)
            add_weights(s, n, live, far, wide)
            if wide:
                add_rules(s, n, live, rules)
            add_probabilities(s, n, live, next_run(addresses, doubles, run + RUN))
            add_classes(s, n, live)
            at += (n + WIDTH - 1) & -WIDTH
            counted += n_live
            first, piece = piece, pieces_until(starts, piece, block_pieces[b + 1], run + n)
            _add_pieces(s, live, run, n, starts, first, piece, pieces)
        bad[b] = _finish(s, b, counted, sums, by_rule, moments, extremes)
        if finite or not bad[b]:
            for i in range(0, at, WIDTH):
                count_spread_places(row_address(bins, worker), kept, i)
            bins[worker, 0] -= at - counted  # tokens that do not count stand at 0


def evaluate_pairs(
    workspace: PairWorkspace,
    columns: Sequence[NDArray[Any]],
    mask: Bytes,
    n_tokens: int,
    wanted: Ints,
    starts: Ints,
    block_pieces: Ints,
    rules: Floats,
    sums: Floats,
    by_rule: Floats,
    moments: Floats,
    extremes: Floats,
    pieces: Floats,
    bad: Ints,
    *,
    finite: bool = False,
) -> None:
    """Compare two columns over some blocks of a span, in parallel.

    Parameters
    ----------
    workspace : PairWorkspace
        `bins` is added to, for blocks that are not bad.
    columns : two contiguous arrays, (n_tokens,) float32 or float64
        a and b. Nulls are NaN.
    mask : (n_tokens,) or (0,) uint8
    n_tokens : int
    wanted : (n,) int64
        Blocks to evaluate.
    starts : (n_pieces,) int64; block_pieces : (n_blocks + 1,) int64
        Where pieces of sequences start, and the first piece of each block. A piece ends with its run.
    rules : (n_rules, 4) float64
        At most MAX_RULES: bounds of the weight, and what weights below and above them are replaced by.
    sums : (n_blocks, len(SUMS)) float64
        Written: the first N_LANES columns and the last.
    by_rule : (n_blocks, n_rules, len(RULE_SUMS)) float64
    moments : (n_blocks, 2 + N_MOMENTS) float64
        Written: centres of the two probabilities, and second moments about them.
    extremes : (n_blocks, N_EXTREMES, 2) float64
    pieces : (n_pieces, len(PIECE)) float64
    bad : (n_blocks,) int64
        Written: 1 where the sum of the differences is not finite. Unless `finite`, the other rows of such a
        block mean nothing.
    finite : bool
        All valid values are: a sum that is not finite has overflowed, and the block is counted all the same.
    """
    _evaluate(
        workspace.workers_for(wanted.size), *stored(columns, mask, n_tokens), wanted, starts, block_pieces,
        rules, reach_of(rules), workspace.scratch, workspace.kept, workspace.bins,
        sums, by_rule, moments, extremes, pieces, bad, int(finite),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------- merging


@jit
def merge_moments(n: Floats, sums: Floats, moments: Floats, state: Floats) -> None:
    """Merge the second moments of the probabilities, block by block (Chan, Golub, LeVeque 1979).

    Parameters
    ----------
    n : (n_blocks,) float64
        Tokens of each block.
    sums : (n_blocks, 2) float64
        Sums of the two probabilities.
    moments : (n_blocks, 2 + N_MOMENTS) float64
        Centres, and second moments about them.
    state : (9,) float64
        n, the two sums as pairs, and the three moments about the means as single numbers; added to.
    """
    for b in range(n.size):
        if n[b] > 0.0:
            off_a, off_b = sums[b, 0] - n[b] * moments[b, 0], sums[b, 1] - n[b] * moments[b, 1]
            aa = max(moments[b, 2] - off_a * off_a / n[b], 0.0)
            bb = max(moments[b, 3] - off_b * off_b / n[b], 0.0)
            ab = moments[b, 4] - off_a * off_b / n[b]
            if state[0] > 0.0:
                share = state[0] / (state[0] + n[b]) * n[b]
                delta_a = (sums[b, 0] / n[b] - state[1] / state[0]) - state[2] / state[0]
                delta_b = (sums[b, 1] / n[b] - state[3] / state[0]) - state[4] / state[0]
                aa += delta_a * delta_a * share
                bb += delta_b * delta_b * share
                ab += delta_a * delta_b * share
            state[0] += n[b]
            state[1], state[2] = dd_add(state[1], state[2], sums[b, 0], 0.0)
            state[3], state[4] = dd_add(state[3], state[4], sums[b, 1], 0.0)
            state[5] += aa
            state[6] += bb
            state[7] += ab
