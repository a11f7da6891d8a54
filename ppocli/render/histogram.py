"""The histogram of log_ratio in the terminal: numbers on the left, bars, and where the clip interval ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.core.objective_texts import clip_ends
from ppocli.render.bars import bar
from ppocli.render.blocks import Block, Column
from ppocli.render.numbers import count_text, number_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ppocli.core.report import Bin, EvalReport

MOST_ROWS = 27
"""Bars beside each other are joined, three at a time, where there are more."""
WIDTH = 16
"""Characters of the longest bar."""


def histogram_block(report: EvalReport, digits: int, *, ascii_only: bool) -> Iterator[Block]:
    """Yield the histogram of log_ratio, where the report has one.

    The rows that hold an end of the clip interval say so. Empty bars at both ends are left out.
    """
    bars = _fewer(_trimmed(report.histograms.get("log_ratio", ())))
    if not bars:
        return
    columns = (
        Column("log_ratio\nfrom", "number"),
        Column("\nto", "number"),
        Column("\ntokens", "number"),
        Column("\nshare", "number"),
        Column(""),
        Column("", "note"),
    )
    total, most = sum(one.n for one in bars), max(one.n for one in bars)
    low, high = clip_ends(report.settings)
    rows = []
    for one in bars:
        marks = [
            f"{word} {number_text(end, digits)}"
            for word, end in (("clip from", low), ("clip to", high))
            if end is not None and _holds(one, end)
        ]
        rows.append(
            (
                "-inf" if one.low is None else number_text(one.low, digits),
                "inf" if one.high is None else number_text(one.high, digits),
                count_text(one.n),
                f"{100 * one.n / total:.2f} %",
                bar(one.n / most, WIDTH, ascii_only=ascii_only),
                ("<- " if ascii_only else "← ") + ", ".join(marks) if marks else "",
            )
        )
    yield Block(columns, tuple(rows))


def _holds(one: Bin, end: float) -> bool:
    """Tell whether a bar holds a place; its lower end belongs to it."""
    return (one.low is None or one.low <= end) and (one.high is None or end < one.high)


def _trimmed(bars: Sequence[Bin]) -> Sequence[Bin]:
    """Leave out empty bars at both ends."""
    used = [place for place, one in enumerate(bars) if one.n]
    return bars[used[0] : used[-1] + 1] if used else ()


def _fewer(bars: Sequence[Bin]) -> Sequence[Bin]:
    """Join bars three at a time around the one at 0; open ones stay by themselves."""
    if len(bars) <= MOST_ROWS:
        return bars
    middle = next(
        (k for k, one in enumerate(bars) if _holds(one, 0.0) and None not in (one.low, one.high)), 0
    )
    parts: dict[tuple[int, bool, bool], list[Bin]] = {}
    for k, one in enumerate(bars):
        parts.setdefault(((k - middle + 1) // 3, one.low is None, one.high is None), []).append(one)
    return [type(part[0])(part[0].low, part[-1].high, sum(one.n for one in part)) for part in parts.values()]
