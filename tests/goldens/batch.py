"""A padded batch as our formulas take it, and what a mapping answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core import reference
from ppocli.core.sequence_objectives import Sequences

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

    from ppocli.core.reference import ClipMasks
    from ppocli.core.token_objectives import ObjectiveTerms

ROUNDING = 1e-12
"""By how much sums over a sequence may differ between libraries, in nats."""


class Batch:
    """(B, T) arrays with a mask, selected: formulas see the valid tokens alone, row by row."""

    def __init__(self, row: Row, arrays: Arrays) -> None:
        self.arrays = arrays
        self.mask = arrays["mask"] != 0
        self.index = np.nonzero(self.mask)[0]
        self.lengths = self.mask.sum(axis=1)
        self.sequences = Sequences.from_ids(self.index)
        self.n = self.index.size
        self.log_probs, self.old_log_probs = self.valid("log_probs"), self.valid("old_log_probs")
        self.advantages = self.valid("advantages")
        self.log_ratio = reference.log_ratio(self.log_probs, self.old_log_probs)
        # What the peer computed in float32 decides differently within that type's rounding.
        self.rounding = 1e-6 if row.get("float32_inside") else 0.0

    def valid(self, name: str) -> np.ndarray:
        """The valid tokens of a column; one value per row is repeated over the row's tokens."""
        values = self.arrays[name]
        if values.ndim == 1:
            values = values[:, None]
        return np.broadcast_to(values, self.mask.shape)[self.mask]

    def row_mean(self, values: np.ndarray) -> np.ndarray:
        """The mean over the valid tokens of every row, (B,); 0 for a row without one."""
        sums = np.bincount(self.index, weights=values, minlength=self.lengths.size)
        return sums / np.maximum(self.lengths, 1)

    def mean(self, values: np.ndarray) -> float:
        """The mean over the valid tokens."""
        return math.fsum(values) / max(self.n, 1)

    def dirty_rows(self, *names: str) -> np.ndarray:
        """Rows with a masked value that is not finite, (B,): there `value * mask` is NaN."""
        dirty = np.zeros(self.lengths.size, bool)
        for name in names:
            values = self.arrays[name]
            if values.ndim == 2 and values.shape == self.mask.shape:
                dirty |= (~np.isfinite(values) & ~self.mask).any(axis=1)
        return dirty

    def near(self, log_ratio: np.ndarray, *bounds: float, rounding: float = 0.0) -> np.ndarray:
        """Tokens whose log-ratio is within 4 units, or `rounding`, of a bound's logarithm, (n,) bool.

        exp() of different libraries differs by a unit: there a decision may go either way. exp(0) does not.
        """
        out = np.zeros(log_ratio.shape, bool)
        for bound in bounds:
            if 0.0 < bound < math.inf:
                at = math.log(bound)
                width = max(4.0 * float(np.spacing(abs(at))), self.rounding, rounding)
                out |= (np.abs(log_ratio - at) <= width) & (log_ratio != 0.0)
        return out


@dataclass
class Answer:
    """What ours gives for a row, under the peer's names."""

    outputs: dict[str, Any] = field(default_factory=dict)
    scale: dict[str, float] = field(default_factory=dict)
    """The mean absolute term of a sum in which terms cancel."""
    slack: dict[str, float] = field(default_factory=dict)
    """What decisions within rounding of a bound may change."""
    gradient: np.ndarray | None = None
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    """Per-token numbers of the valid tokens, by the peer's name."""
    doubtful: np.ndarray | None = None
    """Valid tokens whose decision may go either way."""
    missing: dict[str, str] = field(default_factory=dict)
    """Outputs that are not expressed, and why."""

    def add_loss(self, terms: ObjectiveTerms, weights: np.ndarray, *names: str) -> None:
        """The sum of weight times token loss, its scale, and its gradient."""
        for name in names or ("loss",):
            self.outputs[name] = math.fsum(weights * terms.loss)
            self.scale[name] = math.fsum(np.abs(weights * terms.loss))
        self.gradient = weights * terms.gradient

    def add_share(self, name: str, chosen: np.ndarray, share: float = 1.0) -> None:
        """The share of valid tokens that are chosen; doubtful ones may or may not be."""
        n = max(chosen.size, 1)
        self.outputs[name] = int(chosen.sum()) / n * share
        if self.doubtful is not None:
            self.slack[name] = int(self.doubtful.sum()) / n

    def spoil(self, *names: str) -> None:
        """The peer multiplies by its mask, and padding that is not finite makes these NaN. Ours stays."""
        for name in names:
            assert math.isfinite(self.outputs[name]), name
            self.outputs[name] = math.nan


def active(masks: ClipMasks) -> np.ndarray:
    """Where the clipped branch is strictly chosen."""
    return masks.active_low | masks.active_high
