"""Memory for blocks of data, used again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Buffers:
    """Hands out memory, and the same memory again once no array looks at it any more.

    A block in fresh memory costs a page fault for each 4 kB: measured 5.6 ns per token of three float32
    columns, against 2.2 ns when the memory is used again.
    """

    def __init__(self) -> None:
        self._all: list[bytearray] = []

    def take(self, n_bytes: int) -> NDArray[np.uint8]:
        """Return an array of `n_bytes` undefined bytes, aligned for every element type."""
        if not n_bytes:
            return np.empty(0, np.uint8)
        memory = next((one for one in self._all if len(one) >= n_bytes and _is_free(one)), None)
        if memory is None:
            memory = bytearray(n_bytes)
            self._all.append(memory)
        return np.frombuffer(memory, np.uint8, n_bytes)


def _is_free(memory: bytearray) -> bool:
    """Return whether no array looks at the memory: Python refuses to resize it as long as one does."""
    try:
        memory.append(memory.pop())
    except BufferError:
        return False
    return True
