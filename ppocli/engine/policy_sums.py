"""Adds up the terms that `engine.policy` has put beside a span, as the kernels add up theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.partials import EXTREMES, MOMENTS, PIECE, SUM
from ppocli.engine.policy import (
    ACTIVE_HIGH,
    ACTIVE_LOW,
    DELTA,
    DUAL,
    FLAGS,
    GRADIENT,
    HIGH,
    LEFT_OUT,
    LOSS,
    LOW,
    UNCLIPPED,
)
from ppocli.kernels import layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.engine.blocks import Blocks
    from ppocli.engine.totals import Floats

COUNTED = {"active_low": ACTIVE_LOW, "active_high": ACTIVE_HIGH, "dual": DUAL, "delta": DELTA}
M_LOSS, X_LOSS = MOMENTS.index("loss"), EXTREMES.index("loss")
P_COUNT, P_LOSS = PIECE.index("n_loss"), PIECE.index("loss")


def add_terms(blocks: Blocks) -> None:
    """Write the sums, moments, extremes and pieces of the loss for every block of a span."""
    arrays = blocks.span.arrays
    flags = arrays[FLAGS]
    valid = arrays["mask"] != 0 if "mask" in arrays else np.ones(flags.size, dtype=np.bool_)
    used = valid & (flags & LEFT_OUT == 0)
    loss = np.where(used, arrays[LOSS], 0.0)
    sums = blocks.sums
    n = _by_block(used, blocks.n)
    sums[:, SUM["n_policy"]] = n
    sums[:, SUM["loss"]] = _by_block(loss, blocks.n)
    sums[:, SUM["unclipped"]] = _by_block(np.where(used, arrays[UNCLIPPED], 0.0), blocks.n)
    sums[:, SUM["grad_abs"]] = _by_block(np.where(used, arrays[GRADIENT], 0.0), blocks.n)
    sums[:, SUM["grad_zero"]] = _by_block(used & (arrays[GRADIENT] == 0.0), blocks.n)
    for name, bit in COUNTED.items():
        sums[:, SUM[name]] = _by_block(used & (flags & bit != 0), blocks.n)
    # The region is decided by the log-probs alone; tokens without a finite advantage have theirs too.
    for name, bit in (("below", LOW), ("above", HIGH)):
        sums[:, SUM[name]] = _by_block(valid & (flags & bit != 0), blocks.n)
    with np.errstate(all="ignore"):
        centre = np.where(n > 0, sums[:, SUM["loss"]] / np.maximum(n, 1), 0.0)
        off = np.where(used, loss - np.repeat(centre, layout.BLOCK)[: loss.size], 0.0)
        blocks.squares[:, M_LOSS, 0], blocks.squares[:, M_LOSS, 1] = centre, _by_block(off * off, blocks.n)
    blocks.extremes[:, X_LOSS, 0] = _edges(np.where(used, loss, np.inf), blocks.n, np.inf).min(axis=1)
    blocks.extremes[:, X_LOSS, 1] = _edges(np.where(used, loss, -np.inf), blocks.n, -np.inf).max(axis=1)
    for which, starts in blocks.cut.ways():
        blocks.pieces[which, P_COUNT] = np.add.reduceat(used, starts, dtype=np.int64)
        with np.errstate(over="ignore", invalid="ignore"):  # finite advantages may have infinite losses
            blocks.pieces[which, P_LOSS] = np.add.reduceat(loss, starts)


def _by_block(values: NDArray[Any], n_blocks: int) -> Floats:
    """Return the sum over each block; pairwise, so that its error is below 2^-49 of the sum of sizes."""
    with np.errstate(all="ignore"):
        sums: Floats = _edges(values, n_blocks, 0).sum(axis=1, dtype=np.float64)
    return sums


def _edges(values: NDArray[Any], n_blocks: int, filling: float) -> NDArray[Any]:
    """Return the values with one row for each block, the last one filled up."""
    if values.size == n_blocks * layout.BLOCK:
        return values.reshape(n_blocks, layout.BLOCK)
    filled = np.full(n_blocks * layout.BLOCK, filling, dtype=values.dtype)
    filled[: values.size] = values
    return filled.reshape(n_blocks, layout.BLOCK)
