"""Windows of whole sequences: spans are held back until the sequences of their tokens have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.engine.span import join
from ppocli.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.engine.span import Span
    from ppocli.engine.totals import Ints

HELD_BYTES = 128 * 2**20
"""What may be held back of a file whose sequences are interleaved."""

KNOWN_IDS = 4_000_000
"""Ended ids that are remembered, to notice one that comes back, where ids do not ascend."""


class NotTogether(InputError):
    """The tokens of each sequence cannot be brought together."""


class Interleaved(Exception):
    """A sequence came back after another had begun: the file is to be read again, and held back whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Stored tokens of whole sequences.

    Attributes
    ----------
    arrays : mapping of name to (n,) array
        As in a span; the tokens of a sequence stand together.
    offsets : (m + 1,) int64
        Where sequences start.
    """

    arrays: dict[str, NDArray[Any]]
    offsets: Ints


Evaluate = Callable[[Window], dict[str, "NDArray[Any]"]]
"""Takes a window and returns arrays to be put beside those of the spans."""


@dataclass(slots=True, eq=False)
class Windows:
    """Makes windows of the spans of one file.

    Attributes
    ----------
    path : str
    by_id : bool
        Sequences are told apart by `sequence_id`, not by rows.
    hold : bool
        Hold the whole file back: its sequences are interleaved.
    evaluate : callable
    """

    path: str
    by_id: bool
    hold: bool
    evaluate: Evaluate
    n_sequences: int = 0
    _spans: list[Span] = field(default_factory=list)
    _done: int = 0
    _ends: int = 0
    _last: int | None = None
    _ended: list[Ints] = field(default_factory=list)
    _ascending: bool = True
    _forgotten: int | None = None

    def through(self, spans: Iterator[Span]) -> Iterator[Span]:
        """Yield the spans again, each when its last sequence has ended and arrays have been put beside it."""
        for span in spans:
            yield from self.push(span)
        yield from self.finish()

    def push(self, span: Span) -> Iterator[Span]:
        """Take a span; yield those whose last sequence has ended."""
        self._spans.append(span)
        self._ends = span.origin + span.n_tokens
        if self.hold:
            self._check_size()
        else:
            yield from self._advance(self._starts(span), whole=False)

    def finish(self) -> Iterator[Span]:
        """End the last sequence and yield what is left."""
        yield from self._advance(np.zeros(0, dtype=np.int64), whole=True)

    def _starts(self, span: Span) -> Ints:
        """Return the tokens of this span, counted from the start of the file, at which sequences start."""
        if not self.by_id:
            starts = span.row_starts
            assert starts is not None
            return starts[(starts >= span.origin) & (starts <= self._ends)]
        codes = _ids(self.path, span)
        begins = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1 if self._last is None else self._last))
        self._remember(codes[begins], span, begins)
        self._last = int(codes[-1])
        return begins + span.origin

    def _remember(self, codes: Ints, span: Span, begins: Ints) -> None:
        """Raise Interleaved where an ended id begins again; ids that ascend cannot."""
        if not codes.size:
            return
        ahead = codes if self._last is None else np.concatenate([[self._last], codes])
        if not (self._ascending and bool((np.diff(ahead) > 0).all())):
            self._ascending = False
            known = np.concatenate([*self._ended, codes[:0]])
            back = np.unique(codes).size < codes.size or bool(np.isin(codes, known).any())
            if back or (self._forgotten is not None and bool((codes <= self._forgotten).any())):
                raise Interleaved
        self._ended.append(codes.copy())
        if sum(part.size for part in self._ended) > KNOWN_IDS:
            if not self._ascending:
                row = int(span.rows_of(begins[:1] + span.origin)[0])
                raise NotTogether(
                    "sequence ids are out of order beyond what can be remembered",
                    where=f"{self.path}, row {row:,}",
                    hint="sort the file by sequence_id",
                )
            self._ended, self._forgotten = [codes[-1:].copy()], int(codes[-1])

    def _advance(self, starts: Ints, *, whole: bool) -> Iterator[Span]:
        """Evaluate the sequences that have ended; give out the spans that are done."""
        end = self._ends if whole else int(starts[-1]) if starts.size else self._done
        if end > self._done or (whole and self._spans):
            self._evaluate(end)
        while self._spans and self._spans[0].origin + self._spans[0].n_tokens <= self._done:
            yield self._spans.pop(0)

    def _evaluate(self, end: int) -> None:
        """Evaluate the sequences between what is done and `end`."""
        parts = []
        for span in self._spans:
            first, last = max(self._done - span.origin, 0), min(end - span.origin, span.n_tokens)
            if first < last:
                parts.append((span, first, last))
        if not parts:
            return
        pieces = [
            {name: values[first:last] for name, values in span.arrays.items()} for span, first, last in parts
        ]
        arrays = join(pieces, end - self._done)
        order, offsets = self._order(arrays, end)
        if order is not None:
            arrays = {name: values[order] for name, values in arrays.items()}
        self.n_sequences += offsets.size - 1
        for name, values in self.evaluate(Window(arrays, offsets)).items():
            back = values
            if order is not None:
                back = np.empty_like(values)
                back[order] = values
            at = 0
            for span, first, last in parts:
                span.writable(name, values.dtype)[first:last] = back[at : at + last - first]
                at += last - first
        self._done = end

    def _order(self, arrays: dict[str, NDArray[Any]], end: int) -> tuple[Ints | None, Ints]:
        """Return the order that puts sequences together (None: they are), and where they start."""
        n = end - self._done
        if not self.by_id:
            starts = np.concatenate([s.row_starts for s in self._spans if s.row_starts is not None])
            inside = np.unique(starts[(starts >= self._done) & (starts < end)]) - self._done
            return None, np.append(inside, n)
        codes = arrays["sequence_id"]
        order = None
        if self.hold:
            order = np.argsort(codes, kind="stable")
            codes = codes[order]
        begins = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1))
        return order, np.append(begins, n)

    def _check_size(self) -> None:
        """Refuse to hold more than fits into memory."""
        held = sum(values.nbytes for span in self._spans for values in span.arrays.values())
        if held > HELD_BYTES:
            raise NotTogether(
                "the tokens of a sequence do not stand together, and the file is too large to sort them",
                where=self.path,
                hint="sort the file by sequence_id, or store one row per sequence",
            )


def _ids(path: str, span: Span) -> Ints:
    """Return the sequence id of each token."""
    present = span.arrays.get("sequence_id present")
    if present is not None and not present.all():
        row = int(span.rows_of(np.array([span.origin + int(present.argmin())]))[0])
        raise NotTogether(
            "sequence_id is null, and the loss needs to know which tokens belong together",
            where=f"{path}, row {row:,}",
            hint="give every token a sequence_id",
        )
    codes: Ints = span.arrays["sequence_id"]
    return codes
