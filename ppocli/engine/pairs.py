"""One file of a comparison: spans in, totals out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.drift_partials import EXTREMES, FLAG_NAN, FLAG_NEGINF, FLAG_POSINF, PIECE, SUM, SUMS
from ppocli.core.formats import PLACEHOLDERS
from ppocli.core.report import Place
from ppocli.engine.blocks import NOTHING, stored, widened
from ppocli.engine.dirty import kinds_of
from ppocli.engine.pair_sequences import PairCut, PairSequences
from ppocli.engine.pair_totals import PairPlan, PairTotals
from ppocli.kernels import drift, drift_layout, drift_loss, layout, rare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ppocli.engine.pair_sample import Sampler
    from ppocli.engine.pair_totals import Floats, Ints
    from ppocli.engine.pair_worst import WorstPairs
    from ppocli.engine.span import Span

X_DIFF = EXTREMES.index("diff")
P_FLAGS = PIECE.index("flags")
LOSS_ARRAYS = ("log_probs", "advantages")

BIG = 300.0
"""Beyond this difference squares of weights come near the end of float64."""

FILLED = -2.0
"""A log-prob of exactly 0 opposite one below this was filled in: both cannot be of one token."""

FAR = 20.0
"""A placeholder is further than this from the log-prob opposite, in nats; +1 is one at any distance."""


class PairBlocks:
    """The rows that the kernels write for the blocks of one span."""

    def __init__(self, span: Span, cut: PairCut, plan: PairPlan, work: Workspaces) -> None:
        self.span, self.cut, self.plan, self.work = span, cut, plan, work
        self.n = -(-span.n_tokens // layout.BLOCK)
        self.mask = span.arrays.get("mask", NOTHING)
        self.columns = [_readable(stored(span, key)) for key in (plan.key_a, plan.key_b)]
        rules = plan.token_rules()
        self.sums = np.zeros((self.n, len(SUMS)))
        self.by_rule = np.zeros((self.n, len(rules), 3))
        self.moments = np.zeros((self.n, 2 + drift_layout.N_MOMENTS))
        self.extremes = np.tile([np.inf, -np.inf], (self.n, len(EXTREMES), 1))
        self.pieces = np.zeros((cut.starts.size, len(PIECE)))
        self.bad = np.zeros(self.n, dtype=np.int64)
        self.losses = np.zeros((self.n, 2 + len(rules)))
        self.has_loss = plan.loss and all(name in span.arrays for name in LOSS_ARRAYS)

    def evaluate(self) -> None:
        """Run the kernels over all blocks, and again over those that hold values that are not finite."""
        every = np.arange(self.n)
        self._run(every, self.mask, self.bad)
        again = np.flatnonzero(self.bad)
        if again.size:
            mask, bad = self._finite(again, self.columns), np.zeros(self.n, dtype=np.int64)
            self._run(again, mask, bad, finite=True)
        self._count_rare()
        if self.has_loss:
            self._run_losses(every)

    def tokens_of(self, block: int) -> tuple[int, int]:
        """Return where a block starts and stops in the span."""
        return block * layout.BLOCK, min((block + 1) * layout.BLOCK, self.span.n_tokens)

    def token_index(self, wanted: Ints) -> Ints:
        """Return the valid tokens of some blocks, counted from the start of the span."""
        every = (wanted[:, None] * layout.BLOCK + np.arange(layout.BLOCK)).ravel()
        every = every[every < self.span.n_tokens]
        return every[self.mask[every] != 0] if self.mask.size else every

    def sides(self, block: int) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return both sides of a block as float64, and which tokens are valid."""
        start, stop = self.tokens_of(block)
        a, b = (widened(stored(self.span, key)[start:stop]) for key in (self.plan.key_a, self.plan.key_b))
        valid = self.mask[start:stop] != 0 if self.mask.size else np.ones(stop - start, dtype=np.bool_)
        return a, b, valid

    def _run(self, wanted: Ints, mask: NDArray[np.uint8], bad: Ints, *, finite: bool = False) -> None:
        """Compare the two columns over some blocks."""
        drift.evaluate_pairs(
            self.work.pairs, self.columns, mask, self.span.n_tokens, wanted, self.cut.starts,
            self.cut.block_pieces, self.plan.token_rules(), self.sums, self.by_rule, self.moments,
            self.extremes, self.pieces, bad, finite=finite,
        )  # fmt: skip

    def _run_losses(self, every: Ints) -> None:
        """Evaluate losses, and again where a value is not finite."""
        columns = [*self.columns, *(_readable(stored(self.span, name)) for name in LOSS_ARRAYS)]
        bad = np.zeros(self.n, dtype=np.int64)
        wanted, mask = every, self.mask
        for _ in range(2):
            drift_loss.evaluate_losses(
                self.work.losses, columns, mask, self.span.n_tokens, wanted, self.cut.starts,
                self.cut.block_pieces, self.plan.token_rules(), self.plan.parameters(), self.losses,
                self.pieces, bad,
            )  # fmt: skip
            wanted = np.flatnonzero(bad)
            if not wanted.size:
                return
            mask, bad = self._finite(wanted, columns), np.zeros(self.n, dtype=np.int64)

    def _finite(self, wanted: Ints, columns: Sequence[NDArray[Any]]) -> NDArray[np.uint8]:
        """Return the mask without the tokens of some blocks at which a column is not finite."""
        mask = self.mask.copy() if self.mask.size else np.ones(self.span.n_tokens, dtype=np.uint8)
        where = self.token_index(wanted)
        finite = np.logical_and.reduce([np.isfinite(column[where]) for column in columns])
        mask[where] &= finite.astype(np.uint8)
        return mask

    def _count_rare(self) -> None:
        """Fill the weights for the effective sample size; look again at blocks with large differences."""
        self.sums[:, SUM["ess_1"]] = self.sums[:, SUM["weight"]]
        self.sums[:, SUM["ess_2"]] = self.sums[:, SUM["weight_sq"]]
        low, high = self.extremes[:, X_DIFF].T
        wanted = np.flatnonzero(np.maximum(high, -low) > BIG)
        if not wanted.size:
            return
        parts = []
        for block in wanted:
            a, b, valid = self.sides(int(block))
            keep = valid & np.isfinite(a) & np.isfinite(b)
            parts.append(a[keep] - b[keep])
            with np.errstate(over="ignore"):
                # The kernel takes the reciprocal of the weight, which is 0 where this is still finite.
                self.sums[block, SUM["mult"]] = np.exp(np.abs(parts[-1])).sum()
        limits = np.cumsum([0, *(part.size for part in parts)])
        rows = np.zeros((self.n, layout.N_RARE))
        rare.count_rare(np.concatenate(parts), limits, wanted, np.inf, rows)
        first = SUM["ess_1"]
        self.sums[wanted, first : first + 4] = rows[wanted, :4]


class Workspaces:
    """Scratch of the kernels, made once and used for every file."""

    def __init__(self, n_workers: int) -> None:
        self.pairs = drift_layout.PairWorkspace(n_workers)
        self.losses = drift_loss.LossWorkspace(n_workers)


class FileComparison:
    """Adds the spans of one file to the totals of one comparison."""

    def __init__(
        self, path: str, plan: PairPlan, work: Workspaces, *, worst: WorstPairs | None = None,
        sample: Sampler | None = None, steps: bool = False,
    ) -> None:  # fmt: skip
        self.path, self.plan, self.work = path, plan, work
        self.worst, self.sample, self.steps = worst, sample, steps
        self.totals = PairTotals.of(plan)
        self.totals.n_files = 1
        self.sequences: PairSequences | None = None
        self.cut: PairCut | None = None

    def add(self, span: Span) -> None:
        """Evaluate a span and add it to the totals; differences may leave the range of float64."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._add(span)

    def _add(self, span: Span) -> None:
        totals = self.totals
        if self.sequences is None:
            self.sequences = PairSequences.for_span(self.path, span, self.plan, totals, self.steps)
        self.work.pairs.bins[:] = 0
        self.cut = self.sequences.cut(span)
        blocks = PairBlocks(span, self.cut, self.plan, self.work)
        blocks.evaluate()
        totals.bins += self.work.pairs.histogram()
        totals.add_blocks(blocks.sums, blocks.moments)
        totals.by_rule.add(blocks.by_rule.reshape(blocks.n, -1))
        if blocks.has_loss:
            totals.losses.add(blocks.losses)
        self._count_tokens(span)
        if blocks.bad.any():
            self._tally(span, blocks, np.flatnonzero(blocks.bad))
        self._keep_extremes(blocks)
        if not self.plan.real:
            self._look(blocks)
        if self.worst is not None:
            self.worst.offer(self, blocks)
        if self.sample is not None:
            self.sample.take(self, blocks)
        self.sequences.add(span, blocks.cut, blocks.pieces)

    def finish(self) -> PairTotals:
        """Close what is open and return the file's totals."""
        if self.sequences is not None:
            self.sequences.finish()
        return self.totals

    def place(self, span: Span, token: int) -> Place:
        """Return where a token of the span that is being added stands."""
        row = int(span.rows_of(np.array([token]))[0])
        position = None
        if self.sequences is not None and self.sequences.by_id and self.cut is not None:
            cut = self.cut
            at = int(np.searchsorted(cut.starts, token - span.origin, side="right")) - 1
            position = int(cut.positions[at]) + token - span.origin - int(cut.starts[at])
            position = None if cut.positions[at] < 0 else position
        elif span.row_starts is not None:
            position = token - span.start_of_row(row)
        return Place(self.path, row, position)

    def _count_tokens(self, span: Span) -> None:
        """Count valid and masked tokens."""
        mask = span.arrays.get("mask")
        n_valid = span.n_tokens if mask is None else int(np.count_nonzero(mask))
        self.totals.n_tokens += n_valid
        self.totals.n_masked += span.n_tokens - n_valid

    def _tally(self, span: Span, blocks: PairBlocks, again: Ints) -> None:
        """Count and locate what is not finite, and what float64 would have made of it."""
        where = blocks.token_index(again)
        sides, nulls = [], []
        for side, key in enumerate((self.plan.key_a, self.plan.key_b)):
            values = widened(stored(span, key)[where])
            present = span.arrays.get(f"{key} present")
            null = np.zeros(where.size, dtype=np.bool_) if present is None else present[where] == 0
            wrong = ~np.isfinite(values)
            if wrong.any():
                self.totals.counts[side] += kinds_of(values, null)
                if side not in self.totals.first_bad:
                    at = span.origin + int(where[wrong.argmax()])
                    self.totals.first_bad[side] = self.place(span, at)
            sides.append(values)
            nulls.append(null)
        bad = ~(np.isfinite(sides[0]) & np.isfinite(sides[1]))
        there = bad & ~(nulls[0] | nulls[1])
        with np.errstate(all="ignore"):
            diff = sides[0] - sides[1]
            for name, term in _terms(diff[there]):
                kinds = np.isnan(term).sum(), (term == np.inf).sum(), (term == -np.inf).sum()
                self.totals.terms[SUM[name]] += np.array(kinds)
        if blocks.cut.starts.size:
            at_piece = np.searchsorted(blocks.cut.starts, where[there], side="right") - 1
            flags = np.zeros(blocks.cut.starts.size, dtype=np.int64)
            np.bitwise_or.at(flags, at_piece, _flags(diff[there]))
            blocks.pieces[:, P_FLAGS] = flags

    def _keep_extremes(self, blocks: PairBlocks) -> None:
        """Keep the extremes that go further; of the difference also where they stand."""
        best = self.totals.extremes
        low, high = blocks.extremes[:, :, 0].argmin(axis=0), blocks.extremes[:, :, 1].argmax(axis=0)
        for which, name in enumerate(EXTREMES):
            for side, block in ((0, int(low[which])), (1, int(high[which]))):
                value = blocks.extremes[block, which, side]
                if value < best[which, 0] if side == 0 else value > best[which, 1]:
                    best[which, side] = value
                    if name == "diff":
                        self.totals.places[name, side] = self._find(blocks, block, value)

    def _find(self, blocks: PairBlocks, block: int, value: float) -> Place:
        """Return the first valid token of a block with this difference."""
        a, b, valid = blocks.sides(block)
        with np.errstate(invalid="ignore"):
            hit = (a - b == value) & valid
        return self.place(blocks.span, blocks.span.origin + blocks.tokens_of(block)[0] + int(hit.argmax()))

    def _look(self, blocks: PairBlocks) -> None:
        """Count zero fills and placeholders in the blocks whose extremes call for it."""
        low, high = blocks.extremes[:, X_DIFF].T
        far = np.maximum(high, -low) > FAR
        for block in np.flatnonzero((blocks.sums[:, SUM["odd"]] > 0.0) | far):
            a, b, valid = blocks.sides(int(block))
            start = blocks.span.origin + blocks.tokens_of(int(block))[0]
            for label, mine, other in ((self.plan.a, a, b), (self.plan.b, b, a)):
                self._add_suspect(f"{label}=0", (mine == 0.0) & (other < FILLED) & valid, blocks, start)
                self._add_suspect(f"{label}=1", (mine == 1.0) & valid, blocks, start)
                for value in PLACEHOLDERS if far[block] else ():
                    hit = (mine == value) & (np.abs(a - b) > FAR) & valid
                    self._add_suspect(f"{label}={value:.17g}", hit, blocks, start)

    def _add_suspect(self, name: str, hit: NDArray[np.bool_], blocks: PairBlocks, start: int) -> None:
        """Enter what was hit."""
        if hit.any():
            self.totals.add_suspect(name, int(hit.sum()), self.place(blocks.span, start + int(hit.argmax())))


def _readable(values: NDArray[Any]) -> NDArray[Any]:
    """Return values as the kernels take them: float32 or float64."""
    if values.dtype == np.uint16 or values.dtype == np.float16:
        return widened(values).astype(np.float32)
    return np.ascontiguousarray(values)


def _terms(diff: Floats) -> list[tuple[str, Floats]]:
    """Return the terms of each sum at differences that are not finite."""
    weight = np.exp(diff)
    return [
        ("diff", diff),
        ("diff_sq", diff * diff),
        ("diff_abs", np.abs(diff)),
        ("k3", np.expm1(diff) - diff),
        ("weight", weight),
        ("weight_sq", weight * weight),
        ("mult", np.exp(np.abs(diff))),
    ]


def _flags(diff: Floats) -> Ints:
    """Return for each token what its sequence has to remember."""
    found = np.where(np.isnan(diff), FLAG_NAN, np.where(diff > 0.0, FLAG_POSINF, FLAG_NEGINF))
    out: Ints = found.astype(np.int64)
    return out
