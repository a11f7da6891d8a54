"""What a Parquet file holds, from its footer."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ppocli.core.inspect_report import InspectedFile, ReadPlan, StoredColumn
from ppocli.core.roles import MAIN_ROLES
from ppocli.errors import InputError
from ppocli.io import convert, footer, lists
from ppocli.io.describe import attempt, by_column, clear_roles, found_by, token_bytes, type_notes
from ppocli.io.fields import find_fields
from ppocli.io.places import place_of
from ppocli.io.structures import offered

if TYPE_CHECKING:
    from ppocli.core.chunk import ReadOptions
    from ppocli.core.report import Nonfinite
    from ppocli.io.describe import RolesRead
    from ppocli.io.fields import Fields

# Element types whose statistics are numbers.
_ORDERED = (convert.FLOATS - {convert.BFLOAT16}) | convert.INTEGERS | {"bool"}


def describe_parquet(
    path: str, options: ReadOptions, roles_read: RolesRead, chunk_tokens: int
) -> InspectedFile:
    """Describe a Parquet file; see `describe`."""
    file, schema = footer.open_footer(path)
    try:
        meta = file.metadata
        footer.check_chunks(file, path, range(meta.num_columns))
        stored = _read_chunks(file, path, list(_stored(schema)))
        codecs = footer.codecs(file, path)
        found, problem = attempt(lambda required: find_fields(schema, path, options, required))
        if found is None:
            roles_found = _clear_columns(schema, path, options)
        else:
            roles_found = {role: one.column for role, one in found.by_role.items()}
        taken, notes = by_column(roles_found)
        readable = found if found and found.by_role else None
        return InspectedFile(
            path=path,
            format="parquet",
            version=meta.format_version,
            writer=footer.writer(meta),
            bytes=place_of(path).size,
            footer_bytes=meta.serialized_size,
            rows=meta.num_rows,
            parts=meta.num_row_groups,
            layout=readable.layout if readable else None,
            columns=tuple(one.report(codecs, taken.get(one.name), options) for one in stored),
            missing=tuple(role for role in MAIN_ROLES if role not in roles_found),
            problem=problem.message if problem else None,
            advice=(problem.hint or "") if problem else "",
            plan=_plan(file, stored, readable, roles_read, chunk_tokens) if readable else None,
            notes=(*_notes(file, stored, found, taken, options), *notes),
        )
    finally:
        file.close(force=True)


def _clear_columns(schema: Any, path: str, options: ReadOptions) -> dict[str, str]:
    """Return the column of each role as far as names tell; nothing where a name stands twice."""
    try:
        columns, _ = offered(schema, path)
    except InputError:
        return {}
    return clear_roles(path, columns, options)


def _notes(
    file: Any, stored: list[_Stored], found: Fields | None, taken: Mapping[str, str], options: ReadOptions
) -> Iterator[str]:
    """Yield what there is to say about columns and row groups."""
    said = found.notes if found else ()
    yield from said
    leaves = footer.leaves_of(file, taken) if found and found.depth else ()
    if tiny := footer.tiny_row_groups(file.metadata, leaves):
        yield tiny
    for one in stored:
        if not any(f"column '{one.name}'" in note for note in said):
            yield from type_notes(one.name, one.element, taken.get(one.name), options)
    if any(one.n_null and one.type.startswith("list<") for one in stored):
        yield "nulls of list columns are as the footer counts them: null and empty lists are among them"


@dataclass(slots=True)
class _Stored:
    """One column and what the footer says about its chunks so far."""

    name: str
    type: str
    element: str
    leaves: range
    n_bytes: int = 0
    values: int = 0
    n_null: int | None = 0
    low: Any = None
    high: Any = None
    ordered: bool = field(init=False)

    def __post_init__(self) -> None:
        self.ordered = self.element in _ORDERED and len(self.leaves) == 1

    def add(self, chunk: Any) -> None:
        """Add the statistics of one column chunk."""
        if not chunk.num_values:
            return
        statistics = chunk.statistics
        n_null = statistics.null_count if statistics is not None and statistics.has_null_count else None
        if n_null is not None and not 0 <= n_null <= chunk.num_values:
            n_null = None  # not a count of these values
        self.n_null = None if n_null is None or self.n_null is None else self.n_null + n_null
        if not self.ordered:
            return
        if statistics is not None and statistics.has_min_max:
            low, high = self._number(statistics.min), self._number(statistics.max)
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
            self.ordered = low <= high  # false for NaN, which some writers put there
        elif n_null != chunk.num_values:
            self.ordered = False

    def _number(self, value: Any) -> Any:
        """Return a limit as a number; PyArrow gives the two bytes of a float16."""
        return struct.unpack("<e", value)[0] if isinstance(value, bytes) else value

    def report(self, codecs: list[str], role: str | None, options: ReadOptions) -> StoredColumn:
        """Return the column's entry in the report."""
        limits = {"min": self.low, "max": self.high} if self.ordered else {"min": None, "max": None}
        infinite: dict[str, Nonfinite] = {
            key: "inf" if value > 0 else "-inf"
            for key, value in limits.items()
            if isinstance(value, float) and math.isinf(value)
        }
        return StoredColumn(
            name=self.name,
            type=self.type,
            compression=", ".join(dict.fromkeys(codecs[leaf] for leaf in self.leaves)) if codecs else None,
            bytes=self.n_bytes,
            values=self.values if len(self.leaves) == 1 else None,
            n_null=self.n_null if len(self.leaves) == 1 else None,
            min=None if "min" in infinite else limits["min"],
            max=None if "max" in infinite else limits["max"],
            nonfinite=infinite,
            role=role,
            found_by=found_by(role, self.name, options) if role else None,
        )


def _stored(schema: Any) -> Iterator[_Stored]:
    """Yield the columns in stored order, each with its Parquet leaves."""
    first = 0
    for name, kind in _flattened(schema, ""):
        end = first + _count_leaves(kind)
        yield _Stored(name, lists.describe(kind), lists.depth_and_leaf(kind)[1], range(first, end))
        first = end


def _flattened(parent: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and types of fields, those of structures instead of the structure."""
    for one in parent:
        if pa.types.is_struct(one.type):
            yield from _flattened(one.type, f"{prefix}{one.name}.")
        else:
            yield f"{prefix}{one.name}", one.type


def _count_leaves(kind: Any) -> int:
    """Return how many Parquet columns a type takes."""
    kind = lists.plain(kind)
    if kind.num_fields:  # structures, maps, lists
        return sum(_count_leaves(kind.field(index).type) for index in range(kind.num_fields))
    return 1


def _read_chunks(file: Any, path: str, stored: list[_Stored]) -> list[_Stored]:
    """Add up what the footer says about every column chunk."""
    meta = file.metadata
    kinds = [file.schema.column(leaf).physical_type for leaf in range(meta.num_columns)]
    owners = [one for one in stored for _ in one.leaves]
    if len(owners) != meta.num_columns:
        raise footer.damaged_footer(path, f"{meta.num_columns} columns, and a schema for {len(owners)}")
    for index in range(meta.num_row_groups):
        group = meta.row_group(index)
        for leaf, owner in enumerate(owners):
            chunk = group.column(leaf)
            # Statistics of another type than the schema's would abort the process, as in `check_chunks`.
            if chunk.physical_type != kinds[leaf] or chunk.total_compressed_size < 0 or chunk.num_values < 0:
                raise footer.damaged_footer(
                    path, f"row group {index} contradicts the schema about column '{owner.name}'"
                )
            owner.n_bytes += chunk.total_compressed_size
            owner.values += chunk.num_values
            owner.add(chunk)
    return stored


def _plan(
    file: Any, stored: list[_Stored], found: Fields, roles_read: RolesRead, chunk_tokens: int
) -> ReadPlan:
    """Return how the file would be read."""
    meta = file.metadata
    read = found.to_read(roles_read(found.by_role))
    columns = tuple(dict.fromkeys(field.column for field in read.values()))
    leaves = footer.leaves_of(file, columns)
    if found.depth:
        groups = list(footer.values_per_group(meta, leaves))
        alike = footer.runs(groups, chunk_tokens)
        n_tokens = sum(values for _, _, values in groups)
        longest = max((values / rows for _, rows, values in groups), default=0)
    else:
        alike = iter([(list(range(meta.num_row_groups)), convert.flat_rows(chunk_tokens))])
        n_tokens, longest = meta.num_rows, 1
    batches = [
        (rows, sum(meta.row_group(index).num_rows for index in run))
        for run, rows in footer.apart(meta, alike)
    ]
    sizes = [min(rows, total) for rows, total in batches if total]
    batch_tokens = min(n_tokens, max(chunk_tokens, math.ceil(longest)))
    width = sum(token_bytes(role, one.dtype) for role, one in read.items())
    return ReadPlan(
        columns=columns,
        bytes=sum(one.n_bytes for one in stored if set(one.leaves) & set(leaves)),
        n_batches=sum(math.ceil(total / rows) for rows, total in batches),
        batch_rows=(min(sizes, default=0), max(sizes, default=0)),
        batch_tokens=chunk_tokens,
        batch_bytes=batch_tokens * width,
    )
