"""Where pairs come from: two columns of one file, or one column each of two files paired token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.chunk import Chunk, Column, IdCoder, Ids
from ppocli.engine.reading import ID_ROLES
from ppocli.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.chunk import Reader
    from ppocli.core.report import InputReport

POSITION = "position"
KEYS = ("sequence_id", "group_id", "step", POSITION, "token_id")
"""What tokens of two files can be matched by."""

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

    def pieces(self) -> Iterator[Piece]:
        """Yield what is stored, in order."""
        for open_reader, roles in zip(self.open_readers, self.key_roles, strict=True):
            reader = open_reader()
            try:
                yield from pieces_of(reader, self.names, self.keys, roles, self.chunk_tokens)
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
        found = {
            key: _key(chunk, key, key_roles.get(key), counter, report.path) for key in keys
        }
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
        if chunk.offsets is not None and (chunk.sequence_id is None or not _per_token(chunk.sequence_id, chunk)):
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
        {key: (codes[part], None if there is None else there[part]) for key, (codes, there) in piece.keys.items()},
        None if piece.mask is None else piece.mask[part],
        {name: Ids(one.codes[part], None if one.present is None else one.present[part])
         for name, one in piece.ids.items()},
        None,
        piece.first_row,
    )  # fmt: skip


def _sliced(column: Column, part: slice) -> Column:
    return Column(column.values[part], None if column.present is None else column.present[part])


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
    raise InputError(f"no column for the key '{key}'", where=path)


# ------------------------------------------------------------------------------------------- two files


@dataclass(slots=True)
class Beside:
    """Side a of one file, side b from the stream of the other side, token by token.

    Rows must have the same lengths on both sides where both have rows, and keys must be equal.
    """

    reader: Reader
    names: Mapping[str, str]
    other: Side
    keys: Sequence[str]
    key_roles: Mapping[str, str]
    coders: Mapping[str, IdCoder]
    n_mask_differs: int = 0

    @property
    def report(self) -> InputReport:
        """What was read of side a."""
        return self.reader.report

    def chunks(self, chunk_tokens: int) -> Iterator[Chunk]:
        """Yield the chunks of side a's file with the columns of both."""
        for mine in pieces_of(self.reader, self.names, self.keys, self.key_roles, chunk_tokens):
            self.other.rows.add(mine, side=0)
            theirs = self._matching(mine)
            columns = {**mine.columns, **_joined_columns([one.columns for one in theirs])}
            mask = self._mask(mine, theirs)
            ids = {**_joined_ids(theirs), **mine.ids}
            if mine.offsets is not None and "sequence_id" not in mine.ids:
                ids.pop("sequence_id", None)
            n_rows = mine.n if mine.offsets is None else mine.offsets.size - 1
            yield Chunk(mine.first_row, n_rows, mine.n, columns, mask, mine.offsets, **ids)

    def _matching(self, mine: Piece) -> list[Piece]:
        """Take as many tokens of the other side, and check that they belong to the same keys."""
        out: list[Piece] = []
        at = 0
        while at < mine.n:
            piece = self.other.take(mine.n - at)
            if piece is None:
                raise self._ended(mine, at)
            self._check_keys(mine, at, piece)
            out.append(piece)
            at += piece.n
        self.other.rows.check()
        return out

    def _ended(self, mine: Piece, at: int) -> InputError:
        """Build the error for the other side being shorter."""
        keys = _key_text(mine, at, self.keys, self.coders)
        rest = f"; the first token without a partner has {keys}" if keys else ""
        paths = self.other.reports
        last = paths[-1].path if paths else "the other side"
        return InputError(
            f"side b ends after {mine.first_token + at:,} tokens of '{mine.path}', side a goes on{rest}",
            where=f"{mine.path}, token {mine.first_token + at}\n{last}, its end",
            hint="both sides must hold the same tokens in the same order",
        )

    def _check_keys(self, mine: Piece, at: int, piece: Piece) -> None:
        """Refuse keys that differ."""
        for key in self.keys:
            codes, there = mine.keys[key]
            others, there_too = piece.keys[key]
            part = slice(at, at + piece.n)
            differ = codes[part] != others
            if there is not None or there_too is not None:
                known = np.ones(piece.n, np.uint8) if there is None else there[part]
                known_too = np.ones(piece.n, np.uint8) if there_too is None else there_too
                differ |= (known == 0) | (known_too == 0)
            if differ.any():
                raise self._differs(mine, at + int(differ.argmax()), piece, int(differ.argmax()))

    def _differs(self, mine: Piece, at: int, piece: Piece, at_other: int) -> InputError:
        """Build the error for the first key that differs."""
        ours = _key_text(mine, at, self.keys, self.coders)
        others = _key_text(piece, at_other, self.keys, self.coders)
        return InputError(
            f"the keys differ: {ours} on side a, {others} on side b",
            where=f"{mine.path}, token {mine.first_token + at}\n"
            f"{piece.path}, token {piece.first_token + at_other}",
            hint="both sides must hold the same keys in the same stored order: sort them in the same way, and "
            "leave out what only one side has",
        )

    def _mask(self, mine: Piece, theirs: Sequence[Piece]) -> NDArray[np.uint8] | None:
        """Return which tokens count on both sides."""
        if all(one.mask is None for one in theirs):
            return mine.mask
        other = np.concatenate(
            [np.ones(one.n, np.uint8) if one.mask is None else one.mask for one in theirs]
        )
        if mine.mask is None:
            return other
        self.n_mask_differs += int(np.count_nonzero(mine.mask != other))
        return mine.mask & other


@dataclass(slots=True)
class RowLengths:
    """Compares the lengths of rows of two sides, which arrive in portions of different size."""

    names: tuple[str, str]
    waiting: tuple[list[tuple[str, int, NDArray[np.int64]]], list[tuple[str, int, NDArray[np.int64]]]] = field(
        default_factory=lambda: ([], [])
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
                    f"the lengths differ: {int(lengths[k]):,} tokens on side a, {int(lengths_too[k]):,} on side b",
                    where=f"{path}, row {row + k}, {self.names[0]}\n"
                    f"{path_too}, row {row_too + k}, {self.names[1]}",
                    hint="both sides must hold the same sequences in the same order; nothing is cut or padded",
                )
            for queue, (one, first, sizes) in ((mine, mine[0]), (other, other[0])):
                if sizes.size == n:
                    queue.pop(0)
                else:
                    queue[0] = (one, first + n, sizes[n:])


def _joined_columns(parts: Sequence[Mapping[str, Column]]) -> dict[str, Column]:
    """Concatenate columns."""
    if len(parts) == 1:
        return dict(parts[0])
    out: dict[str, Column] = {}
    for name in parts[0]:
        columns = [one[name] for one in parts]
        present: NDArray[np.uint8] | None = None
        if any(one.present is not None for one in columns):
            present = np.concatenate(
                [np.ones(one.values.size, np.uint8) if one.present is None else one.present for one in columns]
            )
        out[name] = Column(_concatenated([one.values for one in columns]), present)
    return out


def _concatenated(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate values of one type or several; bits of bfloat16 are widened beside other types."""
    if len({one.dtype for one in parts}) > 1:
        from ppocli.engine.blocks import widened

        parts = [widened(one) for one in parts]
    return np.concatenate(parts)


def _joined_ids(parts: Sequence[Piece]) -> dict[str, Ids]:
    """Concatenate the ids that every part has."""
    out: dict[str, Ids] = {}
    for name in parts[0].ids if parts else ():
        if all(name in one.ids for one in parts):
            ids = [one.ids[name] for one in parts]
            present = None
            if any(one.present is not None for one in ids):
                present = np.concatenate(
                    [np.ones(one.codes.size, np.uint8) if one.present is None else one.present for one in ids]
                )
            out[name] = Ids(np.concatenate([one.codes for one in ids]), present)
    return out


def _key_text(piece: Piece, at: int, keys: Sequence[str], coders: Mapping[str, IdCoder]) -> str:
    """Return `sequence_id = 7, position = 3`."""
    parts = []
    for key in keys:
        codes, there = piece.keys[key]
        code = int(codes[at])
        known = there is None or there[at]
        texts = {value: text for text, value in coders[key].codes.items()} if key in coders else {}
        parts.append(f"{key} = {texts.get(code, code) if known else 'null'}")
    return ", ".join(parts)
