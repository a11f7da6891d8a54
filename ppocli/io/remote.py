"""One object of a store: read in few, large requests of the ranges that are needed."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any, cast

from pyarrow import fs

from ppocli.errors import InputError
from ppocli.io.spool import temporary
from ppocli.io.stores import failed, path_of, store_of

if TYPE_CHECKING:
    from ppocli.core.url import Url

EDGE = 1 << 16
"""Bytes of the end, and at first of any place, that one request brings: most footers and directories fit."""

SMALL = 1 << 17
"""Objects up to this size come with one request, whatever is needed of them."""

HOLE = 1 << 17
"""Bytes between two needed ranges that are read rather than asked around: a request takes as long as 1 MB."""

PIECE = 1 << 22
"""The largest request for a range that is known beforehand: several at once are faster than a larger one."""

WINDOW = 1 << 23
"""The largest request of what is read from front to back."""

CONNECTIONS = 8
"""Requests at a time."""


class RemotePlace:
    """An object of a store; see `places.Place`.

    Parameters
    ----------
    url : Url

    Raises
    ------
    InputError
        No such object, a folder, or the connection fails.
    StorageError
        Credentials that are refused, a missing bucket.
    UsageProblem
        See `stores.store_of`.
    """

    remote = True

    def __init__(self, url: Url) -> None:
        self.url = url
        store = store_of(url)
        # A Python file seeks and reads, and so has to be read by one thread at a time.
        self._turn: Any = threading.Lock() if isinstance(store, fs.PyFileSystem) else contextlib.nullcontext()
        with self._failures():
            self._file = store.open_input_file(path_of(url))
            self.size = int(self._file.size())
        self._end: tuple[int, bytes] | None = None
        self._copy: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Say that the object was copied, where it was."""
        if self._copy is None:
            return ()
        return ("copied whole to a temporary file: this format is not read in parts from a store",)

    def read_at(self, start: int, stop: int) -> bytes:
        """Return a range of bytes, clipped to the object's size.

        Raises
        ------
        InputError
            The connection fails, also when it is tried again; the object has become shorter.
        """
        start, stop = max(0, min(start, self.size)), min(stop, self.size)
        if stop <= start:
            return b""
        first = 0 if self.size <= SMALL else max(0, self.size - EDGE)
        if start < first:
            return self._request(start, stop)
        if self._end is None:
            self._end = first, self._request(first, self.size)
        return self._end[1][start - first : stop - first]

    def open(self, buffering: int = -1, until: int | None = None) -> IO[bytes]:
        """Open the object for reading from its start, in windows that grow."""
        raw = _Windows(self, self.size if until is None else min(until, self.size))
        return cast("IO[bytes]", raw if buffering == 0 else io.BufferedReader(raw, EDGE))

    @contextlib.contextmanager
    def part(self, ranges: Iterable[tuple[int, int]]) -> Iterator[str]:
        """Give the path of a temporary file that holds these ranges and is empty elsewhere.

        It takes as much room on the disk as the ranges do, and goes away with the context.
        """
        with contextlib.ExitStack() as opened:
            yield self._filled(opened, ranges)

    def whole(self) -> str:
        """Return the path of a temporary copy, which lasts as long as this object."""
        if self._copy is None:
            opened = contextlib.ExitStack()
            self._copy = self._filled(opened, [(0, self.size)])
            weakref.finalize(self, opened.close)
        return self._copy

    def _filled(self, opened: contextlib.ExitStack, ranges: Iterable[tuple[int, int]]) -> str:
        """Make a temporary file with these ranges."""
        try:
            descriptor, name = opened.enter_context(temporary())
            os.ftruncate(descriptor, self.size)
            for start, data in self._pieces(list(pieces(ranges, self.size))):
                os.pwrite(descriptor, data, start)
        except OSError as failure:
            opened.close()
            raise InputError(
                f"no room for what is read of it in a temporary file: {failure.strerror}",
                where=self.url,
                hint="set TMPDIR to a folder with room",
            ) from None
        except BaseException:
            opened.close()
            raise
        return name

    def _pieces(self, wanted: list[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes of pieces with their places, several asked for at a time and none without need."""
        if len(wanted) == 1:
            yield wanted[0][0], self.read_at(*wanted[0])
            return
        waiting: list[tuple[int, Future[bytes]]] = []
        try:
            for start, stop in wanted:
                if len(waiting) == CONNECTIONS:
                    first, request = waiting.pop(0)
                    yield first, request.result()
                waiting.append((start, _pool().submit(self.read_at, start, stop)))
            while waiting:
                first, request = waiting.pop(0)
                yield first, request.result()
        finally:
            for _, request in waiting:
                request.cancel()

    def _request(self, start: int, stop: int) -> bytes:
        """Ask the store for a range."""
        with self._failures(), self._turn:
            data = bytes(self._file.read_at(stop - start, start))
        if len(data) < stop - start:
            raise InputError(
                f"the object ends {stop - start - len(data):,} bytes early",
                where=self.url,
                hint="was it written again while it was read? Try it again",
            )
        return data

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn failures of the store's library, which are of many kinds, into errors that name the URL."""
        try:
            yield
        except Exception as failure:
            raise failed(self.url, failure, "the object cannot be read", whole=False) from None


class _Windows(io.RawIOBase):
    """An object as a file. What is read from front to back comes in windows of double the size each time."""

    def __init__(self, place: RemotePlace, until: int) -> None:
        self._place, self._until = place, until
        self._at = self._start = 0
        self._window = b""
        self._length = EDGE

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._place.size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, as far as there are bytes."""
        target = memoryview(buffer).cast("B")
        done = 0
        while done < len(target) and self._at < self._place.size:
            if not self._start <= self._at < self._start + len(self._window):
                self._fill()
            offset = self._at - self._start
            taken = min(len(target) - done, len(self._window) - offset)
            target[done : done + taken] = self._window[offset : offset + taken]
            done += taken
            self._at += taken
        return done

    def _fill(self) -> None:
        """Read the window that begins where the file stands."""
        follows = self._window and self._at == self._start + len(self._window)
        wanted = self._at < self._until
        self._length = min(2 * self._length, WINDOW) if follows and wanted else EDGE
        stop = self._at + self._length
        if wanted:
            stop = min(stop, self._until)
        self._start, self._window = self._at, self._place.read_at(self._at, stop)


def pieces(ranges: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Yield the requests that bring some ranges: near ones joined, large ones cut."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted((max(0, start), min(stop, size)) for start, stop in ranges):
        if stop <= start:
            continue
        if joined and start <= joined[-1][1] + HOLE:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    for start, stop in joined:
        for at in range(start, stop, PIECE):
            yield at, min(at + PIECE, stop)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads that wait for stores."""
    return ThreadPoolExecutor(CONNECTIONS, "ppocli-requests")
