"""Settings from a file and from the environment: where they are found, and what may stand there.

A flag wins over the environment, the environment over the file, the file over the default. The file is the
nearest `ppocli.toml`, or `pyproject.toml` with a table `[tool.ppocli]`, from the working directory upwards to
the root of the repository. Keys at the top are options of any command without their dashes; a table named
after a command (`[tool.ppocli.check]`) holds options of that command and wins over the top;
`[tool.ppocli.columns]` maps roles to columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from ppocli.errors import InputError, UsageProblem

OWN, PROJECT = "ppocli.toml", "pyproject.toml"
TABLE = ("tool", "ppocli")
COLUMNS = "columns"

Kind = Literal["flag", "number", "whole", "text", "words", "file", "limits", "columns"]
"""What an option takes. "limits": a table of metrics; "columns": the table of that name, not a key."""
Kinds = Mapping[str, Kind]

_MENTIONS_TABLE = re.compile(r"""tool["'\s]*\.["'\s]*ppocli|^\s*\[\s*["']?tool["']?\s*\]""", re.MULTILINE)
_STATEMENT = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'))*)\s*""")  # fmt: skip  # noqa: E501
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'""")
_TYPES: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text",
                           list: "a list", dict: "a table"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file with settings.

    Attributes
    ----------
    path : path
    values : mapping
        What stands in the file, or in its table `[tool.ppocli]`.
    prefix : tuple of str
        Where in the file `values` stands.
    lines : mapping of keys to int
        The line of each key, from 1, by the keys that lead to it.
    """

    path: Path
    values: Mapping[str, Any]
    prefix: tuple[str, ...]
    lines: Mapping[tuple[str, ...], int]

    def where(self, *keys: str) -> str:
        """Return `FILE:LINE` of a key, or of the table around it."""
        full = (*self.prefix, *keys)
        for end in range(len(full), 0, -1):
            if full[:end] in self.lines:
                return f"{self.shown}:{self.lines[full[:end]]}"
        return self.shown

    @property
    def shown(self) -> str:
        """The path as it is shown: relative where it lies below the working directory."""
        try:
            return str(self.path.relative_to(Path.cwd()))
        except ValueError:
            return str(self.path)

    def label(self, *keys: str) -> str:
        """Return `[tool.ppocli.check] max`, or `clip-eps` at the top of a file of ppocli's own."""
        table = ".".join((*self.prefix, *keys[:-1]))
        return f"[{table}] {keys[-1]}" if table else keys[-1]

    def problem(self, keys: tuple[str, ...], said: str, hint: str | None = None) -> UsageProblem:
        """Return the failure of a key: names it, its file and its line."""
        return UsageProblem(f"{self.label(*keys)}: {said}", where=self.where(*keys), hint=hint)


def find(start: Path) -> ConfigFile | None:
    """Return the nearest file with settings for ppocli, from `start` upwards to the root of the repository.

    Raises
    ------
    UsageProblem
        A file that is not TOML.
    """
    for folder in (start, *start.parents):
        if (folder / OWN).is_file():
            return read(folder / OWN)
        project = folder / PROJECT
        if project.is_file() and _MENTIONS_TABLE.search(_text(project)):
            file = read(project, optional=True)
            if file is not None:
                return file
        if (folder / ".git").exists():
            return None
    return None


def read(path: Path, *, optional: bool = False) -> ConfigFile | None:
    """Read a file with settings.

    Parameters
    ----------
    path : path
        A `pyproject.toml` has them in its table `[tool.ppocli]`, any other file at the top.
    optional : bool
        Return None where a `pyproject.toml` has no such table.

    Raises
    ------
    InputError
        It cannot be read.
    UsageProblem
        It is not TOML, or it lacks the table.
    """
    import tomllib

    text = _text(path)
    try:
        values: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise UsageProblem(f"not a TOML file: {problem}", where=str(path)) from problem
    prefix = TABLE if path.name == PROJECT else ()
    for key in prefix:
        values = values.get(key) if isinstance(values, dict) else None
    if values is None and optional:
        return None
    file = ConfigFile(path, {}, prefix, dict(_lines(text)))
    if not isinstance(values, dict):
        raise UsageProblem(f"there is no table [{'.'.join(prefix)}]", where=file.shown)
    return ConfigFile(path, values, prefix, file.lines)


def _text(path: Path) -> str:
    """Read a text file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise InputError(f"cannot be read: {problem.strerror or problem}", where=str(path)) from problem
    except UnicodeDecodeError as problem:
        raise UsageProblem("not a TOML file: not UTF-8", where=str(path)) from problem


def _lines(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the keys of each table and each assignment with their line; tomllib does not tell."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        opening = line.lstrip()
        brackets = len(opening) - len(opening.lstrip("["))
        found = _STATEMENT.match(opening[brackets:])
        if found is None:
            continue
        keys = tuple(part.strip("\"'") for part in _PART.findall(found[1]))
        after = opening[brackets + found.end() :][:1]
        if brackets and after == "]":
            table = keys
            yield table, number
        elif not brackets and after == "=":
            yield (*table, *keys), number


def environment_name(option: str) -> str:
    """Return the variable of an option: PPOCLI_CLIP_EPS for clip-eps."""
    return f"PPOCLI_{option.upper().replace('-', '_')}"


def from_text(place: str, kind: Kind, text: str) -> Any:
    """Return the value that the text of a variable stands for; lists are separated by blanks.

    Raises
    ------
    UsageProblem
        The text is not of this kind.
    """
    flags = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False,
             "off": False}  # fmt: skip
    try:
        if kind == "flag":
            return flags[text.lower()]
        if kind == "number":
            return float(text)
        if kind == "whole":
            return int(text)
    except (KeyError, ValueError):
        wanted = {"flag": "true or false", "number": "a number", "whole": "a whole number"}[kind]
        raise UsageProblem(f"'{text}' is not {wanted}", where=place) from None
    return text.split() if kind in ("words", "columns", "limits") else text


def settings_of(
    file: ConfigFile, command: str, own: Kinds, commands: Callable[[], Mapping[str, Kinds]]
) -> dict[str, tuple[Any, str]]:
    """Return what a file sets for a command: value and place by option; limits as a list of (text, place).

    Parameters
    ----------
    command : str
    own : mapping of option to kind
        The options of this command that a file may set.
    commands : callable
        Returns those of every command; called only where a key is none of `own`, or holds a table.

    Raises
    ------
    UsageProblem
        An unknown key, with the nearest that exists, or a value of another type; with file and line.
    """
    out: dict[str, tuple[Any, str]] = {}
    for key, value in file.values.items():
        if key == COLUMNS:
            pairs = _columns(file, value)
            if "columns" in own.values():
                option = next(name for name, kind in own.items() if kind == "columns")
                out[option] = pairs, file.where(key)
        elif _is_key(own, key) and not (isinstance(value, dict) and key in commands()):
            out[key] = _converted(file, (key,), own[key], value), file.where(key)
        elif key != command and not _is_elsewhere(key, value, commands()):
            known = {
                name for kinds in commands().values() for name, kind in kinds.items() if kind != "columns"
            }
            raise file.problem((key,), "no such setting", _nearest(key, {*known, *commands(), COLUMNS}))
    table = file.values.get(command, {})
    if not isinstance(table, dict):
        # --audit is an option of one command and the name of another.
        if not any(_is_key(kinds, command) for kinds in commands().values()):
            raise file.problem((command,), f"a table, not {_named(table)}")
        table = {}
    for key, value in table.items():
        if not _is_key(own, key):
            raise file.problem((command, key), "no such setting", _nearest(key, own))
        out[key] = _converted(file, (command, key), own[key], value), file.where(command, key)
    return out


def _is_key(own: Kinds, key: str) -> bool:
    """Whether a key names an option; columns have a table of their own."""
    return key in own and own[key] != "columns"


def _is_elsewhere(key: str, value: Any, commands: Mapping[str, Kinds]) -> bool:
    """Whether a key is the table of another command or one of its options."""
    return (key in commands and isinstance(value, dict)) or any(
        _is_key(one, key) for one in commands.values()
    )


def _nearest(key: str, names: Any) -> str:
    """Return a hint: the most similar name, or where all are."""
    near = get_close_matches(key.replace("_", "-"), sorted(names), n=1)
    return f"did you mean '{near[0]}'?" if near else "'ppocli config show' lists all settings"


def _named(value: Any) -> str:
    """Say what stands in a file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return f"the text '{value}'"
    if isinstance(value, list):
        return "a list"
    return "a table" if isinstance(value, dict) else "a date or time"


def _columns(file: ConfigFile, table: Any) -> list[str]:
    """Return the table of columns as ROLE=COLUMN."""
    from ppocli.core.roles import ROLES

    if not isinstance(table, dict):
        raise file.problem((COLUMNS,), f"a table, not {_named(table)}")
    for role, column in table.items():
        if role not in ROLES:
            raise file.problem((COLUMNS, role), "no such role", _nearest_role(role, ROLES))
        if not isinstance(column, str):
            raise file.problem((COLUMNS, role), f"the name of a column, not {_named(column)}")
    return [f"{role}={column}" for role, column in table.items()]


def _nearest_role(role: str, names: Any) -> str:
    """Return a hint for a role."""
    near = get_close_matches(role, list(names), n=1)
    return f"did you mean '{near[0]}'?" if near else f"one of: {', '.join(names)}"


def _converted(file: ConfigFile, keys: tuple[str, ...], kind: Kind, value: Any) -> Any:
    """Return a value as its option takes it."""
    if kind == "limits":
        return _limits(file, keys, value)
    wanted: dict[Kind, tuple[type, ...]] = {
        "flag": (bool,), "number": (int, float), "whole": (int,), "text": (str,), "file": (str,),
        "words": (str, list),
    }  # fmt: skip
    fits = type(value) in wanted[kind]
    if isinstance(value, list):
        fits = fits and all(isinstance(one, str) for one in value)
    if not fits:
        name = {"words": "a list of words", "file": "the path of a file"}.get(kind) or _TYPES[
            wanted[kind][-1]
        ]
        given = "a list with something else" if kind == "words" and isinstance(value, list) else _named(value)
        raise file.problem(keys, f"{name}, not {given}")
    if kind == "file":
        return str(file.path.parent / value)
    if kind == "words":
        return [value] if isinstance(value, str) else value
    return float(value) if kind == "number" else value


def _limits(file: ConfigFile, keys: tuple[str, ...], table: Any) -> list[tuple[str, str]]:
    """Return a table of limits as (METRIC=TEXT, place)."""
    if not isinstance(table, dict):
        raise file.problem(
            keys, f"a table of metrics, not {_named(table)}", "for example: {approx_kl_k3 = 0.05}"
        )
    out = []
    for parts, value in _flat(table):
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise file.problem((*keys, *parts), f"a number or text, not {_named(value)}")
        text = value if isinstance(value, str) else repr(value)
        out.append((f"{'.'.join(parts)}={text}", file.where(*keys, *parts)))
    return out


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the entries of a table of metrics by their keys: drift.NAME, unquoted, is a table in TOML."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from (((name, *keys), one) for keys, one in _flat(value))
        else:
            yield (name,), value
