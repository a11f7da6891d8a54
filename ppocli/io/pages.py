"""Headers of Parquet pages, which PyArrow does not show: how large a page says it is.

A page is read and decompressed as a whole, into as much memory as its header says. The header is a Thrift
structure in the compact protocol: the type of the page, then its size decompressed and stored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from typing import Any

from ppocli.errors import InputError
from ppocli.io import bombs

# A header takes some ten bytes, with statistics of texts a few hundred.
_HEADER_BYTES = 256
_MOST_HEADER_BYTES = 1 << 20

# The headers that PyArrow and most others write, in one look: 3 us, where the reader below takes 20 us.
_NUMBER = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_TEXT = rb"(?:\x01.|\x02..|\x04.{4}|\x08.{8})"
_STATISTICS = rb"(?:\x1c(?:[\x18\x28]" + _TEXT + rb"|[\x16\x26\x36]" + _NUMBER + rb"|[\x11\x12])*\x00)?"
_USUAL = re.compile(
    rb"\x15" + _NUMBER + rb"\x15(" + _NUMBER + rb")\x15(" + _NUMBER + rb")(?:\x15" + _NUMBER + rb")?"
    rb"(?:[\x1c\x2c](?:\x15"
    + _NUMBER
    + rb"){4}"
    + _STATISTICS
    + rb"|[\x3c\x4c](?:\x15"
    + _NUMBER
    + rb"){2}[\x11\x12]?"
    rb"|[\x4c\x5c](?:\x15" + _NUMBER + rb"){6}[\x11\x12]?" + _STATISTICS + rb")\x00\x00",
    re.DOTALL,
)

_LISTS, _MAP, _STRUCT, _BINARY, _DOUBLE = (9, 10), 11, 12, 8, 7
_DEEPEST = 16


def check_pages(file: str, path: str, meta: Any, groups: Collection[int], leaves: Collection[int]) -> None:
    """Refuse pages that would fill the memory (see `bombs`), or that are larger than the file.

    Parameters
    ----------
    file : str
        Where the bytes are.
    path : str
        For the message.
    meta : FileMetaData
    groups, leaves : collection of int
        Row groups and leaf columns.

    Raises
    ------
    InputError
    """
    with open(file, "rb", buffering=0) as raw:  # noqa: PTH123 (may be a descriptor's name)
        end = os.fstat(raw.fileno()).st_size
        for index in groups:
            group = meta.row_group(index)
            for leaf in leaves:
                for at, size, held in _pages(raw.fileno(), group.column(leaf)):
                    if at + held <= end and size <= bombs.MOST_AT_ONCE:
                        continue
                    what, where = f"a page of column '{_name(meta, leaf)}'", f"{path}, row group {index}"
                    if at + held > end:
                        raise InputError(
                            f"the data are damaged: {what} claims {held:,} bytes, beyond the end of the file",
                            where=where,
                            hint="write or copy the file again",
                        )
                    bombs.check(size, held, what, where)


def _name(meta: Any, leaf: int) -> str:
    """Return the name of a leaf's column."""
    return str(meta.schema.column(leaf).path).partition(".")[0]


def _pages(file: int, chunk: Any) -> Iterator[tuple[int, int, int]]:
    """Yield (start, size decompressed, size stored) of each page.

    What is no header ends it: PyArrow will tell.
    """
    at, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    if dictionary is not None and dictionary < at:
        at = dictionary
    end = at + chunk.total_compressed_size
    while at < end:
        for length in (_HEADER_BYTES, _MOST_HEADER_BYTES):
            try:
                size, held, header = _page_header(os.pread(file, length, at))
                break
            except (IndexError, ValueError):
                continue
        else:
            return
        if held < 0:
            return
        yield at + header, size, held
        at += header + held


def _page_header(raw: bytes) -> tuple[int, int, int]:
    """Return size decompressed, size stored and length of the header that `raw` begins with."""
    if usual := _USUAL.match(raw):
        return _Compact(usual[1]).signed(), _Compact(usual[2]).signed(), usual.end()
    reader = _Compact(raw)
    sizes = {2: -1, 3: -1}
    for field, kind in reader.fields():
        if field in sizes and kind == 5:
            sizes[field] = reader.signed()
        else:
            reader.skip(kind, _DEEPEST)
    return sizes[2], sizes[3], reader.at


class _Compact:
    """Reads Thrift's compact protocol; IndexError at the end of the bytes, ValueError for what it is not."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self.at = raw, 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a structure; the caller reads the value."""
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self.signed()
            yield number, head & 15

    def signed(self) -> int:
        """Read an integer."""
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def skip(self, kind: int, depth: int) -> None:
        """Pass over a value."""
        if depth < 0:
            raise ValueError("nested too deep")
        if kind in (3, _DOUBLE):
            self._forward(1 if kind == 3 else 8)
        elif kind in (4, 5, 6):
            self._unsigned()
        elif kind == _BINARY:
            self._forward(self._unsigned())
        elif kind in _LISTS:
            head = self._byte()
            self._skip_all(self._unsigned() if head >> 4 == 15 else head >> 4, (head & 15,), depth)
        elif kind == _MAP:
            count = self._unsigned()
            kinds = self._byte() if count else 0
            self._skip_all(count, (kinds >> 4, kinds & 15), depth)
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth - 1)
        elif kind not in (1, 2):  # true and false have no value behind them
            raise ValueError("no such type")

    def _skip_all(self, count: int, kinds: tuple[int, ...], depth: int) -> None:
        """Pass over the elements of a list or a map; in there a bool takes a byte."""
        if count > len(self._raw):
            raise IndexError
        for _ in range(count):
            for kind in kinds:
                self.skip(3 if kind in (1, 2) else kind, depth - 1)

    def _unsigned(self) -> int:
        """Read a variable-length integer."""
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("an integer without end")

    def _byte(self) -> int:
        """Read a byte."""
        self.at += 1
        return self._raw[self.at - 1]

    def _forward(self, count: int) -> None:
        """Pass over bytes."""
        if self.at + count > len(self._raw):
            raise IndexError
        self.at += count
