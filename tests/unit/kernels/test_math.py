"""The formulas against exact values: mpmath at 200 bits, fractions for sums."""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from ppocli.kernels import math as km
from ppocli.kernels._jit import jit
from ppocli.kernels.memory import load, row_address, store

Floats = NDArray[np.float64]

INF = math.inf
MAX = sys.float_info.max
TINY = 5e-324


@jit
def exp_loop(x: Floats, out: Floats) -> None:
    for i in range(x.size):
        out[i] = km.exp(x[i])


@jit
def expm1_minus_x_loop(x: Floats, out: Floats) -> None:
    for i in range(x.size):
        out[i] = km.expm1_minus_x(x[i])


@jit
def both_loop(x: Floats, out: Floats, out_2: Floats) -> None:
    for i in range(x.size):
        out[i], out_2[i] = km.exp_and_expm1_minus_x(x[i])


@jit
def vector_loop(x: Floats, out: Floats, out_2: Floats) -> None:
    for i in range(0, x.size, 8):
        first, second = km.exp_and_expm1_minus_x(load(row_address(x, 0), i))
        store(row_address(out, 0), i, first)
        store(row_address(out_2, 0), i, second)


@jit
def middle_loop(x: Floats, out: Floats, out_2: Floats, alone: Floats) -> None:
    for i in range(0, x.size, 8):
        first, second = km.exp_and_expm1_minus_x_in_the_middle(load(row_address(x, 0), i))
        store(row_address(out, 0), i, first)
        store(row_address(out_2, 0), i, second)
        store(row_address(alone, 0), i, km.exp_in_the_middle(load(row_address(x, 0), i)))


@jit
def near_loop(x: Floats, out: Floats, out_2: Floats) -> None:
    for i in range(0, x.size, 8):
        first, second = km.exp_and_expm1_minus_x_near_0(load(row_address(x, 0), i))
        store(row_address(out, 0), i, first)
        store(row_address(out_2, 0), i, second)


@jit
def call_two_sum(a: float, b: float) -> tuple[float, float]:
    return km.two_sum(a, b)


@jit
def call_dd_add(hi: float, lo: float, x_hi: float, x_lo: float) -> tuple[float, float]:
    return km.dd_add(hi, lo, x_hi, x_lo)


def exp(*x: float) -> list[float]:
    out = np.empty(len(x))
    exp_loop(np.array(x), out)
    return out.tolist()


def expm1_minus_x(*x: float) -> list[float]:
    out = np.empty(len(x))
    expm1_minus_x_loop(np.array(x), out)
    return out.tolist()


def samples(scale: str, n: int = 3000) -> Floats:
    rng = np.random.default_rng(sum(scale.encode()))
    log2 = math.log(2.0)
    signs = rng.choice([-1.0, 1.0], n)
    return {
        "1e-300..1": signs * 10.0 ** rng.uniform(-300, 0, n),
        "1e-12..1": signs * 10.0 ** rng.uniform(-12, 0, n),
        "unreduced": rng.uniform(-0.3466, 0.3466, n),
        "around 1": rng.uniform(-1.1, 1.1, n),
        "around 40": signs * rng.uniform(38, 42, n),
        "wide": rng.uniform(-708, 709, n),
        "reduction ends": (rng.integers(-1022, 1023, n) + 0.5) * log2 * (1 + rng.normal(0, 1e-15, n)),
        "multiples of ln 2": rng.integers(-1022, 1023, n) * log2 * (1 + rng.normal(0, 1e-15, n)),
        "top": rng.uniform(709, 709.782712893384, n),
        "subnormal": rng.uniform(-745.13, -708.4, n),
    }[scale]


SCALES = (
    "1e-300..1",
    "1e-12..1",
    "unreduced",
    "around 1",
    "around 40",
    "wide",
    "reduction ends",
    "multiples of ln 2",
    "top",
    "subnormal",
)


def exact_exp(x: float) -> mpmath.mpf:
    return mpmath.exp(mpmath.mpf(x))


def exact_expm1_minus_x(x: float) -> mpmath.mpf:
    """x^2 / 2! + x^3 / 3! + ...: the difference itself would need 2,000 bits at 1e-300."""
    x = mpmath.mpf(x)
    if abs(x) > 1e-3:
        return mpmath.exp(x) - 1 - x
    return mpmath.fsum(x**k / mpmath.factorial(k) for k in range(2, 20))


def worst_ulp(x: Floats, computed: list[float], exact: Callable[[float], mpmath.mpf]) -> float:
    worst = 0.0
    with mpmath.workprec(200):
        for argument, value in zip(x.tolist(), computed, strict=True):
            right = exact(argument)
            ulp = mpmath.mpf(2) ** max(mpmath.frexp(right)[1] - 53, -1074)
            worst = max(worst, float(abs(mpmath.mpf(value) - right) / ulp))
    return worst


@pytest.mark.parametrize("scale", SCALES)
def test_exp_is_within_its_bound(scale: str) -> None:
    x = samples(scale)
    assert worst_ulp(x, exp(*x), exact_exp) <= (0.8 if scale == "subnormal" else 0.65)


@pytest.mark.parametrize("scale", SCALES)
def test_expm1_minus_x_is_within_its_bound(scale: str) -> None:
    x = samples(scale)
    values = expm1_minus_x(*x)
    assert min(values) >= 0.0
    assert worst_ulp(x, values, exact_expm1_minus_x) <= 4.0


def test_expm1_minus_x_where_its_square_is_subnormal_or_underflows() -> None:
    # x^2 / 2 in units of 2^-1074, rounded: 2^-537 gives 1/2, a tie that goes to the even 0.
    assert expm1_minus_x(2.0**-537, 2.0**-536, -(2.0**-535), 1e-200, TINY) == [
        0.0,
        2 * TINY,
        8 * TINY,
        0.0,
        0.0,
    ]
    x = np.random.default_rng(5).uniform(1e-161, 1e-153, 1000)
    assert worst_ulp(x, expm1_minus_x(*x), exact_expm1_minus_x) <= 1.0


def test_exp_at_special_arguments() -> None:
    assert exp(0.0, -0.0, TINY, -TINY, INF, -INF, 1e308, -1e308) == [1.0, 1.0, 1.0, 1.0, INF, 0.0, INF, 0.0]
    assert math.isnan(exp(math.nan)[0])
    assert math.isnan(exp(-math.nan)[0])


def test_expm1_minus_x_at_special_arguments() -> None:
    assert expm1_minus_x(0.0, -0.0, INF, -INF, 1e308, -1e308) == [0.0, 0.0, INF, INF, INF, 1e308]
    assert [math.copysign(1.0, v) for v in expm1_minus_x(0.0, -0.0)] == [1.0, 1.0]
    assert math.isnan(expm1_minus_x(math.nan)[0])


def test_the_ends_of_the_range() -> None:
    # 709.78271289338397 is the last argument whose exp is below the largest float64; exp(-745.1332191019411)
    # is just above half the smallest subnormal, and the next float64 below it gives just less.
    last, first = 709.782712893384, -745.1332191019411
    assert MAX * (1 - 1e-12) < exp(last)[0] < MAX
    assert exp(math.nextafter(last, INF), math.nextafter(710.0, INF)) == [INF, INF]
    assert exp(first, math.nextafter(first, -INF), -745.9, -746.1) == [TINY, 0.0, 0.0, 0.0]
    assert expm1_minus_x(math.nextafter(last, INF), first) == [INF, 744.1332191019411]
    assert expm1_minus_x(last) == exp(last)


def test_exp_at_known_values() -> None:
    # Euler's number and its powers, to the last bit (their decimal expansions are public).
    assert exp(1.0, -1.0, 0.5, 2.0, 10.0) == [
        2.718281828459045235360287,
        0.367879441171442321595523,
        1.648721270700128146848650,
        7.389056098930650227230427,
        22026.46579480671651695790,
    ]


def test_pair_gives_the_same_bits_as_apart() -> None:
    x = np.concatenate(
        [samples(scale, 500) for scale in SCALES] + [np.array([0.0, INF, -INF, np.nan, 800.0])]
    )
    first, second, e, m = np.empty_like(x), np.empty_like(x), np.empty_like(x), np.empty_like(x)
    both_loop(x, first, second)
    exp_loop(x, e)
    expm1_minus_x_loop(x, m)
    assert first.tobytes() == e.tobytes()
    assert second.tobytes() == m.tobytes()


def test_bits_do_not_depend_on_the_position_in_a_packed_loop() -> None:
    # Vectorised body and scalar remainder: every argument at every offset.
    x = samples("wide", 67)
    out, shifted = np.empty_like(x), np.empty_like(x)
    exp_loop(x, out)
    for offset in range(1, 67):
        exp_loop(x[offset:].copy(), shifted[offset:])
        assert shifted[offset:].tobytes() == out[offset:].tobytes()


def test_vectors_and_numbers_give_the_same_bits() -> None:
    x = np.concatenate(
        [samples(scale, 400) for scale in SCALES]
        + [np.array([0.0, -0.0, INF, -INF, np.nan, 800.0, -800.0, TINY])]
    )
    out, out_2, one, one_2 = np.empty((4, x.size))
    vector_loop(x, out, out_2)
    both_loop(x, one, one_2)
    assert out.tobytes() == one.tobytes()
    assert out_2.tobytes() == one_2.tobytes()


def test_near_0_the_shorter_way_gives_the_same_bits() -> None:
    x = np.concatenate(
        [
            np.random.default_rng(3).uniform(-km.NEAR, km.NEAR, 8000),
            np.array([km.NEAR, -km.NEAR, 0.0, -0.0, TINY, -TINY, 1e-160, -1e-9]),
        ]
    )
    out, out_2, one, one_2 = np.empty((4, x.size))
    near_loop(x, out, out_2)
    both_loop(x, one, one_2)
    assert out.tobytes() == one.tobytes()
    assert out_2.tobytes() == one_2.tobytes()


def test_in_the_middle_the_shorter_way_gives_the_same_bits() -> None:
    rng = np.random.default_rng(4)
    some = [40.0, -40.0, 0.0, -0.0, TINY, -TINY, 1e-160, -1e-9]
    x = np.concatenate([rng.uniform(-40.0, 40.0, 8000), rng.normal(0.0, 0.3, 8000), np.array(some)])
    out, out_2, alone, one, one_2 = np.empty((5, x.size))
    middle_loop(x, out, out_2, alone)
    both_loop(x, one, one_2)
    assert out.tobytes() == alone.tobytes() == one.tobytes()
    assert out_2.tobytes() == one_2.tobytes()


is_x86 = platform.machine().lower() in ("x86_64", "amd64")


@pytest.mark.skipif(not is_x86, reason="looks for x86 instructions")
def test_vectors_are_packed() -> None:
    import llvmlite.binding
    import numba

    if not llvmlite.binding.get_host_cpu_features().get("fma", False):
        pytest.skip("this processor has no fused multiply-add")
    x = np.zeros(8)
    # Compiled anew: a function that comes from the cache has no assembly to look at.
    fresh = numba.njit(error_model="numpy")(vector_loop.py_func)  # type: ignore[attr-defined] # noqa: TID251
    fresh(x, x.copy(), x.copy())
    (assembly,) = fresh.inspect_asm().values()
    # Ten steps of the polynomial, four of the reduction, three to put exp(x) - 1 - x together.
    assert len(re.findall(r"vfn?m(?:add|sub)\d+pd\s.*%[yz]mm", assembly)) >= 17
    assert not re.findall(r"vfn?m(?:add|sub)\d+sd", assembly)


GENERIC = """
import sys
import numpy as np
from ppocli.kernels import math as km
from ppocli.kernels._jit import jit
from ppocli.kernels.memory import load, row_address, store
both = km.exp_and_expm1_minus_x

@jit
def loop(x, out, out_2):
    for i in range(x.size):
        out[i], out_2[i] = both(x[i])

x = np.frombuffer(sys.stdin.buffer.read())
out, out_2 = np.empty_like(x), np.empty_like(x)
loop(x, out, out_2)
assert "vfmadd" not in "".join(loop.inspect_asm().values())
sys.stdout.buffer.write(out.tobytes() + out_2.tobytes())
"""


@pytest.mark.skipif(not is_x86, reason="names an x86 processor")
def test_same_bits_on_a_processor_without_fused_multiply_add() -> None:
    x = np.concatenate([samples(scale, 100) for scale in SCALES])
    out, out_2 = np.empty_like(x), np.empty_like(x)
    both_loop(x, out, out_2)
    run = subprocess.run(
        [sys.executable, "-c", GENERIC],
        input=x.tobytes(),
        env={**os.environ, "NUMBA_CPU_NAME": "nehalem", "NUMBA_CPU_FEATURES": "+sse4.2"},
        cwd=Path(__file__).parent,
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert run.stdout == out.tobytes() + out_2.tobytes()


def pairs(n: int, exponent: int) -> list[tuple[float, float]]:
    rng = np.random.default_rng(exponent)
    a, b = rng.normal(size=(2, n)) * 2.0 ** rng.integers(-exponent, exponent, (2, n))
    b[::4] = -a[::4] * (1 + rng.normal(0, 1e-15, a[::4].size))
    return list(zip(a.tolist(), b.tolist(), strict=True))


@pytest.mark.parametrize("exponent", [2, 60, 400])
def test_two_sum_is_exact(exponent: int) -> None:
    for a, b in pairs(1000, exponent):
        s, e = call_two_sum(a, b)
        assert s == a + b
        assert Fraction(s) + Fraction(e) == Fraction(a) + Fraction(b)


@pytest.mark.parametrize("exponent", [2, 60, 400])
def test_dd_add_is_within_its_bound(exponent: int) -> None:
    bound = Fraction(3, 2**106) + Fraction(13, 2**159)
    rng = np.random.default_rng(7)
    for a, b in pairs(1000, exponent):
        a_lo, b_lo = (v * float(rng.uniform(-1, 1)) * 2.0**-54 for v in (a, b))
        hi, lo = call_dd_add(a, a_lo, b, b_lo)
        exact = sum(map(Fraction, (a, a_lo, b, b_lo)))
        assert hi + lo == hi
        assert abs(Fraction(hi) + Fraction(lo) - exact) <= bound * abs(exact)


def test_dd_add_keeps_what_float64_loses() -> None:
    assert call_dd_add(1.0, 0.0, 2.0**-70, 0.0) == (1.0, 2.0**-70)
    assert call_dd_add(1e16, 1.0, -1e16, 0.0) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("pair", "other", "total"),
    [
        ((INF, 0.0), (1.0, 0.0), INF),
        ((1.0, 2.0**-60), (-INF, 0.0), -INF),
        ((INF, 0.0), (INF, 0.0), INF),
        ((MAX, 0.0), (MAX, 0.0), INF),
        ((-MAX, -(2.0**969)), (-(2.0**969), -(2.0**915)), -INF),
        ((INF, 0.0), (-INF, 0.0), math.nan),
        ((math.nan, 0.0), (1.0, 0.0), math.nan),
    ],
)
def test_sums_that_are_not_finite_have_no_low_part(
    pair: tuple[float, float], other: tuple[float, float], total: float
) -> None:
    for hi, lo in (call_dd_add(*pair, *other), call_dd_add(*other, *pair)):
        assert lo == 0.0
        assert hi == total or (math.isnan(hi) and math.isnan(total))


def test_helpers_are_safe_at_infinities() -> None:
    assert call_two_sum(INF, 1.0) == (INF, 0.0)
    assert call_two_sum(MAX, MAX) == (INF, 0.0)
