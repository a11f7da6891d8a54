"""Parquet: bounded batches inside row groups, list columns brought to tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ppocli.core.report import ColumnReport, InputReport
from ppocli.core.roles import MAIN_ROLES
from ppocli.errors import InputError
from ppocli.io import bombs, convert, footer
from ppocli.io.ahead import in_order, n_workers
from ppocli.io.batches import BatchChunker
from ppocli.io.canonical import origins_of
from ppocli.io.fields import find_fields
from ppocli.io.pages import check_pages
from ppocli.io.places import place_of

if TYPE_CHECKING:
    from ppocli.core.chunk import Chunk, IdCoder, ReadOptions
    from ppocli.io.fields import Field


REMOTE_BYTES = 1 << 25
"""Of a file in a store, about so many bytes of row groups are fetched at a time, each part on a thread."""

REMOTE_WORKERS = 4
"""Parts of such a file that are read at once, however many processors there are: they wait for the store."""

RELEASED_AFTER = 4
"""Batches after which a flat file with ids lets the allocator give back what it keeps.

It keeps up to 70 MB more than is in use, which tables of a million ids have no room for: 400 MB become 360.
Other files take less, and reading them would cost a fifth more.
"""
TABLES = ("sequence_id", "group_id")


class ParquetReader:
    """One Parquet file.

    Flat columns, list columns of any kind, and lists of lists; see `lists.RowAligner` for how columns of
    different nesting meet. Batches are bounded by tokens inside a row group, so that a row group of any size
    streams.

    Parameters
    ----------
    path : str
    options : ReadOptions
    coders : mapping of role to IdCoder
        Give text ids their codes; a role without one gets its own.
    required : collection of str
        Roles that must be found; see `columns.resolve`.

    Raises
    ------
    InputError
        A footer that cannot be read, a missing or ambiguous role, a type or nesting that its role does not
        take.
    """

    def __init__(
        self,
        path: str,
        options: ReadOptions,
        coders: Mapping[str, IdCoder],
        required: Collection[str] = MAIN_ROLES,
    ) -> None:
        self.path, self._place = path, place_of(path)
        self._file, schema = footer.open_footer(path)
        found = find_fields(schema, path, options, required)
        self._found, self._fields, self._depth = found, found.by_role, found.depth
        self.origins = origins_of(schema)
        self._chunker = BatchChunker(path, found, options, dict(coders))
        leaves = footer.leaves_of(self._file, {field.column for field in self._fields.values()})
        footer.check_chunks(self._file, path, leaves)
        tiny = footer.tiny_row_groups(self._file.metadata, leaves if self._depth else ())
        self._report = InputReport(
            path=path,
            format="parquet",
            layout=found.layout,
            rows=self._file.metadata.num_rows,
            bytes=self._place.size,
            columns={role: ColumnReport(one.column, one.dtype) for role, one in self._fields.items()},
            notes=(*found.notes, *([tiny] if tiny else ())),
        )

    @property
    def report(self) -> InputReport:
        """What was found; a pass over the data adds a note about null rows."""
        return self._chunker.with_null_rows(self._report)

    @property
    def per_row(self) -> frozenset[str]:
        """Roles that are stored once per row; see `ppocli.core.chunk.Reader`."""
        return self._chunker.per_row

    def close(self) -> None:
        """Close the file."""
        self._file.close(force=True)

    def chunks(self, roles: Collection[str], chunk_tokens: int, *, repeat: bool = True) -> Iterator[Chunk]:
        """Yield the rows in stored order; see `ppocli.core.chunk.Reader`.

        Raises
        ------
        InputError
            A page that cannot be decoded or whose checksum is wrong, lists of different lengths in a row, a
            mask value other than 0 and 1.
        """
        chunk_tokens = max(1, chunk_tokens)
        wanted = [role for role in self._fields if role in roles]
        batches = self._batches(self._found.to_read(wanted), chunk_tokens)
        yield from self._chunker.chunks(batches, wanted, chunk_tokens, repeat=repeat)

    def _batches(self, read: Mapping[str, Field], chunk_tokens: int) -> Iterator[Any]:
        """Yield record batches of about `chunk_tokens` tokens."""
        names = sorted({field.column for field in read.values()})
        first_row = 0
        runs = list(self._runs(names, chunk_tokens))
        most_rows = max((rows for _, rows in runs), default=1)
        batches = self._in_order(names, runs)
        try:
            while (batch := next(batches, None)) is not None:
                first_row += batch.num_rows
                yield batch
        except footer.FAILURES as failure:
            raise self._damaged(names, first_row, most_rows, failure) from None
        finally:
            batches.close()
        declared = self._file.metadata.num_rows
        if first_row != declared:
            raise footer.damaged_footer(
                self.path, f"it counts {declared:,} rows, and there are {first_row:,}"
            )

    def _in_order(self, names: list[str], runs: list[tuple[list[int], int]]) -> Generator[Any, None, None]:
        """Yield the batches of all runs, several of which are read at once where there are several."""
        workers = n_workers(len(runs))
        if self._place.remote:
            workers = max(workers, min(len(runs), REMOTE_WORKERS))
        if workers > 1 or self._place.remote:
            yield from in_order([partial(self._read_apart, names, *run) for run in runs], workers)
        else:
            for groups, rows in runs:
                self._check_pages(self._place.whole(), names, groups)
                threads = self._file.metadata.num_rows > rows  # for one batch they take longer to call
                yield from self._released(
                    self._file.iter_batches(rows, row_groups=groups, columns=names, use_threads=threads),
                    names,
                )

    def _read_apart(self, names: list[str], groups: list[int], rows: int) -> Iterator[Any]:
        """Yield the batches of a run from a file opened for it: a PyArrow reader is for one thread."""
        meta = self._file.metadata
        leaves = footer.leaves_of(self._file, names)
        with self._place.part(footer.ranges(meta, groups, leaves)) as name:
            self._check_pages(name, names, groups)
            with contextlib.closing(footer.open_file(name, meta)) as file:
                yield from self._released(
                    file.iter_batches(rows, row_groups=groups, columns=names, use_threads=False), names
                )

    def _released(self, batches: Iterator[Any], names: list[str]) -> Iterator[Any]:
        """Pass batches on; where the file makes tables of ids, unused memory is given back now and then."""
        ids = {self._fields[role].column for role in TABLES if role in self._fields}
        if self._depth or ids.isdisjoint(names):
            yield from batches
            return
        for count, batch in enumerate(batches, start=1):
            yield batch
            del batch
            if count % RELEASED_AFTER == 0:  # by this thread, whose memory it is
                pa.default_memory_pool().release_unused()

    def _check_pages(self, file: str, names: list[str], groups: list[int]) -> None:
        """Refuse row groups whose page headers would fill the memory; see `pages`."""
        leaves = footer.leaves_of(self._file, names)
        check_pages(file, self.path, self._file.metadata, groups, leaves)

    def _runs(self, names: list[str], chunk_tokens: int) -> Iterator[tuple[list[int], int]]:
        """Yield consecutive row groups that are read together, with the rows of their batches."""
        meta = self._file.metadata
        if self._depth:
            leaves = footer.leaves_of(self._file, names)
            values = self._checked(footer.values_per_group(meta, leaves), leaves)
            alike = footer.runs(values, chunk_tokens)
        else:
            alike = iter([(list(range(meta.num_row_groups)), convert.flat_rows(chunk_tokens))])
        cut = footer.apart(meta, alike)
        if self._place.remote:
            cut = footer.in_parts(meta, cut, footer.leaves_of(self._file, names), REMOTE_BYTES)
        yield from cut

    def _checked(
        self, groups: Iterator[tuple[int, int, int]], leaves: Collection[int]
    ) -> Iterator[tuple[int, int, int]]:
        """Pass row groups on, but none whose rows would fill the memory; see `bombs`."""
        for index, n_rows, n_values in groups:
            row = 4 * n_values // n_rows
            if row > bombs.MOST_AT_ONCE:
                group = self._file.metadata.row_group(index)
                stored = max(group.column(leaf).total_compressed_size for leaf in leaves)
                bombs.check(row, stored, "a row", f"{self.path}, row group {index}")
            yield index, n_rows, n_values

    def _damaged(self, names: list[str], first_row: int, rows: int, failure: Exception) -> InputError:
        """Build the error for pages that cannot be decoded; a batch over several row groups is read again."""
        meta = self._file.metadata
        ends = np.cumsum([meta.row_group(index).num_rows for index in range(meta.num_row_groups)])
        bounds = [first_row, min(first_row + rows, int(ends[-1])) - 1]
        first, last = np.searchsorted(ends, bounds, side="right").tolist()
        bad = next((index for index in range(first, last) if self._fails(names, index, rows)), last)
        return InputError(
            f"the data are damaged: {footer.one_line(failure)}",
            where=f"{self.path}, row group {bad}",
            hint="write or copy the file again",
        )

    def _fails(self, names: list[str], group: int, rows: int) -> bool:
        """Return whether a row group cannot be read to its end."""
        try:
            for _ in self._read_apart(names, [group], rows):
                pass
        except footer.FAILURES:
            return True
        return False
