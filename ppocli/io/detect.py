"""What a file is by its first bytes, and what is said of files that are something else."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Literal

from ppocli.errors import InputError, one_line
from ppocli.io.spool import STDIN, local

Format = Literal["parquet", "npz", "arrow", "jsonl", "npy"]

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


def not_found(path: str) -> InputError:
    """Build the error for a path that does not exist, with near names of its folder."""
    if "://" in path:
        return InputError("only local files are read", where=path, hint="copy the file here first")
    folder = Path(path).parent
    if not folder.is_dir():
        return InputError(
            "no such file", where=path, hint=f"the folder '{one_line(str(folder))}' does not exist either"
        )
    names = [one.name for one in folder.iterdir()]
    near = difflib.get_close_matches(Path(path).name, names, n=3)
    likely = " or ".join(f"'{one_line(str(folder / name))}'" for name in near)
    hint = f"did you mean {likely}?" if near else None
    return InputError("no such file", where=path, hint=hint)


def _head(path: str) -> bytes:
    """Return the first bytes of a regular file."""
    try:
        if path != STDIN and Path(path).is_dir():
            raise InputError("a directory, not a file", where=path)
        if path != STDIN and Path(path).exists() and not Path(path).is_file():
            raise InputError("not a regular file", where=path, hint="pipe it into: ppocli eval -")
        with Path(local(path)).open("rb") as file:
            head = file.read(64)
    except FileNotFoundError:
        raise not_found(path) from None
    except OSError as failure:
        raise InputError(
            f"the file cannot be read: {(failure.strerror or '?').lower()}", where=path
        ) from None
    if not head:
        raise InputError(
            "the file is empty (0 bytes)",
            where=path,
            hint="the writer was stopped before it wrote anything; write or copy the file again",
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
    for magic, name, hint in _FOREIGN:
        if head.startswith(magic):
            return InputError(f"{name}, which is not read", where=path, hint=hint)
    return InputError(
        f"not a file of a known format (Parquet, NPZ, Arrow, JSON Lines, NPY): it begins with {head[:8]!r}",
        where=path,
        hint="write the columns with ppocli.RolloutWriter, pyarrow.parquet.write_table or np.savez",
    )
