"""One file: spans in, totals out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.partials import COLUMNS, EXTREMES, SUM
from ppocli.core.report import Place
from ppocli.engine import dirty, suspects
from ppocli.engine.blocks import Blocks, stored, widened
from ppocli.engine.policy import FLAGS, GRADIENT, LEFT_OUT, LOSS, UNCLIPPED
from ppocli.engine.policy_sums import add_terms
from ppocli.engine.sequences import MicroBatches, SequenceStage
from ppocli.engine.totals import Floats, Ints, Plan, Totals
from ppocli.kernels import layout, merge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ppocli.engine.audit_pass import Audit
    from ppocli.engine.cut import Cut
    from ppocli.engine.dirty import Bools
    from ppocli.engine.span import Span
    from ppocli.engine.worst import WorstTokens
    from ppocli.kernels.blocks import Workspace

LOCATED = {
    "log_ratio": ("log_probs", "old_log_probs"),
    "adv": ("advantages",),
    "ref_k1": ("log_probs", "ref_log_probs"),
    "log_prob": ("log_probs",),
    "old_log_prob": ("old_log_probs",),
    "ref_log_prob": ("ref_log_probs",),
}
"""Extremes whose place is reported, and the columns they are made of."""

POSITIVE = ("log_prob", "old_log_prob", "ref_log_prob")
"""Extremes that have a place only where they are above 0."""

MOST_PIECES = 1 << 15
"""Pieces of sequences that are held at once, 4 MB; a span with more of them is evaluated in parts."""

LOSS_ROLES = ("log_probs", "old_log_probs", "advantages", "rollout_log_probs")
TERMS = ("loss", LOSS), ("unclipped", UNCLIPPED), ("grad_abs", GRADIENT)
"""Sums of the loss, and what stands beside the columns for them."""
LOG_PROBS = ("log_probs", "old_log_probs", "ref_log_probs")


class FileAccumulator:
    """Adds the spans of one file to its totals."""

    def __init__(
        self,
        path: str,
        plan: Plan,
        workspace: Workspace,
        worst: WorstTokens,
        micro: MicroBatches | None = None,
        base_row: int = 0,
        audit: Audit | None = None,
    ) -> None:
        self.path = path
        self.plan = plan
        self.workspace = workspace
        self.worst = worst
        self.micro = micro or MicroBatches(0)
        self.base_row = base_row
        self.audit = audit
        self.totals = Totals(roles=plan.roles, n_files=1)
        self.sequences: SequenceStage | None = None
        workspace.bins[:] = 0

    def add(self, span: Span) -> None:
        """Evaluate a span and add it to the totals."""
        if self.sequences is None:
            self.sequences = SequenceStage.for_span(
                self.path, span, self.plan, self.totals, self.micro, self.base_row
            )
        cut = self.sequences.cut(span)
        n_parts = -(-cut.starts.size // MOST_PIECES)
        if n_parts > 1 and span.n_tokens > layout.BLOCK:
            for part in span.parts(layout.BLOCK * -(-span.n_tokens // (layout.BLOCK * n_parts))):
                self._add(part, self.sequences, self.sequences.cut(part))
        else:
            self._add(span, self.sequences, cut)

    def _add(self, span: Span, sequences: SequenceStage, cut: Cut) -> None:
        """Evaluate a span whose pieces are not too many."""
        totals = self.totals
        blocks = Blocks(span, cut, self.plan, self.workspace)
        blocks.evaluate()
        if self.plan.computed:
            add_terms(blocks)
        merge.merge_blocks(blocks.sums, blocks.squares, totals.hi, totals.lo, totals.m2, totals.nonfinite)
        self._count_tokens(span, blocks)
        suspects.look(blocks, totals, lambda token: self.place(span, token))
        totals.checks.look(blocks, lambda token: self.place(span, token))
        self._keep_extremes(blocks)
        self.worst.offer(self, blocks)
        if self.audit is not None:
            self.audit.add(span, self)
        sequences.add(span, blocks.cut, blocks.pieces)

    def finish(self) -> Totals:
        """Close what is open and return the file's totals."""
        if self.sequences is not None:
            self.sequences.finish()
            if self.totals.n_tokens:  # else the finding is that the whole file has no valid token
                self.sequences.note_masked()
        self.totals.checks.finish(Place(self.path, 0))
        self.totals.bins[:] = self.workspace.histogram()
        return self.totals

    def _count_tokens(self, span: Span, blocks: Blocks) -> None:
        """Count valid and masked tokens, values that are not finite and positive log-probs."""
        mask, totals = span.arrays.get("mask"), self.totals
        n_valid = span.n_tokens if mask is None else int(np.count_nonzero(mask))
        totals.n_tokens += n_valid
        totals.n_masked += span.n_tokens - n_valid
        totals.n_positive += int(blocks.positive.sum())
        for which, starts in blocks.cut.ways():
            own = blocks.pieces[which]
            own[:, layout.PIECE_STORED] = np.diff(starts, append=span.n_tokens)
            own[:, layout.PIECE_VALID] = (
                own[:, layout.PIECE_STORED] if mask is None else np.add.reduceat(mask, starts, dtype=np.int64)
            )
        for role in LOG_PROBS:
            bad = blocks.bad_extras if role == "ref_log_probs" else blocks.bad_base
            if role in self.plan.roles and bad.any():
                where = blocks.valid_tokens(np.flatnonzero(bad))
                totals.n_positive += int((widened(stored(span, role)[where]) > 0.0).sum())
        again = np.flatnonzero(blocks.bad_base | blocks.bad_extras)
        if again.size:
            self._tally_dirty(span, blocks, blocks.valid_tokens(again))
        if self.plan.computed:
            self._tally_undefined(span, blocks)

    def _tally_undefined(self, span: Span, blocks: Blocks) -> None:
        """Count tokens whose columns are finite, but not their advantage as it is normalised."""
        where = np.flatnonzero(span.arrays[FLAGS] & LEFT_OUT)
        if "mask" in span.arrays:
            where = where[span.arrays["mask"][where] != 0]
        for role in LOSS_ROLES:
            if role in span.arrays:
                where = where[np.isfinite(widened(stored(span, role)[where]))]
        self.totals.n_undefined += where.size
        for name, array in TERMS:
            self._add_kinds(name, span.arrays[array][where])
        flag_pieces(blocks, where, dirty.loss_flags(span.arrays[LOSS][where]))

    def _tally_dirty(self, span: Span, blocks: Blocks, where: Ints) -> None:
        """Count and locate what is not finite in some blocks, and what float64 would have made of it."""
        values, null, bad = {}, {}, np.zeros(where.size, dtype=np.bool_)
        for c, role in enumerate(COLUMNS):
            if role not in self.plan.roles:
                continue
            values[role] = widened(stored(span, role)[where])
            present = span.arrays.get(f"{role} present")
            null[role] = np.zeros(where.size, dtype=np.bool_) if present is None else present[where] == 0
            wrong = ~np.isfinite(values[role])
            bad |= wrong
            if wrong.any():
                self.totals.column_counts[c] += dirty.kinds_of(values[role], null[role])
                if role not in self.totals.first_bad:
                    self.totals.first_bad[role] = self.place(span, span.origin + int(where[wrong.argmax()]))
        where = where[bad]
        values = {role: x[bad] for role, x in values.items()}
        null = {role: x[bad] for role, x in null.items()}
        computed, loss = self._computed(span, where, null), None
        if self.plan.computed:
            loss = span.arrays[LOSS][where]
        skip = ("policy",) if self.plan.computed else ()
        known = dirty.terms_of(values, null, self.plan.parameters, skip)
        for name, terms in (*known, *computed):
            self._add_kinds(name, terms)
        flag_pieces(blocks, where, dirty.flags_of(values, null, self.plan.parameters, loss))

    def _add_kinds(self, name: str, terms: Floats) -> None:
        """Count terms of a sum that are NaN, +inf and -inf."""
        kinds = np.isnan(terms).sum(), (terms == np.inf).sum(), (terms == -np.inf).sum()
        self.totals.terms[SUM[name]] += kinds

    def _computed(self, span: Span, where: Ints, null: Mapping[str, Bools]) -> Iterator[tuple[str, Floats]]:
        """Yield the terms of the loss that stand beside the columns, without tokens that miss a value."""
        if self.plan.computed:
            missing = [null[role] for role in LOSS_ROLES if role in null]
            there = where[~np.logical_or.reduce(missing)]
            for name, array in TERMS:
                yield name, span.arrays[array][there]

    def _keep_extremes(self, blocks: Blocks) -> None:
        """Keep the extremes of the span that go further, and say where those stand that are reported."""
        low, high = blocks.extremes[:, :, 0].argmin(axis=0), blocks.extremes[:, :, 1].argmax(axis=0)
        for which, name in enumerate(EXTREMES):
            for side, block in ((0, int(low[which])), (1, int(high[which]))):
                value = blocks.extremes[block, which, side]
                best = self.totals.extremes[which, side]
                if (value < best) if side == 0 else (value > best):
                    self.totals.extremes[which, side] = value
                    if name in LOCATED and (name not in POSITIVE or (side == 1 and value > 0.0)):
                        self.totals.places[name, side] = self.place(
                            blocks.span, self._find(blocks, block, name, value)
                        )

    def _find(self, blocks: Blocks, block: int, name: str, value: float) -> int:
        """Return the first valid token of a block at which a quantity has this value."""
        start, stop = blocks.tokens_of(block)
        x = blocks.widened(LOCATED[name][0], start, stop)
        if len(LOCATED[name]) == 2:
            # inf - inf, at tokens that are counted as not finite; or a difference beyond float64.
            with np.errstate(invalid="ignore", over="ignore"):
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


def flag_pieces(blocks: Blocks, where: Ints, flags: Ints) -> None:
    """Add what sequences have to remember of some tokens of a span to their pieces."""
    for which, starts in blocks.cut.ways():
        own = blocks.pieces[which, layout.PIECE_FLAGS].astype(np.int64)
        np.bitwise_or.at(own, np.searchsorted(starts, where, side="right") - 1, flags)
        blocks.pieces[which, layout.PIECE_FLAGS] = own
