"""Limits of number formats, as bounds on the log-ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A floating-point format.

    Attributes
    ----------
    max_finite : float
        Largest finite value.
    min_subnormal : float
        Smallest positive value.
    """

    name: str
    max_finite: float
    min_subnormal: float

    @property
    def overflow_log(self) -> float:
        """ln(max_finite): exp(log_ratio) overflows the format where log_ratio is strictly above this."""
        return math.log(self.max_finite)

    @property
    def underflow_log(self) -> float:
        """ln(min_subnormal / 2): exp(log_ratio) rounds to zero where log_ratio is strictly below this."""
        return math.log(self.min_subnormal) - math.log(2.0)


FORMATS: dict[str, NumberFormat] = {
    one.name: one
    for one in (
        NumberFormat("float16", 65504.0, 2.0**-24),
        NumberFormat("bfloat16", (2.0 - 2.0**-7) * 2.0**127, 2.0**-133),
        NumberFormat("float32", (2.0 - 2.0**-23) * 2.0**127, 2.0**-149),
        NumberFormat("float64", (2.0 - 2.0**-52) * 2.0**1023, 2.0**-1074),
        NumberFormat("float8_e4m3fn", 448.0, 2.0**-9),
        NumberFormat("float8_e5m2", 57344.0, 2.0**-16),
    )
}
"""The formats whose overflow and underflow are counted."""

PLACEHOLDERS = (
    *(-1e30, -1e10, -1e9, -1e8, -1e6, -1e5, -1e4, -9999.0, -1000.0, -999.0, -100.0),
    *(-FORMATS[name].max_finite for name in ("float16", "bfloat16", "float32")),
)
"""Values that frameworks and engines write where there is no log-prob; at the end `torch.finfo(...).min`."""
