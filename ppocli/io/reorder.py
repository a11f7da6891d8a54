"""Arrays whose elements are not stored in the order in which they are read: column-major, or time first."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.io.buffers import Buffers
from ppocli.io.placed import ArrayElements, Elements

if TYPE_CHECKING:
    from numpy.typing import NDArray

IN_MEMORY = 1 << 24
"""Up to this size an array that has to be reordered is held in memory, above it in a temporary file."""

# How much of an array is reordered at a time.
_SLAB = 1 << 23


def reordered(
    source: Elements, memory: tuple[int, ...], order: tuple[int, ...], dtype: np.dtype[Any]
) -> Elements:
    """Return the elements with their axes in `order`, by way of a temporary file where they are many.

    Parameters
    ----------
    source : Elements
        In stored order, row-major.
    memory : tuple of int
        The shape in that order.
    order : tuple of int
        Which stored axis each wanted axis is.
    dtype : numpy dtype
        Of the elements, native.

    Raises
    ------
    OSError
        No room for the temporary file.
    InputError
        The source is damaged.
    """
    shape = tuple(memory[axis] for axis in order)
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes <= IN_MEMORY:
        target = np.empty(shape, dtype)
        _scatter(source, memory, order, target, lambda: None)
        return ArrayElements(target)
    spooled = SpooledElements(dtype)
    try:
        mapped = spooled.map(n_bytes)
        _scatter(source, memory, order, np.frombuffer(mapped, dtype).reshape(shape), lambda: _release(mapped))
    except BaseException:
        spooled.close()
        raise
    return spooled


def _scatter(
    source: Elements,
    memory: tuple[int, ...],
    order: tuple[int, ...],
    target: NDArray[Any],
    after_slab: Callable[[], None],
) -> None:
    """Read the array once, in slabs of its first stored axis, and write each to its places in `target`."""
    per_step = math.prod(memory[1:])
    steps = max(1, _SLAB // (per_step * target.itemsize))
    leading = (slice(None),) * order.index(0)
    for start in range(0, memory[0], steps):
        stop = min(start + steps, memory[0])
        slab = source.read((stop - start) * per_step).reshape(stop - start, *memory[1:])
        target[(*leading, slice(start, stop))] = slab.transpose(order)
        after_slab()
    source.finish()


def _release(mapped: mmap.mmap) -> None:
    """Give back the pages written so far: mapped pages count as memory of the process."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


class SpooledElements:
    """The elements of a temporary file, which goes away with them."""

    slow = True

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._buffers = Buffers()
        self._file = tempfile.TemporaryFile(prefix="ppocli-")  # noqa: SIM115 (closed by close)

    def map(self, n_bytes: int) -> mmap.mmap:
        """Reserve room on the disk, so that it cannot run out under a mapped page, and map it."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file.fileno(), 0, n_bytes)
        else:
            self._file.truncate(n_bytes)
        return mmap.mmap(self._file.fileno(), n_bytes)

    def read(self, count: int) -> NDArray[Any]:
        """Return the next `count` elements."""
        raw = self._buffers.take(count * self._dtype.itemsize)
        self._file.readinto(raw.data)
        return raw.view(self._dtype)

    def finish(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Delete the file."""
        self._file.close()
