"""The options that stand before a command."""

from __future__ import annotations

from typing import Annotated

import typer

from ppocli import __version__
from ppocli.cli.help import Answer, show_help


def _show_version(value: bool) -> None:
    """Answer with the version, when `--version` was given."""
    if value:
        raise Answer(f"ppocli {__version__}\n")


def root(
    version: Annotated[
        bool, typer.Option("-V", "--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
    help_: Annotated[
        bool, typer.Option("-h", "--help", is_eager=True, callback=show_help, help="Show this text.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""
