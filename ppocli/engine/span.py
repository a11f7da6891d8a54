"""Cutting chunks into spans of whole blocks, so that block limits never depend on how a file was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppocli.core.chunk import Chunk, Ids

Array = NDArray[Any]

STORED = "stored mask"
"""The mask as it was before rules left tokens out."""

MASKS = ("mask", STORED)
"""Arrays that begin as 1 where a file has none."""
LARGE = 32
"""Blocks from which on copying a chunk takes longer than a span more, 0.2 ms."""


@dataclass(slots=True, eq=False)
class Span:
    """Consecutive tokens of one file; all but the last span of a file hold a whole number of blocks.

    Attributes
    ----------
    origin, n_tokens : int
        Index in the file of the first token, and how many there are.
    arrays : mapping of name to (n_tokens,) array
        Roles, and per-token "mask", "sequence_id", "group_id", "step"; "NAME present" marks nulls.
    row_starts : (n,) int64, optional
        Index in the file of each row's first token, from the row that holds the span's first token on.
        None: each row is one token.
    first_row : int
        Row of `row_starts[0]`.
    own : set of str
        Arrays that were made here, and may be written to.
    """

    origin: int
    n_tokens: int
    arrays: dict[str, Array]
    row_starts: NDArray[np.int64] | None = None
    first_row: int = 0
    own: set[str] = field(default_factory=set)

    def writable(self, name: str, dtype: Any) -> Array:
        """Return an array of this span's own; a new one begins with zeros, a mask with nothing masked."""
        if name not in self.arrays:
            begin = np.ones if name in MASKS else np.zeros
            self.arrays[name] = begin(self.n_tokens, dtype=dtype)
        elif name not in self.own:
            # What was read may be the caller's own memory.
            self.arrays[name] = self.arrays[name].copy()
        self.own.add(name)
        return self.arrays[name]

    def parts(self, n_tokens: int) -> Iterator[Span]:
        """Yield the span in parts of so many tokens, which look at its arrays."""
        for a in range(0, self.n_tokens, n_tokens):
            b = min(a + n_tokens, self.n_tokens)
            arrays = {name: values[a:b] for name, values in self.arrays.items()}
            yield Span(self.origin + a, b - a, arrays, self.row_starts, self.first_row)

    def rows_of(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each token, given by its index in the file."""
        if self.row_starts is None:
            return tokens
        return self.first_row + np.searchsorted(self.row_starts, tokens, side="right") - 1

    def start_of_row(self, row: int) -> int:
        """Return the index in the file of a row's first token."""
        return row if self.row_starts is None else int(self.row_starts[row - self.first_row])


@dataclass(slots=True)
class Assembler:
    """Joins chunks of one file and gives them out as spans of whole blocks."""

    block: int
    _pieces: list[dict[str, Array]] = field(default_factory=list)
    _row_starts: NDArray[np.int64] | None = None
    _first_row: int = 0
    _origin: int = 0
    _n_open: int = 0

    def push(self, chunk: Chunk) -> Iterator[Span]:
        """Take a chunk; give out the whole blocks that are there."""
        self._add_rows(chunk)
        if chunk.n_tokens:
            arrays, n_tokens = _arrays_of(chunk), chunk.n_tokens
            if self._n_open and n_tokens >= LARGE * self.block:
                # The open block is filled and given out by itself: joining would copy the whole chunk.
                missing = self.block - self._n_open
                self._pieces.append({name: values[:missing] for name, values in arrays.items()})
                self._n_open += missing
                yield self._take(self._n_open)
                arrays = {name: values[missing:] for name, values in arrays.items()}
                n_tokens -= missing
            self._pieces.append(arrays)
            self._n_open += n_tokens
        whole = self._n_open // self.block * self.block
        if whole:
            yield self._take(whole)

    def finish(self) -> Iterator[Span]:
        """Give out what is left."""
        if self._n_open:
            yield self._take(self._n_open)

    def _add_rows(self, chunk: Chunk) -> None:
        """Remember where the rows of a chunk start."""
        if chunk.offsets is None:
            return
        starts = chunk.offsets[:-1] + (self._origin + self._n_open)
        if self._row_starts is None:
            self._row_starts, self._first_row = starts, chunk.first_row
        else:
            self._row_starts = np.concatenate([self._row_starts, starts])

    def _take(self, n: int) -> Span:
        """Cut the first n open tokens off."""
        joined = join(self._pieces, self._n_open)
        span = Span(
            origin=self._origin,
            n_tokens=n,
            arrays={name: values[:n] for name, values in joined.items()},
            row_starts=self._row_starts,
            first_row=self._first_row,
        )
        self._origin += n
        self._n_open -= n
        # The tail is copied: a view would keep the whole chunk in memory.
        self._pieces = [{name: values[n:].copy() for name, values in joined.items()}] if self._n_open else []
        if self._row_starts is not None:
            row = max(int(np.searchsorted(self._row_starts, self._origin, side="right")) - 1, 0)
            self._row_starts = self._row_starts[row:].copy()
            self._first_row += row
        return span


def _arrays_of(chunk: Chunk) -> dict[str, Array]:
    """Name all arrays of a chunk, ids spread over tokens."""
    arrays: dict[str, Array] = {}
    for role, column in chunk.columns.items():
        arrays[role] = column.values
        if column.present is not None:
            arrays[f"{role} present"] = column.present
    if chunk.mask is not None:
        arrays["mask"] = chunk.mask
    for name, ids in (("sequence_id", chunk.sequence_id), ("group_id", chunk.group_id), ("step", chunk.step)):
        if ids is not None:
            arrays[name] = _per_token(ids, ids.codes, chunk)
            if ids.present is not None:
                arrays[f"{name} present"] = _per_token(ids, ids.present, chunk)
    return arrays


def _per_token(ids: Ids, values: Array, chunk: Chunk) -> Array:
    """Repeat a value per row over the tokens of its row."""
    if chunk.offsets is None or ids.codes.size == chunk.n_tokens:
        return values
    return np.repeat(values, np.diff(chunk.offsets))


def join(pieces: list[dict[str, Array]], n_tokens: int) -> dict[str, Array]:
    """Concatenate; an array that some pieces lack marks values as present, or counted, there."""
    if len(pieces) == 1:
        return pieces[0]
    names = dict.fromkeys(name for piece in pieces for name in piece)
    lengths = [next(iter(piece.values())).size for piece in pieces]
    out: dict[str, Array] = {}
    for name in names:
        parts = [
            piece[name] if name in piece else np.ones(length, dtype=np.uint8)
            for piece, length in zip(pieces, lengths, strict=True)
        ]
        out[name] = np.concatenate(parts)
    return out
