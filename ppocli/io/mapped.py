"""A file in memory without its memory: mapped, and given back behind the reader."""

from __future__ import annotations

import mmap
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Mapped pages that were touched count as memory of the process until they are given back. Chunks are read
# ahead: the latest so many are still in use. (Pages given back too early would be read again, nothing worse.)
_IN_USE = 8

_PAGE = mmap.PAGESIZE


class MappedFile:
    """A file mapped for reading.

    Parameters
    ----------
    path : str
        Of a file that is not empty.

    Attributes
    ----------
    bytes : mmap
        Supports the buffer protocol. Arrays over it keep it alive.

    Raises
    ------
    OSError
    """

    def __init__(self, path: str) -> None:
        with Path(path).open("rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        whole = np.frombuffer(self.bytes, np.uint8)
        self._first = int(whole.__array_interface__["data"][0])
        self._size = whole.size
        self._used: deque[list[tuple[int, int]]] = deque()

    def used(self, arrays: list[NDArray[Any]]) -> None:
        """Say that arrays were handed on, perhaps over this file; give back those of some time ago."""
        spans = []
        for array in arrays:
            start = int(array.__array_interface__["data"][0]) - self._first
            if start >= 0 and start + array.nbytes <= self._size:
                spans.append((start - start % _PAGE, start + array.nbytes))
        self._used.append(spans)
        if len(self._used) > _IN_USE and hasattr(mmap, "MADV_DONTNEED"):
            for start, stop in self._used.popleft():
                if stop > start:
                    self.bytes.madvise(mmap.MADV_DONTNEED, start, stop - start)
