"""Arrow IPC: files and streams, mapped and read one record batch after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ppocli.core.report import ColumnReport, InputReport
from ppocli.core.roles import MAIN_ROLES
from ppocli.errors import InputError
from ppocli.io import bombs
from ppocli.io.batches import BatchChunker
from ppocli.io.canonical import origins_of
from ppocli.io.fields import find_fields
from ppocli.io.footer import FAILURES, one_line
from ppocli.io.ipc_sizes import compressed_batches
from ppocli.io.mapped import MappedFile
from ppocli.io.places import place_of
from ppocli.io.structures import check_names, top_level

if TYPE_CHECKING:
    from ppocli.core.chunk import Chunk, IdCoder, ReadOptions

FILE = b"ARROW1"
STREAM = b"\xff\xff\xff\xff"
"""What files and streams begin with."""

_END = STREAM + bytes(4)

_LEAST_BYTES = 16


class ArrowSource:
    """The record batches of an Arrow IPC file or stream.

    Parameters
    ----------
    path : str
        A file whose first bytes are `FILE` or `STREAM`.
    recover : bool
        Of a file that is cut, read the record batches that are whole.

    Attributes
    ----------
    schema : Schema
    kind : {"file", "stream"}
    n_batches, rows : int
    notes : tuple of str
        How it ends, if not as it should.

    Raises
    ------
    InputError
        Cut or damaged. Only the schema and the headers of the record batches have been looked at.
    """

    def __init__(self, path: str, *, recover: bool = False) -> None:
        self.path, self._recover = path, recover
        place = place_of(path)
        self.mapped = MappedFile(place.whole())
        self._buffer = pa.py_buffer(self.mapped.bytes)
        self.kind = "file" if self.mapped.bytes[: len(FILE)] == FILE else "stream"
        if self._buffer.size < _LEAST_BYTES:
            raise InputError(
                f"the Arrow {self.kind} is cut: {self._buffer.size} bytes", where=path, hint=_REWRITE
            )
        self.notes = place.notes
        self.n_batches = self.rows = 0
        self.schema = self._opened(()).schema
        check_names(self.schema, path)
        self._compressed = False
        for number, sizes in enumerate(compressed_batches(memoryview(self.mapped.bytes), self._start)):
            self._compressed = True
            bombs.check(*sizes, f"compressed batch {number}", f"{path}, compressed batch {number}")
        self._count()

    def batches(self, fields: Collection[int]) -> Iterator[Any]:
        """Yield the record batches with some of the schema's fields, checked to be sound.

        Raises
        ------
        InputError
            A batch that cannot be read, or whose arrays contradict themselves.
        """
        # Naming the fields saves decompression; of plain buffers in a file PyArrow would copy them all.
        reader = self._opened(fields if self._compressed else ())
        for index in range(self.n_batches):
            try:
                batch = self._batch(reader, index)
                if fields and not self._compressed:
                    batch = batch.select(sorted(fields))
                # Offsets out of bounds would lead out of the file; PyArrow does not look at them by itself.
                batch.validate(full=True)
            except FAILURES as failure:
                raise self._damaged(index, failure) from None
            yield batch

    def _opened(self, fields: Collection[int]) -> Any:
        """Open the source at its start."""
        options = pa.ipc.IpcReadOptions(included_fields=sorted(fields), use_threads=False)
        try:
            if self.kind == "file" and not self._recover:
                return pa.ipc.open_file(self._buffer, options=options)
            # Between its magic and its footer a file is a stream.
            self._stream = pa.BufferReader(self._buffer.slice(self._start))
            return pa.ipc.open_stream(self._stream, options=options)
        except FAILURES as failure:
            raise InputError(
                f"the Arrow {self.kind} cannot be read: {one_line(failure)}",
                where=self.path,
                hint=_REWRITE + (f", or recover what is whole: {self._how()}" if self.kind == "file" else ""),
            ) from None

    @property
    def _start(self) -> int:
        """Where the first message begins."""
        return 8 if self.kind == "file" else 0

    def _batch(self, reader: Any, index: int) -> Any:
        """Return a record batch; those of a stream come in order."""
        return reader.get_batch(index) if hasattr(reader, "get_batch") else reader.read_next_batch()

    def _count(self) -> None:
        """Count record batches and rows by reading one field of each."""
        reader = self._opened({_lightest(self.schema)} if self._compressed and len(self.schema) else ())
        if hasattr(reader, "get_batch"):
            self.n_batches = reader.num_record_batches
        index = begins = 0
        try:
            while index < self.n_batches or not hasattr(reader, "get_batch"):
                begins = self._stream.tell() if self._recover else 0
                self.rows += self._batch(reader, index).num_rows
                index += 1
        except StopIteration:
            self._look_at_end()
        except FAILURES as failure:
            if not self._recover:
                raise self._damaged(index, failure) from None
            left = self._stream.size() - begins
            self.notes = (*self.notes, f"cut in record batch {index}: {left:,} bytes not read")
        self.n_batches = index

    def _look_at_end(self) -> None:
        """Look at what follows the last message of a stream."""
        size = self._stream.size()
        rest = size - self._stream.tell()
        if self.kind == "file":
            return
        if rest:
            raise InputError(
                f"{rest:,} bytes follow the end of the Arrow stream: are there several streams in one file?",
                where=self.path,
                hint="write each stream to a file of its own, and give all of them",
            )
        if self.mapped.bytes[-len(_END) :] != _END:
            self.notes = (*self.notes, "the stream has no end mark: its writer may have been stopped")

    def _damaged(self, index: int, failure: Exception) -> InputError:
        """Build the error for a record batch that cannot be read."""
        return InputError(
            f"cut or damaged in record batch {index} (before it {self.rows:,} rows): {one_line(failure)}"
            if index >= self.n_batches
            else f"record batch {index} is damaged: {one_line(failure)}",
            where=f"{self.path}, record batch {index}",
            hint=f"{_REWRITE}, or recover what is whole: {self._how()}",
        )

    def _how(self) -> str:
        """Return the line that recovers what is whole."""
        from ppocli.core import shell

        return f"ppocli convert --recover {shell.quote(self.path)} -o recovered.parquet"


_REWRITE = "write or copy the file again"


def _lightest(schema: Any) -> int:
    """Return the field with the least data: where bodies are compressed it is decompressed to count rows."""
    weights = [one.type.bit_width if pa.types.is_primitive(one.type) else 1 << 20 for one in schema]
    return weights.index(min(weights))


class ArrowReader:
    """One Arrow IPC file or stream; a Hugging Face dataset's `.arrow` files are streams.

    The file is mapped; uncompressed record batches of any size are read without being in memory as a whole,
    compressed ones one at a time. Columns and nesting as in Parquet.

    Parameters
    ----------
    path : str
    options : ReadOptions
    coders : mapping of role to IdCoder
    required : collection of str
        Roles that must be found; see `columns.resolve`.
    recover : bool
        See `ArrowSource`.

    Raises
    ------
    InputError
        See `ArrowSource` and `ParquetReader`.
    """

    def __init__(
        self,
        path: str,
        options: ReadOptions,
        coders: Mapping[str, IdCoder],
        required: Collection[str] = MAIN_ROLES,
        *,
        recover: bool = False,
    ) -> None:
        self._source = ArrowSource(path, recover=recover)
        self._found = find_fields(self._source.schema, path, options, required)
        self._chunker = BatchChunker(path, self._found, options, dict(coders))
        self.origins = origins_of(self._source.schema)
        self._report = InputReport(
            path=path,
            format="arrow",
            layout=self._found.layout,
            rows=self._source.rows,
            bytes=place_of(path).size,
            columns={role: ColumnReport(one.column, one.dtype) for role, one in self._found.by_role.items()},
            notes=(*self._found.notes, *self._source.notes),
        )

    @property
    def report(self) -> InputReport:
        """What was found; a pass over the data adds a note about null rows."""
        return self._chunker.with_null_rows(self._report)

    @property
    def per_row(self) -> frozenset[str]:
        """Roles that are stored once per row; see `ppocli.core.chunk.Reader`."""
        return self._chunker.per_row

    def chunks(self, roles: Collection[str], chunk_tokens: int, *, repeat: bool = True) -> Iterator[Chunk]:
        """Yield the rows in stored order; see `ppocli.core.chunk.Reader`.

        Raises
        ------
        InputError
            A record batch that cannot be read; and what `BatchChunker.chunks` refuses.
        """
        wanted = [role for role in self._found.by_role if role in roles]
        read = self._found.to_read(wanted)
        names = {top_level(self._source.schema, one.column) for one in read.values()}
        batches = self._source.batches(names)
        for chunk in self._chunker.chunks(batches, wanted, max(1, chunk_tokens), repeat=repeat):
            yield chunk
            self._source.mapped.used([one.values for one in chunk.columns.values()])

    def close(self) -> None:
        """Do nothing: the mapping goes when the last array over it does."""
