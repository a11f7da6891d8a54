"""The page of `check`: every judgement, then what was judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.core.saved_report import report_from
from ppocli.render.check_screen import WORDS, check_screen, verdict
from ppocli.render.html.evaluation import HEADLINE, headline, sections_of
from ppocli.render.html.markup import Markup, tag
from ppocli.render.html.page import (
    Page,
    Section,
    findings_section,
    heading_of,
    metrics_section,
    provenance_section,
)
from ppocli.render.html.tables import Terms, block_card, card, cell, scroll
from ppocli.render.screen import eval_screen

if TYPE_CHECKING:
    from ppocli.core.check_report import CheckReport
    from ppocli.render.blocks import Block

CHIPS = {WORDS["pass"]: "good", WORDS["fail"]: "bad", WORDS["skip"]: "info", WORDS["error"]: "bad"}


def check_page(report: CheckReport, digits: int) -> Page:
    """Arrange the result of a gate for a browser."""
    evaluation = report_from(report.document)
    screen, terms = eval_screen(evaluation, digits), Terms()
    heading, lede = heading_of(screen.header[0])
    judged = check_screen(report, digits)
    tables = [one for one in judged.blocks if any(column.header == "status" for column in one.columns)]
    before = [block_card(one, terms) for one in judged.blocks[: judged.blocks.index(tables[0])]]
    document = report.to_dict()
    word, _, said = verdict(report).partition("  ")
    return Page(
        kind="check",
        heading=heading,
        lede=lede,
        verdict=("bad" if report.failed else "good", {"ok": "Passed", "FAIL": "Failed"}[word], said),
        terms=terms,
        lines=tuple(dict.fromkeys((*screen.header[1:], *judged.header[1:]))),
        figures=headline(evaluation.metrics, HEADLINE, digits),
        sections=(
            Section("checks", "Checks", [*before, card(_checks(tables[0]))]),
            findings_section(evaluation.findings),
            *sections_of(evaluation, screen, terms, digits),
            metrics_section(document, terms),
            provenance_section(document),
        ),
    )


def _checks(block: Block) -> Markup:
    """Return the table of checks, the status of each as a coloured word."""
    if not block.rows:
        return tag("p", block.text)
    status = next(k for k, column in enumerate(block.columns) if column.header == "status")
    order = [status, *(k for k in range(len(block.columns)) if k != status)]
    kinds = {"number": "number", "note": "text", "path": "keep", "name": "keep"}
    body = [
        tag("tr", *(
            tag(
                "td",
                tag("span", value, class_=f"chip {CHIPS.get(value, 'info')}") if k == status else cell(value),
                class_=kinds.get(column.kind),
            )
            for k, column, value in ((k, block.columns[k], row[k]) for k in order)
        ))
        for row in block.rows
    ]  # fmt: skip
    head = [
        tag("th", one.header, scope="col", class_=kinds.get(one.kind))
        for one in map(block.columns.__getitem__, order)
    ]
    return scroll(tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body)), "Checks")
