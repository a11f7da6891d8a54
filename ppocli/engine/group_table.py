"""Numbers for what tokens are told apart by: groups, and sequences within groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.engine.totals import KeyedTable
from ppocli.engine.windows import KNOWN_IDS, NotTogether
from ppocli.errors import InputError
from ppocli.kernels import sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.engine.totals import Ints

_ALL = np.zeros(0, dtype=np.uint8)


class GroupTable:
    """Numbers the groups of a run in order of first sight; at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self.limit, self._table = limit, KeyedTable.narrow(0, timed=False)

    @property
    def n(self) -> int:
        """Groups so far."""
        return self._table.n

    def key(self, g: int) -> int | None:
        """Return the code of a group; None: that of the tokens without one."""
        is_null, code = self._table.keys[g].tolist()
        return None if is_null else code

    def numbers(self, codes: Ints, present: NDArray[np.uint8] | None, path: str, by: str) -> Ints:
        """Return the number of each token's group.

        Raises
        ------
        InputError
            Too many groups.
        """
        null = np.zeros(codes.size, dtype=np.int64) if present is None else (present == 0).astype(np.int64)
        codes = np.where(null, 0, codes) if present is not None else codes
        heads = _changes(null, codes)
        numbers, taken = _enter(self._table, null[heads], codes[heads], self.limit)
        if taken < heads.size:
            what = "steps" if by == "step" else f"values of '{by}'"
            raise InputError(
                f"more than {self.limit:,} {what}, which is all that --by {by} keeps", where=path
            )
        return np.repeat(numbers, np.diff(heads, append=codes.size))


class PairNumbers:
    """Numbers the sequences of a file by group and id."""

    def __init__(self, path: str) -> None:
        self.path, self._table = path, KeyedTable.narrow(0, timed=False)

    def numbers(self, owners: Ints, ids: Ints) -> Ints:
        """Return the number of each token's sequence.

        Raises
        ------
        NotTogether
            There are too many.
        """
        heads = _changes(owners, ids)
        numbers, taken = _enter(self._table, owners[heads], ids[heads], KNOWN_IDS)
        if taken < heads.size:
            raise NotTogether(f"more than {KNOWN_IDS:,} sequences in a file", where=self.path)
        return np.repeat(numbers, np.diff(heads, append=ids.size))


def _changes(first: Ints, second: Ints) -> Ints:
    """Return where a key is another than before."""
    change = np.ones(first.size, dtype=np.bool_)
    change[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return np.flatnonzero(change)


def _enter(table: KeyedTable, first: Ints, second: Ints, limit: int) -> tuple[Ints, int]:
    """Return the place of each key, entering new ones, and for how many there was one."""
    table.reserve(min(table.n + first.size, limit))
    places, table.n = sequence.enter(
        table.slots, table.keys, table.states, table.n, limit,
        np.ascontiguousarray(first), np.ascontiguousarray(second), _ALL,
    )  # fmt: skip
    return places, places.size
