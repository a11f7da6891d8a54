"""The kernel of the three main columns: log-probs, old log-probs and advantages.

One row of partial results per block of stored tokens. Masked tokens are left out while a run is loaded; a
block with a value that is not finite is given back, to be evaluated again without the tokens that a term
cannot have. Workers take whole blocks and write rows of their own; rows are added in order afterwards, so
results do not depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.partials import LANE_SUMS, MOMENTS, PIECE
from ppocli.kernels._jit import inline, parallel
from ppocli.kernels.blocks import (
    Workspace,
    add_pieces,
    begin,
    finish,
    flags_of,
    is_spoiled,
    stop_of,
    stored,
    within,
)
from ppocli.kernels.layout import (
    BLOCK,
    HISTOGRAM_COPIES,
    HISTOGRAM_HALF,
    P_CLAMP,
    P_DELTA,
    P_DUAL,
    P_SCALE,
    P_SHIFT,
    PIECE_ADV_MAX,
    PIECE_ADV_MIN,
    RUN,
    SELECTION,
    WIDTH,
    Bytes,
    Floats,
    Ints,
    Places,
    centre,
)
from ppocli.kernels.load import POSITIVE, count_flags, load_columns, set_centres
from ppocli.kernels.loops import (
    C_LOG_RATIO,
    LOG_RATIO,
    NEW,
    NEW_LANES,
    OLD,
    OLD_LANES,
    STORED_ADV,
    USED_ADV,
    add_histogram,
    add_log_ratio,
    fill_ratio,
    fill_ratio_near_1,
    next_run,
    normalise,
)
from ppocli.kernels.math import exp
from ppocli.kernels.memory import load, load_one, row_address, store_one
from ppocli.kernels.policy import LOSS, add_policy, set_policy_centres
from ppocli.kernels.vector import broadcast, greatest, highest, least, lowest, where

if TYPE_CHECKING:
    from numpy.typing import NDArray

OF_RATIO, OF_POLICY, OF_ADV = (SELECTION[name] for name in ("ratio", "policy", "adv"))
PAIR = (1 << OF_RATIO) | (1 << OF_POLICY)
PAIR_COLUMNS = (1 << NEW) | (1 << OLD)
C_NEW, C_OLD = centre("log_probs"), centre("old_log_probs")
TERMS = np.array(
    [
        (LOG_RATIO, OF_RATIO, PIECE.index("n_log_ratio"), PIECE.index("log_ratio")),
        (LOSS, OF_POLICY, PIECE.index("n_loss"), PIECE.index("loss")),
    ]
)
S_RATIO, S_RAW_RATIO, S_RAW_RATIO_SQ = (
    list(LANE_SUMS).index(name) for name in ("ratio", "raw_ratio", "raw_ratio_sq")
)
M_RATIO = MOMENTS.index("ratio")
KNOWN_FINITE = 2
ZERO_BIN = (HISTOGRAM_HALF + 1) * HISTOGRAM_COPIES


@inline
def _fill_ratio(s: int, n: int, far: bool, kept: int, at: int, ahead: tuple[int, int, int]) -> None:
    """Ratios of a run, the short way where no log-ratio is far from 0."""
    if far:
        fill_ratio(s, n, kept, at, ahead)
    else:
        fill_ratio_near_1(s, n, kept, at, ahead)


@inline
def _add_advantage_range(
    s: int, live: int, run: int, n: int, starts: Ints, first: int, last: int, pieces: Floats
) -> None:
    """Smallest and largest advantage of each piece, for groups whose advantages are all equal."""
    for j in range(first, last):
        begin, end = starts[j] - run, starts[j + 1] - run if j + 1 < last else n
        low, high = broadcast(np.inf), broadcast(-np.inf)
        for i in range(begin & -WIDTH, end, WIDTH):
            on = within(begin, end, i, live)
            low = least(where(on, load(s, STORED_ADV + i), np.inf), low)
            high = greatest(where(on, load(s, STORED_ADV + i), -np.inf), high)
        pieces[j, PIECE_ADV_MIN], pieces[j, PIECE_ADV_MAX] = lowest(low), highest(high)


@inline
def _derive_raw_ratio(b: int, counted: int, sums: Floats, squares: Floats) -> None:
    """Without a clamp the ratio is the raw one: sum r^2 = sum (r - c)^2 + c (2 sum r - n c)."""
    ratios, middle = sums[b, S_RATIO], squares[b, M_RATIO, 0]
    sums[b, S_RAW_RATIO] = ratios
    sums[b, S_RAW_RATIO_SQ] = squares[b, M_RATIO, 1] + middle * (2.0 * ratios - counted * middle)


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
    uses: int,
    has: int,
    starts: Ints,
    run_pieces: Ints,
    ranged: int,
    p: Floats,
    guards: Floats | None,
    scratch: Floats,
    places: Places,
    bins: Ints,
    sums: Floats,
    squares: Floats,
    extremes: Floats,
    pieces: Floats,
    bad: Ints,
    positive: Ints,
) -> None:
    """Evaluate one worker's share of the blocks."""
    s, kept, tail = row_address(scratch, worker), row_address(places, worker), row_address(tails, 0)
    whole, ones = n_tokens & -WIDTH, row_address(edge, 0)
    advantages = STORED_ADV if p[P_SHIFT] == 0.0 and p[P_SCALE] == 1.0 else USED_ADV
    ends = (0.0, np.inf)
    if guards is not None:
        ends = (exp(-p[P_CLAMP]), exp(p[P_CLAMP]))
    for k in range(worker * wanted.size // n_workers, (worker + 1) * wanted.size // n_workers):
        b = wanted[k]
        begin(s, extremes)
        at = counted = 0
        for run in range(b * BLOCK, stop_of(b * BLOCK, BLOCK, n_tokens), RUN):
            n = stop_of(run, RUN, n_tokens) - run
            live = flags_of(mask, run, n, ones)
            n_live = n if mask == 0 else count_flags(live, n)
            fresh, place = counted == 0 and n_live > 0, 0
            if fresh:
                place = set_centres(addresses, doubles, tail, whole, has, run, live, s)
                store_one(s, C_LOG_RATIO, load_one(s, C_NEW) - load_one(s, C_OLD))
            others = has & ~PAIR_COLUMNS if uses & PAIR else has
            load_columns(addresses, doubles, tail, whole, others, run, n, live, s)
            if uses & PAIR:
                far = add_log_ratio(addresses, doubles, tail, whole, run, n, live, s)
                _fill_ratio(s, n, far, kept, at, next_run(addresses, doubles, run + RUN))
                if advantages == USED_ADV:
                    normalise(s, n, live, p)
                if fresh:
                    set_policy_centres(s, live, place, advantages, p, ends)
                add_policy(s, n, live, n_live, advantages, p, guards, ends)
                at += (n + WIDTH - 1) & -WIDTH
            counted += n_live
            for way in range(run_pieces.shape[0]):
                first, last = run_pieces[way, run // RUN], run_pieces[way, run // RUN + 1]
                add_pieces(s, live, run, n, starts, first, last, uses, TERMS, pieces)
                if way == ranged and uses >> OF_ADV & 1:
                    _add_advantage_range(s, live, run, n, starts, first, last, pieces)
        finish(s, b, uses, counted, sums, squares, extremes)
        if guards is None and uses >> OF_RATIO & 1:
            _derive_raw_ratio(b, counted, sums, squares)
        is_whole = bad[b] == KNOWN_FINITE or not is_spoiled(s, addresses, has)
        bad[b] = not is_whole
        above = load_one(s, NEW_LANES + POSITIVE) + load_one(s, OLD_LANES + POSITIVE)
        positive[b] = int(above) if is_whole else 0
        if uses >> OF_RATIO & 1 and is_whole:
            add_histogram(kept, at, row_address(bins, worker))
            bins[worker, ZERO_BIN] -= at - counted  # tokens that do not count stand at 0


def evaluate_base(
    workspace: Workspace,
    columns: Sequence[NDArray[Any]],
    mask: Bytes,
    n_tokens: int,
    wanted: Ints,
    uses: int,
    has: int,
    starts: Ints,
    run_pieces: Ints,
    ranged: int,
    p: Floats,
    sums: Floats,
    squares: Floats,
    extremes: Floats,
    pieces: Floats,
    bad: Ints,
    positive: Ints,
) -> None:
    """Evaluate blocks of a span in parallel.

    Parameters
    ----------
    workspace : Workspace
        `bins` is added to.
    columns : N_COLUMNS contiguous arrays, (n_tokens,) float32 or float64
        Columns of the span; those not in `has` may be anything. Nulls are NaN.
    mask : (n_tokens,) or (0,) uint8
    n_tokens : int
    wanted : (n,) int64
        Blocks to evaluate.
    uses, has : int
        Selections to evaluate and columns to load, as bits.
    starts : (n_pieces,) int64; run_pieces : (n_ways, n_runs + 1) int64
        Where pieces start, one way of cutting after the other, and the first piece of each run; a piece
        ends with its run.
    ranged : int
        The way whose pieces also get the range of the advantages. -1: none.
    p : (N_PARAMETERS,) float64
    sums : (n_blocks, N_SUMS); squares : (n_blocks, n_moments, 2); extremes : (n_blocks, n_extremes, 2)
        float64, written for the selections in use.
    pieces : (n_pieces, N_PIECE) float64
        Written for the selections in use.
    bad, positive : (n_blocks,) int64
        Written: 1 where a value is not finite (the other rows of such a block mean nothing), and how many
        log-probs are above 0. Where `bad` is `KNOWN_FINITE` before, that is not looked for: finite values
        whose sum or difference overflows look the same.
    """
    guarded = bool(np.isfinite(p[[P_DUAL, P_DELTA, P_CLAMP]]).any())
    _evaluate(
        workspace.workers_for(wanted.size), *stored(columns, mask, n_tokens), wanted,
        uses, has, starts, run_pieces, ranged, p, p if guarded else None,
        workspace.scratch, workspace.kept, workspace.bins,
        sums, squares, extremes, pieces, bad, positive,
    )  # fmt: skip
