"""Sequences of thousands of groups: one table by (group, sequence) for a file, closed when they are over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ppocli.engine.sequences import CLOSED_LIMIT, OPEN_LIMIT
from ppocli.engine.totals import KeyedTable
from ppocli.kernels import sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.engine.group_state import GroupTotals
    from ppocli.engine.totals import Floats, Ints

_NOWHERE = (2**63 - 1, -(2**63))


@dataclass(slots=True, eq=False)
class GroupSequences:
    """Adds the pieces of one file's sequences to their groups.

    Attributes
    ----------
    path : str
    groups : GroupTotals
    interval : tuple of float
        The clip interval.
    by_row : bool
        Sequences are rows, and over when a later row has begun; else equal ids, over at the end of the file.
    """

    path: str
    groups: GroupTotals
    interval: tuple[float, float]
    by_row: bool
    table: KeyedTable = field(default_factory=KeyedTable)
    clock: int = 0
    _closed: KeyedTable | None = None
    _reach: dict[int, tuple[int, int]] = field(default_factory=dict)
    _forgotten: bool = False

    def add(self, owners: Ints, ids: Ints, known: NDArray[np.uint8], pieces: Floats) -> None:
        """Add pieces, in order within each group."""
        table, done = self.table, 0
        rows = np.zeros(owners.size, dtype=np.int64)
        while done < owners.size:
            table.reserve(min(table.n + owners.size - done, OPEN_LIMIT))
            before = table.n
            table.n, taken = sequence.add_keyed(
                table.slots, table.keys, table.states, table.touched, table.n, OPEN_LIMIT,
                owners[done:], ids[done:], known[done:], rows[done:], pieces[done:], self.clock + done,
            )  # fmt: skip
            self._check_returned(before)
            done += taken
            if done < owners.size:
                self._close_half()
        self.clock += owners.size

    def end_window(self, row: int) -> None:
        """Close the rows before one, where there are many; rows never come back."""
        table = self.table
        if self.by_row and table.n > OPEN_LIMIT // 2:
            over = table.keys[: table.n, 1] < row
            self._close(np.flatnonzero(over))
            table.keep(np.flatnonzero(~over))

    def finish(self) -> None:
        """Close every open sequence, those of a group in order of first sight."""
        self._close(np.arange(self.table.n))

    def _close(self, rows: Ints) -> None:
        """Close some open sequences."""
        self.groups.close(rows, self.table.keys[rows, 0], self.table.states, self.interval)

    def _close_half(self) -> None:
        """Close the half of the open sequences that was untouched for longest."""
        table = self.table
        order = np.argsort(table.touched[: table.n], kind="stable")
        half = order[: table.n // 2]
        self._close(half)
        if not self.by_row:
            self._remember(table.keys[half])
        table.keep(np.sort(order[table.n // 2 :]))

    def _remember(self, keys: Ints) -> None:
        """Remember closed sequences; beyond the limit only how far the ids of each group reach."""
        order = np.argsort(keys[:, 0], kind="stable")
        owners, first = np.unique(keys[order, 0], return_index=True)
        least = np.minimum.reduceat(keys[order, 1], first)
        most = np.maximum.reduceat(keys[order, 1], first)
        for owner, one, other in zip(owners.tolist(), least.tolist(), most.tolist(), strict=True):
            low, high = self._reach.get(owner, _NOWHERE)
            self._reach[owner] = min(low, one), max(high, other)
        if self._forgotten:
            return
        closed = self._closed or KeyedTable()
        if closed.n + keys.shape[0] > CLOSED_LIMIT:
            self._closed, self._forgotten = None, True
            return
        self._closed = KeyedTable()
        self._closed.reserve(closed.n + keys.shape[0])
        self._closed.n = closed.n + keys.shape[0]
        self._closed.keys[: self._closed.n] = np.concatenate([closed.keys[: closed.n], keys])
        sequence.rebuild(self._closed.slots, self._closed.keys, self._closed.n)

    def _check_returned(self, before: int) -> None:
        """Notice ids that come back after their sequence was closed."""
        if not self._reach or self.table.n == before:
            return
        for owner, one in self.table.keys[before : self.table.n].tolist():
            low, high = self._reach.get(owner, _NOWHERE)
            if not low <= one <= high or owner in self.groups.no_sequences:
                continue
            closed = self._closed
            if closed is None:
                what = "ids are out of order beyond what can be remembered"
            elif sequence.find(closed.slots, closed.keys, owner, one) >= 0:
                what = f"a sequence_id came back after {OPEN_LIMIT:,} others were open"
            else:
                continue
            self.groups.no_sequences[owner] = f"{self.path}: {what}"
