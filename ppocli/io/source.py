"""Paths to files, and files to readers. The one place where paths are looked up and files are told apart."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ppocli.core.roles import MAIN_ROLES
from ppocli.errors import EmptyInput, InputError, one_line
from ppocli.io.detect import format_of, not_found
from ppocli.io.spool import STDIN

if TYPE_CHECKING:
    from ppocli.core.chunk import IdCoder, Reader, ReadOptions
    from ppocli.core.report import Skipped

# What directories and wide patterns stand for. Run folders are full of .jsonl logs and .npy arrays that are
# no rollouts: those are taken when they are named, or matched by a pattern that ends like them.
_SUFFIXES = (".parquet", ".npz", ".arrow", ".arrows")
_NAMED_SUFFIXES = (".jsonl", ".ndjson", ".npy", ".feather", ".ipc")


def expand(paths: Sequence[str]) -> tuple[tuple[str, ...], tuple[Skipped, ...]]:
    """Turn paths, patterns and directories into files.

    A path that exists is taken literally. Other paths with `*`, `?` or `[` are patterns, `**` for any depth.
    Directories stand for all `*.parquet`, `*.npz` and `*.arrow` below them; `*.jsonl` and `*.npy` have to be
    named, or matched by a pattern that ends like them. `-` is standard input. Matches come in natural order
    (`part.2` before `part.10`), arguments in the order given, and each file once, whatever the spelling of
    its path.

    Parameters
    ----------
    paths : sequence of str

    Returns
    -------
    files : tuple of str
    skipped : tuple of Skipped
        Hidden, underscore and foreign files in directories and matches, and repetitions, with the reason.

    Raises
    ------
    InputError
        A path that does not exist and is no pattern.
    EmptyInput
        A pattern or directory without a file to read.
    """
    for path in paths:
        if path != STDIN and not os.path.lexists(path) and not glob.has_magic(path):
            raise not_found(path)
    found = _Found()
    for path in paths:
        if path == STDIN or (os.path.lexists(path) and not Path(path).is_dir()):
            found.add(path)
            continue
        before = found.n_seen
        if Path(path).is_dir():
            found.add_directory(path)
        else:
            found.add_matches(path)
        if found.n_seen == before:
            what = "directory" if Path(path).is_dir() else "pattern"
            raise EmptyInput(
                f"no rollout file in '{path}'" if what == "directory" else f"no file matches '{path}'",
                where=path,
                hint=_what_is_there(path),
            )
    return tuple(found.files.values()), _as_skipped(found.skipped)


def open_input(
    path: str,
    options: ReadOptions,
    coders: Mapping[str, IdCoder],
    required: Collection[str] = MAIN_ROLES,
    *,
    recover: bool = False,
) -> Reader:
    """Open a file by what it holds, not by its name.

    Parameters
    ----------
    path : str
        A local file, or `-` for standard input.
    options : ReadOptions
    coders : mapping of role to IdCoder
        Give text ids their codes, shared by all inputs of a run.
    required : collection of str
        Roles that must be found. Empty: whatever is clear is taken, nothing is refused for being absent.
    recover : bool
        Of an Arrow or JSON Lines file that is cut, read what is whole.

    Raises
    ------
    InputError
        Missing, unreadable, empty, truncated or of another format; and all that the readers refuse.
    """
    kind = format_of(path)
    if recover and kind not in ("arrow", "jsonl"):
        raise InputError(
            "there is nothing to recover in a file of this format",
            where=path,
            hint="--recover is for recordings of RolloutWriter, Arrow files and JSON Lines that were cut",
        )
    if kind == "arrow":
        from ppocli.io.arrow import ArrowReader

        return ArrowReader(path, options, coders, required, recover=recover)
    if kind == "jsonl":
        from ppocli.io.jsonl import JsonlReader

        return JsonlReader(path, options, coders, required, recover=recover)
    if kind == "npy":
        from ppocli.io.npy import NpyReader

        return NpyReader(path, options, coders, required)
    if kind == "parquet":
        from ppocli.io.parquet import ParquetReader

        return ParquetReader(path, options, coders, required)
    from ppocli.io.npz import NpzReader

    return NpzReader(path, options, coders, required)


@dataclass(slots=True)
class _Found:
    """The files collected so far, by real path, and what was passed over."""

    files: dict[str, str] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    n_seen: int = 0

    def add(self, path: str) -> None:
        """Take a file, or note that it is there already."""
        real = STDIN if path == STDIN else os.path.realpath(path)
        self.n_seen += 1
        if real in self.files:
            self.skipped.append((path, f"same file as '{self.files[real]}'"))
        else:
            self.files[real] = path

    def consider(self, path: str, suffixes: tuple[str, ...] = _SUFFIXES) -> None:
        """Take a file from a directory or a pattern if its name and kind are right."""
        reason = None
        if not Path(path).exists():
            reason = "broken link"
        elif not Path(path).is_file():
            reason = "not a regular file"
        elif not path.lower().endswith(suffixes):
            reason = "not named *.parquet, *.npz or *.arrow"
        if reason:
            self.skipped.append((path, reason))
        else:
            self.add(path)

    def add_directory(self, directory: str) -> None:
        """Take the files below a directory, each directory once even if links form a circle."""
        entered: set[str] = set()
        for path in _walk(directory, entered):
            if reason := _hidden(Path(path).name):
                self.skipped.append((path, reason))
            else:
                self.consider(path)

    def add_matches(self, pattern: str) -> None:
        """Take the files that a pattern matches; matched directories stand for the files below them."""
        written = set(re.split(r"[/\\]", pattern))
        literal = _literal_parts(pattern)
        more = tuple(one for one in _NAMED_SUFFIXES if pattern.lower().endswith(one))
        matches = glob.glob(pattern, recursive=True, include_hidden=True)  # noqa: PTH207 (Path has no such)
        for path in sorted(matches, key=natural_key):
            parts = [part for part in Path(path).parts[literal:] if part not in written]
            marks = {part[0] for part in written if part[:1] in (".", "_")}
            reason = next(
                (found for part in parts if part[0] not in marks and (found := _hidden(part))), None
            )
            if Path(path).is_dir():
                if not reason and not pattern.endswith("**"):
                    self.add_directory(path)
            elif reason:
                self.skipped.append((path, reason))
            else:
                self.consider(path, _SUFFIXES + more)


def _as_skipped(pairs: list[tuple[str, str]]) -> tuple[Skipped, ...]:
    """Return paths and reasons as reports have them."""
    if not pairs:
        return ()
    # Takes 6 ms to import, which a look into a single file can do without.
    from ppocli.core.report import Skipped

    return tuple(Skipped(path, reason) for path, reason in pairs)


def natural_key(path: str) -> list[list[str | int]]:
    """Return a sort key by which numbers in the parts of a path count as numbers."""
    return [
        [int(piece) if index % 2 else piece for index, piece in enumerate(re.split(r"([0-9]+)", part))]
        for part in Path(path).parts
    ]


def _hidden(name: str) -> str | None:
    """Return why a name marks a file that is not data, if it does."""
    return {".": "hidden", "_": "name begins with an underscore"}.get(name[:1])


def _literal_parts(pattern: str) -> int:
    """Return how many leading parts of a pattern are plain names."""
    parts = Path(pattern).parts
    return next((index for index, part in enumerate(parts) if glob.has_magic(part)), len(parts))


def _walk(directory: str, entered: set[str]) -> Iterator[str]:
    """Yield the files below a directory in natural order; hidden directories as they are, unentered."""
    real = os.path.realpath(directory)
    if real in entered:
        return
    entered.add(real)
    try:
        names = sorted(os.listdir(directory), key=natural_key)  # noqa: PTH208 (names are joined as given)
    except OSError as failure:
        raise InputError(f"the directory cannot be read: {failure.strerror}", where=directory) from None
    for name in names:
        path = name if os.path.normpath(directory) == "." else os.path.join(directory, name)  # noqa: PTH118
        if Path(path).is_dir() and not _hidden(name):
            yield from _walk(path, entered)
        else:
            yield path


def _what_is_there(path: str) -> str:
    """Return a hint with some names of the folder in which a pattern or directory had no match."""
    folder = Path(*Path(path).parts[: _literal_parts(path)])
    shown = one_line(str(folder))
    if not folder.is_dir():
        return f"the folder '{shown}' does not exist"
    names = sorted((one.name for one in folder.iterdir()), key=natural_key)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    listed = ", ".join(f"'{one_line(name)}'" for name in names[:5])
    for suffix in _NAMED_SUFFIXES:
        if Path(path) == folder and any(name.lower().endswith(suffix) for name in names):
            example = one_line(str(folder / f"*{suffix}"))
            more += f"; {suffix} files have to be named, for example '{example}'"
            break
    return f"'{shown}' holds {listed}{more}" if names else f"'{shown}' is empty"
