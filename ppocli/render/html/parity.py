"""The page of `parity`: every framework's number for the same batch, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.core.parity_report import KINDS
from ppocli.render.html.markup import Markup, tag
from ppocli.render.html.page import Page, Section, heading_of, provenance_section
from ppocli.render.html.svg import Row, figure, rows
from ppocli.render.html.tables import Terms, block_table, card, plain_table, scroll
from ppocli.render.numbers import cell_text, number_text, plural
from ppocli.render.parity import parity_screen

if TYPE_CHECKING:
    from ppocli.core.parity_report import ParityReport
    from ppocli.render.blocks import Block


def parity_page(report: ParityReport, digits: int) -> Page:
    """Arrange a report for a browser."""
    screen, terms = parity_screen(report, digits), Terms()
    heading, lede = heading_of(screen.header[0])
    spread = report.spread()
    by_kind = {one.title.partition(":")[0]: one for one in screen.blocks}
    figures = [_figure(report, kind, by_kind[kind], digits) for kind in KINDS if kind in spread]
    missing = by_kind.get("not computed")
    several = [kind for kind in KINDS if kind in spread and spread[kind]["min"] != spread[kind]["max"]]
    if not report.n_tokens:
        verdict = ("bad", "Nothing compared", "there is no valid token")
    elif several:
        verdict = ("info", "Frameworks differ", f"on {', '.join(several)}, by their definitions alone")
    else:
        verdict = ("good", "All the same", "every framework gives the same number")
    return Page(
        kind="parity",
        heading=heading,
        lede=lede,
        verdict=verdict,
        terms=terms,
        lines=screen.header[1:],
        figures=[
            (kind, f"{number_text(spread[kind]['min'], 3)} to {number_text(spread[kind]['max'], 3)}", "")
            for kind in KINDS
            if kind in spread
        ],
        sections=(
            Section("frameworks", "Side by side", [tag("div", *figures, class_="two")] if figures else []),
            Section("definitions", "Names and definitions", [card(_all(report, digits))]),
            Section("missing", "Not computed",
                    [card(block_table(missing, terms))] if missing is not None else []),
            provenance_section(report.to_dict()),
        ),
    )  # fmt: skip


def _figure(report: ParityReport, kind: str, block: Block, digits: int) -> Markup:
    """Return one quantity: a dot for each framework on a common axis, smallest first."""
    spread = report.spread()[kind]
    low, high = float(spread["min"]), float(spread["max"])
    width = (high - low) or 1.0
    having = [one for one in report.frameworks if kind in one.metrics and one.metrics[kind].value is not None]
    having.sort(key=lambda one: one.metrics[kind].value or 0.0)
    data = []
    for one in having:
        value = float(one.metrics[kind].value or 0.0)
        at = 0.5 if high == low else 0.02 + 0.96 * (value - low) / width
        data.append(Row(one.name, number_text(value, digits), dot=at, more=one.metrics[kind].name))
    said = f"{number_text(low, digits)} to {number_text(high, digits)}, {plural(len(data), 'framework')}"
    chart = rows(f"parity-{KINDS.index(kind)}", f"{kind} as each framework computes it", said, data)
    return figure(kind, said, chart, table=block_table(block, Terms()))


def _all(report: ParityReport, digits: int) -> Markup:
    """Return every number with the framework's name of it and its definition."""
    body = [
        (
            tag("span", f"{one.name} {one.version}", class_="name"),
            kind,
            one.metrics[kind].name,
            cell_text(one.metrics[kind].value, digits),
            one.metrics[kind].definition,
        )
        for kind in KINDS
        for one in report.frameworks
        if kind in one.metrics
    ]
    heads = ("framework", "quantity", "its name", "value", "definition")
    return scroll(plain_table(heads, body, (3,)), "Every number")
