"""Two files side by side: their tokens are paired in stored order, and whatever does not fit is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.chunk import Chunk, Column, IdCoder, Ids
from ppocli.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.chunk import Reader
    from ppocli.core.report import InputReport
from ppocli.engine.pair_source import Piece, Side, pieces_of, two_places


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
            if not mine.n:
                n_rows = 0 if mine.offsets is None else mine.offsets.size - 1
                yield Chunk(mine.first_row, n_rows, 0, {}, offsets=mine.offsets)
                continue
            theirs = self._matching(mine)
            columns = {**mine.columns, **_joined_columns([one.columns for one in theirs])}
            mask = self._mask(mine, theirs)
            _count(theirs, mask)
            ids = {**_joined_ids(theirs), **mine.ids}
            if mine.offsets is not None and "sequence_id" not in mine.ids:
                ids.pop("sequence_id", None)
            n_rows = mine.n if mine.offsets is None else mine.offsets.size - 1
            sequence, group, step = (ids.get(name) for name in ("sequence_id", "group_id", "step"))
            yield Chunk(
                mine.first_row, n_rows, mine.n, columns, mask, mine.offsets, sequence, group, step
            )  # fmt: skip

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
            where=two_places(f"{mine.path}, token {mine.first_token + at}", f"{last}, its end"),
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
        alike = ""
        if ours == others:
            alike = "; null is equal to nothing" if "null" in ours else "; one is text, the other a number"
        return InputError(
            f"the keys differ: {ours} on side a, {others} on side b{alike}",
            where=two_places(
                f"{mine.path}, token {mine.first_token + at}",
                f"{piece.path}, token {piece.first_token + at_other}",
            ),
            hint="both sides must hold the same keys in the same stored order: sort both in the same way, "
            "and leave out what only one side has",
        )

    def _mask(self, mine: Piece, theirs: Sequence[Piece]) -> NDArray[np.uint8] | None:
        """Return which tokens count on both sides."""
        if all(one.mask is None for one in theirs):
            return mine.mask
        other = np.concatenate([np.ones(one.n, np.uint8) if one.mask is None else one.mask for one in theirs])
        if mine.mask is None:
            return other
        self.n_mask_differs += int(np.count_nonzero(mine.mask != other))
        both: NDArray[np.uint8] = mine.mask & other
        return both


def _count(theirs: Sequence[Piece], mask: NDArray[np.uint8] | None) -> None:
    """Count what the other side has, in the file where it has it."""
    at = 0
    for one in theirs:
        if one.tally is not None:
            part = None if mask is None else mask[at : at + one.n]
            one.tally.add(one.columns, one.first_token, one.n, part)
        at += one.n


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
                [
                    np.ones(one.values.size, np.uint8) if one.present is None else one.present
                    for one in columns
                ]
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
