"""Rounding to narrower formats: against ml_dtypes, exact fractions, and tables of what PyTorch gives."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from audit_oracle import nearest

from ppocli.core.precision import PRECISIONS
from ppocli.kernels._jit import jit
from ppocli.kernels.memory import load, row_address, store
from ppocli.kernels.rounding import round_one, round_to, rounded, rounded_step, rounded_within, scaled

TYPES: dict[str, Any] = {
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
FLOATS = {name: one for name, one in PRECISIONS.items() if one.scale is None}
NARROW = [name for name in TYPES if name != "float32"]
INF, NAN = math.inf, math.nan


@jit
def vector_loop(x: Any, factor: float, power: float, limit: float, beyond: float, out: Any) -> None:
    for i in range(0, x.size, 8):
        store(row_address(out, 0), i, rounded(load(row_address(x, 0), i), (factor, power, limit, beyond)))


@jit
def step_loop(x: Any, factor: float, power: float, limit: float, out: Any, single: Any) -> None:
    for i in range(0, x.size, 8):
        store(row_address(out, 0), i, rounded_step(load(row_address(x, 0), i), factor, power, limit))
    for i in range(x.size):
        single[i] = rounded_step(x[i], factor, power, limit)


@jit
def within_loop(x: Any, factor: float, power: float, out: Any) -> None:
    for i in range(0, x.size, 8):
        store(row_address(out, 0), i, rounded_within(load(row_address(x, 0), i), factor, power))


@jit
def scaled_loop(x: Any, scale: Any, out: Any, single: Any) -> None:
    for i in range(0, x.size, 8):
        store(row_address(out, 0), i, scaled(load(row_address(x, 0), i), load(row_address(scale, 0), i)))
    for i in range(x.size):
        single[i] = scaled(x[i], scale[i])


def ours(values: np.ndarray, name: str) -> np.ndarray:
    return round_to(values.astype(np.float64), PRECISIONS[name].rule)


def theirs(values: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return values.astype(TYPES[name]).astype(np.float64)


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal with the sign of zeros; a NaN is a NaN."""
    different = (got.view(np.uint64) != want.view(np.uint64)) & ~(np.isnan(got) & np.isnan(want))
    assert not different.any(), (got[different][:5], want[different][:5])


def every_value(name: str) -> np.ndarray:
    """What the bit patterns of a format stand for."""
    kind = np.dtype(TYPES[name])
    patterns = np.arange(2 ** (8 * kind.itemsize), dtype=f"u{kind.itemsize}")
    with np.errstate(invalid="ignore"):  # signalling NaN
        return patterns.view(kind).astype(np.float64)


def around(values: np.ndarray) -> np.ndarray:
    """Finite values, the points half way between neighbours, and the float32 next to all of these.

    Not the float64: some versions of ml_dtypes round that by way of float32.
    """
    finite = np.unique(values[np.isfinite(values)])
    points = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2.0]).astype(np.float32)
    beside = (np.nextafter(points, np.float32(side)) for side in (INF, -INF))
    return np.concatenate([points, *beside]).astype(np.float64)


@pytest.mark.parametrize("name", NARROW)
def test_every_bit_pattern_stays_what_it_is(name: str) -> None:
    values = every_value(name)
    assert_same_bits(ours(values, name), values)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("source", ["bfloat16", "float16"])
def test_every_16_bit_value(source: str, name: str) -> None:
    values = every_value(source)
    assert_same_bits(ours(values, name), theirs(values, name))


@pytest.mark.parametrize("name", NARROW)
def test_every_tie_and_its_neighbours(name: str) -> None:
    values = around(every_value(name))
    assert_same_bits(ours(values, name), theirs(values, name))


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("name", TYPES)
def test_a_million_random_values(name: str, source: Any) -> None:
    rng = np.random.default_rng(7)
    n = 1_000_000
    values = rng.standard_normal(n) * 10.0 ** rng.uniform(-46, 40, n)
    with np.errstate(over="ignore"):
        values = values.astype(source)
    assert_same_bits(ours(values, name), theirs(values, name))


@pytest.mark.parametrize("name", FLOATS)
def test_exact_arithmetic(name: str) -> None:
    p = FLOATS[name]
    rng = np.random.default_rng(3)
    smallest, largest = p.step(0.0), p.max_finite
    logs = rng.uniform(math.log2(smallest) - 2, min(math.log2(largest) + 2, 1023), 1000)
    values = [*(rng.choice([-1.0, 1.0], 1000) * 2.0**logs)]
    for x in [*values[:300], smallest, 2.0**p.min_exponent, 1.0, largest, 3.0 * smallest, 1.5]:
        here = nearest(x, name)
        if not math.isfinite(here):
            continue
        tie = here + p.step(here) / 2
        values += [tie, -tie, math.nextafter(tie, INF), math.nextafter(tie, 0.0), x]
    values += [0.0, -0.0, INF, -INF, NAN, 5e-324, -1e-320, 1.7976931348623157e308, -1e300, 2.0**971]
    got = round_to(np.array(values), p.rule)
    assert_same_bits(got, np.array([nearest(float(x), name) for x in values]))


@pytest.mark.parametrize("name", FLOATS)
def test_a_vector_gives_the_same_bits(name: str) -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal(4096) * 10.0 ** rng.uniform(-50, 50, 4096)
    values[:8] = [0.0, -0.0, INF, -INF, NAN, 5e-324, 1e308, -1e308]
    out = np.empty_like(values)
    vector_loop(values, *PRECISIONS[name].rule, out)
    assert_same_bits(out, round_to(values, PRECISIONS[name].rule))


@pytest.mark.parametrize("name", [name for name, one in FLOATS.items() if one.arithmetic])
def test_a_step_is_rounded_alike_but_for_the_sign_of_zeros(name: str) -> None:
    rng = np.random.default_rng(2)
    values = rng.standard_normal(4096) * 10.0 ** rng.uniform(-50, 50, 4096)
    values[:8] = [0.0, -0.0, INF, -INF, NAN, 5e-324, 1e308, -1e308]
    rule = PRECISIONS[name].rule
    out, single = np.empty_like(values), np.empty_like(values)
    step_loop(values, *rule[:3], out, single)
    want = round_to(values, rule)
    assert np.array_equal(out, want, equal_nan=True)
    assert_same_bits(out, single)


@pytest.mark.parametrize("name", FLOATS)
def test_up_to_half_the_limit_no_look_for_overflow_is_needed(name: str) -> None:
    rng, rule = np.random.default_rng(3), PRECISIONS[name].rule
    values = rng.standard_normal(8192) * 10.0 ** rng.uniform(-50, 50, 8192)
    values[:6] = [0.0, -0.0, 5e-324, -5e-324, rule[2] / 2, -rule[2] / 2]
    values = values[np.abs(values) <= rule[2] / 2]
    values = values[: values.size & -8]
    assert values.size > 2000
    out = np.empty_like(values)
    within_loop(values, *rule[:2], out)
    assert np.array_equal(out, round_to(values, rule))


@pytest.mark.parametrize(
    ("name", "values", "want"),
    [
        ("float8_e4m3fn", [-448, -464, -465, -9999, 447], [-448, -448, NAN, NAN, 448]),
        ("float8_e4m3fn_saturating", [-448, -464, -465, -9999, 447], [-448, -448, -448, -448, 448]),
        ("float8_e5m2", [57344, 61439, 61440, 70000, -70000], [57344, 57344, INF, INF, -INF]),
        ("float8_e5m2_saturating", [57344, 61439, 61440, 70000, -70000], [57344] * 4 + [-57344]),
        (
            "float16",
            [65504, 65519, 65520, -1e9, 2.0**-25, 1.5 * 2.0**-24],
            [65504, 65504, INF, -INF, 0, 2**-23],
        ),
        ("bfloat16", [-20.07, -12.03, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38], [-20.125, -12, 1, 1 + 2**-6, INF]),
        ("tf32", [1 + 2**-11, 1 + 3 * 2**-11, -0.1, 3.4028234e38], [1, 1 + 2**-9, -0.0999755859375, INF]),
    ],
)
def test_edges_by_hand(name: str, values: list[float], want: list[float]) -> None:
    got = [round_one(float(x), PRECISIONS[name].rule) for x in values]
    assert np.array_equal(got, want, equal_nan=True)


def test_shapes_are_kept() -> None:
    assert round_to(np.full((2, 3), 1.001), PRECISIONS["bfloat16"].rule).tolist() == [[1.0] * 3] * 2
    assert round_to(np.empty(0), PRECISIONS["bfloat16"].rule).size == 0


@pytest.mark.parametrize("name", TYPES)
def test_limits_and_steps_are_those_of_the_format(name: str) -> None:
    p, info = PRECISIONS[name], ml_dtypes.finfo(TYPES[name])
    assert (p.max_finite, p.mantissa_bits, 8 * p.n_bytes) == (float(info.max), info.nmant, info.bits)
    assert p.step(0.0) == float(info.smallest_subnormal)
    assert p.step(-1.0) == p.step(1.99) == float(info.eps)
    assert p.step(2.0) == 2.0 * float(info.eps)


def int8(values: np.ndarray, scale: np.float32) -> np.ndarray:
    """A symmetric quantiser in float32."""
    number = np.clip(np.rint(values.astype(np.float32) / scale), -127, 127).astype(np.int8)
    return (number.astype(np.float32) * scale).astype(np.float64)


def test_int8_is_a_quantiser_in_float32() -> None:
    rng = np.random.default_rng(5)
    values = -rng.exponential(3.0, 4096)
    scale = np.float32(np.abs(values).astype(np.float32).max() / np.float32(127.0))
    # Ties, and values beyond the largest: they are held.
    values[:64] = (np.arange(64) + 0.5).astype(np.float32) * scale
    values[64:66] = 200.0 * scale, -200.0 * scale
    out, single = np.empty_like(values), np.empty_like(values)
    scaled_loop(values, np.full(4096, float(scale)), out, single)
    assert out.tolist() == single.tolist() == int8(values, scale).tolist()
    assert len(set(out.tolist())) <= 255


def test_int8_of_zeros_is_zero() -> None:
    out, single = np.full(8, NAN), np.full(8, NAN)
    scaled_loop(np.zeros(8), np.zeros(8), out, single)
    assert out.tolist() == single.tolist() == [0.0] * 8
