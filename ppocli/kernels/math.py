"""Formulas for the kernels: exp, exp(x) - 1 - x and sums in double-double.

Each takes single numbers or vectors, and is put into the caller: it consists of selections only. Every fused
multiply-add is written as `fma` and no other is made, so that packed, scalar and FMA-less code give the same
bits. Per float64 in a loop over 256 of them, on an AVX-512 core at 3.7 GHz: `exp_and_expm1_minus_x` 0.85 ns,
`exp_and_expm1_minus_x_near_0` 0.44 ns, which is what its 13 multiplications and fused multiply-adds take
(np.exp alone: 1.0 ns).
"""

from __future__ import annotations

import numpy as np

from ppocli.kernels._jit import inline
from ppocli.kernels.vector import Vector, Words, bits, fma, from_bits, greatest, least, where

# ------------------------------------------------------------------------------------------ exponentials

HIGHEST = 710.0  # exp is infinite from 709.78271289338397 on
LOWEST = -746.0  # exp rounds to 0 from -745.1332191019412 on
LOG2_E = 1.4426950408889634
LN2_HIGH = 0.6931471805599453  # ln 2 rounded to float64
LN2_LOW = 2.3190468138462996e-17  # ln 2 - LN2_HIGH
# Adding it rounds to an integer k, and leaves k + 2 * 1023 in the low twelve bits.
ROUNDER = 1.5 * 2.0**52 + 2.0 * 1023.0
BIAS = np.uint64(1023)
MANTISSA = np.uint64(52)
ONE = np.uint64(1)

# q(r) = (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2: the polynomial of degree 10 with q(0) = 1/2 whose largest
# relative error is least (Remez exchange in 60 digits, 2.98e-18), coefficients rounded to float64: 3.8e-18.
Q0 = 0.5
Q1 = 0.1666666666666667
Q2 = 0.04166666666666668
Q3 = 0.008333333333325647
Q4 = 0.001388888888886875
Q5 = 0.00019841269876514256
Q6 = 2.4801587377155983e-05
Q7 = 2.755725327462832e-06
Q8 = 2.7557209222886115e-07
Q9 = 2.5106091172269322e-08
Q10 = 2.0941071258640772e-09


NEAR = 0.3465
"""Up to here, just below ln(2) / 2, no power of two is split off."""


@inline
def _polynomial(r: Vector) -> Vector:
    """Return q(r)."""
    q = fma(Q10, r, Q9)
    q = fma(q, r, Q8)
    q = fma(q, r, Q7)
    q = fma(q, r, Q6)
    q = fma(q, r, Q5)
    q = fma(q, r, Q4)
    q = fma(q, r, Q3)
    q = fma(q, r, Q2)
    q = fma(q, r, Q1)
    return fma(q, r, Q0)


@inline
def _reduced(x: Vector) -> tuple[Words, Vector, Vector, Vector]:
    """Return a word w, head, tail and term: exp(x) = 2^k (head + tail + term), term = r^2 q(r).

    |r| <= ln(2) / 2. x - k LN2_HIGH is exact (a multiple of 2^-54 below 0.5 where k is not 0), and so is
    1 + that, as head and the first part of tail: only r, tail and term are rounded. The low twelve bits of w
    are k + 2 * 1023.
    """
    shifted = fma(x, LOG2_E, ROUNDER)
    k = shifted - ROUNDER
    r_high = fma(k, -LN2_HIGH, x)
    r = fma(k, -LN2_LOW, r_high)
    head = 1.0 + r_high
    tail = fma(k, -LN2_LOW, r_high - (head - 1.0))
    return bits(shifted), head, tail, r * r * _polynomial(r)


@inline
def _scaled(word: Words, value: Vector) -> Vector:
    """Return 2^k * value in two exact steps, the last of which may overflow or round to a subnormal."""
    half = word >> ONE
    return value * from_bits(half << MANTISSA) * from_bits((word - half) << MANTISSA)


@inline
def exp(x: Vector) -> Vector:
    """Return exp(x).

    Within 0.8 ulp of the exact value for every float64 (0.65 where the result is not subnormal); exactly 1
    at 0, inf above 709.782712893384 and at inf, 0 below -745.1332191019411 and at -inf, NaN at NaN.
    """
    word, head, tail, term = _reduced(greatest(LOWEST, least(HIGHEST, x)))
    return _scaled(word, head + (term + tail))


@inline
def exp_and_expm1_minus_x(x: Vector) -> tuple[Vector, Vector]:
    """Return `exp(x)` and `expm1_minus_x(x)`, the same bits as apart, for the price of the second."""
    below = least(HIGHEST, x)
    word, head, tail, term = _reduced(greatest(LOWEST, below))
    y = _scaled(word, head + (term + tail))
    # 2^k head - 1 - x is 0 where k is 0 and nearly exact up to |x| = 1: nothing cancels but given numbers,
    # and the polynomial, which is added last, keeps its relative error.
    power = from_bits((word - BIAS) << MANTISSA)
    near = fma(power, term, fma(power, tail, fma(power, head, -1.0) - x))
    far = y - 1.0 - below
    return y, where(abs(x) > 40.0, far, near)


@inline
def exp_and_expm1_minus_x_near_0(x: Vector) -> tuple[Vector, Vector]:
    """Return the same bits where |x| <= `NEAR`: k is 0 there, and the work half."""
    term = x * x * _polynomial(x)
    head = 1.0 + x
    return head + (term + (x - (head - 1.0))), term


@inline
def exp_in_the_middle(x: Vector) -> Vector:
    """Return the bits of `exp` where |x| <= 40: 2^k is one factor there, and nothing overflows."""
    word, head, tail, term = _reduced(x)
    return (head + (term + tail)) * from_bits((word - BIAS) << MANTISSA)


@inline
def exp_and_expm1_minus_x_in_the_middle(x: Vector) -> tuple[Vector, Vector]:
    """Return the bits of `exp_and_expm1_minus_x` where |x| <= 40."""
    word, head, tail, term = _reduced(x)
    power = from_bits((word - BIAS) << MANTISSA)
    k3 = fma(power, term, fma(power, tail, fma(power, head, -1.0) - x))
    return (head + (term + tail)) * power, k3


@inline
def expm1_minus_x(x: Vector) -> Vector:
    """Return exp(x) - 1 - x, which is x^2 / 2 + x^3 / 6 + ...

    Within 4 ulp of the exact value for every finite x (largest error seen: 3.0, near -0.8); never negative;
    exactly 0 at 0 and where x^2 / 2 underflows; inf at inf, at -inf and where exp overflows; NaN at NaN.
    """
    return exp_and_expm1_minus_x(x)[1]


# ------------------------------------------------------------------------------------------ double-double


@inline
def two_sum(a: Vector, b: Vector) -> tuple[Vector, Vector]:
    """Return s = a + b rounded and e with s + e = a + b exactly; e is 0 where s is not finite."""
    s = a + b
    from_b = s - a
    e = (a - (s - from_b)) + (b - from_b)
    return s, where(abs(s) < np.inf, e, 0.0)


@inline
def dd_add(hi: Vector, lo: Vector, x_hi: Vector, x_lo: Vector) -> tuple[Vector, Vector]:
    """Return the sum of two double-double numbers as (hi, lo), hi being hi + lo rounded.

    Parameters
    ----------
    hi, lo, x_hi, x_lo : float64
        Two unevaluated sums with |lo| <= ulp(hi) / 2; a plain float64 is (x, 0).

    Returns
    -------
    tuple of float64
        Relative error at most 3 * 2^-106 + 13 * 2^-159 (Joldes, Muller and Popescu 2017, algorithm 6).
        Where the sum is infinite or NaN, (sum, 0).
    """
    s, s_low = two_sum(hi, x_hi)
    t, t_low = two_sum(lo, x_lo)
    c = s_low + t
    v = s + c
    w = t_low + (c - (v - s))
    total = where(abs(v) < np.inf, v + w, v)
    return total, where(abs(total) < np.inf, w - (total - v), 0.0)
