"""What is in a file, from its footer or headers alone: the part that Parquet and NPZ share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from ppocli.core import shell
from ppocli.core.roles import MAIN_ROLES, ROLES
from ppocli.errors import InputError
from ppocli.io.columns import chosen_columns, resolve
from ppocli.io.detect import format_of

if TYPE_CHECKING:
    from ppocli.core.chunk import ReadOptions
    from ppocli.core.inspect_report import FoundBy, InspectedFile

Found = TypeVar("Found")
RolesRead = Callable[[Collection[str]], Collection[str]]

# Bytes of a value in memory, by the element type as it is read; what is not here becomes float64 or int64.
_WIDTHS = {"float16": 2, "bfloat16": 2, "float32": 4}


def describe(path: str, options: ReadOptions, roles_read: RolesRead, chunk_tokens: int) -> InspectedFile:
    """Describe a file without reading its data.

    Parameters
    ----------
    path : str
    options : ReadOptions
    roles_read : callable
        Given the roles that a file has, returns those that `eval` would read; for the read plan.
    chunk_tokens : int
        Tokens that it would read at a time.

    Returns
    -------
    InspectedFile
        `problem` and `advice` say why `eval` would refuse the file, if it would. `plan.memory` is 0.

    Raises
    ------
    InputError
        Missing, unreadable, damaged, or of another format: what keeps `eval` from looking at the columns.
    """
    kind = format_of(path)
    if kind == "parquet":
        from ppocli.io.describe_parquet import describe_parquet

        return describe_parquet(path, options, roles_read, chunk_tokens)
    if kind == "npz":
        from ppocli.io.describe_npz import describe_npz

        return describe_npz(path, options, roles_read, chunk_tokens)
    from ppocli.io import describe_tables

    one = {
        "arrow": describe_tables.describe_arrow,
        "jsonl": describe_tables.describe_jsonl,
        "npy": describe_tables.describe_npy,
    }[kind]
    return one(path, options, roles_read, chunk_tokens)


def attempt(find: Callable[[Collection[str]], Found]) -> tuple[Found | None, InputError | None]:
    """Find the roles as `eval` would; where it would refuse, what is clear without the missing ones."""
    problem: InputError | None = None
    for required in (MAIN_ROLES, ()):
        try:
            return find(required), problem
        except InputError as failure:
            problem = problem or failure
    return None, problem


def clear_roles(path: str, columns: Mapping[str, str], options: ReadOptions) -> dict[str, str]:
    """Return the column of each role as far as names tell, whatever the types."""
    try:
        chosen = chosen_columns(columns, options)
        return dict(resolve(path, columns, chosen, (), aliases=options.aliases).columns)
    except InputError:
        return {}


def by_column(roles: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the role of each column, the first where `--col` gives it several, and a note that says so."""
    taken: dict[str, str] = {}
    notes = []
    for role, column in roles.items():
        if taken.setdefault(column, role) != role:
            notes.append(f"column '{column}' plays {role}, too")
    return taken, notes


def found_by(role: str, column: str, options: ReadOptions) -> FoundBy:
    """Say what made a column play its role."""
    if role in options.columns:
        return "option"
    return "name" if column == role else "alias"


def token_bytes(role: str, dtype: str) -> int:
    """Return how many bytes of memory a token takes in a role's column."""
    return 1 if role == "mask" else _WIDTHS.get(dtype, 8)


def type_notes(name: str, dtype: str, role: str | None, options: ReadOptions) -> list[str]:
    """Return what there is to say about a column's element type."""
    if dtype == "null":
        return [f"column '{name}' has type null: every value is missing"]
    # Of log-probs the refusal says it.
    if dtype == "uint16" and role not in options.bits and (role is None or ROLES[role].kind == "real"):
        words = f"--bits {role}" if role else f"--col {shell.quote(f'ROLE={name}')} --bits ROLE"
        return [f"column '{name}' is uint16: if these are the bits of bfloat16 values, say so: {words}"]
    return []


def column_names(path: str, options: ReadOptions, *, recover: bool) -> list[str]:
    """Return the names of all columns of a file, whether they play a role or not."""
    kind = format_of(path)
    if kind == "arrow":
        from ppocli.io.arrow import ArrowSource

        return list(ArrowSource(path, recover=recover).schema.names)
    if kind == "jsonl":
        from ppocli.io.jsonl import first_records

        return list(first_records(path, recover=recover).shapes)
    return [one.name for one in describe(path, options, lambda roles: roles, 1 << 20).columns]
