"""Parquet: bounded batches inside row groups, list columns brought to tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.report import ColumnReport, InputReport
from ppocli.core.roles import MAIN_ROLES
from ppocli.errors import InputError
from ppocli.io import bombs, convert, footer
from ppocli.io.batches import BatchChunker
from ppocli.io.canonical import origins_of
from ppocli.io.fields import find_fields
from ppocli.io.pages import check_pages
from ppocli.io.spool import local

if TYPE_CHECKING:
    from ppocli.core.chunk import Chunk, IdCoder, ReadOptions
    from ppocli.io.fields import Field


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
        self.path = path
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
            bytes=Path(local(path)).stat().st_size,
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
        leaves = footer.leaves_of(self._file, names)
        for groups, rows in self._runs(names, chunk_tokens):
            check_pages(local(self.path), self.path, self._file.metadata, groups, leaves)
            batches = self._file.iter_batches(rows, row_groups=groups, columns=names)
            while True:
                try:
                    batch = next(batches, None)
                except footer.FAILURES as failure:
                    raise self._damaged(names, first_row, rows, failure) from None
                if batch is None:
                    break
                first_row += batch.num_rows
                yield batch
        declared = self._file.metadata.num_rows
        if first_row != declared:
            raise footer.damaged_footer(
                self.path, f"it counts {declared:,} rows, and there are {first_row:,}"
            )

    def _runs(self, names: list[str], chunk_tokens: int) -> Iterator[tuple[list[int], int]]:
        """Yield consecutive row groups that are read alike, with the rows of their batches."""
        if self._depth:
            leaves = footer.leaves_of(self._file, names)
            groups = footer.values_per_group(self._file.metadata, leaves)
            yield from footer.runs(self._checked(groups, leaves), chunk_tokens)
        else:
            yield list(range(self._file.metadata.num_row_groups)), convert.flat_rows(chunk_tokens)

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
            for _ in self._file.iter_batches(rows, row_groups=[group], columns=names):
                pass
        except footer.FAILURES:
            return True
        return False
