"""From pieces to sequences: where they are cut, their positions, and what a finished sequence adds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.drift_partials import FLAG_NAN, FLAG_NEGINF, FLAG_POSINF, PIECE, POSITIONS
from ppocli.core.report import Place
from ppocli.engine.pair_totals import CLASSES, TOP, Floats, Ints, PairPlan, PairTotals, TopSequence
from ppocli.engine.sequences import CLOSED_LIMIT, OPEN_LIMIT
from ppocli.engine.totals import KeyedTable
from ppocli.errors import InputError
from ppocli.kernels import drift_sequence, layout
from ppocli.kernels.drift_sequence import FIRST_ROW, STATE, N
from ppocli.kernels.merge import NAN, NEGINF, POSINF

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.engine.span import Span

STEP_LIMIT = 100_000
"""Steps of a file that are kept apart, at about 300 bytes each."""

P_STORED, P_VALID = PIECE.index("stored"), PIECE.index("valid")


@dataclass(frozen=True, slots=True, eq=False)
class PairCut:
    """Where the pieces of a span start, the first piece of each block, and the class of each by position.

    Attributes
    ----------
    starts, positions : (n_pieces,) int64
        Position -1: not known.
    block_pieces : (n_blocks + 1,) int64
    """

    starts: Ints
    positions: Ints
    block_pieces: Ints


@dataclass(slots=True, eq=False)
class PairSequences:
    """Adds the pieces of one file's spans to its sequences, positions and steps."""

    path: str
    plan: PairPlan
    totals: PairTotals
    by_id: bool
    by_row: bool
    by_step: bool
    table: KeyedTable = field(default_factory=lambda: KeyedTable(states=np.zeros((1024, len(STATE)))))
    clock: int = 0
    _state: Floats = field(default_factory=lambda: np.zeros(len(STATE)))
    _open_row: int = -1
    _closed: list[Ints] = field(default_factory=list)
    _forgotten: bool = False

    @classmethod
    def for_span(
        cls, path: str, span: Span, plan: PairPlan, totals: PairTotals, steps: bool
    ) -> PairSequences:
        """Decide by the first span what tells sequences apart."""
        by_id = "sequence_id" in span.arrays
        by_row = span.row_starts is not None and not by_id
        totals.has_sequences = by_id or by_row
        return cls(path, plan, totals, by_id, by_row, steps and "step" in span.arrays)

    # -------------------------------------------------------------------------------------- cutting

    def cut(self, span: Span) -> PairCut:
        """Cut a span where a run, a sequence, a class of positions or a step begins."""
        n = span.n_tokens
        n_blocks = -(-n // layout.BLOCK)
        if not (self.by_id or self.by_row or self.by_step):
            nothing = np.zeros(0, dtype=np.int64)
            return PairCut(nothing, nothing, np.zeros(n_blocks + 1, dtype=np.int64))
        begins = np.zeros(n, dtype=np.bool_)
        begins[:: layout.RUN] = True
        heads, at = self._heads(span)
        begins[heads] = True
        known = at >= 0
        ends = np.append(heads[1:], n)
        for bound in POSITIONS[1:]:
            # Where a head's tokens reach the first position of a class.
            inside = heads + (bound - at)
            begins[inside[known & (inside > heads) & (inside < ends)]] = True
        if self.by_step:
            begins |= _changes(span, "step")
        starts = np.flatnonzero(begins)
        head = np.searchsorted(heads, starts, side="right") - 1
        positions = np.where(at[head] >= 0, at[head] + starts - heads[head], -1)
        blocks = np.arange(n_blocks + 1, dtype=np.int64) * layout.BLOCK
        return PairCut(starts, positions, np.searchsorted(starts, blocks))

    def _heads(self, span: Span) -> tuple[Ints, Ints]:
        """Return where tokens of another sequence begin in a span, and the position of the first of them."""
        n = span.n_tokens
        if self.by_row and span.row_starts is not None:
            starts = span.row_starts - span.origin
            heads = np.unique(np.clip(starts[starts < n], 0, None))
            at = np.zeros(heads.size, dtype=np.int64)
            if heads.size and heads[0] == 0:
                # Of the rows that begin there or before, the last has the span's first token.
                at[0] = -int(starts[starts <= 0].max())
            return heads, at
        if not self.by_id:
            return np.zeros(1, dtype=np.int64), np.full(1, -1, dtype=np.int64)
        changes = _changes(span, "sequence_id")
        changes[0] = True
        heads = np.flatnonzero(changes)
        codes = np.ascontiguousarray(span.arrays["sequence_id"][heads])
        lengths = np.diff(heads, append=n)
        places = np.empty(codes.size, dtype=np.int64)
        drift_sequence.lookup(self.table.slots, self.table.keys, codes, places)
        at = np.where(places >= 0, self.table.states[places, drift_sequence.STORED].astype(np.int64), 0)
        at += _stored_before(codes, lengths)
        present = span.arrays.get("sequence_id present")
        if present is not None:
            at[present[heads] == 0] = -1
        return heads, at

    # -------------------------------------------------------------------------------------- adding

    def add(self, span: Span, cut: PairCut, pieces: Floats) -> None:
        """Add the pieces of a span."""
        if cut.starts.size == 0:
            return
        mask = span.arrays.get("mask")
        pieces[:, P_STORED] = np.diff(cut.starts, append=span.n_tokens)
        pieces[:, P_VALID] = (
            pieces[:, P_STORED] if mask is None else np.add.reduceat(mask, cut.starts, dtype=np.int64)
        )
        rows = span.rows_of(cut.starts + span.origin)
        if self.by_row:
            self._add_by_row(rows, pieces)
        elif self.by_id:
            self._add_by_id(span, cut.starts, rows, pieces)
        if self.by_row or self.by_id:
            places = np.searchsorted(np.array(POSITIONS), cut.positions, side="right") - 1
            _add_classes(self.totals.classes, places, pieces)
        if self.by_step:
            self._add_steps(span, cut.starts, pieces)
        self.clock += cut.starts.size

    def finish(self) -> None:
        """Close every open sequence, in order of first sight."""
        if self.by_row and self._open_row >= 0:
            self._close(self._state[None], np.array([self._open_row]))
        elif self.by_id and self.table.n:
            self._close(self.table.states[: self.table.n], self.table.keys[: self.table.n, 1])

    def _add_by_row(self, rows: Ints, pieces: Floats) -> None:
        """Add pieces of sequences that follow each other, one a row."""
        begins = np.flatnonzero(np.diff(rows, prepend=self._open_row))
        states = np.concatenate([self._state[None], drift_sequence.new_states(rows[begins])])
        places = np.zeros(rows.size, dtype=np.int64)
        places[begins] = 1
        drift_sequence.add_pieces(np.cumsum(places), pieces, states)
        started = 1 if self._open_row < 0 else 0
        done = states[started:-1]
        if done.size:
            self._close(done, done[:, FIRST_ROW].astype(np.int64))
        self._state, self._open_row = states[-1].copy(), int(rows[-1])

    def _add_by_id(self, span: Span, starts: Ints, rows: Ints, pieces: Floats) -> None:
        """Add pieces by their sequence id; close the longest untouched where too many are open."""
        codes = np.ascontiguousarray(span.arrays["sequence_id"][starts])
        present = span.arrays.get("sequence_id present")
        known = drift_sequence.no_nulls() if present is None else np.ascontiguousarray(present[starts])
        table, done = self.table, 0
        while done < codes.size:
            table.reserve(min(table.n + codes.size - done, OPEN_LIMIT))
            before = table.n
            table.n, taken = drift_sequence.add_keyed(
                table.slots, table.keys, table.states, table.touched, table.n, OPEN_LIMIT,
                codes[done:], known[done:], rows[done:], pieces[done:], self.clock + done,
            )  # fmt: skip
            self._check_returned(before)
            done += taken
            if done < codes.size:
                self._close_half()

    def _close_half(self) -> None:
        """Close the half of the open sequences that was untouched for longest."""
        table = self.table
        order = np.argsort(table.touched[: table.n], kind="stable")
        half = order[: table.n // 2]
        self._close(table.states[half], table.keys[half, 1])
        if not self.totals.no_sequences:
            self._closed.append(table.keys[half, 1].copy())
            if sum(part.size for part in self._closed) > CLOSED_LIMIT:
                self._closed, self._forgotten = [], True
        table.keep(np.sort(order[table.n // 2 :]))

    def _check_returned(self, before: int) -> None:
        """Notice ids that come back after their sequence was closed."""
        table, totals = self.table, self.totals
        if table.n == before or totals.no_sequences or not (self._closed or self._forgotten):
            return
        fresh = table.keys[before : table.n, 1]
        back = np.ones(fresh.size, bool) if self._forgotten else np.isin(fresh, np.concatenate(self._closed))
        if back.any():
            row = int(table.states[before + int(back.argmax()), FIRST_ROW])
            what = (
                "more sequence ids than can be remembered"
                if self._forgotten
                else f"a sequence_id came back after {OPEN_LIMIT:,} others were open"
            )
            totals.no_sequences = f"{self.path} row {row}: {what}"
            self._closed = []

    def _add_steps(self, span: Span, starts: Ints, pieces: Floats) -> None:
        """Add pieces to their steps."""
        codes = span.arrays["step"][starts]
        present = span.arrays.get("step present")
        found, places = np.unique(codes, return_inverse=True)
        steps = found.tolist()
        if present is not None:
            places = np.where(present[starts] == 0, len(steps), places)
        known = self.totals.steps
        # Added to what is there, piece by piece: sums must not depend on where spans end.
        rows = [known.get(step, np.zeros(len(CLASSES))) for step in steps]
        table = np.array([*rows, self.totals.without_step])
        _add_classes(table, places, pieces)
        known.update({step: row for step, row in zip(steps, table[:-1], strict=True) if row[0]})
        self.totals.without_step = table[-1].copy()
        if len(known) > STEP_LIMIT:
            raise InputError(
                f"more than {STEP_LIMIT:,} steps, which is all that --by step keeps", where=self.path
            )

    # -------------------------------------------------------------------------------------- closing

    def _close(self, states: Floats, keys: Ints) -> None:
        """Add finished sequences to the sums over sequences, in the order given."""
        totals = self.totals
        self._tally(states[:, drift_sequence.FLAGS].astype(np.int64))
        totals.n_sequences += int((states[:, drift_sequence.VALID] > 0.0).sum())
        with_token = states[:, N] > 0.0
        states, keys = np.ascontiguousarray(states[with_token]), keys[with_token]
        if not states.size:
            return
        rules = self.plan.sequence_rules()
        rows = np.zeros((2 * len(states), totals.sequences.hi.size))
        drift_sequence.terms(states, rules, rows)
        totals.sequences.add(rows)
        self._keep_extremes(states)
        self._offer(states, keys)

    def _keep_extremes(self, states: Floats) -> None:
        """Keep the smallest and the largest sum, and where those sequences begin."""
        sums = states[:, drift_sequence.DIFF] + states[:, drift_sequence.DIFF_LOW]
        extremes = self.totals.sequence_extremes
        for side, at in ((0, int(sums.argmin())), (1, int(sums.argmax()))):
            if sums[at] < extremes[0] if side == 0 else sums[at] > extremes[1]:
                extremes[side] = sums[at]
                self.totals.sequence_places[side] = Place(self.path, int(states[at, FIRST_ROW]))

    def _offer(self, states: Floats, keys: Ints) -> None:
        """Offer those that may be among the sequences with the largest sums of |diff|."""
        sizes = states[:, drift_sequence.ABS]
        kept = self.totals.top
        bound = kept[-1].diff_abs if len(kept) == TOP else -1.0
        order = np.argsort(-sizes, kind="stable")[:TOP]
        order = order[sizes[order] > bound]
        if order.size:
            self.totals.offer_top([self._top(states[at], int(keys[at])) for at in order])

    def _top(self, state: Floats, key: int) -> TopSequence:
        n, diff = int(state[N]), float(state[drift_sequence.DIFF] + state[drift_sequence.DIFF_LOW])
        size, k3 = float(state[drift_sequence.ABS]), float(state[drift_sequence.K3])
        return TopSequence(self.path, int(state[FIRST_ROW]), key, n, diff, size, k3)

    def _tally(self, flags: Ints) -> None:
        """Count the terms that differences which are not finite would have made NaN or infinite."""
        if not flags.any():
            return
        up, down = flags & FLAG_POSINF != 0, flags & FLAG_NEGINF != 0
        is_nan = (flags & FLAG_NAN != 0) | (up & down)
        up, down = up & ~is_nan, down & ~is_nan
        tally = self.totals.sequence_terms
        tally[1:, NAN] += is_nan.sum()
        tally[1, POSINF] += up.sum()  # exp(2 sum)
        tally[2, NEGINF] += up.sum()  # mean(b - a)
        tally[2:, POSINF] += down.sum()


def _changes(span: Span, name: str) -> NDArray[np.bool_]:
    """Return where an id is another one than at the token before."""
    out = np.zeros(span.n_tokens, dtype=np.bool_)
    for array in (name, f"{name} present"):
        if array in span.arrays:
            values = span.arrays[array]
            out[1:] |= values[1:] != values[:-1]
    return out


def _stored_before(codes: Ints, lengths: Ints) -> Ints:
    """Return, for runs of ids in order, how many tokens of the same id stand before each run."""
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    fresh = np.flatnonzero(np.diff(sorted_codes, prepend=sorted_codes[0] - 1))
    if fresh.size == codes.size:
        return np.zeros(codes.size, dtype=np.int64)
    running = np.cumsum(lengths[order]) - lengths[order]
    out = np.empty(codes.size, dtype=np.int64)
    out[order] = running - np.repeat(running[fresh], np.diff(fresh, append=codes.size))
    return out


def _add_classes(table: Floats, places: Ints, pieces: Floats) -> None:
    """Add pieces, in order, to the rows of a table at these places; none at place -1."""
    states = np.zeros((len(table), len(STATE)))
    states[:, N], states[:, drift_sequence.DIFF], states[:, drift_sequence.DIFF_LOW] = table[:, :3].T
    states[:, drift_sequence.ABS], states[:, drift_sequence.K3] = table[:, 3:].T
    drift_sequence.add_pieces(np.ascontiguousarray(places, dtype=np.int64), pieces, states)
    table[:, :3] = states[:, [N, drift_sequence.DIFF, drift_sequence.DIFF_LOW]]
    table[:, 3:] = states[:, [drift_sequence.ABS, drift_sequence.K3]]
