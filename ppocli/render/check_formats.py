"""The output formats of `ppocli check`, and what CI is told where there is no result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.render.formats import FORMATS, ROWS, SUFFIXES, document_text, drawn, rows_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppocli.core.check_report import CheckReport
    from ppocli.errors import PpoCliError
    from ppocli.render.console import Look

CHECK_FORMATS = (*FORMATS, "junit", "github")
CHECK_SUFFIXES = {**SUFFIXES, ".xml": "junit"}
CI_FORMATS = ("junit", "github")
"""Formats that a machine waits for: written even where an input cannot be read."""


def check_text(
    report: CheckReport, name: str, look: Look, *, digits: int = 6, encoding: str = "utf-8"
) -> str:
    """Return the result of a gate in one of `CHECK_FORMATS`; arguments as for `eval_text`."""
    if name in ("json", "html"):
        return document_text(report, name, digits=digits, encoding=encoding)
    if name == "junit":
        from ppocli.render.junit import to_junit

        return to_junit(report)
    if name == "github":
        from ppocli.render.github import to_annotations

        return to_annotations(report)
    if name in ROWS:
        from ppocli.render.check_data import to_delimited, to_jsonl

        return rows_text(report, name, to_jsonl, to_delimited, encoding)
    from ppocli.render.check_screen import check_screen

    return drawn(check_screen(report, digits), name, look)


def failure_text(problem: PpoCliError, paths: Sequence[str], name: str) -> str:
    """Return, in one of `CI_FORMATS`, that an input could not be judged."""
    if name == "junit":
        from ppocli.render.junit import failure_junit

        return failure_junit(problem, paths)
    from ppocli.render.github import failure_annotation

    return failure_annotation(problem)


def step_summary(report: CheckReport, *, digits: int = 6) -> str:
    """Return Markdown for the summary of a job, cut to what GitHub takes."""
    from ppocli.render.check_screen import check_screen
    from ppocli.render.github import within_summary
    from ppocli.render.markdown import screen_markdown

    return within_summary("### ppocli check\n\n" + screen_markdown(check_screen(report, digits)) + "\n")
