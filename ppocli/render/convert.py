"""What `convert` says when it is done."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

from ppocli.render.blocks import Block, Column, Screen
from ppocli.render.console import printable
from ppocli.render.formats import ROWS, document_text, drawn, rows_text
from ppocli.render.numbers import plural, size_text

if TYPE_CHECKING:
    from ppocli.core.convert_report import ConvertReport
    from ppocli.render.console import Look

CONVERT_FORMATS = ("table", "json", "jsonl", "csv", "tsv", "md")
"""What its `-f` takes."""

_PER = {("list", "token"): "token", ("list", "row"): "row", ("flat", "token"): "row"}


def convert_text(report: ConvertReport, name: str, look: Look, *, encoding: str = "utf-8") -> str:
    """Return a report in one of `CONVERT_FORMATS`; `look` matters to tables, `encoding` to JSON."""
    if name == "json":
        return document_text(report, name, encoding=encoding)
    if name in ROWS:
        return rows_text(report, name, _jsonl, _delimited, encoding)
    return drawn(convert_screen(report), name, look)


def _jsonl(report: ConvertReport, *, encoding: str) -> str:
    """Return the document as one line."""
    from ppocli.render.json import to_lines

    return to_lines([report.to_dict()], encoding=encoding)


def _delimited(report: ConvertReport, delimiter: str) -> str:
    """Return one row for each column that was written."""
    out = StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["path", "column", "type", "origin", "per"])
    for role, one in report.columns.items():
        per = _PER[report.layout, one.per]
        writer.writerow([printable(report.path), role, one.type, printable(one.origin), per])
    return out.getvalue()


def convert_screen(report: ConvertReport) -> Screen:
    """Arrange what was written for reading."""
    facts = [plural(report.rows, "row"), plural(report.tokens, "token"), size_text(report.bytes)]
    facts.append("a row per sequence" if report.layout == "list" else "a row per token")
    if report.verified:
        facts.append("verified: equal to the inputs bit for bit")
    header = [f"{printable(report.path)}  {', '.join(facts)}"]
    sources = [one for one in report.inputs if one.notes]
    header += [f"note: {printable(one.path)}: {printable(note)}" for one in sources for note in one.notes]
    if report.left_out:
        names = ", ".join(printable(name) for name in report.left_out)
        header.append(f"not written, for they play no role: {names}")
    columns = tuple(Column(name) for name in ("column", "type", "from", "one value per"))
    rows = tuple(
        (role, one.type, printable(one.origin), _PER[report.layout, one.per])
        for role, one in report.columns.items()
    )
    return Screen(tuple(header), (Block(columns, rows),))
