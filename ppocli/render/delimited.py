"""CSV and TSV: a header, one row for each file, then the total."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

from ppocli.core.rows import flat
from ppocli.render.console import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppocli.core.report import EvalReport, Group, NullNote


def to_delimited(report: EvalReport, delimiter: str) -> str:
    """Return the metrics as comma- or tab-separated text.

    Columns are `kind` ("file" or "total"), `file` and the metrics by name; nested names are dotted
    (`policy_loss_by_agg.token-mean`), as are those of the trainer against the sampler (`drift.diff_mean`).
    By step, or by another column, `kind` is "group", the second column is called like that and holds its
    values, and `change.METRIC` is what a metric changed by against the row before. Numbers are the shortest
    text that reads back as the same number. A null is nan, inf or -inf where the arithmetic would have given
    that, and empty otherwise.
    """
    by = next((name for one in report.groups for name in one.key), "file")
    kind = "file" if by == "file" else "group"
    flat = [(kind, _label(one.key.get(by)), *_all(one)) for one in report.groups]
    flat.append(("total", "", *_all(report)))
    names = list(dict.fromkeys(name for one in reversed(flat) for name in one[2]))
    out = StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["kind", printable(by), *names])
    for kind, label, metrics, nulls in flat:
        writer.writerow([kind, label, *(cell_of(name, metrics, nulls) for name in names)])
    return out.getvalue()


def _label(value: str | int | None) -> str:
    """Return the value of a key; nothing for the tokens that have none."""
    return "" if value is None else printable(str(value))


def _all(one: EvalReport | Group) -> tuple[dict[str, float | int | None], dict[str, NullNote]]:
    """Return all numbers of a report or a group under their dotted names, and the notes of the nulls."""
    metrics, nulls = dict(flat(one.metrics)), dict(one.nulls)
    if one.drift:
        metrics |= {f"drift.{name}": value for name, value in one.drift["metrics"].items()}
        nulls |= {f"drift.{name}": note for name, note in one.drift["nulls"].items()}
    metrics |= {f"change.{name}": value for name, value in getattr(one, "change", {}).items()}
    return metrics, nulls


def cell_of(name: str, metrics: Mapping[str, float | int | None], nulls: Mapping[str, NullNote]) -> str:
    """Return the text of one value."""
    value = metrics.get(name)
    if value is None:
        note = nulls.get(name)
        return note.nonfinite or "" if note is not None else ""
    return repr(value + 0.0 if isinstance(value, float) else value)
