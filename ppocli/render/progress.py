"""Progress on standard error, after half a second, on a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from ppocli.core.progress import NoProgress, Progress
from ppocli.render.console import Look, rich_console

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

DELAY_SECONDS = 0.5
"""Runs that end before this show no bar, and do not import Rich for it."""


def progress_for(
    choice: str,
    look: Look,
    *,
    quiet: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Progress:
    """Return what shows progress: a bar, or nothing.

    Parameters
    ----------
    choice : {"auto", "always", "never"}
        "auto": on a terminal, but not where CI is set. "always": on any terminal. A stream that is not a
        terminal never gets a bar.
    look : Look
        Of standard error.
    """
    env = os.environ if environment is None else environment
    wanted = choice == "always" or (choice == "auto" and not env.get("CI"))
    if quiet:
        return NoProgress()
    return TerminalProgress(sys.stderr, look) if wanted and look.terminal else PlainProgress(sys.stderr)


class PlainProgress(NoProgress):
    """Passes notices on, and shows no bar."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def notice(self, text: str) -> None:
        """Write one line."""
        with contextlib.suppress(OSError):
            print(text, file=self._stream, flush=True)


class TerminalProgress(PlainProgress):
    """A bar with the share of bytes read, rows so far, MB and tokens per second and the time left."""

    def __init__(self, stream: TextIO, look: Look) -> None:
        super().__init__(stream)
        self._look = look
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._began = 0.0
        self._total = 0
        self._bytes = 0.0
        self._tokens = 0
        self._rows = 0

    def start(self, total_bytes: int) -> None:
        """Note the time and the size."""
        self._began = time.monotonic()
        self._total = total_bytes

    def advance(self, n_bytes: float, n_tokens: int, n_rows: int = 0) -> None:
        """Count, and show the bar once the delay is over."""
        self._bytes += n_bytes
        self._tokens += n_tokens
        self._rows += n_rows
        spent = time.monotonic() - self._began
        if spent < DELAY_SECONDS:
            return
        if self._bar is None:
            self._bar, self._task = self._new_bar()
        if self._task is not None:
            rate = f"{_short(self._bytes / spent, 'B/s')}  {_short(self._tokens / spent, ' tokens/s')}"
            if self._rows:
                rate = f"{_short(self._rows, ' rows')}  {rate}"
            self._bar.update(self._task, completed=self._bytes, rate=rate)

    def finish(self) -> None:
        """Take the bar away. May be called more than once."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _new_bar(self) -> tuple[Bar, TaskID]:
        """Start a Rich bar that disappears when it is stopped."""
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        console = rich_console(self._look, self._stream, live=True)
        columns = (
            TextColumn("reading"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        bar = RichProgress(*columns, console=console, transient=True, redirect_stdout=False)
        task = bar.add_task("reading", total=self._total or None, rate="")
        bar.start()
        return bar, task


def _short(number: float, unit: str) -> str:
    """Return a number in about three digits, in millions or thousands where it is that large."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.{0 if number >= 100 * size else 1}f} {letter}{unit}"
    return f"{number:.0f} {unit.strip()}"
