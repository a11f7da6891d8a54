"""`scan_file`: exact counts and ranges of a file's columns at valid tokens, with NumPy, a batch at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.chunk import Column, IdCoder
from ppocli.core.inspect_report import ColumnScan, FileScan
from ppocli.core.roles import ROLES
from ppocli.engine.exact import is_exact
from ppocli.engine.reading import ID_ROLES

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from ppocli.core.chunk import Chunk, Ids, ReadOptions
    from ppocli.core.progress import Progress
    from ppocli.core.report import Number

ID_LIMIT = 1_000_000
"""Sequence ids of a file that are told apart; with more, its sequences are not counted."""

# Formats that may hold all values of a column, narrowest first, by the format it is stored in.
_NARROWER = {"float64": ("bfloat16", "float16", "float32"), "float32": ("bfloat16", "float16")}


def scan_file(
    path: str, options: ReadOptions, roles: Collection[str], chunk_tokens: int, progress: Progress
) -> tuple[FileScan, list[str]]:
    """Read a file's data once.

    Parameters
    ----------
    path : str
    options : ReadOptions
    roles : collection of str
        Roles to read where they exist.
    chunk_tokens : int
        Tokens to read at a time; changes no result.
    progress : Progress

    Returns
    -------
    scan : FileScan
    notes : list of str
        What there is to say about it.

    Raises
    ------
    InputError
        Damaged data, lists of different lengths in a row, a mask value other than 0 and 1.
    """
    from ppocli.io.source import open_input

    reader = open_input(path, options, {role: IdCoder() for role in ID_ROLES}, required=())
    try:
        report = reader.report
        dtypes = {role: column.dtype for role, column in report.columns.items() if role in roles}
        counters = {role: ColumnCounter(dtype) for role, dtype in dtypes.items() if role != "mask"}
        counted = _FileCounter(counters)
        per_row = report.bytes / max(report.rows, 1)
        for chunk in reader.chunks(dtypes, chunk_tokens):
            counted.add(chunk)
            progress.advance(chunk.n_rows * per_row, chunk.n_tokens, chunk.n_rows)
        new = [note for note in reader.report.notes if note not in report.notes]
    finally:
        reader.close()
    scan = counted.finish()
    return scan, [*new, *_notes(scan, dtypes)]


def _notes(scan: FileScan, dtypes: dict[str, str]) -> list[str]:
    """Say what stands out."""
    notes: list[str] = []
    for role, column in scan.columns.items():
        narrow = next((name for name in column.exact_in if name != "float32"), None)
        if ROLES[role].kind == "log_prob" and narrow and not column.constant:
            notes.append(f"{role}: every value of this {dtypes[role]} column is a {narrow} value")
        if column.constant and role not in ID_ROLES:
            notes.append(f"{role}: constant, every value is {column.min!r}")
    odd = [f"{role} {one.n_masked_odd:,}" for role, one in scan.columns.items() if one.n_masked_odd]
    if odd:
        notes.append(f"null or not finite at masked tokens, where it does no harm: {', '.join(odd)}")
    if not scan.tokens:
        notes.append("no valid token")
    if scan.n_empty_sequences:
        notes.append(f"{scan.n_empty_sequences:,} sequences without a valid token count nowhere")
    return notes


@dataclass(slots=True)
class _FileCounter:
    """Counts a file chunk by chunk."""

    columns: dict[str, ColumnCounter]
    tokens: int = 0
    masked: int = 0
    longest_row: int | None = None
    n_rows: int = 0
    n_full_rows: int = 0
    by_row: bool = False
    ids: IdCounter | None = None

    def add(self, chunk: Chunk) -> None:
        """Add a chunk."""
        valid = None
        if chunk.mask is not None and not chunk.mask.all():
            valid = chunk.mask.view(np.bool_)
        n_valid = chunk.n_tokens if valid is None else int(np.count_nonzero(valid))
        self.tokens += n_valid
        self.masked += chunk.n_tokens - n_valid
        for role, counter in self.columns.items():
            if role in chunk.columns:
                counter.add(chunk.columns[role], valid)
            elif role in ID_ROLES:
                counter.add(_as_column(getattr(chunk, role), chunk, counter.dtype), valid)
        if chunk.offsets is not None:
            self._add_rows(chunk.offsets, chunk.mask)
        if chunk.sequence_id is not None:
            self.ids = self.ids or IdCounter()
            self.ids.add(_as_column(chunk.sequence_id, chunk, "int64"), valid)

    def _add_rows(self, offsets: NDArray[np.int64], mask: NDArray[np.uint8] | None) -> None:
        """Count rows with a valid token, and look for the longest."""
        self.by_row = True
        lengths = np.diff(offsets)
        self.n_rows += lengths.size
        self.longest_row = max(self.longest_row or 0, int(lengths.max(initial=0)))
        if mask is None:
            self.n_full_rows += int(np.count_nonzero(lengths))
        else:
            ends = np.zeros(mask.size + 1, np.int64)
            np.cumsum(mask, out=ends[1:])
            self.n_full_rows += int(np.count_nonzero(np.diff(ends[offsets])))

    def finish(self) -> FileScan:
        """Return what was counted."""
        full: int | None = None
        empty: int | None = None
        if self.ids is not None:
            full, empty = self.ids.counts()
        elif self.by_row:
            full, empty = self.n_full_rows, self.n_rows - self.n_full_rows
        return FileScan(
            tokens=self.tokens,
            masked=self.masked,
            longest_row=self.longest_row,
            n_sequences=full,
            n_empty_sequences=empty,
            columns={role: one.finish() for role, one in self.columns.items()},
        )


def _as_column(ids: Ids, chunk: Chunk, dtype: str) -> Column:
    """Return ids as a column with one value per token."""
    codes, present = ids.codes, ids.present
    if dtype == "uint64":
        codes = codes.view(np.uint64)
    if chunk.offsets is not None and ids.codes.size != chunk.n_tokens:
        lengths = np.diff(chunk.offsets)
        codes = np.repeat(codes, lengths)
        present = None if present is None else np.repeat(present, lengths)
    return Column(codes, present)


@dataclass(slots=True)
class IdCounter:
    """Tells sequence ids apart, as long as there are not too many."""

    seen: NDArray[np.int64] | None = field(default_factory=lambda: np.empty(0, np.int64))
    with_token: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, column: Column, valid: NDArray[np.bool_] | None) -> None:
        """Add one id per token; null ids belong to no sequence."""
        if self.seen is None:
            return
        codes = column.values
        keep = np.ones(codes.size, np.bool_) if column.present is None else column.present.astype(np.bool_)
        self.seen = np.union1d(self.seen, codes[keep])
        if valid is not None:
            keep &= valid
        self.with_token = np.union1d(self.with_token, codes[keep])
        if self.seen.size > ID_LIMIT:
            self.seen = None

    def counts(self) -> tuple[int | None, int | None]:
        """Return how many ids have a valid token and how many have none; None where there were too many."""
        if self.seen is None:
            return None, None
        return self.with_token.size, self.seen.size - self.with_token.size


@dataclass(slots=True)
class ColumnCounter:
    """Counts one column's values at valid tokens.

    Parameters
    ----------
    dtype : str
        Element type as the reader names it.
    """

    dtype: str
    n_values: int = 0
    n_null: int = 0
    n_nan: int = 0
    n_posinf: int = 0
    n_neginf: int = 0
    n_zero: int = 0
    n_masked_odd: int = 0
    low: Number = None
    high: Number = None
    exact_in: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.exact_in = list(_NARROWER.get(self.dtype, ()))

    def add(self, column: Column, valid: NDArray[np.bool_] | None) -> None:
        """Add the values of a chunk; `valid` None: every token counts."""
        values, present = _widened(column.values), column.present
        there = None if present is None or present.all() else present.view(np.bool_)
        if valid is not None:
            hidden = values[~valid] if there is None else values[~valid & there]
            n_hidden_null = 0 if there is None else int(np.count_nonzero(~valid & ~there))
            self.n_masked_odd += n_hidden_null + int(np.count_nonzero(~np.isfinite(hidden)))
        self.n_values += values.size if valid is None else int(np.count_nonzero(valid))
        if there is not None:
            self.n_null += int(np.count_nonzero(~there if valid is None else ~there & valid))
            valid = there if valid is None else there & valid
        self._add_values(values if valid is None else values[valid])

    def _add_values(self, values: NDArray[Any]) -> None:
        """Add values that are there and count."""
        finite = np.isfinite(values)
        if not finite.all():
            odd = values[~finite]
            self.n_nan += int(np.count_nonzero(np.isnan(odd)))
            self.n_posinf += int(np.count_nonzero(odd == math.inf))
            self.n_neginf += int(np.count_nonzero(odd == -math.inf))
            values = values[finite]
        if not values.size:
            return
        self.n_zero += int(np.count_nonzero(values == 0))
        low, high = values.min().item(), values.max().item()
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        self.exact_in = [name for name in self.exact_in if is_exact(values, name)]

    def finish(self) -> ColumnScan:
        """Return what was counted."""
        n_there = self.n_values - self.n_null
        n_odd = self.n_null + self.n_nan + self.n_posinf + self.n_neginf
        shown = self.low is not None and self.dtype not in ("string", "large_string", "string_view")
        return ColumnScan(
            n_null=self.n_null,
            n_nan=self.n_nan,
            n_posinf=self.n_posinf,
            n_neginf=self.n_neginf,
            n_zero=self.n_zero,
            zero_frac=self.n_zero / n_there if n_there else None,
            min=self.low if shown else None,
            max=self.high if shown else None,
            constant=self.low is not None and self.low == self.high and not n_odd,
            exact_in=tuple(self.exact_in) if self.low is not None else (),
            n_masked_odd=self.n_masked_odd,
        )


def _widened(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers for the bits of bfloat16 values, anything else as it is."""
    if values.dtype != np.uint16:
        return values
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
