"""What is said when a role has no column: what there is, what it could be, and the line to type."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ppocli.core import shell
from ppocli.core.roles import AMBIGUOUS, NEGATED, PROBABILITIES, ROLES
from ppocli.errors import InputError, one_line

if TYPE_CHECKING:
    from ppocli.io.columns import Search


def quoted(names: Iterable[str]) -> str:
    """Return the names in quotes, separated by commas."""
    return ", ".join(f"'{one_line(name)}'" for name in names)


def col(role: str, name: str) -> str:
    """Return the option that gives `role` the column `name`, ready for a shell."""
    return f"--col {shell.quote(f'{role}={name}')}"


def meanings(name: str) -> str:
    """Say what a name of several meanings can be."""
    *first, last = AMBIGUOUS[name.lower()]
    return f"it can mean {', '.join(first)} or {last}"


def missing_columns(
    search: Search, missing: list[str], free: list[str], required: Collection[str]
) -> InputError:
    """Build the error for required roles without a column."""
    fitting = [name for name in search.open_names if set(AMBIGUOUS[name.lower()]) & set(missing)]
    if fitting:
        return unclear(search, missing, fitting)
    for role in missing:
        if role in search.problems:
            return search.problems[role]
    stored = [role for role in ("log_probs", "old_log_probs", "rollout_log_probs") if role in search.taken]
    if stored in (["old_log_probs", "rollout_log_probs"], ["log_probs", "rollout_log_probs"]):
        compared = all(ROLES[role].kind == "log_prob" for role in required)
        return _one_policy_short(search, stored[0], missing, compared=compared)
    names = quoted(missing)
    return InputError(
        f"no column for role{'s' if len(missing) > 1 else ''} {names}",
        where=search.where(),
        hint="\n".join([*_near(search, missing, free), *_never_taken(search, missing), *_records(search)]),
    )


def _near(search: Search, missing: list[str], free: list[str]) -> list[str]:
    """Return hint lines: the option for each missing role, with the nearest unused column if there is one."""
    unused = {name.lower(): name for name in free if name not in search.taken.values()}
    lines = []
    options = []
    for role in missing:
        known = (role, *ROLES[role].aliases)
        near = [hit for one in known for hit in difflib.get_close_matches(one, unused, n=1, cutoff=0.8)]
        options.append(col(role, unused[near[0]] if near else "NAME"))
        if near:
            lines.append(f"did you mean {quoted([unused[near[0]]])} for {role}?")
    return [*lines, f"name the column{'s' if len(missing) > 1 else ''}:  {' '.join(options)}"]


def _records(search: Search) -> list[str]:
    """Return a hint line about columns that hold lists of records, one per token."""
    names = [name for name, text in search.inside.items() if text.startswith("list<struct<")]
    which = f"{quoted(names)} {'holds' if len(names) == 1 else 'hold'}"
    return [f"{which} lists of records, which are not read: write a list for each field"] if names else []


def _never_taken(search: Search, missing: list[str]) -> list[str]:
    """Return hint lines about columns that hold something else than log-probs by their names."""
    roles = [role for role in missing if ROLES[role].kind == "log_prob"]
    if not roles:
        return []
    role, lines = roles[-1], []
    for name in search.columns:
        if name.lower() in NEGATED:
            lines.append(f"'{name}' is a name for minus the log-prob: {col(role, name)} --neglogp {role}")
        elif name.lower() in PROBABILITIES:
            lines.append(f"'{name}' is a name for a probability: {col(role, name)} --probs {role}")
    return lines


def unclear(search: Search, missing: list[str], names: list[str]) -> InputError:
    """Build the error for names of several meanings without a clear old column."""
    found = [f"{role} ('{name}')" for role, name in search.taken.items() if ROLES[role].kind == "log_prob"]
    beside = f"; beside {', '.join(found)}" if found else ""
    one = names[0]
    lines = [
        f"{col(role, name)}  ({ROLES[role].text})"
        for name in names
        for role in AMBIGUOUS[name.lower()]
        if role not in search.taken
    ]
    if "log_probs" in AMBIGUOUS[one.lower()] and "rollout_log_probs" in search.taken:
        sampler = search.taken["rollout_log_probs"]
        lines.append(f"{col('log_probs', one)} {col('old_log_probs', sampler)}  (ratio against the sampler)")
    rest = [role for role in missing if role not in {r for n in names for r in AMBIGUOUS[n.lower()]}]
    lines += [f"{col(role, 'NAME')}  (no column for {role} either)" for role in rest]
    means = ", ".join(f"column '{name}' is ambiguous, {meanings(name)}" for name in names)
    return InputError(
        f"{means}, and there is no clear column for {' and '.join(missing)}{beside}",
        where=search.where(),
        hint="\n".join(["say what they are:", *lines, *_never_taken(search, missing)]),
    )


def _one_policy_short(search: Search, stored: str, missing: list[str], *, compared: bool) -> InputError:
    """Build the error for an input that has the sampler's log-probs and those of one other policy only."""
    found = [f"{role} ('{name}')" for role, name in search.taken.items()]
    other, rollout = search.taken[stored], search.taken["rollout_log_probs"]
    policies = {
        "old_log_probs": "the loss needs the current policy's log-probs (role 'log_probs')",
        "log_probs": "the ratio needs a policy to be taken against (role 'old_log_probs')",
    }
    # Names that only a framework's own list made clear are ambiguous to a command without --like.
    open_names = {role: search.taken[role] for role in (stored, "rollout_log_probs")}
    open_names = {
        role: name for role, name in open_names.items() if name.lower() in AMBIGUOUS and name != role
    }
    given = "".join(f" {col(role, name)}" for role, name in {**open_names, **search.chosen}.items())
    sides = "" if stored == "old_log_probs" else " --a log_probs --b rollout_log_probs"
    named = {**search.chosen, "log_probs": other, "old_log_probs": rollout}
    pair = " ".join(col(role, name) for role, name in named.items() if role != "rollout_log_probs")
    rest = [role for role in missing if role not in ("log_probs", "old_log_probs")]
    lines = [f"ppocli drift {shell.quote(search.path)}{given}{sides}  (compares the two policies)"]
    if not rest and not compared:
        against = "ratio of the two, against the sampler"
        lines.append(f"ppocli eval {shell.quote(search.path)} {pair}  ({against})")
    named_here = " ".join(col(role, "NAME") for role in missing)
    lines.append(f"{named_here}  (names the missing column{'s' if rest else ''})")
    if compared:
        return InputError(
            f"no column for role {quoted(missing)}; found are {', '.join(found)}",
            where=search.where(),
            hint="\n".join(lines),
        )
    return InputError(
        f"{policies[stored]}, and no column is that; found are {', '.join(found)}"
        + (f"; no {' and '.join(rest)} either" if rest else ""),
        where=search.where(),
        hint="\n".join(lines),
    )
