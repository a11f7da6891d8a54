"""Why two columns of log-probs differ: known causes, each with the mark it leaves. Float64 NumPy on a sample.

Causes are looked for in order, and tokens that one explains are left out of the search for the next: a token
whose log-prob was filled in says nothing about a temperature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.drift_options import FLOOR_METRICS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

FEW = 64
"""With fewer tokens than this only exact marks count."""

LARGEST = 1e6
"""No log-prob is further from 0, in nats: what is stands for something else, and its square may overflow."""

SHIFT_GAIN = 4.0
"""A shift by one must bring the median difference down to a quarter."""
SHIFT_FROM = 0.05
"""A median difference below this, in nats, is not from other tokens."""

PILE_SHARE, PILE_LEAST = 1e-3, 4
"""A pile at one side's smallest value: at least this share of the tokens, and so many."""
PILE_GAP = 0.2
"""At half of the pile the other side is lower by at least this, in nats."""

HALF_STEPS = 1.01
"""Differences from rounding are at most half a step; so much room is for the rounding of the other side."""

SURE, UNLIKELY = 0.8, 0.2
"""A confident disagreement: one side's probability is at least the first, the other's at most the second."""
CONFIDENT_SHARE, CONFIDENT_LEAST = 1e-3, 4
"""How many of them count."""

OFFSET_RATIO, OFFSET_FROM = 2.0, 1e-3
"""A constant offset: the median is this many times the spread, and at least so many nats."""

SLOPE_FIT, SLOPE_FROM, SLOPE_TO = 0.2, 0.004, 1.3
"""A temperature: the share of variance that a line explains, and between which slopes it is plausible.

T on one side of logits z makes log p / T + c of log p, with a c for each context: the slope of the
difference is at most 2 (T - 1) / (T + 1), 1.3 is T = 4.7. Over 50 to 5,000 normal logits of scale 1 to 4 a
line explained 21 to 79 % of the variance for T from 0.7 to 2; of noise without a slope next to nothing.
"""
SLOPE_FIT_FEW = 0.9
SLOPE_SMALL = 0.05
"""With few tokens the mean |difference| must be at least this, in nats."""

TOP_SHARE, TOP_CARRIES, TOP_TOKENS, TOP_LEAST = 0.05, 0.5, 0.2, 20
"""Few sequences: 5 % of at least 20 hold half of the sum of |diff| in at most a fifth of the tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Some pairs of a run.

    Attributes
    ----------
    a, b : (n,) float64, finite
    labels : (n, 2) int64
        File, and what tells sequences of a file apart (an id or a row; -1: nothing).
    block : (n,) int64
        Stretches of consecutive tokens.
    paths : tuple of str
    """

    a: Floats
    b: Floats
    labels: Ints
    block: Ints
    paths: tuple[str, ...] = ()

    def keep(self, which: Bools) -> Sample:
        """Return some of the tokens."""
        return Sample(self.a[which], self.b[which], self.labels[which], self.block[which], self.paths)


@dataclass(frozen=True, slots=True)
class Heavy:
    """How much of the sum of |diff| the heaviest sequences hold.

    Attributes
    ----------
    n_sequences, n_top : int
    share, tokens : float
        Of the sum of |diff|, and of the tokens.
    keys : collection of (file, key)
        The heaviest sequences, as a sample labels them.
    """

    n_sequences: int
    n_top: int
    share: float
    tokens: float
    keys: Collection[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause that fits.

    Attributes
    ----------
    code : str
        Of the rule.
    count : int
        Tokens of the sample (or sequences) that show it.
    message : str
        The evidence.
    """

    code: str
    count: int
    message: str


@dataclass(slots=True)
class Search:
    """What is being looked at: the labels of the sides, and the tokens that nothing has explained yet."""

    a: str
    b: str
    sample: Sample
    found: list[Cause] = field(default_factory=list)

    def add(self, code: str, count: int, message: str) -> None:
        """Note a cause."""
        self.found.append(Cause(code, count, message))


def causes(
    sample: Sample, a: str, b: str, placeholders: Collection[float], heavy: Heavy | None
) -> list[Cause]:
    """Return the causes that fit a sample.

    Parameters
    ----------
    sample : Sample
    a, b : str
        What the sides are called.
    placeholders : collection of float
        Values that stand for a missing log-prob on one side; their tokens are left out.
    heavy : Heavy, optional
        None where there are no sequences.
    """
    usable = (np.abs(sample.a) < LARGEST) & (np.abs(sample.b) < LARGEST)
    search = Search(a, b, sample.keep(usable & ~filled(sample.a, sample.b, placeholders)))
    if _shift(search):
        return search.found
    if heavy is not None and _few_sequences(search, heavy):
        inside = [tuple(label) in heavy.keys for label in search.sample.labels.tolist()]
        search.sample = search.sample.keep(~np.array(inside, dtype=np.bool_))
    _clamp(search)
    if _rounded(search):
        return search.found
    gap = _confident_gaps(search.sample)
    every, search.sample = search.sample, search.sample.keep(~gap)
    # A temperature far from 1 makes confident disagreements, too; these would bend the line.
    if not _slope(search):
        _confident(search, every, gap)
        _offset(search)
    return search.found


def filled(a: Floats, b: Floats, placeholders: Collection[float]) -> Bools:
    """Return where one side, and not the other, is a placeholder."""
    out = np.zeros(a.shape, dtype=np.bool_)
    for value in placeholders:
        out |= (a == value) != (b == value)
    found: Bools = out
    return found


def _shift(search: Search) -> bool:
    """PPO503: the sides agree when one of them is moved by a token."""
    s = search.sample
    order = np.lexsort((np.arange(s.a.size), s.labels[:, 1], s.labels[:, 0], s.block))
    a, b, labels, block = s.a[order], s.b[order], s.labels[order], s.block[order]
    joined = (block[1:] == block[:-1]) & (labels[1:] == labels[:-1]).all(axis=1)
    n = int(joined.sum())
    if n < 3:
        return False
    straight = np.abs(a[:-1] - b[:-1])[joined]
    before = float(np.median(straight))
    for late, moved in (
        (search.b, np.abs(a[:-1] - b[1:])[joined]),
        (search.a, np.abs(a[1:] - b[:-1])[joined]),
    ):
        after = float(np.median(moved))
        exact = n >= FEW or float(np.max(moved)) <= 1e-3 * before
        if before >= SHIFT_FROM and after * SHIFT_GAIN <= before and exact:
            search.add(
                "PPO503",
                n,
                f"{late} is late by one token: shifted back, the median |difference| falls from "
                f"{before:.3g} to {after:.3g} nats",
            )
            return True
    return False


def _few_sequences(search: Search, heavy: Heavy) -> bool:
    """PPO509: a small part of the sequences holds most of the difference."""
    if heavy.n_sequences < TOP_LEAST or heavy.share < TOP_CARRIES or heavy.tokens > TOP_TOKENS:
        return False
    search.add(
        "PPO509",
        heavy.n_top,
        f"{heavy.n_top:,} of {heavy.n_sequences:,} sequences, {heavy.tokens:.1%} of the tokens, hold "
        f"{heavy.share:.0%} of the sum of |difference|",
    )
    return True


def _clamp(search: Search) -> None:
    """PPO507: many tokens stand exactly on one side's smallest log-prob, where the other side is lower."""
    s = search.sample
    for label, mine, other in ((search.b, s.b, s.a), (search.a, s.a, s.b)):
        if not mine.size:
            return
        at = mine == mine.min()
        n = int(at.sum())
        if n < max(PILE_LEAST, PILE_SHARE * mine.size) or mine.min() == mine.max():
            continue
        below = other[at] < mine.min() - PILE_GAP
        if below.sum() * 2 >= n:
            search.add(
                "PPO507",
                n,
                f"{label} is exactly {mine.min():.6g}, its smallest value, at {n:,} of {mine.size:,} tokens, "
                f"and the other side is lower there",
            )
            search.sample = s.keep(~at)
            return


def steps_of(values: Floats, mantissa: int) -> Floats:
    """Return the distance between neighbours of a format with so many bits of mantissa, at each value."""
    exponent = np.frexp(values)[1]
    steps: Floats = np.ldexp(1.0, exponent - 1 - mantissa)
    return steps


def _is_held_by(values: Floats, mantissa: int) -> Bools:
    """Return which values such a format holds; its range of exponents does not matter here."""
    scaled = values / steps_of(values, mantissa)
    held: Bools = scaled == np.rint(scaled)
    return held


def _rounded(search: Search) -> bool:
    """PPO506: one side was rounded to 16 bits, and that is the whole difference."""
    s = search.sample
    for name, mantissa in (("bfloat16", 7), ("float16", 10)):
        for label, mine, other in ((search.b, s.b, s.a), (search.a, s.a, s.b)):
            some = mine != 0.0
            if some.sum() < FEW or np.unique(mine[some]).size < 8:
                continue
            if not _is_held_by(mine[some], mantissa).all() or _is_held_by(other[some], mantissa).mean() > 0.9:
                continue
            inside = np.abs(s.a - s.b)[some] <= HALF_STEPS * 0.5 * steps_of(mine[some], mantissa)
            if inside.mean() >= 0.99:
                search.add(
                    "PPO506",
                    int(some.sum()),
                    f"every value of {label} looked at ({int(some.sum()):,}) is a {name} value, those of the "
                    f"other side are not, and {inside.mean():.1%} of the differences are within half a step",
                )
                return True
    return False


def _confident_gaps(s: Sample) -> Bools:
    """Return where one side is sure of the token and the other is not."""
    high, low = np.maximum(s.a, s.b), np.minimum(s.a, s.b)
    gaps: Bools = (high >= math.log(SURE)) & (low <= math.log(UNLIKELY))
    return gaps


def _confident(search: Search, every: Sample, gap: Bools) -> None:
    """PPO508: at some tokens one side is sure and the other is not."""
    n = int(gap.sum())
    if n >= max(CONFIDENT_LEAST, CONFIDENT_SHARE * every.a.size):
        search.add(
            "PPO508",
            n,
            f"at {n:,} of {every.a.size:,} tokens one side gives a probability of {SURE} or more, the other "
            f"{UNLIKELY} or less",
        )


def _slope(search: Search) -> bool:
    """PPO502: the difference grows with the log-prob."""
    s = search.sample
    n = s.a.size
    if n < 2:
        return False
    x, y = (s.a + s.b) / 2.0, s.a - s.b
    x, off = x - x.mean(), y - y.mean()
    xx, xy, yy = (math.fsum(values) for values in (x * x, x * off, off * off))
    if xx == 0.0 or yy == 0.0:
        return False
    slope, fit = xy / xx, xy * xy / (xx * yy)
    if n < FEW and float(np.mean(np.abs(y))) < SLOPE_SMALL:
        return False
    if fit < (SLOPE_FIT_FEW if n < FEW else SLOPE_FIT) or not SLOPE_FROM <= abs(slope) <= SLOPE_TO:
        return False
    # d = a - b grows with the log-prob where a is the sharper side: b = a / T + c.
    sharper = search.a if slope > 0.0 else search.b
    ratio = (2.0 + abs(slope)) / (2.0 - abs(slope))
    search.add(
        "PPO502",
        n,
        f"the difference changes by {slope:.3g} nats per nat of log-prob ({fit:.0%} of its variance): "
        f"{sharper} is sharper, as a temperature of about {ratio:.3g} on the other side makes it",
    )
    return True


def _offset(search: Search) -> None:
    """PPO501: every token differs by about the same."""
    s = search.sample
    n = s.a.size
    if n < 2:
        return
    diff = s.a - s.b
    middle = float(np.median(diff))
    if n < FEW:
        spread = float(np.max(diff) - np.min(diff))
        constant = spread <= 0.1 * abs(middle)
    else:
        low, high = (float(value) for value in np.quantile(diff, (0.1, 0.9)))
        spread = (high - low) / 2.563  # of a normal distribution: its standard deviation
        constant = abs(middle) >= OFFSET_RATIO * spread
    if abs(middle) < OFFSET_FROM or not constant:
        return
    kept = math.exp(-abs(middle))
    search.add(
        "PPO501",
        n,
        f"a constant offset of {middle:.4g} nats with a spread of {spread:.2g}: a factor of {kept:.4g} on "
        f"every probability, as top-p or top-k sampling makes it where one side does not renormalise",
    )


def read_floor(metrics: Mapping[str, float | None], floor: Mapping[str, float | None]) -> dict[str, float]:
    """Return how many times the noise floor each metric is, for those that have both."""
    out = {}
    for name in FLOOR_METRICS:
        value, least = metrics.get(name), floor.get(name)
        if value is not None and least is not None and least > 0.0:
            out[name] = float(value) / float(least)
    return out
