"""The page of `inspect`: its screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.render.html.page import Page, Section, heading_of
from ppocli.render.html.tables import Terms, block_card
from ppocli.render.inspect import inspect_screen
from ppocli.render.numbers import plural

if TYPE_CHECKING:
    from ppocli.core.inspect_report import InspectReport


def inspect_page(report: InspectReport, digits: int) -> Page:
    """Arrange what was found for a browser."""
    screen, terms = inspect_screen(report, digits), Terms()
    heading, lede = heading_of(screen.header[0])
    ready = sum(one.ready for one in report.files)
    return Page(
        kind="inspect",
        heading=heading,
        lede=lede,
        verdict=("good" if ready == len(report.files) else "warn", "Ready" if ready else "Not ready",
                 f"{ready:,} of {plural(len(report.files), 'file')} can be evaluated"),
        terms=terms,
        lines=screen.header[1:],
        sections=(
            Section("files", "What was found",
                    [block_card(one, terms) for one in screen.blocks]),
        ),
    )  # fmt: skip
