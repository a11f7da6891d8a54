"""The page of `check`: every judgement, then what was judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.core.saved_report import report_from
from ppocli.render.check_screen import ORDER, WORDS, check_screen, group_of, verdict
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
from ppocli.render.html.tables import Terms, card, folded, scroll, stacked
from ppocli.render.numbers import cell_text
from ppocli.render.screen import eval_screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppocli.core.check_report import Check, CheckReport
    from ppocli.render.blocks import Block

CHIPS = {WORDS["pass"]: "good", WORDS["fail"]: "bad", WORDS["skip"]: "info", WORDS["error"]: "bad"}


def check_page(report: CheckReport, digits: int) -> Page:
    """Arrange the result of a gate for a browser."""
    evaluation = report_from(report.document)
    screen, terms = eval_screen(evaluation, digits), Terms()
    heading, lede = heading_of(screen.header[0])
    judged = check_screen(report, digits)
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
            Section("checks", "Checks", _parts(report, judged.blocks, digits)),
            findings_section(evaluation.findings),
            *sections_of(evaluation, screen, terms, digits, checks=report.checks),
            metrics_section(document, terms),
            provenance_section(document),
        ),
    )


def _parts(report: CheckReport, blocks: Sequence[Block], digits: int) -> list[Markup]:
    """Return the checks; those of single groups first by limit, then each when asked for."""
    every = checks_table(
        next(one for one in blocks if "status" in _heads(one) or one.text.startswith("checks:"))
    )
    if not any(one.key for one in report.checks):
        return [card(every)]
    return [card(_by_limit(report, digits), folded("Single checks, the gravest first", every))]


def _heads(block: Block) -> list[str]:
    return [one.header for one in block.columns]


def _by_limit(report: CheckReport, digits: int) -> Markup:
    """Return one row for each limit: how many groups break it, and the first of them."""
    by_name: dict[str, list[Check]] = {}
    for one in report.checks:
        by_name.setdefault(one.name, []).append(one)
    rows = []
    for name, own in by_name.items():
        broken = [one for one in own if one.status in ("error", "fail")]
        judged = [one for one in own if one.status != "skip"]
        worst = min(own, key=lambda one: ORDER.index(one.status))
        rows.append(
            (
                ORDER.index(worst.status),
                (
                    tag("span", WORDS[worst.status], class_=f"chip {CHIPS[WORDS[worst.status]]}"),
                    name,
                    f"{len(broken):,} of {len(judged):,}" if worst.key else "",
                    group_of(broken[0]) if broken else "",
                    cell_text(broken[0].value, digits) if broken else "",
                    (broken[0] if broken else worst).reason,
                ),
            )
        )
    rows.sort(key=lambda one: one[0])
    heads = (("status", None), ("check", None), ("broken in", "number"), ("first at", "named"),
             ("value there", "number"), ("note", "text"))  # fmt: skip
    return scroll(stacked(heads, [one for _, one in rows]), "Checks")


def checks_table(block: Block) -> Markup:
    """Return the table of checks, the status of each as a coloured word."""
    if not block.rows:
        return tag("p", block.text)
    status = next(k for k, column in enumerate(block.columns) if column.header == "status")
    order = [status, *(k for k in range(len(block.columns)) if k != status)]
    kinds = {"number": "number", "note": "text", "path": "named", "name": "named"}
    body = [
        [
            tag("span", row[k], class_=f"chip {CHIPS.get(row[k], 'info')}") if k == status else row[k]
            for k in order
        ]
        for row in block.rows
    ]
    heads = [(block.columns[k].header, kinds.get(block.columns[k].kind)) for k in order]
    return scroll(stacked(heads, body), "Checks")
