"""The tokens with the largest |log_ratio| and the largest |loss|, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.partials import EXTREMES
from ppocli.core.report import Place, WorstToken
from ppocli.engine.policy import ACTIVE_HIGH, ACTIVE_LOW, DELTA, DUAL, FLAGS, LOSS
from ppocli.kernels import layout, rare

if TYPE_CHECKING:
    from ppocli.engine.accumulate import FileAccumulator
    from ppocli.engine.blocks import Blocks
    from ppocli.engine.totals import Floats, Plan


@dataclass(frozen=True, slots=True)
class Kept:
    """One of the worst tokens so far.

    Attributes
    ----------
    size : float
    token : WorstToken
    unplaced : int, optional
        Its index in the file, until its place is found at the end of the span. None: it is in `token`.
    """

    size: float
    token: WorstToken
    unplaced: int | None

    def placed(self, source: FileAccumulator, blocks: Blocks) -> Kept:
        """Return the same with its place."""
        if self.unplaced is None:
            return self
        return Kept(self.size, replace(self.token, where=source.place(blocks.span, self.unplaced)), None)


@dataclass(slots=True)
class WorstTokens:
    """Keeps the N worst tokens of a run by each measure; ties go to the earlier file, row and position.

    Only blocks whose extremes reach what is kept so far are looked into, and places are looked for once the
    span is through: a position in a sequence takes a look at all tokens before it, and where |log_ratio|
    ascends every token is the worst so far.
    """

    limit: int = 0
    by_log_ratio: list[Kept] = field(default_factory=list)
    by_loss: list[Kept] = field(default_factory=list)

    def offer(self, source: FileAccumulator, blocks: Blocks) -> None:
        """Look through the blocks of a span that may hold a worse token than the last one kept."""
        if not self.limit or not {"log_probs", "old_log_probs"} <= source.plan.roles:
            return
        for name, kept in (("log_ratio", self.by_log_ratio), ("loss", self.by_loss)):
            low, high = blocks.extremes[:, EXTREMES.index(name)].T
            reach = np.maximum(np.abs(low), np.abs(high))
            for block in np.flatnonzero(low <= high):
                if len(kept) < self.limit or reach[block] > kept[-1].size:
                    self._look(source, blocks, int(block), name, kept)
            kept[:] = [one.placed(source, blocks) for one in kept]

    def merge(self, other: WorstTokens) -> None:
        """Take what was kept of the next file."""
        for mine, theirs in ((self.by_log_ratio, other.by_log_ratio), (self.by_loss, other.by_loss)):
            mine.extend(theirs)
            mine.sort(key=lambda one: -one.size)  # stable: the earlier token stays before an equal one
            del mine[self.limit :]

    def found(self) -> tuple[WorstToken, ...]:
        """Return the tokens kept: by |log_ratio|, then by |loss|."""
        return tuple(one.token for one in (*self.by_log_ratio, *self.by_loss))

    def _look(
        self,
        source: FileAccumulator,
        blocks: Blocks,
        block: int,
        name: str,
        kept: list[Kept],
    ) -> None:
        """Merge the worst tokens of one block into those kept."""
        span = blocks.span
        start, stop = blocks.tokens_of(block)
        old, new = (blocks.widened(role, start, stop) for role in ("old_log_probs", "log_probs"))
        has_adv = "advantages" in source.plan.roles
        adv = blocks.widened("advantages", start, stop) if has_adv else np.full(stop - start, np.nan)
        with np.errstate(all="ignore"):
            log_ratio = new - old
            ratio, loss = _losses(log_ratio, adv, source.plan)
            if source.plan.computed:
                loss = span.arrays[LOSS][start:stop]
            size = np.abs(log_ratio if name == "log_ratio" else loss)
            size[~(np.isfinite(new) & np.isfinite(old)) | ((name == "loss") & ~np.isfinite(adv))] = -1.0
        if "mask" in span.arrays:
            size[span.arrays["mask"][start:stop] == 0] = -1.0
        bound = kept[-1].size if len(kept) == self.limit else -1.0
        order = np.argsort(-size, kind="stable")[: self.limit]
        for i in order[size[order] > bound]:
            at = span.origin + start + int(i)
            token = WorstToken(
                by="log_ratio" if name == "log_ratio" else "loss",
                where=Place(source.path, at),
                log_probs=float(new[i]),
                old_log_probs=float(old[i]),
                advantage=float(adv[i]) if np.isfinite(adv[i]) else None,
                log_ratio=float(log_ratio[i]) if np.isfinite(log_ratio[i]) else None,
                ratio=float(ratio[i]) if np.isfinite(ratio[i]) else None,
                loss=float(loss[i]) if np.isfinite(loss[i]) else None,
                branch=_computed_branch(int(span.arrays[FLAGS][start + i]), float(adv[i]))
                if source.plan.computed
                else _branch(float(ratio[i]), float(adv[i]), source.plan),
            )
            kept.append(Kept(float(size[i]), token, at))
        kept.sort(key=lambda one: -one.size)  # stable: the earlier token stays before an equal one
        del kept[self.limit :]


def _losses(log_ratio: Floats, adv: Floats, plan: Plan) -> tuple[Floats, Floats]:
    """Ratio and loss of each token."""
    ratio, loss = np.empty_like(log_ratio), np.empty_like(log_ratio)
    rare.token_terms(log_ratio, adv, plan.parameters, ratio, loss)
    return ratio, loss


def _computed_branch(flags: int, adv: float) -> str:
    """Say which branch of an objective beside the kernels the token took."""
    if adv != adv:
        return "unknown"
    if adv == 0.0:
        return "zero advantage"
    for bit, name in ((DUAL, "dual clip"), (ACTIVE_LOW, "clipped low"), (ACTIVE_HIGH, "clipped high")):
        if flags & bit:
            return name
    return "delta" if flags & DELTA else "unclipped"


def _branch(ratio: float, adv: float, plan: Plan) -> str:
    """Say which branch of the objective the token took."""
    p = plan.parameters
    if adv != adv:
        return "unknown"
    used = (adv - p[layout.P_SHIFT]) / p[layout.P_SCALE]
    if used == 0.0:
        return "zero advantage"
    if used > 0.0:
        return "clipped high" if ratio > p[layout.P_CLIP_CEILING] else "unclipped"
    if ratio < p[layout.P_CLIP_FLOOR]:
        return "clipped low"
    if max(min(ratio, p[layout.P_DELTA]), p[layout.P_CLIP_FLOOR]) > p[layout.P_DUAL]:
        return "dual clip"
    return "delta" if ratio > p[layout.P_DELTA] else "unclipped"
