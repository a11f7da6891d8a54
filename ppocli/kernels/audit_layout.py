"""Where things stand in the scratch, the tables and the results of the audit's kernel."""

from __future__ import annotations

import numpy as np

from ppocli.kernels.blocks import aligned
from ppocli.kernels.layout import BLOCK, HISTOGRAM_COPIES, RUN, WIDTH, Floats, Ints, Places

# ------------------------------------------------------------------------------------------- scratch

_TOKEN_ROWS = ("log_probs", "old_log_probs", "advantages", "used_advantages")
_RESULT_ROWS = ("log_ratio", "ratio", "loss", "gradient", "side")
_STORED_ROWS = ("log_probs", "old_log_probs", "used_advantages")
_ROWS = (
    *_TOKEN_ROWS,
    *_RESULT_ROWS,
    "inverse",
    *(f"{name} stored" for name in _STORED_ROWS),
    *(f"{name} audited" for name in _RESULT_ROWS),
    "flags",
)

SUMS = (
    "loss",
    "loss_float32",
    "loss_abs",
    "log_ratio",
    "kl_k2",
    "kl_k3",
    "ratio",
    "ratio_sq",
    "gradient_abs",
    "gradient_error",
)
COUNTS = (
    "below",
    "above",
    "active",
    "flips_on",
    "flips_off",
    "overflow",
    "underflow",
    "zero",
    "rounded_to_zero",
    "vanished",
    "appeared",
    "reversed",
)
LOWEST = ("ratio_min",)
HIGHEST = ("ratio_max", "ratio_error", "log_ratio_error", "worst_flip")
EXTREMES = (*LOWEST, *HIGHEST)

# "loss_abs" and "active" are of the reference only; "loss_float32" is 0 where no step is rounded.
RESULTS = {name: index for index, name in enumerate((*SUMS, *COUNTS))}
"""What is kept of a variant and a block, to be added up."""
N_RESULTS = WIDTH * -(-len(RESULTS) // WIDTH)
EXTREME = {name: index for index, name in enumerate(EXTREMES)}
N_EXTREMES = len(EXTREMES)

LANES = RUN * len(_ROWS)
LANES_PER_VARIANT = WIDTH * (len(RESULTS) + N_EXTREMES)


def row(name: str) -> int:
    """Return where a row of the tokens of a run starts."""
    return RUN * _ROWS.index(name)


NEW, OLD, ADV, USED = (row(name) for name in _TOKEN_ROWS)
LOG_RATIO, RATIO, LOSS, GRADIENT, SIDE = (row(name) for name in _RESULT_ROWS)
INVERSE = row("inverse")
NEW_F, OLD_F, USED_F = (row(f"{name} stored") for name in _STORED_ROWS)
LOG_RATIO_V, RATIO_V, LOSS_V, GRADIENT_V, SIDE_V = (row(f"{name} audited") for name in _RESULT_ROWS)
"""Rows: of the tokens, of the reference, of what a format leaves of the columns, and of a variant.

`side` is -1 or 1 where the clipped branch is active below or above, else 0; `inverse` is 1 / ratio.
"""

COUNTS_BIT, SIDE_BIT, SLOPE_BIT, SHIFT_BIT = (8 * row("flags") + k * (RUN // WIDTH) for k in range(4))
"""Where bytes of flags start, a bit for each token: it counts; in the reference its clip is active, its
gradient is not 0, its log-ratio is not 0."""


def result_lane(name: str) -> int:
    """Return where the lanes of a result start, counted from those of its variant."""
    return WIDTH * RESULTS[name]


def extreme_lane(name: str) -> int:
    """Return where the lanes of an extreme start, counted from those of its variant."""
    return WIDTH * (len(RESULTS) + EXTREME[name])


# ------------------------------------------------------------------------------------------- tables

EXACT, FLOATING, SCALED, SCALED_EACH = range(4)
"""Kinds of storage: as it is, a floating-point format, int8 with one scale, or with one for each token."""

FORMAT = ("kind", "factor", "power", "limit", "beyond", "scale_new", "scale_old", "scale_adv")
"""Columns of the table of storage formats."""
F_KIND, F_FACTOR, F_POWER, F_LIMIT, F_BEYOND, F_SCALE_NEW, F_SCALE_OLD, F_SCALE_ADV = range(len(FORMAT))

IN_FLOAT64, IN_FORMAT, LOSS_ONLY = range(3)
"""Kinds of arithmetic: float64; every step rounded; the same, and only loss and clip decisions are kept."""

VARIANT = (
    "format", "kind", "is_float32", "factor", "power", "limit", "beyond",
    "floor", "ceiling", "dual", "delta", "clamp", "bottom", "top", "terms",
)  # fmt: skip
"""Columns of the table of variants: the storage format; how steps are rounded; the bounds so rounded (of the
clip, the dual clip, delta, the clamp of the log-ratio, the ratios at its ends); the row of terms, or -1."""
(
    V_FORMAT, V_KIND, V_FLOAT32, V_FACTOR, V_POWER, V_LIMIT, V_BEYOND,
    V_FLOOR, V_CEILING, V_DUAL, V_DELTA, V_CLAMP, V_BOTTOM, V_TOP, V_TERMS,
) = range(len(VARIANT))  # fmt: skip

# ------------------------------------------------------------------------------------------- results

RUNS = BLOCK // RUN
"""Float32 sums per block."""

SIZE_LOWEST, SIZE_HIGHEST = -41, 12
SIZES_PER_OCTAVE = 32
SIZE_SHIFT = 52 - 5
SIZE_OFFSET = (1023 + SIZE_LOWEST) * SIZES_PER_OCTAVE
SIZE_BINS = (SIZE_HIGHEST - SIZE_LOWEST) * SIZES_PER_OCTAVE
"""Bins of |log_prob| and |log_ratio|: 32 per power of two from 2^-40 to 2^12; bin 0 holds what is smaller."""

DUMPED = ("log_ratio", "ratio", "loss", "side", *(f"{name} audited" for name in _RESULT_ROWS))
"""Rows that are given out where single tokens are looked at."""


class AuditWorkspace:
    """Scratch of the workers, made once and used for every file.

    Attributes
    ----------
    scratch : (n_workers, LANES + n_variants * LANES_PER_VARIANT) float64
    kept : (2 * n_workers, BLOCK) uint16
        Bins of a block's tokens.
    bins : (2 * n_workers, SIZE_BINS * HISTOGRAM_COPIES) int64
    """

    def __init__(self, n_workers: int, n_variants: int) -> None:
        self.n_workers = n_workers
        self.scratch: Floats = aligned((n_workers, LANES + n_variants * LANES_PER_VARIANT), np.float64)
        self.kept: Places = aligned((2 * n_workers, BLOCK), np.uint16)
        self.bins: Ints = aligned((2 * n_workers, SIZE_BINS * HISTOGRAM_COPIES), np.int64)

    def workers_for(self, n_blocks: int) -> int:
        """Return how many workers to start: each costs 0.1 ms, which is what eight blocks take."""
        return max(1, min(self.n_workers, n_blocks // 8))

    def histograms(self) -> Ints:
        """Return the counts of |log_prob| and of |log_ratio| per bin, of all workers together."""
        shape = (self.n_workers, 2, SIZE_BINS, HISTOGRAM_COPIES)
        counts: Ints = self.bins.reshape(shape).sum(axis=(0, 3))
        return counts
