"""Standard input as a file: whoever reads a file reads it more than once, or from its end."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ppocli.errors import InputError, UsageProblem

STDIN = "-"
"""The path that stands for standard input."""

_BLOCK = 1 << 20


def local(path: str) -> str:
    """Return where the bytes of an input are: its path, or that of a copy of standard input.

    The copy is made once, in the folder for temporary files (TMPDIR), and goes away with the process.

    Raises
    ------
    UsageProblem
        Standard input is a terminal, or closed.
    InputError
        It cannot be read, or there is no room for the copy.
    """
    return _copy() if path == STDIN else path


@functools.cache
def _copy() -> str:
    """Copy standard input to a temporary file and return its path."""
    if sys.stdin is None or sys.stdin.isatty():
        what = "closed" if sys.stdin is None else "a terminal"
        raise UsageProblem(
            f"standard input is {what}", hint="pipe a file into it: zstd -dc r.jsonl.zst | ppocli eval -"
        )
    kept = contextlib.ExitStack()
    atexit.register(kept.close)
    try:
        descriptor, name = kept.enter_context(temporary())
        with os.fdopen(descriptor, "wb", closefd=False) as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy, _BLOCK)
    except OSError as failure:
        raise InputError(
            f"standard input cannot be copied to a temporary file: {failure.strerror}",
            where=STDIN,
            hint="set TMPDIR to a folder with room, or give the file by its path",
        ) from None
    return name


@contextlib.contextmanager
def temporary() -> Iterator[tuple[int, str]]:
    """Make a temporary file (in TMPDIR) and give its descriptor and a path; it goes away with the context.

    On Linux it needs no name, and not even a kill leaves it behind.
    """
    descriptor, name = tempfile.mkstemp(prefix="ppocli-")
    unnamed = Path(f"/proc/self/fd/{descriptor}")
    try:
        if unnamed.exists():
            Path(name).unlink()
        yield descriptor, str(unnamed) if unnamed.exists() else name
    finally:
        os.close(descriptor)
        Path(name).unlink(missing_ok=True)
