"""CSV and TSV: a header, one row for each file, then the total."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any

from ppocli.render.console import printable

if TYPE_CHECKING:
    from ppocli.core.report import EvalReport, NullNote


def to_delimited(report: EvalReport, delimiter: str) -> str:
    """Return the metrics as comma- or tab-separated text.

    Columns are `kind` ("file" or "total"), `file` and the metrics by name; nested names are dotted
    (`policy_loss_by_agg.token-mean`). Numbers are the shortest text that reads back as the same number. A
    null is nan, inf or -inf where the arithmetic would have given that, and empty otherwise.
    """
    rows = [
        ("file", printable(str(one.key.get("file", ""))), one.metrics, one.nulls) for one in report.groups
    ]
    rows.append(("total", "", report.metrics, report.nulls))
    flat = [(kind, path, dict(_flat(metrics)), nulls) for kind, path, metrics, nulls in rows]
    names = list(dict.fromkeys(name for one in reversed(flat) for name in one[2]))
    out = StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["kind", "file", *names])
    for kind, path, metrics, nulls in flat:
        writer.writerow([kind, path, *(cell_of(name, metrics, nulls) for name in names)])
    return out.getvalue()


def _flat(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float | int | None]]:
    """Yield every number under its dotted name."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", one) for key, one in value.items())
        else:
            yield name, value


def cell_of(name: str, metrics: Mapping[str, float | int | None], nulls: Mapping[str, NullNote]) -> str:
    """Return the text of one value."""
    value = metrics.get(name)
    if value is None:
        note = nulls.get(name)
        return note.nonfinite or "" if note is not None else ""
    return repr(value + 0.0 if isinstance(value, float) else value)
