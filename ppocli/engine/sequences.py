"""From pieces to sequences and groups: which token belongs where, and when a sequence is over."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ppocli.core.report import Place
from ppocli.engine.cut import GROUPS, MICRO_BATCHES, SEQUENCES, Cut, by_id, by_row, cut
from ppocli.engine.suspects import MASKED
from ppocli.engine.totals import Floats, Ints, KeyedTable, Plan, Totals
from ppocli.kernels import layout, sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.engine.span import Span

OPEN_LIMIT = 200_000
"""Sequences of one file that are kept open; beyond it the half that was untouched for longest is closed."""

CLOSED_TOGETHER = 1 << 12
"""Sequences that are closed at a time. A matter of memory, never of results."""

GROUP_LIMIT = 1_000_000
"""Groups over the whole input."""

CLOSED_LIMIT = 1_000_000
"""Closed ids that are remembered, to notice one that comes back."""


Targets: TypeAlias = "tuple[float, float, Floats, Floats, Ints, Ints, Floats, Ints]"
"""What closing a sequence takes and adds to: the clip interval, sums, tallies, extremes and their places."""


@dataclass(slots=True, eq=False)
class MicroBatches:
    """Means over micro-batches of stored rows, in order over the concatenated input.

    A micro-batch may begin in one file and end in the next, so this is one value for the whole run.
    """

    n_rows: int
    totals: Totals = field(default_factory=Totals)
    _state: Floats = field(default_factory=lambda: np.zeros(sequence.N_STATE))
    _open: Ints = field(default_factory=lambda: np.full(1, -1, dtype=np.int64))
    _places: Ints = field(default_factory=lambda: np.full((sequence.N_EXTREMES, 2), -1, dtype=np.int64))

    def copy(self) -> MicroBatches:
        """Return a copy; of none, which nothing changes, the same."""
        return deepcopy(self) if self.n_rows else self

    def add(self, rows: Ints, pieces: Floats) -> None:
        """Add pieces, each of which lies inside one micro-batch, by the row in which they begin."""
        sequence.add_rows(rows // self.n_rows, pieces, self._state, self._open, *self._targets())

    def finish(self) -> Totals:
        """Close the last micro-batch; its means stand in the sums over sequences."""
        if self._open[0] >= 0:
            sequence.close_sequence(self._state, *self._targets())
            self._open[0] = -1
        return self.totals

    def _targets(self) -> Targets:
        t = self.totals
        return 0.0, np.inf, t.seq_hi, t.seq_lo, t.seq_nonfinite, t.seq_terms, t.seq_extremes, self._places


@dataclass(slots=True, eq=False)
class SequenceStage:
    """Adds the pieces of one file's spans to its sequences and groups."""

    path: str
    plan: Plan
    totals: Totals
    by_id: bool
    by_row: bool
    by_group: bool
    micro: MicroBatches
    base_row: int
    open_rows: KeyedTable = field(default_factory=KeyedTable)
    clock: int = 0
    _state: Floats = field(default_factory=lambda: np.zeros(sequence.N_STATE))
    _open_row: Ints = field(default_factory=lambda: np.full(1, -1, dtype=np.int64))
    _closed: list[Ints] = field(default_factory=list)
    _reach: tuple[int, int] = (2**63 - 1, -(2**63))
    _forgotten: bool = False
    _places: Ints = field(default_factory=lambda: np.full((sequence.N_EXTREMES, 2), -1, dtype=np.int64))

    @classmethod
    def for_span(
        cls, path: str, span: Span, plan: Plan, totals: Totals, micro: MicroBatches, base_row: int
    ) -> SequenceStage:
        """Decide by the first span what tells sequences apart; `base_row` rows stand in the files before."""
        by_id = "sequence_id" in span.arrays
        by_row = span.row_starts is not None and not by_id
        by_group = "group_id" in span.arrays
        totals.has_sequences = by_id or by_row
        if by_group:
            totals.groups = KeyedTable.narrow(plan.n_keyed, timed=False)
        open_rows = KeyedTable.narrow(plan.n_keyed, timed=True)
        return cls(path, plan, totals, by_id, by_row, by_group, micro, base_row, open_rows)

    def cut(self, span: Span) -> Cut:
        """Cut a span for everything that is summed for."""
        begins = {}
        if self.by_row:
            begins[SEQUENCES] = by_row(span)
        elif self.by_id:
            begins[SEQUENCES] = by_id(span, "sequence_id")
        if self.by_group:
            begins[GROUPS] = by_id(span, "group_id", "step")
        if self.micro.n_rows:
            begins[MICRO_BATCHES] = by_row(span, self.base_row, self.micro.n_rows)
        return cut(span.n_tokens, begins)

    def add(self, span: Span, cut: Cut, pieces: Floats) -> None:
        """Add the pieces of a span."""
        for what, which in cut.places.items():
            starts, own = cut.starts[which], pieces[which]
            rows = span.rows_of(starts + span.origin)
            if what == GROUPS:
                self._add_groups(span, starts, rows, own)
            elif what == MICRO_BATCHES:
                self.micro.add(self.base_row + rows, own)
            elif self.by_row:
                sequence.add_rows(rows, own, self._state, self._open_row, *self._targets())
            else:
                self._add_by_id(span, starts, rows, own)
                self.clock += starts.size

    def finish(self) -> None:
        """Close every open sequence, in order of first sight."""
        if self.by_row and self._open_row[0] >= 0:
            sequence.close_sequence(self._state, *self._targets())
        elif self.by_id:
            self._close(np.arange(self.open_rows.n))
        for which in range(sequence.N_EXTREMES):
            for side in (0, 1):
                if self._places[which, side] >= 0:
                    self.totals.seq_places[which, side] = Place(self.path, int(self._places[which, side]))

    def note_masked(self) -> None:
        """Enter the sequences whose tokens are all masked; rows without a token are none of them."""
        count = int(self.totals.seq_hi[sequence.S_EMPTY])
        if count and not self.totals.no_sequences:
            self.totals.add_suspect(MASKED, count, self.totals.seq_places[sequence.X_EMPTY, 0])

    def ids(self) -> Ints:
        """Return the sequence ids met so far that are still known."""
        return np.concatenate([*self._closed, self.open_rows.keys[: self.open_rows.n, 1]])

    def first_rows(self) -> Ints:
        """Return the first row of each of these; -1 where it was closed before the end."""
        closed = np.full(sum(part.size for part in self._closed), -1, dtype=np.int64)
        rows = self.open_rows.states[: self.open_rows.n, sequence.FIRST_ROW].astype(np.int64)
        return np.concatenate([closed, rows])

    def position(self, span: Span, token: int) -> int | None:
        """Return how many stored tokens of its sequence stand before a token of a span not yet added."""
        codes, here = span.arrays["sequence_id"], token - span.origin
        present = span.arrays.get("sequence_id present")
        if present is not None and present[here] == 0:
            return None
        same = codes[:here] == codes[here]
        if present is not None:
            same &= present[:here] != 0
        table = self.open_rows
        at = sequence.find(table.slots, table.keys, 0, int(codes[here]))
        before = int(table.states[at, sequence.STORED]) if at >= 0 else 0
        return before + int(same.sum())

    def _targets(self) -> Targets:
        p, t = self.plan.parameters, self.totals
        interval = float(p[layout.P_CLIP_FLOOR]), float(p[layout.P_CLIP_CEILING])
        sums = t.seq_hi, t.seq_lo, t.seq_nonfinite, t.seq_terms, t.seq_extremes, self._places
        return *interval, *sums

    def _add_by_id(self, span: Span, starts: Ints, rows: Ints, pieces: Floats) -> None:
        """Add pieces by their sequence id; close the longest untouched where too many are open."""
        codes, known = _ids_at(span, "sequence_id", starts)
        if known.size:
            self.totals.n_null_ids += int(pieces[known == 0, layout.PIECE_STORED].sum())
        zeros = np.zeros(codes.size, dtype=np.int64)
        table = self.open_rows
        done = 0
        while done < codes.size:
            table.reserve(min(table.n + codes.size - done, OPEN_LIMIT))
            before = table.n
            table.n, taken = sequence.add_keyed(
                table.slots, table.keys, table.states, table.touched, table.n, OPEN_LIMIT,
                zeros[done:], codes[done:], known[done:], rows[done:], pieces[done:], self.clock + done,
            )  # fmt: skip
            self._check_returned(table, before)
            done += taken
            if done < codes.size:
                self._close_half()

    def _close_half(self) -> None:
        """Close the half of the open sequences that was untouched for longest."""
        table = self.open_rows
        order = np.argsort(table.touched[: table.n], kind="stable")
        half = order[: table.n // 2]
        self._close(half)
        self._remember(table.keys[half, 1])
        table.keep(np.sort(order[table.n // 2 :]))

    def _remember(self, ids: Ints) -> None:
        """Remember closed ids; beyond the limit only how far they reach."""
        if self.totals.no_sequences:
            return
        self._closed.append(ids.copy())
        self._reach = (min(self._reach[0], int(ids.min())), max(self._reach[1], int(ids.max())))
        if sum(part.size for part in self._closed) > CLOSED_LIMIT:
            self._closed, self._forgotten = [], True

    def _close(self, rows: Ints) -> None:
        """Close some open sequences, in order, a few at a time: each takes memory while it is closed."""
        for at in range(0, rows.size, CLOSED_TOGETHER):
            states = sequence.widened(self.open_rows.states[rows[at : at + CLOSED_TOGETHER]])
            sequence.close_rows(np.arange(states.shape[0]), states, *self._targets())

    def _check_returned(self, table: KeyedTable, before: int) -> None:
        """Notice ids that come back after their sequence was closed."""
        if table.n == before or self.totals.no_sequences:
            return
        fresh = table.keys[before : table.n, 1]
        inside = (fresh >= self._reach[0]) & (fresh <= self._reach[1])
        if not inside.any():
            return
        if self._forgotten:
            back, what = inside, "ids are out of order beyond what can be remembered"
        else:
            back = np.isin(fresh, np.concatenate(self._closed))
            what = f"a sequence_id came back after {OPEN_LIMIT:,} others were open"
        if back.any():
            row = int(table.states[before + int(back.argmax()), sequence.FIRST_ROW])
            self.totals.no_sequences = f"{self.path} row {row}: {what}"
            self._closed = []

    def _add_groups(self, span: Span, starts: Ints, rows: Ints, pieces: Floats) -> None:
        """Add pieces to their (step, group_id)."""
        table = self.totals.groups
        if table is None or self.totals.n_groups_over:
            return
        groups, known = _ids_at(span, "group_id", starts)
        steps = np.zeros(groups.size, dtype=np.int64)
        if "step" in span.arrays:
            steps, known_steps = _ids_at(span, "step", starts)
            known = (
                known & known_steps
                if known.size and known_steps.size
                else known
                if known.size
                else known_steps
            )
        if known.size:
            self.totals.n_null_groups += int(pieces[known == 0, layout.PIECE_STORED].sum())
        table.reserve(min(table.n + groups.size, GROUP_LIMIT))
        table.n, taken = sequence.add_keyed(
            table.slots, table.keys, table.states, table.touched, table.n, GROUP_LIMIT,
            steps, groups, known, rows, pieces, self.clock,
        )  # fmt: skip
        self.totals.n_groups_over = taken < groups.size
        if self.totals.n_groups_over:
            self.totals.groups = KeyedTable.narrow(0, timed=False)  # the metrics are null


def _ids_at(span: Span, name: str, starts: Ints) -> tuple[Ints, NDArray[np.uint8]]:
    """Return the ids of pieces, and which of them are not null (empty: all)."""
    present = span.arrays.get(f"{name} present")
    return span.arrays[name][starts], np.zeros(0, dtype=np.uint8) if present is None else present[starts]
