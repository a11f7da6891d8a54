"""The content of the `inspect` screen, apart from how it is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ppocli.render.blocks import Block, Column, Screen
from ppocli.render.console import printable
from ppocli.render.numbers import count_text, number_text, plural, several, size_text

if TYPE_CHECKING:
    from ppocli.core.inspect_report import (
        ColumnScan,
        FileScan,
        InspectedFile,
        InspectReport,
        ReadPlan,
        StoredColumn,
    )

UNKNOWN = "-"
"""Stands where the footer or header does not say."""

SCHEMAS_SHOWN = 3
"""Of several files, the first file of so many schemas is described in full."""

_FORMATS = {"parquet": "Parquet", "npz": "NPZ", "arrow": "Arrow", "jsonl": "JSON Lines", "npy": "NPY"}
_PARTS = {
    "parquet": "row group",
    "npz": "array",
    "arrow": "record batch",
    "jsonl": "file",
    "npy": "field",
}
_FOUND_BY = {"name": "", "alias": " (alias)", "option": " (--col)", None: ""}


def inspect_screen(report: InspectReport, digits: int = 6) -> Screen:
    """Arrange what was found for reading; `digits` are the significant digits of real numbers."""
    skipped = list(_skipped(report))
    if len(report.files) == 1:
        one = report.files[0]
        return Screen((_title(one), *skipped), tuple(_details(one, digits)))
    firsts: dict[int, InspectedFile] = {}
    for one in report.files:
        firsts.setdefault(one.schema, one)
    blocks = [_files(report)] if report.files else []
    for number, one in list(firsts.items())[:SCHEMAS_SHOWN]:
        count = sum(other.schema == number for other in report.files)
        title = f"schema {number}, {plural(count, 'file')}, the first: {_title(one)}"
        blocks += [Block(text=title), *_details(one, digits)]
    if len(firsts) > SCHEMAS_SHOWN:
        more = plural(len(firsts) - SCHEMAS_SHOWN, "more schema")
        blocks.append(Block(text=f"{more}: -f json describes every file"))
    return Screen((_total(report), *skipped), tuple(blocks))


def _title(one: InspectedFile) -> str:
    """Return the line about a whole file."""
    facts = [f"{_FORMATS[one.format]} {one.version or ''}".rstrip(), size_text(one.bytes)]
    if one.rows is not None:
        facts.append(plural(one.rows, "row"))
    if one.format != "jsonl":
        facts.append(plural(one.parts, _PARTS[one.format]))
    facts += dict.fromkeys(column.compression for column in one.columns if column.compression)
    if one.layout is not None:
        facts.append(f"layout {one.layout}")
    return f"{printable(one.path)}  {', '.join(facts)}"


def _total(report: InspectReport) -> str:
    """Return the line about all files."""
    rows = sum(one.rows or 0 for one in report.files)
    ready = sum(one.ready for one in report.files)
    facts = [
        plural(rows, "row"),
        size_text(sum(one.bytes for one in report.files)),
        plural(report.n_schemas, "schema"),
        f"{count_text(ready)} ready for eval",
    ]
    return f"{plural(len(report.files), 'file')}  {', '.join(facts)}"


def _skipped(report: InspectReport) -> Iterator[str]:
    """Say which files were passed over, the first three by name."""
    if report.skipped:
        shown = "; ".join(f"{printable(one.path)}: {printable(one.reason)}" for one in report.skipped[:3])
        rest = len(report.skipped) - 3
        more = f"; {count_text(rest)} more" if rest > 0 else ""
        yield f"skipped {plural(len(report.skipped), 'file')}: {shown}{more}"


def _files(report: InspectReport) -> Block:
    """Return the table with a line for each file."""
    formats = {one.format for one in report.files}
    parts = several(_PARTS[formats.pop()]) if len(formats) == 1 else "parts"
    scanned = any(one.scan for one in report.files)
    numbers = ["rows", parts, "size", *(["tokens", "masked", "not finite"] if scanned else []), "schema"]
    columns = (Column("file", "path"), *(Column(name, "number") for name in numbers), Column("eval"))
    return Block(columns, tuple(_file_cells(one, scanned) for one in report.files))


def _file_cells(one: InspectedFile, scanned: bool) -> tuple[str, ...]:
    """Return the line of one file."""
    cells = [printable(one.path), _count(one.rows), count_text(one.parts), size_text(one.bytes)]
    if scanned:
        scan = one.scan
        cells += [UNKNOWN] * 3 if scan is None else [count_text(n) for n in _token_counts(scan)]
    return (*cells, count_text(one.schema), "ready" if one.ready else "not ready")


def _token_counts(scan: FileScan) -> tuple[int, int, int]:
    """Return valid and masked tokens, and the values at valid tokens that are null or not finite."""
    odd = sum(one.n_null + one.n_nan + one.n_posinf + one.n_neginf for one in scan.columns.values())
    return scan.tokens, scan.masked, odd


def _details(one: InspectedFile, digits: int) -> Iterator[Block]:
    """Yield the tables of one file, what follows from them, and what to type."""
    if one.columns:
        yield _TABLES[one.format](one, digits)
    if one.scan is not None and one.scan.columns:
        yield _scan(one.scan, digits)
    lines = [*_sequences(one), *_scan_line(one.scan), *_plan(one, one.plan)]
    lines += [f"note: {printable(note)}" for note in one.notes]
    if not one.ready:
        lines.append(f"not ready: {printable(one.problem or '')}")
    if lines:
        yield Block(text="\n".join(lines))
    if one.advice:
        lines = [printable(line) for line in one.advice.split("\n")]
        yield Block(text=("ready: " if one.ready else "help: ") + "\n      ".join(lines), to_type=True)


def _plain_columns(one: InspectedFile, digits: int) -> Block:
    """Return the table of the columns of a file that says no more about them."""
    header = tuple(Column(name) for name in ("column", "type", "role"))
    rows = ((printable(column.name), printable(column.type), _role(column)) for column in one.columns)
    return Block(header, tuple(rows))


def _parquet_columns(one: InspectedFile, digits: int) -> Block:
    """Return the table of a Parquet file's columns."""
    header = (
        *(Column(name) for name in ("column", "type", "role")),
        *(Column(name, "number") for name in ("nulls", "min", "max")),
    )
    rows = (
        (
            printable(column.name),
            printable(column.type),
            _role(column),
            _count(column.n_null),
            _limit(column, "min", digits),
            _limit(column, "max", digits),
        )
        for column in one.columns
    )
    return Block(header, tuple(rows))


def _npz_columns(one: InspectedFile, digits: int) -> Block:
    """Return the table of an NPZ file's arrays."""
    header = tuple(Column(name) for name in ("array", "type", "shape", "role", "storage"))
    rows = (
        (
            printable(column.name),
            printable(column.type),
            UNKNOWN if column.shape is None else str(column.shape),
            _role(column),
            ", ".join(_storage(column)),
        )
        for column in one.columns
    )
    return Block(header, tuple(rows))


_TABLES = {
    "parquet": _parquet_columns,
    "npz": _npz_columns,
    "arrow": _plain_columns,
    "jsonl": _plain_columns,
    "npy": _npz_columns,
}


def _storage(column: StoredColumn) -> Iterator[str]:
    """Yield how an array is stored."""
    yield column.compression or UNKNOWN
    if column.order == "F":
        yield "column-major"
    if column.mappable:
        yield "mappable"


def _role(column: StoredColumn) -> str:
    """Return the role, and what made the column play it unless it is named like the role."""
    return UNKNOWN if column.role is None else column.role + _FOUND_BY[column.found_by]


def _count(value: int | None) -> str:
    """Return a count that may be unknown."""
    return UNKNOWN if value is None else count_text(value)


def _limit(column: StoredColumn, which: str, digits: int) -> str:
    """Return the smallest or largest value."""
    value = column.min if which == "min" else column.max
    return column.nonfinite.get(which) or _value(value, digits)


def _value(value: float | int | bool | None, digits: int) -> str:
    """Return a value that may be unknown."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "true" if value else "false"
    return count_text(value) if isinstance(value, int) else number_text(value, digits)


def _sequences(one: InspectedFile) -> Iterator[str]:
    """Say how the tokens make up sequences."""
    roles = {column.role: column for column in one.columns if column.role}
    if one.layout == "packed":
        yield f"sequences: told apart by '{printable(roles['sequence_id'].name)}' inside rows"
    elif "sequence_id" in roles:
        yield f"sequences: told apart by '{printable(roles['sequence_id'].name)}'"
    elif one.layout == "padded" and one.rows is not None:
        yield f"sequences: {plural(one.rows, 'row')} of equal length"
    elif one.layout in ("list", "list<list>") and one.rows:
        values = [column.values for column in roles.values() if column.values is not None]
        mean = f" of {number_text(max(values) / one.rows, 4)} values on average" if values else ""
        yield f"sequences: {plural(one.rows, 'row')}{mean}"


def _scan(scan: FileScan, digits: int) -> Block:
    """Return the table of what the data hold at valid tokens."""
    numbers = ("null", "nan", "inf", "-inf", "zeros", "min", "max")
    header = (Column("valid tokens"), *(Column(name, "number") for name in numbers), Column("", "note"))
    rows = (
        (
            role,
            *(count_text(n) for n in (one.n_null, one.n_nan, one.n_posinf, one.n_neginf)),
            UNKNOWN if one.zero_frac is None else number_text(one.zero_frac, 4),
            _value(one.min, digits),
            _value(one.max, digits),
            ", ".join(_remarks(one)),
        )
        for role, one in scan.columns.items()
    )
    return Block(header, tuple(rows))


def _remarks(one: ColumnScan) -> Iterator[str]:
    """Yield what a column's values have in common."""
    if one.constant:
        yield "constant"
    elif one.exact_in:
        yield f"exact in {' and '.join(one.exact_in)}"


def _scan_line(scan: FileScan | None) -> Iterator[str]:
    """Say what was counted of the whole file."""
    if scan is None:
        return
    facts = [f"{plural(scan.tokens, 'valid token')}, {count_text(scan.masked)} masked"]
    if scan.longest_row is not None:
        facts.append(f"longest row {plural(scan.longest_row, 'token')}")
    if scan.n_sequences is not None and scan.n_empty_sequences is not None:
        facts.append(f"{plural(scan.n_sequences, 'sequence')} with a valid token")
        facts.append(f"{count_text(scan.n_empty_sequences)} without")
    yield f"data: {', '.join(facts)}"


def _plan(one: InspectedFile, plan: ReadPlan | None) -> Iterator[str]:
    """Say what `eval` would read, and how."""
    if plan is None or not one.ready:
        return
    low, high = plan.batch_rows
    rows = f"up to {plural(high, 'row')}" if low == high else f"{count_text(low)} to {plural(high, 'row')}"
    facts: Sequence[str] = (
        f"{count_text(len(plan.columns))} of {plural(len(one.columns), 'column')}",
        f"{size_text(plan.bytes)} of {size_text(one.bytes)}",
        f"{count_text(plan.n_batches)} {'batch' if plan.n_batches == 1 else 'batches'} of {rows}",
        f"about {size_text(plan.memory)} of memory{_if_longer(one, plan)}",
        *([f"temporary files of {size_text(plan.temporary)}"] if plan.temporary else []),
    )
    yield f"read plan: {', '.join(facts)}"


def _if_longer(one: InspectedFile, plan: ReadPlan) -> str:
    """Say when it would be more: the footer tells the mean length of lists, not the longest one."""
    ragged = one.format not in ("npz", "npy") and one.layout != "flat"
    if not ragged or (one.scan and (one.scan.longest_row or 0) <= plan.batch_tokens):
        return ""
    return f" (more with a row above {count_text(plan.batch_tokens)} tokens)"
