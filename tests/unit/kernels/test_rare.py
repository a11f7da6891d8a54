"""Counts at the exact thresholds, and the weights of the effective sample size."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from kernel_sums import Loss, base, exp

from ppocli.core.partials import RARE_SUMS
from ppocli.kernels import rare

# ln of the largest finite value, and of half the smallest subnormal one, of each format.
LIMITS = {
    "float16": (math.log(65504.0), math.log(2.0**-25)),
    "bfloat16": (math.log(255 / 128 * 2.0**127), math.log(2.0**-134)),
    "float32": (math.log((2 - 2.0**-23) * 2.0**127), math.log(2.0**-150)),
    "float64": (709.782712893384, -745.1332191019412),
    "float8_e4m3fn": (math.log(448.0), math.log(2.0**-10)),
    "float8_e5m2": (math.log(57344.0), math.log(2.0**-17)),
}


def count(x: list[float], clamp: float = math.inf) -> dict[str, float]:
    """Count in one block."""
    sums = np.full((1, len(RARE_SUMS)), np.nan)
    rare.count_rare(np.array(x), np.array([0, len(x)]), np.array([0]), clamp, sums)
    return dict(zip(RARE_SUMS, sums[0].tolist(), strict=True))


@pytest.mark.parametrize("name", LIMITS)
def test_a_ratio_overflows_and_underflows_strictly_beyond_the_limit(name: str) -> None:
    high, low = LIMITS[name]
    for edge, kind, step in ((high, "overflow", math.inf), (low, "underflow", -math.inf)):
        further = edge
        for _ in range(4):
            further = math.nextafter(further, step)
        nearer = edge
        for _ in range(4):
            nearer = math.nextafter(nearer, -step)
        counts = count([nearer, further, further, 0.0])
        assert counts[f"{kind}_{name}"] == 2, (edge, kind)


def test_a_limit_itself_does_not_overflow() -> None:
    for edge in (6.104793232414985, 11.089866488461016):  # ln 448, ln 65504, to the last bit
        assert count([edge])["overflow_float8_e4m3fn"] == (edge > 7)
        assert count([edge])["overflow_float16"] == 0
        assert count([math.nextafter(edge, 20.0)])["overflow_float8_e4m3fn"] == 1


def test_bounds_and_clamps() -> None:
    up, down = math.nextafter(20.0, 30.0), math.nextafter(20.0, 10.0)
    x = [10.0, -10.0, 20.0, -20.0, up, -up, down, math.nextafter(10.0, 0.0), 5.0, -5.0, 0.0]
    counts = count(x, clamp=5.0)
    assert counts["on_bound"] == 4
    assert counts["beyond_20"] == 2
    assert counts["clamped"] == 8
    assert count(x)["clamped"] == 0


@pytest.mark.parametrize("n", [1, 7, 8, 9, 1000])
def test_weights_of_the_sample_size(n: int) -> None:
    x = np.random.default_rng(n).normal(0.0, 8.0, n)
    counts = count(x.tolist())
    ratios = [exp(v) for v in x.tolist()]
    assert counts["ess_1"] == pytest.approx(float(sum(ratios)), rel=1e-14)
    assert counts["ess_2"] == pytest.approx(float(sum(r * r for r in ratios)), rel=1e-14)
    assert counts["ess_big_1"] == counts["ess_big_2"] == 0.0


def test_big_weights_are_scaled_apart() -> None:
    x = [300.0, math.nextafter(300.0, 400.0), 709.0, 1e300, 1.0]
    counts = count(x[:3] + x[4:])
    with mpmath.workdps(40):
        scaled = [mpmath.exp(mpmath.mpf(v)) / mpmath.mpf(2) ** 600 for v in x[1:3]]
        small = [mpmath.exp(v) for v in (300, 1)]
        assert counts["ess_big_1"] == pytest.approx(float(sum(scaled)), rel=1e-13)
        assert counts["ess_big_2"] == pytest.approx(float(sum(s * s for s in scaled)), rel=1e-13)
        assert counts["ess_1"] == pytest.approx(float(sum(small)), rel=1e-14)
    assert count(x)["ess_big_1"] == math.inf
    assert count(x)["ess_1"] < math.inf


def test_blocks_keep_to_their_own_rows() -> None:
    sums = np.full((4, len(RARE_SUMS)), 7.0)
    x = np.array([25.0] * 3 + [-30.0] * 10)
    rare.count_rare(x, np.array([0, 3, 13]), np.array([2, 0]), math.inf, sums)
    beyond, under = RARE_SUMS.index("beyond_20"), RARE_SUMS.index("underflow_float16")
    assert sums[[2, 0], beyond].tolist() == [3.0, 10.0]
    assert sums[[2, 0], under].tolist() == [0.0, 10.0]
    assert (sums[[1, 3]] == 7.0).all()


@pytest.mark.parametrize(
    "p", [Loss(), Loss(dual=1.5, delta=1.8, clamp=0.5), Loss(shift=0.2, scale=3.0)], ids=str
)
def test_terms_of_single_tokens(p: Loss) -> None:
    rng = np.random.default_rng(9)
    x, adv = rng.normal(0.0, 0.7, 300), rng.normal(0.0, 1.0, 300)
    adv[::9] = p.shift
    parameters = np.array([p.low, p.high, p.dual, p.delta, p.clamp, p.shift, p.scale, math.inf])
    ratio, loss = np.empty(300), np.empty(300)
    rare.token_terms(x, adv, parameters, ratio, loss)
    expected = base(x.tolist(), [0.0] * 300, adv.tolist(), p).terms
    for got, name in ((ratio, "ratio"), (loss, "loss")):
        for value, exact in zip(got.tolist(), expected[name], strict=True):
            assert abs(Fraction(value) - exact) <= Fraction(2, 2**52) * abs(exact), name
