"""The kernel that says what weights would do to the policy loss: the clipped surrogate times each weight.

Apart from `ppocli.kernels.drift`, for it needs two more columns and two more exponentials.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.drift_partials import MAX_RULES, PIECE
from ppocli.kernels._jit import inline, parallel
from ppocli.kernels.blocks import aligned, flags_of, pieces_until, stop_of, stored, within
from ppocli.kernels.drift_layout import R_ABOVE, R_BELOW, R_HIGH, R_LOW, reach_of
from ppocli.kernels.layout import BLOCK, P_CLIP_CEILING, P_CLIP_FLOOR, RUN, WIDTH, Bytes, Floats, Ints
from ppocli.kernels.load import count_flags, read
from ppocli.kernels.math import NEAR, exp, exp_and_expm1_minus_x_near_0
from ppocli.kernels.memory import add_to, load, load_flags, row_address, store
from ppocli.kernels.vector import any_of, broadcast, greatest, least, number_of, total, where

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS = ("a", "b", "log_probs", "advantages")
A, B, NEW, ADV = range(4)

DIFF, LOG_RATIO, COST = 0, RUN, 2 * RUN
WEIGHT, LOSS = DIFF, LOG_RATIO
"""Rows of one number per token of a run; weights take the place of differences, losses that of log-ratios."""
_LANES, _SHOWN = 3 * RUN, 3 * RUN + WIDTH
_RULES = _SHOWN + WIDTH
SCRATCH = _RULES + WIDTH * MAX_RULES
P_N_LOSS, P_LOSS = PIECE.index("n_loss"), PIECE.index("loss")


@inline
def _load_run(
    addresses: Ints, doubles: int, tails: int, whole: int, start: int, n: int, live: int, s: int,
    reach: Floats,
) -> tuple[bool, bool, bool]:  # fmt: skip
    """Differences, log-ratios and -A of a run.

    Returns whether a difference, and whether a log-ratio, is further than `NEAR` from 0, and whether a
    difference is outside of `reach`.
    """
    shown = broadcast(0.0)
    low = low_ratio = broadcast(np.inf)
    high = high_ratio = broadcast(-np.inf)
    for i in range(0, n, WIDTH):
        on, at = load_flags(live, i), start + i
        a = where(on, read(addresses[A], doubles >> A & 1, at, whole, tails, A), 0.0)
        b = where(on, read(addresses[B], doubles >> B & 1, at, whole, tails, B), 0.0)
        new = where(on, read(addresses[NEW], doubles >> NEW & 1, at, whole, tails, NEW), 0.0)
        cost = where(on, -read(addresses[ADV], doubles >> ADV & 1, at, whole, tails, ADV), 0.0)
        shown += (a + b) + (new + cost)
        diff, log_ratio = a - b, new - a
        store(s, DIFF + i, diff)
        store(s, LOG_RATIO + i, log_ratio)
        store(s, COST + i, cost)
        low, high = least(diff, low), greatest(diff, high)
        low_ratio, high_ratio = least(log_ratio, low_ratio), greatest(log_ratio, high_ratio)
    add_to(s, _SHOWN, shown)  # a value that is not finite may have no loss
    return (
        any_of((low < -NEAR) | (high > NEAR)),
        any_of((low_ratio < -NEAR) | (high_ratio > NEAR)),
        any_of((low < reach[0]) | (high > reach[1])),
    )


@inline
def _exponentiate(s: int, row: int, n: int, far: bool) -> None:
    """Put exp(x) in the place of x; the short way, which gives the same bits, where all are near 0."""
    if far:
        for i in range(row, row + n, WIDTH):
            store(s, i, exp(load(s, i)))
    else:
        for i in range(row, row + n, WIDTH):
            store(s, i, exp_and_expm1_minus_x_near_0(load(s, i))[0])


@inline
def _add_losses(s: int, n: int, live: int, p: Floats, wide: bool, n_rules: int) -> None:
    """Losses of a run, -min(r A, clip(r) A) with r = exp(log_probs - a).

    Where the run is not `wide`, rules leave its weights exp(a - b) as they are, and each gets the same sum.
    """
    added = applied = broadcast(0.0)
    floor, ceiling = p[P_CLIP_FLOOR], p[P_CLIP_CEILING]
    for i in range(0, n, WIDTH):
        ratio, cost = load(s, LOG_RATIO + i), load(s, COST + i)
        low, high = (ratio < floor) & (cost > 0.0), (ratio > ceiling) & (cost < 0.0)
        chosen = where(low, floor, where(high, ceiling, ratio))
        loss = where(cost == 0.0, 0.0, chosen * cost)
        store(s, LOSS + i, loss)
        added += loss
        counts = load_flags(live, i) & (abs(loss) > 0.0)
        applied = where(counts, applied + load(s, WEIGHT + i) * loss, applied)
    add_to(s, _LANES, added)
    if not wide:
        for r in range(n_rules):
            add_to(s, _RULES + WIDTH * r, applied)


@inline
def _add_rules(s: int, n: int, live: int, rules: Floats) -> None:
    """Losses of a run times what each rule makes of the weights; a loss of 0 stays 0."""
    for r in range(rules.shape[0]):
        low, high, below, above = rules[r, R_LOW], rules[r, R_HIGH], rules[r, R_BELOW], rules[r, R_ABOVE]
        added = broadcast(0.0)
        for i in range(0, n, WIDTH):
            weight, loss = load(s, WEIGHT + i), load(s, LOSS + i)
            applied = where(weight < low, below, where(weight > high, above, weight))
            added = where(load_flags(live, i) & (abs(loss) > 0.0), added + applied * loss, added)
        add_to(s, _RULES + WIDTH * r, added)


@inline
def _add_pieces(
    s: int, live: int, run: int, n: int, starts: Ints, first: int, last: int, pieces: Floats
) -> None:
    """Write number and sum of the losses of each piece of a sequence inside the run."""
    for j in range(first, last):
        begin, end = starts[j] - run, starts[j + 1] - run if j + 1 < last else n
        added = broadcast(0.0)
        counted = 0
        for i in range(begin & -WIDTH, end, WIDTH):
            on = within(begin, end, i, live)
            added = where(on, added + load(s, LOSS + i), added)
            counted += number_of(on)
        pieces[j, P_N_LOSS], pieces[j, P_LOSS] = counted, total(added)


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
    p: Floats,
    scratch: Floats,
    sums: Floats,
    pieces: Floats,
    bad: Ints,
) -> None:
    """Evaluate one worker's share of the blocks."""
    s, tail, ones = row_address(scratch, worker), row_address(tails, 0), row_address(edge, 0)
    whole = n_tokens & -WIDTH
    for k in range(worker * wanted.size // n_workers, (worker + 1) * wanted.size // n_workers):
        b = wanted[k]
        for i in range(_LANES, SCRATCH, WIDTH):
            store(s, i, 0.0)
        piece, counted = block_pieces[b], 0
        for run in range(b * BLOCK, stop_of(b * BLOCK, BLOCK, n_tokens), RUN):
            n = stop_of(run, RUN, n_tokens) - run
            live = flags_of(mask, run, n, ones)
            far, far_ratio, wide = _load_run(addresses, doubles, tail, whole, run, n, live, s, reach)
            _exponentiate(s, DIFF, n, far)
            _exponentiate(s, LOG_RATIO, n, far_ratio)
            _add_losses(s, n, live, p, wide, rules.shape[0])
            if wide:
                _add_rules(s, n, live, rules)
            counted += n if mask == 0 else count_flags(live, n)
            first, piece = piece, pieces_until(starts, piece, block_pieces[b + 1], run + n)
            _add_pieces(s, live, run, n, starts, first, piece, pieces)
        sums[b, 0], sums[b, 1] = counted, total(load(s, _LANES))
        bad[b] = not abs(total(load(s, _SHOWN))) < np.inf
        for r in range(rules.shape[0]):
            sums[b, 2 + r] = total(load(s, _RULES + WIDTH * r))


class LossWorkspace:
    """Scratch of the workers."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.scratch: Floats = aligned((n_workers, SCRATCH), np.float64)


def evaluate_losses(
    workspace: LossWorkspace,
    columns: Sequence[NDArray[Any]],
    mask: Bytes,
    n_tokens: int,
    wanted: Ints,
    starts: Ints,
    block_pieces: Ints,
    rules: Floats,
    p: Floats,
    sums: Floats,
    pieces: Floats,
    bad: Ints,
) -> None:
    """Evaluate blocks of a span in parallel.

    Parameters
    ----------
    columns : `COLUMNS`, each contiguous (n_tokens,) float32 or float64
    rules : (n_rules, 4) float64
        As in `ppocli.kernels.drift.evaluate_pairs`.
    p : (N_PARAMETERS,) float64
        The clip interval is read.
    sums : (n_blocks, 2 + n_rules) float64
        Written: how many tokens, their loss, and their loss times the weights of each rule.
    pieces : (n_pieces, len(PIECE)) float64
        Written: number and loss of each piece.
    bad : (n_blocks,) int64
        Written: 1 where a value is not finite; the other rows of such a block mean nothing.
    """
    workers = max(1, min(workspace.n_workers, wanted.size // 32))
    _evaluate(
        workers, *stored(columns, mask, n_tokens), wanted, starts, block_pieces, rules,
        reach_of(rules), p, workspace.scratch, sums, pieces, bad,
    )  # fmt: skip
