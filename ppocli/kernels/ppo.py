"""The kernel of the three main columns: log-probs, old log-probs and advantages.

One row of partial results per block of stored tokens. Masked tokens are left out while a run is loaded; a
block with a value that is not finite is given back, to be evaluated again without the tokens that a term
cannot have. Workers take whole blocks and write rows of their own; rows are added in order afterwards, so
results do not depend on the number of workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

from ppocli.core.partials import COLUMNS, EXTREMES, LANE_SUMS, MOMENTS, PIECE
from ppocli.kernels import blocks, loops
from ppocli.kernels._jit import jit
from ppocli.kernels.layout import (
    ADV,
    BLOCK,
    FIRST_COUNT,
    LANES,
    LOG_RATIO,
    LOSS,
    LP,
    P_CLAMP,
    P_CLIP_CEILING,
    P_CLIP_FLOOR,
    P_DELTA,
    P_DUAL,
    P_SCALE,
    P_SHIFT,
    PIECE_ADV_MAX,
    PIECE_ADV_MIN,
    RATIO,
    RUN,
    SELECTION,
    SQUARES,
)
from ppocli.kernels.load import gather

if TYPE_CHECKING:
    from ppocli.kernels.layout import Bytes, Floats, Ints

OF_RATIO, OF_POLICY, OF_ADV, OF_LOG_PROB = (
    SELECTION[name] for name in ("ratio", "policy", "adv", "log_prob")
)
L_ADV, L_ADV_ZERO, L_LOG_PROB = (list(LANE_SUMS).index(name) for name in ("adv", "adv_zero", "log_prob"))
M_RATIO, M_LOSS, M_LOG_RATIO, M_ADV = (MOMENTS.index(name) for name in ("ratio", "loss", "log_ratio", "adv"))
X_LOG_RATIO, X_LOSS, X_ADV = (EXTREMES.index(name) for name in ("log_ratio", "loss", "adv"))
P_N_LOSS, P_LOSS, P_N_LOG_RATIO, P_LOG_RATIO = (
    PIECE.index(name) for name in ("n_loss", "loss", "n_log_ratio", "log_ratio")
)
LOG_PROB_COLUMNS = (1 << COLUMNS.index("log_probs")) | (1 << COLUMNS.index("old_log_probs"))


@jit()
def _add_ratio_terms(s: Floats, n: int, seen: float, p: Floats, sums: Floats, squares: Floats) -> None:
    """Everything that needs the two log-probs; log-ratio and ratio are there."""
    at = int(sums[FIRST_COUNT + OF_RATIO])
    loops.keep_log_ratios(s, n, at)
    loops.add_log_ratio(
        s, n, blocks.set_centre(s[LOG_RATIO : LOG_RATIO + RUN], n, seen, squares, M_LOG_RATIO)
    )
    blocks.add_extremes(s, LOG_RATIO, n, X_LOG_RATIO)
    centre = blocks.set_centre(s[RATIO : RATIO + RUN], n, seen, squares, M_RATIO)
    loops.add_ratio(s, n, p[P_CLIP_FLOOR], p[P_CLIP_CEILING], centre)


@jit()
def _add_policy_terms(s: Floats, n: int, seen: float, p: Floats, squares: Floats) -> None:
    """Everything that needs the two log-probs and the advantage."""
    loops.fill_advantages(s, n, p[P_SHIFT], p[P_SCALE])
    loops.add_loss(s, n, p[P_CLIP_FLOOR], p[P_CLIP_CEILING], p[P_DUAL], p[P_DELTA])
    losses = s[LOSS : LOSS + RUN]
    centre = blocks.set_centre(losses, n, seen, squares, M_LOSS)
    loops.add_square(losses, n, centre, s[SQUARES + M_LOSS * RUN : SQUARES + (M_LOSS + 1) * RUN])
    if p[P_DELTA] < np.inf:
        loops.mark_delta(s, n, p[P_DELTA])
    if p[P_CLAMP] < np.inf:
        loops.mark_clamped(s, n, p[P_CLAMP])
    loops.add_branches(s, n, p[P_CLIP_FLOOR], p[P_CLIP_CEILING])
    blocks.add_extremes(s, LOSS, n, X_LOSS)


@jit()
def _add_advantage_range(s: Floats, bounds: Ints, first: int, last: int, pieces: Floats) -> None:
    """Smallest and largest advantage of each piece, for groups whose advantages are all equal."""
    for j in range(last - first):
        for k in range(bounds[j], bounds[j + 1]):
            pieces[first + j, PIECE_ADV_MIN] = min(pieces[first + j, PIECE_ADV_MIN], s[ADV + k])
            pieces[first + j, PIECE_ADV_MAX] = max(pieces[first + j, PIECE_ADV_MAX], s[ADV + k])


@jit()
def _add_run(
    s: Floats,
    n: int,
    uses: int,
    p: Floats,
    bounds: Ints,
    first: int,
    last: int,
    sums: Floats,
    squares: Floats,
    pieces: Floats,
) -> None:
    """Add the n finite tokens of a run, which stand in the column rows of scratch."""
    if uses & ((1 << OF_RATIO) | (1 << OF_POLICY)):
        loops.fill_ratio(s, n)
        if p[P_CLAMP] < np.inf:
            loops.clamp_ratio(s, n, p[P_CLAMP])
    if uses >> OF_RATIO & 1:
        _add_ratio_terms(s, n, sums[FIRST_COUNT + OF_RATIO], p, sums, squares)
        sums[FIRST_COUNT + OF_RATIO] += n
        blocks.add_pieces(
            s[LOG_RATIO : LOG_RATIO + RUN], bounds, first, last, P_N_LOG_RATIO, P_LOG_RATIO, pieces
        )
    if uses >> OF_POLICY & 1:
        _add_policy_terms(s, n, sums[FIRST_COUNT + OF_POLICY], p, squares)
        sums[FIRST_COUNT + OF_POLICY] += n
        blocks.add_pieces(s[LOSS : LOSS + RUN], bounds, first, last, P_N_LOSS, P_LOSS, pieces)
    if uses >> OF_ADV & 1:
        blocks.add_column(s, ADV, n, sums[FIRST_COUNT + OF_ADV], L_ADV, M_ADV, X_ADV, squares)
        loops.count_zero(s[ADV : ADV + RUN], n, s[LANES + L_ADV_ZERO * RUN : LANES + (L_ADV_ZERO + 1) * RUN])
        sums[FIRST_COUNT + OF_ADV] += n
        _add_advantage_range(s, bounds, first, last, pieces)
    if uses >> OF_LOG_PROB & 1:
        blocks.add_column(s, LP, n, 1.0, L_LOG_PROB, -1, -1, squares)
        sums[FIRST_COUNT + OF_LOG_PROB] += n


@jit()
def _block(
    columns: tuple[Bytes, ...],
    doubles: int,
    mask: Bytes,
    start: int,
    stop: int,
    uses: int,
    has: int,
    starts: Ints,
    first: int,
    last: int,
    p: Floats,
    s: Floats,
    index: Ints,
    bounds: Ints,
    bins: Ints,
    sums: Floats,
    squares: Floats,
    extremes: Floats,
    pieces: Floats,
) -> tuple[int, int]:
    """Evaluate one block; return how many values are not finite and how many log-probs are positive."""
    blocks.begin(s, uses)
    piece = first
    positive = 0
    for run in range(start, stop, RUN):
        run_first, piece = piece, blocks.pieces_until(starts, piece, last, min(run + RUN, stop))
        n, bad, above = gather(
            columns, doubles, mask, run, min(run + RUN, stop), has, LOG_PROB_COLUMNS,
            starts, run_first, piece, s, index, bounds,
        )  # fmt: skip
        if bad > 0:
            return bad, 0
        positive += above
        if n > 0:
            _add_run(s, n, uses, p, bounds, run_first, piece, sums, squares, pieces)
    blocks.finish(s, uses, sums, squares, extremes)
    if uses >> OF_RATIO & 1:
        # Only now: a block that is given back must leave nothing in what blocks share.
        loops.add_histogram(s, int(sums[FIRST_COUNT + OF_RATIO]), bins)
    return 0, positive


@jit(parallel=True)
def evaluate_base(
    columns: tuple[Bytes, ...],
    doubles: int,
    mask: Bytes,
    n_tokens: int,
    wanted: Ints,
    uses: int,
    has: int,
    starts: Ints,
    block_pieces: Ints,
    p: Floats,
    scratch: Floats,
    index: Ints,
    bins: Ints,
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
    columns : tuple of N_COLUMNS (bytes,) uint8
        Columns of the span: float64 where the bit of `doubles` is set, else float32. Nulls are NaN.
    mask : (n_tokens,) or (0,) uint8
    n_tokens : int
    wanted : (n,) int64
        Blocks to evaluate.
    uses, has : int
        Selections to evaluate and columns to load, as bits.
    starts : (n_pieces,) int64; block_pieces : (n_blocks + 1,) int64
        Where pieces of sequences start, and the first piece of each block. A piece ends with its run.
    p : (N_PARAMETERS,) float64
    scratch : (n_workers, SCRATCH) float64; index : (n_workers, 2, RUN + 1) int64
    bins : (n_workers, HISTOGRAM_BINS) int64
        Added to.
    sums : (n_blocks, N_SUMS); squares : (n_blocks, n_moments, 2); extremes : (n_blocks, n_extremes, 2)
        Written for the selections in use; the counts in `sums` must come as 0.
    pieces : (n_pieces, N_PIECE) float64
        Written for the selections in use.
    bad, positive : (n_blocks,) int64
        Written: values that are not finite (the other rows of such a block mean nothing), log-probs above 0.
    """
    n_workers = scratch.shape[0]
    for w in numba.prange(n_workers):
        for k in range(w * wanted.size // n_workers, (w + 1) * wanted.size // n_workers):
            b = wanted[k]
            bad[b], positive[b] = _block(
                columns, doubles, mask, b * BLOCK, min((b + 1) * BLOCK, n_tokens), uses, has,
                starts, block_pieces[b], block_pieces[b + 1], p,
                scratch[w], index[w, 0], index[w, 1], bins[w], sums[b], squares[b], extremes[b], pieces,
            )  # fmt: skip
