"""Values at valid tokens that are placeholders, not log-probs: looked for where sums give them away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.partials import EXTREMES, SUM

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppocli.core.report import Place
    from ppocli.engine.blocks import Blocks
    from ppocli.engine.totals import Totals

SENTINELS = (-1e9, -1e6, -1e5, -1e4, -9999.0, -1000.0, -999.0, -100.0, 1.0)
"""Values that frameworks and engines write where there is no log-prob."""

FAR = 20.0
"""A placeholder is further than this from the log-prob opposite, in nats; +1 shows as a positive log-prob."""

PADDING = "zeros"


def look(blocks: Blocks, totals: Totals, place: Callable[[int], Place]) -> None:
    """Count placeholders and tokens that look like padding in the blocks of a span.

    Parameters
    ----------
    blocks : Blocks
    totals : Totals
        `suspects` is added to: "ROLE VALUE" for placeholders, "zeros" for tokens whose log-probs and
        advantage are all exactly 0.
    place : callable
        From a token's index in the file to its place.
    """
    if not {"log_probs", "old_log_probs"} <= blocks.plan.roles:
        return
    low, high = blocks.extremes[:, EXTREMES.index("log_ratio")].T
    far = (np.maximum(high, -low) > FAR) | (blocks.positive > 0)
    for block in np.flatnonzero(far):
        _count_sentinels(blocks, int(block), totals, place)
    if "advantages" in blocks.plan.roles:
        zero = (blocks.sums[:, SUM["log_ratio_zero"]] > 0) & (blocks.sums[:, SUM["adv_zero"]] > 0)
        for block in np.flatnonzero(zero):
            start, stop = blocks.tokens_of(int(block))
            hit = blocks.counted(start, stop)
            for role in ("log_probs", "old_log_probs", "advantages"):
                hit &= blocks.widened(role, start, stop) == 0.0
            _add(totals, PADDING, hit, blocks, start, place)


def _count_sentinels(blocks: Blocks, block: int, totals: Totals, place: Callable[[int], Place]) -> None:
    """Count placeholders in the two log-prob columns of one block."""
    start, stop = blocks.tokens_of(block)
    counted = blocks.counted(start, stop)
    for role in ("log_probs", "old_log_probs"):
        values = blocks.widened(role, start, stop)
        if not np.isin(values, SENTINELS).any():
            continue
        for sentinel in SENTINELS:
            _add(totals, f"{role} {sentinel:.12g}", (values == sentinel) & counted, blocks, start, place)


def _add(
    totals: Totals, name: str, hit: np.typing.NDArray[np.bool_], blocks: Blocks, start: int,
    place: Callable[[int], Place],
) -> None:  # fmt: skip
    """Enter what was hit."""
    count = int(hit.sum())
    if count:
        totals.add_suspect(name, count, place(blocks.span.origin + start + int(hit.argmax())))
