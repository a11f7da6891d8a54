"""The pairs with the largest |difference|, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.drift_report import WorstPair

if TYPE_CHECKING:
    from ppocli.engine.pairs import FileComparison, PairBlocks


@dataclass(slots=True)
class WorstPairs:
    """Keeps the N worst pairs of a run; ties go to the earlier file, row and position.

    Only blocks whose extremes reach what is kept so far are looked into.
    """

    limit: int = 0
    kept: list[tuple[float, WorstPair]] = field(default_factory=list)

    def offer(self, source: FileComparison, blocks: PairBlocks) -> None:
        """Look through the blocks of a span that may hold a worse pair than the last one kept."""
        if not self.limit:
            return
        low, high = blocks.extremes[:, 0].T
        reach = np.maximum(np.abs(low), np.abs(high))
        for block in np.flatnonzero(low <= high):
            if len(self.kept) < self.limit or reach[block] > self.kept[-1][0]:
                self._look(source, blocks, int(block))

    def merge(self, other: WorstPairs) -> None:
        """Take what was kept of the next file."""
        self.kept.extend(other.kept)
        self._cut()

    def found(self) -> tuple[WorstPair, ...]:
        """Return the pairs kept, worst first."""
        return tuple(pair for _, pair in self.kept)

    def _look(self, source: FileComparison, blocks: PairBlocks, block: int) -> None:
        """Merge the worst pairs of one block into those kept."""
        a, b, valid = blocks.sides(block)
        with np.errstate(all="ignore"):
            diff = a - b
            weight = np.exp(diff)
        size = np.where(valid & np.isfinite(diff), np.abs(diff), -1.0)
        bound = self.kept[-1][0] if len(self.kept) == self.limit else -1.0
        order = np.argsort(-size, kind="stable")[: self.limit]
        start = blocks.span.origin + blocks.tokens_of(block)[0]
        for i in order[size[order] > bound]:
            place = source.place(blocks.span, start + int(i))
            found = float(weight[i]) if np.isfinite(weight[i]) else None
            pair = WorstPair(place, float(a[i]), float(b[i]), float(diff[i]), found)
            self.kept.append((float(size[i]), pair))
        self._cut()

    def _cut(self) -> None:
        """Keep the worst of them."""
        self.kept.sort(key=lambda one: -one[0])  # stable: the earlier stays before an equal one
        del self.kept[self.limit :]
