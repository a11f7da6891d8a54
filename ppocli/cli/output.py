"""Where a result goes: checked before anything is read, written at the end, each file whole or not at all."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ppocli.cli.failures import cannot_write, emit, say
from ppocli.core.spec import choose
from ppocli.errors import InputError, UsageProblem
from ppocli.render.console import Look, look_at, look_for_file
from ppocli.render.formats import FORMATS, SUFFIXES

if TYPE_CHECKING:
    from ppocli.cli.options import WritingOptions

Render = Callable[[str, Look, str], str]
"""Makes the text of a result from a format, a look and an encoding."""

STANDARD_OUTPUT = "-"
"""What `-o` takes for it."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The places of one result.

    Attributes
    ----------
    format : str
        Of the result itself.
    file : path, optional
        Where it goes; None: standard output.
    exports : sequence of (path, format)
    options : WritingOptions
    silent : bool
        Nothing goes to standard output.
    """

    format: str
    file: Path | None
    exports: Sequence[tuple[Path, str]]
    options: WritingOptions
    silent: bool = False

    def deliver(self, render: Render) -> None:
        """Write all files, then standard output, so that a reader who stops early costs no file.

        A file that cannot be written costs nothing but itself; the failure comes after all the rest.

        Raises
        ------
        InputError
            A file cannot be written.
        BrokenPipeError
            The reader of standard output has gone.
        """
        failures: list[InputError] = []
        files = [*self.exports, *([(self.file, self.format)] if self.file is not None else [])]
        for path, name in files:
            text = render(name, self._file_look(), "utf-8")
            try:
                self._save(path, text)
            except InputError as problem:
                failures.append(problem)
        if self.file is None and not self.silent:
            look = look_at(sys.stdout, color=self.options.color, ascii_only=self.options.ascii)
            encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
            emit(render(self.format, look, encoding))
        for earlier in failures[:-1]:
            say(earlier)
        if failures:
            raise failures[-1]

    def _file_look(self) -> Look:
        """Return the look of a file: no colour, no shortening."""
        return look_for_file(ascii_only=self.options.ascii)

    def _save(self, path: Path, text: str) -> None:
        """Write a file under another name beside it, then rename it."""
        try:
            write_whole(path, text, force=self.options.force)
        except OSError as problem:
            raise cannot_write(str(path), problem) from problem


def plan(
    options: WritingOptions,
    inputs: Iterable[str],
    *,
    silent: bool = False,
    formats: Sequence[str] = FORMATS,
    suffixes: Mapping[str, str] = SUFFIXES,
    more: Iterable[tuple[str, str]] = (),
) -> Destination:
    """Check everything about the output before anything is read.

    Parameters
    ----------
    inputs : iterable of str
        Paths that are going to be read, and so are never written.
    formats, suffixes
        What `-f` takes, and the formats of `--export` by suffix.
    more : iterable of (path, format)
        Files that other options ask for.

    Raises
    ------
    UsageProblem
        An unknown format, suffix or word; a file that exists (without --force) or is an input or is named
        twice; a folder that does not exist.
    InputError
        Standard output is wanted and closed.
    """
    choose("--format", options.format, formats)
    choose("--color", options.color, ("auto", "always", "never"))
    if not 1 <= options.digits <= 17:
        raise UsageProblem(f"--digits is a whole number from 1 to 17, not {options.digits}")
    file = Path(options.output) if options.output not in (None, STANDARD_OUTPUT) else None
    exports = [(Path(text), _format_of(text, suffixes)) for text in options.export or ()]
    exports += [(Path(text), name) for text, name in more]
    taken = {os.path.realpath(path): path for path in inputs}
    for path in [*([file] if file is not None else []), *(path for path, _ in exports)]:
        check_target(path, force=options.force)
        real = os.path.realpath(path)
        if real in taken:
            raise UsageProblem(
                f"'{path}' is already in use as '{taken[real]}'", hint="choose another name for the output"
            )
        taken[real] = str(path)
    if file is None and not silent and sys.stdout is None:
        raise cannot_write("standard output", hint="-o FILE writes a file instead, -qq shows no result")
    return Destination(options.format, file, exports, options, silent)


def _format_of(text: str, suffixes: Mapping[str, str]) -> str:
    """Return the format that the suffix of an export names."""
    suffix = Path(text).suffix.lower()
    if suffix not in suffixes:
        raise UsageProblem(
            f"--export '{text}': the suffix does not name a format", hint=f"one of: {', '.join(suffixes)}"
        )
    return suffixes[suffix]


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a file that cannot or must not be written."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(path)):
        raise UsageProblem("results are written to files here, not to a URL")
    if path.is_dir():
        raise UsageProblem(f"cannot write '{path}': it is a folder")
    if not path.parent.is_dir():
        raise UsageProblem(f"cannot write '{path}': there is no folder '{path.parent}'")
    if path.is_file() and not force:
        raise UsageProblem(f"'{path}' exists", hint="--force overwrites it")
    if not path.exists() and not os.access(path.parent, os.W_OK):
        raise UsageProblem(f"cannot write '{path}': no permission in folder '{path.parent}'")


def write_whole(path: Path, text: str, *, force: bool) -> None:
    """Write UTF-8 text so that the file is complete or unchanged.

    A link is followed; what is not a regular file (a pipe, /dev/null) is written directly.

    Raises
    ------
    OSError
        The file cannot be written, or has come into being since it was checked and `force` is not set.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8", newline="\n")
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as stream:
            stream.write(text.encode("utf-8"))
        if target.exists() and not force:
            raise FileExistsError(None, "it exists now")
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
