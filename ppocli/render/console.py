"""What a stream can show: width, colour, glyphs; and text that is safe to show."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from io import StringIO

    from rich.console import Console

UNLIMITED = 1 << 15
"""Columns given to Rich where the stream has no width: wider than any table."""

_GLYPHS = "─…▁█←"


@dataclass(frozen=True, slots=True)
class Look:
    """How text for one stream or file is to be made.

    Attributes
    ----------
    width : int, optional
        Columns. None: as many as the text needs.
    color : bool
        False: not a single escape byte, bold included.
    ascii : bool
        Draw with ASCII only.
    terminal : bool
        A person watches: long paths may be shortened. Numbers never are.
    """

    width: int | None = None
    color: bool = False
    ascii: bool = False
    terminal: bool = False

    @property
    def ellipsis(self) -> str:
        """What stands for the part of a path that is left out."""
        return "..." if self.ascii else "…"


def look_at(
    stream: TextIO | None,
    *,
    color: str = "auto",
    ascii_only: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Look:
    """Find out what `stream` can show.

    Parameters
    ----------
    stream : text stream, optional
        None: there is no such stream; it is described as a plain file.
    color : {"auto", "always", "never"}
        "auto" follows NO_COLOR, then FORCE_COLOR, then whether the stream is a terminal (and not a dumb one).
    ascii_only : bool
        Use ASCII even if the stream could show more.
    environment : mapping, optional
        Instead of `os.environ`.
    """
    env = os.environ if environment is None else environment
    terminal = stream is not None and stream.isatty()
    return Look(
        width=_width(stream if terminal else None, env),
        color=_color(color, terminal, env),
        ascii=ascii_only or (terminal and env.get("TERM") == "dumb") or not _shows_glyphs(stream, env),
        terminal=terminal,
    )


def look_for_file(*, ascii_only: bool = False, environment: Mapping[str, str] | None = None) -> Look:
    """Return the look of a UTF-8 file that is written by `-o` or `--export`."""
    env = os.environ if environment is None else environment
    return Look(width=_width(None, env), ascii=ascii_only)


def _width(terminal: TextIO | None, env: Mapping[str, str]) -> int | None:
    """Columns of the terminal, else COLUMNS, else None."""
    if terminal is not None:
        try:
            columns = os.get_terminal_size(terminal.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        if columns > 0:
            return columns
    text = env.get("COLUMNS", "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _color(choice: str, terminal: bool, env: Mapping[str, str]) -> bool:
    """Decide on colour: the option, then NO_COLOR, FORCE_COLOR, CLICOLOR, then the stream."""
    if choice != "auto":
        return choice == "always"
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return terminal and env.get("TERM", "") != "dumb" and env.get("CLICOLOR", "1") != "0"


def _shows_glyphs(stream: TextIO | None, env: Mapping[str, str]) -> bool:
    """Tell whether the encoding and the locale have the few signs that tables are drawn with."""
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    if locale in ("C", "POSIX"):
        return False
    try:
        _GLYPHS.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def prepare_streams() -> None:
    """Make the standard streams replace what their encoding lacks, instead of failing in mid-output."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and stream.encoding.lower().replace("-", "") != "utf8":
            reconfigure(errors="replace")


def printable(text: str) -> str:
    r"""Return `text` with everything that does not show written as an escape.

    Control characters and undecodable bytes become `\xNN`, other invisible characters (direction marks, zero
    width joiners, line separators) `\uNNNN`. Used for every name that comes from outside.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    """Return one character or its escape."""
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name that is not UTF-8 (PEP 383)
        code -= 0xDC00
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shorten(path: str, width: int, ellipsis: str) -> str:
    """Cut the middle out of a path that is wider than `width`; its end is what tells files apart."""
    if len(path) <= width:
        return path
    room = max(width - len(ellipsis), 2)
    head = room // 3
    return path[:head] + ellipsis + path[len(path) - (room - head) :]


def rich_console(
    look: Look, file: StringIO | TextIO, width: int | None = None, *, live: bool = False
) -> Console:
    """Return a Rich console that decides nothing by itself: width, height and colour are given.

    `live` lets it move the cursor, for a progress bar.
    """
    from rich.console import Console

    return Console(
        file=file,
        width=width or look.width or UNLIMITED,
        height=25,
        color_system="standard" if look.color else None,
        force_terminal=look.color or live,
        no_color=not look.color,
        force_jupyter=False,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
    )
