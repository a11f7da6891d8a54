"""What a Parquet schema offers: the column of each role, its nesting and its element type."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppocli.core.roles import MAIN_ROLES, ROLES
from ppocli.errors import InputError
from ppocli.io import convert, lists
from ppocli.io.columns import chosen_columns, resolve
from ppocli.io.dialects import dialect_notes, sample_mask_of, skips_first
from ppocli.io.shapes import SUM_NOT_USED, layout_not_used
from ppocli.io.structures import offered, type_of

if TYPE_CHECKING:
    from ppocli.core.chunk import ReadOptions


KEY = b"ppocli"
"""Under this key the schema's metadata of a file that ppocli wrote say where its columns come from."""

SAMPLE_MASK = "sample_mask"
"""Stands for the second mask where columns go by role."""


@dataclass(frozen=True, slots=True)
class Field:
    """The column of one role.

    Attributes
    ----------
    column : str
        Its name, dotted below structures.
    depth : int
        How many lists deep its values lie, without the lists that are summed.
    dtype : str
        Element type by which it is read.
    summed : bool
        The innermost lists are action dimensions, to be summed.
    """

    column: str
    depth: int
    dtype: str
    summed: bool = False

    def __str__(self) -> str:
        return "list<" * self.depth + self.dtype + ">" * self.depth


@dataclass(frozen=True, slots=True)
class Fields:
    """The columns of one file.

    Attributes
    ----------
    by_role : mapping of role to Field
    depth : int
        How many lists deep the tokens lie.
    notes : tuple of str
    sample_mask : Field, optional
        A second mask, one value per sequence: a token counts where both are 1.
    skip_first : bool
        The first token of every row does not count.
    absent : tuple of str
        Columns that would play a role if they held more than nulls.
    """

    by_role: Mapping[str, Field]
    depth: int
    notes: tuple[str, ...]
    sample_mask: Field | None = None
    skip_first: bool = False
    absent: tuple[str, ...] = ()

    @property
    def layout(self) -> str:
        """The layout's name in reports."""
        ids = self.by_role.get("sequence_id")
        if ids and ids.depth and self.depth:
            return "packed"
        return ("flat", "list", "list<list>")[self.depth]

    def to_read(self, roles: Collection[str]) -> dict[str, Field]:
        """Return the columns to read for some roles: theirs, and one for rows' lengths if none has them."""
        wanted = {role: field for role, field in self.by_role.items() if role in roles}
        full = [
            role
            for role, field in self.by_role.items()
            if field.depth == self.depth and (ROLES[role].kind != "id" or role not in wanted)
        ]
        if self.depth and full and not set(full) & set(wanted):
            wanted[full[0]] = self.by_role[full[0]]
        if "mask" in wanted and self.sample_mask is not None:
            wanted[SAMPLE_MASK] = self.sample_mask
        return wanted


def find_fields(
    schema: Any,
    path: str,
    options: ReadOptions,
    required: Collection[str],
    *,
    whole_numbers: bool = False,
) -> Fields:
    """Resolve the roles of an Arrow schema and check types and nesting.

    Parameters
    ----------
    schema : Schema
    path : str
        For messages.
    options : ReadOptions
    required : collection of str
        See `columns.resolve`.
    whole_numbers : bool
        Integers of a column of reals are float64 numbers that happen to be whole, as in JSON.

    Raises
    ------
    InputError
        See `ParquetReader`.
    """
    columns, inside = offered(schema, path)
    chosen = chosen_columns([*columns, *inside], options)
    by_role = KEY in (schema.metadata or {})
    found = resolve(
        path,
        columns,
        chosen,
        required,
        named_only=inside,
        aliases=options.aliases,
        settled=options.settled,
        by_role=by_role,
    )
    if "mask" in inside and "mask" not in found.columns:
        raise InputError(  # without it every token would count
            f"column 'mask' is {inside['mask']}, a structure",
            where=path,
            hint="say which field it is: --col mask=mask.FIELD, or rename the column if it is none",
        )
    notes = [*found.notes, *convert.form_notes(found.columns, options)]
    odd = [role for role in ROLES if role in inside and role not in found.columns]
    notes += [f"{role}: not read, column '{role}' is {inside[role]}" for role in odd]
    taken = dict(found.columns)
    sample_mask = sample_mask_of(columns, taken, notes)
    fields: dict[str, Field] = {}
    absent = []
    for role, column in taken.items():
        if _is_absent(schema, role, column, options, required):
            notes.append(f"{role}: column '{column}' holds only nulls (type null), counted as absent")
            absent.append(column)
            continue
        try:
            fields[role] = _field(schema, role, column, path, options, notes, whole_numbers)
        except InputError as problem:
            if role != "token_id" or role in options.columns:
                raise
            notes.append(f"token_id: not read, {problem.message}")
    depth = _token_depth(fields, path)
    token_id = fields.get("token_id")
    if token_id is not None and token_id.depth != depth:
        notes.append(f"token_id: not read, column '{token_id.column}' is {token_id}")
        del fields["token_id"]
    for role, field in fields.items():
        if field.depth < depth and ROLES[role].kind != "id":
            per = "row" if field.depth == 0 else "inner list"
            notes.append(f"{role}: one value per {per}, repeated over its tokens")
    if options.layout in ("time", "env"):
        notes.append(layout_not_used(options.layout))
    if options.sum_dims and not any(field.summed for field in fields.values()):
        notes.append(SUM_NOT_USED)
    second = None
    if sample_mask is not None and _is_absent(schema, "mask", sample_mask, options, required):
        absent.append(sample_mask)
    elif sample_mask is not None:
        second = _field(schema, "mask", sample_mask, path, options, [], whole_numbers)
        _token_depth({**fields, "mask": second}, path)
        if "mask" not in fields:  # its column holds only nulls
            fields["mask"], second = second, None
    skip_first = bool(depth) and "mask" in fields and skips_first(columns)
    if skip_first:
        notes.append("position 0 of every row counts as masked, as in NeMo-RL's loss")
    notes += dialect_notes(columns, fields)
    return Fields(fields, depth, tuple(notes), second, skip_first, tuple(absent))


def _is_absent(schema: Any, role: str, column: str, options: ReadOptions, required: Collection[str]) -> bool:
    """Return whether a column without a value counts as none: a mask, or numbers that nothing asks for."""
    if lists.depth_and_leaf(type_of(schema, column))[1] != "null":
        return False
    asked = role in MAIN_ROLES or role in required or role in options.columns
    return role == "mask" or (ROLES[role].kind in ("log_prob", "real") and not asked)


def _field(
    schema: Any,
    role: str,
    column: str,
    path: str,
    options: ReadOptions,
    notes: list[str],
    whole_numbers: bool,
) -> Field:
    """Check the type of a role's column."""
    kind = type_of(schema, column)
    depth, leaf = lists.depth_and_leaf(kind)
    if whole_numbers and leaf == "int64" and ROLES[role].kind in ("log_prob", "real"):
        leaf = "float64"
    dtype = convert.read_as(role, column, leaf, options.bits, path)
    if dtype != leaf:
        notes.append(f"{role}: {leaf} read as the bits of {dtype} values")
    summed = options.sum_dims and depth > 0 and ROLES[role].kind == "log_prob"
    if summed:
        notes.append(f"{role}: summed over the innermost lists (action dimensions)")
    if depth - summed > 2:
        raise InputError(
            f"column '{column}' ({role}) is {lists.describe(kind)}: lists nest too deep",
            where=path,
            hint="at most list<list<...>>: steps, then tokens",
        )
    return Field(column, depth - summed, dtype, summed)


def _token_depth(fields: Mapping[str, Field], path: str) -> int:
    """Return how deep the tokens lie, and refuse columns that cannot be brought there."""
    values = [field for role, field in fields.items() if ROLES[role].kind != "id"]
    log_probs = [field for role, field in fields.items() if ROLES[role].kind == "log_prob"]
    deepest = max(log_probs or values or list(fields.values()), key=lambda one: one.depth, default=None)
    if deepest is None:
        return 0
    for role, field in fields.items():
        above = ROLES[role].kind == "log_prob" and field.depth < deepest.depth and field.dtype != "null"
        if above or (field.depth > deepest.depth and role != "token_id"):
            raise InputError(
                f"column '{field.column}' ({role}) is {field} and column '{deepest.column}' is {deepest}",
                where=path,
                hint="log-probs are stored one per token; other columns one per token, step or row",
            )
    return deepest.depth
