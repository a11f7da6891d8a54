"""Number formats that log-probs are stored in or losses computed in: their steps, limits and rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Overflow = Literal["inf", "nan", "saturate"]
"""What becomes of a value that rounds beyond the largest finite one."""

Scale = Literal["tensor", "sequence"]
"""What one scale of an integer format is taken over."""


@dataclass(frozen=True, slots=True)
class Precision:
    """A number format, rounded to nearest, ties to even, subnormals included.

    Attributes
    ----------
    name : str
    text : str
        What it is, in one line.
    n_bytes : int
        What a value takes in memory; tf32 exists in registers only and is stored as float32.
    mantissa_bits : int
        Bits behind the leading one.
    min_exponent : int
        Exponent of the smallest normal number; the smallest positive one is 2^(min_exponent - mantissa_bits).
    max_finite : float
    overflow : {"inf", "nan", "saturate"}
    scale : {"tensor", "sequence"}, optional
        Integers times a scale; the four fields before this one then mean nothing.
    arithmetic : bool
        Whether there is elementwise arithmetic in it; 8-bit formats only store.
    stored : bool
        Whether columns are stored in it: not so for tf32.
    """

    name: str
    text: str
    n_bytes: int
    mantissa_bits: int = 0
    min_exponent: int = 0
    max_finite: float = math.inf
    overflow: Overflow = "inf"
    scale: Scale | None = None
    arithmetic: bool = True
    stored: bool = True

    @property
    def rule(self) -> tuple[float, float, float, float]:
        """What `ppocli.kernels.rounding.rounded` takes: factor, smallest power, limit, value beyond it."""
        beyond = {"inf": math.inf, "nan": math.nan, "saturate": self.max_finite}[self.overflow]
        return (
            1.5 * 2.0 ** (52 - self.mantissa_bits),
            2.0**self.min_exponent,
            self.max_finite + self.step(self.max_finite),
            beyond,
        )

    def step(self, value: float) -> float:
        """Return the distance between neighbouring numbers around a finite value, on its side away from 0."""
        exponent = math.frexp(value)[1] - 1 if value else self.min_exponent
        return 2.0 ** (max(exponent, self.min_exponent) - self.mantissa_bits)


_E4M3FN, _E5M2 = "1 sign, 4 exponent, 3 mantissa bits", "1 sign, 5 exponent, 2 mantissa bits"

PRECISIONS: dict[str, Precision] = {
    one.name: one
    for one in (
        Precision(
            "float32", "1 sign, 8 exponent, 23 mantissa bits",
            4, 23, -126, (2.0 - 2.0**-23) * 2.0**127,
        ),
        Precision(
            "tf32", "float32 with 10 mantissa bits, as in tensor cores",
            4, 10, -126, (2.0 - 2.0**-10) * 2.0**127, stored=False,
        ),
        Precision(
            "bfloat16", "1 sign, 8 exponent, 7 mantissa bits",
            2, 7, -126, (2.0 - 2.0**-7) * 2.0**127,
        ),
        Precision("float16", "1 sign, 5 exponent, 10 mantissa bits", 2, 10, -14, 65504.0),
        Precision(
            "float8_e4m3fn", f"{_E4M3FN}; NaN beyond 464, as in ml_dtypes",
            1, 3, -6, 448.0, "nan", arithmetic=False,
        ),
        Precision(
            "float8_e4m3fn_saturating", f"{_E4M3FN}; held at +-448, as in PyTorch",
            1, 3, -6, 448.0, "saturate", arithmetic=False,
        ),
        Precision(
            "float8_e5m2", f"{_E5M2}; infinite from 61440 on",
            1, 2, -14, 57344.0, "inf", arithmetic=False,
        ),
        Precision(
            "float8_e5m2_saturating", f"{_E5M2}; held at +-57344",
            1, 2, -14, 57344.0, "saturate", arithmetic=False,
        ),
        Precision(
            "int8", "round(x / scale) in -127..127, one scale for each column: its largest |x| / 127",
            1, scale="tensor", arithmetic=False,
        ),
        Precision(
            "int8_per_sequence", "round(x / scale) in -127..127, one scale for each column and sequence",
            1, scale="sequence", arithmetic=False,
        ),
    )
}  # fmt: skip
"""Every format by name."""
