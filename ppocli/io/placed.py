"""From arrays and their plan to chunks: the reading that NPZ members and arrays in memory share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ppocli.core.chunk import Chunk, Column, IdCoder, Ids
from ppocli.errors import InputError
from ppocli.io import convert

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.chunk import ReadOptions


class Elements(Protocol):
    """The elements of one array in (row, token) order, read once from the start.

    Attributes
    ----------
    slow : bool
        Whether reading is worth a thread of its own.
    """

    slow: bool

    def read(self, count: int) -> NDArray[Any]:
        """Return the next `count` elements, one-dimensional and in native byte order."""

    def finish(self) -> None:
        """Check, after the last element, that the data were whole."""

    def close(self) -> None:
        """Release what reading needed."""


class ArrayElements:
    """The elements of an array in memory."""

    slow = False

    def __init__(self, array: NDArray[Any]) -> None:
        self._flat = convert.frozen(array.reshape(-1))
        self._at = 0

    def read(self, count: int) -> NDArray[Any]:
        """Return the next `count` elements without a copy."""
        self._at += count
        return self._flat[self._at - count : self._at]

    def finish(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Source:
    """The array of one role.

    Attributes
    ----------
    column : str
        Its name.
    dtype : str
        Element type by which it is read.
    spread : {"token", "row", "all"}
    dims : int
        See `shapes.Placement`.
    open : callable
        Makes its `Elements`.
    """

    column: str
    dtype: str
    spread: str
    dims: int
    open: Callable[[], Elements]


@dataclass(slots=True)
class PlacedArrays:
    """All arrays of one input, placed.

    Parameters
    ----------
    path : str
    n_rows : int
    row_tokens : int, optional
        Tokens of every row; None where `offsets` has them, or each row is one token.
    offsets : (n_rows + 1,) int64, optional
        Where the tokens of rows of different lengths start.
    sources : mapping of role to Source
    coders : dict of role to IdCoder
    options : ReadOptions
    """

    path: str
    n_rows: int
    row_tokens: int | None
    offsets: NDArray[np.int64] | None
    sources: Mapping[str, Source]
    coders: dict[str, IdCoder]
    options: ReadOptions

    @property
    def per_row(self) -> frozenset[str]:
        """Roles that are stored once per row, or once for all rows, and repeated over the tokens."""
        if self.row_tokens is None and self.offsets is None:
            return frozenset()
        return frozenset(
            role for role, one in self.sources.items() if one.spread != "token" and role != "mask"
        )

    def chunks(self, roles: Collection[str], chunk_tokens: int, *, repeat: bool = True) -> Iterator[Chunk]:
        """Yield the rows in stored order; see `ppocli.core.chunk.Reader`."""
        opened: dict[str, Elements] = {}
        try:
            for role, source in self.sources.items():
                if role in roles:
                    opened[role] = source.open()
            apart = frozenset() if repeat else self.per_row
            slow = sum(one.slow for one in opened.values())
            with ThreadPoolExecutor(slow) if slow > 1 else contextlib.nullcontext() as pool:
                yield from self._read(opened, max(1, chunk_tokens), apart, pool)
            for one in opened.values():
                one.finish()
        finally:
            for one in opened.values():
                one.close()

    def _read(
        self,
        opened: Mapping[str, Elements],
        chunk_tokens: int,
        apart: frozenset[str],
        pool: Executor | None,
    ) -> Iterator[Chunk]:
        """Yield the rows of opened arrays, slow ones side by side; `apart`: roles of one value a row."""
        constant = {role: one.read(1) for role, one in opened.items() if self.sources[role].spread == "all"}
        for first_row, last_row in self._ranges(chunk_tokens):
            offsets, lengths = self._rows(first_row, last_row)
            n_rows = last_row - first_row
            n_tokens = n_rows if offsets is None else int(offsets[-1])
            arrays: dict[str, NDArray[Any]] = {}
            counts = {
                role: n_tokens * self.sources[role].dims if self.sources[role].spread == "token" else n_rows
                for role in opened
                if role not in constant
            }
            ahead = {
                role: pool.submit(opened[role].read, count)
                for role, count in counts.items()
                if pool is not None and opened[role].slow
            }
            for role, elements in opened.items():
                source = self.sources[role]
                if role in constant:
                    per_row = convert.is_id(role) or role in apart
                    arrays[role] = np.repeat(constant[role], n_rows if per_row else n_tokens)
                    continue
                values = ahead[role].result() if role in ahead else elements.read(counts[role])
                if source.spread == "token":
                    arrays[role] = self._summed(role, values)
                else:
                    # As many codes as tokens are always codes of tokens.
                    per_row = role in apart or (convert.is_id(role) and n_tokens != n_rows)
                    arrays[role] = values if per_row else np.repeat(values, lengths)
            yield self._chunk(arrays, first_row, n_rows, n_tokens, offsets)

    def _ranges(self, chunk_tokens: int) -> Iterator[tuple[int, int]]:
        """Yield (first row, row after the last) of each chunk."""
        if self.offsets is not None:
            start = 0
            while start < self.n_rows:
                limit = self.offsets[start] + chunk_tokens
                reach = int(np.searchsorted(self.offsets, limit, side="right")) - 1
                stop = min(max(start + 1, reach), self.n_rows)
                yield start, stop
                start = stop
            return
        if self.row_tokens is not None:
            rows = max(1, chunk_tokens // max(1, self.row_tokens))
        else:
            rows = convert.flat_rows(chunk_tokens)
        for start in range(0, self.n_rows, rows):
            yield start, min(start + rows, self.n_rows)

    def _rows(self, first: int, last: int) -> tuple[NDArray[np.int64] | None, Any]:
        """Return the offsets of a chunk's rows and their lengths."""
        if self.offsets is not None:
            offsets = self.offsets[first : last + 1] - self.offsets[first]
            return convert.frozen(offsets), np.diff(offsets)
        if self.row_tokens is not None:
            return convert.frozen(
                np.arange(last - first + 1, dtype=np.int64) * self.row_tokens
            ), self.row_tokens
        return None, 1

    def _chunk(
        self,
        arrays: Mapping[str, NDArray[Any]],
        first_row: int,
        n_rows: int,
        n_tokens: int,
        offsets: NDArray[np.int64] | None,
    ) -> Chunk:
        """Turn the values of a chunk's rows into a chunk."""
        mask = None
        if "mask" in arrays:
            source = self.sources["mask"]
            try:
                mask = convert.to_mask(arrays["mask"], None, source.dtype)
            except convert.BadMaskValue as bad:
                raise bad.located(self.path, source.column, first_row, offsets) from None
        ids = {role: self._ids(role, values) for role, values in arrays.items() if convert.is_id(role)}
        columns = {
            role: self._column(role, values) for role, values in arrays.items() if convert.is_value(role)
        }
        return Chunk(
            first_row=first_row,
            n_rows=n_rows,
            n_tokens=n_tokens,
            columns=columns,
            mask=mask,
            offsets=offsets,
            sequence_id=ids.get("sequence_id"),
            group_id=ids.get("group_id"),
            step=ids.get("step"),
        )

    def _column(self, role: str, values: NDArray[Any]) -> Column:
        """Make the column of one role."""
        if role == "token_id":
            return convert.to_token_ids(values, None)
        source = self.sources[role]
        if source.dims == 1:
            values = convert.as_log_probs(values, role, self.options)
        try:
            return convert.to_column(values, None, source.dtype)
        except ValueError as problem:
            raise InputError(f"'{source.column}' ({role}): {problem}", where=self.path) from None

    def _ids(self, role: str, values: NDArray[Any]) -> Ids:
        """Make the ids of one role."""
        if values.dtype.kind == "U":
            texts, index = np.unique(values, return_inverse=True)
            coder = self.coders.setdefault(role, IdCoder())
            values = convert.text_codes([str(one) for one in texts], coder)[index]
        return convert.to_ids(values, None)

    def _summed(self, role: str, values: NDArray[Any]) -> NDArray[Any]:
        """Sum the dimensions of each token in float64."""
        dims = self.sources[role].dims
        if dims == 1:
            return values
        values = convert.as_log_probs(values, role, self.options)
        if values.dtype == np.uint16:
            values = convert.widened(values)
        sums: NDArray[np.float64] = values.reshape(-1, dims).sum(axis=1, dtype=np.float64)
        return sums
