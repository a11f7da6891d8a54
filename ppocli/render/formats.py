"""The output formats by name, and the one function that turns a report into text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    if name == "json":
        from ppocli.render.json import to_json

        return to_json(report.to_dict(), encoding=encoding)
    if name == "jsonl":
        from ppocli.render.json import to_jsonl

        return to_jsonl(report, encoding=encoding)
    if name in ("csv", "tsv"):
        from ppocli.render.delimited import to_delimited

        return to_delimited(report, "," if name == "csv" else "\t")
    if name == "html":
        from ppocli.render.html import html_page

        return html_page(report, digits=digits, sort=sort)
    if name == "md":
        from ppocli.render.markdown import eval_markdown

        return eval_markdown(report, digits=digits, sort=sort, hist=hist)
    from ppocli.render.table import eval_table

    return eval_table(report, look, digits=digits, sort=sort, hist=hist)


def audit_text(
    report: AuditReport, name: str, look: Look, *, digits: int = 6, encoding: str = "utf-8"
) -> str:
    """Return an audit in one of `FORMATS`; arguments as for `eval_text`."""
    if name == "json":
        from ppocli.render.json import to_json

        return to_json(report.to_dict(), encoding=encoding)
    if name == "jsonl":
        from ppocli.render.audit_data import to_jsonl

        return to_jsonl(report, encoding=encoding)
    if name in ("csv", "tsv"):
        from ppocli.render.audit_data import to_delimited

        return to_delimited(report, "," if name == "csv" else "\t")
    if name == "html":
        from ppocli.render.html import html_page

        return html_page(report, digits=digits)
    from ppocli.render.audit import audit_screen

    screen = audit_screen(report, digits, ascii_only=look.ascii)
    if name == "md":
        from ppocli.render.markdown import screen_markdown

        return screen_markdown(screen)
    from ppocli.render.table import draw

    return draw(screen, look)


def parity_text(
    report: ParityReport, name: str, look: Look, *, digits: int = 6, encoding: str = "utf-8"
) -> str:
    """Return what `parity` found in one of `FORMATS`; arguments as for `eval_text`."""
    if name in ("json", "jsonl"):
        from ppocli.render.json import to_json, to_lines

        document = report.to_dict()
        if name == "json":
            return to_json(document, encoding=encoding)
        frameworks = document.pop("frameworks")
        lines = [{"kind": "framework", **one} for one in frameworks]
        return to_lines([*lines, {**document, "kind": "total"}], encoding=encoding)
    if name in ("csv", "tsv"):
        from ppocli.render.parity import parity_delimited

        return parity_delimited(report, "," if name == "csv" else "\t")
    if name == "html":
        from ppocli.render.html import html_page

        return html_page(report, digits=digits)
    from ppocli.render.parity import parity_screen

    screen = parity_screen(report, digits)
    return _drawn(screen, name, look)


def drift_text(
    report: DriftReport, name: str, look: Look, *, digits: int = 6, encoding: str = "utf-8"
) -> str:
    """Return what `drift` found in one of `FORMATS`; arguments as for `eval_text`."""
    if name == "json":
        from ppocli.render.json import to_json

        return to_json(report.to_dict(), encoding=encoding)
    from ppocli.render.drift import drift_delimited, drift_jsonl, drift_screen

    if name == "jsonl":
        return drift_jsonl(report, encoding=encoding)
    if name in ("csv", "tsv"):
        return drift_delimited(report, "," if name == "csv" else "\t")
    if name == "html":
        from ppocli.render.html import html_page

        return html_page(report, digits=digits)
    screen = drift_screen(report, digits, ascii_only=look.ascii)
    return _drawn(screen, name, look)


def inspect_text(
    report: InspectReport, name: str, look: Look, *, digits: int = 6, encoding: str = "utf-8"
) -> str:
    """Return what `inspect` found in one of `FORMATS`; arguments as for `eval_text`."""
    if name == "json":
        from ppocli.render.json import to_json

        return to_json(report.to_dict(), encoding=encoding)
    if name == "jsonl":
        from ppocli.render.inspect_data import to_jsonl

        return to_jsonl(report, encoding=encoding)
    if name in ("csv", "tsv"):
        from ppocli.render.inspect_data import to_delimited

        return to_delimited(report, "," if name == "csv" else "\t")
    if name == "html":
        from ppocli.render.html import html_page

        return html_page(report, digits=digits)
    from ppocli.render.inspect import inspect_screen

    screen = inspect_screen(report, digits)
    return _drawn(screen, name, look)


def _drawn(screen: Screen, name: str, look: Look) -> str:
    """Return a screen as Markdown or as tables."""
    if name == "md":
        from ppocli.render.markdown import screen_markdown

        return screen_markdown(screen)
    from ppocli.render.table import draw

    return draw(screen, look)
