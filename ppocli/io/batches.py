"""From Arrow record batches to chunks: what all readers of tables share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ppocli.core.chunk import Chunk, Column, IdCoder, Ids
from ppocli.errors import InputError
from ppocli.io import convert, lists
from ppocli.io.fields import SAMPLE_MASK
from ppocli.io.structures import array_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.chunk import ReadOptions
    from ppocli.core.report import InputReport
    from ppocli.io.fields import Field, Fields


@dataclass(slots=True)
class BatchChunker:
    """Turns the record batches of one file into chunks.

    Flat columns, list columns of any kind, and lists of lists; see `lists.RowAligner` for how columns of
    different nesting meet.

    Parameters
    ----------
    path : str
        For messages.
    found : Fields
    options : ReadOptions
    coders : dict of role to IdCoder
        Give text ids their codes; a role without one gets its own.
    """

    path: str
    found: Fields
    options: ReadOptions
    coders: dict[str, IdCoder]
    _null_rows: tuple[int, int] = field(default=(0, 0), init=False)

    @property
    def per_row(self) -> frozenset[str]:
        """Roles that are stored once per row and repeated over its tokens."""
        if not self.found.depth:
            return frozenset()
        fields = self.found.by_role.items()
        return frozenset(role for role, one in fields if one.depth == 0 and role != "mask")

    def with_null_rows(self, report: InputReport) -> InputReport:
        """Return the report with a note about rows that are null in every column, if a pass found any."""
        count = self._null_rows[1]
        if not count:
            return report
        rows = "1 row is" if count == 1 else f"{count} rows are"
        return replace(report, notes=(*report.notes, f"{rows} null in every column and passed over"))

    def chunks(
        self, batches: Iterable[Any], wanted: list[str], chunk_tokens: int, *, repeat: bool = True
    ) -> Iterator[Chunk]:
        """Yield the rows of batches that hold the columns `found.to_read(wanted)`.

        Parameters
        ----------
        batches : iterable of RecordBatch
        wanted : list of str
            Roles.
        chunk_tokens : int
            A batch of more than twice as many tokens is cut.
        repeat : bool
            False: columns of `per_row` roles keep one value per row.

        Raises
        ------
        InputError
            Lists of different lengths in a row, a mask value other than 0 and 1, text that is not UTF-8.
        """
        read = self.found.to_read(wanted)
        first_row = null_rows = 0
        for batch in batches:
            arrays = {role: array_of(batch, one.column) for role, one in read.items()}
            for start, stop in _cuts(arrays, batch.num_rows, chunk_tokens):
                rows = {role: array.slice(start, stop - start) for role, array in arrays.items()}
                chunk = self._chunk(rows, wanted, first_row, stop - start, repeat)
                null_rows += chunk.n_null_rows
                first_row += stop - start
                yield chunk
        # A pass over fewer roles can find more rows without a value; the widest one is told.
        self._null_rows = max(self._null_rows, (len(wanted), null_rows))

    def _chunk(
        self, arrays: dict[str, Any], wanted: list[str], first_row: int, n_rows: int, repeat: bool
    ) -> Chunk:
        """Turn rows of a batch into a chunk."""
        fields = self._fields
        for role, array in arrays.items():
            if fields[role].summed:
                arrays[role] = lists.sum_innermost(array, partial(self._plain, role))
        n_tokens, n_null_rows, offsets = n_rows, 0, None
        if self.found.depth:
            apart = {role: arrays.pop(role) for role in tuple(arrays) if self._stays_apart(role, repeat)}
            names = {role: one.column for role, one in fields.items()}
            aligned = lists.RowAligner(self.path, names).align(arrays, first_row)
            n_tokens, n_null_rows = int(aligned.offsets[-1]), aligned.n_null_rows
            if n_tokens == n_rows and repeat:
                # As many codes as tokens are always codes of tokens.
                index = pa.array(np.repeat(np.arange(n_rows), np.diff(aligned.offsets)))
                apart = {role: array.take(index) for role, array in apart.items()}
            arrays = {**aligned.arrays, **apart}
            offsets = convert.frozen(aligned.offsets)
        ids = {role: self._ids(role, arrays[role]) for role in wanted if convert.is_id(role)}
        return Chunk(
            first_row=first_row,
            n_rows=n_rows,
            n_tokens=n_tokens,
            columns={role: self._column(role, arrays[role]) for role in wanted if convert.is_value(role)},
            mask=self._mask(arrays, first_row, offsets) if "mask" in wanted else None,
            offsets=offsets,
            sequence_id=ids.get("sequence_id"),
            group_id=ids.get("group_id"),
            step=ids.get("step"),
            n_null_rows=n_null_rows,
        )

    def _plain(self, role: str, array: Any) -> NDArray[Any]:
        """Return the log-probs of an array of a role's values, wide enough to be summed."""
        values = convert.as_log_probs(lists.values_of(array), role, self.options)
        return convert.widened(values) if values.dtype == np.uint16 else values

    @property
    def _fields(self) -> dict[str, Field]:
        """The columns by role, the second mask among them."""
        second = self.found.sample_mask
        return {**self.found.by_role, **({SAMPLE_MASK: second} if second is not None else {})}

    def _stays_apart(self, role: str, repeat: bool) -> bool:
        """Return whether a column keeps one value per row: ids always, others where it is asked for."""
        if role != SAMPLE_MASK and convert.is_id(role):
            return self.found.by_role[role].depth == 0
        return not repeat and role in self.per_row

    def _column(self, role: str, array: Any) -> Column:
        """Make the column of one role."""
        one = self.found.by_role[role]
        if role == "token_id":
            return convert.to_token_ids(lists.values_of(array), lists.present_of(array))
        values = lists.values_of(array)
        if not one.summed:
            values = convert.as_log_probs(values, role, self.options)
        try:
            return convert.to_column(values, lists.present_of(array), one.dtype)
        except ValueError as problem:
            raise InputError(f"column '{one.column}' ({role}): {problem}", where=self.path) from None

    def _ids(self, role: str, array: Any) -> Ids:
        """Make the ids of one role."""
        try:
            codes = lists.codes_of(array, self.coders.setdefault(role, IdCoder()))
        except UnicodeDecodeError:
            column = self.found.by_role[role].column
            raise InputError(
                f"column '{column}' ({role}) holds text that is not UTF-8", where=self.path
            ) from None
        return convert.to_ids(codes, lists.present_of(array))

    def _mask(
        self, arrays: Mapping[str, Any], first_row: int, offsets: NDArray[np.int64] | None
    ) -> NDArray[np.uint8]:
        """Make the mask of the columns that have a say in it."""
        masks = [
            self._one_mask(role, arrays[role], first_row, offsets)
            for role in ("mask", SAMPLE_MASK)
            if role in arrays
        ]
        if len(masks) == 1 and not self.found.skip_first:
            return masks[0]
        mask: NDArray[np.uint8] = np.minimum.reduce(masks)
        if self.found.skip_first and offsets is not None:
            mask = mask.copy()
            mask[offsets[:-1][np.diff(offsets) > 0]] = 0
        return convert.frozen(mask)

    def _one_mask(
        self, role: str, array: Any, first_row: int, offsets: NDArray[np.int64] | None
    ) -> NDArray[np.uint8]:
        """Read one mask column."""
        one = self._fields[role]
        try:
            return convert.to_mask(lists.values_of(array), lists.present_of(array), one.dtype)
        except convert.BadMaskValue as bad:
            raise bad.located(self.path, one.column, first_row, offsets) from None


def _cuts(arrays: Mapping[str, Any], n_rows: int, chunk_tokens: int) -> Iterator[tuple[int, int]]:
    """Cut a batch of more tokens than were asked for: flat ones at whole blocks, lists between rows."""
    nested = [lists.leaf_ends(array) for array in arrays.values() if lists.is_list(array.type)]
    ends = max(nested, key=lambda one: int(one[-1] - one[0]), default=None)
    if (n_rows if ends is None else ends[-1] - ends[0]) <= 2 * chunk_tokens:
        yield 0, n_rows
        return
    start = 0
    while start < n_rows:
        if ends is None:
            stop = start + convert.flat_rows(chunk_tokens)
        else:
            stop = int(np.searchsorted(ends, ends[start] + chunk_tokens, side="right")) - 1
        stop = min(max(start + 1, stop), n_rows)
        yield start, stop
        start = stop
