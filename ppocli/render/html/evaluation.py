"""The page of `eval`, and the parts of it that `check` and `audit` show too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ppocli.core.precision import PRECISIONS
from ppocli.render.html.histograms import ratio_figure
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
from ppocli.render.html.sizes import sizes_figure
from ppocli.render.html.svg import Rect, Row, figure, rows
from ppocli.render.html.tables import (
    Terms,
    block_card,
    block_table,
    card,
    drift_definition,
    text_card,
)
from ppocli.render.numbers import cell_text, number_text
from ppocli.render.screen import eval_screen

if TYPE_CHECKING:
    from ppocli.core.check_report import Check
    from ppocli.core.report import EvalReport
    from ppocli.render.blocks import Block, Screen

HEADLINE = (
    *("policy_loss", "clip_frac", "clip_frac_active", "approx_kl_k3", "ratio_max", "ess_frac"),
    *("explained_variance", "entropy_mean"),
)
"""Metrics that stand at the top where they were reported, at most six of them."""

MEANS = ("token-mean", "seq-mean-token-mean", "group-mean")
"""Aggregations whose numbers can be compared: all are means per token."""

AGGREGATION, DRIFT, PRECISION = "aggregation", "trainer - sampler", "precision"
"""Heads of the table of aggregations, and of that of the metrics of `drift`."""

STEP_FORMATS = ("float16", "bfloat16", "float8_e4m3fn")
"""Formats whose steps are drawn where no audit says which matter."""


def eval_page(report: EvalReport, digits: int, sort: str | None) -> Page:
    """Arrange a report for a browser."""
    screen, terms, document = eval_screen(report, digits, sort), Terms(), report.to_dict()
    heading, lede = heading_of(screen.header[0])
    return Page(
        kind="eval",
        heading=heading,
        lede=lede,
        verdict=verdict_of(report),
        terms=terms,
        lines=screen.header[1:],
        figures=headline(report.metrics, HEADLINE, digits),
        sections=(
            findings_section(report.findings),
            *sections_of(report, screen, terms, digits, sort=sort),
            metrics_section(document, terms),
            provenance_section(document),
        ),
    )


def verdict_of(report: EvalReport) -> tuple[str, str, str]:
    """Return what the top says about a report."""
    if not report.metrics.get("n_tokens"):
        return "bad", "Nothing evaluated", "there is no valid token"
    return graded(report.findings)


def headline(metrics: Mapping[str, Any], names: Sequence[str], digits: int) -> list[tuple[str, str, str]]:
    """Return the numbers at the top: the first six of `names` that were reported, a null with its twin."""
    made = []
    for name in [name for name in names if name in metrics][:6]:
        value, twin = metrics[name], metrics.get(f"{name}_finite")
        note = (
            f"{cell_text(twin, min(digits, 5))} over finite tokens"
            if value is None and twin is not None
            else ""
        )
        made.append((name, cell_text(value, min(digits, 5)), note))
    return made


def sections_of(
    report: EvalReport,
    screen: Screen,
    terms: Terms,
    digits: int,
    *,
    sort: str | None = None,
    checks: Sequence[Check] = (),
) -> list[Section]:
    """Return the charts and the tables of an evaluation; the limits among `checks` are drawn."""
    small, wide, worst = _sorted(screen)
    charts = [
        *distribution(report),
        *(_aggregations(report, one, digits) for one in small if one.columns[0].header == AGGREGATION),
    ]
    tables = [
        block_card(one, terms, drift_definition if one.columns[0].header.startswith(DRIFT) else None)
        for one in small
        if one.rows and one.columns[0].header != AGGREGATION
    ]
    said = text_card(one for one in small if not one.rows)
    series = series_parts(report.groups, terms, digits, sort=sort, checks=checks)
    precision = [block_card(one, terms) for one in wide if one.columns[0].header == PRECISION]
    # The table of the series has every group but files.
    has_all = bool(series) and "file" not in report.groups[0].key
    rows_of = [block_card(one, terms) for one in wide if not has_all and one.columns[0].header != PRECISION]
    return [
        Section("distribution", "Distribution", [tag("div", *charts, class_="two")] if charts else []),
        Section("groups", _by(report), [*series, *rows_of]),
        Section("precision", "Precision", precision),
        Section("metrics", "Metrics", [tag("div", *tables, said, class_="two")]),
        Section("worst", "Worst tokens", [block_card(one, terms) for one in worst]),
    ]


def _by(report: EvalReport) -> str:
    """Return the heading over the groups."""
    by = next(iter(report.groups[0].key), "file") if report.groups else "file"
    return "Files" if by == "file" else f"By {by}"


def distribution(report: EvalReport) -> list[Markup]:
    """Return the charts of the ratio and of the size of the log-ratio."""
    steps = [(name, PRECISIONS[name].step(1.0)) for name in STEP_FORMATS]
    sizes = [(one.low or 0.0, one.high, one.n) for one in report.histograms.get("log_ratio_abs", ())]
    made = (
        ratio_figure(report),
        sizes_figure(sizes, report.metrics, steps, "log-probs between -1 and -2"),
    )
    return [one for one in made if one is not None]


def _sorted(screen: Screen) -> tuple[list[Block], list[Block], list[Block]]:
    """Sort the tables of a screen into small ones, wide ones and worst tokens, without the findings."""
    small, wide, worst = [], [], []
    for block in screen.blocks:
        first = block.columns[0]
        if first.header == "finding" or block.text.startswith("findings:"):
            continue
        if block.title.startswith("tokens with the largest"):
            worst.append(block)
        elif block.rows and (first.kind == "path" or len(block.columns) > 4):
            wide.append(block)
        else:
            small.append(block)
    return small, wide, worst


def _aggregations(report: EvalReport, block: Block, digits: int) -> Markup:
    """Return the loss with each aggregation; those that are means per token as bars."""
    by_agg = report.metrics["policy_loss_by_agg"]
    known = {name: by_agg[name] for name in MEANS if by_agg.get(name) is not None}
    table = block_table(block, Terms())
    if not known:
        return card(table, title="Aggregations")
    low, high = min(0.0, *known.values()), max(0.0, *known.values())
    spread = (high - low) or 1.0
    zero = -low / spread
    data = [
        Row(name, cell_text(value, digits), (_from_zero(name, value, zero, spread, digits),))
        for name, value in known.items()
    ]
    said = ", ".join(f"{name} {cell_text(value, digits)}" for name, value in known.items())
    chart = rows("aggregations", "The policy loss with each aggregation", said, data, zero=zero)
    note = f"The same token losses averaged in different ways; policy_loss is {report.settings['agg']}."
    return figure("Aggregations", note, chart, table=table)


def _from_zero(name: str, value: float, zero: float, spread: float, digits: int) -> Rect:
    """Return a bar from 0 to a value."""
    end = zero + value / spread
    return Rect(min(zero, end), max(zero, end), abs(value), f"{name}: {number_text(value, digits)}")
