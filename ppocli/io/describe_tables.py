"""What Arrow, JSON Lines and NPY files hold, from their headers and, of JSON Lines, the first records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppocli.core.inspect_report import InspectedFile, ReadPlan, StoredColumn
from ppocli.core.roles import MAIN_ROLES
from ppocli.io import convert
from ppocli.io.describe import attempt, by_column, clear_roles, found_by, token_bytes, type_notes
from ppocli.io.places import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ppocli.core.chunk import ReadOptions
    from ppocli.errors import InputError
    from ppocli.io.describe import RolesRead
    from ppocli.io.fields import Fields


def describe_arrow(
    path: str, options: ReadOptions, roles_read: RolesRead, chunk_tokens: int
) -> InspectedFile:
    """Describe an Arrow file or stream; see `describe`."""
    from ppocli.io.arrow import ArrowSource

    source = ArrowSource(path)
    table = _Table(path, "arrow", options, source.rows, source.n_batches, source.kind, source.notes)
    return table.described(source.schema, roles_read, chunk_tokens, whole_numbers=False)


def describe_jsonl(
    path: str, options: ReadOptions, roles_read: RolesRead, chunk_tokens: int
) -> InspectedFile:
    """Describe a file of JSON Lines by its first records; how many there are it does not say."""
    from ppocli.io.jsonl import first_records

    first = first_records(path)
    return _Table(path, "jsonl", options, None, 1).described(
        first.schema, roles_read, chunk_tokens, whole_numbers=True
    )


@dataclass(frozen=True, slots=True)
class _Table:
    """One file with an Arrow schema, as far as it is known."""

    path: str
    format: str
    options: ReadOptions
    rows: int | None
    parts: int
    version: str | None = None
    notes: tuple[str, ...] = ()

    def described(
        self, schema: Any, roles_read: RolesRead, chunk_tokens: int, *, whole_numbers: bool
    ) -> InspectedFile:
        """Return the file's entry of the report."""
        from ppocli.io.fields import find_fields
        from ppocli.io.structures import offered

        found, problem = attempt(
            lambda required: find_fields(
                schema, self.path, self.options, required, whole_numbers=whole_numbers
            )
        )
        columns, inside = offered(schema, self.path)
        if found is None:
            roles = clear_roles(self.path, columns, self.options)
        else:
            roles = {role: one.column for role, one in found.by_role.items()}
        taken, notes = by_column(roles)
        readable = found if found is not None and found.by_role else None
        stored = tuple(
            _column(name, kind, taken.get(name), self.options) for name, kind in {**columns, **inside}.items()
        )
        return InspectedFile(
            path=self.path,
            format=self.format,
            version=self.version,
            bytes=place_of(self.path).size,
            rows=self.rows,
            parts=self.parts,
            layout=readable.layout if readable else None,
            columns=stored,
            plan=self._plan(readable, roles_read, chunk_tokens) if readable else None,
            notes=(*self._said(found, columns, taken), *self.notes, *notes),
            **_readiness(roles, problem),
        )

    def _said(
        self, found: Fields | None, columns: Mapping[str, str], taken: Mapping[str, str]
    ) -> Iterator[str]:
        """Yield what there is to say about the columns."""
        said = found.notes if found else ()
        yield from said
        for name, kind in columns.items():
            element = kind.replace("list<", "").replace(">", "")
            if not any(f"column '{name}'" in note for note in said):
                yield from type_notes(name, element, taken.get(name), self.options)

    def _plan(self, found: Fields, roles_read: RolesRead, chunk_tokens: int) -> ReadPlan:
        """Return how the file would be read; how long its rows are, nothing tells beforehand."""
        read = found.to_read(roles_read(found.by_role))
        rows = self.rows or 0
        most = rows if found.depth else min(rows, convert.flat_rows(chunk_tokens))
        width = sum(token_bytes(role, one.dtype) for role, one in read.items() if role in found.by_role)
        return ReadPlan(
            columns=tuple(dict.fromkeys(one.column for one in read.values())),
            bytes=place_of(self.path).size,
            n_batches=self.parts if found.depth or not most else math.ceil(rows / most),
            batch_rows=(min(1, rows), most),
            batch_tokens=chunk_tokens,
            batch_bytes=chunk_tokens * width,
        )


def describe_npy(path: str, options: ReadOptions, roles_read: RolesRead, chunk_tokens: int) -> InspectedFile:
    """Describe an NPY file by its header; see `describe`."""
    from ppocli.io import npy

    records = npy.read_records(path)
    columns = records.columns
    placed, problem = attempt(lambda required: npy.place(records, options, required))
    roles = placed[0] if placed else clear_roles(path, records.described(), options)
    taken, notes = by_column(roles)
    plan = placed[1] if placed and placed[0] else None
    stored = tuple(
        StoredColumn(
            name=name,
            type=convert.type_name(kind),
            compression=None,
            bytes=math.prod(shape) * kind.itemsize,
            values=math.prod(shape),
            role=taken.get(name),
            found_by=found_by(taken[name], name, options) if name in taken else None,
            shape=shape,
            order="C",
            mappable=False,
        )
        for name, (kind, shape) in columns.items()
    )
    read_plan = None
    if plan is not None:
        read = [role for role in plan.placements if role in roles_read(plan.placements)]
        per_row = plan.row_tokens or 1
        rows = min(plan.n_rows, max(1, chunk_tokens // per_row))
        width = sum(token_bytes(role, convert.type_name(columns[roles[role]][0])) for role in read)
        read_plan = ReadPlan(
            columns=tuple(dict.fromkeys(roles[role] for role in read)),
            bytes=records.n_rows * records.dtype.itemsize,
            n_batches=math.ceil(plan.n_rows / rows) if rows else 0,
            batch_rows=(rows, rows),
            batch_tokens=chunk_tokens,
            batch_bytes=rows * per_row * width,
        )
    return InspectedFile(
        path=path,
        format="npy",
        bytes=place_of(path).size,
        rows=plan.n_rows if plan else records.n_rows,
        parts=len(columns),
        layout=plan.layout if plan else None,
        columns=stored,
        plan=read_plan,
        notes=(*(placed[2] if placed else ()), *notes),
        **_readiness(roles, problem),
    )


def _column(name: str, kind: str, role: str | None, options: ReadOptions) -> StoredColumn:
    """Return a column's entry in the report; sizes and ranges stand nowhere."""
    by = found_by(role, name, options) if role else None
    return StoredColumn(name, kind, compression=None, bytes=None, values=None, role=role, found_by=by)


def _readiness(roles: Mapping[str, str], problem: InputError | None) -> dict[str, Any]:
    """Return what says whether `eval` would read the file."""
    return {
        "missing": tuple(role for role in MAIN_ROLES if role not in roles),
        "problem": problem.message if problem else None,
        "advice": (problem.hint or "") if problem else "",
    }
