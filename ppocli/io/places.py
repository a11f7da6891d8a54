"""Where the bytes of an input are: in a file here, or in an object of a store. Readers ask only this."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, cast

from ppocli.core.url import Url, as_url
from ppocli.io.spool import local

if TYPE_CHECKING:
    from ppocli.io.remote import RemotePlace

    Place: TypeAlias = "LocalPlace | RemotePlace"


class LocalPlace:
    """A file here, or standard input. `remote.RemotePlace` has the same attributes and methods.

    Attributes
    ----------
    remote : bool
        Reading costs a request and a wait: read what is needed, in few and large pieces.
    size : int
        Bytes.
    notes : tuple of str
        What the report says of how it is read.
    """

    remote = False
    notes: tuple[str, ...] = ()

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def size(self) -> int:
        """Bytes."""
        return Path(local(self._path)).stat().st_size

    def open(self, buffering: int = -1, until: int | None = None) -> IO[bytes]:
        """Open it for reading from its start; nothing behind `until` is read ahead."""
        return cast("IO[bytes]", Path(local(self._path)).open("rb", buffering=buffering))

    @contextlib.contextmanager
    def part(self, ranges: Iterable[tuple[int, int]]) -> Iterator[str]:
        """Give the path of a file of the same size that holds these (start, stop) ranges: the file itself."""
        yield local(self._path)

    def whole(self) -> str:
        """Return the path of a file that holds all of it: the file itself."""
        return local(self._path)


def place_of(path: str) -> Place:
    """Return where the bytes of a path are; standard input is copied to a file first.

    Raises
    ------
    InputError, StorageError, UsageProblem
        See `spool.local`, `remote.RemotePlace`. A local file that is missing fails where it is opened.
    """
    url = as_url(path)
    return LocalPlace(path) if url is None else _remote(*url.identity)


# Of the objects read last: what is known of them, their beginnings and ends, and copies of those that are
# read whole. Two inputs are read at a time at most, each by several readers.
@functools.lru_cache(maxsize=4)
def _remote(*identity: Any) -> Place:
    """Return the place of an object by what identifies its URL."""
    from ppocli.io.remote import RemotePlace

    return RemotePlace(Url(*identity))


def forget() -> None:
    """Forget objects and stores: a new evaluation sees what has been written meanwhile."""
    _remote.cache_clear()
    stores = sys.modules.get("ppocli.io.stores")  # imported where there was a URL
    if stores is not None:
        stores.forget()
