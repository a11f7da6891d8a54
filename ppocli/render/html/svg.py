"""Small charts as inline SVG; across, places are percentages, so that text keeps its size at any width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ppocli.render.html.markup import Markup, join, tag
from ppocli.render.numbers import number_text

LABEL = 15
"""Height of a line of text."""
AXIS = 22
"""Height of the labels below the axis."""


@dataclass(frozen=True, slots=True)
class Rect:
    """A bar from `left` to `right`, from 0 to 1 across; `size` is its height or what it stands for."""

    left: float
    right: float
    size: float
    hint: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line with a label on its side at the top, on a line of text of its own or on the first."""

    at: float
    label: str
    kind: str
    level: int = 0
    left: bool | None = None

    @property
    def is_left(self) -> bool:
        """Whether the label stands left of the line: where it is told to, else where there is more room."""
        return self.at > 0.5 if self.left is None else self.left and self.at > 0.15


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a chart of rows: a name and what belongs to it, a value, and its bars or its dot."""

    label: str
    value: str
    bars: tuple[Rect, ...] = ()
    dot: float | None = None
    more: str = ""


def picture(name: str, title: str, summary: str, height: float, *content: Markup) -> Markup:
    """Return a chart with a title and a description for those who do not see it.

    Parameters
    ----------
    name : str
        Begins the ids inside; unique on the page.
    """
    head = (
        tag("title", title, id=f"{name}-title"),
        tag("desc", summary, id=f"{name}-text"),
    )
    return tag(
        "svg", *head, *content, role="img", aria_labelledby=f"{name}-title", aria_describedby=f"{name}-text",
        id=name, height=number(height),
    )  # fmt: skip


def upright(
    name: str,
    title: str,
    summary: str,
    bars: Sequence[Rect],
    *,
    ticks: Sequence[tuple[float, str]],
    grid: Sequence[tuple[float, str]] = (),
    marks: Sequence[Mark] = (),
    inside: tuple[float, float] | None = None,
    height: float = 170.0,
) -> Markup:
    """Return upright bars over an axis.

    Parameters
    ----------
    bars : sequence of Rect
        Sizes between 0 and 1; what is more than 0 is at least 2 pixels high.
    ticks, grid : sequence of (place, label)
        Below the axis, places across; lines across, places upward.
    marks : sequence of Mark
    inside : (left, right), optional
        Places between which the ground is shaded; what of a bar is beyond them is darker.
    """
    top = LABEL * (1 + max((one.level for one in marks), default=-1)) + 8.0
    floor = top + height
    parts: list[Markup] = []
    fill = None
    if inside is not None:
        left, right = inside
        fill = f"{name}-fill"
        parts += [
            _split_fill(fill, left, right),
            tag("rect", x=share(left), width=share(right - left), y=number(top), height=number(height),
                class_="band"),
        ]  # fmt: skip
    for at, _ in grid:
        y = number(floor - at * height)
        parts.append(tag("line", x1="0", x2="100%", y1=y, y2=y, class_="grid-line"))
    parts += [_upright(one, floor, height, fill) for one in bars]
    parts.append(tag("line", x1="0", x2="100%", y1=number(floor), y2=number(floor), class_="axis"))
    parts += [draw_mark(one, floor) for one in marks]
    parts += [draw_label(at, label, floor + 16.0) for at, label in ticks]
    drawn = picture(name, title, summary, floor + AXIS, *parts)
    return beside_scale(drawn, [(floor - at * height, label) for at, label in grid], floor + AXIS)


def beside_scale(chart: Markup, labels: Sequence[tuple[float, str]], height: float) -> Markup:
    """Return a chart with the labels of its lines across on its left, each at a height in pixels."""
    if not labels:
        return chart
    texts = [tag("text", label, x="100%", y=number(y + 4.0), text_anchor="end") for y, label in labels]
    scale = tag("svg", *texts, class_="scale", height=number(height), aria_hidden="true")
    return tag("div", scale, chart, class_="plot")


def _split_fill(name: str, left: float, right: float) -> Markup:
    """Return a fill that is darker outside two places of the chart, with sharp ends."""
    stops = [(0.0, "out"), (left, "out"), (left, "in"), (right, "in"), (right, "out"), (1.0, "out")]
    return tag(
        "linearGradient",
        *(tag("stop", offset=share(at), class_=kind) for at, kind in stops),
        id=name,
        gradientUnits="userSpaceOnUse",
        x1="0%",
        x2="100%",
        y1="0",
        y2="0",
    )


def _upright(bar: Rect, floor: float, height: float, fill: str | None) -> Markup:
    """Return one bar with what it says when pointed at."""
    size = max(bar.size * height, 2.0) if bar.size > 0.0 else 0.0
    return tag(
        "rect",
        tag("title", bar.hint),
        x=share(bar.left),
        width=share(bar.right - bar.left),
        y=number(floor - size),
        height=number(size),
        class_=f"bar {bar.kind}".strip(),
        style=None if fill is None else f"fill:url(#{fill})",
    )


def draw_mark(mark: Mark, floor: float) -> Markup:
    """Return a line and its label."""
    y = LABEL * (mark.level + 1) - 3.0
    x = share(mark.at)
    return join(
        tag("line", x1=x, x2=x, y1=number(y - 9.0), y2=number(floor), class_=mark.kind),
        tag(
            "text",
            mark.label,
            x=x,
            dx="-5" if mark.is_left else "5",
            y=number(y),
            text_anchor="end" if mark.is_left else None,
            class_=mark.kind if mark.kind != "clip" else "strong",
        ),
    )


def draw_label(at: float, label: str, y: float) -> Markup:
    """Return a label below the axis, inside the chart at both ends."""
    anchor = "start" if at < 0.04 else "end" if at > 0.96 else "middle"
    return tag("text", label, x=share(at), y=number(y), text_anchor=anchor)


def rows(name: str, title: str, summary: str, data: Sequence[Row], *, zero: float | None = None) -> Markup:
    """Return rows of a name and a value with bars or a dot below; at `zero` a line stands across all."""
    pitch = 34.0
    parts = []
    for k, row in enumerate(data):
        y = k * pitch
        more = tag("tspan", row.more, dx="6", class_="more") if row.more else None
        parts.append(tag("text", row.label, more, x="0", y=number(y + 12.0), class_="strong"))
        parts.append(tag("text", row.value, x="100%", y=number(y + 12.0), text_anchor="end", class_="strong"))
        middle = number(y + 21.0)
        parts.append(tag("line", x1="0", x2="100%", y1=middle, y2=middle, class_="track"))
        parts += [_flat(bar, y + 17.0) for bar in row.bars]
        if row.dot is not None:
            hint = tag("title", f"{row.label}: {row.value}")
            parts.append(tag("circle", hint, cx=share(row.dot), cy=middle, r="5", class_="dot"))
    if zero is not None:
        x = share(zero)
        parts.append(tag("line", x1=x, x2=x, y1="15", y2=number(pitch * len(data) - 6.0), class_="axis"))
    return picture(name, title, summary, pitch * len(data), *parts)


def _flat(bar: Rect, y: float) -> Markup:
    """Return one lying bar; what is more than 0 shows."""
    return tag(
        "rect",
        tag("title", bar.hint),
        x=share(bar.left),
        width=share(max(bar.right - bar.left, 0.004 if bar.size else 0.0)),
        y=number(y),
        height="9",
        class_=f"bar {bar.kind}".strip(),
    )


def swatch(kind: str) -> Markup:
    """Return the colour of a legend."""
    box = tag("rect", x="0", y="0", width="100%", height="100%", class_=f"bar {kind}".strip())
    return tag("svg", box, aria_hidden="true", focusable="false")


def legend(*entries: tuple[str, str]) -> Markup:
    """Return (kind, text) as a legend."""
    return tag("ul", *(tag("li", swatch(kind), words) for kind, words in entries), class_="legend")


def figure(
    title: str, note: str, chart: Markup, *more: Markup, table: Markup | None = None, class_: str = "card"
) -> Markup:
    """Return a chart with its heading, a note, and the same as a table where that is not elsewhere."""
    return tag(
        "figure",
        tag("figcaption", tag("h3", title), tag("p", note) if note else None),
        chart,
        *more,
        tag("details", tag("summary", "As a table"), table) if table is not None else None,
        class_=class_,
    )


def nice_grid(largest: float, lines: int = 4) -> list[float]:
    """Return round numbers from above 0 up to `largest`, about so many."""
    if not 0.0 < largest < math.inf:
        return []
    raw = largest / lines
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(one * power for one in (1.0, 2.0, 2.5, 5.0, 10.0) if one * power >= raw * 0.999)
    return [step * k for k in range(1, int(largest / step + 1e-9) + 1)]


def unit(value: float, low: float, high: float) -> float:
    """Return where a value is between `low`, 0, and `high`, 1; the middle where these are the same."""
    spread = high / 2.0 - low / 2.0  # halves, whose difference is finite
    return (value / 2.0 - low / 2.0) / spread if spread else 0.5


def share(part: float) -> str:
    """Return a part of the width as a percentage."""
    return f"{number(100.0 * part)}%"


def number(value: float) -> str:
    """Return a coordinate."""
    return number_text(round(value, 3), 8)
