"""Parquet: bounded batches inside row groups, list columns brought to tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ppocli.core.chunk import Chunk, Column, IdCoder, Ids, ReadOptions
from ppocli.core.report import ColumnReport, InputReport
from ppocli.core.roles import MAIN_ROLES
from ppocli.errors import InputError
from ppocli.io import convert, footer, lists
from ppocli.io.ahead import in_order, n_workers
from ppocli.io.fields import Field, array_of, find_fields

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
        self._coders = dict(coders)
        self._null_rows = (0, 0)
        self._file, schema = footer.open_footer(path)
        found = find_fields(schema, path, options, required)
        self._found, self._fields, self._depth = found, found.by_role, found.depth
        leaves = footer.leaves_of(self._file, {field.column for field in self._fields.values()})
        footer.check_chunks(self._file, path, leaves)
        tiny = footer.tiny_row_groups(self._file.metadata, leaves if self._depth else ())
        self._report = InputReport(
            path=path,
            format="parquet",
            layout=found.layout,
            rows=self._file.metadata.num_rows,
            bytes=Path(path).stat().st_size,
            columns={role: ColumnReport(one.column, one.dtype) for role, one in self._fields.items()},
            notes=(*found.notes, *([tiny] if tiny else ())),
        )

    @property
    def report(self) -> InputReport:
        """What was found; a pass over the data adds a note about null rows."""
        count = self._null_rows[1]
        if not count:
            return self._report
        rows = "1 row is" if count == 1 else f"{count} rows are"
        note = f"{rows} null in every column and passed over"
        return replace(self._report, notes=(*self._report.notes, note))

    def close(self) -> None:
        """Close the file."""
        self._file.close(force=True)

    def chunks(self, roles: Collection[str], chunk_tokens: int) -> Iterator[Chunk]:
        """Yield the rows in stored order; see `ppocli.core.chunk.Reader`.

        Raises
        ------
        InputError
            A page that cannot be decoded or whose checksum is wrong, lists of different lengths in a row, a
            mask value other than 0 and 1.
        """
        chunk_tokens = max(1, chunk_tokens)
        wanted = [role for role in self._fields if role in roles]
        read = self._found.to_read(wanted)
        first_row = null_rows = 0
        for batch in self._batches(read, chunk_tokens):
            arrays = {role: array_of(batch, field.column) for role, field in read.items()}
            for start, stop in _cuts(arrays, batch.num_rows, chunk_tokens):
                rows = {role: array.slice(start, stop - start) for role, array in arrays.items()}
                chunk = self._chunk(rows, wanted, first_row, stop - start)
                null_rows += chunk.n_null_rows
                first_row += stop - start
                yield chunk
        # A pass over fewer roles can find more rows without a value; the widest one is told.
        self._null_rows = max(self._null_rows, (len(wanted), null_rows))

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

    def _in_order(self, names: list[str], runs: list[tuple[list[int], int]]) -> Generator[Any, None, None]:
        """Yield the batches of all runs, several of which are read at once where there are several."""
        workers = n_workers(len(runs))
        if workers > 1:
            yield from in_order([partial(self._read_apart, names, *run) for run in runs], workers)
        else:
            for groups, rows in runs:
                yield from self._file.iter_batches(rows, row_groups=groups, columns=names)

    def _read_apart(self, names: list[str], groups: list[int], rows: int) -> Iterator[Any]:
        """Yield the batches of a run from a file opened for it: a PyArrow reader is for one thread."""
        with contextlib.closing(footer.open_file(self.path, self._file.metadata)) as file:
            yield from file.iter_batches(rows, row_groups=groups, columns=names, use_threads=False)

    def _runs(self, names: list[str], chunk_tokens: int) -> Iterator[tuple[list[int], int]]:
        """Yield consecutive row groups that are read together, with the rows of their batches."""
        meta = self._file.metadata
        if self._depth:
            values = footer.values_per_group(meta, footer.leaves_of(self._file, names))
            alike = footer.runs(values, chunk_tokens)
        else:
            alike = iter([(list(range(meta.num_row_groups)), convert.flat_rows(chunk_tokens))])
        yield from footer.apart(meta, alike)

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

    def _chunk(self, arrays: dict[str, Any], wanted: list[str], first_row: int, n_rows: int) -> Chunk:
        """Turn rows of a batch into a chunk."""
        for role, array in arrays.items():
            if self._fields[role].summed:
                arrays[role] = lists.sum_innermost(array, self._fields[role].dtype)
        n_tokens, n_null_rows, offsets = n_rows, 0, None
        if self._depth:
            per_row = {role: arrays.pop(role) for role in tuple(arrays) if self._is_row_id(role)}
            names = {role: field.column for role, field in self._fields.items()}
            aligned = lists.RowAligner(self.path, names).align(arrays, first_row)
            n_tokens, n_null_rows = int(aligned.offsets[-1]), aligned.n_null_rows
            if n_tokens == n_rows:
                # As many codes as tokens are always codes of tokens.
                index = pa.array(np.repeat(np.arange(n_rows), np.diff(aligned.offsets)))
                per_row = {role: array.take(index) for role, array in per_row.items()}
            arrays = {**aligned.arrays, **per_row}
            offsets = convert.frozen(aligned.offsets)
        ids = {role: self._ids(role, arrays[role]) for role in wanted if convert.is_id(role)}
        return Chunk(
            first_row=first_row,
            n_rows=n_rows,
            n_tokens=n_tokens,
            columns={role: self._column(role, arrays[role]) for role in wanted if convert.is_value(role)},
            mask=self._mask(arrays["mask"], first_row, offsets) if "mask" in wanted else None,
            offsets=offsets,
            sequence_id=ids.get("sequence_id"),
            group_id=ids.get("group_id"),
            step=ids.get("step"),
            n_null_rows=n_null_rows,
        )

    def _is_row_id(self, role: str) -> bool:
        """Return whether a role's column holds one id per row."""
        return convert.is_id(role) and self._fields[role].depth == 0

    def _column(self, role: str, array: Any) -> Column:
        """Make the column of one role."""
        field = self._fields[role]
        if role == "token_id":
            return convert.to_token_ids(lists.values_of(array), lists.present_of(array))
        try:
            return convert.to_column(lists.values_of(array), lists.present_of(array), field.dtype)
        except ValueError as problem:
            raise InputError(f"column '{field.column}' ({role}): {problem}", where=self.path) from None

    def _ids(self, role: str, array: Any) -> Ids:
        """Make the ids of one role."""
        try:
            codes = lists.codes_of(array, self._coders.setdefault(role, IdCoder()))
        except UnicodeDecodeError:
            raise InputError(
                f"column '{self._fields[role].column}' ({role}) holds text that is not UTF-8", where=self.path
            ) from None
        return convert.to_ids(codes, lists.present_of(array))

    def _mask(self, array: Any, first_row: int, offsets: NDArray[np.int64] | None) -> NDArray[np.uint8]:
        """Make the mask."""
        field = self._fields["mask"]
        try:
            return convert.to_mask(lists.values_of(array), lists.present_of(array), field.dtype)
        except convert.BadMaskValue as bad:
            raise bad.located(self.path, field.column, first_row, offsets) from None


def _cuts(arrays: Mapping[str, Any], n_rows: int, chunk_tokens: int) -> Iterator[tuple[int, int]]:
    """Cut a batch whose rows turned out longer than the mean of their row group."""
    nested = [lists.leaf_ends(array) for array in arrays.values() if lists.is_list(array.type)]
    ends = max(nested, key=lambda one: int(one[-1] - one[0]), default=None)
    if ends is None or ends[-1] - ends[0] <= 2 * chunk_tokens:
        yield 0, n_rows
        return
    start = 0
    while start < n_rows:
        reach = int(np.searchsorted(ends, ends[start] + chunk_tokens, side="right")) - 1
        stop = min(max(start + 1, reach), n_rows)
        yield start, stop
        start = stop
