"""`RolloutWriter`: canonical Parquet out of a training loop."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from ppocli.core.chunk import IdCoder, ReadOptions
from ppocli.core.roles import ROLES
from ppocli.errors import InputError, PpoCliError, UsageProblem, one_line
from ppocli.io.arrays import ArrayReader
from ppocli.io.canonical import Canonical, Stored, canonical_of
from ppocli.io.sink import ParquetSink, WriteFailures, check_target, temporary_beside

if TYPE_CHECKING:
    from types import TracebackType

# Each append is handed to the operating system when it returns; smaller pieces wait for each other in here.
_BUFFER_BYTES = 1 << 20

# All rows of an append are one piece.
_ALL = 1 << 62

_PER = {"token": "token", "row": "sequence"}


class RolloutWriter:
    """Records rollouts, batch by batch, into one Parquet file that every command of ppocli reads.

    While it records, everything appended stands in a temporary file beside `path`, a hidden Arrow stream.
    `close` (the end of the `with` block) turns it into Parquet, gives that its name and deletes the temporary
    file. A run that is killed, or leaves the block by an exception, leaves the temporary file and nothing
    under the final name; `ppocli convert --recover TEMPORARY -o FILE` makes the Parquet file of it. What
    `append` has taken survives the process, not the machine: nothing is synced to the disk.

    Parameters
    ----------
    path : str or path
    overwrite : bool
        Replace a file that exists when the recording is complete.
    **metadata
        What JSON can hold, such as the run's name or clip_eps; kept in the file's schema metadata.

    Attributes
    ----------
    path, recording : Path
        The file, and the temporary file.
    rows, tokens : int
        Appended so far.

    Raises
    ------
    InputError
        The file exists, or its folder does not.
    UsageProblem
        Metadata that JSON cannot hold.

    Notes
    -----
    Not for several threads at once. Each process of a distributed run writes a file of its own.

    Examples
    --------
    >>> with RolloutWriter("rollouts.parquet", run="ppo-7") as writer:
    ...     writer.append(log_probs=new, old_log_probs=old, advantages=adv, mask=mask, step=3)
    """

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False, **metadata: Any) -> None:
        self.path = Path(path)
        self.recording = temporary_beside(self.path, ".arrows")
        self.rows = self.tokens = 0
        self._overwrite, self._metadata = overwrite, metadata
        self._layout: Canonical | None = None
        self._closed = False
        try:
            json.dumps(metadata, allow_nan=False)
        except (TypeError, ValueError) as problem:
            raise UsageProblem(f"metadata must be what JSON can hold: {problem}") from None
        check_target(self.path, overwrite=overwrite)

    def append(self, **arrays: Any) -> None:
        """Append a batch of rollouts.

        Parameters
        ----------
        **arrays : array_like, by role
            `log_probs`, `old_log_probs`, `advantages`, `mask`, ... (the names in `ppocli.core.roles.ROLES`).
            Per token: arrays (B, T), padded, with `mask`; or lists of B one-dimensional arrays. Per sequence:
            (B,) or one number for all, such as `step`. Flat data: arrays (N,), one row per token or step.
            NumPy and JAX arrays, torch tensors (detached; torch is never imported), lists. float16 and
            bfloat16 are stored as float32, which is exact; the original type is kept in the metadata. None
            counts as absent.

        Raises
        ------
        UsageProblem
            A role that does not exist; nothing to append; another set of columns, types or layout than in the
            first call; the writer is closed.
        InputError
            Lengths or types that do not fit, a mask value other than 0 and 1, a full disk. Nothing of the
            batch is written then.
        """
        if self._closed:
            raise UsageProblem(
                "the writer is closed", hint=f"'{one_line(str(self.path))}' is complete; open another file"
            )
        if all(value is None for value in arrays.values()):
            raise UsageProblem("nothing to append", hint="append(log_probs=..., old_log_probs=..., ...)")
        options = ReadOptions()
        coders = {role: IdCoder() for role in ROLES if ROLES[role].kind == "id"}
        try:
            reader = ArrayReader(arrays, options, coders, required=())
            if not reader.report.rows:
                return
            layout = self._merged(canonical_of(reader.report, reader.per_row, options, {}))
            chunks = list(reader.chunks(ROLES, _ALL, repeat=False))
            schema = layout.schema(self._metadata)
            batches = [layout.batch(one, schema, coders, reader.per_row) for one in chunks]
        except InputError as problem:
            where = f"{self.path}, appending row {self.rows:,} and on"
            raise InputError(problem.message, where=where, hint=problem.hint) from None
        self._write(layout, batches)
        self.rows += sum(one.n_rows for one in chunks)
        self.tokens += sum(one.n_tokens for one in chunks)

    def close(self) -> None:
        """Complete the file and give it its name. Without any append there is no file.

        Raises
        ------
        InputError
            The file cannot be written, or exists now. The temporary file stays.
        """
        if self._closed:
            return
        self._closed = True
        if self._layout is None:
            return
        with WriteFailures(self.recording):
            self._stream.close()
            self._file.close()
            self._raw.close()
        try:
            self._convert()
        except PpoCliError as problem:
            raise InputError(problem.message, where=problem.where, hint=self._how_to_recover()) from None
        with suppress(OSError):
            self.recording.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is None:
            self.close()
            return
        if self._layout is not None and not self._closed:
            with suppress(OSError, pa.ArrowException):
                self._stream.close()
                self._file.close()
                self._raw.close()
            problem.add_note(f"ppocli: {self.rows:,} rows were recorded; {self._how_to_recover()}")
        self._closed = True

    def _how_to_recover(self) -> str:
        """Return the line that makes a Parquet file of the temporary one."""
        from ppocli.core import shell

        return f"ppocli convert --recover {shell.quote(str(self.recording))} -o {shell.quote(str(self.path))}"

    def _write(self, layout: Canonical, batches: Sequence[Any]) -> None:
        """Write to the temporary file, which begins with the first batch."""
        try:
            with WriteFailures(self.recording):
                if self._layout is None:
                    # Not by PyArrow, which would overwrite a file of this name.
                    self._raw = self.recording.open("xb")
                    self._file = pa.output_stream(self._raw, buffer_size=_BUFFER_BYTES)
                    self._stream = pa.ipc.new_stream(self._file, layout.schema(self._metadata))
                self._layout = layout
                for batch in batches:
                    self._stream.write_batch(batch)
                self._file.flush()
                self._raw.flush()
        except InputError as problem:
            self._closed = True  # what comes after half a batch could not be read
            raise InputError(problem.message, where=problem.where, hint=self._how_to_recover()) from None

    def _merged(self, now: Canonical) -> Canonical:
        """Return the layout of all batches so far and this one, or refuse it."""
        first = self._layout
        if first is None:
            return now
        missing = [role for role in first.roles if role not in now.roles]
        more = [role for role in now.roles if role not in first.roles]
        if missing or more:
            what = [f"lacks {', '.join(missing)}"] if missing else []
            what += [f"also has {', '.join(more)}"] if more else []
            raise UsageProblem(
                f"this batch {' and '.join(what)}: every append needs the columns of the first",
                hint=f"the first had: {', '.join(first.roles)}",
            )
        if first.nested != now.nested:
            kinds = ("flat, one row per token", "one row per sequence")
            raise UsageProblem(
                f"this batch is {kinds[now.nested]}, the first was {kinds[first.nested]}",
                hint="one file has one layout",
            )
        roles = {}
        for role, one in first.roles.items():
            merged = one.merged(now.roles[role])
            if (
                merged is None
                or (merged.type, merged.per) != (one.type, one.per)
                or one.per != now.roles[role].per
            ):
                raise UsageProblem(
                    _difference(role, one, now.roles[role]), hint="convert it before appending"
                )
            roles[role] = merged
        return Canonical(first.nested, roles)

    def _convert(self) -> None:
        """Write the Parquet file from the temporary one."""
        assert self._layout is not None
        schema = self._layout.schema(self._metadata)
        sink = ParquetSink(self.path, schema, overwrite=self._overwrite)
        try:
            with pa.memory_map(str(self.recording)) as source, pa.ipc.open_stream(source) as batches:
                for batch in batches:
                    sink.write(pa.record_batch(batch.columns, schema=schema))
            sink.finish()
            sink.commit()
        except BaseException:
            sink.abort()
            raise


def _difference(role: str, first: Stored, now: Stored) -> str:
    """Say how a role differs in type, or in what it has a value for."""
    if first.per != now.per:
        return (
            f"'{role}' has one value per {_PER[now.per]}, in the first batch it had one per {_PER[first.per]}"
        )
    return f"'{role}' is {now.origin}, in the first batch it was {first.origin}"
