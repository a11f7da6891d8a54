"""One span through the kernels: the rows of partial results that they write for its blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.partials import COLUMNS, EXTREMES, MOMENTS, SELECTIONS, SUM
from ppocli.kernels import extras, layout, ppo, rare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.engine.cut import Cut
    from ppocli.engine.span import Span
    from ppocli.engine.totals import Floats, Ints, Plan
    from ppocli.kernels.blocks import Workspace

BASE_USES = sum(1 << layout.SELECTION[name] for name in layout.BASE_SELECTIONS)
X_LOG_RATIO = EXTREMES.index("log_ratio")
NOTHING = np.zeros(0, dtype=np.uint8)
_BFLOAT16_NAN = 0x7FC0
WITH_NAN = " with NaN"
"""Ends the names of columns that were made of others, by putting NaN where the file holds a null."""


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
        self.bad_base = np.zeros(self.n, dtype=np.int64)
        self.bad_extras = np.zeros(self.n, dtype=np.int64)
        self.positive = np.zeros(self.n, dtype=np.int64)
        self._columns = [
            widened_half(stored(span, role)) if role in plan.roles else NOTHING for role in COLUMNS
        ]
        self._mask = span.arrays.get("mask", NOTHING)

    def evaluate(self) -> None:
        """Run the kernels over all blocks, and again over those that hold values that are not finite."""
        every = np.arange(self.n)
        base, other = self.plan.uses & BASE_USES, self.plan.uses & ~BASE_USES
        self._run_base(every, base, self._mask, self.bad_base)
        self._run_extras(every, other, self._mask, self.bad_extras)
        for uses, bad in ((base, self.bad_base), (other, self.bad_extras)):
            again = np.flatnonzero(bad)
            if again.size:
                self._evaluate_dirty(again, uses)
        self._count_rare()

    def tokens_of(self, block: int) -> tuple[int, int]:
        """Return where a block starts and stops in the span."""
        return block * layout.BLOCK, min((block + 1) * layout.BLOCK, self.span.n_tokens)

    def _run_base(self, wanted: Ints, uses: int, mask: NDArray[np.uint8], bad: Ints) -> None:
        """Evaluate some selections of the three main columns over some blocks."""
        if not uses:
            return
        cut, work, plan = self.cut, self.workspace, self.plan
        positive = np.zeros(self.n, dtype=np.int64)
        ppo.evaluate_base(
            work, self._columns, mask, self.span.n_tokens, wanted, uses, plan.columns_of(uses),
            cut.starts, cut.run_pieces, cut.ranged, plan.parameters,
            self.sums, self.squares, self.extremes, self.pieces, bad, positive,
        )  # fmt: skip
        self.positive += positive

    def _run_extras(self, wanted: Ints, uses: int, mask: NDArray[np.uint8], bad: Ints) -> None:
        """Evaluate some selections of the optional columns over some blocks."""
        if not uses:
            return
        cut, work, plan = self.cut, self.workspace, self.plan
        positive = np.zeros(self.n, dtype=np.int64)
        extras.evaluate_extras(
            work, self._columns, mask, self.span.n_tokens, wanted, uses, plan.columns_of(uses),
            cut.starts, cut.run_pieces, plan.parameters,
            self.sums, self.squares, self.extremes, self.pieces, bad, positive,
        )  # fmt: skip
        self.positive += positive

    def _evaluate_dirty(self, wanted: Ints, uses: int) -> None:
        """Evaluate blocks selection by selection, over the tokens whose columns for it are all finite."""
        counted = self._mask if self._mask.size else np.ones(self.span.n_tokens, dtype=np.uint8)
        where = self.token_index(wanted)
        positive = self.positive.copy()
        for name in SELECTIONS:
            bit = 1 << layout.SELECTION[name]
            if not uses & bit:
                continue
            columns = self.plan.columns_of(bit)
            roles = [role for c, role in enumerate(COLUMNS) if columns >> c & 1]
            finite = [np.isfinite(widened(stored(self.span, role)[where])) for role in roles]
            mask = counted.copy()
            mask[where] &= np.logical_and.reduce(finite).astype(np.uint8)
            self._forget(wanted, name)
            run = self._run_base if bit & BASE_USES else self._run_extras
            run(wanted, bit, mask, np.full(self.n, ppo.KNOWN_FINITE))
        self.positive = positive  # such blocks are counted apart, over all their valid tokens

    def _forget(self, wanted: Ints, name: str) -> None:
        """Set the count of a selection to 0 before its blocks are evaluated again."""
        self.sums[wanted, SUM[f"n_{name}"]] = 0.0
        if name == "adv":
            for block in wanted:
                for which in self.cut.of_block(int(block)):
                    self.pieces[which, layout.PIECE_ADV_MIN] = np.inf
                    self.pieces[which, layout.PIECE_ADV_MAX] = -np.inf

    def token_index(self, wanted: Ints) -> Ints:
        """Return the tokens of some blocks, counted from the start of the span."""
        every = (wanted[:, None] * layout.BLOCK + np.arange(layout.BLOCK)).ravel()
        return every[every < self.span.n_tokens]

    def valid_tokens(self, wanted: Ints) -> Ints:
        """Return the valid tokens of some blocks, counted from the start of the span."""
        where = self.token_index(wanted)
        return where[self._mask[where] != 0] if self._mask.size else where

    def _count_rare(self) -> None:
        """Fill the sums for the effective sample size; look again at blocks whose extremes call for it."""
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
        new, old = (self.widened(role, start, stop) for role in ("log_probs", "old_log_probs"))
        keep = np.isfinite(new) & np.isfinite(old) & self.counted(start, stop)
        with np.errstate(over="ignore"):
            return new[keep] - old[keep]

    def counted(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return which tokens are valid."""
        return self._mask[start:stop] != 0 if self._mask.size else np.ones(stop - start, dtype=np.bool_)

    def widened(self, role: str, start: int, stop: int) -> Floats:
        """Return some tokens of a column as float64, NaN where they are null."""
        return widened(stored(self.span, role)[start:stop])


def stored(span: Span, role: str) -> NDArray[Any]:
    """Return a column as stored, with NaN where the file holds a null."""
    return stored_of(span.arrays, role)


def stored_of(arrays: dict[str, NDArray[Any]], role: str) -> NDArray[Any]:
    """Return the same from the arrays of a span, where the result is kept."""
    present = arrays.get(f"{role} present")
    if present is None:
        return arrays[role]
    name = role + WITH_NAN
    if name not in arrays:
        values = arrays[role].copy()
        values[present == 0] = _BFLOAT16_NAN if values.dtype == np.uint16 else np.nan
        arrays[name] = values
    return arrays[name]


def widened_half(values: NDArray[Any]) -> NDArray[Any]:
    """Widen float16, and the bits of bfloat16, to float32, exactly."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    # A signalling NaN, as damage may make one, warns of itself.
    with np.errstate(invalid="ignore"):
        return values.astype(np.float32) if values.dtype == np.float16 else values


def widened(values: NDArray[Any]) -> Floats:
    """Widen to float64, exactly."""
    with np.errstate(invalid="ignore"):
        return widened_half(values).astype(np.float64)
