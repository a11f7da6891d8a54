"""What a file is by its first bytes, and what is said of files that are something else."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ppocli.core.url import as_url
from ppocli.errors import InputError, one_line
from ppocli.io.places import place_of
from ppocli.io.spool import STDIN
from ppocli.io.trees import LOCAL

if TYPE_CHECKING:
    from ppocli.io.trees import Tree

Format = Literal["parquet", "npz", "arrow", "jsonl", "npy"]

_HEAD = 64
"""Bytes that are looked at."""

_MAGICS: tuple[tuple[bytes, Format], ...] = (
    (b"PAR1", "parquet"),
    (b"PK", "npz"),
    (b"ARROW1", "arrow"),
    (b"\xff\xff\xff\xff", "arrow"),
    (b"\x93NUMPY", "npy"),
)

# What other files begin with, and what to say about them.
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (b"FEA1", "a Feather file of version 1", "write it again: pyarrow.feather.write_feather(table, path)"),
    (b"\x89HDF", "an HDF5 file", "write its columns as Parquet or with np.savez"),
    (b"\x1f\x8b", "a gzip-compressed file", "decompress it first: gzip -dc FILE | ppocli eval -"),
    (b"\x28\xb5\x2f\xfd", "a zstd-compressed file", "decompress it first: zstd -dc FILE | ppocli eval -"),
    (b"[", "a JSON array", "write one object per line (JSON Lines): jq -c '.[]' FILE"),
    (b"PARE", "an encrypted Parquet file", "decrypt it first"),
)

_TORCH = (".pt", ".pth", ".ckpt")


def format_of(path: str) -> Format:
    """Return what a file is by its first bytes.

    Raises
    ------
    InputError
        Missing, unreadable, empty or of another format.
    """
    head = _head(path)
    for magic, kind in _MAGICS:
        if head.startswith(magic):
            if kind == "npz" and Path(path).suffix.lower() in _TORCH:
                raise _torch_file(path)  # these are zip archives, too, and cut ones look like cut NPZ files
            return kind
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return "jsonl"
    raise _foreign(path, head)


def not_found(path: str, tree: Tree = LOCAL) -> InputError:
    """Build the error for a path that does not exist, with near names of its folder."""
    if re.match(r"(s3|gs|gcs|hf|abfss?):/[^/]", path):
        hint = "a URL has two slashes, of which pathlib.Path leaves one: give it as text"
        return InputError("no such file", where=path, hint=hint)
    folder = tree.folder(path)
    names = tree.near(folder)
    what = "no such file" if tree is LOCAL else "no such object"
    if names is None:
        hint = f"the folder '{one_line(folder)}' does not exist either"
        return InputError(what, where=path, hint=hint)
    near = difflib.get_close_matches(tree.name(path), names, n=3)
    likely = " or ".join(f"'{one_line(tree.joined(folder, name))}'" for name in near)
    return InputError(what, where=path, hint=f"did you mean {likely}?" if near else None)


def _head(path: str) -> bytes:
    """Return the first bytes of a regular file."""
    is_local = as_url(path) is None and path != STDIN
    try:
        if is_local and Path(path).is_dir():
            raise InputError("a directory, not a file", where=path)
        if is_local and Path(path).exists() and not Path(path).is_file():
            raise InputError("not a regular file", where=path, hint="pipe it into: ppocli eval -")
        with place_of(path).open(buffering=0, until=_HEAD) as file:
            head = file.read(_HEAD)
    except FileNotFoundError:
        raise not_found(path) from None
    except OSError as failure:
        raise InputError(
            f"the file cannot be read: {(failure.strerror or '?').lower()}", where=path
        ) from None
    if not head:
        what, hint = "the file", "its writer was stopped before it wrote anything; write or copy it again"
        if path == STDIN:
            what, hint = "standard input", "the program before the pipe wrote nothing"
        raise InputError(
            f"{what} is empty (0 bytes)",
            where=path,
            hint=hint,
        )
    return head


def _torch_file(path: str) -> InputError:
    """Return the refusal; NumPy is imported for it."""
    from ppocli.io.npz import torch_file

    return torch_file(path)


def _foreign(path: str, head: bytes) -> InputError:
    """Build the error for a file of another format."""
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return _torch_file(path)
    if len(head) > 8 and head[8:9] == b"{" and head[6:8] == b"\0\0":  # after the length of its header
        hint = "load it with safetensors.numpy.load_file and write the arrays with np.savez(path, **arrays)"
        return InputError("a safetensors file, which is not read", where=path, hint=hint)
    if Path(path).suffix.lower() in (".csv", ".tsv"):
        hint = "read it with pyarrow.csv.read_csv and write it with pyarrow.parquet.write_table"
        return InputError("a table of text, which is not read", where=path, hint=hint)
    for magic, name, hint in _FOREIGN:
        if head.startswith(magic):
            return InputError(f"{name}, which is not read", where=path, hint=hint)
    return InputError(
        f"not a file of a known format (Parquet, NPZ, Arrow, JSON Lines, NPY): it begins with {head[:8]!r}",
        where=path,
        hint="write the columns with ppocli.RolloutWriter, pyarrow.parquet.write_table or np.savez",
    )
