"""Which column plays which role. Names only: nothing here reads a file."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ppocli.core.roles import AMBIGUOUS, NEGATED, PROBABILITIES, ROLES, Role
from ppocli.errors import InputError, Lines, UsageProblem, one_line
from ppocli.io.missing import col, meanings, missing_columns, quoted, unclear

if TYPE_CHECKING:
    from ppocli.core.chunk import ReadOptions

_LISTED = 40


@dataclass(frozen=True, slots=True)
class Resolution:
    """The columns found.

    Attributes
    ----------
    columns : mapping of role to column name
        In the order of `ROLES`.
    notes : tuple of str
        What was inferred, and which likely names were left alone.
    """

    columns: Mapping[str, str]
    notes: tuple[str, ...]


def chosen_columns(columns: Iterable[str], options: ReadOptions) -> dict[str, str]:
    """Return the columns that options name: by `--col`, and those whose usual names tell what they hold.

    A role given by `--neglogp` or `--probs` takes the one column with a usual name for such values, unless a
    column has the role's own name.
    """
    chosen = dict(options.columns)
    names = {name.lower(): name for name in columns}
    for roles, usual in ((options.neglogp, NEGATED), (options.probs, PROBABILITIES)):
        for role in roles:
            fitting = [names[one] for one in usual if one in names]
            if role not in chosen and role not in names.values() and len(fitting) == 1:
                chosen[role] = fitting[0]
    return chosen


def names_a_role(name: str) -> bool:
    """Return whether a column of this name could play a role."""
    return name.lower() in AMBIGUOUS or any(_is_alias(role, name) for role in ROLES.values())


@dataclass(slots=True)
class Search:
    """What is known while the columns of one input are looked through."""

    path: str
    columns: Mapping[str, str]
    chosen: Mapping[str, str] = field(default_factory=dict)
    inside: Mapping[str, str] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: dict[str, InputError] = field(default_factory=dict)
    open_names: list[str] = field(default_factory=list)

    def where(self) -> Lines:
        """Return the path and, below it, what the input holds."""
        return Lines(f"{one_line(self.path)}\ncolumns: {one_line(listing({**self.columns, **self.inside}))}")


def resolve(
    path: str,
    columns: Mapping[str, str],
    chosen: Mapping[str, str],
    required: Collection[str],
    *,
    named_only: Mapping[str, str] | None = None,
    aliases: Mapping[str, Collection[str]] | None = None,
    settled: bool = False,
    by_role: bool = False,
) -> Resolution:
    """Find the column of each role.

    What `chosen` says wins; then `by_role`; then `aliases`; then the role's own name; then its own aliases,
    without case. A name that frameworks use for different roles (`AMBIGUOUS`) is the current policy's, or
    the sampler's, only beside a clear `old_log_probs`.

    Parameters
    ----------
    path : str
        For messages.
    columns : mapping of column name to its description
        Such as "(200,) float32" or "list<float32>"; listed in messages.
    chosen : mapping of role to column name
        What `--col ROLE=COLUMN` says.
    required : collection of str
        Roles that must be found. Empty: take what is clear, and say in `notes` what is not.
    named_only : mapping of column name to its description, optional
        Columns that are taken only when `chosen` names them (fields of structures).
    aliases : mapping of role to column names, optional
        Names of a framework, compared without case; the first that exists is taken.
    settled : bool
        See `ReadOptions`.
    by_role : bool
        The file says that its columns are named by role: no such name has several meanings.

    Raises
    ------
    UsageProblem
        `chosen` has a role that does not exist.
    InputError
        A column that `chosen` names, or a required role, is missing; or two columns fit one role.
    """
    check_roles(chosen)
    search = Search(path, columns, chosen, named_only or {})
    for role, name in chosen.items():
        if name not in columns and name not in search.inside:
            raise _no_such_column(search, role, name)
        search.taken[role] = name
    if by_role:
        search.taken.update({name: name for name in columns if name in ROLES and name not in chosen})
    _take_aliases(search, aliases or {})
    given = dict(search.taken)
    free = [name for name in columns if name not in given.values()]
    _take_clear(search, free, skip=given)
    _take_ambiguous(search, free, skip=given)
    if settled and search.open_names:
        raise unclear(search, ["old_log_probs"], search.open_names)
    missing = [role for role in required if role not in search.taken]
    if missing:
        raise missing_columns(search, missing, free, required)
    for problem in search.problems.values():
        if required or settled:
            raise problem
        search.notes.append(problem.message)
    ordered = {role: search.taken[role] for role in ROLES if role in search.taken}
    inferred = [
        f"{role}: column '{name}'" for role, name in ordered.items() if name != role and role not in chosen
    ]
    return Resolution(ordered, (*inferred, *search.notes))


def _take_aliases(search: Search, aliases: Mapping[str, Collection[str]]) -> None:
    """Take the columns that go by a framework's own names."""
    for role, names in aliases.items():
        if role in search.taken:
            continue
        fitting = (name for alias in names for name in search.columns if name.lower() == alias.lower())
        name = next((name for name in fitting if name not in search.taken.values()), None)
        if name is not None:
            search.taken[role] = name


def check_roles(names: Iterable[str]) -> None:
    """Raise UsageProblem for the first name that is not a role, with the nearest one."""
    for name in names:
        if name not in ROLES:
            near = difflib.get_close_matches(name, ROLES, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise UsageProblem(f"role '{name}' is not known", hint=f"{hint}one of: {', '.join(ROLES)}")


def listing(columns: Mapping[str, str]) -> str:
    """Return the columns with their descriptions in one line, long lists cut with a count of the rest."""
    shown = [f"{name} {text}".rstrip() for name, text in list(columns.items())[:_LISTED]]
    more = len(columns) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more > 0 else "")


def _take_clear(search: Search, free: list[str], skip: Collection[str]) -> None:
    """Take every role that one column fits by its own name or by an alias that means nothing else."""
    for role in ROLES.values():
        if role.name in skip:
            continue
        if role.name in free and role.name not in AMBIGUOUS:
            search.taken[role.name] = role.name
            continue
        fitting = [name for name in free if _is_alias(role, name)]
        if len(fitting) == 1:
            search.taken[role.name] = fitting[0]
        elif fitting and role.name == "token_id":
            # It locates tokens and changes no number, so it is no reason to refuse the input.
            search.notes.append(f"token_id: not taken, {quoted(fitting)} all fit")
        elif fitting:
            search.problems[role.name] = _too_many(search, role.name, fitting)


def _is_alias(role: Role, name: str) -> bool:
    """Return whether `name` means `role` and nothing else."""
    lower = name.lower()
    return lower not in AMBIGUOUS and (lower in role.aliases or lower == role.name)


def _take_ambiguous(search: Search, free: list[str], skip: Collection[str]) -> None:
    """Take names of several meanings where the old column is clear; remember the others."""
    names = [name for name in free if name.lower() in AMBIGUOUS]
    if "old_log_probs" not in search.taken:
        search.open_names = names
        search.notes += [f"column '{name}' not used: {meanings(name)}" for name in names]
        return
    for role in ("log_probs", "rollout_log_probs"):
        fitting = [name for name in names if _meaning_beside_old(name) == role]
        if role in fitting and role not in skip:
            # The role's own name goes before any alias of it.
            search.taken[role] = role
            search.problems.pop(role, None)
        elif fitting and role not in search.taken and role not in search.problems and role not in skip:
            if len(fitting) == 1:
                search.taken[role] = fitting[0]
            else:
                search.problems[role] = _too_many(search, role, fitting)
        unused = [name for name in fitting if name != search.taken.get(role)]
        search.notes += [f"column '{name}' not used: {meanings(name)}" for name in unused]


def _meaning_beside_old(name: str) -> str:
    """Return the role of a name of several meanings when the old column is another one."""
    return "log_probs" if "log_probs" in AMBIGUOUS[name.lower()] else "rollout_log_probs"


def _too_many(search: Search, role: str, names: list[str]) -> InputError:
    """Build the error for several columns that fit one role."""
    lines = "\n".join(col(role, name) for name in names)
    return InputError(
        f"columns {quoted(names)} all fit the role '{role}'",
        where=search.where(),
        hint=f"say which one it is:\n{lines}",
    )


def _no_such_column(search: Search, role: str, name: str) -> InputError:
    """Build the error for a column that `--col` names and the input does not have."""
    near = difflib.get_close_matches(name, search.columns, n=1)
    hint = f"did you mean {quoted(near)}?  {col(role, near[0])}" if near else None
    return InputError(f"column '{name}' for role '{role}' not found", where=search.where(), hint=hint)
