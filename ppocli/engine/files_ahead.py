"""Small files in flight: the next ones are opened and read while the kernels work on this one."""

from __future__ import annotations

import os
import re
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from ppocli.engine.pipeline import Ready
from ppocli.engine.reading import ID_ROLES
from ppocli.io.ahead import n_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from ppocli.core.chunk import Chunk, Reader
    from ppocli.core.report import InputReport

FEWEST_FILES = 4
"""With fewer files there is nothing to gain."""

SMALL = 1 << 20
"""Bytes up to which a file is read whole in advance, and those after it are."""

AHEAD = 8
"""Files in flight."""

_NUMBER = re.compile(r"u?int\d+")

Asked: TypeAlias = "tuple[frozenset[str], int, bool]"
"""What is asked of `Reader.chunks`."""


def in_flight(paths: Sequence[str], openers: Sequence[Callable[[], Reader]]) -> list[Callable[[], Reader]]:
    """Return functions that open the same inputs, and that open those after them in advance.

    Inputs may be opened in any order and again; only what is opened one after the other is foreseen. What an
    input raises is raised when its turn comes.
    """
    if len(paths) < FEWEST_FILES:
        return list(openers)
    files = _Files(paths, openers)
    return [partial(files.open, index) for index in range(len(paths))]


class _Files:
    """The inputs of a run, and what is in flight of them."""

    def __init__(self, paths: Sequence[str], openers: Sequence[Callable[[], Reader]]) -> None:
        self._paths, self._openers = paths, openers
        self._coming: dict[int, Future[_Foreseen]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._last = len(paths)
        self._asked: dict[object, Asked] = {}

    def open(self, index: int) -> Reader:
        """Open an input, or take it from those in flight."""
        in_turn, self._last = index == self._last + 1, index
        coming = self._coming.pop(index, None)
        if in_turn:
            self._send(index)
        else:
            self._forget()
        return _Foreseen(self._openers[index](), self._asked) if coming is None else coming.result()

    def _send(self, index: int) -> None:
        """Send out the small files that come after one."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(n_workers(AHEAD), "ppocli-files")
        for later in range(index + 1, min(index + 1 + AHEAD, len(self._paths))):
            if later not in self._coming and _is_small(self._paths[later]):
                self._coming[later] = self._pool.submit(self._foresee, later)

    def _foresee(self, index: int) -> _Foreseen:
        """Open and read an input; run by the pool."""
        one = _Foreseen(self._openers[index](), self._asked)
        one.read()
        return one

    def _forget(self) -> None:
        """Give up what is in flight."""
        for one in self._coming.values():
            one.cancel()
            one.add_done_callback(_close)
        self._coming.clear()


def _close(coming: Future[_Foreseen]) -> None:
    """Close an input that nobody wants."""
    if not coming.cancelled() and coming.exception() is None:
        coming.result().close()


def _is_small(path: str) -> bool:
    """Return whether a path is that of a small file."""
    return os.path.isfile(path) and os.path.getsize(path) <= SMALL  # noqa: PTH113, PTH202 (a path costs 10 us)


class _Foreseen:
    """An opened input of which the chunks may be there already: it was read as those before it were."""

    def __init__(self, reader: Reader, asked: dict[object, Asked]) -> None:
        self._reader, self._asked = reader, asked
        self._read: tuple[Asked, list[Chunk]] | None = None
        self._first = True

    @property
    def report(self) -> InputReport:
        """What was found."""
        return self._reader.report

    @property
    def per_row(self) -> frozenset[str]:
        """Roles that are stored once per row; see `ppocli.core.chunk.Reader`."""
        return self._reader.per_row

    def close(self) -> None:
        """Release the file."""
        self._read = None
        self._reader.close()

    def chunks(self, roles: Collection[str], chunk_tokens: int, *, repeat: bool = True) -> Iterator[Chunk]:
        """Yield the rows in stored order; see `ppocli.core.chunk.Reader`."""
        asked = frozenset(roles), chunk_tokens, repeat
        if self._first:  # what comes after it, such as the short form of `drift`, reads other columns
            self._asked[self._kind()], self._first = asked, False
        read, self._read = self._read, None
        if read is not None and read[0] == asked:
            return Ready(read[1])
        return self._reader.chunks(roles, chunk_tokens, repeat=repeat)

    def read(self) -> None:
        """Read the whole input, if it is one chunk and ids are numbers: text gets its codes in order."""
        asked = self._asked.get(self._kind())
        if asked is None or self._has_text():
            return
        roles, chunk_tokens, repeat = asked
        chunks = self._reader.chunks(roles, chunk_tokens, repeat=repeat)
        try:
            read = list(islice(chunks, 2))
            if len(read) < 2:
                self._read = asked, read
        except Exception:  # raised again when it is read in its turn
            self._read = None

    def _kind(self) -> object:
        """Return what inputs have in common that are read in the same way."""
        report = self._reader.report
        return report.layout, tuple((role, one.dtype) for role, one in report.columns.items())

    def _has_text(self) -> bool:
        """Return whether some id is text."""
        columns = self._reader.report.columns
        return not all(_NUMBER.fullmatch(columns[role].dtype) for role in ID_ROLES if role in columns)
