"""Where things stand in the kernels' scratch and parameters, and the types of their arrays.

A worker's scratch is one float64 array: rows of one number per token of a run, then lanes, eight numbers
each, of the block's sums and extremes, then the centres of the second moments.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ppocli.core.formats import FORMATS
from ppocli.core.partials import (
    COLUMNS,
    EXTREME_OF,
    EXTREMES,
    LANE_SUMS,
    MOMENTS,
    PIECE,
    RARE_SUMS,
    SELECTIONS,
    SUM,
)

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]
Places: TypeAlias = NDArray[np.uint16]

WIDTH = 8
"""Numbers in a vector, and lanes of a sum."""

RUN = 256
"""Tokens that the loops take at a time: their rows stay in the cache next to the core."""

BLOCK = 2048
"""Tokens of one row of partial results, counted from the start of the file."""

N_COLUMNS = len(COLUMNS)
SELECTION = {name: index for index, name in enumerate(SELECTIONS)}
BASE_SELECTIONS = ("ratio", "policy", "adv", "log_prob")
"""Selections of the first kernel; the second takes the others."""

# ------------------------------------------------------------------------------------------- rows

_ROWS = (*COLUMNS, "log_ratio", "ratio", "loss", "used_advantages", "value_term", "ref_k3")


def row(name: str) -> int:
    """Return where the row of a column or of a derived quantity starts."""
    return RUN * _ROWS.index(name)


# ------------------------------------------------------------------------------------------- lanes

COLUMN_LANES = ("sum", "square", "low", "high", "zeros", "positive")
"""What is kept of every column: sum, second moment, extremes, how many values are 0 and how many above 0."""

COLUMN_OF = {
    "adv": "advantages",
    "log_prob": "log_probs",
    "old_log_prob": "old_log_probs",
    "ref_log_prob": "ref_log_probs",
    "return": "returns",
    "ev_return": "returns",
    "ev_old_return": "returns",
    "reward": "rewards",
    "entropy": "entropy",
    "rollout_log_prob": "rollout_log_probs",
}
"""Sums, moments and extremes that are those of a column; the others have lanes of their own."""

_OWN_SUMS = tuple(name for name in LANE_SUMS if name not in COLUMN_OF and name != "adv_zero")
_OWN_MOMENTS = tuple(name for name in MOMENTS if name not in COLUMN_OF)
_OWN_EXTREMES = tuple(name for name in EXTREMES if name not in COLUMN_OF)
_LANES = (
    *(f"{column} {kind}" for column in COLUMNS for kind in COLUMN_LANES),
    *_OWN_SUMS,
    *(f"{name} square" for name in _OWN_MOMENTS),
    *(f"{name} {kind}" for name in _OWN_EXTREMES for kind in ("low", "high")),
)
_CENTRES = (*COLUMNS, *_OWN_MOMENTS)

LANES = RUN * len(_ROWS)
CENTRES = LANES + WIDTH * len(_LANES)
SCRATCH = CENTRES + WIDTH * -(-len(_CENTRES) // WIDTH)


def lane(name: str) -> int:
    """Return where the lanes called so start, for example "loss", "loss square" or "advantages sum"."""
    return LANES + WIDTH * _LANES.index(name)


def centre(name: str) -> int:
    """Return where the centre of a second moment stands."""
    return CENTRES + _CENTRES.index(name)


def _lanes_of(name: str, kind: str, own: str) -> int:
    return lane(f"{COLUMN_OF[name]} {kind}" if name in COLUMN_OF else own)


SUM_LANES = tuple(
    lane("advantages zeros") if name == "adv_zero" else _lanes_of(name, "sum", name) for name in LANE_SUMS
)
SUM_OWNERS = tuple(SELECTION[owner] for owner in LANE_SUMS.values())
SQUARE_LANES = tuple(_lanes_of(name, "square", f"{name} square") for name in MOMENTS)
SQUARE_CENTRES = tuple(centre(COLUMN_OF.get(name, name)) for name in MOMENTS)
SQUARE_OWNERS = tuple(SELECTION[LANE_SUMS[name]] for name in MOMENTS)
LOW_LANES = tuple(_lanes_of(name, "low", f"{name} low") for name in EXTREMES)
"""Lanes of the smallest value; those of the largest follow them."""
EXTREME_OWNERS = tuple(SELECTION[(LANE_SUMS | EXTREME_OF)[name]] for name in EXTREMES)

# ------------------------------------------------------------------------------------------- parameters

P_CLIP_FLOOR, P_CLIP_CEILING, P_DUAL, P_DELTA, P_CLAMP, P_SHIFT, P_SCALE, P_VALUE_CLIP = range(8)
"""Parameters of the loss; what is off is infinite (shift 0, scale 1)."""
N_PARAMETERS = 8

# ------------------------------------------------------------------------------------------- results

HISTOGRAM_HALF = 4096
HISTOGRAM_PER_NAT = 128
HISTOGRAM_BINS = 2 * HISTOGRAM_HALF + 3
"""Bins of log_ratio, 1/128 nat wide and centred on 0, to +-32 nats, with one end bin on either side."""
HISTOGRAM_COPIES = WIDTH
"""Copies of each bin, one for each lane: additions to one number would wait for each other."""
SPREAD_COPIES = 2
"""The same where thousands of bins are in use, which shall stay in the cache next to the core."""

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
