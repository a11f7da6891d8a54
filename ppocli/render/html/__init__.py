"""Reports as one self-contained page: no script, nothing loaded, light and dark, on a phone and in print."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppocli.render.html.page import Page


def to_html(report: object) -> str:
    """Return a report as one HTML page that loads nothing from elsewhere.

    Parameters
    ----------
    report : EvalReport, CheckReport, AuditReport, DriftReport, ParityReport or InspectReport

    Raises
    ------
    TypeError
        Anything else.
    """
    return html_page(report)


def html_page(report: object, *, digits: int = 6, sort: str | None = None) -> str:
    """Return a report as an HTML document, in ASCII.

    Parameters
    ----------
    report : EvalReport, CheckReport, AuditReport, DriftReport, ParityReport or InspectReport
    digits : int
        Significant digits of real numbers in tables; the list of every number has all of them.
    sort : str, optional
        The metric by which the files of an evaluation were ordered.

    Raises
    ------
    TypeError
        Not a report.
    InputError
        A gate judged a saved report that is damaged.
    """
    from ppocli.render.html.page import draw

    return draw(_page(report, digits, sort))


def _page(report: object, digits: int, sort: str | None) -> Page:
    """Return the page of a report by its kind."""
    from ppocli.core.audit_report import AuditReport
    from ppocli.core.check_report import CheckReport
    from ppocli.core.drift_report import DriftReport
    from ppocli.core.inspect_report import InspectReport
    from ppocli.core.parity_report import ParityReport
    from ppocli.core.report import EvalReport

    if isinstance(report, EvalReport):
        from ppocli.render.html.evaluation import eval_page

        return eval_page(report, digits, sort)
    if isinstance(report, CheckReport):
        from ppocli.render.html.gate import check_page

        return check_page(report, digits)
    if isinstance(report, AuditReport):
        from ppocli.render.html.audit import audit_page

        return audit_page(report, digits)
    if isinstance(report, DriftReport):
        from ppocli.render.html.drift import drift_page

        return drift_page(report, digits)
    if isinstance(report, ParityReport):
        from ppocli.render.html.parity import parity_page

        return parity_page(report, digits)
    if isinstance(report, InspectReport):
        from ppocli.render.html.inspect import inspect_page

        return inspect_page(report, digits)
    raise TypeError(f"not a report: {type(report).__name__}")
