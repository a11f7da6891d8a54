"""Writing canonical Parquet: row groups of even size, a temporary name until the file is whole."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ppocli.errors import InputError
from ppocli.io import lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Large enough that opening a row group (about 10,000 tokens' worth of decoding) does not show, small enough
# that a column of it is 4 or 8 MB.
_GROUP_TOKENS = 1 << 20

_IDS = ("int64", "uint64", "string")


def temporary_beside(path: Path, suffix: str) -> Path:
    """Return a hidden name in the same folder that nobody else uses, be it in another container."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(3)}{suffix}")


def check_target(path: Path, *, overwrite: bool) -> None:
    """Refuse a file that cannot or must not be written.

    Raises
    ------
    InputError
    """
    if path.is_dir():
        raise InputError("cannot be written: it is a folder", where=str(path))
    if not path.parent.is_dir():
        raise InputError(f"cannot be written: there is no folder '{path.parent}'", where=str(path))
    if path.exists() and not overwrite:
        raise InputError("the file exists", where=str(path), hint="overwrite it, or choose another name")


class ParquetSink:
    """One Parquet file that appears under its name when it is whole.

    zstd, page checksums, row groups of about a million tokens. Batches are gathered until there are enough.

    Parameters
    ----------
    path : Path
    schema : Schema
    overwrite : bool

    Raises
    ------
    InputError
        The file exists, or cannot be written.
    """

    def __init__(self, path: Path, schema: Any, *, overwrite: bool) -> None:
        check_target(path, overwrite=overwrite)
        self.path, self.rows, self.tokens = path, 0, 0
        self._schema, self._overwrite = schema, overwrite
        self._temporary = temporary_beside(path, ".tmp")
        self._waiting: list[Any] = []
        self._waiting_tokens = 0
        with self._failures():
            self._writer = pq.ParquetWriter(
                self._temporary,
                schema,
                compression="zstd",
                # Log-probs hardly ever repeat; a dictionary of them is built in vain.
                use_dictionary=[one.name for one in schema if str(one.type) in _IDS],
                write_page_checksum=True,
            )

    def write(self, batch: Any) -> None:
        """Append a record batch of the schema.

        Raises
        ------
        InputError
            The disk is full, or the like.
        """
        for piece in _pieces(batch):
            n_tokens = _tokens(piece)
            if self._waiting and self._waiting_tokens + n_tokens > _GROUP_TOKENS:
                self._flush()
            self._waiting.append(piece)
            self._waiting_tokens += n_tokens
            self.rows += piece.num_rows
            self.tokens += n_tokens

    def finish(self) -> str:
        """Write the footer and return the temporary name under which the file can be read.

        Raises
        ------
        InputError
            It cannot be written.
        """
        self._flush()
        with self._failures():
            self._writer.close()
        return str(self._temporary)

    def commit(self) -> None:
        """Give the finished file its name.

        Raises
        ------
        InputError
            A file of this name has come into being, or it cannot be written.
        """
        with self._failures():
            check_target(self.path, overwrite=self._overwrite)
            self._temporary.replace(self.path)

    def abort(self) -> None:
        """Leave nothing behind."""
        with suppress(Exception):
            self._writer.close()
        with suppress(OSError):
            self._temporary.unlink()

    def _flush(self) -> None:
        """Write what is waiting as a row group."""
        if self._waiting_tokens or self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            with self._failures():
                self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._waiting, self._waiting_tokens = [], 0

    def _failures(self) -> WriteFailures:
        return WriteFailures(self.path)


class WriteFailures:
    """Turns failures of writing inside a `with` block into the error that names the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, failure: BaseException | None, trace: Any) -> None:
        if isinstance(failure, (OSError, pa.ArrowException)):
            said = getattr(failure, "strerror", None) or str(failure).strip().splitlines()[0]
            raise InputError(f"cannot be written: {said}", where=str(self._path)) from None


def _pieces(batch: Any) -> Iterator[Any]:
    """Cut a batch into pieces of at most a row group's tokens, or of one row."""
    ends, start = _ends(batch), 0
    while start < batch.num_rows:
        stop = int(np.searchsorted(ends, ends[start] + _GROUP_TOKENS, side="right")) - 1
        stop = min(max(start + 1, stop), batch.num_rows)
        yield batch.slice(start, stop - start)
        start = stop


def _ends(batch: Any) -> NDArray[np.int64]:
    """Return (n_rows + 1,) offsets of the rows' tokens in a canonical batch."""
    nested = next((array for array in batch.columns if lists.is_list(array.type)), None)
    return np.arange(batch.num_rows + 1) if nested is None else lists.leaf_ends(nested)


def _tokens(batch: Any) -> int:
    """Return the number of tokens of a canonical batch."""
    ends = _ends(batch)
    return int(ends[-1] - ends[0])
