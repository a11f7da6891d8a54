"""A line through values from group to group as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ppocli.render.html.markup import Markup, tag
from ppocli.render.html.svg import (
    AXIS,
    LABEL,
    Mark,
    beside_scale,
    draw_label,
    draw_mark,
    number,
    picture,
    share,
)


@dataclass(frozen=True, slots=True)
class Dot:
    """One value: its place across and upward, from 0 to 1, and what it says when pointed at."""

    x: float
    y: float
    hint: str
    kind: str = ""


def course(
    name: str,
    title: str,
    summary: str,
    lines: Sequence[Sequence[tuple[float, float]]],
    *,
    dots: Sequence[Dot],
    lost: Sequence[tuple[float, str]],
    ticks: Sequence[tuple[float, str]],
    grid: Sequence[tuple[float, str]],
    limits: Sequence[float],
    marks: Sequence[Mark],
    height: float = 110.0,
) -> Markup:
    """Return lines through points, with dots where there is room for them.

    Parameters
    ----------
    lines : sequence of sequences of (x, y)
        Places across and upward, from 0 to 1; a line of one point is drawn as a point.
    lost : sequence of (x, hint)
        Where there is no value: a mark on the axis.
    ticks, grid : sequence of (place, label)
        Below the axis, places across; lines across, places upward.
    limits : sequence of float
        Lines across that values should not pass.
    """
    top = 6.0 + LABEL * bool(marks)
    floor = top + height
    parts: list[Markup] = []

    def level(y: float, kind: str) -> Markup:
        at = number(floor - y * height)
        return tag("line", x1="0", x2="100%", y1=at, y2=at, class_=kind)

    parts += [level(y, "grid-line") for y, _ in grid]
    parts.append(level(0.0, "axis"))
    parts += [draw_mark(one, floor) for one in marks]
    drawn = [_polyline(points, "trend" if dots else "trend thin") for points in lines]
    parts.append(
        tag("svg", *drawn, viewBox="0 0 1000 1000", preserveAspectRatio="none", x="0", y=number(top),
            width="100%", height=number(height), class_="plane")
    )  # fmt: skip
    parts += [level(y, "limit level") for y in limits]
    parts += [
        tag("circle", tag("title", one.hint), cx=share(one.x), cy=number(floor - one.y * height),
            r="3.5" if len(dots) <= 40 else "2.25", class_=f"dot {one.kind}".strip())
        for one in dots
    ]  # fmt: skip
    parts += [
        tag("rect", tag("title", hint), x=share(x), y=number(floor - 5.0), width="3", height="10",
            class_="lost")
        for x, hint in lost
    ]  # fmt: skip
    parts += [draw_label(at, label, floor + 16.0) for at, label in ticks]
    chart = picture(name, title, summary, floor + AXIS, *parts)
    return beside_scale(chart, [(floor - y * height, label) for y, label in grid], floor + AXIS)


def _polyline(points: Sequence[tuple[float, float]], kind: str) -> Markup:
    """Return one line; one through a single point has no length, but round ends."""
    places = [f"{1000.0 * x:.1f},{1000.0 - 1000.0 * y:.1f}" for x, y in points]
    return tag("polyline", points=" ".join(places if len(places) > 1 else places * 2), class_=kind)
