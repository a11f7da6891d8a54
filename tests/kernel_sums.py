"""What the block kernels should write, token by token with exact terms; shares no code with the package."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import mpmath


@dataclass
class Loss:
    """Parameters of the loss; what is off is infinite."""

    low: float = 0.8
    high: float = 1.2
    dual: float = math.inf
    delta: float = math.inf
    clamp: float = math.inf
    shift: float = 0.0
    scale: float = 1.0
    value_clip: float = math.inf


@dataclass
class Sums:
    """Terms by name, whole numbers as 0 and 1."""

    terms: dict[str, list[Fraction]] = field(default_factory=dict)

    def add(self, **terms: Fraction | float | bool) -> None:
        for name, term in terms.items():
            self.terms.setdefault(name, []).append(Fraction(term))

    def total(self, name: str) -> Fraction:
        return sum(self.terms.get(name, []), Fraction(0))

    def size(self, name: str) -> Fraction:
        return sum(map(abs, self.terms.get(name, [])), Fraction(0))


def fraction(x: Any) -> Fraction:
    """A number of mpmath as a fraction."""
    sign, mantissa, exponent, _ = x._mpf_
    value = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -value if sign else value


def exp(x: float) -> Fraction:
    """exp(x) to 60 digits."""
    with mpmath.workdps(60):
        return fraction(mpmath.exp(mpmath.mpf(x)))


def expm1_minus_x(x: float) -> Fraction:
    """exp(x) - 1 - x to 40 digits and more."""
    with mpmath.workdps(60):
        x = mpmath.mpf(x)
        if abs(x) > 1e-3:
            return fraction(mpmath.exp(x) - 1 - x)
        return fraction(mpmath.fsum(x**k / mpmath.factorial(k) for k in range(2, 24)))


def base(new: list[float], old: list[float], adv: list[float], p: Loss) -> Sums:
    """Terms of the three main columns at tokens that all count."""
    sums = Sums()
    low, high = Fraction(p.low), Fraction(p.high)
    bottom, top = (exp(-p.clamp), exp(p.clamp)) if p.clamp < math.inf else (None, None)
    for lp, olp, a in zip(new, old, adv, strict=True):
        x = lp - olp
        raw = exp(x)
        ratio = bottom if x < -p.clamp else top if x > p.clamp else raw
        sums.add(
            log_ratio=x, log_ratio_sq=Fraction(x) ** 2, log_ratio_abs=abs(x), log_ratio_zero=x == 0,
            kl_k3=expm1_minus_x(x), ratio=ratio, raw_ratio=raw, raw_ratio_sq=raw**2, below=ratio < low,
            above=ratio > high, adv=a, adv_zero=a == 0, log_prob=lp, positive=(lp > 0) + (olp > 0),
        )  # fmt: skip
        _policy(sums, x, ratio, (a - p.shift) / p.scale, p)
    return sums


def _policy(sums: Sums, x: float, ratio: Fraction, adv: float, p: Loss) -> None:
    """Terms of the objective, for an advantage as it is used."""
    a, low, high = Fraction(adv), Fraction(p.low), Fraction(p.high)
    held = min(ratio, Fraction(p.delta)) if p.delta < math.inf else ratio
    surrogate = min(held * a, min(max(ratio, low), high) * a)
    by_dual = a < 0 and p.dual < math.inf and Fraction(p.dual) * a > surrogate
    by_delta = a < 0 and p.delta < math.inf and ratio > Fraction(p.delta)
    active_low, active_high = a < 0 and ratio < low, a > 0 and ratio > high
    flat = active_low or active_high or by_dual or by_delta or abs(x) > p.clamp or a == 0
    sums.add(
        loss=-(Fraction(p.dual) * a if by_dual else surrogate), unclipped=-ratio * a, active_low=active_low,
        active_high=active_high, dual=by_dual, delta=by_delta, grad_abs=0 if flat else ratio * abs(a),
        grad_zero=flat,
    )  # fmt: skip


EXTRAS = (
    "values",
    "old_values",
    "returns",
    "entropy",
    "log_probs",
    "ref_log_probs",
    "rewards",
    "rollout_log_probs",
)


def extras(columns: dict[str, list[float]], p: Loss) -> Sums:
    """Terms of the optional columns at tokens that all count."""
    sums = Sums()
    for token in zip(*(columns[name] for name in EXTRAS), strict=True):
        value, old, target, entropy, new, ref, reward, rollout = token
        x = new - ref
        plain, moved = (Fraction(value) - Fraction(target)) ** 2, Fraction(value) - Fraction(old)
        clipped, outside = plain, False
        if p.value_clip < math.inf:
            clip = Fraction(p.value_clip)
            clipped = (Fraction(old) + min(max(moved, -clip), clip) - Fraction(target)) ** 2
            outside = abs(moved) > clip
        sums.add(
            value=max(plain, clipped), value_outside=outside, value_active=clipped > plain, ev_return=target,
            ev_error=target - value, ev_old_return=target, ev_old_error=target - old, reward=reward,
            entropy=entropy, ref_k1=x, ref_k2=Fraction(x) ** 2 / 2, ref_k3=expm1_minus_x(-x),
            rollout_log_prob=rollout, positive=ref > 0,
        )  # fmt: skip
        sums.add(**{"return": target})
    return sums
