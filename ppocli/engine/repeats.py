"""Sequence ids that stand in more than one file: each file has its own sequences, which may not be meant."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.report import Place

if TYPE_CHECKING:
    from ppocli.core.chunk import Chunk
    from ppocli.engine.totals import Ints

LIMIT = 1_000_000
"""Ids that are remembered over all files; beyond it repetitions are not looked for."""


@dataclass(slots=True, eq=False)
class RepeatedIds:
    """Compares the ids of each file with those of the files before.

    Attributes
    ----------
    count : int
        Ids that were met in a file before.
    path : str, optional
        The first file that repeats one.
    where : Place, optional
        Its first row that does, where that is known.
    checked : bool
        False once there were more than `LIMIT` ids.
    """

    count: int = 0
    path: str | None = None
    where: Place | None = None
    checked: bool = True
    _seen: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def add(self, path: str, ids: Ints, rows: Ints) -> None:
        """Take the ids of the next file, and the first row of each; -1 where that is not known."""
        if not self.checked or not ids.size:
            return
        fresh = _distinct(ids)
        both = _distinct(np.concatenate([self._seen, fresh]))
        again = self._seen.size + fresh.size - both.size
        if again:
            self.count += again
            if self.path is None:
                self.path, row = path, int(rows[np.isin(ids, self._seen)].min())
                self.where = Place(path, row) if row >= 0 else None
        self._seen = both
        self.checked = both.size <= LIMIT


@dataclass(slots=True, eq=False)
class RowIds:
    """The ids of a file whose rows are sequences, where the ids tell nothing else."""

    _codes: list[Ints] = field(default_factory=list)
    _rows: list[Ints] = field(default_factory=list)
    _n: int = 0

    def take(self, chunk: Chunk) -> Chunk:
        """Remember the ids of a chunk; return it without them."""
        ids = chunk.sequence_id
        if ids is not None and ids.codes.size == chunk.n_rows and self._n <= LIMIT:
            rows = np.arange(chunk.n_rows) if ids.present is None else np.flatnonzero(ids.present)
            self._codes.append(ids.codes[rows])
            self._rows.append(chunk.first_row + rows)
            self._n += rows.size
        return replace(chunk, sequence_id=None)

    def found(self) -> tuple[Ints, Ints]:
        """Return ids and rows."""
        none = np.zeros(0, dtype=np.int64)
        return np.concatenate([none, *self._codes]), np.concatenate([none, *self._rows])


def _distinct(ids: Ints) -> Ints:
    """Return each id once. NumPy's `unique` makes a table by hash: 3 s and 80 MB for a million ids."""
    ids = np.sort(ids)
    first = np.ones(ids.size, dtype=np.bool_)
    first[1:] = ids[1:] != ids[:-1]
    return ids[first]
