"""Where things stand in the scratch of the kernel that compares two columns, and its numbers."""

from __future__ import annotations

import math

import numpy as np

from ppocli.core.drift_partials import (
    BANDS,
    CLASS_SUMS,
    EXTREMES,
    FIRST_BIN,
    HIGHEST_OCTAVE,
    HISTOGRAM_BINS,
    LANE_SUMS,
    LOWEST_OCTAVE,
    MAX_RULES,
    MOMENTS,
    NEGATIVE_BINS,
    OCTAVE_BINS,
    PIECE,
    PROBABILITIES,
    RULE_SUMS,
    SUM,
)
from ppocli.kernels.blocks import aligned, folded
from ppocli.kernels.layout import (
    BLOCK,
    RUN,
    SPREAD_COPIES,
    WIDTH,
    Floats,
    Ints,
    Places,
)

A, B = 0, 1

# ------------------------------------------------------------------------------------------- scratch

DIFF, SIDE_B, LARGER, SHARE, K3, WEIGHT = (RUN * k for k in range(6))
"""Rows of one number per token of a run."""
LANES = RUN * 6
RULE_LANES = LANES + WIDTH * len(LANE_SUMS)
CLEAN, CLEAN_SQ = RULE_LANES, RULE_LANES + WIDTH
"""Lanes of the weights, and their squares, of runs that no rule touches."""
PER_RULE = WIDTH * len(RULE_SUMS)
MOMENT_LANES = RULE_LANES + 2 * WIDTH + PER_RULE * MAX_RULES
EXTREME_LANES = MOMENT_LANES + WIDTH * len(MOMENTS)
CENTRE_A, CENTRE_B, FIRST_A, FIRST_B = (EXTREME_LANES + 2 * WIDTH * len(EXTREMES) + k for k in range(4))
SCRATCH = CENTRE_A + WIDTH


def _lane(name: str) -> int:
    return LANES + WIDTH * LANE_SUMS.index(name)


def _moment(name: str) -> int:
    return MOMENT_LANES + WIDTH * MOMENTS.index(name)


def _extreme(name: str) -> int:
    return EXTREME_LANES + 2 * WIDTH * EXTREMES.index(name)


L_DIFF, L_DIFF_SQ, L_ABS, L_K3, L_WEIGHT, L_WEIGHT_SQ, L_MULT = (
    _lane(name) for name in ("diff", "diff_sq", "diff_abs", "k3", "weight", "weight_sq", "mult")
)
L_PROB_A, L_PROB_B = _lane("prob_a"), _lane("prob_b")
L_EQUAL, L_CONFIDENT, L_ODD, L_VARIES_A, L_VARIES_B = (
    _lane(name) for name in ("equal", "confident", "odd", "varies_a", "varies_b")
)
L_BAND, L_CLASS = _lane("band_0"), _lane("n below 0")
Q_AA, Q_BB, Q_AB = (_moment(name) for name in MOMENTS)
X_DIFF, X_GAP = (_extreme(name) for name in EXTREMES)
N_LANES, N_MOMENTS, N_EXTREMES = len(LANE_SUMS), len(MOMENTS), len(EXTREMES)
PER_CLASS = WIDTH * len(CLASS_SUMS)
COUNT = SUM["n"]

# The bands are closed: as |expm1(diff) - middle| they end just inside these.
MIDDLE_0 = (BANDS[0][0] + BANDS[0][1]) / 2.0 - 1.0
HALF_0, HALF_1, HALF_2, HALF_3 = (math.nextafter((high - low) / 2.0, 1.0) for low, high in BANDS)
CLASS_0, CLASS_1, CLASS_2, CLASS_3 = (math.log(bound) for bound in PROBABILITIES)
P_N, P_DIFF, P_ABS, P_K3 = (PIECE.index(name) for name in ("n", "diff", "diff_abs", "k3"))

R_LOW, R_HIGH, R_BELOW, R_ABOVE = range(4)
"""A rule: its bounds, and what weights below and above them are replaced by."""


def reach_of(rules: Floats) -> Floats:
    """Return the two differences between which no rule changes a weight, for certain."""
    low, high = np.append(rules[:, R_LOW], 0.0).max(), np.append(rules[:, R_HIGH], np.inf).min()
    with np.errstate(divide="ignore"):
        # Exponentials are right to 2^-52: weights this close to a bound are looked at.
        return np.array([np.log(low) + 1e-12, np.log(high) - 1e-12])


# exp(r) = 1 + r + r^2 (P0 + P1 r + ...) for |r| <= ln(2) / 2, interpolated at the Chebyshev nodes in 50
# digits: relative error 7.4e-14, what single probabilities need.
P0 = 0.4999999999995507
P1 = 0.16666666666662583
P2 = 0.041666666786337556
P3 = 0.008333333344209506
P4 = 0.001388883909064138
P5 = 0.00019841224581544105
P6 = 2.4867883453521802e-05
P7 = 2.761757684835413e-06

# ------------------------------------------------------------------------------------------- histogram

# The exponent and the seven highest bits of the mantissa number the bins of one sign. Of the number below:
# a bin ends with its upper bound, so that the counts above 0.5 and above 1 are sums of bins.
TOP_BITS = np.uint64(52 - OCTAVE_BINS.bit_length() + 1)
ONE = np.uint64(1)
BASE = np.uint64((1023 + LOWEST_OCTAVE) * OCTAVE_BINS - FIRST_BIN)
FLOOR = 2.0**LOWEST_OCTAVE
CEILING = math.nextafter(2.0**HIGHEST_OCTAVE, math.inf)
FOR_NEGATIVE = float(np.uint64(NEGATIVE_BINS).view(np.float64))
"""A float64 whose bits are the number of the first bin of negative differences."""


class PairWorkspace:
    """Scratch of the workers, made once and used for every file.

    Attributes
    ----------
    scratch : (n_workers, SCRATCH) float64
    kept : (n_workers, BLOCK) uint16
        Bins of a block's tokens.
    bins : (n_workers, HISTOGRAM_BINS * SPREAD_COPIES) int64
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.scratch: Floats = aligned((n_workers, SCRATCH), np.float64)
        self.kept: Places = aligned((n_workers, BLOCK), np.uint16)
        self.bins: Ints = aligned((n_workers, HISTOGRAM_BINS * SPREAD_COPIES), np.int64)

    def workers_for(self, n_blocks: int) -> int:
        """Return how many workers to start, as in `ppocli.kernels.blocks.Workspace`."""
        return max(1, min(self.n_workers, n_blocks // 32))

    def histogram(self) -> Ints:
        """Return the counts per bin, of all workers together."""
        return folded(self.bins, SPREAD_COPIES)
