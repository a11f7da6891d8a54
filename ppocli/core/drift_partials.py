"""Mergeable partial results of a comparison of two columns: the contract between its kernels and its engine.

a and b are the two log-probs of a token, diff = a - b, weight = exp(diff). As in `core.partials`, the kernels
fill one row per block of stored tokens and the engine adds rows in order, in double-double.
"""

from __future__ import annotations

import math

BANDS = ((0.999, 1.002), (0.99, 1.01), (0.95, 1.05), (0.9, 1.1))
"""Closed intervals of the weight whose share of tokens is reported."""

PROBABILITIES = (0.99, 0.9, 0.5, 0.1)
"""Bounds between the classes of tokens by exp(b), confident to rare; a bound is in the class above it."""

POSITIONS = (0, 1, 8, 64, 512, 4096, 32768)
"""First position of each class of tokens by their place in the sequence."""

CONFIDENT = 0.5
"""Tokens whose probabilities differ by more than this are counted: one side is sure, the other is not."""

ODD_GAP = 0.9
"""A log-prob of 0 or more that is further than this from the other one may stand for a missing value."""

CLASS_SUMS = ("n", "diff", "diff_abs")
"""What is kept of a class of tokens."""

_VALUES = (
    "diff",
    "diff_sq",
    "diff_abs",
    "k3",
    "weight",
    "weight_sq",
    "mult",  # exp |diff|
    "prob_a",  # exp(a) and exp(b), less their centres
    "prob_b",
)
_COUNTS = (
    "equal",
    "confident",
    "odd",  # one side is not negative, the other further away than ODD_GAP
    "varies_a",  # not a count: above 0 where the block has different values
    "varies_b",
    *(f"band_{k}" for k in range(len(BANDS))),
)
LANE_SUMS = (
    *_VALUES,
    *_COUNTS,
    # Of the classes by probability: those from the bound on, so that class k is the difference of two rows.
    *(f"{name} below {k}" for k in range(len(PROBABILITIES)) for name in CLASS_SUMS),
)
"""Sums that the vectorised loops keep."""

RARE_SUMS = ("ess_1", "ess_2", "ess_big_1", "ess_big_2")
"""Weights for the effective sample size; those above exp(300) apart, scaled by 2^-600."""

SUMS = (*LANE_SUMS, *RARE_SUMS, "n")
SUM = {name: index for index, name in enumerate(SUMS)}

MOMENTS = ("prob_a_sq", "prob_b_sq", "prob_ab")
"""Second moments of the probabilities, centred per block; they follow the two centres in a block's row."""

EXTREMES = ("diff", "prob_gap")
"""Quantities whose smallest and largest value are kept; of the probabilities' gap the absolute value."""

MAX_RULES = 8
"""Rules of truncated or masked weights, at token level, that are evaluated in one pass."""

RULE_SUMS = ("weight", "weight_sq", "touched")
"""What is kept of each rule: sums of the weights it leaves and of their squares, and how many it changes."""

PIECE = ("stored", "valid", "n", "diff", "diff_abs", "k3", "flags", "n_loss", "loss")
"""What is kept of each piece of a sequence: the part of it inside one run of one block."""

FLAG_POSINF, FLAG_NEGINF, FLAG_NAN = 1, 2, 4
"""What a piece's differences that are not finite would have made of its sums."""

# ------------------------------------------------------------------------------------------- histogram

OCTAVE_BINS = 128
LOWEST_OCTAVE, HIGHEST_OCTAVE = -40, 10
"""|diff| from 2^-40 to 2^10 has 128 bins per octave, of equal width inside it."""

N_OCTAVE_BINS = (HIGHEST_OCTAVE - LOWEST_OCTAVE) * OCTAVE_BINS
SMALL_BIN, FIRST_BIN, LARGE_BIN = 0, 1, 1 + N_OCTAVE_BINS
"""Bins of at most 2^-40, where 0 is too; of the lowest interval; and of what is above 2^10."""
NEGATIVE_BINS = 6656
"""Where the bins of negative differences start; they follow those of the others."""
HISTOGRAM_BINS = NEGATIVE_BINS + LARGE_BIN + 1


def bin_bounds(index: int) -> tuple[float, float]:
    """Return the interval of |diff| of a bin, open below and closed above; `index` is of a positive diff."""
    if index == SMALL_BIN:
        return 0.0, math.ldexp(1.0, LOWEST_OCTAVE)
    if index == LARGE_BIN:
        return math.ldexp(1.0, HIGHEST_OCTAVE), math.inf
    octave, step = divmod(index - FIRST_BIN, OCTAVE_BINS)
    low = math.ldexp(1.0 + step / OCTAVE_BINS, LOWEST_OCTAVE + octave)
    high = math.ldexp(1.0 + (step + 1) / OCTAVE_BINS, LOWEST_OCTAVE + octave)
    return low, high
