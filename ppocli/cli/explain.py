"""`ppocli explain`: what a name means."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from ppocli.cli.completion import completion_of, names
from ppocli.cli.failures import emit
from ppocli.core.glossary import explain, listing
from ppocli.errors import UsageProblem

HELP = """\
Say what a metric, an objective, a framework, a setting, the role or the name of a
column, an aggregation, a finding, a profile of limits or a number format means.

  ppocli explain clip_frac_active
  ppocli explain PPO102
  ppocli explain verl
  ppocli explain old_logp
  ppocli explain --list"""

_WIDTH = 80


def run(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A name of these, as reports and options show it.",
            autocompletion=completion_of("", "NAME", names),
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List all names with a line each.")] = False,
) -> int:
    """Print the explanation, return the exit code."""
    if list_ == (name is not None):
        raise UsageProblem("give either a name or --list", hint="for example: ppocli explain clip_frac")
    emit("\n".join(_listing() if name is None else _explanation(name)) + "\n")
    return 0


def _explanation(name: str) -> list[str]:
    """Return the lines for one name."""
    title, *text = explain(name)
    return [title, *(line for one in text for line in _wrapped(one, "  "))]


def _listing() -> list[str]:
    """Return a line for each name."""
    lines: list[str] = []
    for title, entries in listing():
        lines += ["", title] if lines else [title]
        for name, text in entries:
            first, *rest = _wrapped(text, " " * 32)
            lines += [f"  {name:28}  {first.strip()}", *rest]
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    """Wrap a text with an upper-case first letter left as it is."""
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
