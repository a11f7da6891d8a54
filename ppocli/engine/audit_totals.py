"""Sums of an audit: what is added up over blocks, files and the run, and goes back when a file is dropped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ppocli.kernels import audit_layout, merge, running

if TYPE_CHECKING:
    from ppocli.core.audit_report import Flip
    from ppocli.engine.totals import Floats, Ints

RESULT, EXTREME = audit_layout.RESULTS, audit_layout.EXTREME
N_RESULTS, N_EXTREMES = audit_layout.N_RESULTS, audit_layout.N_EXTREMES
N_LOWEST = len(audit_layout.LOWEST)


def no_extremes(n_variants: int) -> Floats:
    """Return extremes of nothing."""
    out = np.full((n_variants, N_EXTREMES), -np.inf)
    out[:, :N_LOWEST] = np.inf
    return out


@dataclass(slots=True, eq=False)
class AuditTotals:
    """Sums, extremes and counts of a file or of a run.

    Attributes
    ----------
    hi, lo : (n_variants * N_RESULTS,) float64
        Sums in double-double.
    nonfinite : (n_variants * N_RESULTS, 3) int64
        Terms that are NaN, +inf, -inf.
    extremes : (n_variants, N_EXTREMES) float64
    bins : (2, SIZE_BINS) int64
    flips : mapping of variant to Flip
        The worst one of each.
    n_tokens, n_valid : int
        Tokens that count, and all valid ones.
    inexact : (n_checks,) int64
    low, high : (2,) float64
        Smallest and largest finite value of both log-prob columns, as long as `inexact` leaves a question.
    """

    n_variants: int
    n_checks: int
    hi: Floats = field(init=False)
    lo: Floats = field(init=False)
    nonfinite: Ints = field(init=False)
    extremes: Floats = field(init=False)
    bins: Ints = field(init=False)
    inexact: Ints = field(init=False)
    low: Floats = field(default_factory=lambda: np.full(2, np.inf))
    high: Floats = field(default_factory=lambda: np.full(2, -np.inf))
    flips: dict[int, Flip] = field(default_factory=dict)
    n_tokens: int = 0
    n_valid: int = 0

    def __post_init__(self) -> None:
        n = self.n_variants * N_RESULTS
        self.hi, self.lo, self.nonfinite = np.zeros(n), np.zeros(n), np.zeros((n, 3), dtype=np.int64)
        self.extremes = no_extremes(self.n_variants)
        self.bins = np.zeros((2, audit_layout.SIZE_BINS), dtype=np.int64)
        self.inexact = np.zeros(self.n_checks, dtype=np.int64)

    def add_blocks(self, counts: Ints, results: Floats, extremes: Floats, inexact: Ints) -> None:
        """Add the rows of blocks, in order."""
        merge.add_rows(results, self.hi, self.lo, self.nonfinite)
        self.n_tokens += int(counts.sum())
        self.inexact += inexact.sum(axis=0)
        self._keep(extremes.reshape(-1, self.n_variants, N_EXTREMES))

    def merge(self, other: AuditTotals) -> None:
        """Add the totals of the next file."""
        merge.add_rows(np.stack([other.hi, other.lo]), self.hi, self.lo, self.nonfinite)
        self.nonfinite += other.nonfinite
        for variant, flip in other.flips.items():
            if variant not in self.flips or other.worst(variant) > self.worst(variant):
                self.flips[variant] = flip
        self._keep(other.extremes[None])
        self.bins += other.bins
        self.inexact += other.inexact
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        self.n_tokens += other.n_tokens
        self.n_valid += other.n_valid

    def worst(self, variant: int) -> float:
        """Return the largest change of a ratio among flipped decisions; -1 or less where there is none."""
        return float(self.extremes[variant, EXTREME["worst_flip"]])

    def total(self, variant: int, name: str) -> float:
        """Return a sum; infinite or NaN where a term is, or where it overflows."""
        which = variant * N_RESULTS + RESULT[name]
        nan, posinf, neginf = self.nonfinite[which]
        if nan or (posinf and neginf):
            return float("nan")
        if posinf or neginf:
            return float("inf") if posinf else float("-inf")
        return float(self.hi[which] + self.lo[which])

    def mean(self, variant: int, name: str) -> float:
        """Return a sum over the number of tokens; NaN without any."""
        which = variant * N_RESULTS + RESULT[name]
        if not self.n_tokens:
            return float("nan")
        if self.nonfinite[which].any():
            return self.total(variant, name)
        return float(self.hi[which] / self.n_tokens + self.lo[which] / self.n_tokens)

    def count(self, variant: int, name: str) -> int:
        """Return a count."""
        return int(self.total(variant, name))

    def has_nan(self, variant: int, name: str) -> bool:
        """Whether a term is NaN; of ratios, which are never negative, no sum makes one."""
        return bool(self.nonfinite[variant * N_RESULTS + RESULT[name], 0])

    def extreme(self, variant: int, name: str) -> float:
        """Return an extreme."""
        return float(self.extremes[variant, EXTREME[name]])

    def _keep(self, rows: Floats) -> None:
        """Keep the extremes that go furthest."""
        if rows.shape[0]:
            lowest, highest = rows[:, :, :N_LOWEST].min(axis=0), rows[:, :, N_LOWEST:].max(axis=0)
            self.extremes[:, :N_LOWEST] = np.minimum(self.extremes[:, :N_LOWEST], lowest)
            self.extremes[:, N_LOWEST:] = np.maximum(self.extremes[:, N_LOWEST:], highest)


@dataclass(slots=True, eq=False)
class OrderedSums:
    """Sums in stored order over the whole input: they cannot be put together from those of files.

    Attributes
    ----------
    running : (N_RUNNING,) float64
        Of the reference losses, token after token.
    blocked : (n_variants,) float64
        Sums of runs in float32, one after the other.
    tree : (N_LEVELS, n_variants) float64
        The same in a binary tree.
    n_runs : int
    same : (n_same,) float64
        Sums in the format itself.
    """

    running: Floats
    blocked: Floats
    tree: Floats
    same: Floats
    n_runs: int = 0

    @classmethod
    def empty(cls, n_variants: int, n_same: int) -> OrderedSums:
        """Return sums of nothing."""
        return cls(
            np.zeros(running.N_RUNNING),
            np.zeros(n_variants),
            np.zeros((running.N_LEVELS, n_variants)),
            np.zeros(n_same),
        )

    def copy(self) -> OrderedSums:
        """Return what there is so far, to go back to if a file turns out to be unreadable."""
        return OrderedSums(
            self.running.copy(), self.blocked.copy(), self.tree.copy(), self.same.copy(), self.n_runs
        )

    def pairwise(self) -> Floats:
        """Return the sums in a tree."""
        return running.fold_tree(self.tree, self.n_runs)


@dataclass(slots=True, eq=False)
class AuditPart:
    """What an audit finds in one input.

    Attributes
    ----------
    totals : AuditTotals
        Of the input alone.
    ordered : OrderedSums
        Of all inputs up to its end.
    """

    totals: AuditTotals
    ordered: OrderedSums
