"""Parquet footers: opening, checking, and how row groups are read together."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ppocli.errors import InputError
from ppocli.io.places import place_of

# One buffer per column and open iterator: with it a column chunk is never read whole.
_BUFFER_BYTES = 1 << 18

# Two magics and the length of the footer.
_LEAST_BYTES = 12

# Writers of long ago left the header of the dictionary's page out of a chunk's size.
_BEHIND_CHUNK = 100

FAILURES = (pa.ArrowException, OSError, UnicodeDecodeError)

# Offsets of a row, in the columns and of the tokens they become, take as much memory as so many tokens.
_TOKENS_PER_ROW = 4

# Row groups are called tiny when there are many of them with few rows and few tokens on average. Opening a
# row group costs about as much time as decoding 10,000 tokens of a column.
_MANY_GROUPS = 100
_FEW_ROWS = 1_000
_FEW_TOKENS = 10_000


def open_footer(path: str) -> tuple[Any, Any]:
    """Open a file whose first bytes are those of Parquet; return it and its Arrow schema.

    Raises
    ------
    InputError
        Truncated, encrypted, or with a footer that cannot be read.
    """
    place = place_of(path)
    with place.open() as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(-min(_LEAST_BYTES, size), os.SEEK_END)
        tail = file.read()
    if tail[-4:] == b"PARE":
        raise InputError("the file is encrypted", where=path, hint="decrypt it first")
    if tail[-4:] != b"PAR1" or size < _LEAST_BYTES:
        raise InputError(
            "the Parquet file is truncated: it has no footer at its end",
            where=path,
            hint="the writer was stopped or the copy is incomplete; write or copy the file again",
        )
    footer = int.from_bytes(tail[-8:-4], "little") + 8
    try:
        with place.part([(size - footer, size)]) as name:
            opened = open_file(name)
        return opened, opened.schema_arrow
    except FAILURES as failure:
        raise damaged_footer(path, one_line(failure)) from None


def open_file(name: str, meta: Any = None) -> Any:
    """Open a file here for reading in batches; `meta` is its footer, where that has been read already."""
    return pq.ParquetFile(
        pa.OSFile(os.fsencode(name)),
        metadata=meta,
        pre_buffer=False,
        buffer_size=_BUFFER_BYTES,
        page_checksum_verification=True,
    )


def check_chunks(file: Any, path: str, leaves: Collection[int]) -> None:
    """Look at what the footer says about every column chunk of some leaf columns, without reading data.

    PyArrow's `metadata.row_group(i).column(j)` does not catch what the C++ constructor below it throws for a
    level histogram of the wrong length: the process is aborted. Announcing the chunks for reading goes
    through the same constructor, and there a failure becomes a Python exception. A reader of no rows
    announces the chunks of its first row group, which takes 0.01 ms; one with `pre_buffer` those of all row
    groups, 0.13 ms for a small file and 35 ms for 100,000 chunks.

    Raises
    ------
    InputError
    """
    meta = file.metadata
    if not meta.num_row_groups or not leaves:
        return
    if meta.num_row_groups == 1:
        try:
            next(file.reader.iter_batches(0, [0], sorted(leaves), use_threads=False), None)
        except FAILURES as failure:
            raise damaged_footer(path, one_line(failure)) from None
        return
    nothing = _NoData(place_of(path).size)
    try:
        reader = pq.ParquetFile(pa.PythonFile(nothing, mode="r"), metadata=meta, pre_buffer=True).reader
        next(reader.iter_batches(0, range(meta.num_row_groups), sorted(leaves), use_threads=False), None)
    except FAILURES as failure:
        # Once data are wanted, all chunks have been announced, and the failure is that there are none.
        if not nothing.wanted:
            raise damaged_footer(path, one_line(failure)) from None


class _NoData(io.RawIOBase):
    """A file of which only the size is known.

    It ends where it is read. An exception would do too, but PyArrow keeps those of Python for ever, and with
    them the frames of all callers: 30 KB for each file.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.wanted = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._size if whence == os.SEEK_END else offset

    def tell(self) -> int:
        return self._size

    def read(self, size: int = -1) -> bytes:
        self.wanted = True
        return b""


def damaged_footer(path: str, what: str) -> InputError:
    """Return the error for a footer that contradicts itself or cannot be decoded."""
    return InputError(
        f"the Parquet footer cannot be read: {what}",
        where=path,
        hint="the file is damaged; write or copy it again",
    )


def leaves_of(file: Any, names: Collection[str]) -> list[int]:
    """Return the indexes of the Parquet leaf columns below these columns."""
    schema = file.schema
    paths = [schema.column(index).path for index in range(len(schema))]
    return [
        index for index, path in enumerate(paths) if any(f"{path}.".startswith(f"{one}.") for one in names)
    ]


def values_per_group(meta: Any, leaves: Collection[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (row group, rows, values of its fullest leaf) for each row group with rows.

    A null or empty list counts as one value. Call `check_chunks` for these leaves first.
    """
    for index in range(meta.num_row_groups):
        group = meta.row_group(index)
        if group.num_rows:
            yield index, group.num_rows, max(group.column(leaf).num_values for leaf in leaves)


def runs(groups: Iterable[tuple[int, int, int]], chunk_tokens: int) -> Iterator[tuple[list[int], int]]:
    """Yield consecutive row groups of list columns that are read alike, with the rows of their batches.

    PyArrow counts rows, not tokens: a batch has chunk_tokens / (values per row of the row group) rows, a row
    that is shorter than what its offsets take counting as `_TOKENS_PER_ROW` values. A run
    ends where rows get four times longer or shorter, so that many small row groups cost one scan.

    Parameters
    ----------
    groups : iterable of (row group, rows, values)
        See `values_per_group`.
    chunk_tokens : int
    """
    run: list[int] = []
    low = high = 1
    for index, n_rows, n_values in groups:
        rows = max(1, chunk_tokens * n_rows // max(n_values, _TOKENS_PER_ROW * n_rows))
        if run and (rows > 4 * low or 4 * rows < high):
            yield run, low
            run = []
        low, high = (min(low, rows), max(high, rows)) if run else (rows, rows)
        run.append(index)
    if run:
        yield run, low


def apart(meta: Any, alike: Iterable[tuple[list[int], int]]) -> Iterator[tuple[list[int], int]]:
    """Yield runs of row groups again, each row group by itself where it has enough rows for a batch.

    Such parts can be decoded at once; many small row groups cost less in one scan.
    """
    for groups, rows in alike:
        n_rows = sum(meta.row_group(group).num_rows for group in groups)
        if n_rows < rows * len(groups):
            yield groups, rows
        else:
            yield from (([group], rows) for group in groups)


def in_parts(
    meta: Any, alike: Iterable[tuple[list[int], int]], leaves: Collection[int], most: int
) -> Iterator[tuple[list[int], int]]:
    """Yield runs of row groups again, cut where the chunks of some leaves take more than `most` bytes."""
    for groups, rows in alike:
        part: list[int] = []
        n_bytes = 0
        for index in groups:
            group = meta.row_group(index)
            size = sum(group.column(leaf).total_compressed_size for leaf in leaves)
            if part and n_bytes + size > most:
                yield part, rows
                part, n_bytes = [], 0
            part.append(index)
            n_bytes += size
        if part:
            yield part, rows


def ranges(meta: Any, groups: Iterable[int], leaves: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of bytes that hold the chunks of some leaves."""
    for index in groups:
        group = meta.row_group(index)
        for leaf in leaves:
            chunk = group.column(leaf)
            start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
            if dictionary is not None and 0 < dictionary < start:
                start = dictionary
            yield start, start + chunk.total_compressed_size + _BEHIND_CHUNK


def tiny_row_groups(meta: Any, leaves: Collection[int]) -> str | None:
    """Say that row groups are many and tiny, if they are. `leaves` are those of list columns, if any."""
    n_groups = meta.num_row_groups
    if n_groups <= _MANY_GROUPS or meta.num_rows >= _FEW_ROWS * n_groups:
        return None
    if leaves:
        n_tokens = sum(n_values for _, _, n_values in values_per_group(meta, leaves))
        if n_tokens >= _FEW_TOKENS * n_groups:
            return None
    return (
        f"{n_groups:,} row groups of {meta.num_rows / n_groups:.3g} rows on average: tiny row groups make a "
        "file large and slow to read; write more rows at a time"
    )


def codecs(file: Any, path: str) -> list[str]:
    """Return the codec of each leaf column in the first row group; none without row groups.

    Raises
    ------
    InputError
        A codec that does not exist. To ask PyArrow for its name would abort the process; a reader of no rows
        asks too, reads nothing, and raises.
    """
    meta = file.metadata
    if not meta.num_row_groups or not meta.num_columns:
        return []
    every_leaf = range(meta.num_columns)
    try:
        next(file.reader.iter_batches(0, [0], every_leaf, use_threads=False), None)
    except FAILURES as failure:
        raise damaged_footer(path, one_line(failure)) from None
    group = meta.row_group(0)
    return [group.column(leaf).compression.lower() for leaf in every_leaf]


def writer(meta: Any) -> str | None:
    """Return the library that wrote the file, as far as the footer says it in UTF-8."""
    try:
        return meta.created_by or None
    except UnicodeDecodeError:
        return None


def one_line(failure: Exception) -> str:
    """Return the first line of another library's message."""
    return str(failure).strip().splitlines()[0] if str(failure).strip() else type(failure).__name__
