"""Columns of an Arrow schema by name; dotted names lead into structures."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ppocli.errors import InputError
from ppocli.io import lists


def array_of(batch: Any, column: str) -> Any:
    """Return a column of a record batch; a dotted name leads into structures and heeds their nulls."""
    index, rest = _step(batch.schema.names, column)
    array = batch.column(index)
    while rest:
        index, rest = _step([field.name for field in array.type], rest)
        array = array.flatten()[index]
    return lists.bare(array)


def type_of(schema: Any, column: str) -> Any:
    """Return a column's Arrow type; a dotted name leads into structures."""
    index, rest = _step(schema.names, column)
    kind = schema.field(index).type
    while rest:
        index, rest = _step([field.name for field in kind], rest)
        kind = kind.field(index).type
    return kind


def check_names(fields: Any, path: str) -> None:
    """Refuse columns, and fields of structures, whose names are not UTF-8.

    Raises
    ------
    InputError
    """
    for index in range(len(fields) if isinstance(fields, pa.Schema) else fields.num_fields):
        try:
            one = fields.field(index)
            one.name.encode()
        except UnicodeError:
            raise InputError(f"the name of column {index} is not UTF-8", where=path) from None
        check_names(one.type, path)


def top_level(schema: Any, column: str) -> int:
    """Return the index of the field that is a column, or that a dotted name leads into."""
    return _step(schema.names, column)[0]


def _step(names: list[str], dotted: str) -> tuple[int, str]:
    """Return the index of the name that `dotted` begins with, and what is left of it."""
    if dotted in names:
        return names.index(dotted), ""
    head = next(name for name in names if dotted.startswith(f"{name}."))
    return names.index(head), dotted[len(head) + 1 :]


def offered(schema: Any, path: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the columns with their types, and the fields of structures by dotted name.

    Raises
    ------
    InputError
        Two columns of one name.
    """
    columns: dict[str, str] = {}
    inside: dict[str, str] = {}
    for field in schema:
        if field.name in columns:
            raise InputError(f"duplicate column '{field.name}'", where=path, hint="write each column once")
        columns[field.name] = lists.describe(field.type)
        if pa.types.is_struct(field.type):
            inside.update(_inside(field.type, field.name))
    structures = [
        field.name for field in schema if pa.types.is_nested(field.type) and not _is_plain(field.type)
    ]
    inside.update({name: columns.pop(name) for name in structures})
    return columns, {name: text for name, text in inside.items() if name not in columns}


def _is_plain(kind: Any) -> bool:
    """Return whether a type is a list of any depth over plain values, without structures or maps."""
    kind = lists.plain(kind)
    while lists.is_list(kind):
        kind = lists.plain(kind.value_type)
    return not pa.types.is_nested(kind)


def _inside(kind: Any, prefix: str) -> dict[str, str]:
    """Return the fields of a structure by dotted name, those of nested structures too."""
    out: dict[str, str] = {}
    for field in kind:
        name = f"{prefix}.{field.name}"
        if pa.types.is_struct(field.type):
            out.update(_inside(field.type, name))
        else:
            out[name] = lists.describe(field.type)
    return out
