"""Values at valid tokens that are placeholders, not log-probs: looked for where sums give them away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.formats import PLACEHOLDERS
from ppocli.core.partials import EXTREMES, SUM
from ppocli.engine.blocks import stored, widened_half

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ppocli.core.report import Place
    from ppocli.engine.blocks import Blocks
    from ppocli.engine.totals import Totals

ONE_IN_BFLOAT16 = 0x3F80
"""+1 is a placeholder too; it is looked for wherever a log-prob is positive."""

NEAREST = max(PLACEHOLDERS)

ZERO, UNLIKELY = "0", -2.0
"""A log-prob of exactly 0 opposite one below -2 was filled in where there was none, as in `drift`."""

LOG_PROBS = {"log_probs": "log_prob", "old_log_probs": "old_log_prob"}
"""The columns that are looked through, and their extremes."""

PADDING = "zeros"

MASKED = "masked sequences"
"""Sequences whose tokens are all masked, in a file that has a valid token."""
MOST = 32
"""Blocks that are looked through at a time: 65,536 tokens."""


def look(blocks: Blocks, totals: Totals, place: Callable[[int], Place]) -> None:
    """Count placeholders and tokens that look like padding in the blocks of a span.

    Parameters
    ----------
    blocks : Blocks
    totals : Totals
        `suspects` is added to: "ROLE VALUE" for placeholders, "ROLE 0" for zeros opposite an unlikely
        token, "zeros" for tokens whose log-probs and advantage are all exactly 0.
    place : callable
        From a token's index in the file to its place.
    """
    if not LOG_PROBS.keys() <= blocks.plan.roles:
        return
    _look_for_sentinels(blocks, totals, place)
    _look_for_zeros(blocks, totals, place)
    if "advantages" in blocks.plan.roles:
        zero = (blocks.sums[:, SUM["log_ratio_zero"]] > 0) & (blocks.sums[:, SUM["adv_zero"]] > 0)
        for block in np.flatnonzero(zero):
            start, stop = blocks.tokens_of(int(block))
            hit = blocks.counted(start, stop)
            for role in ("log_probs", "old_log_probs", "advantages"):
                hit &= blocks.widened(role, start, stop) == 0.0
            _add(totals, PADDING, hit, blocks, start, place)


def _look_for_sentinels(blocks: Blocks, totals: Totals, place: Callable[[int], Place]) -> None:
    """Count placeholders; a block's smallest log-probs, or one above 0, say whether there can be one."""
    for role, name in LOG_PROBS.items():
        for block in np.flatnonzero(blocks.extremes[:, EXTREMES.index(name), 0] <= NEAREST):
            start, stop = blocks.tokens_of(int(block))
            values = blocks.widened(role, start, stop)
            for value in PLACEHOLDERS:
                hit = (values == value) & blocks.counted(start, stop)
                _add(totals, f"{role} {value:.17g}", hit, blocks, start, place)
    for first, last in _runs(np.flatnonzero((blocks.positive != 0) | (blocks.bad_base != 0))):
        start, stop = blocks.tokens_of(first)[0], blocks.tokens_of(last)[1]
        for role in LOG_PROBS:
            values = stored(blocks.span, role)[start:stop]
            hit = values == (ONE_IN_BFLOAT16 if values.dtype == np.uint16 else 1.0)
            if hit.any():
                _add(totals, f"{role} 1", hit & blocks.counted(start, stop), blocks, start, place)


def _look_for_zeros(blocks: Blocks, totals: Totals, place: Callable[[int], Place]) -> None:
    """Count zeros opposite an unlikely token, in blocks with a log-ratio that far from 0."""
    low, high = blocks.extremes[:, EXTREMES.index("log_ratio")].T
    for first, last in _runs(np.flatnonzero(np.maximum(high, -low) > -UNLIKELY)):
        start, stop = blocks.tokens_of(first)[0], blocks.tokens_of(last)[1]
        new, old = (widened_half(stored(blocks.span, role)[start:stop]) for role in LOG_PROBS)
        for role, own, other in (("log_probs", new, old), ("old_log_probs", old, new)):
            hit = (own == 0.0) & (other < UNLIKELY)
            if hit.any():
                _add(totals, f"{role} {ZERO}", hit & blocks.counted(start, stop), blocks, start, place)


def _runs(blocks: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield first and last of consecutive blocks, at most `MOST`, so that what is compared stays cached."""
    first = 0
    while first < blocks.size:
        last = first
        while last + 1 < blocks.size and last - first + 1 < MOST and blocks[last + 1] == blocks[last] + 1:
            last += 1
        yield int(blocks[first]), int(blocks[last])
        first = last + 1


def _add(
    totals: Totals, name: str, hit: np.typing.NDArray[np.bool_], blocks: Blocks, start: int,
    place: Callable[[int], Place],
) -> None:  # fmt: skip
    """Enter what was hit; only the first place is looked for."""
    count = int(hit.sum())
    if count:
        known = totals.suspects.get(name)
        where = known.where if known else place(blocks.span.origin + start + int(hit.argmax()))
        totals.add_suspect(name, count, where)
