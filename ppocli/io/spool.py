"""Standard input as a file: whoever reads a file reads it more than once, or from its end."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sys
import tempfile
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
        Standard input is a terminal.
    InputError
        It cannot be read, or there is no room for the copy.
    """
    return _copy() if path == STDIN else path


@functools.cache
def _copy() -> str:
    """Copy standard input to a temporary file and return its path."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageProblem(
            "standard input is a terminal", hint="pipe a file into it: zstd -dc r.jsonl.zst | ppocli eval -"
        )
    try:
        descriptor, name = tempfile.mkstemp(prefix="ppocli-")
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as copy:
                shutil.copyfileobj(sys.stdin.buffer, copy, _BLOCK)
        except BaseException:
            Path(name).unlink()
            raise
    except OSError as failure:
        raise InputError(
            f"standard input cannot be copied to a temporary file: {failure.strerror}",
            where=STDIN,
            hint="set TMPDIR to a folder with room, or give the file by its path",
        ) from None
    opened = Path(f"/proc/self/fd/{descriptor}")
    if opened.exists():  # Linux: the file needs no name, and not even a kill leaves it behind
        Path(name).unlink()
        return str(opened)
    atexit.register(Path(name).unlink, missing_ok=True)
    return name
