"""The chart of the ratio: its histogram with the clip interval, and the mass that is clipped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppocli.core.objective_texts import OBJECTIVE_TEXTS, bounds_of, clip_ends
from ppocli.render.html.markup import Markup, tag
from ppocli.render.html.svg import Mark, Rect, Row, figure, legend, nice_grid, rows, upright
from ppocli.render.html.tables import plain_table, scroll
from ppocli.render.numbers import count_text, number_text, plural

if TYPE_CHECKING:
    from ppocli.core.report import Bin, EvalReport

RATIO_TICKS = (
    *(1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99),
    *(1.01, 1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1e3, 1e4, 1e5, 1e6),
)
"""Ratios that the axis may name beside 1."""
APART = 0.2
"""Least distance of two labels, as a part of the width."""
END, GAP = 0.035, 0.012
"""Width of the open bar at either end, and of the gap beside it."""


def percent(part: float) -> str:
    """Return a share as a percentage with three significant digits."""
    return f"{number_text(100.0 * part, 3)} %"


def range_text(low: float | None, high: float | None, digits: int = 4) -> str:
    """Return `0.8 to 1.25`, `below 0.8`, `1.25 and more`."""
    if low is None:
        return f"below {number_text(high or 0.0, digits)}"
    if high is None:
        return f"{number_text(low, digits)} and more"
    return f"{number_text(low, digits)} to {number_text(high, digits)}"


# ------------------------------------------------------------------------------------------- ratios


@dataclass(frozen=True, slots=True)
class _Scale:
    """Places of log-ratios across: an open bar at either end, between them `low` to `high`."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the place of a log-ratio; one beyond an end is at that end."""
        inner = 1.0 - 2.0 * (END + GAP)
        part = (value - self.low) / (self.high - self.low)
        return END + GAP + inner * min(max(part, 0.0), 1.0)


def ratio_figure(report: EvalReport) -> Markup | None:
    """Return the histogram of the ratios, or nothing where the report has none."""
    bins = report.histograms.get("log_ratio", ())
    if len(bins) < 3:
        return None
    n = sum(one.n for one in bins)
    scale = _Scale(bins[0].high or 0.0, bins[-1].low or 0.0)
    ends, region = clip_ends(report.settings), OBJECTIVE_TEXTS[report.settings["objective"]].region
    by_token = region != "sequence ratio"
    most = max(one.n for one in bins)
    bars = [_bar(one, scale, n, most) for one in bins]
    grid = [(part / (most / n), percent(part)) for part in nice_grid(most / n) if part < 0.999 * most / n]
    chart = upright(
        "ratios",
        "Histogram of the ratio",
        f"{plural(n, 'token')}; the largest bar holds {percent(most / n)} of them.",
        bars,
        ticks=_ratio_ticks(scale),
        grid=grid,
        marks=_clip_marks(report, ends, scale),
        inside=_inside(ends, scale) if by_token and _has_interval(ends) else None,
    )
    note = (
        f"{plural(n, 'token')} by their ratio, on a logarithmic axis. "
        "The two bars at the ends hold everything beyond."
    )
    if not by_token:
        note += " The interval bounds the ratio of a sequence, not that of a token."
    keys = [("", "inside the clip interval"), ("out", "outside")] if _has_interval(ends) and by_token else []
    table = plain_table(
        ("ratio", "log_ratio", "tokens", "share"),
        [
            (_ratios(one), range_text(one.low, one.high), count_text(one.n), percent(one.n / n))
            for one in bins
        ],
        (2, 3),
    )
    chart_of_clipped, table_of_clipped = _clipped(report)
    below = Markup(scroll(table, "Histogram of the ratio") + table_of_clipped)
    parts = [*([legend(*keys)] if keys else []), *chart_of_clipped]
    return figure("Ratio", note, chart, *parts, table=below)


def _has_interval(ends: tuple[float | None, float | None]) -> bool:
    return any(end is not None for end in ends)


def _inside(ends: tuple[float | None, float | None], scale: _Scale) -> tuple[float, float]:
    """Return the places of the clip interval; an end that is not shown is that of the chart."""
    low, high = ends
    left = 0.0 if low is None or low < scale.low else scale.at(low)
    return left, 1.0 if high is None or high > scale.high else scale.at(high)


def _ratios(one: Bin) -> str:
    low, high = (None if end is None else math.exp(end) for end in (one.low, one.high))
    return range_text(low, high)


def _bar(one: Bin, scale: _Scale, n: int, most: int) -> Rect:
    """Return one bar; the open ones stand apart from the others."""
    left = 1.0 - END if one.high is None else 0.0 if one.low is None else scale.at(one.low)
    right = END if one.low is None else 1.0 if one.high is None else scale.at(one.high)
    hint = f"ratio {_ratios(one)}: {plural(one.n, 'token')}, {percent(one.n / n)}"
    thin = 0.08 * (right - left)
    return Rect(left + thin, right - thin, one.n / most, hint)


def _ratio_ticks(scale: _Scale) -> list[tuple[float, str]]:
    """Return labels of the axis: 1, then those nearest to it that have room."""
    chosen = [(scale.at(0.0), "1")] if scale.low <= 0.0 <= scale.high else []
    for ratio in sorted(RATIO_TICKS, key=lambda one: -abs(math.log(one))):
        x = math.log(ratio)
        at = scale.at(x)
        if scale.low < x < scale.high and all(abs(at - other) >= APART for other, _ in chosen):
            chosen.append((at, number_text(ratio)))
    return sorted(chosen)


def _clip_marks(report: EvalReport, ends: tuple[float | None, float | None], scale: _Scale) -> list[Mark]:
    """Return the ends of the clip interval, the labels outside it."""
    bounds = bounds_of(report.settings)
    return [
        Mark(scale.at(end), f"clip {number_text(bound)}", "clip", left=k == 0)
        for k, (end, bound) in enumerate(zip(ends, bounds, strict=True))
        if end is not None and scale.low <= end <= scale.high
    ]


def _clipped(report: EvalReport) -> tuple[list[Markup], str]:
    """Return the shares outside the interval on either side, by the sign of the advantage; and as a table."""
    known = _shares(report.metrics)
    if known is None or not OBJECTIVE_TEXTS[report.settings["objective"]].region:
        return [], ""
    low, low_cut, high, high_cut = known
    most = max(low, high) or 1.0
    below, above = _side_names(report)
    data = [
        _clipped_row(below, low, low_cut, most, ("minus", "advantage < 0", "plus", "advantage ≥ 0")),
        _clipped_row(above, high, high_cut, most, ("plus", "advantage > 0", "minus", "advantage ≤ 0")),
    ]
    title = "Outside the interval, by the sign of the advantage"
    said = "; ".join(f"{row.label}: {row.value}" for row in data)
    key = legend(
        ("minus", "advantage < 0, clipped branch"),
        ("plus kept", "advantage ≥ 0, unclipped branch"),
        ("plus", "advantage > 0, clipped branch"),
        ("minus kept", "advantage ≤ 0, unclipped branch"),
    )
    table = plain_table(
        ("tokens", "share", "in the clipped branch", "in the other"),
        [(row.label, *map(percent, (a, b, max(a - b, 0.0))))
         for row, (a, b) in zip(data, ((low, low_cut), (high, high_cut)), strict=True)],
        (1, 2, 3),
    )  # fmt: skip
    return [tag("h4", title), rows("clipped", title, said, data), key], scroll(table, title)


def _side_names(report: EvalReport) -> tuple[str, str]:
    low, high = (number_text(end) for end in bounds_of(report.settings))
    region = OBJECTIVE_TEXTS[report.settings["objective"]].region
    return f"{region} < {low}", f"{region} > {high}"


def _shares(metrics: Mapping[str, Any]) -> tuple[float, float, float, float] | None:
    """Return the shares below and above, and how much of each is in the clipped branch, or nothing.

    Where log-probs are not finite, over the tokens where they are; the shares of both kinds are over the same
    tokens only where all advantages are finite.
    """
    if metrics.get("adv_mean", 0.0) is None:
        return None
    found = []
    for name in ("clip_frac_low", "clip_frac_active_low", "clip_frac_high", "clip_frac_active_high"):
        value = metrics.get(name)
        value = metrics.get(f"{name}_finite") if value is None else value
        if value is None:
            return None
        found.append(float(value))
    low, low_cut, high, high_cut = found
    return low, low_cut, high, high_cut


def _clipped_row(label: str, whole: float, cut: float, most: float, kinds: tuple[str, str, str, str]) -> Row:
    """Return one side: first the tokens in the clipped branch, then the others."""
    cut_kind, cut_text, kept_kind, kept_text = kinds
    kept = max(whole - cut, 0.0)
    bars = (
        Rect(0.0, cut / most, cut, f"{label}, {cut_text}: {percent(cut)}", cut_kind),
        Rect(
            cut / most,
            (cut + kept) / most,
            kept,
            f"{label}, {kept_text}: {percent(kept)}",
            f"{kept_kind} kept",
        ),
    )
    return Row(label, f"{percent(whole)}, clipped branch {percent(cut)}", bars)
