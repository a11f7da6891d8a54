"""Folders and patterns in stores of objects, looked up with few requests: as `trees.LocalTree` does here."""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyarrow import fs

from ppocli.core.url import Url
from ppocli.errors import InputError
from ppocli.io.stores import bucket_of, failed, no_bucket, path_of, store_of
from ppocli.io.trees import hidden, natural_key

_AT_ONCE = 8
"""Look-ups at a time."""


class RemoteTree:
    """What there is in the bucket of a URL. Each look-up is made once.

    Parameters
    ----------
    url : Url

    Raises
    ------
    UsageProblem, InputError, StorageError
        See `stores.store_of`.
    """

    def __init__(self, url: Url) -> None:
        self._url = url
        self._store = store_of(url)
        if glob.has_magic(url.host):
            raise InputError("a pattern cannot stand for buckets", where=url, hint="name the bucket")
        self._seen: dict[str, Any] = {}
        self._listed: dict[str, dict[str, bool]] = {}
        # PyArrow lists the folders of Google's store only where there are objects for the folders themselves.
        self._lists_folders = url.scheme not in ("gs", "gcs")
        self._bucket_exists: bool | None = None

    def real(self, path: str) -> str:
        """Return what tells two objects apart."""
        return path

    def kind(self, path: str) -> str | None:
        """Return "file", "directory", or None where there is nothing.

        Raises
        ------
        StorageError
            The bucket does not exist, or the credentials are refused.
        InputError
            The connection fails.
        """
        url = self._own(path)
        if any(listed.get(url.key) for listed in list(self._listed.values())):
            return "directory"
        if url.key not in self._seen:
            self._seen[url.key] = self._look(url)
        info = self._seen[url.key]
        if info.type == fs.FileType.NotFound:
            return None
        return "file" if info.type == fs.FileType.File else "directory"

    def problem(self, path: str) -> str | None:
        """Return why an object that was listed is not read; there is no reason."""
        return None

    def parts(self, path: str) -> tuple[str, ...]:
        """Return the parts of a key."""
        return tuple(self._own(path).key.split("/"))

    def name(self, path: str) -> str:
        """Return the last part of a key: what a suffix is looked for at."""
        return self.parts(path)[-1]

    def sized(self, path: str) -> str:
        """Return a URL with the size that was listed for it."""
        url = self._own(path)
        info = self._seen.get(url.key)
        return url.at(url.key, None if info is None else info.size)

    def walk(self, directory: str, entered: set[str]) -> Iterator[str]:
        """Yield the objects below a folder in natural order; hidden folders as they are, unentered."""
        base = self._own(directory).key
        found: dict[str, None] = {}
        for key, is_folder in self._below(base).items():
            if is_folder:
                continue
            parts = key[len(base) :].strip("/").split("/")
            shut = next((index for index, part in enumerate(parts[:-1]) if hidden(part)), None)
            if shut is not None:
                key = "/".join((*([base] if base else []), *parts[: shut + 1]))
            found[key] = None
        for key in sorted(found, key=natural_key):
            yield self._url.at(key)

    def glob(self, pattern: str) -> Iterator[str]:
        """Yield what a pattern matches, in natural order."""
        bases, parts = [""], list(self.parts(pattern))
        while parts:
            if parts[0] == "**":
                bases = [key for base in bases for key in self._deep(base, parts)]
                break
            if glob.has_magic(parts[0]):
                part, *parts = parts
                listed = self._mapped(self._names, bases)
                bases = [
                    key
                    for found in listed
                    for key, is_folder in found
                    if fnmatch.fnmatchcase(key.rpartition("/")[2], part) and (is_folder or not parts)
                ]
                continue
            length = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts))
            plain, parts = "/".join(parts[:length]), parts[length:]
            bases = [f"{base}/{plain}" if base else plain for base in bases]
            if not parts:
                kinds = self._mapped(lambda key: self.kind(self._url.at(key)), bases)
                bases = [key for key, kind in zip(bases, kinds, strict=True) if kind is not None]
        for key in sorted(dict.fromkeys(bases), key=natural_key):
            yield self._url.at(key)

    def near(self, directory: str) -> list[str] | None:
        """Return the names in a folder, or None where there is no such folder."""
        try:
            names = [key.rpartition("/")[2] for key, _ in self._names(self._own(directory).key)]
        except InputError:
            return None
        return sorted(names, key=natural_key) or None

    def folder(self, path: str) -> str:
        """Return the URL of the folder that an object is in."""
        url = self._own(path)
        return url.at(url.key.rpartition("/")[0])

    def joined(self, directory: str, name: str) -> str:
        """Return the URL of a name in a folder."""
        url = self._own(directory)
        return url.at(f"{url.key}/{name}" if url.key else name)

    def _own(self, path: str) -> Url:
        """Return a path of this tree as the URL that it is."""
        assert isinstance(path, Url)
        return path

    def _mapped(self, look: Any, keys: list[str]) -> list[Any]:
        """Look up several keys at once."""
        if len(keys) < 2:
            return [look(key) for key in keys]
        with ThreadPoolExecutor(_AT_ONCE, "ppocli-listing") as pool:
            return list(pool.map(look, keys))

    def _names(self, base: str) -> list[tuple[str, bool]]:
        """Return what stands in a folder, and whether it is a folder."""
        start = len(base) + 1 if base else 0
        found = self._below(base, recursive=not self._lists_folders)
        return [(key, is_folder) for key, is_folder in found.items() if "/" not in key[start:]]

    def _deep(self, base: str, parts: list[str]) -> Iterator[str]:
        """Yield what a pattern that begins with `**` matches below a folder."""
        listed = self._below(base)
        if _fits([], parts) and base and self.kind(self._url.at(base)) == "directory":
            yield base
        for key in listed:
            if _fits(key[len(base) :].strip("/").split("/"), parts):
                yield key

    def _below(self, base: str, *, recursive: bool = True) -> dict[str, bool]:
        """List a folder: each key, and whether it is a folder. Nothing where there is none."""
        known = next((one for one in list(self._listed) if not one or f"{base}/".startswith(f"{one}/")), None)
        if known is not None:
            start = f"{base}/" if base else ""
            return {key: folder for key, folder in self._listed[known].items() if key.startswith(start)}
        found: dict[str, bool] = {}
        for info in self._infos(base, recursive=recursive):
            key = self._key(info.path)
            found[key] = info.type == fs.FileType.Directory
            self._seen[key] = info
            # Not every store lists the folders that there are only by the names of objects.
            parent = key.rpartition("/")[0]
            while len(parent) > len(base) and parent not in found:
                found[parent] = True
                parent = parent.rpartition("/")[0]
        if recursive:
            self._listed[base] = found
        return found

    def _infos(self, base: str, *, recursive: bool) -> list[Any]:
        """Ask for what is in a folder."""
        url = self._url.at(base)
        found: list[Any] = []
        try:
            selector = fs.FileSelector(path_of(url), recursive=recursive, allow_not_found=True)
            found = self._store.get_file_info(selector)
        except FileNotFoundError:  # Google's store says so of buckets
            self._check_bucket(url)
        except Exception as failure:  # of the stores' libraries, and of many kinds
            raise failed(url, failure, "the folder cannot be listed", whole=True) from None
        if not found and not base:
            self._check_bucket(url)
        return found

    def _look(self, url: Url) -> Any:
        """Ask for one object or folder."""
        try:
            info = self._store.get_file_info(path_of(url))
        except Exception as failure:
            raise failed(url, failure, "the object cannot be read", whole=True) from None
        if info.type == fs.FileType.NotFound:
            self._check_bucket(url)
        return info

    def _check_bucket(self, url: Url) -> None:
        """Refuse a bucket that does not exist; where that is not told, an object is what is missing."""
        if self._bucket_exists is None:
            try:
                found = self._store.get_file_info(bucket_of(url))
                self._bucket_exists = found.type != fs.FileType.NotFound
            except Exception:  # whoever may read objects may not be allowed to ask for the bucket
                self._bucket_exists = True
        if not self._bucket_exists:
            raise no_bucket(url)

    def _key(self, path: str) -> str:
        """Return the key of a path in the store."""
        root = path_of(self._url.at("")).strip("/")
        return path.strip("/").removeprefix(root).strip("/") if root else path.strip("/")


def _fits(parts: list[str], pattern: list[str]) -> bool:
    """Return whether parts of a key fit parts of a pattern, `**` standing for any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_fits(parts[skipped:], pattern[1:]) for skipped in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])
