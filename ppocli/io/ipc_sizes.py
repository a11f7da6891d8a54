"""How large compressed Arrow record batches become: PyArrow decompresses them before anyone can ask.

A message is the mark FF FF FF FF, the length of its header, the header (a FlatBuffer) and the body. Each
compressed buffer of the body begins with its size decompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_BATCH_TYPES = (2, 3)  # DictionaryBatch, RecordBatch
_FAILURES = (struct.error, ValueError, OverflowError)


def compressed_batches(raw: memoryview, start: int) -> Iterator[tuple[int, int]]:
    """Yield (size decompressed, size stored) of each compressed batch.

    Parameters
    ----------
    raw : memoryview
        The file.
    start : int
        Where its first message begins: 8 in a file, 0 in a stream. What cannot be understood ends it; PyArrow
        will tell.
    """
    at = start
    try:
        while True:
            mark, length = struct.unpack_from("<Ii", raw, at)
            if mark != 0xFFFFFFFF or length <= 0:
                return
            body = at + 8 + length
            stored, declared = _message(raw[at + 8 : body], raw, body)
            if declared:
                yield declared, stored
            at = body + stored
    except _FAILURES:
        return


def _message(header: memoryview, raw: memoryview, body: int) -> tuple[int, int]:
    """Return the length of a message's body, and what its compressed buffers become; 0 without any."""
    message = _Table(header, struct.unpack_from("<I", header)[0])
    stored = message.number(3, "<q")
    if stored < 0:
        raise ValueError("a body of negative length")
    kind = message.number(1, "<B")
    if kind not in _BATCH_TYPES:
        return stored, 0
    batch = message.table(2)
    if batch is not None and kind == _BATCH_TYPES[0]:
        batch = batch.table(1)
    if batch is None or batch.table(3) is None:
        return stored, 0
    declared = 0
    for offset, length in batch.pairs(2):
        if length >= 8 and 0 <= offset <= stored:
            size = struct.unpack_from("<q", raw, body + offset)[0]
            declared += length if size < 0 else size
    return stored, declared


class _Table:
    """A table of a FlatBuffer."""

    def __init__(self, raw: memoryview, at: int) -> None:
        self._raw, self._at = raw, at
        self._fields = at - struct.unpack_from("<i", raw, at)[0]
        self._length = struct.unpack_from("<H", raw, self._fields)[0]

    def number(self, field: int, form: str) -> int:
        """Return a number, 0 where it is absent."""
        at = self._place(field)
        return 0 if at is None else int(struct.unpack_from(form, self._raw, at)[0])

    def table(self, field: int) -> _Table | None:
        """Return a table inside, if it is there."""
        at = self._place(field)
        return None if at is None else _Table(self._raw, at + struct.unpack_from("<I", self._raw, at)[0])

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Yield the elements of a vector of pairs of 64-bit integers."""
        at = self._place(field)
        if at is None:
            return
        at += struct.unpack_from("<I", self._raw, at)[0]
        count = struct.unpack_from("<I", self._raw, at)[0]
        if at + 4 + 16 * count > len(self._raw):
            raise ValueError("a vector beyond the header")
        for index in range(count):
            yield struct.unpack_from("<qq", self._raw, at + 4 + 16 * index)

    def _place(self, field: int) -> int | None:
        """Return where a field stands."""
        slot = 4 + 2 * field
        if slot + 2 > self._length:
            return None
        offset = struct.unpack_from("<H", self._raw, self._fields + slot)[0]
        return self._at + offset if offset else None
