"""Where things stand in the kernels' scratch and parameters: compile-time constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ppocli.core.formats import FORMATS
from ppocli.core.partials import COLUMNS, EXTREMES, LANE_SUMS, MOMENTS, PIECE, RARE_SUMS, SELECTIONS, SUM

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Ints: TypeAlias = NDArray[np.int64]
    Bytes: TypeAlias = NDArray[np.uint8]

RUN = 256
"""Tokens that the vectorised loops take at a time: their scratch stays in the cache next to the core."""

BLOCK = 2048
"""Tokens of one row of partial results, counted from the start of the file."""

N_COLUMNS = len(COLUMNS)
LP, OLD, ADV, VALUE, OLD_VALUE, RETURN, ENTROPY, REF, REWARD = (RUN * k for k in range(N_COLUMNS))
LOG_RATIO, RATIO, LOSS, FLAT, VALUE_TERM, REF_K3, ADV_USED, WORK = (
    RUN * k for k in range(N_COLUMNS, N_COLUMNS + 8)
)
LANES = RUN * (N_COLUMNS + 8)
SQUARES = LANES + RUN * len(LANE_SUMS)
LOWEST = SQUARES + RUN * len(MOMENTS)
HIGHEST = LOWEST + RUN * len(EXTREMES)
KEPT = HIGHEST + RUN * len(EXTREMES)
SCRATCH = KEPT + BLOCK

SELECTION = {name: index for index, name in enumerate(SELECTIONS)}
BASE_SELECTIONS = ("ratio", "policy", "adv", "log_prob")
"""Selections of the first kernel; the second takes the others."""

LANE_OWNERS = tuple(SELECTION[owner] for owner in LANE_SUMS.values())
SQUARE_OWNERS = tuple(SELECTION[LANE_SUMS[name]] for name in MOMENTS)
EXTREME_OWNERS = tuple(SELECTION[LANE_SUMS[name]] for name in EXTREMES)


def lane(name: str) -> int:
    """Return where the lanes of a sum start."""
    return LANES + RUN * list(LANE_SUMS).index(name)


def square(name: str) -> int:
    """Return where the lanes of a second moment start."""
    return SQUARES + RUN * MOMENTS.index(name)


P_CLIP_FLOOR, P_CLIP_CEILING, P_DUAL, P_DELTA, P_CLAMP, P_SHIFT, P_SCALE, P_VALUE_CLIP = range(8)
"""Parameters of the loss; what is off is infinite (shift 0, scale 1)."""
N_PARAMETERS = 8

HISTOGRAM_HALF = 4096
HISTOGRAM_PER_NAT = 128
HISTOGRAM_BINS = 2 * HISTOGRAM_HALF + 3
"""Bins of log_ratio, 1/128 nat wide and centred on 0, to +-32 nats, with one end bin on either side."""

N_SUMS = len(SUM)
FIRST_COUNT = SUM["n_ratio"]
OVERFLOW_LOGS = tuple(one.overflow_log for one in FORMATS.values())
UNDERFLOW_LOGS = tuple(one.underflow_log for one in FORMATS.values())
RARE_HIGH, RARE_LOW = min(OVERFLOW_LOGS), max(UNDERFLOW_LOGS)
RARE_FIRST = len(LANE_SUMS)
N_RARE = len(RARE_SUMS)
N_PIECE = len(PIECE)
PIECE_STORED, PIECE_VALID, PIECE_FLAGS = PIECE.index("stored"), PIECE.index("valid"), PIECE.index("flags")
PIECE_ADV_MIN, PIECE_ADV_MAX = PIECE.index("adv_min"), PIECE.index("adv_max")
