"""Metrics from group to group as charts: one small one for each, with its limits, and all as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ppocli.core.trend import TREND
from ppocli.render.console import printable
from ppocli.render.groups import in_order_of_keys, signed
from ppocli.render.html.lines import Dot, course
from ppocli.render.html.markup import Markup, tag
from ppocli.render.html.series import Limit, Series, largest_change, lost, pieces, series_of
from ppocli.render.html.svg import Mark, figure, unit
from ppocli.render.html.tables import Terms, card, drift_definition, folded, plain_table, scroll
from ppocli.render.numbers import cell_text, count_text, number_text, plural

if TYPE_CHECKING:
    from ppocli.core.check_report import Check
    from ppocli.core.report import Group

FEWEST_FILES = 3
"""Files are a series from so many on; steps and other values from two on."""
MOST_DOTS = 150
"""Up to so many groups each has a dot; of more, a line goes through the extremes of neighbours."""
MOST_ROWS = 1000
"""Groups in the table; of more, the first and the last."""
LONGEST = 10
"""Characters of a label below the axis."""
CAPTION_DIGITS = 4
"""Significant digits in what is said above a chart; the table has all that were asked for."""
REACH = 4.0
"""A limit is drawn where that makes the chart at most so many times as high as the values need."""
EDGE = 0.05
"""Room above the largest and below the smallest value, as a part of the height."""


def series_parts(
    every: Sequence[Group],
    terms: Terms,
    digits: int,
    *,
    sort: str | None = None,
    checks: Sequence[Check] = (),
    followed: Sequence[str] = TREND,
) -> list[Markup]:
    """Return the charts of groups, and their table; nothing where they have no order.

    Parameters
    ----------
    sort : str, optional
        The metric by which the groups were ordered; files then have no other order.
    checks : sequence of Check
        Judgements of a gate, of which the limits of each group are drawn.
    followed : sequence of str
        Metrics that get a chart where some group has them.
    """
    by = next(iter(every[0].key), "") if every else ""
    if len(every) < (FEWEST_FILES if by == "file" else 2) or (by == "file" and sort is not None):
        return []
    groups = every if by == "file" else in_order_of_keys(tuple(every))
    made = series_of(groups, by, checks, followed)
    if not made:
        return []
    charts = [_figure(one, terms, digits) for one in made]
    return [tag("div", *charts, class_="grid"), card(_table(groups, made, digits))]


def _figure(series: Series, terms: Terms, digits: int) -> Markup:
    """Return one metric as a chart, its values as a summary."""
    known, many = series.known, len(series.values)
    low, high, drawn = _range(series)

    def up(value: float) -> float:
        return EDGE + (1.0 - 2.0 * EDGE) * unit(value, low, high)

    def across(k: int) -> float:
        return (k + 0.5) / many

    every = many <= MOST_DOTS
    lines = [[(across(k), up(value)) for k, value in piece] for piece in pieces(series.values, every=every)]
    broken = {k for one in series.limits for k in one.broken}
    dots = [
        Dot(across(k), up(value), _hint(series, k, digits), "bad" if k in broken else "")
        for k, value in known
        if every
    ]
    gone = [
        (across(k), f"{series.at(k)}: null" + (f" ({why})" if (why := series.reasons.get(k)) else ""))
        for k in lost(series.values, every=every)
    ]
    first = min(broken, default=None)
    marks = (
        [Mark(across(first), f"first broken at {_short(series.labels[first], series.key)}", "limit")]
        if first is not None
        else []
    )
    name = series.name.replace(".", "-")
    chart = course(
        f"series-{name}",
        f"{series.name} over {many:,} groups by {series.key}",
        _said(series, digits, drawn),
        lines,
        dots=dots,
        lost=gone,
        ticks=[(across(k), _short(series.labels[k], series.key)) for k in _ticks(many)],
        grid=[(up(value), text) for value, text in grid_between(low, high)] if known else [],
        limits=[up(one.bound) for one in drawn],
        marks=marks,
    )
    define = (lambda full: drift_definition(full.removeprefix("drift."))) if "." in series.name else None
    return figure(terms.term(series.name, define), _said(series, digits, drawn), chart)


def _range(series: Series) -> tuple[float, float, list[Limit]]:
    """Return the smallest and the largest value shown, and the limits among them."""
    values = [value for _, value in series.known] or [one.bound for one in series.limits]
    low, high = min(values), max(values)
    drawn = []
    for one in series.limits:
        wider = max(high, one.bound) / 2.0 - min(low, one.bound) / 2.0
        if low <= one.bound <= high or wider <= REACH * (high / 2.0 - low / 2.0) or low == high:
            drawn.append(one)
    ends = [low, high, *(one.bound for one in drawn)]
    return min(ends), max(ends), drawn


def _said(series: Series, digits: int, drawn: Sequence[Limit]) -> str:
    """Return both ends, the range, the largest change, and how the limits were kept."""
    known, many, digits = series.known, len(series.values), min(digits, CAPTION_DIGITS)
    if not known:
        parts = [f"Null in all of {many:,}"]
    else:
        (_, first), (_, last) = known[0], known[-1]
        values = [value for _, value in known]
        parts = [
            f"First {cell_text(first, digits)}, last {cell_text(last, digits)}; "
            f"between {cell_text(min(values), digits)} and {cell_text(max(values), digits)}"
        ]
        change, at = largest_change(series)
        if at is not None:
            parts.append(f"largest change {signed(change, digits)} at {series.at(at)}")
        if len(known) < many:
            parts.append(f"null in {many - len(known):,} of {many:,}")
    for one in series.limits:
        beyond = "" if one in drawn else ", beyond what is shown"
        kept = (
            f"broken in {len(one.broken):,} of {many:,}, first at {series.at(one.broken[0])}"
            if one.broken
            else "kept"
        )
        parts.append(f"limit {printable(one.name)}{beyond}: {kept}")
    return "; ".join(parts) + "."


def _hint(series: Series, k: int, digits: int) -> str:
    """Return what a dot says: its group, its value, what changed."""
    value = series.values[k]
    before = series.values[k - 1] if k else None
    change = (
        f" ({signed(float(value) - float(before), digits)})"
        if value is not None and before is not None
        else ""
    )
    return f"{series.at(k)}: {cell_text(value, digits)}{change}"


def _ticks(many: int) -> list[int]:
    """Return which groups are named below the axis: the first, the last, one or more between."""
    if many <= 3:
        return list(range(many))
    return [0, (many - 1) // 2, many - 1]


def _short(label: str, key: str) -> str:
    """Return a label that fits below the axis; of a path the name."""
    name = label.replace("\\", "/").rstrip("/").rpartition("/")[2] if key == "file" else label
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2 - 1]}…{name[-(LONGEST // 2) :]}"


def grid_between(low: float, high: float, lines: int = 4) -> list[tuple[float, str]]:
    """Return about so many round numbers from `low` to `high`, each with a text that tells them apart."""
    spread = high - low
    if not math.isfinite(spread):
        return [(0.0, "0")]
    if spread <= max(1e-12 * max(abs(low), abs(high)), 1e-300):
        return [(low, number_text(low, 4))]
    power = 10.0 ** math.floor(math.log10(spread / lines))
    step = next(one * power for one in (1.0, 2.0, 5.0, 10.0) if one * power >= 0.999 * spread / lines)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    size = math.floor(math.log10(max(abs(low), abs(high)))) - math.floor(math.log10(step * 1.0001))
    digits = min(max(size + 1, 1), 9)
    return [(step * k, number_text(step * k, digits)) for k in range(first, last + 1)]


def _table(groups: Sequence[Group], made: Sequence[Series], digits: int) -> Markup:
    """Return all values as one table, folded; of thousands of groups the first and the last."""
    many, half = len(groups), MOST_ROWS // 2
    shown = range(many) if many <= MOST_ROWS else [*range(half), *range(many - half, many)]
    body: list[tuple[str, ...]] = [
        (
            made[0].labels[k],
            _count(groups[k].metrics.get("n_tokens")),
            *(cell_text(one.values[k], digits) for one in made),
        )
        for k in shown
    ]
    title = f"All values by {made[0].key}"
    if many > MOST_ROWS:
        body.insert(half, (f"{many - MOST_ROWS:,} more", *("" for _ in body[0][1:])))
        title = f"The first and the last {half:,} values by {made[0].key}; -f csv has all {many:,}"
    heads = (made[0].key, "tokens", *(one.name for one in made))
    table = scroll(plain_table(heads, body, range(1, len(heads))), title)
    return folded(f"{plural(many, 'group')} as a table", tag("p", title, class_="soft small"), table)


def _count(value: Any) -> str:
    return "" if value is None else count_text(int(value))
