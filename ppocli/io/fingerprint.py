"""What tells that two inputs are the same file, without reading all of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ppocli.errors import InputError

ENDS = 1 << 16
"""Bytes at either end that are read: the first values, and the footer or directory with its checksums."""


def fingerprint(path: str) -> tuple[int, str]:
    """Return the size of a file and the SHA-256 of its size, its first and its last 64 KiB.

    Two rollouts of one size that differ only in between are taken for one another: their formats hold
    statistics, checksums or offsets of what is in between in those last bytes.

    Raises
    ------
    InputError
        The file cannot be read.
    """
    try:
        with Path(path).open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            head = stream.read(ENDS)
            stream.seek(max(size - ENDS, 0))
            tail = stream.read(ENDS)
    except OSError as problem:
        raise InputError(f"cannot be read: {problem.strerror or problem}", where=path) from None
    return size, hashlib.sha256(b"%d " % size + head + tail).hexdigest()
