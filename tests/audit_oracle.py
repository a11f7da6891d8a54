"""The loss in narrow formats, token by token in exact arithmetic; shares no code with the package."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

INF, NAN = math.inf, math.nan

FORMATS: dict[str, tuple[int, int, float, float]] = {
    "float32": (23, -126, float(np.finfo(np.float32).max), INF),
    "tf32": (10, -126, (2.0 - 2.0**-10) * 2.0**127, INF),
    "bfloat16": (7, -126, 3.3895313892515355e38, INF),
    "float16": (10, -14, 65504.0, INF),
    "float8_e4m3fn": (3, -6, 448.0, NAN),
    "float8_e4m3fn_saturating": (3, -6, 448.0, 448.0),
    "float8_e5m2": (2, -14, 57344.0, INF),
    "float8_e5m2_saturating": (2, -14, 57344.0, 57344.0),
}
"""Mantissa bits, exponent of the smallest normal number, largest finite number, what stands beyond it."""


def nearest(x: float, name: str | None) -> float:
    """The nearest number of the format, ties to even; None leaves it as it is."""
    return x if name is None or x == 0.0 or math.isnan(x) else _nearest(x, name)


@functools.cache
def _nearest(x: float, name: str) -> float:
    bits, smallest, largest, beyond = FORMATS[name]
    if math.isinf(x):
        return math.copysign(beyond, x)
    size = Fraction(abs(x))
    exponent = max(math.frexp(abs(x))[1] - 1, smallest)
    step = Fraction(2) ** (exponent - bits)
    size = round(size / step) * step  # round() of a fraction takes ties to even
    return math.copysign(beyond if size > Fraction(largest) else float(size), x)


@functools.cache
def exp(x: float) -> float:
    """exp in float64, rounded once."""
    if math.isnan(x):
        return x
    with mpmath.workprec(120):
        return float(mpmath.exp(x)) if x < 709.79 else INF


@functools.cache
def k3(x: float) -> float:
    """exp(x) - 1 - x, rounded once."""
    if not math.isfinite(x):
        return INF if not math.isnan(x) else x
    with mpmath.workprec(400):
        return float(mpmath.exp(x) - 1 - mpmath.mpf(x)) if x < 709.79 else INF


def times(x: float, y: float) -> float:
    """The product; infinite where it overflows."""
    return float(np.float64(x) * np.float64(y))


@dataclass(frozen=True)
class Bounds:
    """What the loss is bounded by; off is infinite."""

    low: float = 0.8
    high: float = 1.2
    dual: float = INF
    delta: float = INF
    clamp: float = INF


@dataclass(frozen=True)
class Token:
    """One token's values in a format."""

    log_ratio: float
    ratio: float
    loss: float
    gradient: float
    side: int
    k2: float
    k3: float


def in_float64(new: float, old: float, adv: float, b: Bounds) -> Token:
    """Nothing is rounded but to float64; advantage 0 gives loss 0 whatever the ratio."""
    x = new - old
    ratio = exp(max(min(x, b.clamp), -b.clamp)) if not math.isnan(x) else x
    if adv == 0.0:
        return Token(x, ratio, 0.0, 0.0, 0, 0.5 * x * x, k3(x))
    if math.isnan(ratio):
        return Token(x, ratio, NAN, NAN, 0, NAN, NAN)
    side = -1 if adv < 0.0 and ratio < b.low else 1 if adv > 0.0 and ratio > b.high else 0
    held, clipped = min(ratio, b.delta), min(max(ratio, b.low), b.high)
    surrogate = min(times(held, adv), times(clipped, adv))
    flat = side != 0 or abs(x) > b.clamp or (adv < 0.0 and ratio > b.delta)
    if adv < 0.0 and surrogate < times(b.dual, adv):
        surrogate, flat = times(b.dual, adv), True
    gradient = 0.0 if flat else -times(ratio, adv)
    return Token(x, ratio, -surrogate, gradient, side, 0.5 * x * x, k3(x))


def in_format(new: float, old: float, adv: float, b: Bounds, name: str) -> Token:
    """Every step rounded to a format, as a trainer computes it: max of two losses, each a product."""

    def r(x: float) -> float:
        return nearest(x, name)

    low, high, dual, delta, clamp = (r(x) for x in (b.low, b.high, b.dual, b.delta, b.clamp))
    x, cost = r(float(np.float64(new) - np.float64(old))), -r(adv)
    raw = r(exp(x))
    ratio = raw
    if clamp < INF and abs(x) > clamp:
        ratio = r(exp(math.copysign(b.clamp, x)))
    free = r(times(ratio, cost))
    held = free if delta == INF or math.isnan(ratio) else r(times(min(ratio, delta), cost))
    clipped = r(times(min(max(ratio, low), high), cost)) if not math.isnan(ratio) else NAN
    active = clipped > held
    loss = clipped if active else held
    flat = active or abs(x) > clamp or (cost > 0.0 and ratio > delta)
    bound = r(times(dual, cost)) if dual < INF else INF
    if cost > 0.0 and bound < loss:
        loss, flat = bound, True
    side = (1 if ratio > high else -1) if active else 0
    k2 = 0.5 * r(times(x, x))  # halved in the mean
    return Token(x, ratio, loss, 0.0 if flat else free, side, k2, r(r(raw - 1.0) - x))


def audit(columns: tuple[Any, Any, Any], storage: str | None, steps: str | None, b: Bounds) -> list[Token]:
    """Every token with its log-probs stored in one format and its steps rounded to another."""
    out = []
    for new, old, adv in zip(*(map(float, column) for column in columns), strict=True):
        stored = nearest(new, storage), nearest(old, storage)
        if steps is None:
            with np.errstate(invalid="ignore"):
                out.append(in_float64(*stored, adv, b))
        else:
            with np.errstate(all="ignore"):
                out.append(in_format(*stored, adv, b, steps))
    return out


def counts(reference: list[Token], audited: list[Token], low: float, high: float) -> dict[str, int]:
    """What became of the tokens."""
    pairs = list(zip(reference, audited, strict=True))
    return {
        "below": sum(t.ratio < low for t in audited),
        "above": sum(t.ratio > high for t in audited),
        "active": sum(t.side != 0 for t in audited),
        "flips_on": sum(t.side != 0 and r.side == 0 for r, t in pairs),
        "flips_off": sum(t.side == 0 and r.side != 0 for r, t in pairs),
        "overflow": sum(math.isfinite(r.ratio) and not math.isfinite(t.ratio) for r, t in pairs),
        "underflow": sum(r.ratio > 0 and t.ratio == 0 for r, t in pairs),
        "zero": sum(t.log_ratio == 0 for t in audited),
        "rounded_to_zero": sum(t.log_ratio == 0 and r.log_ratio != 0 for r, t in pairs),
        "vanished": sum(r.gradient != 0 and t.gradient == 0 for r, t in pairs),
        "appeared": sum(r.gradient == 0 and t.gradient != 0 for r, t in pairs),
        "reversed": sum(r.gradient * t.gradient < 0 for r, t in pairs),
    }
