"""The page of `drift`: where two streams of log-probs differ, by size, position and probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ppocli.core.report import Group
from ppocli.render.check_screen import verdict as judgement
from ppocli.render.drift import drift_screen
from ppocli.render.html.evaluation import headline
from ppocli.render.html.gate import checks_table
from ppocli.render.html.histograms import percent, range_text
from ppocli.render.html.markup import Markup, tag
from ppocli.render.html.page import (
    Page,
    Section,
    findings_section,
    graded,
    heading_of,
    metrics_section,
    provenance_section,
)
from ppocli.render.html.series_charts import series_parts
from ppocli.render.html.sizes import octaves_of, size_ticks
from ppocli.render.html.svg import Rect, Row, figure, nice_grid, rows, upright
from ppocli.render.html.tables import (
    Terms,
    block_card,
    block_table,
    card,
    drift_definition,
    plain_table,
    scroll,
)
from ppocli.render.numbers import cell_text, count_text, plural

if TYPE_CHECKING:
    from ppocli.core.drift_report import DriftReport, Part
    from ppocli.render.blocks import Block, Screen

HEADLINE = ("diff_abs_mean", "diff_abs_p99", "diff_abs_max", "drift_kl_k3", "weight_max", "ess_frac")
CHARTS = {
    "position in the sequence": ("by-position", "By position in the sequence"),
    "probability exp(b)": ("by-probability", "By probability of b"),
}
"""Tables of classes that are drawn too: their first head, the name of the chart and its title."""
FOLLOWED = ("diff_mean", "diff_abs_mean", "drift_kl_k3")
"""Metrics of each step."""
MOST_BARS = 28
"""Octaves that the histogram shows; smaller ones stand together."""


def drift_page(report: DriftReport, digits: int) -> Page:
    """Arrange a report for a browser."""
    screen, terms, document = drift_screen(report, digits), Terms(drift_definition), report.to_dict()
    heading, lede = heading_of(screen.header[0])
    n = report.metrics.get("n_tokens")
    verdict = graded(report.findings) if n else ("bad", "Nothing compared", "there is no valid token")
    if n and report.checks:
        word, _, said = judgement(report).partition("  ")
        verdict = ("good", "Passed", said) if word == "ok" else ("bad", "Failed", said)
    checks, metrics, wide, worst, classes = _sorted(screen)
    steps = series_parts(_steps(report), terms, digits, followed=FOLLOWED)
    if steps:  # whose table has every step
        wide = [one for one in wide if one.columns[0].header != "step"]
    charts = [*_histogram(report), *(_classes(report, one, digits) for one in classes)]
    return Page(
        kind="drift",
        heading=heading,
        lede=lede,
        verdict=verdict,
        terms=terms,
        lines=screen.header[1:],
        figures=headline(report.metrics, HEADLINE, digits),
        sections=(
            Section("checks", "Checks", [card(checks_table(one)) for one in checks]),
            findings_section(report.findings),
            Section("distribution", "Where the difference is",
                    [tag("div", *charts, class_="two")] if charts else []),
            Section("groups", "By step", steps),
            Section("metrics", "Metrics",
                    [tag("div", *(block_card(one, terms) for one in metrics), class_="two")]),
            Section("tables", "Comparisons and corrections",
                    [block_card(one, terms) for one in wide]),
            Section("worst", "Worst tokens",
                    [block_card(one, terms) for one in worst]),
            metrics_section(document, terms),
            provenance_section(document),
        ),
    )  # fmt: skip


def _steps(report: DriftReport) -> list[Group]:
    """Return the steps as groups."""
    return [
        Group({"step": one.step}, {"n_tokens": one.n, **{name: getattr(one, name) for name in FOLLOWED}}, {})
        for one in report.by_step
    ]


def _sorted(screen: Screen) -> tuple[list[Block], list[Block], list[Block], list[Block], list[Block]]:
    """Sort the tables into checks, those of metrics, wide ones, worst tokens, and classes of tokens."""
    checks, metrics, wide, worst, classes = [], [], [], [], []
    for block in screen.blocks:
        head = block.columns[0].header
        if head in ("finding", "|a - b| up to") or not block.rows:
            continue
        if any(one.header == "status" for one in block.columns):
            checks.append(block)
        elif head in CHARTS:
            classes.append(block)
        elif block.title.startswith("tokens with"):
            worst.append(block)
        elif block.columns[0].kind == "metric":
            metrics.append(block)
        else:
            wide.append(block)
    return checks, metrics, wide, worst, classes


def _histogram(report: DriftReport) -> list[Markup]:
    """Return |a - b| by octave."""
    bars = [(one.low, one.high, one.n) for one in report.histogram]
    if not bars:
        return []
    if len(bars) > MOST_BARS:
        head, bars = bars[: -MOST_BARS + 1], bars[-MOST_BARS + 1 :]
        bars.insert(0, (head[0][0], head[-1][1], sum(n for *_, n in head)))
    n, most = sum(n for *_, n in bars), max(n for *_, n in bars) or 1
    scale = octaves_of(bars)
    many = len(scale.edges) - 1
    drawn = [
        Rect((k + 0.08) / many, (k + 0.92) / many, count / most,
             f"|a - b| {range_text(low, high)}: {plural(count, 'token')}, {percent(count / n)}")
        for k, (low, high, count) in enumerate(bars)
    ]  # fmt: skip
    chart = upright(
        "differences",
        "Histogram of the size of the difference",
        f"{plural(n, 'token')} by octave of |a - b|; the largest bar holds {percent(most / n)}.",
        drawn,
        ticks=size_ticks(scale),
        grid=[(part / (most / n), percent(part)) for part in nice_grid(most / n)],
    )
    table = plain_table(
        ("|a - b|", "tokens", "share"),
        [(range_text(low, high), count_text(count), percent(count / n)) for low, high, count in bars],
        (1, 2),
    )
    note = "Tokens by |a - b| in nats, each bar twice as far out as the one before."
    return [figure("Size of the difference", note, chart, table=scroll(table, "Histogram of the difference"))]


def _classes(report: DriftReport, block: Block, digits: int) -> Markup:
    """Return classes of tokens: the mean |a - b| of each as a bar, the table of the screen below."""
    name, title = CHARTS[block.columns[0].header]
    parts: Sequence[Part] = report.by_position if name == "by-position" else report.by_probability
    known = [one.diff_abs_mean for one in parts if one.diff_abs_mean is not None]
    most = max(known, default=0.0) or 1.0
    data = [
        Row(
            f"{label}  ({plural(one.n, 'token')})",
            cell_text(one.diff_abs_mean, digits),
            (Rect(0.0, (one.diff_abs_mean or 0.0) / most, one.diff_abs_mean or 0.0,
                  f"{label}: mean |a - b| {cell_text(one.diff_abs_mean, digits)}"),),
        )
        for (label, *_), one in zip(block.rows, parts, strict=True)
    ]  # fmt: skip
    said = ", ".join(f"{row.label}: {row.value}" for row in data[:12])
    chart = rows(name, f"Mean |a - b| {title[0].lower()}{title[1:]}", said, data)
    return figure(title, "Mean |a - b| in nats.", chart, table=block_table(block, Terms()))
