"""`ppocli config show`: every setting with its value and where the value is from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ppocli.cli.completion import completion_of, table_or_json
from ppocli.cli.declare import FILE_OPTION, ISOLATED
from ppocli.cli.failures import emit
from ppocli.cli.output import plan
from ppocli.cli.settings import Configuration, kinds_of, kinds_of_all
from ppocli.config import COLUMNS
from ppocli.core.spec import choose
from ppocli.errors import UsageProblem
from ppocli.render.check_formats import CHECK_FORMATS, CHECK_SUFFIXES
from ppocli.render.console import printable
from ppocli.render.formats import FORMATS, SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Mapping

HELP = """\
Show every setting that a file or the environment can give, its value and where
the value is from: a line of a file, a variable, or the default.

Settings come from the nearest ppocli.toml, or pyproject.toml with a table
[tool.ppocli], from the working directory upwards to the root of the repository.
A flag wins over a variable PPOCLI_OPTION, a variable over the file. Tables named
after a command hold settings of that command alone; [check.max], [check.min],
[check.expect] and [check.tolerance] hold limits by metric, [columns] the column
of each role.

  ppocli config show
  ppocli config show --config ci/ppocli.toml -f json"""

MAIN_COMMAND = "eval"
"""Options of this command stand at the top of the file; those that others add, below their name."""

REQUIRED = {"convert": ("-o", "-")}
"""What a command line has to have beside an input, whatever the settings are."""

Row = tuple[str, Any, str]


def run(
    action: Annotated[str, typer.Argument(metavar="show", help="What to do: show.")],
    format_: Annotated[
        str,
        typer.Option(
            "-f",
            "--format",
            metavar="FORMAT",
            help="table (default) or json.",
            autocompletion=completion_of("--format", "FORMAT", table_or_json),
        ),
    ] = "table",
    isolated: Annotated[bool, ISOLATED] = False,
    file: Annotated[str | None, FILE_OPTION] = None,
) -> int:
    """Print the settings, return the exit code."""
    choose("action", action, ("show",))
    choose("--format", format_, ("table", "json"))
    arguments = [*(["--isolated"] if isolated else []), *(["--config", file] if file is not None else [])]
    read, rows = settings(arguments)
    if format_ == "json":
        from ppocli.render.json import to_json

        entries = [{"name": name, "value": value, "origin": origin} for name, value, origin in rows]
        emit(to_json({"file": read, "settings": entries}))
        return 0
    emit(f"file: {printable(read) if read else 'none'}\n\n{_table(rows)}")
    return 0


def settings(arguments: list[str]) -> tuple[str | None, list[Row]]:
    """Return the file that is read, and name, value and origin of every setting.

    Parameters
    ----------
    arguments : list of str
        --config or --isolated.

    Raises
    ------
    UsageProblem
        An unknown key or a wrong value, with its file and line or its variable.
    """
    commands = {name: _parsed(name, arguments) for name in kinds_of_all()}
    base = {name: (value, origin) for name, value, origin in _rows(MAIN_COMMAND, *commands[MAIN_COMMAND])}
    rows: list[Row] = [(name, *one) for name, one in base.items()]
    for command, parsed in commands.items():
        for name, value, origin in _rows(command, *parsed):
            if base.get(name) != (value, origin):
                rows.append((f"{command}.{name}", value, origin))
    file = commands[MAIN_COMMAND][0].file
    return (file.shown if file is not None else None), rows


def _parsed(command: str, arguments: list[str]) -> tuple[Configuration, Mapping[str, Any]]:
    """Let Typer fill in the options of a command, without calling it; check them as the command would."""
    from ppocli.cli.app import build

    work = build([command]).main(
        args=[command, *arguments, *REQUIRED.get(command, ()), "FILE"],
        prog_name="ppocli",
        standalone_mode=False,
    )
    configuration, call = work.args
    groups: Mapping[str, Any] = call.keywords
    for check in _checks(command, configuration, groups):
        try:
            check()
        except UsageProblem as problem:
            located = configuration.located(problem)
            # What is only wrong without the flags that may still come is none of the file's faults.
            if located.where is not None:
                raise located from problem
    return configuration, groups


def _checks(command: str, settings: Configuration, groups: Mapping[str, Any]) -> Iterator[Callable[[], Any]]:
    """Yield what a command does with its options before it reads anything."""
    for group in groups.values():
        for method in ("loss_spec", "read_options", "audit_options", "check"):
            if hasattr(group, method):
                yield getattr(group, method)
        if hasattr(group, "gate"):
            yield partial(group.gate, settings, allow_empty=False)
        if hasattr(group, "export"):
            is_gate = command == "check"
            formats, suffixes = (CHECK_FORMATS, CHECK_SUFFIXES) if is_gate else (FORMATS, SUFFIXES)
            yield partial(plan, group, (), formats=formats, suffixes=suffixes)


def _rows(command: str, settings: Configuration, groups: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the settings of a command, limits and columns one by one."""
    for option, kind in kinds_of(command).items():
        field = option.replace("-", "_")
        # A name that Python keeps for itself ends with an underscore: --set is set_.
        value = next(
            getattr(group, name)
            for group in groups.values()
            for name in (field, f"{field}_")
            if hasattr(group, name)
        )
        origin = settings.place_of(option) or "default"
        if kind == "limits":
            for pair, source in settings.limits(option, None):
                metric, _, text = pair.partition("=")
                yield f"{option}.{metric}", text, source
        elif kind == "columns":
            for pair in value or ():
                role, _, column = pair.partition("=")
                from_file = settings.file if settings.origins[option] == "file" else None
                yield f"columns.{role}", column, from_file.where(COLUMNS, role) if from_file else origin
        else:
            yield option, value, origin


def _table(rows: list[Row]) -> str:
    """Return the settings in columns."""
    cells = [(name, printable(_text(value)), printable(origin)) for name, value, origin in rows]
    widths = [max(len(row[place]) for row in cells) for place in (0, 1)]
    return "".join(f"{a:{widths[0]}}  {b:{widths[1]}}  {c}".rstrip() + "\n" for a, b, c in cells)


def _text(value: Any) -> str:
    """Return a value as it stands in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(value) if isinstance(value, list) else str(value)
