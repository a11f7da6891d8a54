"""Rounding to narrower number formats, bit for bit: nearest, ties to even, subnormals, overflow.

Nothing here may be fused or reordered: rounding is done by an addition whose error is the point of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ppocli.kernels._jit import inline, jit
from ppocli.kernels.vector import Vector, bits, from_bits, greatest, least, narrowed, where

if TYPE_CHECKING:
    from ppocli.kernels.layout import Floats

Rule: TypeAlias = tuple[float, float, float, float]
"""Factor, smallest power, limit and value beyond it: `ppocli.core.precision.Precision.rule`."""

EXPONENT = np.uint64(0x7FF0000000000000)
SIGN = np.uint64(0x8000000000000000)
WHOLE = 1.5 * 2.0**52
"""Adding and subtracting it rounds to an integer, ties to even."""
LARGEST_INT8 = 127.0


@inline
def rounded(x: Vector, rule: Rule) -> Vector:
    """Return the value of a floating-point format nearest to x.

    With 2^e <= |x| < 2^(e + 1) the format's numbers around x are multiples of a step q = 2^(e - m), m being
    its mantissa bits, but never of a smaller one than that of its smallest normal number. 1.5 * 2^52 q, added
    and subtracted, rounds to a multiple of q, ties to even, as the sum lies between 2^52 q and 2^53 q.

    Parameters
    ----------
    x : float64
        Any value.
    rule : (factor, smallest power, limit, beyond)
        1.5 * 2^(52 - m) for at most 46 mantissa bits; the smallest normal number; the smallest number above
        the largest finite one, did the exponent go on; what stands for anything from there on: inf, NaN, or
        the largest finite number.

    Returns
    -------
    float64
        The sign of x, also where it is 0 or infinite; NaN at NaN.
    """
    word = bits(x)
    sign = word & SIGN
    whole = greatest(from_bits(word & EXPONENT), rule[1]) * rule[0]
    near = from_bits(bits((x + whole) - whole) | sign)
    beyond = where(abs(x) > 0.0, from_bits(bits(rule[3]) | sign), x)  # x: NaN, as 0 is never beyond
    return where(abs(near) < rule[2], near, beyond)


@inline
def rounded_step(x: Vector, factor: float, power: float, limit: float) -> Vector:
    """Return the same as `rounded` for formats that overflow to infinity; 0 may have either sign.

    Four operations fewer: the sums and comparisons of a loss do not see the sign of a zero.
    """
    whole = greatest(from_bits(bits(x) & EXPONENT), power) * factor
    near = (x + whole) - whole
    return where(abs(near) < limit, near, x * np.inf)


@inline
def rounded_within(x: Vector, factor: float, power: float) -> Vector:
    """Return the same as `rounded_step` where |x| is at most half the format's limit."""
    whole = greatest(from_bits(bits(x) & EXPONENT), power) * factor
    return (x + whole) - whole


@inline
def scaled(x: Vector, scale: Vector) -> Vector:
    """Return what is left of x in symmetric int8: clip(round(x / scale), -127, 127) * scale.

    As quantisers compute it, in float32: x, the quotient and the product are rounded to float32.

    Parameters
    ----------
    x : float64
        Finite.
    scale : float64
        A float32 value, at least 0: the largest |x|, divided by 127 in float32. 0: every x is 0.
    """
    quotient = narrowed(narrowed(x) / scale)
    number = least(LARGEST_INT8, greatest(-LARGEST_INT8, (quotient + WHOLE) - WHOLE))
    return where(scale > 0.0, narrowed(number * scale), 0.0)


@jit
def _round_all(x: Floats, factor: float, power: float, limit: float, beyond: float, out: Floats) -> None:
    """Round every element."""
    for i in range(x.size):
        out[i] = rounded(x[i], (factor, power, limit, beyond))


def round_to(values: Floats, rule: Rule) -> Floats:
    """Return float64 values rounded to a format; of any shape, as in `rounded`."""
    flat = np.ascontiguousarray(values, dtype=np.float64).ravel()
    out = np.empty_like(flat)
    _round_all(flat, *rule, out)
    return out.reshape(np.shape(values))


def round_one(value: float, rule: Rule) -> float:
    """Return one number rounded to a format."""
    return float(round_to(np.array([value]), rule)[0])
