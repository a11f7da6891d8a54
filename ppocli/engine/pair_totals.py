"""Totals of a comparison of two columns: of a file, and of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ppocli.core.drift_partials import CLASS_SUMS, EXTREMES, HISTOGRAM_BINS, POSITIONS, SUM, SUMS
from ppocli.kernels import drift_sequence, layout, merge
from ppocli.kernels.drift import merge_moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppocli.core.report import Place
    from ppocli.core.rollout_rules import WeightRule
    from ppocli.core.spec import LossSpec

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOP = 1024
"""Sequences that are remembered by their sum of |diff|."""
LISTED = 10
"""Sequences that are reported."""
CLASSES = ("n", "diff", "diff_low", "diff_abs", "k3")
"""What is kept of a class of tokens by position, and of a step."""


@dataclass(frozen=True, slots=True)
class PairPlan:
    """What is asked for.

    Attributes
    ----------
    name, a, b : str
        The comparison, and the labels of its sides.
    key_a, key_b : str
        Arrays that hold the two sides.
    real : bool
        The columns are no log-probs.
    rules : tuple of WeightRule
        Corrections that are tried.
    loss : bool
        Also what they do to the policy loss.
    spec : LossSpec
        The clip interval of that loss.
    """

    name: str
    a: str
    b: str
    key_a: str
    key_b: str
    spec: LossSpec
    real: bool = False
    rules: tuple[WeightRule, ...] = ()
    loss: bool = False

    def token_rules(self) -> Floats:
        """Return the rules at token level as the kernels take them."""
        return np.array([bounds(one) for one in self.rules if one.level == "token"]).reshape(-1, 4)

    def sequence_rules(self) -> Floats:
        """Return the others, with 0 for the product and 1 for the geometric mean in front."""
        levels = ("sequence", "geometric")
        rows = [(levels.index(one.level), *bounds(one)) for one in self.rules if one.level in levels]
        return np.array(rows, dtype=np.float64).reshape(-1, 5)

    def parameters(self) -> Floats:
        """Return the clip interval as the kernels take it."""
        p = np.full(layout.N_PARAMETERS, np.inf)
        p[layout.P_CLIP_FLOOR] = 1.0 - self.spec.clip_low
        p[layout.P_CLIP_CEILING] = 1.0 + self.spec.clip_high
        return p


def bounds(rule: WeightRule) -> tuple[float, float, float, float]:
    """Return lower bound and cap of a weight, and what it is replaced by below and above them."""
    low, high = 0.0 if rule.low is None else rule.low, np.inf if rule.cap is None else rule.cap
    return (low, high, low, high) if rule.mode == "truncate" else (low, high, 0.0, 0.0)


def _zeros(*shape: int) -> Floats:
    return np.zeros(shape)


def _counts(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


@dataclass(slots=True, eq=False)
class Sums:
    """Sums as pairs of float64, with how many terms and totals were NaN, +inf, -inf."""

    hi: Floats
    lo: Floats
    nonfinite: Ints

    @classmethod
    def zeros(cls, n: int) -> Sums:
        """Return sums of nothing."""
        return cls(np.zeros(n), np.zeros(n), np.zeros((n, 3), dtype=np.int64))

    def add(self, rows: Floats) -> None:
        """Add rows, in order."""
        if rows.size:
            merge.add_rows(np.ascontiguousarray(rows), self.hi, self.lo, self.nonfinite)

    def merge(self, other: Sums) -> None:
        """Add the sums of the next file."""
        self.add(np.stack([other.hi, other.lo]))
        self.nonfinite += other.nonfinite


@dataclass(slots=True, eq=False)
class TopSequence:
    """One of the sequences with the largest sum of |diff|."""

    path: str
    row: int
    key: int
    n: int
    diff: float
    diff_abs: float
    k3: float


@dataclass(slots=True, eq=False)
class PairTotals:
    """What one comparison has found in a file, or in all of them.

    Attributes
    ----------
    sums : Sums
        Of `core.drift_partials.SUMS`.
    terms : (len(SUMS), 3) int64
        Terms of tokens left out that would be NaN, +inf, -inf.
    moments : (9,) float64
        State of `kernels.drift.merge_moments`.
    extremes : (n, 2) float64; places : mapping of (name, side) to Place
    varies : (2,) bool; first : (2,) float64
        Whether the probabilities of a side differ, and the first of them.
    bins : (HISTOGRAM_BINS,) int64
    counts : (2, 4) int64; first_bad : mapping of side to Place
        Null, NaN, +inf and -inf at valid tokens of each side.
    by_rule, losses, sequences : Sums
    sequence_terms : (n, 3) int64
    sequence_extremes : (2,) float64; sequence_places : list of Place
        Smallest and largest sum of differences over a sequence.
    classes : (n_classes, 5) float64
        By position.
    steps : mapping of step to (5,) float64; without_step : (5,) float64
    n_rows, n_files, n_tokens, n_masked, n_positive : int
    n_tokens_in_sequences : int
    """

    sums: Sums = field(default_factory=lambda: Sums.zeros(len(SUMS)))
    terms: Ints = field(default_factory=lambda: _counts(len(SUMS), 3))
    moments: Floats = field(default_factory=lambda: _zeros(9))
    extremes: Floats = field(default_factory=lambda: np.tile([np.inf, -np.inf], (len(EXTREMES), 1)))
    places: dict[tuple[str, int], Place] = field(default_factory=dict)
    varies: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(2, dtype=np.bool_))
    first: Floats = field(default_factory=lambda: np.full(2, np.nan))
    bins: Ints = field(default_factory=lambda: _counts(HISTOGRAM_BINS))
    counts: Ints = field(default_factory=lambda: _counts(2, 4))
    first_bad: dict[int, Place] = field(default_factory=dict)
    by_rule: Sums = field(default_factory=lambda: Sums.zeros(0))
    losses: Sums = field(default_factory=lambda: Sums.zeros(0))
    sequences: Sums = field(default_factory=lambda: Sums.zeros(0))
    sequence_terms: Ints = field(default_factory=lambda: _counts(4, 3))
    sequence_extremes: Floats = field(default_factory=lambda: np.array([np.inf, -np.inf]))
    sequence_places: dict[int, Place] = field(default_factory=dict)
    n_sequences: int = 0
    top: list[TopSequence] = field(default_factory=list)
    classes: Floats = field(default_factory=lambda: _zeros(len(POSITIONS), len(CLASSES)))
    steps: dict[int, Floats] = field(default_factory=dict)
    without_step: Floats = field(default_factory=lambda: _zeros(len(CLASSES)))
    has_sequences: bool = False
    no_sequences: str | None = None
    n_rows: int = 0
    n_files: int = 0
    n_tokens: int = 0
    n_masked: int = 0
    suspects: dict[str, tuple[int, Place]] = field(default_factory=dict)
    file_order: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: PairPlan) -> PairTotals:
        """Return totals of nothing, with room for the rules of a plan."""
        n_token, n_sequence = len(plan.token_rules()), len(plan.sequence_rules())
        width = len(drift_sequence.SEQUENCE_SUMS) + n_sequence * len(drift_sequence.RULE_SUMS)
        return cls(
            by_rule=Sums.zeros(3 * n_token),
            losses=Sums.zeros(2 + n_token),
            sequences=Sums.zeros(width),
        )

    def add_blocks(self, sums: Floats, moments: Floats) -> None:
        """Add the rows of blocks, in order."""
        self.sums.add(sums)
        n = sums[:, SUM["n"]]
        off = sums[:, [SUM["prob_a"], SUM["prob_b"]]]
        # The kernel sums what is left of the centres.
        with np.errstate(over="ignore", invalid="ignore"):  # of densities
            totals = off + n[:, None] * moments[:, :2]
        merge_moments(n, totals, moments, self.moments)
        live = np.flatnonzero(n)
        if live.size:
            if np.isnan(self.first).any():
                self.first = moments[live[0], :2].copy()
            self.varies |= (sums[:, [SUM["varies_a"], SUM["varies_b"]]] > 0.0).any(axis=0)
            self.varies |= (moments[live, :2] != self.first).any(axis=0)

    def add_suspect(self, name: str, count: int, where: Place) -> None:
        """Count something suspicious, met after all that was counted before."""
        before = self.suspects.get(name)
        self.suspects[name] = (count + before[0], before[1]) if before else (count, where)

    def offer_top(self, found: Sequence[TopSequence]) -> None:
        """Keep the sequences with the largest sums of |diff|; ties go to the earlier."""
        self.top = sorted([*self.top, *found], key=lambda one: -one.diff_abs)[:TOP]

    def add_step(self, step: int, row: Floats) -> None:
        """Add to a step."""
        mine = self.steps.setdefault(step, np.zeros(len(CLASSES)))
        _add_class(mine, row)

    def merge(self, other: PairTotals) -> None:
        """Add the totals of the next file."""
        self.sums.merge(other.sums)
        self.terms += other.terms
        self._merge_moments(other)
        for which, name in enumerate(EXTREMES):
            for side, further in ((0, np.less), (1, np.greater)):
                if further(other.extremes[which, side], self.extremes[which, side]):
                    self.extremes[which, side] = other.extremes[which, side]
                    if (name, side) in other.places:
                        self.places[name, side] = other.places[name, side]
        self.bins += other.bins
        self.counts += other.counts
        for side, place in other.first_bad.items():
            self.first_bad.setdefault(side, place)
        self.by_rule.merge(other.by_rule)
        self.losses.merge(other.losses)
        self._merge_sequences(other)
        for mine, row in zip(self.classes, other.classes, strict=True):
            _add_class(mine, row)
        for step, row in other.steps.items():
            self.add_step(step, row)
        _add_class(self.without_step, other.without_step)
        for name, (count, where) in other.suspects.items():
            self.add_suspect(name, count, where)
        for name in ("n_rows", "n_files", "n_tokens", "n_masked"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def _merge_moments(self, other: PairTotals) -> None:
        """Add second moments, and whether a side varies."""
        state = other.moments
        if not state[0]:
            return
        sums = np.array([[state[1] + state[2], state[3] + state[4]]])
        centred = np.concatenate([sums[0] / state[0], state[5:8]]).reshape(1, -1)
        merge_moments(state[:1].copy(), sums, centred, self.moments)
        self.varies |= other.varies
        if np.isnan(self.first).any():
            self.first = other.first.copy()
        self.varies |= self.first != other.first

    def _merge_sequences(self, other: PairTotals) -> None:
        """Add sums over sequences."""
        self.sequences.merge(other.sequences)
        self.sequence_terms += other.sequence_terms
        for side, further in ((0, np.less), (1, np.greater)):
            if further(other.sequence_extremes[side], self.sequence_extremes[side]):
                self.sequence_extremes[side] = other.sequence_extremes[side]
                self.sequence_places[side] = other.sequence_places[side]
        self.n_sequences += other.n_sequences
        self.offer_top(other.top)


def _add_class(mine: Floats, row: Floats) -> None:
    """Add a row of `CLASSES` to another; the sum of differences is a pair."""
    pair = Sums(mine[1:2].copy(), mine[2:3].copy(), np.zeros((1, 3), dtype=np.int64))
    pair.add(row[1:3].reshape(2, 1))
    mine[1], mine[2] = pair.hi[0], pair.lo[0]
    mine[0] += row[0]
    mine[3:] += row[3:]


def class_table(totals: PairTotals) -> Floats:
    """Return the classes by probability, confident to rare: tokens, sum of diff and of |diff| in each row."""
    n_bounds = sum(name.startswith("n below") for name in SUM)
    whole = [totals.sums.hi[SUM[name]] + totals.sums.lo[SUM[name]] for name in ("n", "diff", "diff_abs")]
    below = [
        [
            totals.sums.hi[SUM[f"{name} below {k}"]] + totals.sums.lo[SUM[f"{name} below {k}"]]
            for name in CLASS_SUMS
        ]
        for k in range(n_bounds)
    ]
    rows = np.array([whole, *below, [0.0, 0.0, 0.0]])
    with np.errstate(over="ignore", invalid="ignore"):
        table: Floats = rows[:-1] - rows[1:]
    return table
