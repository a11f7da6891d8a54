"""Means against exact arithmetic, on columns made to lose digits."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

import ppocli

BOUND = Fraction(1, 2**47)
SIZES = (1, 255, 256, 257, 2047, 2048, 2049, 20_000)


def metrics(**columns: np.ndarray) -> dict[str, Any]:
    return dict(ppocli.evaluate(**columns).metrics)


def holds(got: float, terms: list[Fraction]) -> None:
    """|got - mean| <= 2^-47 mean |term|, in exact arithmetic."""
    n = len(terms)
    assert abs(Fraction(got) - sum(terms) / n) <= BOUND * sum(map(abs, terms)) / n


def cancelling(n: int) -> np.ndarray:
    """Values of 1e12 that cancel in pairs, in random order, with small ones between."""
    rng = np.random.default_rng(n)
    big = rng.uniform(0.5e12, 1e12, n // 2)
    values = np.concatenate([big, -big, rng.normal(0, 1, n - 2 * (n // 2))]) + rng.normal(0, 1e-3, n)
    return rng.permutation(values)


@pytest.mark.parametrize("n", SIZES)
def test_sums_that_cancel(n: int) -> None:
    adv = cancelling(n)
    zero = np.zeros(n)
    got = metrics(log_probs=zero, old_log_probs=zero, advantages=adv)
    exact = [Fraction(x) for x in adv.tolist()]
    holds(got["adv_mean"], exact)
    holds(-got["policy_loss"], exact)


@pytest.mark.parametrize("n", SIZES)
def test_log_ratios_that_cancel(n: int) -> None:
    new = cancelling(n) * 1e-11
    old = np.random.default_rng(1).normal(0, 1, n)
    got = metrics(log_probs=new, old_log_probs=old, advantages=np.ones(n))
    d = (new - old).tolist()  # exact from here on means: over the float64 differences
    holds(got["approx_kl_k1"], [-Fraction(x) for x in d])
    holds(got["log_ratio_abs_mean"], [abs(Fraction(x)) for x in d])
    holds(got["approx_kl_k2"], [Fraction(x) ** 2 / 2 for x in d])


def exact_exp(x: float) -> Fraction:
    return as_fraction(mpmath.exp(mpmath.mpf(x)))


def as_fraction(x: Any) -> Fraction:
    sign, mantissa, exponent, _ = x._mpf_
    value = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -value if sign else value


@pytest.mark.parametrize("spread", [1e-9, 1e-4, 0.2, 5.0, 100.0])
def test_exponentials(spread: float) -> None:
    rng = np.random.default_rng(5)
    n = 3000
    log_ratio = rng.normal(0.0, spread, n)
    adv = rng.normal(0.0, 1.0, n)
    got = metrics(log_probs=log_ratio, old_log_probs=np.zeros(n), advantages=adv)
    low, high = Fraction(1.0 - 0.2), Fraction(1.0 + 0.2)
    with mpmath.workdps(60):
        ratios = [exact_exp(x) for x in log_ratio.tolist()]
        k3 = [as_fraction(mpmath.expm1(mpmath.mpf(x)) - mpmath.mpf(x)) for x in log_ratio.tolist()]
    advs = [Fraction(x) for x in adv.tolist()]
    losses = [-min(r * a, min(max(r, low), high) * a) for r, a in zip(ratios, advs, strict=True)]
    holds(got["ratio_mean"], ratios)
    holds(got["approx_kl_k3"], k3)
    holds(got["policy_loss"], losses)
    holds(got["unclipped_loss"], [-r * a for r, a in zip(ratios, advs, strict=True)])


@pytest.mark.parametrize("value", [0.1, -1e-3, 1e15 + 0.5, 1 / 3])
@pytest.mark.parametrize("n", [3, 2049, 10_007])
def test_a_constant_column_has_its_mean_and_no_deviation(value: float, n: int) -> None:
    column = np.full(n, value)
    zero = np.zeros(n)
    got = metrics(
        log_probs=zero, old_log_probs=zero, advantages=column, returns=column, values=zero, rewards=column
    )
    for name in ("adv", "return", "reward"):
        assert got[f"{name}_mean"] == value, name
        assert got[f"{name}_std"] == 0.0, name
    assert got["explained_variance"] is None


def test_a_small_deviation_beside_a_large_mean() -> None:
    rng = np.random.default_rng(2)
    n = 20_000
    column = 1e8 + rng.normal(0.0, 1e-3, n)
    zero = np.zeros(n)
    got = metrics(log_probs=zero, old_log_probs=zero, advantages=column)
    exact = [Fraction(x) for x in column.tolist()]
    mean = sum(exact) / n
    deviation = math.sqrt(sum((x - mean) ** 2 for x in exact) / n)
    # Means of 1e8 are rounded to 1.5e-8; mean(x^2) - mean(x)^2 would not have a single right digit.
    assert got["adv_std"] == pytest.approx(deviation, rel=1e-6)


def test_k3_near_zero_is_right_to_six_digits() -> None:
    n = 1000
    log_ratio = np.where(np.arange(n) % 2 == 0, 1e-9, -1e-9)
    got = metrics(log_probs=log_ratio, old_log_probs=np.zeros(n), advantages=np.ones(n))
    assert got["approx_kl_k3"] == pytest.approx(0.5e-18, rel=1e-6)
