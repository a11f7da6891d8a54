"""Where pairs come from: two columns of one file, or one column each of two files paired token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.chunk import Chunk, Column, Ids
from ppocli.engine.pair_tally import Tally
from ppocli.engine.reading import ID_ROLES
from ppocli.errors import InputError, Lines, one_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.chunk import Reader
    from ppocli.core.report import InputReport

POSITION = "position"

IDS = ("mask", *ID_ROLES)


@dataclass(frozen=True, slots=True)
class Inside:
    """Both sides stand in one file.

    Attributes
    ----------
    reader : Reader
    names : mapping of array name to role
        Under which names the columns go to the comparison.
    """

    reader: Reader
    names: Mapping[str, str]

    @property
    def report(self) -> InputReport:
        """What was read."""
        return self.reader.report

    def chunks(self, chunk_tokens: int) -> Iterator[Chunk]:
        """Yield the chunks of the file with its columns under their names."""
        for chunk in self.reader.chunks({*self.names.values(), *_ids_of(self.reader.report)}, chunk_tokens):
            yield replace(chunk, columns=_renamed(chunk, self.names))


@dataclass(slots=True)
class Piece:
    """Consecutive tokens of one side, with all that may have to agree with the other."""

    path: str
    first_token: int
    n: int
    columns: dict[str, Column]
    keys: dict[str, tuple[NDArray[np.int64], NDArray[np.uint8] | None]]
    mask: NDArray[np.uint8] | None
    ids: dict[str, Ids]
    offsets: NDArray[np.int64] | None
    first_row: int
    tally: Tally | None = None


@dataclass(slots=True)
class Side:
    """The tokens of one side as one stream over all its files, from which any number can be taken.

    Attributes
    ----------
    open_readers : sequence of callable
        One for each file, in order.
    names : mapping of array name to role
    keys : sequence of str
    key_roles : mapping of key to role
        Where a key is read from; a key that is not there is counted.
    """

    open_readers: Sequence[Callable[[], Reader]]
    names: Mapping[str, str]
    keys: Sequence[str]
    key_roles: Sequence[Mapping[str, str]]
    chunk_tokens: int
    rows: RowLengths
    _source: Iterator[Piece] | None = None
    _piece: Piece | None = None
    _at: int = 0
    reports: list[InputReport] = field(default_factory=list)
    tallies: list[Tally] = field(default_factory=list)

    def pieces(self) -> Iterator[Piece]:
        """Yield what is stored, in order."""
        for open_reader, roles in zip(self.open_readers, self.key_roles, strict=True):
            reader = open_reader()
            tally = Tally()
            self.tallies.append(tally)
            try:
                for piece in pieces_of(reader, self.names, self.keys, roles, self.chunk_tokens):
                    piece.tally = tally
                    yield piece
                self.reports.append(reader.report)
            finally:
                reader.close()

    def take(self, most: int) -> Piece | None:
        """Return at most so many tokens, all of one chunk; None at the end."""
        if self._source is None:
            self._source = self.pieces()
        while self._piece is None or self._at == self._piece.n:
            self._piece, self._at = next(self._source, None), 0
            if self._piece is None:
                return None
            self.rows.add(self._piece, side=1)
        start, stop = self._at, min(self._at + most, self._piece.n)
        self._at = stop
        return cut(self._piece, start, stop)


def pieces_of(
    reader: Reader,
    names: Mapping[str, str],
    keys: Sequence[str],
    key_roles: Mapping[str, str],
    chunk_tokens: int,
) -> Iterator[Piece]:
    """Yield the chunks of a file as pieces."""
    report = reader.report
    wanted = {*names.values(), *_ids_of(report), *key_roles.values()}
    counter = Positions()
    at = 0
    for chunk in reader.chunks(wanted, chunk_tokens):
        found = {key: _key(chunk, key, key_roles.get(key), counter, report.path) for key in keys}
        ids = {name: one for name in ID_ROLES if (one := _ids(chunk, name)) is not None}
        if report.layout not in ("flat", "packed"):
            ids.pop("sequence_id", None)
        yield Piece(
            report.path, at, chunk.n_tokens, _renamed(chunk, names), found, chunk.mask, ids, chunk.offsets,
            chunk.first_row,
        )  # fmt: skip
        at += chunk.n_tokens


@dataclass(slots=True)
class Positions:
    """Counts the tokens of each sequence of one file, where no column says their position."""

    counts: dict[int, int] = field(default_factory=dict)

    def of(self, chunk: Chunk) -> NDArray[np.int64]:
        """Return the position of each token in its sequence: in its row, or among those of its id."""
        if chunk.offsets is not None and (
            chunk.sequence_id is None or not _per_token(chunk.sequence_id, chunk)
        ):
            starts = np.repeat(chunk.offsets[:-1], np.diff(chunk.offsets))
            return np.arange(chunk.n_tokens, dtype=np.int64) - starts
        if chunk.sequence_id is None:
            start = self.counts.get(0, 0)
            self.counts[0] = start + chunk.n_tokens
            return np.arange(start, start + chunk.n_tokens, dtype=np.int64)
        codes, inverse = np.unique(chunk.sequence_id.codes, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        sizes = np.bincount(inverse, minlength=codes.size)
        before = np.array([self.counts.get(int(code), 0) for code in codes], dtype=np.int64)
        out = np.empty(chunk.n_tokens, dtype=np.int64)
        first = np.repeat(np.cumsum(sizes) - sizes, sizes)
        out[order] = np.arange(chunk.n_tokens) - first + np.repeat(before, sizes)
        for code, size in zip(codes.tolist(), sizes.tolist(), strict=True):
            self.counts[code] = self.counts.get(code, 0) + size
        return out


def cut(piece: Piece, start: int, stop: int) -> Piece:
    """Return some tokens of a piece, without its rows unless it is taken whole."""
    if start == 0 and stop == piece.n:
        return piece
    part = slice(start, stop)
    return Piece(
        piece.path,
        piece.first_token + start,
        stop - start,
        {name: _sliced(column, part) for name, column in piece.columns.items()},
        {key: (codes[part], _part(there, part)) for key, (codes, there) in piece.keys.items()},
        _part(piece.mask, part),
        {name: Ids(one.codes[part], None if one.present is None else one.present[part])
         for name, one in piece.ids.items()},
        None,
        piece.first_row,
        piece.tally,
    )  # fmt: skip


def _sliced(column: Column, part: slice) -> Column:
    return Column(column.values[part], _part(column.present, part))


def _part(marks: NDArray[np.uint8] | None, part: slice) -> NDArray[np.uint8] | None:
    return None if marks is None else marks[part]


def _ids_of(report: InputReport) -> set[str]:
    """Return the ids and the mask that a file has and a comparison reads."""
    rows = report.layout not in ("flat", "packed")
    return {name for name in IDS if name in report.columns and not (rows and name == "sequence_id")}


def _renamed(chunk: Chunk, names: Mapping[str, str]) -> dict[str, Column]:
    """Return the columns under the names of the comparison."""
    return {name: chunk.columns[role] for name, role in names.items() if role in chunk.columns}


def _per_token(ids: Ids, chunk: Chunk) -> bool:
    return ids.codes.size == chunk.n_tokens


def _ids(chunk: Chunk, name: str) -> Ids | None:
    """Return ids for each token."""
    ids: Ids | None = getattr(chunk, name)
    if ids is None or chunk.offsets is None or _per_token(ids, chunk):
        return ids
    lengths = np.diff(chunk.offsets)
    present = None if ids.present is None else np.repeat(ids.present, lengths)
    return Ids(np.repeat(ids.codes, lengths), present)


def _key(
    chunk: Chunk, key: str, role: str | None, positions: Positions, path: str
) -> tuple[NDArray[np.int64], NDArray[np.uint8] | None]:
    """Return the codes of a key for each token, and which of them are there."""
    if key == POSITION and role is None:
        return positions.of(chunk), None
    if role in ID_ROLES:
        ids = _ids(chunk, str(role))
        if ids is not None:
            return ids.codes, ids.present
    elif role is not None and role in chunk.columns:
        column = chunk.columns[role]
        return np.asarray(column.values, dtype=np.int64), column.present
    raise InputError(
        f"no column for the key '{key}'",
        where=path,
        hint=f"leave it out of --key: tokens are paired in stored order; '{POSITION}' needs no column",
    )


def two_places(a: str, b: str) -> Lines:
    """Return where two sides do not fit, a line for each."""
    return Lines(f"{one_line(a)}\n{one_line(b)}")


@dataclass(slots=True)
class RowLengths:
    """Compares the lengths of rows of two sides, which arrive in portions of different size."""

    names: tuple[str, str]
    waiting: tuple[list[tuple[str, int, NDArray[np.int64]]], list[tuple[str, int, NDArray[np.int64]]]] = (
        field(default_factory=lambda: ([], []))
    )
    flat: list[bool] = field(default_factory=lambda: [False, False])

    def add(self, piece: Piece, side: int) -> None:
        """Take the rows of a piece; where one side has none there is nothing to compare."""
        if piece.offsets is None:
            self.flat[side] = True
        else:
            self.waiting[side].append((piece.path, piece.first_row, np.diff(piece.offsets)))

    def check(self) -> None:
        """Compare as many rows as both sides have by now."""
        if any(self.flat):
            for queue in self.waiting:
                queue.clear()
            return
        mine, other = self.waiting
        while mine and other:
            (path, row, lengths), (path_too, row_too, lengths_too) = mine[0], other[0]
            n = min(lengths.size, lengths_too.size)
            differ = lengths[:n] != lengths_too[:n]
            if differ.any():
                k = int(differ.argmax())
                raise InputError(
                    f"the lengths differ: {int(lengths[k]):,} tokens on side a, {int(lengths_too[k]):,} on b",
                    where=two_places(
                        f"{path}, row {row + k}, {self.names[0]}",
                        f"{path_too}, row {row_too + k}, {self.names[1]}",
                    ),
                    hint="both sides must hold the same sequences in the same order; nothing is padded",
                )
            for queue, (one, first, sizes) in ((mine, mine[0]), (other, other[0])):
                if sizes.size == n:
                    queue.pop(0)
                else:
                    queue[0] = (one, first + n, sizes[n:])
