"""Which column plays which role. Names only: nothing here reads a file."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ppocli.core.roles import AMBIGUOUS, NEGATED, PROBABILITIES, ROLES, Role
from ppocli.errors import InputError, UsageProblem

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


@dataclass(slots=True)
class _Search:
    """What is known while the columns of one input are looked through."""

    path: str
    columns: Mapping[str, str]
    taken: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: dict[str, InputError] = field(default_factory=dict)
    open_names: list[str] = field(default_factory=list)

    def where(self) -> str:
        """Return the path and, below it, what the input holds."""
        return f"{self.path}\ncolumns: {listing(self.columns)}"


def resolve(
    path: str,
    columns: Mapping[str, str],
    chosen: Mapping[str, str],
    required: Collection[str],
    *,
    named_only: Mapping[str, str] | None = None,
) -> Resolution:
    """Find the column of each role.

    What `chosen` says wins; then the role's own name; then its aliases, compared without case. A name that
    frameworks use for different roles (`AMBIGUOUS`) is the current policy's, or the sampler's, only beside a
    clear `old_log_probs`.

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

    Raises
    ------
    UsageProblem
        `chosen` has a role that does not exist.
    InputError
        A column that `chosen` names, or a required role, is missing; or two columns fit one role.
    """
    check_roles(chosen)
    search = _Search(path, columns)
    for role, name in chosen.items():
        if name not in columns and name not in (named_only or {}):
            raise _no_such_column(search, role, name)
        search.taken[role] = name
    free = [name for name in columns if name not in chosen.values()]
    _take_clear(search, free, skip=chosen)
    _take_ambiguous(search, free, skip=chosen)
    missing = [role for role in required if role not in search.taken]
    if missing:
        raise _missing(search, missing, free)
    for problem in search.problems.values():
        if required:
            raise problem
        search.notes.append(problem.message)
    ordered = {role: search.taken[role] for role in ROLES if role in search.taken}
    inferred = [
        f"{role}: column '{name}'" for role, name in ordered.items() if name != role and role not in chosen
    ]
    return Resolution(ordered, (*inferred, *search.notes))


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


def _take_clear(search: _Search, free: list[str], skip: Collection[str]) -> None:
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
            search.notes.append(f"token_id: not taken, {_quoted(fitting)} all fit")
        elif fitting:
            search.problems[role.name] = _too_many(search, role.name, fitting)


def _is_alias(role: Role, name: str) -> bool:
    """Return whether `name` means `role` and nothing else."""
    lower = name.lower()
    return lower not in AMBIGUOUS and (lower in role.aliases or lower == role.name)


def _take_ambiguous(search: _Search, free: list[str], skip: Collection[str]) -> None:
    """Take names of several meanings where the old column is clear; remember the others."""
    names = [name for name in free if name.lower() in AMBIGUOUS]
    if "old_log_probs" not in search.taken:
        search.open_names = names
        search.notes += [f"column '{name}' not used: {_meanings(name)}" for name in names]
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
        search.notes += [f"column '{name}' not used: {_meanings(name)}" for name in unused]


def _meaning_beside_old(name: str) -> str:
    """Return the role of a name of several meanings when the old column is another one."""
    return "log_probs" if "log_probs" in AMBIGUOUS[name.lower()] else "rollout_log_probs"


def _meanings(name: str) -> str:
    """Say what a name of several meanings can be."""
    *first, last = AMBIGUOUS[name.lower()]
    return f"it can mean {', '.join(first)} or {last}"


def _quoted(names: Iterable[str]) -> str:
    """Return the names in quotes, separated by commas."""
    return ", ".join(f"'{name}'" for name in names)


def _col(role: str, name: str) -> str:
    """Return the option that gives `role` the column `name`, ready for a shell."""
    return f"--col {shlex.quote(f'{role}={name}')}"


def _too_many(search: _Search, role: str, names: list[str]) -> InputError:
    """Build the error for several columns that fit one role."""
    lines = "\n".join(_col(role, name) for name in names)
    return InputError(
        f"columns {_quoted(names)} all fit the role '{role}'",
        where=search.where(),
        hint=f"say which one it is:\n{lines}",
    )


def _no_such_column(search: _Search, role: str, name: str) -> InputError:
    """Build the error for a column that `--col` names and the input does not have."""
    near = difflib.get_close_matches(name, search.columns, n=1)
    hint = f"did you mean '{near[0]}'?  {_col(role, near[0])}" if near else None
    return InputError(f"column '{name}' for role '{role}' not found", where=search.where(), hint=hint)


def _missing(search: _Search, missing: list[str], free: list[str]) -> InputError:
    """Build the error for required roles without a column."""
    fitting = [name for name in search.open_names if set(AMBIGUOUS[name.lower()]) & set(missing)]
    if fitting:
        return _unclear(search, missing, fitting)
    for role in missing:
        if role in search.problems:
            return search.problems[role]
    if missing[0] == "log_probs" and {"old_log_probs", "rollout_log_probs"} <= set(search.taken):
        return _no_current_policy(search)
    names = _quoted(missing)
    return InputError(
        f"no column for role{'s' if len(missing) > 1 else ''} {names}",
        where=search.where(),
        hint="\n".join([*_near(search, missing, free), *_never_taken(search, missing)]),
    )


def _near(search: _Search, missing: list[str], free: list[str]) -> list[str]:
    """Return hint lines: the option for each missing role, with the nearest unused column if there is one."""
    unused = {name.lower(): name for name in free if name not in search.taken.values()}
    lines = []
    options = []
    for role in missing:
        known = (role, *ROLES[role].aliases)
        near = [hit for one in known for hit in difflib.get_close_matches(one, unused, n=1, cutoff=0.8)]
        options.append(_col(role, unused[near[0]] if near else "NAME"))
        if near:
            lines.append(f"did you mean '{unused[near[0]]}' for {role}?")
    return [*lines, f"name the column{'s' if len(missing) > 1 else ''}:  {' '.join(options)}"]


def _never_taken(search: _Search, missing: list[str]) -> list[str]:
    """Return hint lines about columns that hold something else than log-probs by their names."""
    roles = [role for role in missing if ROLES[role].kind == "log_prob"]
    if not roles:
        return []
    role, lines = roles[-1], []
    for name in search.columns:
        if name.lower() in NEGATED:
            lines.append(f"'{name}' is a name for minus the log-prob: {_col(role, name)} --neglogp {role}")
        elif name.lower() in PROBABILITIES:
            lines.append(f"'{name}' is a name for a probability: {_col(role, name)} --probs {role}")
    return lines


def _unclear(search: _Search, missing: list[str], names: list[str]) -> InputError:
    """Build the error for names of several meanings without a clear old column."""
    found = [f"{role} ('{name}')" for role, name in search.taken.items() if ROLES[role].kind == "log_prob"]
    beside = f"; beside {', '.join(found)}" if found else ""
    one = names[0]
    lines = [
        f"{_col(role, name)}  ({ROLES[role].text})"
        for name in names
        for role in AMBIGUOUS[name.lower()]
        if role not in search.taken
    ]
    if "log_probs" in AMBIGUOUS[one.lower()] and "rollout_log_probs" in search.taken:
        sampler = search.taken["rollout_log_probs"]
        lines.append(
            f"{_col('log_probs', one)} {_col('old_log_probs', sampler)}  (ratio against the sampler)"
        )
    rest = [role for role in missing if role not in {r for n in names for r in AMBIGUOUS[n.lower()]}]
    lines += [f"{_col(role, 'NAME')}  (no column for {role} either)" for role in rest]
    means = ", ".join(f"column '{name}' is ambiguous, {_meanings(name)}" for name in names)
    return InputError(
        f"{means}, and there is no clear column for {' and '.join(missing)}{beside}",
        where=search.where(),
        hint="\n".join(["say what they are:", *lines, *_never_taken(search, missing)]),
    )


def _no_current_policy(search: _Search) -> InputError:
    """Build the error for an input that has the old and the sampler's log-probs only."""
    old, rollout = search.taken["old_log_probs"], search.taken["rollout_log_probs"]
    return InputError(
        f"no column for role 'log_probs': the loss needs the current policy's log-probs, and the input has "
        f"old_log_probs ('{old}') and rollout_log_probs ('{rollout}')",
        where=search.where(),
        hint=f"ppocli drift {shlex.quote(search.path)}  (compares the two)\n"
        f"--col log_probs=NAME  (names the current policy's column)\n"
        f"{_col('log_probs', old)} {_col('old_log_probs', rollout)}  (ratio of the two against the sampler)",
    )
