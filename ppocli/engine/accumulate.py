"""One file through the kernels: spans in, totals out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppocli.core.partials import COLUMNS, EXTREMES, MOMENTS, SELECTIONS, SUM
from ppocli.core.report import Place
from ppocli.engine import dirty
from ppocli.engine.sequences import Cut, SequenceStage
from ppocli.engine.span import Span
from ppocli.engine.totals import Floats, Ints, Plan, Totals
from ppocli.engine.worst import WorstTokens
from ppocli.kernels import extras, layout, merge, ppo, rare

LOCATED = {"log_ratio": ("log_probs", "old_log_probs"), "adv": ("advantages",), "ref_k1": ("log_probs", "ref_log_probs")}
"""Extremes whose place is reported, and the columns they are made of."""

LOG_PROBS = ("log_probs", "old_log_probs", "ref_log_probs")
BASE_USES = sum(1 << layout.SELECTION[name] for name in layout.BASE_SELECTIONS)
X_LOG_RATIO = EXTREMES.index("log_ratio")


@dataclass(slots=True, eq=False)
class Workspace:
    """Scratch of the workers, made once and used for every file."""

    n_workers: int
    scratch: Floats = field(init=False)
    index: Ints = field(init=False)
    bins: Ints = field(init=False)

    def __post_init__(self) -> None:
        n = self.n_workers
        self.scratch = np.zeros((n, layout.SCRATCH))
        self.index = np.zeros((n, 2, layout.RUN + 1), dtype=np.int64)
        self.bins = np.zeros((n, layout.HISTOGRAM_BINS), dtype=np.int64)


class Blocks:
    """The rows that the kernels write for the blocks of one span."""

    def __init__(self, span: Span, cut: Cut, plan: Plan, workspace: Workspace) -> None:
        self.span, self.cut, self.plan, self.workspace = span, cut, plan, workspace
        self.n = -(-span.n_tokens // layout.BLOCK)
        self.sums = np.zeros((self.n, layout.N_SUMS))
        self.squares = np.zeros((self.n, len(MOMENTS), 2))
        self.extremes = np.tile([np.inf, -np.inf], (self.n, len(EXTREMES), 1))
        self.pieces = np.zeros((cut.starts.size, layout.N_PIECE))
        self.pieces[:, layout.PIECE_ADV_MIN], self.pieces[:, layout.PIECE_ADV_MAX] = np.inf, -np.inf
        self.bad = np.zeros(self.n, dtype=np.int64)
        self.positive = np.zeros(self.n, dtype=np.int64)
        arrays = [_widened_half(_stored(span, role)) if role in plan.roles else _NOTHING for role in COLUMNS]
        self._columns = tuple(_read_only(values) for values in arrays)
        self._doubles = sum(1 << c for c, values in enumerate(arrays) if values.dtype == np.float64)
        self._mask = _read_only(span.arrays.get("mask", _NOTHING))

    def evaluate(self) -> None:
        """Run the kernels over all blocks, and again over those that hold values that are not finite."""
        self._run(np.arange(self.n), self.plan.uses, self.plan.has, self._mask)
        again = np.flatnonzero(self.bad)
        if again.size:
            self._evaluate_dirty(again)
        self._count_rare()

    def tokens_of(self, block: int) -> tuple[int, int]:
        """Return where a block starts and stops in the span."""
        return block * layout.BLOCK, min((block + 1) * layout.BLOCK, self.span.n_tokens)

    def _run(self, wanted: Ints, uses: int, has: int, mask: NDArray[np.uint8]) -> None:
        """Evaluate some selections over some blocks."""
        cut, work, plan = self.cut, self.workspace, self.plan
        bad, positive = np.zeros(self.n, dtype=np.int64), np.zeros(self.n, dtype=np.int64)
        base, other = uses & BASE_USES, uses & ~BASE_USES
        if base:
            ppo.evaluate_base(
                self._columns, self._doubles, mask, self.span.n_tokens, wanted, base, has & plan.columns_of(base),
                cut.starts, cut.block_pieces, plan.parameters, work.scratch, work.index, work.bins,
                self.sums, self.squares, self.extremes, self.pieces, bad, positive,
            )  # fmt: skip
            self.bad += bad
            self.positive += positive
        if other:
            extras.evaluate_extras(
                self._columns, self._doubles, mask, self.span.n_tokens, wanted, other, has & plan.columns_of(other),
                cut.starts, cut.block_pieces, plan.parameters, work.scratch, work.index,
                self.sums, self.squares, self.extremes, self.pieces, bad, positive,
            )  # fmt: skip
            self.bad += bad
            self.positive += positive

    def _evaluate_dirty(self, wanted: Ints) -> None:
        """Evaluate blocks selection by selection, over the tokens whose columns for it are all finite."""
        self._forget(wanted)
        self.positive[wanted] = 0
        counted = self._mask if self._mask.size else np.ones(self.span.n_tokens, dtype=np.uint8)
        finite = {
            role: np.isfinite(_widened(values))
            for role, values in zip(COLUMNS, self._arrays_of(wanted), strict=True)
            if role in self.plan.roles
        }
        where = self.token_index(wanted)
        for name in SELECTIONS:
            bit = 1 << layout.SELECTION[name]
            if self.plan.uses & bit:
                roles = [role for c, role in enumerate(COLUMNS) if self.plan.columns_of(bit) >> c & 1]
                mask = counted.copy()
                mask[where] &= np.logical_and.reduce([finite[role] for role in roles]).astype(np.uint8)
                self._run(wanted, bit, self.plan.has, _read_only(mask))
        self.positive[wanted] = 0

    def _forget(self, wanted: Ints) -> None:
        """Clear the rows of blocks that are evaluated again."""
        self.sums[wanted] = 0.0
        self.squares[wanted] = 0.0
        self.extremes[wanted] = (np.inf, -np.inf)
        for block in wanted:
            first, last = self.cut.block_pieces[block : block + 2]
            self.pieces[first:last] = 0.0
            self.pieces[first:last, layout.PIECE_ADV_MIN] = np.inf
            self.pieces[first:last, layout.PIECE_ADV_MAX] = -np.inf

    def token_index(self, wanted: Ints) -> Ints:
        """Return the tokens of some blocks, counted from the start of the span."""
        every = (wanted[:, None] * layout.BLOCK + np.arange(layout.BLOCK)).ravel()
        return every[every < self.span.n_tokens]

    def _arrays_of(self, wanted: Ints) -> list[NDArray[Any]]:
        """Return the stored values of every column at the tokens of some blocks."""
        where = self.token_index(wanted)
        return [
            _stored(self.span, role)[where] if role in self.plan.roles else _NOTHING for role in COLUMNS
        ]

    def _count_rare(self) -> None:
        """Sums for the effective sample size, and a second look at blocks whose extremes call for one."""
        if not self.plan.uses >> layout.SELECTION["ratio"] & 1:
            return
        self.sums[:, SUM["ess_1"]] = self.sums[:, SUM["raw_ratio"]]
        self.sums[:, SUM["ess_2"]] = self.sums[:, SUM["raw_ratio_sq"]]
        low, high = self.extremes[:, X_LOG_RATIO].T
        clamp = self.plan.parameters[layout.P_CLAMP]
        wanted = np.flatnonzero((high > min(layout.RARE_HIGH, clamp)) | (low < max(layout.RARE_LOW, -clamp)))
        if not wanted.size:
            return
        parts = [self.log_ratios(int(block)) for block in wanted]
        limits = np.cumsum([0, *(part.size for part in parts)])
        first = layout.RARE_FIRST
        rows = self.sums[:, first : first + layout.N_RARE]
        rare.count_rare(np.concatenate(parts), limits, wanted, clamp, rows)

    def log_ratios(self, block: int) -> Floats:
        """Return the finite log-ratios of a block's valid tokens."""
        start, stop = self.tokens_of(block)
        with np.errstate(invalid="ignore"):
            x = self.widened("log_probs", start, stop) - self.widened("old_log_probs", start, stop)
        keep = np.isfinite(self.widened("log_probs", start, stop)) & np.isfinite(
            self.widened("old_log_probs", start, stop)
        )
        if self._mask.size:
            keep &= self._mask[start:stop] != 0
        return x[keep]

    def widened(self, role: str, start: int, stop: int) -> Floats:
        """Return some tokens of a column as float64, NaN where they are null."""
        return _widened(_stored(self.span, role)[start:stop])


class FileAccumulator:
    """Adds the spans of one file to its totals."""

    def __init__(self, path: str, plan: Plan, workspace: Workspace, worst: WorstTokens) -> None:
        self.path = path
        self.plan = plan
        self.workspace = workspace
        self.worst = worst
        self.totals = Totals(roles=plan.roles, n_files=1)
        self.sequences: SequenceStage | None = None
        workspace.bins[:] = 0

    def add(self, span: Span) -> None:
        """Evaluate a span and add it to the totals."""
        totals = self.totals
        if self.sequences is None:
            self.sequences = SequenceStage.for_span(self.path, span, self.plan, totals)
        blocks = Blocks(span, self.sequences.cut(span), self.plan, self.workspace)
        blocks.evaluate()
        merge.merge_blocks(blocks.sums, blocks.squares, totals.hi, totals.lo, totals.m2, totals.nonfinite)
        self._count_tokens(span, blocks)
        self._keep_extremes(blocks)
        self.worst.offer(self, blocks)
        self.sequences.add(span, blocks.cut, blocks.pieces)

    def finish(self) -> Totals:
        """Close what is open and return the file's totals."""
        if self.sequences is not None:
            self.sequences.finish()
        self.totals.bins[:] = self.workspace.bins.sum(axis=0)
        return self.totals

    def _count_tokens(self, span: Span, blocks: Blocks) -> None:
        """Count valid and masked tokens, values that are not finite and positive log-probs."""
        mask, totals = span.arrays.get("mask"), self.totals
        n_valid = span.n_tokens if mask is None else int(np.count_nonzero(mask))
        totals.n_tokens += n_valid
        totals.n_masked += span.n_tokens - n_valid
        totals.n_positive += int(blocks.positive.sum())
        starts = blocks.cut.starts
        if starts.size:
            blocks.pieces[:, layout.PIECE_STORED] = np.diff(starts, append=span.n_tokens)
            blocks.pieces[:, layout.PIECE_VALID] = (
                blocks.pieces[:, layout.PIECE_STORED]
                if mask is None
                else np.add.reduceat(mask, starts, dtype=np.int64)
            )
        again = np.flatnonzero(blocks.bad)
        if again.size:
            self._tally_dirty(span, blocks, blocks.token_index(again))

    def _tally_dirty(self, span: Span, blocks: Blocks, where: Ints) -> None:
        """Count and locate what is not finite in some blocks, and what float64 would have made of it."""
        if "mask" in span.arrays:
            where = where[span.arrays["mask"][where] != 0]
        values, null, bad = {}, {}, np.zeros(where.size, dtype=np.bool_)
        for c, role in enumerate(COLUMNS):
            if role not in self.plan.roles:
                continue
            values[role] = _widened(_stored(span, role)[where])
            present = span.arrays.get(f"{role} present")
            null[role] = np.zeros(where.size, dtype=np.bool_) if present is None else present[where] == 0
            wrong = ~np.isfinite(values[role])
            bad |= wrong
            if wrong.any():
                self.totals.column_counts[c] += dirty.kinds_of(values[role], null[role])
                if role not in self.totals.first_bad:
                    self.totals.first_bad[role] = self.place(span, span.origin + int(where[wrong.argmax()]))
            if role in LOG_PROBS:
                self.totals.n_positive += int((values[role] > 0.0).sum())
        values = {role: x[bad] for role, x in values.items()}
        null = {role: x[bad] for role, x in null.items()}
        for name, terms in dirty.terms_of(values, null, self.plan.parameters):
            self.totals.terms[SUM[name]] += (
                np.isnan(terms).sum(),
                (terms == np.inf).sum(),
                (terms == -np.inf).sum(),
            )
        if blocks.cut.starts.size:
            at = np.searchsorted(blocks.cut.starts, where[bad], side="right") - 1
            flags = np.zeros(blocks.cut.starts.size, dtype=np.int64)
            np.bitwise_or.at(flags, at, dirty.flags_of(values, null, self.plan.parameters))
            blocks.pieces[:, layout.PIECE_FLAGS] = flags

    def _keep_extremes(self, blocks: Blocks) -> None:
        """Keep the extremes of the span that go further, and say where those stand that are reported."""
        low, high = blocks.extremes[:, :, 0].argmin(axis=0), blocks.extremes[:, :, 1].argmax(axis=0)
        for which, name in enumerate(EXTREMES):
            for side, block in ((0, int(low[which])), (1, int(high[which]))):
                value = blocks.extremes[block, which, side]
                best = self.totals.extremes[which, side]
                if (value < best) if side == 0 else (value > best):
                    self.totals.extremes[which, side] = value
                    if name in LOCATED:
                        self.totals.places[name, side] = self.place(blocks.span, self._find(blocks, block, name, value))

    def _find(self, blocks: Blocks, block: int, name: str, value: float) -> int:
        """Return the first valid token of a block at which a quantity has this value."""
        start, stop = blocks.tokens_of(block)
        x = blocks.widened(LOCATED[name][0], start, stop)
        if len(LOCATED[name]) == 2:
            with np.errstate(invalid="ignore"):  # inf - inf, at tokens that are counted as not finite
                x = x - blocks.widened(LOCATED[name][1], start, stop)
        hit = x == value
        if "mask" in blocks.span.arrays:
            hit &= blocks.span.arrays["mask"][start:stop] != 0
        return blocks.span.origin + start + int(hit.argmax())

    def place(self, span: Span, token: int) -> Place:
        """Return where a token of this span stands."""
        row = int(span.rows_of(np.array([token]))[0])
        position = None
        if "sequence_id" in span.arrays and self.sequences is not None:
            position = self.sequences.position(span, token)
        elif span.row_starts is not None:
            position = token - span.start_of_row(row)
        return Place(self.path, row, position)


_NOTHING = np.zeros(0, dtype=np.uint8)
_BFLOAT16_NAN = 0x7FC0


def _stored(span: Span, role: str) -> NDArray[Any]:
    """Return a column as stored, with NaN where the file holds a null."""
    values, present = span.arrays[role], span.arrays.get(f"{role} present")
    if present is None or present.all():
        return values
    values = values.copy()
    values[present == 0] = _BFLOAT16_NAN if values.dtype == np.uint16 else np.nan
    span.arrays[role] = values
    return values


def _read_only(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of an array as a view that cannot be written: one type for the kernels, whoever owns it."""
    view = values.view(np.uint8)
    view.flags.writeable = False
    return view


def _widened_half(values: NDArray[Any]) -> NDArray[Any]:
    """Widen float16, and the bits of bfloat16, to float32, exactly."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32) if values.dtype == np.float16 else values


def _widened(values: NDArray[Any]) -> Floats:
    """Widen to float64, exactly."""
    return _widened_half(values).astype(np.float64)
