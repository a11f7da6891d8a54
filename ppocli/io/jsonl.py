"""JSON Lines: records become Arrow batches, and those become chunks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ppocli.core.report import ColumnReport, InputReport
from ppocli.core.roles import MAIN_ROLES
from ppocli.errors import InputError
from ppocli.io import lists
from ppocli.io.batches import BatchChunker
from ppocli.io.columns import names_a_role
from ppocli.io.fields import SAMPLE_MASK, find_fields
from ppocli.io.json_lines import JsonLines
from ppocli.io.places import place_of

if TYPE_CHECKING:
    from ppocli.core.chunk import Chunk, IdCoder, ReadOptions

# So much is looked at to learn the columns: what a record may lack, the next ones have.
_FIRST_RECORDS = 100
_FIRST_BYTES = 1 << 22

# Records are gathered until they hold so many bytes of text, about a million numbers.
_BATCH_BYTES = 1 << 24

_FAILURES = (pa.ArrowException, OverflowError, ValueError, TypeError)


@dataclass(slots=True)
class Shape:
    """What the values of a key look like so far.

    Attributes
    ----------
    depth : int, optional
        Lists around the values; None as long as only nulls and empty lists were seen.
    leaf : str
    """

    depth: int | None = None
    leaf: str = "null"

    def add(self, value: Any) -> None:
        """Take a value into account; the first that is no null decides the nesting."""
        depth = 0
        while isinstance(value, list):
            depth += 1
            value = next((one for one in value if one is not None), None)
        if value is None:
            if depth and self.depth is None:
                self.depth = depth
            return
        leaf = _LEAVES.get(type(value), "object")
        if self.leaf == "null":
            self.depth, self.leaf = depth, leaf
        elif {self.leaf, leaf} == {"int64", "float64"}:
            self.leaf = "float64"

    def type(self) -> Any:
        """Return the Arrow type."""
        kind = pa.struct([]) if self.leaf == "object" else _arrow(self.leaf)
        for _ in range(min(self.depth or 0, _DEEPEST)):
            kind = pa.list_(kind)
        return kind


_LEAVES = {bool: "bool", int: "int64", float: "float64", str: "string"}
_DEEPEST = 4


@dataclass(slots=True)
class First:
    """The first records of a file: the shape of each key, and the mean length of a line."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    n_records: int = 0
    n_bytes: int = 0

    @property
    def schema(self) -> Any:
        """The Arrow schema they suggest."""
        return pa.schema([pa.field(name, one.type()) for name, one in self.shapes.items()])


def first_records(path: str, *, recover: bool = False) -> First:
    """Look at the first records of a file; see `JsonLines`.

    Raises
    ------
    InputError
        A line among them cannot be parsed, or there is no record.
    """
    first = First()
    for _, n_bytes, record in islice(JsonLines(path, recover=recover), _FIRST_RECORDS):
        for name, value in record.items():
            first.shapes.setdefault(name, Shape()).add(value)
        first.n_records += 1
        first.n_bytes += n_bytes
        if first.n_bytes > _FIRST_BYTES:
            break
    if not first.n_records:
        raise InputError("no JSON object in the file", where=path, hint="write one object per line")
    return first


class JsonlReader:
    """One file of JSON Lines: an object per row, its keys the columns.

    Values are numbers, lists of numbers, or lists of lists (steps, then tokens; NeMo-RL's lists of one are
    such). NaN and Infinity, which JSON does not know and Python writes, are taken as they are; null is a
    missing value. Integers count as float64 where the role is not a mask or an id. Which keys there are, the
    first records tell.

    Parameters
    ----------
    path : str
    options : ReadOptions
    coders : mapping of role to IdCoder
    required : collection of str
        Roles that must be found; see `columns.resolve`.
    recover : bool
        Leave out a last line that is cut.

    Raises
    ------
    InputError
        One of the first lines cannot be parsed; and what `fields.find_fields` refuses.
    """

    def __init__(
        self,
        path: str,
        options: ReadOptions,
        coders: Mapping[str, IdCoder],
        required: Collection[str] = MAIN_ROLES,
        *,
        recover: bool = False,
    ) -> None:
        self.path, self._recover = path, recover
        first = first_records(path, recover=recover)
        self._keys = frozenset(first.shapes)
        self._found = find_fields(first.schema, path, options, required, whole_numbers=True)
        self._chunker = BatchChunker(path, self._found, options, dict(coders))
        n_bytes = place_of(path).size
        self._report = InputReport(
            path=path,
            format="jsonl",
            layout=self._found.layout,
            # Until they have been counted, an estimate.
            rows=max(1, round(n_bytes / first.n_bytes * first.n_records)),
            bytes=n_bytes,
            columns={role: ColumnReport(one.column, one.dtype) for role, one in self._found.by_role.items()},
            notes=self._found.notes,
        )

    @property
    def report(self) -> InputReport:
        """What was found. The rows are an estimate until a pass has read them all."""
        return self._chunker.with_null_rows(self._report)

    @property
    def per_row(self) -> frozenset[str]:
        """Roles that are stored once per row; see `ppocli.core.chunk.Reader`."""
        return self._chunker.per_row

    def chunks(self, roles: Collection[str], chunk_tokens: int, *, repeat: bool = True) -> Iterator[Chunk]:
        """Yield the rows in stored order; see `ppocli.core.chunk.Reader`.

        Raises
        ------
        InputError
            A line that cannot be parsed, holds a value of another type, or a column that no line before had;
            and what `BatchChunker.chunks` refuses.
        """
        wanted = [role for role in self._found.by_role if role in roles]
        types = self._types(wanted)
        lines = JsonLines(self.path, recover=self._recover)
        batches = self._batches(lines, types, max(1, chunk_tokens))
        n_rows = 0
        for chunk in self._chunker.chunks(batches, wanted, max(1, chunk_tokens), repeat=repeat):
            n_rows += chunk.n_rows
            yield chunk
        notes = self._found.notes
        if lines.left_out:
            notes = (*notes, f"the last line is cut: {lines.left_out:,} bytes not read")
        self._report = replace(self._report, rows=n_rows, notes=notes)

    def close(self) -> None:
        """Do nothing: the file is open only while chunks are read."""

    def _types(self, wanted: list[str]) -> dict[str, Any]:
        """Return the Arrow type of each key that is read."""
        types: dict[str, Any] = {}
        for role, one in self._found.to_read(wanted).items():
            # Masks may be true and false here, 1 and 0 there.
            leaf = _arrow("float64" if role in ("mask", SAMPLE_MASK) else one.dtype)
            for _ in range(one.depth + one.summed):
                leaf = pa.list_(leaf)
            types[one.column] = leaf
        return types

    def _batches(self, lines: JsonLines, types: Mapping[str, Any], chunk_tokens: int) -> Iterator[Any]:
        """Yield record batches of the records' wanted keys."""
        records: list[dict[str, Any]] = []
        numbers: list[int] = []
        n_bytes = n_values = 0
        for number, length, record in lines:
            self._check_keys(number, record)
            self._check_absent(number, record)
            kept = {key: record.get(key) for key in types}
            records.append(kept)
            numbers.append(number)
            n_bytes += length
            n_values += max(len(value) if isinstance(value, list) else 1 for value in kept.values())
            if n_bytes >= _BATCH_BYTES or n_values >= chunk_tokens:
                yield self._batch(records, numbers, types)
                records, numbers, n_bytes, n_values = [], [], 0, 0
        if records:
            yield self._batch(records, numbers, types)

    def _check_keys(self, number: int, record: Mapping[str, Any]) -> None:
        """Refuse a key that would play a role and was in none of the first records."""
        for key in record.keys() - self._keys:
            if names_a_role(key):
                raise InputError(
                    f"line {number} has '{key}', and none of the first {_FIRST_RECORDS} records has",
                    where=f"{self.path}, line {number}",
                    hint="write every key in every line, null where there is no value",
                )

    def _check_absent(self, number: int, record: Mapping[str, Any]) -> None:
        """Refuse a value of a column that counts as absent, for the first records hold only nulls there."""
        for key in self._found.absent:
            seen = Shape()
            seen.add(record.get(key))
            if seen.leaf != "null":
                raise InputError(
                    f"line {number} has values in '{key}', and the first {_FIRST_RECORDS} records only nulls",
                    where=f"{self.path}, line {number}",
                    hint="put a record with values first",
                )

    def _batch(self, records: list[dict[str, Any]], numbers: list[int], types: Mapping[str, Any]) -> Any:
        """Make a record batch."""
        arrays = {}
        for key, kind in types.items():
            values = [record[key] for record in records]
            try:
                arrays[key] = _array(values, kind)
            except _FAILURES:
                raise self._other_type(key, values, numbers, kind) from None
        return pa.record_batch(arrays)

    def _other_type(self, key: str, values: list[Any], numbers: list[int], kind: Any) -> InputError:
        """Build the error for a value that is not of the column's type."""
        for number, value in zip(numbers, values, strict=True):
            try:
                _array([value], kind)
            except _FAILURES as failure:
                said = (
                    str(failure).strip().splitlines()[0] if str(failure).strip() else type(failure).__name__
                )
                return InputError(
                    f"line {number}: '{key}' is not of type {lists.describe(kind)}: {said}",
                    where=f"{self.path}, line {number}",
                    hint="every line needs the types of the first ones; missing numbers are null or NaN",
                )
        raise AssertionError("together they failed, one by one they did not")


def _arrow(name: str) -> Any:
    """Return an Arrow type by its name."""
    return getattr(pa, "bool_" if name == "bool" else name)()


def _array(values: list[Any], kind: Any) -> Any:
    """Return values as an Arrow array of a type, and never rounded to fit it."""
    if lists.depth_and_leaf(kind)[1] == "int64":
        free = pa.array(values)
        if lists.depth_and_leaf(free.type)[1] not in ("int64", "null"):
            raise TypeError(f"found {lists.describe(free.type)}")
    return pa.array(values, type=kind)


__all__ = ["First", "JsonlReader", "first_records"]
