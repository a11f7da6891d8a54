"""The output formats by name, and the one function that turns a report into text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppocli.core.audit_report import AuditReport
    from ppocli.core.drift_report import DriftReport
    from ppocli.core.inspect_report import InspectReport
    from ppocli.core.parity_report import ParityReport
    from ppocli.core.report import EvalReport
    from ppocli.render.blocks import Screen
    from ppocli.render.console import Look

FORMATS = ("table", "json", "jsonl", "csv", "tsv", "md", "html")
"""What `-f` takes."""

SUFFIXES = {f".{name}": name for name in FORMATS[1:]}
"""What `--export` takes, by the suffix of the file."""

ROWS = ("jsonl", "csv", "tsv")
"""Those with a line for each metric, group or finding."""


def eval_text(
    report: EvalReport,
    name: str,
    look: Look,
    *,
    digits: int = 6,
    sort: str | None = None,
    hist: bool = False,
    encoding: str = "utf-8",
) -> str:
    """Return a report in one of `FORMATS`; `encoding` matters to JSON, the other arguments to tables."""
    if name in ("json", "html"):
        return document_text(report, name, digits=digits, sort=sort, encoding=encoding)
    if name in ROWS:
        from ppocli.render.delimited import to_delimited
        from ppocli.render.json import to_jsonl

        return rows_text(report, name, to_jsonl, to_delimited, encoding)
    if name == "md":
        from ppocli.render.markdown import eval_markdown

        return eval_markdown(report, digits=digits, sort=sort, hist=hist)
    from ppocli.render.table import eval_table

    return eval_table(report, look, digits=digits, sort=sort, hist=hist)


def audit_text(
    report: AuditReport, name: str, look: Look, *, digits: int = 6, encoding: str = "utf-8"
) -> str:
    """Return an audit in one of `FORMATS`; arguments as for `eval_text`."""
    if name in ("json", "html"):
        return document_text(report, name, digits=digits, encoding=encoding)
    if name in ROWS:
        from ppocli.render.audit_data import to_delimited, to_jsonl

        return rows_text(report, name, to_jsonl, to_delimited, encoding)
    from ppocli.render.audit import audit_screen

    return drawn(audit_screen(report, digits, ascii_only=look.ascii), name, look)


def parity_text(
    report: ParityReport, name: str, look: Look, *, digits: int = 6, encoding: str = "utf-8"
) -> str:
    """Return what `parity` found in one of `FORMATS`; arguments as for `eval_text`."""
    if name in ("json", "html"):
        return document_text(report, name, digits=digits, encoding=encoding)
    from ppocli.render.parity import parity_delimited, parity_jsonl, parity_screen

    if name in ROWS:
        return rows_text(report, name, parity_jsonl, parity_delimited, encoding)
    return drawn(parity_screen(report, digits), name, look)


def drift_text(
    report: DriftReport, name: str, look: Look, *, digits: int = 6, encoding: str = "utf-8"
) -> str:
    """Return what `drift` found in one of `FORMATS`; arguments as for `eval_text`."""
    if name in ("json", "html"):
        return document_text(report, name, digits=digits, encoding=encoding)
    from ppocli.render.drift import drift_delimited, drift_jsonl, drift_screen

    if name in ROWS:
        return rows_text(report, name, drift_jsonl, drift_delimited, encoding)
    return drawn(drift_screen(report, digits, ascii_only=look.ascii), name, look)


def inspect_text(
    report: InspectReport, name: str, look: Look, *, digits: int = 6, encoding: str = "utf-8"
) -> str:
    """Return what `inspect` found in one of `FORMATS`; arguments as for `eval_text`."""
    if name in ("json", "html"):
        return document_text(report, name, digits=digits, encoding=encoding)
    if name in ROWS:
        from ppocli.render.inspect_data import to_delimited, to_jsonl

        return rows_text(report, name, to_jsonl, to_delimited, encoding)
    from ppocli.render.inspect import inspect_screen

    return drawn(inspect_screen(report, digits), name, look)


def document_text(
    report: Any, name: str, *, digits: int = 6, sort: str | None = None, encoding: str = "utf-8"
) -> str:
    """Return a report of any command as one document, "json" or "html"."""
    if name == "json":
        from ppocli.render.json import to_json

        return to_json(report.to_dict(), encoding=encoding)
    from ppocli.render.html import html_page

    return html_page(report, digits=digits, sort=sort)


def rows_text(
    report: Any,
    name: str,
    to_jsonl: Callable[..., str],
    to_delimited: Callable[[Any, str], str],
    encoding: str,
) -> str:
    """Return a report in one of `ROWS`, by the functions of its command."""
    if name == "jsonl":
        return to_jsonl(report, encoding=encoding)
    return to_delimited(report, "," if name == "csv" else "\t")


def drawn(screen: Screen, name: str, look: Look) -> str:
    """Return a screen as Markdown or as tables."""
    if name == "md":
        from ppocli.render.markdown import screen_markdown

        return screen_markdown(screen)
    from ppocli.render.table import draw

    return draw(screen, look)
