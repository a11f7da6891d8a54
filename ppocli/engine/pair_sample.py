"""Some blocks of every file, kept for the question why the two sides differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.drift_causes import Sample
from ppocli.kernels import layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.engine.pair_totals import Floats, Ints
    from ppocli.engine.pairs import FileComparison, PairBlocks

FIRST, EVERY, MOST = 16, 256, 64
"""The first blocks of each file are taken, then every so many, at most so many in all: 131,072 tokens."""


@dataclass(slots=True)
class Sampler:
    """Takes blocks by their number in the file, so that the sample does not depend on how files are read."""

    n_blocks: int = 0
    """Taken so far, those of earlier files included."""
    parts: list[tuple[Floats, Floats, Ints]] = field(default_factory=list)
    """Both sides of the tokens of each block, with the file and the sequence of each."""
    paths: list[str] = field(default_factory=list)

    def merge(self, other: Sampler) -> None:
        """Take what was taken of the next file."""
        self.paths += other.paths
        for a, b, labels in other.parts[: MOST - len(self.parts)]:
            labels[:, 0] = len(self.paths) - 1
            self.parts.append((a, b, labels))
        self.n_blocks = len(self.parts)

    def take(self, source: FileComparison, blocks: PairBlocks) -> None:
        """Take what is wanted of a span."""
        if not self.paths or self.paths[-1] != source.path:
            self.paths.append(source.path)
        first = blocks.span.origin // layout.BLOCK
        for block in range(blocks.n):
            number = first + block
            if self.n_blocks < MOST and (number < FIRST or number % EVERY == 0):
                self.n_blocks += 1
                a, b, valid = blocks.sides(block)
                keep = valid & np.isfinite(a) & np.isfinite(b)
                self.parts.append((a[keep], b[keep], self._labels(blocks, block, keep)))

    def sample(self) -> Sample:
        """Return what was taken."""
        parts = self.parts or [(np.zeros(0), np.zeros(0), np.zeros((0, 2), dtype=np.int64))]
        block = np.repeat(np.arange(len(parts)), [part[0].size for part in parts])
        labels = np.concatenate([part[2] for part in parts])
        return Sample(
            np.concatenate([part[0] for part in parts]),
            np.concatenate([part[1] for part in parts]),
            labels,
            block,
            tuple(self.paths),
        )

    def _labels(self, blocks: PairBlocks, block: int, keep: NDArray[np.bool_]) -> Ints:
        """Return for each token its file and what tells its sequence apart: an id, a row, or -1."""
        start, stop = blocks.tokens_of(block)
        span = blocks.span
        if "sequence_id" in span.arrays:
            codes = span.arrays["sequence_id"][start:stop]
        elif span.row_starts is not None:
            codes = span.rows_of(np.arange(span.origin + start, span.origin + stop))
        else:
            codes = np.full(stop - start, -1, dtype=np.int64)
        files = np.full(int(keep.sum()), len(self.paths) - 1, dtype=np.int64)
        return np.stack([files, codes[keep]], axis=1)
