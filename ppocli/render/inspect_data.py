"""What `inspect` found, for machines: a line of JSON for each file, or a row of a table for each column."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any

from ppocli.render.console import printable
from ppocli.render.json import to_lines

if TYPE_CHECKING:
    from ppocli.core.inspect_report import InspectReport

_FILE = ("path", "format", "rows", "layout", "schema", "ready")
_COLUMN = (
    "name", "type", "shape", "role", "found_by", "compression", "bytes", "values", "n_null", "min", "max",
)  # fmt: skip


def to_jsonl(report: InspectReport, *, encoding: str = "utf-8") -> str:
    """Return one line for each file, of kind "file", and the rest of the document as a last one, "total"."""
    document = report.to_dict()
    files = document.pop("files")
    head = {"schema_version": document["schema_version"], "kind": "file"}
    return to_lines([*({**head, **one} for one in files), {**document, "kind": "total"}], encoding=encoding)


def to_delimited(report: InspectReport, delimiter: str) -> str:
    """Return comma- or tab-separated text: a header, and one row for each column of each file.

    A file without columns has a row of its own. What a scan counted stands under dotted names (`scan.n_nan`)
    in the row of the role's column. Numbers are the shortest text that reads back as the same number; what is
    not known is empty, an infinite limit inf or -inf.
    """
    rows = [row for one in report.to_dict()["files"] for row in _rows(one)]
    scanned = dict.fromkeys(key for row in rows for key in row if key.startswith("scan."))
    names = [*_FILE, *_COLUMN, *scanned]
    out = StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def _rows(file: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of one file."""
    facts = {key: file[key] for key in _FILE}
    scans = file.get("scan", {}).get("columns", {})
    for column in file["columns"] or [{}]:
        counts = scans.get(column.get("role"), {})
        scan = {f"scan.{key}": value for key, value in counts.items()}
        yield {**facts, **column, **column.get("nonfinite", {}), **scan}


def _cell(value: Any) -> str:
    """Return the text of one value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value + 0.0)  # -0.0 + 0.0 is 0.0
    if isinstance(value, (tuple, list)):
        return " ".join(map(str, value))
    return printable(str(value))
