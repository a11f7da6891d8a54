"""Paths to files, and files to readers. The one place where paths are looked up and files are told apart."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ppocli.core.roles import MAIN_ROLES
from ppocli.core.url import addressed, as_local
from ppocli.errors import EmptyInput, InputError, one_line
from ppocli.io import places
from ppocli.io.detect import format_of, not_found
from ppocli.io.spool import STDIN
from ppocli.io.trees import Trees, hidden, natural_key

if TYPE_CHECKING:
    from ppocli.core.chunk import IdCoder, Reader, ReadOptions
    from ppocli.core.report import Skipped

# What directories and wide patterns stand for. Run folders are full of .jsonl logs and .npy arrays that are
# no rollouts: those are taken when they are named, or matched by a pattern that ends like them.
_SUFFIXES = (".parquet", ".npz", ".arrow", ".arrows")
_NAMED_SUFFIXES = (".jsonl", ".ndjson", ".npy", ".feather", ".ipc")


def expand(paths: Sequence[str]) -> tuple[tuple[str, ...], tuple[Skipped, ...]]:
    """Turn paths, URLs, patterns and directories into files.

    A path that exists is taken literally. Other paths with `*`, `?` or `[` are patterns, `**` for any depth.
    Directories stand for all `*.parquet`, `*.npz` and `*.arrow` below them; `*.jsonl` and `*.npy` have to be
    named, or matched by a pattern that ends like them. `-` is standard input. Matches come in natural order
    (`part.2` before `part.10`), arguments in the order given, and each file once, whatever the spelling of
    its path. URLs (`s3://bucket/key`; see `stores`) follow the same rules; files of URLs are
    `ppocli.core.url.Url`, which have no secrets as text.

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
        A path that does not exist and is no pattern; a URL that is not read, or a connection that fails.
    StorageError, UsageProblem
        Of URLs: see `stores`.
    EmptyInput
        A pattern or directory without a file to read.
    """
    places.forget()
    given = [addressed(as_local(path)) for path in paths]
    found = _Found()
    for path in given:
        if path != STDIN and found.trees.of(path).kind(path) is None and not _is_pattern(path):
            raise not_found(path, found.trees.of(path))
    for path in given:
        kind = "file" if path == STDIN else found.trees.of(path).kind(path)
        if kind == "file":
            found.add(path)
            continue
        before = found.n_seen
        if kind == "directory":
            found.add_directory(path)
        else:
            found.add_matches(path)
        if found.n_seen == before:
            raise EmptyInput(
                f"no rollout file in '{path}'" if kind else f"no file matches '{path}'",
                where=path,
                hint=_what_is_there(path, found.trees),
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
        A file, a URL, or `-` for standard input.
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

    trees: Trees = field(default_factory=Trees)
    files: dict[str, str] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    n_seen: int = 0

    def add(self, path: str) -> None:
        """Take a file, or note that it is there already."""
        tree = self.trees.of(path)
        real = STDIN if path == STDIN else tree.real(path)
        self.n_seen += 1
        if real in self.files:
            self.skipped.append((path, f"same file as '{self.files[real]}'"))
        else:
            self.files[real] = path if path == STDIN else tree.sized(path)

    def consider(self, path: str, suffixes: tuple[str, ...] = _SUFFIXES) -> None:
        """Take a file from a directory or a pattern if its name and kind are right."""
        tree = self.trees.of(path)
        reason = tree.problem(path)
        if reason is None and not tree.name(path).lower().endswith(suffixes):
            reason = "not named *.parquet, *.npz or *.arrow"
        if reason:
            self.skipped.append((path, reason))
        else:
            self.add(path)

    def add_directory(self, directory: str) -> None:
        """Take the files below a directory."""
        tree = self.trees.of(directory)
        for path in tree.walk(directory, set()):
            if reason := hidden(tree.name(path)):
                self.skipped.append((path, reason))
            else:
                self.consider(path)

    def add_matches(self, pattern: str) -> None:
        """Take the files that a pattern matches; matched directories stand for the files below them."""
        tree = self.trees.of(pattern)
        written = set(re.split(r"[/\\]", "/".join(tree.parts(pattern))))
        literal = _literal_parts(tree.parts(pattern))
        last = tree.name(pattern)
        more = tuple(one for one in _NAMED_SUFFIXES if last.lower().endswith(one))
        for path in tree.glob(pattern):
            parts = [part for part in tree.parts(path)[literal:] if part not in written]
            marks = {part[0] for part in written if part[:1] in (".", "_")}
            reason = next((why for part in parts if part[0] not in marks and (why := hidden(part))), None)
            if tree.kind(path) == "directory":
                if not reason and not last.endswith("**"):
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


def _is_pattern(path: str) -> bool:
    """Return whether a path has characters that stand for others; options of a URL do not count."""
    return glob.has_magic(getattr(path, "key", path))


def _literal_parts(parts: Sequence[str]) -> int:
    """Return how many leading parts of a pattern are plain names."""
    return next((index for index, part in enumerate(parts) if glob.has_magic(part)), len(parts))


def _what_is_there(path: str, trees: Trees) -> str:
    """Return a hint with some names of the folder in which a pattern or directory had no match."""
    tree = trees.of(path)
    folder, parts = path, tree.parts(path)
    for _ in range(len(parts) - _literal_parts(parts)):
        folder = tree.folder(folder)
    shown = one_line(folder)
    names = tree.near(folder)
    if names is None:
        return f"the folder '{shown}' does not exist"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    listed = ", ".join(f"'{one_line(name)}'" for name in names[:5])
    for suffix in _NAMED_SUFFIXES:
        if path == folder and any(name.lower().endswith(suffix) for name in names):
            example = one_line(tree.joined(folder, f"*{suffix}"))
            more += f"; {suffix} files have to be named, for example '{example}'"
            break
    return f"'{shown}' holds {listed}{more}" if names else f"'{shown}' is empty"


__all__ = ["expand", "natural_key", "open_input"]
