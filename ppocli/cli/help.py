"""Help as plain text: the options under their panels, no escape bytes, at most 100 columns."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from typing import Any

import typer  # noqa: TC002 (the annotation of a callback is read at run time)

WIDEST = 100
_NAME_COLUMN = 28
_LEAST_TEXT = 24


class Answer(Exception):
    """Ends the reading of the command line: `text` is all that was asked for.

    Nothing is printed while Typer reads, because it makes exit code 1 of a closed pipe.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


def show_help(context: typer.Context, value: bool) -> None:
    """Answer with the help of the command at hand, when `--help` was given."""
    if value and not context.resilient_parsing:
        raise Answer(help_text(context))


def help_text(context: typer.Context, width: int | None = None) -> str:
    """Return the help of a command.

    Parameters
    ----------
    width : int, optional
        Columns; by default those of the terminal, or COLUMNS, or 80, and never more than 100.
    """
    columns = min(width or shutil.get_terminal_size((80, 24)).columns, WIDEST)
    command: Any = context.command  # Typer gives its parameters no public type
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    commands: dict[str, Any] = getattr(command, "commands", {})
    usage = ["[OPTIONS]", *(str(one.metavar) for one in arguments), *(["COMMAND ..."] if commands else [])]
    parts = [f"Usage: {context.command_path} {' '.join(usage)}\n", f"\n{(command.help or '').strip()}\n"]
    if commands:
        parts += _section("Commands", ((name, one.help or "") for name, one in commands.items()), columns)
    if arguments:
        parts += _section("Arguments", ((str(one.metavar), one.help or "") for one in arguments), columns)
    panels = dict.fromkeys(one.rich_help_panel or "Options" for one in options)
    for panel in panels:
        mine = [one for one in options if (one.rich_help_panel or "Options") == panel]
        parts += _section(panel, ((_names(one), one.help or "") for one in mine), columns)
    return "".join(parts)


def _names(option: Any) -> str:
    """Return `-f, --format FORMAT`."""
    value = "" if option.is_flag or option.count or not option.metavar else f" {option.metavar}"
    return ", ".join(option.opts) + value


def _section(title: str, entries: Iterator[tuple[str, str]], columns: int) -> Iterator[str]:
    """Yield a title and its entries in two columns."""
    yield f"\n{title}:\n"
    for name, text in entries:
        lines = textwrap.wrap(text, max(columns - _NAME_COLUMN - 4, _LEAST_TEXT), break_on_hyphens=False) or [
            ""
        ]
        if len(name) > _NAME_COLUMN:
            yield f"  {name}\n"
            name = ""
        for line in lines:
            yield f"  {name:{_NAME_COLUMN}}  {line}".rstrip() + "\n"
            name = ""
