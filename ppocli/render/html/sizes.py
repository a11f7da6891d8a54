"""The chart of the size of the log-ratio against the limits and the steps of number formats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ppocli.core.formats import FORMATS
from ppocli.render.html.histograms import APART, percent, range_text
from ppocli.render.html.markup import Markup
from ppocli.render.html.svg import Mark, Rect, figure, upright
from ppocli.render.html.tables import plain_table, scroll
from ppocli.render.numbers import count_text, number_text, plural

SHOWN_TO = 128.0
"""Sizes of the log-ratio are shown up to here, beyond the limits of bfloat16 and float32."""


@dataclass(frozen=True, slots=True)
class Octaves:
    """Places of sizes across: one slot of the same width for each bar, and for each octave beyond them."""

    edges: tuple[float, ...]

    def at(self, value: float) -> float:
        """Return the place of a size."""
        many = len(self.edges) - 1
        for k in range(many):
            low, high = self.edges[k], self.edges[k + 1]
            if value < high:
                part = math.log2(max(value, low) / low) / math.log2(high / low) if low else value / high
                return (k + part) / many
        return 1.0


def octaves_of(bars: Sequence[tuple[float, float | None, int]], to: float = 0.0) -> Octaves:
    """Return the scale for bars in ascending order, up to `to` at least."""
    edges = [bars[0][0], *(high for _, high, _ in bars if high is not None)]
    while edges[-1] < to:
        edges.append(2.0 * edges[-1] if edges[-1] else 1.0)
    if bars[-1][1] is None and len(edges) <= len(bars):
        edges.append(2.0 * edges[-1])
    return Octaves(tuple(edges))


def limit_marks(scale: Octaves) -> list[Mark]:
    """Return where the ratio overflows each format; those that fall together have one label."""
    together: dict[int, list[str]] = {}
    for name, one in FORMATS.items():
        if one.overflow_log < scale.edges[-1]:
            together.setdefault(round(100.0 * scale.at(one.overflow_log)), []).append(name)
    marks = []
    for names in together.values():
        at = sum(FORMATS[name].overflow_log for name in names) / len(names)
        marks.append(Mark(scale.at(at), f"{', '.join(names)} overflow {number_text(at, 3)}", "limit"))
    return marks


def sizes_figure(
    bars: Sequence[tuple[float, float | None, int]],
    metrics: Mapping[str, Any],
    steps: Sequence[tuple[str, float]],
    steps_of: str,
) -> Markup | None:
    """Return |log_ratio| by octave against the limits and the steps of number formats.

    Parameters
    ----------
    bars : sequence of (low, high, tokens)
    metrics : mapping
        Its counts of overflow and underflow go into the table.
    steps : sequence of (format, step)
    steps_of : str
        What the steps are those of.
    """
    if not bars:
        return None
    scale, n = octaves_of(bars, SHOWN_TO), sum(count for *_, count in bars)
    many = len(scale.edges) - 1
    most = math.log10(max(max(count for *_, count in bars), 1)) + 0.5
    drawn = [
        Rect(
            (k + 0.08) / many,
            (k + 0.92) / many,
            (math.log10(count) + 0.5) / most if count else 0.0,
            f"|log_ratio| {range_text(low, high)}: {plural(count, 'token')}, {percent(count / n)}",
        )
        for k, (low, high, count) in enumerate(bars)
    ]
    grid = [((k + 0.5) / most, count_text(10**k)) for k in range(0, int(most) + 1, 1 if most < 5 else 2)]
    marks = [
        *limit_marks(scale),
        *(Mark(scale.at(step), f"{name} step {number_text(step, 3)}", "mark") for name, step in steps),
    ]
    marks.sort(key=lambda one: -one.at)
    chart = upright(
        "sizes",
        "Histogram of the size of the log-ratio",
        f"{plural(n, 'token')} by octave, the number of tokens on a logarithmic axis.",
        drawn,
        ticks=size_ticks(scale),
        grid=grid,
        marks=[replace(one, level=k) for k, one in enumerate(marks)],
        height=150.0,
    )
    note = (
        "Tokens by |log_ratio| in nats, both axes logarithmic. Beyond a limit the ratio overflows that format"
    )
    note += f"; a step is the distance of neighbouring numbers at {steps_of}." if steps else "."
    table = plain_table(
        ("|log_ratio|", "tokens", "share"),
        [(range_text(low, high), count_text(count), percent(count / n)) for low, high, count in bars],
        (1, 2),
    )
    return figure("Size of the log-ratio", note, chart, table=Markup(table + limits_table(metrics)))


def size_ticks(scale: Octaves) -> list[tuple[float, str]]:
    """Return powers of ten along the axis that have room, from the largest."""
    chosen: list[tuple[float, str]] = []
    for power in range(math.floor(math.log10(scale.edges[-1])), -13, -1):
        size = 10.0**power
        at = scale.at(size)
        if size > scale.edges[1] and all(abs(at - other) >= APART for other, _ in chosen):
            chosen.append((at, number_text(size)))
    if all(at >= APART for at, _ in chosen):
        chosen.append((0.0, "0"))
    return chosen


def limits_table(metrics: Mapping[str, Any]) -> Markup:
    """Return the limits of each format and how many ratios are beyond them."""

    def counted(name: str) -> str:
        value = metrics.get(name, metrics.get(f"{name}_finite"))
        return "-" if value is None else count_text(int(value))

    body = [
        (
            name,
            number_text(one.overflow_log),
            counted(f"overflow_{name}"),
            number_text(one.underflow_log),
            counted(f"underflow_{name}"),
        )
        for name, one in FORMATS.items()
    ]
    heads = ("format", "overflows above", "tokens", "becomes 0 below", "tokens")
    return scroll(plain_table(heads, body, (1, 2, 3, 4)), "Limits of number formats")
