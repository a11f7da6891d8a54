"""The checks of a gate for programs: JSON lines, CSV and TSV."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

from ppocli.render.console import printable
from ppocli.render.json import to_lines

if TYPE_CHECKING:
    from ppocli.core.check_report import CheckReport

COLUMNS = ("name", "status", "kind", "metric", "value", "limit", "tolerance", "source", "reason")


def to_jsonl(report: CheckReport, *, encoding: str = "utf-8") -> str:
    """Return one line of kind "check" for each check, then the rest of the document, of kind "total".

    The key `kind` of a check is `check_kind` here.
    """
    document = report.to_dict()
    checks = document.pop("checks")
    version = document["schema_version"]
    lines = [
        {"schema_version": version, "kind": "check", "check_kind": one["kind"],
         **{name: value for name, value in one.items() if name != "kind"}}
        for one in checks
    ]  # fmt: skip
    return to_lines([*lines, {**document, "kind": "total"}], encoding=encoding)


def to_delimited(report: CheckReport, delimiter: str) -> str:
    """Return a header and one row for each check; numbers read back as the same, what is absent is empty."""
    out = StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    keys = list(dict.fromkeys(name for one in report.checks for name in one.key)) or ["file"]
    writer.writerow([*keys, *COLUMNS])
    for one in report.checks:
        cells = [getattr(one, name) for name in COLUMNS]
        row = [
            "" if cell is None else printable(cell) if isinstance(cell, str) else repr(cell) for cell in cells
        ]
        labels = [printable(str(one.key.get(name, ""))) for name in keys]
        writer.writerow([*labels, *row])
    return out.getvalue()
