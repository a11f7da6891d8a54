"""Folders and patterns of this machine, and what is the same in stores of objects (`remote_paths`)."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ppocli.core.url import as_url
from ppocli.errors import InputError

if TYPE_CHECKING:
    from ppocli.io.remote_paths import RemoteTree

    Tree: TypeAlias = "LocalTree | RemoteTree"


class LocalTree:
    """The file system of this machine."""

    def real(self, path: str) -> str:
        """Return what tells two files apart, whatever the spelling of their paths."""
        return os.path.realpath(path)

    def kind(self, path: str) -> str | None:
        """Return "directory", "file" for all else that exists (a broken link too), or None."""
        if not os.path.lexists(path):
            return None
        return "directory" if Path(path).is_dir() else "file"

    def problem(self, path: str) -> str | None:
        """Return why a path that was found is not read, if so."""
        if not Path(path).exists():
            return "broken link"
        return None if Path(path).is_file() else "not a regular file"

    def parts(self, path: str) -> tuple[str, ...]:
        """Return the parts of a path."""
        return Path(path).parts

    def name(self, path: str) -> str:
        """Return what a suffix is looked for at."""
        return Path(path).name

    def sized(self, path: str) -> str:
        """Return a path as it is: sizes are asked for when they are needed."""
        return path

    def walk(self, directory: str, entered: set[str]) -> Iterator[str]:
        """Yield the files below a directory in natural order; hidden directories as they are, unentered.

        Each directory is entered once, even if links form a circle.
        """
        real = os.path.realpath(directory)
        if real in entered:
            return
        entered.add(real)
        try:
            names = sorted(os.listdir(directory), key=natural_key)  # noqa: PTH208 (joined as given)
        except OSError as failure:
            raise InputError(f"the directory cannot be read: {failure.strerror}", where=directory) from None
        for name in names:
            path = name if os.path.normpath(directory) == "." else self.joined(directory, name)
            if Path(path).is_dir() and not hidden(name):
                yield from self.walk(path, entered)
            else:
                yield path

    def glob(self, pattern: str) -> Iterator[str]:
        """Yield what a pattern matches, in natural order."""
        matches = glob.glob(pattern, recursive=True, include_hidden=True)  # noqa: PTH207 (Path has no such)
        yield from sorted(matches, key=natural_key)

    def near(self, directory: str) -> list[str] | None:
        """Return the names in a folder, or None where there is no such folder."""
        folder = Path(directory)
        return sorted((one.name for one in folder.iterdir()), key=natural_key) if folder.is_dir() else None

    def folder(self, path: str) -> str:
        """Return the folder that a file is in."""
        return str(Path(path).parent)

    def joined(self, directory: str, name: str) -> str:
        """Return the path of a name in a folder, spelt as the folder is, or the name alone in this one."""
        if directory == ".":
            return name
        return os.path.join(directory, name)  # noqa: PTH118


LOCAL = LocalTree()


class Trees:
    """The trees of one look-up of paths, those of stores made once."""

    def __init__(self) -> None:
        self._remote: dict[tuple[object, ...], RemoteTree] = {}

    def of(self, path: str) -> Tree:
        """Return where a path is looked up.

        Raises
        ------
        UsageProblem, InputError, StorageError
            See `remote_paths.RemoteTree`.
        """
        url = as_url(path)
        if url is None:
            return LOCAL
        bucket = url.at("").identity
        if bucket not in self._remote:
            from ppocli.io.remote_paths import RemoteTree

            self._remote[bucket] = RemoteTree(url)
        return self._remote[bucket]


def natural_key(path: str) -> list[list[str | int]]:
    """Return a sort key by which numbers in the parts of a path count as numbers."""
    return [
        [int(piece) if index % 2 else piece for index, piece in enumerate(re.split(r"([0-9]+)", part))]
        for part in Path(path).parts
    ]


def hidden(name: str) -> str | None:
    """Return why a name marks a file that is not data, if it does."""
    return {".": "hidden", "_": "name begins with an underscore"}.get(name[:1])
