"""An audit for machines: a line of JSON, or a row of a table, for each format and question."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

from ppocli.core.audit_metrics import AUDIT_METRICS
from ppocli.render.json import to_lines

if TYPE_CHECKING:
    from ppocli.core.audit_report import Answer, AuditReport


def to_jsonl(report: AuditReport, *, encoding: str = "utf-8") -> str:
    """Return a line of kind "format" for each format and question, then the rest as one of kind "total"."""
    document = report.to_dict()
    audit = document.pop("audit")
    head = {"schema_version": document["schema_version"], "kind": "format"}
    lines = [
        {**head, "format": name, "question": question, **answer}
        for name, questions in audit.items()
        for question, answer in questions.items()
    ]
    return to_lines([*lines, {**document, "kind": "total"}], encoding=encoding)


def to_delimited(report: AuditReport, delimiter: str) -> str:
    """Return comma- or tab-separated text: format, question, verdict and the metrics by name.

    Numbers are the shortest text that reads back as the same number. A null is nan, inf or -inf where the
    format gave that, and empty otherwise.
    """
    answers = [(n, q, a) for n, one in report.audit.formats.items() for q, a in one.answers()]
    twins = [
        f"{name}_finite" for name in AUDIT_METRICS if any(f"{name}_finite" in a.metrics for *_, a in answers)
    ]
    names = [*AUDIT_METRICS, *twins]
    out = StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["format", "question", "verdict", *names])
    for name, question, answer in answers:
        cells = (_cell(answer, metric) for metric in names)
        writer.writerow([name, question, answer.verdict.level, *cells])
    return out.getvalue()


def _cell(answer: Answer, name: str) -> str:
    """Return the text of one value."""
    value = answer.metrics.get(name)
    if value is None:
        note = answer.nulls.get(name)
        return note.nonfinite or "" if note is not None else ""
    return repr(value + 0.0 if isinstance(value, float) else value)
