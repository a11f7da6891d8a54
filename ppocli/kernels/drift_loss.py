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
from ppocli.kernels.drift_layout import R_ABOVE, R_BELOW, R_HIGH, R_LOW
from ppocli.kernels.layout import BLOCK, P_CLIP_CEILING, P_CLIP_FLOOR, RUN, WIDTH, Bytes, Floats, Ints
from ppocli.kernels.load import count_flags, read
from ppocli.kernels.math import exp
from ppocli.kernels.memory import add_to, load, load_flags, row_address, store
from ppocli.kernels.vector import broadcast, number_of, total, where

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS = ("a", "b", "log_probs", "advantages")
A, B, NEW, ADV = range(4)

WEIGHT, LOSS = 0, RUN
_LANES, _SHOWN = 2 * RUN, 2 * RUN + WIDTH
_RULES = _SHOWN + WIDTH
SCRATCH = _RULES + WIDTH * MAX_RULES
P_N_LOSS, P_LOSS = PIECE.index("n_loss"), PIECE.index("loss")


@inline
def _add_losses(
    addresses: Ints, doubles: int, tails: int, whole: int, start: int, n: int, live: int, s: int, p: Floats
) -> None:  # fmt: skip
    """Weights of a run, exp(a - b), and its losses: -min(r A, clip(r) A) with r = exp(log_probs - a)."""
    added = shown = broadcast(0.0)
    floor, ceiling = p[P_CLIP_FLOOR], p[P_CLIP_CEILING]
    for i in range(0, n, WIDTH):
        on, at = load_flags(live, i), start + i
        a = where(on, read(addresses[A], doubles >> A & 1, at, whole, tails, A), 0.0)
        b = where(on, read(addresses[B], doubles >> B & 1, at, whole, tails, B), 0.0)
        new = where(on, read(addresses[NEW], doubles >> NEW & 1, at, whole, tails, NEW), 0.0)
        cost = where(on, -read(addresses[ADV], doubles >> ADV & 1, at, whole, tails, ADV), 0.0)
        shown += (a + b) + (new + cost)
        store(s, WEIGHT + i, exp(a - b))
        ratio = exp(new - a)
        low, high = (ratio < floor) & (cost > 0.0), (ratio > ceiling) & (cost < 0.0)
        chosen = where(low, floor, where(high, ceiling, ratio))
        loss = where(cost == 0.0, 0.0, chosen * cost)
        store(s, LOSS + i, loss)
        added += loss
    add_to(s, _LANES, added)
    add_to(s, _SHOWN, shown)  # a value that is not finite may have no loss


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
            _add_losses(addresses, doubles, tail, whole, run, n, live, s, p)
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
        workers, *stored(columns, mask, n_tokens), wanted, starts, block_pieces, rules, p,
        workspace.scratch, sums, pieces, bad,
    )  # fmt: skip
