"""Counts of the blocks of several groups: valid tokens, and what is not finite at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.partials import COLUMNS, SUM
from ppocli.engine import dirty
from ppocli.engine.accumulate import LOG_PROBS, LOSS_ROLES, TERMS, flag_pieces
from ppocli.engine.blocks import stored, widened
from ppocli.engine.policy import FLAGS, LEFT_OUT, LOSS, REJECTED
from ppocli.kernels import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ppocli.engine.blocks import Blocks
    from ppocli.engine.group_state import GroupTotals
    from ppocli.engine.totals import Floats, Ints


def count_tokens(blocks: Blocks, owners: Ints, sizes: Ints, totals: GroupTotals) -> None:
    """Count what `FileAccumulator` counts of a span, each block for the group it belongs to."""
    span = blocks.span
    mask = span.arrays.get("mask")
    edges = np.arange(0, span.n_tokens, layout.BLOCK)
    valid = sizes if mask is None else np.add.reduceat(mask, edges, dtype=np.int64)
    masked = sizes - valid
    if FLAGS in span.arrays:
        masked = masked - np.add.reduceat(span.arrays[FLAGS] & REJECTED != 0, edges, dtype=np.int64)
    for name, counts in (("n_tokens", valid), ("n_masked", masked), ("n_positive", blocks.positive)):
        np.add.at(totals.ints(name), owners, counts)
    for which, starts in blocks.cut.ways():
        own = blocks.pieces[which]
        own[:, layout.PIECE_STORED] = np.diff(starts, append=span.n_tokens)
        own[:, layout.PIECE_VALID] = (
            own[:, layout.PIECE_STORED] if mask is None else np.add.reduceat(mask, starts, dtype=np.int64)
        )
    _count_positive(blocks, owners, totals)
    again = np.flatnonzero(blocks.bad_base | blocks.bad_extras)
    if again.size:
        for g, where in _by_owner(blocks.valid_tokens(again), owners):
            _tally(blocks, where, g, totals)
    if blocks.plan.computed:
        _tally_undefined(blocks, owners, totals)


def _by_owner(where: Ints, owners: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield the tokens of each group; tokens ascend, and the blocks of a group stand together."""
    whose = owners[where // layout.BLOCK]
    limits = np.flatnonzero(np.diff(whose, prepend=-1))
    for a, b in zip(limits, [*limits[1:], where.size], strict=True):
        yield int(whose[a]), where[a:b]


def _count_positive(blocks: Blocks, owners: Ints, totals: GroupTotals) -> None:
    """Count log-probs above 0 in blocks that hold values that are not finite."""
    for role in LOG_PROBS:
        bad = blocks.bad_extras if role == "ref_log_probs" else blocks.bad_base
        if role in blocks.plan.roles and bad.any():
            where = blocks.valid_tokens(np.flatnonzero(bad))
            above = where[widened(stored(blocks.span, role)[where]) > 0.0]
            np.add.at(totals.ints("n_positive"), owners[above // layout.BLOCK], 1)


def _tally(blocks: Blocks, where: Ints, g: int, totals: GroupTotals) -> None:
    """Count what is not finite at some valid tokens of a group, and what float64 would have made of it."""
    span, plan = blocks.span, blocks.plan
    values, null, bad = {}, {}, np.zeros(where.size, dtype=np.bool_)
    for c, role in enumerate(COLUMNS):
        if role not in plan.roles:
            continue
        values[role] = widened(stored(span, role)[where])
        present = span.arrays.get(f"{role} present")
        null[role] = np.zeros(where.size, dtype=np.bool_) if present is None else present[where] == 0
        bad |= ~np.isfinite(values[role])
        totals.ints("column_counts")[g, c] += dirty.kinds_of(values[role], null[role])
    where = where[bad]
    if not where.size:
        return
    values = {role: x[bad] for role, x in values.items()}
    null = {role: x[bad] for role, x in null.items()}
    loss = None
    if plan.computed:
        loss = span.arrays[LOSS][where]
        missing = [null[role] for role in LOSS_ROLES if role in null]
        there = where[~np.logical_or.reduce(missing)]
        _add_kinds(((name, span.arrays[array][there]) for name, array in TERMS), g, totals)
    skip = ("policy",) if plan.computed else ()
    _add_kinds(dirty.terms_of(values, null, plan.parameters, skip), g, totals)
    flag_pieces(blocks, where, dirty.flags_of(values, null, plan.parameters, loss))


def _tally_undefined(blocks: Blocks, owners: Ints, totals: GroupTotals) -> None:
    """Count tokens whose columns are finite, but not their advantage as it is normalised."""
    arrays = blocks.span.arrays
    where = np.flatnonzero(arrays[FLAGS] & LEFT_OUT)
    if "mask" in arrays:
        where = where[arrays["mask"][where] != 0]
    for role in LOSS_ROLES:
        if role in arrays:
            where = where[np.isfinite(widened(stored(blocks.span, role)[where]))]
    if not where.size:
        return
    for g, mine in _by_owner(where, owners):
        _add_kinds(((name, arrays[array][mine]) for name, array in TERMS), g, totals)
    flag_pieces(blocks, where, dirty.loss_flags(arrays[LOSS][where]))


def _add_kinds(terms: Iterable[tuple[str, Floats]], g: int, totals: GroupTotals) -> None:
    """Count terms of sums that are NaN, +inf and -inf."""
    for name, values in terms:
        kinds = np.isnan(values).sum(), (values == np.inf).sum(), (values == -np.inf).sum()
        totals.ints("terms")[g, SUM[name]] += kinds
