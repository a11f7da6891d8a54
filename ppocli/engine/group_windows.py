"""One file by groups: windows of its tokens, sorted by group, through the kernels, into their totals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.partials import COLUMNS
from ppocli.engine.blocks import WITH_NAN, Blocks, stored_of, widened
from ppocli.engine.cut import GROUPS, SEQUENCES, by_id, cut
from ppocli.engine.group_counts import count_tokens
from ppocli.engine.group_sequences import GroupSequences
from ppocli.engine.group_table import GroupTable, PairNumbers
from ppocli.engine.policy_sums import add_terms
from ppocli.engine.sequences import GROUP_LIMIT as PROMPT_LIMIT
from ppocli.engine.span import Span
from ppocli.engine.token_buffer import TokenBuffer
from ppocli.engine.totals import KeyedTable
from ppocli.engine.windows import Interleaved, Windows
from ppocli.errors import InputError
from ppocli.kernels import grouping, layout, sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.engine.group_state import GroupTotals
    from ppocli.engine.pairs import FileComparison
    from ppocli.engine.policy import PolicyStage
    from ppocli.engine.totals import Floats, Ints, Plan
    from ppocli.kernels.blocks import Workspace
    from ppocli.kernels.grouping import Order

    Arrays = dict[str, NDArray[Any]]

WINDOW = 1 << 21
"""Tokens that are sorted at a time, from the start of a file on; what a group has of them makes its blocks.

Part of the result, by less than 2^-47 of the mean of |term|. 25 MB of three float32 columns. 5,000 groups in
turn have 420 tokens each in a window, whose blocks are a fifth full.
"""

BATCH_BLOCKS = 64
"""Blocks that are evaluated at a time; a matter of memory, never of results."""

COUNTED_TOGETHER = 1 << 17
"""Tokens whose groups are counted at a time; likewise."""

OWNER, ROW, SEQUENCE = "owner", "row", "sequence_id"
NO_IDS = np.zeros(0, dtype=np.uint8)

StartDrift = Callable[[int, str], "FileComparison | None"]


@dataclass(frozen=True, slots=True)
class Target:
    """What a file is read for.

    Attributes
    ----------
    path, by : str
        The file, and what groups are told apart by.
    plan : Plan
    stage : PolicyStage, optional
        What computes beside the kernels.
    workspace : Workspace
    totals : GroupTotals
    table : GroupTable
    by_row : bool
        Sequences are rows.
    start_drift : callable, optional
        Takes the number of a group and a path; the file has the columns of the sampler.
    """

    path: str
    by: str
    plan: Plan
    stage: PolicyStage | None
    workspace: Workspace
    totals: GroupTotals
    table: GroupTable
    by_row: bool
    start_drift: StartDrift | None


class FileGroups:
    """Adds the spans of one file to the totals of its groups."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.drift: dict[int, FileComparison] = {}
        self.drift_rows: dict[int, int] = {}
        p = target.plan.parameters
        interval = float(p[layout.P_CLIP_FLOOR]), float(p[layout.P_CLIP_CEILING])
        self._sequences = GroupSequences(target.path, target.totals, interval, target.by_row)
        self._names: dict[str, None] = {}
        self._pairs = PairNumbers(target.path)
        self._buffer = TokenBuffer(WINDOW, {OWNER: np.int32})
        self._last_row = 0
        self._stored_before, self._valid_before = np.zeros((2, 0), dtype=np.int64)
        self._rows_seen = np.zeros(0, dtype=np.int64)
        stage = target.stage
        self._windows: Windows | None = None
        if stage is not None and stage.job.by_sequence and stage.sequences:
            self._windows = Windows(target.path, by_id=True, hold=False, evaluate=stage.of_window)
        self._begin()

    def _begin(self) -> None:
        """Remember what groups had before this file."""
        totals = self.target.totals
        self._stored_before = totals.ints("stored")[: totals.n].copy()
        self._valid_before = totals.ints("n_tokens")[: totals.n].copy()

    def add(self, span: Span) -> None:
        """Take a span: name its tokens' groups, compute what is beside the kernels, and fill the window."""
        self._mark(span)
        spans: Iterator[Span] = iter((span,))
        if self._windows is not None:
            spans = self._windows.push(span)
        elif self.target.stage is not None:
            spans = self.target.stage.through(spans)
        try:
            for one in spans:
                self._fill(one)
        except Interleaved:
            raise InputError(
                "the tokens of a sequence do not stand together, "
                f"as --by {self.target.by} needs with this loss",
                where=self.target.path,
                hint="sort the file by step and sequence_id",
            ) from None

    def finish(self) -> None:
        """Evaluate what is left, close all sequences, and note what the file has."""
        if self._windows is not None:
            for span in self._windows.finish():
                self._fill(span)
        if self._buffer.n:
            self._evaluate()
        self._sequences.finish()
        self._note_columns()

    # -------------------------------------------------------------------------------------- windows

    def _mark(self, span: Span) -> None:
        """Put beside a span the group of each token, and the row and the sequence where there are such."""
        arrays, target = span.arrays, self.target
        present = arrays.pop("step present", None)
        arrays[OWNER] = target.table.numbers(arrays.pop("step"), present, target.path, target.by)
        target.totals.grow(target.table.n)
        if span.row_starts is not None:
            arrays[ROW] = _rows(span)
            if target.by_row:
                arrays[SEQUENCE] = arrays[ROW]
        if self._windows is not None:
            arrays[SEQUENCE] = self._pairs.numbers(arrays[OWNER], arrays[SEQUENCE])

    def _fill(self, span: Span) -> None:
        """Add a span to the window, and evaluate it whenever it is full."""
        at, buffer = 0, self._buffer
        # What only some spans have is 1 in the others, and of this, which is made again, it must not be.
        arrays = {name: one for name, one in span.arrays.items() if not name.endswith(WITH_NAN)}
        while at < span.n_tokens:
            n = min(span.n_tokens - at, WINDOW - buffer.n)
            buffer.add(arrays, at, n)
            at += n
            if buffer.n == WINDOW:
                self._evaluate()

    def _evaluate(self) -> None:
        """Sort the tokens of the window by group and evaluate them."""
        arrays = self._buffer.take()
        totals = self.target.totals
        owner = arrays.pop(OWNER)
        counts = _counts(owner, totals.n)
        groups = np.flatnonzero(counts)
        order = grouping.order_of(owner, counts) if groups.size > 1 else np.arange(owner.size, dtype=np.int32)
        sizes = counts[groups]
        stops = np.cumsum(sizes)
        self._count_rows(arrays.pop(ROW, None), order, groups, stops)
        totals.ints("stored")[groups] += sizes
        if "log_probs" in self.target.plan.roles and "old_log_probs" in self.target.plan.roles:
            self._count_bins(arrays, order, groups, stops)
        if self.target.start_drift is not None:
            self._add_drift(arrays, order, groups, stops)
        for batch in _batches(groups, sizes, stops):
            self._add(batch, batch.of(arrays, order))
        if self.target.by_row:
            self._sequences.end_window(self._last_row)

    def _count_rows(self, rows: Ints | None, order: Order, groups: Ints, stops: Ints) -> None:
        """Count the rows in which each group has a token."""
        totals = self.target.totals
        if rows is None:
            np.add.at(totals.ints("n_rows"), groups, np.diff(stops, prepend=0))
            return
        self._last_row = int(rows[-1])
        sorted_rows = rows[order]
        begins = np.ones(order.size, dtype=np.bool_)
        begins[1:] = sorted_rows[1:] != sorted_rows[:-1]
        starts = stops - np.diff(stops, prepend=0)
        seen = np.full(totals.n, -1, dtype=np.int64)
        seen[: self._rows_seen.size] = self._rows_seen
        begins[starts] = sorted_rows[starts] != seen[groups]
        seen[groups] = sorted_rows[stops - 1]
        self._rows_seen = seen
        np.add.at(totals.ints("n_rows"), groups, np.add.reduceat(begins, starts, dtype=np.int64))

    def _count_bins(self, arrays: Arrays, order: Order, groups: Ints, stops: Ints) -> None:
        """Add the log-ratios of the window to the histograms, the tokens of some groups at a time."""
        columns = [stored_of(arrays, role) for role in ("log_probs", "old_log_probs")]
        found, first, start = [], 0, 0
        while first < groups.size:
            last = int(np.searchsorted(stops, start + BATCH_BLOCKS * layout.BLOCK)) + 1
            stop = int(stops[min(last, groups.size) - 1])
            tokens = order[start:stop]
            new, old = (widened(values[tokens]) for values in columns)
            counted = arrays["mask"][tokens] if "mask" in arrays else np.ones(new.size, dtype=np.uint8)
            found.append(
                grouping.count_bins(new, old, counted, stops[first:last] - start, groups[first:last])
            )
            first, start = last, stop
        keys, counts = (np.concatenate(parts) for parts in zip(*found, strict=True))
        self.target.totals.add_bins(keys, counts)

    def _add_drift(self, arrays: Arrays, order: Order, groups: Ints, stops: Ints) -> None:
        """Compare trainer and sampler in each group."""
        start = self.target.start_drift
        assert start is not None
        wanted = {
            name
            for role in ("old_log_probs", "rollout_log_probs", SEQUENCE)
            for name in (role, f"{role} present")
        }
        chosen = {name: values for name, values in arrays.items() if name in wanted or name == "mask"}
        for g, a, b in zip(groups.tolist(), [0, *stops[:-1].tolist()], stops.tolist(), strict=True):
            one = self.drift.get(g) or start(g, self.target.path)
            if one is None:
                self.drift = {}
                return
            self.drift[g] = one
            tokens = order[a:b]
            before = self.drift_rows.get(g, 0)
            one.add(Span(before, b - a, {name: values[tokens] for name, values in chosen.items()}))
            self.drift_rows[g] = before + b - a

    # -------------------------------------------------------------------------------------- batches

    def _add(self, batch: _Batch, span: Span) -> None:
        """Evaluate some blocks and add them to their groups."""
        target, totals = self.target, self.target.totals
        begins = {}
        if SEQUENCE in span.arrays:
            begins[SEQUENCES] = by_id(span, SEQUENCE)
        if "group_id" in span.arrays:
            begins[GROUPS] = by_id(span, "group_id")
        self._names |= dict.fromkeys(begins)
        blocks = Blocks(span, cut(span.n_tokens, begins), target.plan, target.workspace)
        blocks.evaluate()
        if target.plan.computed:
            add_terms(blocks)
        totals.add_blocks(blocks.sums, blocks.squares, blocks.extremes, batch.owners)
        count_tokens(blocks, batch.owners, batch.sizes, totals)
        for what, which in blocks.cut.places.items():
            starts, pieces = blocks.cut.starts[which], blocks.pieces[which]
            owners = batch.owners[starts // layout.BLOCK]
            name = SEQUENCE if what == SEQUENCES else "group_id"
            present = span.arrays.get(f"{name} present")
            known = NO_IDS if present is None else np.ascontiguousarray(present[starts])
            ids = np.ascontiguousarray(span.arrays[name][starts])
            if what == SEQUENCES:
                self._sequences.add(owners, ids, known, pieces)
            else:
                self._add_prompts(owners, ids, known, pieces)

    def _add_prompts(self, owners: Ints, ids: Ints, known: NDArray[np.uint8], pieces: Floats) -> None:
        """Add pieces to the groups of sequences within their group."""
        totals = self.target.totals
        if totals.too_many_prompts:
            return
        table = totals.prompts = totals.prompts or KeyedTable()
        table.reserve(min(table.n + ids.size, PROMPT_LIMIT))
        table.n, taken = sequence.add_keyed(
            table.slots, table.keys, table.states, table.touched, table.n, PROMPT_LIMIT,
            owners, ids, known, np.zeros(ids.size, dtype=np.int64), pieces, 0,
        )  # fmt: skip
        totals.too_many_prompts = taken < ids.size
        if totals.too_many_prompts:
            totals.prompts = KeyedTable()  # the metrics are null, and so many states are 200 MB

    # -------------------------------------------------------------------------------------- the file

    def _note_columns(self) -> None:
        """Note which columns and ids the groups of this file have."""
        totals, path = self.target.totals, self.target.path
        stored, valid = (_since(totals.ints(name)[: totals.n], before) for name, before in (
            ("stored", self._stored_before), ("n_tokens", self._valid_before)
        ))  # fmt: skip
        totals.ints("n_files")[: totals.n] += stored > 0
        having = np.flatnonzero(valid > 0)
        bits = sum(1 << c for c, role in enumerate(COLUMNS) if role in self.target.plan.roles)
        totals.ints("roles")[having] &= bits
        for what, flag, missing, word in (
            (SEQUENCES, "has_sequences", totals.no_sequences, "sequences"),
            (GROUPS, "has_prompts", totals.no_prompts, "group_id"),
        ):
            if what in self._names:
                totals.ints(flag)[having] = 1
            else:
                for g in having.tolist():
                    missing.setdefault(g, f"{path} has no {word}")


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Some consecutive blocks.

    Attributes
    ----------
    owners, sizes : (n_blocks,) int64
        The group of each block, and how many tokens it holds.
    start : int
        Tokens, sorted by group, before these.
    """

    owners: Ints
    sizes: Ints
    start: int

    def of(self, arrays: Arrays, order: Order) -> Span:
        """Return the tokens as a span of blocks, filled up with masked tokens where they are not full."""
        n = int(self.sizes.sum())
        tokens = order[self.start : self.start + n]
        if (self.sizes[:-1] == layout.BLOCK).all():
            return Span(0, n, {name: values[tokens] for name, values in arrays.items()})
        edges = np.arange(self.sizes.size) * layout.BLOCK
        places = np.arange(n) + np.repeat(edges - (np.cumsum(self.sizes) - self.sizes), self.sizes)
        size = self.sizes.size * layout.BLOCK
        out = {}
        for name in (*arrays, "mask", *(f"{one} present" for one in (SEQUENCE, "group_id") if one in arrays)):
            if name not in out:
                values = arrays.get(name)
                filled = np.zeros(size, dtype=np.uint8 if values is None else values.dtype)
                filled[places] = 1 if values is None else values[tokens]
                out[name] = filled
        return Span(0, size, out)


def _batches(groups: Ints, sizes: Ints, stops: Ints) -> Iterator[_Batch]:
    """Cut the tokens of groups into blocks, and yield some blocks at a time."""
    per_group = -(-sizes // layout.BLOCK)
    owners = np.repeat(groups, per_group)
    full = np.full(owners.size, layout.BLOCK, dtype=np.int64)
    full[np.cumsum(per_group) - 1] = sizes - (per_group - 1) * layout.BLOCK
    start = 0
    for a in range(0, owners.size, BATCH_BLOCKS):
        part = slice(a, a + BATCH_BLOCKS)
        yield _Batch(owners[part], full[part], start)
        start += int(full[part].sum())


def _rows(span: Span) -> Ints:
    """Return the row of each token."""
    assert span.row_starts is not None
    end = span.origin + span.n_tokens
    lengths = np.diff(np.clip(np.append(span.row_starts, end), span.origin, end))
    return np.repeat(np.arange(lengths.size) + span.first_row, lengths)


def _counts(owner: Order, n_groups: int) -> Ints:
    """Count the tokens of each group, in parts: `bincount` widens what it counts."""
    out = np.zeros(n_groups, dtype=np.int64)
    for start in range(0, owner.size, COUNTED_TOGETHER):
        out += np.bincount(owner[start : start + COUNTED_TOGETHER], minlength=n_groups)
    return out


def _since(now: Ints, before: Ints) -> Ints:
    """Return what was added to counts; groups that are new had none."""
    out = now.copy()
    out[: before.size] -= before
    return out
