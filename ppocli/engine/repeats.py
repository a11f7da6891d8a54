"""Sequence ids that stand in more than one file: each file has its own sequences, which may not be meant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
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
    checked : bool
        False once there were more than `LIMIT` ids.
    """

    count: int = 0
    path: str | None = None
    checked: bool = True
    _seen: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def add(self, path: str, ids: Ints) -> None:
        """Take the ids of the next file."""
        if not self.checked or not ids.size:
            return
        ids = _distinct(ids)
        both = _distinct(np.concatenate([self._seen, ids]))
        again = self._seen.size + ids.size - both.size
        if again:
            self.count += again
            self.path = self.path or path
        self._seen = both
        self.checked = both.size <= LIMIT


def _distinct(ids: Ints) -> Ints:
    """Return each id once. NumPy's `unique` makes a table by hash: 3 s and 80 MB for a million ids."""
    ids = np.sort(ids)
    first = np.ones(ids.size, dtype=np.bool_)
    first[1:] = ids[1:] != ids[:-1]
    return ids[first]
