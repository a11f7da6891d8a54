"""The screen of `ppocli parity`: one table for each quantity, sorted by value."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING

from ppocli.core.parity_report import KINDS
from ppocli.render.blocks import Block, Column, Screen
from ppocli.render.console import printable
from ppocli.render.numbers import number_text, plural

if TYPE_CHECKING:
    from ppocli.core.parity_report import Framework, ParityReport

COLUMNS = (Column("value", "number"), Column("framework"), Column("its name"), Column("definition", "note"))


def parity_screen(report: ParityReport, digits: int = 6) -> Screen:
    """Return header lines and tables."""
    inputs = report.inputs
    name = printable(inputs[0].path) if len(inputs) == 1 else plural(len(inputs), "file")
    header = [f"{name}  {plural(report.n_tokens, 'token')}, {plural(len(report.frameworks), 'framework')}"]
    given = {key: value for key, value in report.settings.items() if key != "columns"}
    if given:
        said = ", ".join(f"{key} {value}" for key, value in given.items())
        header.append(f"the same for all: {said}; everything else is each framework's default")
    else:
        header.append("every setting is the framework's default")
    return Screen(tuple(header), tuple(_blocks(report, digits)))


def parity_jsonl(report: ParityReport, *, encoding: str = "utf-8") -> str:
    """Return one line for each framework and one for the rest of the report."""
    from ppocli.render.json import to_lines

    document = report.to_dict()
    lines = [{"kind": "framework", **one} for one in document.pop("frameworks")]
    return to_lines([*lines, {**document, "kind": "total"}], encoding=encoding)


def parity_delimited(report: ParityReport, delimiter: str) -> str:
    """Return one row for each framework and quantity, numbers as the shortest text that reads back."""
    out = StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["quantity", "framework", "version", "name", "value", "definition", "reason"])
    for kind in KINDS:
        for one in report.frameworks:
            cell = one.metrics.get(kind)
            if cell is not None:
                value = "" if cell.value is None else repr(float(cell.value) + 0.0)
                if cell.null is not None and cell.null.nonfinite is not None:
                    value = cell.null.nonfinite
                reason = "" if cell.null is None else cell.null.reason
                writer.writerow([kind, one.name, one.version, cell.name, value, cell.definition, reason])
    return out.getvalue()


def _blocks(report: ParityReport, digits: int) -> Iterator[Block]:
    """Yield a table for each quantity, then what could not be computed."""
    spread = report.spread()
    missing: list[tuple[str, str, str]] = []
    for kind in KINDS:
        having = [one for one in report.frameworks if kind in one.metrics]
        for one in having:
            note = one.metrics[kind].null
            if note is not None:
                why = note.reason + (f" ({note.nonfinite})" if note.nonfinite else "")
                missing.append((one.name, kind, why))
        if kind in spread:
            low, high = (number_text(spread[kind][end], digits) for end in ("min", "max"))
            title = f"{kind}: {low} to {high}, {plural(spread[kind]['n'], 'framework')}"
            yield Block(COLUMNS, tuple(_rows(having, kind, digits)), title)
    if missing:
        columns = (Column("framework"), Column("quantity"), Column("why there is no number", "note"))
        yield Block(columns, tuple(missing), "not computed")


def _rows(frameworks: list[Framework], kind: str, digits: int) -> Iterator[tuple[str, ...]]:
    """Yield the rows of one quantity, smallest first; ties keep the order of the presets."""
    having = [one for one in frameworks if one.metrics[kind].value is not None]
    for one in sorted(having, key=lambda one: one.metrics[kind].value or 0.0):
        cell = one.metrics[kind]
        yield (
            number_text(float(cell.value or 0.0), digits),
            f"{one.name} {one.version}",
            cell.name,
            cell.definition,
        )
