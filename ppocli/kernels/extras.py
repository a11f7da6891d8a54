"""The kernel of the optional columns: values, returns, rewards, entropy and the reference policy.

The same blocks, runs and rows as `ppocli.kernels.ppo`; apart, so that nobody compiles or pays for it who has
none of these columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

from ppocli.core.partials import COLUMNS, EXTREMES, LANE_SUMS, MOMENTS, PIECE
from ppocli.kernels import blocks, loops
from ppocli.kernels._jit import jit
from ppocli.kernels.layout import (
    BLOCK,
    ENTROPY,
    FIRST_COUNT,
    OLD_VALUE,
    P_VALUE_CLIP,
    REF_K3,
    RETURN,
    REWARD,
    RUN,
    SELECTION,
    VALUE,
    VALUE_TERM,
    WORK,
)
from ppocli.kernels.load import gather

if TYPE_CHECKING:
    from ppocli.kernels.layout import Bytes, Floats, Ints

OF_VALUE, OF_EV, OF_EV_OLD, OF_RETURN = (SELECTION[name] for name in ("value", "ev", "ev_old", "return"))
OF_REWARD, OF_ENTROPY, OF_REF = (SELECTION[name] for name in ("reward", "entropy", "ref"))
L_RETURN, L_REWARD, L_ENTROPY, L_EV, L_EV_OLD = (
    list(LANE_SUMS).index(name) for name in ("return", "reward", "entropy", "ev_return", "ev_old_return")
)
M_RETURN, M_REWARD, M_EV, M_EV_OLD = (
    MOMENTS.index(name) for name in ("return", "reward", "ev_return", "ev_old_return")
)
X_RETURN, X_REWARD, X_ENTROPY, X_EV, X_EV_OLD, X_REF = (
    EXTREMES.index(name) for name in ("return", "reward", "entropy", "ev_return", "ev_old_return", "ref_k1")
)
P_N_VALUE, P_VALUE, P_N_ENTROPY, P_ENTROPY, P_N_REF, P_REF = (
    PIECE.index(name) for name in ("n_value", "value", "n_entropy", "entropy", "n_ref_k3", "ref_k3")
)
REF_COLUMN = 1 << COLUMNS.index("ref_log_probs")


@jit()
def _add_errors(
    s: Floats, prediction: int, n: int, seen: float, lane: int, moment: int, extreme: int, squares: Floats
) -> None:
    """Moments of the returns and of returns - prediction, for the explained variance."""
    blocks.add_column(s, RETURN, n, seen, lane, moment, extreme, squares)
    loops.fill_difference(s[RETURN : RETURN + RUN], s[prediction : prediction + RUN], n, s[WORK : WORK + RUN])
    blocks.add_column(s, WORK, n, seen, lane + 1, moment + 1, -1, squares)


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
    if uses >> OF_VALUE & 1:
        if p[P_VALUE_CLIP] < np.inf:
            loops.add_clipped_value(s, n, p[P_VALUE_CLIP])
        else:
            loops.add_value(s, n)
        blocks.add_pieces(s[VALUE_TERM : VALUE_TERM + RUN], bounds, first, last, P_N_VALUE, P_VALUE, pieces)
    if uses >> OF_EV & 1:
        _add_errors(s, VALUE, n, sums[FIRST_COUNT + OF_EV], L_EV, M_EV, X_EV, squares)
    if uses >> OF_EV_OLD & 1:
        _add_errors(s, OLD_VALUE, n, sums[FIRST_COUNT + OF_EV_OLD], L_EV_OLD, M_EV_OLD, X_EV_OLD, squares)
    if uses >> OF_RETURN & 1:
        blocks.add_column(s, RETURN, n, sums[FIRST_COUNT + OF_RETURN], L_RETURN, M_RETURN, X_RETURN, squares)
    if uses >> OF_REWARD & 1:
        blocks.add_column(s, REWARD, n, sums[FIRST_COUNT + OF_REWARD], L_REWARD, M_REWARD, X_REWARD, squares)
    if uses >> OF_ENTROPY & 1:
        blocks.add_column(s, ENTROPY, n, 1.0, L_ENTROPY, -1, X_ENTROPY, squares)
        blocks.add_pieces(s[ENTROPY : ENTROPY + RUN], bounds, first, last, P_N_ENTROPY, P_ENTROPY, pieces)
    if uses >> OF_REF & 1:
        loops.add_reference(s, n)
        blocks.add_extremes(s, WORK, n, X_REF)
        blocks.add_pieces(s[REF_K3 : REF_K3 + RUN], bounds, first, last, P_N_REF, P_REF, pieces)
    for which in range(OF_VALUE, OF_REF + 1):
        if uses >> which & 1:
            sums[FIRST_COUNT + which] += n


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
            columns, doubles, mask, run, min(run + RUN, stop), has, REF_COLUMN, starts, run_first, piece,
            s, index, bounds,
        )  # fmt: skip
        if bad > 0:
            return bad, 0
        positive += above
        if n > 0:
            _add_run(s, n, uses, p, bounds, run_first, piece, sums, squares, pieces)
    blocks.finish(s, uses, sums, squares, extremes)
    return 0, positive


@jit(parallel=True)
def evaluate_extras(
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
    sums: Floats,
    squares: Floats,
    extremes: Floats,
    pieces: Floats,
    bad: Ints,
    positive: Ints,
) -> None:
    """Evaluate blocks of a span in parallel; parameters as in `ppocli.kernels.ppo.evaluate_base`."""
    n_workers = scratch.shape[0]
    for w in numba.prange(n_workers):
        for k in range(w * wanted.size // n_workers, (w + 1) * wanted.size // n_workers):
            b = wanted[k]
            bad[b], positive[b] = _block(
                columns, doubles, mask, b * BLOCK, min((b + 1) * BLOCK, n_tokens), uses, has,
                starts, block_pieces[b], block_pieces[b + 1], p,
                scratch[w], index[w, 0], index[w, 1], sums[b], squares[b], extremes[b], pieces,
            )  # fmt: skip
