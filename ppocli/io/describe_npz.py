"""What an NPZ file holds, from the headers of its arrays."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ppocli.core.inspect_report import InspectedFile, ReadPlan, StoredColumn
from ppocli.core.roles import MAIN_ROLES
from ppocli.io import convert, npz
from ppocli.io.describe import attempt, by_column, clear_roles, found_by, token_bytes, type_notes
from ppocli.io.members import Member, by_name, stands_in_order
from ppocli.io.places import place_of
from ppocli.io.reorder import IN_MEMORY

if TYPE_CHECKING:
    from ppocli.core.chunk import ReadOptions
    from ppocli.io.describe import RolesRead
    from ppocli.io.npz import Arrays

_STORAGE = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}


def describe_npz(path: str, options: ReadOptions, roles_read: RolesRead, chunk_tokens: int) -> InspectedFile:
    """Describe an NPZ file; see `describe`."""
    members = npz.open_archive(path)
    named = {one.name: one for one in members}
    if len(named) == len(members):
        clear = clear_roles(path, {name: str(one) for name, one in named.items()}, options)
    else:
        clear = {}
    for role, name in clear.items():
        if named[name].problem not in (None, "object"):
            raise npz.unreadable(path, role, named[name])
    arrays, problem = attempt(lambda required: npz.place(path, by_name(members, path), options, required))
    placed = arrays if arrays and arrays.members else None
    if placed:
        clear = {role: one.name for role, one in placed.members.items()}
    taken, notes = by_column(clear)
    return InspectedFile(
        path=path,
        format="npz",
        bytes=place_of(path).size,
        rows=placed.plan.n_rows if placed else None,
        parts=len(members),
        layout=placed.plan.layout if placed else None,
        columns=tuple(_column(one, taken.get(one.name), options) for one in members),
        missing=tuple(role for role in MAIN_ROLES if role not in clear),
        problem=problem.message if problem else None,
        advice=(problem.hint or "") if problem else "",
        plan=_plan(placed, roles_read, chunk_tokens) if placed else None,
        notes=(*_notes(members, arrays, taken, options), *notes),
    )


def _column(member: Member, role: str | None, options: ReadOptions) -> StoredColumn:
    """Return an array's entry in the report; of an unreadable header only the sizes are known."""
    readable = member.problem in (None, "object")
    storage = _STORAGE.get(member.info.compress_type, f"method {member.info.compress_type}")
    return StoredColumn(
        name=member.name,
        type=member.stored_type if readable else "unreadable",
        compression=storage,
        bytes=member.info.compress_size,
        values=member.size if readable else None,
        role=role,
        found_by=found_by(role, member.name, options) if role else None,
        shape=member.shape if readable else None,
        order=("F" if member.fortran else "C") if readable else None,
        mappable=member.problem is None and storage == "stored",
    )


def _notes(
    members: Collection[Member], arrays: Arrays | None, taken: Mapping[str, str], options: ReadOptions
) -> Iterator[str]:
    """Yield what there is to say about the arrays."""
    if arrays:
        yield from arrays.notes
    seen: set[str] = set()
    for one in members:
        role = taken.get(one.name)
        if one.name in seen:
            yield f"the archive holds several arrays named '{one.name}'"
        seen.add(one.name)
        if one.problem == "object":
            yield f"array '{one.name}' holds Python objects, which only pickle could read: never read"
        elif one.problem is not None:
            yield f"array '{one.name}' cannot be read: {one.problem}"
        elif role is None and one.dtype_name == convert.BFLOAT16:
            yield f"array '{one.name}' holds raw 2-byte values (V2): bfloat16 if it plays a role"
        else:
            yield from type_notes(one.name, one.dtype_name, role, options)


def _plan(arrays: Arrays, roles_read: RolesRead, chunk_tokens: int) -> ReadPlan:
    """Return how the file would be read."""
    plan = arrays.plan
    wanted = roles_read(plan.placements)
    read = {role: arrays.members[role] for role in plan.placements if role in wanted}
    if plan.row_tokens is None:
        per_row, rows = 1, convert.flat_rows(chunk_tokens)
    else:
        per_row = plan.row_tokens
        rows = max(1, chunk_tokens // max(1, per_row))
    rows = min(rows, plan.n_rows)
    width = sum(token_bytes(role, arrays.dtypes[role]) * plan.placements[role].dims for role in read)
    return ReadPlan(
        columns=tuple(dict.fromkeys(one.name for one in read.values())),
        bytes=sum(one.info.compress_size for one in read.values()),
        n_batches=math.ceil(plan.n_rows / rows) if rows else 0,
        batch_rows=(rows, rows),
        batch_tokens=chunk_tokens,
        batch_bytes=rows * per_row * width,
        temporary=sum(
            _spooled(one, plan.placements[role].axes(len(one.shape))) for role, one in read.items()
        ),
    )


def _spooled(member: Member, axes: tuple[int, ...] | None) -> int:
    """Return the bytes of the temporary file that an array needs."""
    n_bytes = member.size * member.dtype.itemsize
    return 0 if n_bytes <= IN_MEMORY or stands_in_order(member, axes) else n_bytes
