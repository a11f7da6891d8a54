"""Scales of int8 storage: the largest |x| at valid, finite values, over a column or over each sequence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ppocli.engine.blocks import stored, widened_half

if TYPE_CHECKING:
    from ppocli.engine.span import Span
    from ppocli.engine.totals import Ints

Floats32: TypeAlias = NDArray[np.float32]

LARGEST = np.float32(127.0)
SEQUENCE_LIMIT = 1_000_000
"""Sequences of the whole input whose scales are kept."""

NO_ID = np.iinfo(np.int64).max
"""Stands for a null id: such tokens share a scale."""


@dataclass(slots=True, eq=False)
class FileScales:
    """The largest |x| of each sequence of a file.

    Attributes
    ----------
    ids : (n,) int64, optional
        Sorted. None: sequences are rows, by number.
    largest : (n_roles, n) float32
    """

    ids: Ints | None
    largest: Floats32


@dataclass(slots=True, eq=False)
class Scales:
    """Collects the largest |x| in a first pass, and gives out scales in the second.

    Attributes
    ----------
    roles : tuple of str
        Columns that are stored in the format.
    by_sequence : bool
        Sequences are told apart, too.
    largest : mapping of path to (n_roles,) float32
    files : mapping of path to FileScales
    reason : str, optional
        Why there are no scales for sequences.
    """

    roles: tuple[str, ...]
    by_sequence: bool
    largest: dict[str, Floats32] = field(default_factory=dict)
    files: dict[str, FileScales] = field(default_factory=dict)
    reason: str | None = None

    def add(self, path: str, span: Span) -> None:
        """Look at a span."""
        sizes = [self._sizes(span, role) for role in self.roles]
        most = np.array([size.max(initial=np.float32(0.0)) for size in sizes], dtype=np.float32)
        self.largest[path] = np.maximum(self.largest.get(path, most), most)
        if not self.by_sequence or self.reason:
            return
        runs = _runs_of(span)
        if runs is None:
            self.reason = "the input has no sequences: no list columns, no 2-D arrays, no sequence_id"
            return
        starts, codes, by_id = runs
        self._merge(path, codes, np.stack([np.maximum.reduceat(size, starts) for size in sizes]), by_id)

    def forget(self, path: str) -> None:
        """Drop a file that turned out to be unreadable."""
        self.largest.pop(path, None)
        self.files.pop(path, None)

    def of_columns(self) -> tuple[float, float, float]:
        """Return the scale of each column: the largest |x| / 127 in float32; 0 where it is not stored."""
        most = np.zeros(3, dtype=np.float32)
        for one in self.largest.values():
            most[: one.size] = np.maximum(most[: one.size], one)
        new, old, adv = (float(one) for one in most / LARGEST)
        return new, old, adv

    def of_tokens(self, path: str, span: Span) -> list[Floats32]:
        """Return for log_probs, old_log_probs and advantages the scale of each token, in whole vectors."""
        n = -(-span.n_tokens // 8) * 8
        out = [np.zeros(0 if self.reason else n, dtype=np.float32) for _ in range(3)]
        if self.reason or path not in self.files:
            return out
        one, runs = self.files[path], _runs_of(span)
        assert runs is not None
        starts, codes, _ = runs
        at = codes if one.ids is None else np.searchsorted(one.ids, codes)
        lengths = np.diff(starts, append=span.n_tokens)
        for k in range(len(self.roles)):
            out[k][: span.n_tokens] = np.repeat(one.largest[k][at] / LARGEST, lengths)
        return out

    def _sizes(self, span: Span, role: str) -> Floats32:
        """Return |x| in float32 at valid, finite values, 0 elsewhere."""
        values = widened_half(stored(span, role))
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = np.abs(values.astype(np.float32, copy=False))
        keep = sizes < np.float32(np.inf)
        if "mask" in span.arrays:
            keep &= span.arrays["mask"] != 0
        return sizes if keep.all() else np.where(keep, sizes, np.float32(0.0))

    def _merge(self, path: str, codes: Ints, runs: Floats32, by_id: bool) -> None:
        """Merge the largest |x| of runs of tokens of one sequence."""
        ids, inverse = np.unique(codes, return_inverse=True)
        most = np.zeros((len(self.roles), ids.size), dtype=np.float32)
        for k in range(len(self.roles)):
            np.maximum.at(most[k], inverse, runs[k])
        before = self.files.get(path)
        if before is None:
            nothing = np.zeros((len(self.roles), 0), dtype=np.float32)
            before = FileScales(np.zeros(0, dtype=np.int64) if by_id else None, nothing)
        if by_id:
            assert before.ids is not None
            both = np.union1d(before.ids, ids)
            merged = np.zeros((len(self.roles), both.size), dtype=np.float32)
            merged[:, np.searchsorted(both, before.ids)] = before.largest
            place = np.searchsorted(both, ids)
            merged[:, place] = np.maximum(merged[:, place], most)
            self.files[path] = FileScales(both, merged)
        else:
            merged = np.zeros((len(self.roles), max(int(ids[-1]) + 1, before.largest.shape[1])), np.float32)
            merged[:, : before.largest.shape[1]] = before.largest
            merged[:, ids] = np.maximum(merged[:, ids], most)
            self.files[path] = FileScales(None, merged)
        self.reason = too_many(sum(one.largest.shape[1] for one in self.files.values()))
        if self.reason:
            self.files = {}


def too_many(n_sequences: int) -> str | None:
    """Return why there are no scales for so many sequences, or None."""
    return f"more than {SEQUENCE_LIMIT:,} sequences" if n_sequences > SEQUENCE_LIMIT else None


def _runs_of(span: Span) -> tuple[Ints, Ints, bool] | None:
    """Return where runs of tokens of one sequence start, its number, and whether that is an id.

    None without sequences.
    """
    if "sequence_id" in span.arrays:
        codes = span.arrays["sequence_id"]
        present = span.arrays.get("sequence_id present")
        codes = codes if present is None else np.where(present != 0, codes, NO_ID)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1])
        return starts, codes[starts], True
    if span.row_starts is None:
        return None
    starts = np.maximum(span.row_starts - span.origin, 0)
    starts = starts[starts < span.n_tokens]
    full = np.diff(starts, append=span.n_tokens) > 0
    return starts[full], span.first_row + np.flatnonzero(full), False
