"""Vectors against NumPy, lane by lane, and what they load and store."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ppocli.kernels._jit import jit
from ppocli.kernels.memory import (
    add_to,
    count_places,
    count_to,
    load,
    load_bits,
    load_flags,
    load_float32,
    load_one,
    lower_to,
    raise_to,
    row_address,
    store,
    store_bits,
    store_low16,
    store_one,
)
from ppocli.kernels.vector import (
    all_of,
    any_of,
    bits,
    broadcast,
    first_of,
    fma,
    from_bits,
    greatest,
    highest,
    least,
    lowest,
    narrowed,
    number_of,
    total,
    where,
    without,
)

INF, NAN = math.inf, math.nan
SPECIAL = np.array([0.0, -0.0, INF, -INF, NAN, 5e-324, -1.5, 1e308])
OTHER = np.array([0.0, 0.0, -INF, -INF, 1.0, NAN, -1.5, 2.0])


@jit
def arithmetic(x: Any, y: Any, out: Any) -> None:
    a, b = load(row_address(x, 0), 0), load(row_address(y, 0), 0)
    for row, value in enumerate((a + b, a - b, a * b, a / b, -a, abs(a), a + 2, 2.0 - a, fma(a, b, a))):
        store(row_address(out, row), 0, value)


@jit
def comparisons(x: Any, y: Any, out: Any) -> None:
    a, b = load(row_address(x, 0), 0), load(row_address(y, 0), 0)
    flags = (
        a < b,
        a > b,
        a == b,
        a < 1.0,
        a < 0.0,
        (a < b) | (a > b),
        (a < 1.0) & (b < 1.0),
        without(a < 1.0, b < 1.0),
    )
    for row, one in enumerate(flags):
        store(row_address(out, row), 0, where(one, 1.0, broadcast(0.0)))


@jit
def choices(x: Any, y: Any, out: Any) -> None:
    a, b = load(row_address(x, 0), 0), load(row_address(y, 0), 0)
    for row, value in enumerate((least(a, b), greatest(a, b), where(a < b, a, b), where(a < b, a, 7.0))):
        store(row_address(out, row), 0, value)


@jit
def folds(x: Any) -> tuple[float, float, float]:
    a = load(row_address(x, 0), 0)
    return total(a), lowest(a), highest(a)


@jit
def flags_of(x: Any, n: int) -> tuple[bool, bool, int, int]:
    flags = load_flags(row_address(x, 0), 0)
    return any_of(flags), all_of(flags), number_of(flags), number_of(first_of(n))


@jit
def keep_flags(x: Any, kept: Any, out: Any) -> None:
    a = load(row_address(x, 0), 0)
    store_bits(row_address(kept, 0), 1, a > 0.0)
    store(row_address(out, 0), 0, where(load_bits(row_address(kept, 0), 1), a, -1.0))


def test_flags_in_a_byte() -> None:
    x, kept, out = np.array([1.0, -2, 3, 4, 0, np.nan, -7, 8]), np.full(3, 0x55, dtype=np.uint8), np.zeros(8)
    keep_flags(x, kept, out)
    assert kept.tolist() == [0x55, 0b10001101, 0x55]
    assert out.tolist() == [1, -1, 3, 4, -1, -1, -1, 8]


@jit
def shift_bits(x: Any, out: Any, places: Any) -> None:
    words = bits(load(row_address(x, 0), 0))
    store(row_address(out, 0), 0, from_bits(words + np.uint64(1)))
    store(row_address(out, 1), 0, from_bits((words >> np.uint64(52)) << np.uint64(52)))
    store_low16(row_address(places, 0), 1, words)


@jit
def pick_bits(x: Any, y: Any, out: Any) -> float:
    a, b = bits(load(row_address(x, 0), 0)), bits(load(row_address(y, 0), 0))
    store(row_address(out, 0), 0, from_bits(a & b))
    store(row_address(out, 1), 0, from_bits(a | b))
    store(row_address(out, 2), 0, from_bits(a & np.uint64(0x7FF0000000000000)))
    store(row_address(out, 3), 0, narrowed(from_bits(a)))
    return narrowed(x[0])


@jit
def single(x: float, y: float, z: float) -> tuple[float, float, float, float, float]:
    return fma(x, y, z), least(x, y), greatest(x, y), where(x < y, x, z), from_bits(bits(x) + np.uint64(1))


@jit
def read(x: Any, narrow: Any, index: int, out: Any) -> float:
    store(row_address(out, 0), 0, load(row_address(x, 0), index))
    store(row_address(out, 1), 0, load_float32(row_address(narrow, 0), index))
    store_one(row_address(out, 2), 3, 4)
    count_to(row_address(out, 2), 4, 5)
    return load_one(row_address(x, 0), index)


@jit
def combine(x: Any, y: Any) -> None:
    b = load(row_address(y, 0), 0)
    add_to(row_address(x, 0), 0, b)
    lower_to(row_address(x, 1), 0, b)
    raise_to(row_address(x, 2), 0, b)


@jit
def count(places: Any, bins: Any) -> None:
    count_places(row_address(bins, 0), row_address(places, 0), 8)


def test_arithmetic_is_numpy_s() -> None:
    x = np.array([1.5, -2.0, 3.25, 1e300, -1e-300, 7.0, 0.1, -0.3])
    y = np.array([2.0, 0.5, -3.0, 1e10, 1e-20, -7.0, 0.2, 0.7])
    out = np.empty((9, 8))
    arithmetic(x, y, out)
    with np.errstate(all="ignore"):
        expected = [x + y, x - y, x * y, x / y, -x, np.abs(x), x + 2, 2.0 - x]
    assert out[:8].tobytes() == np.array(expected).tobytes()


def test_fma_rounds_once() -> None:
    # (1 + u)(1 - u) - 1 = -u^2 exactly; two roundings would give 0.
    u = 2.0**-30
    assert single(1.0 + u, 1.0 - u, -1.0)[0] == -(2.0**-60)
    x, y, out = np.full(8, 1.0 + u), np.full(8, -(1.0 + u)), np.empty((9, 8))
    arithmetic(x, y, out)
    assert out[8].tolist() == [-(1.0 + u) * u] * 8  # (1 + u)(1 - (1 + u)), which is exact


def test_comparisons_with_nan_are_false() -> None:
    out = np.empty((8, 8))
    comparisons(SPECIAL, OTHER, out)
    a, b = SPECIAL, OTHER
    with np.errstate(invalid="ignore"):
        expected = [
            a < b,
            a > b,
            a == b,
            a < 1,
            a < 0,
            (a < b) | (a > b),
            (a < 1) & (b < 1),
            (a < 1) & ~(b < 1),
        ]
    assert out.tolist() == np.array(expected, dtype=float).tolist()


def test_the_second_counts_where_a_comparison_fails() -> None:
    out = np.empty((4, 8))
    choices(SPECIAL, OTHER, out)
    for lane, (a, b) in enumerate(zip(SPECIAL.tolist(), OTHER.tolist(), strict=True)):
        expected = [a if a < b else b, a if a > b else b, a if a < b else b, a if a < b else 7.0]
        assert [math.copysign(1, v) for v in out[:, lane]] == [math.copysign(1, v) for v in expected]
        assert out[:, lane].tolist() == pytest.approx(expected, nan_ok=True, rel=0)


def test_folds_in_pairs() -> None:
    # Left to right, each 1 would be lost beside 2^53; in pairs 1 + 1 survive.
    x = np.array([2.0**53, 1.0, 1.0, 1.0, -(2.0**53), 1.0, 1.0, 1.0])
    assert folds(x) == (6.0, -(2.0**53), 2.0**53)
    assert folds(np.array([3.0, -1.0, 4.0, -1.5, 9.0, -2.6, 5.0, 3.5])) == (19.4, -2.6, 9.0)


def test_flags() -> None:
    for byte in ([0] * 8, [1] * 8, [0, 0, 255, 0, 1, 0, 0, 2]):
        found = flags_of(np.array(byte, dtype=np.uint8), 3)
        assert found == (any(byte), all(byte), sum(b != 0 for b in byte), 3)
    assert [flags_of(np.zeros(8, np.uint8), n)[3] for n in (-5, 0, 1, 8, 100)] == [0, 0, 1, 8, 8]


def test_bits_go_round() -> None:
    x = np.array([1.0, -0.0, 1.5, 2.0, -3.0, 1e-310, 4.0, 0.1])
    out, places = np.empty((2, 8)), np.zeros(10, dtype=np.uint16)
    shift_bits(x, out, places)
    assert out[0].tolist() == [math.nextafter(v, math.copysign(INF, v)) for v in x.tolist()]
    assert out[1].tolist() == [1.0, 0.0, 1.0, 2.0, -2.0, 0.0, 4.0, 0.0625]
    assert places[1:9].tolist() == (x.view(np.uint64) & np.uint64(0xFFFF)).tolist()
    assert (places[0], places[9]) == (0, 0)


def test_words_are_combined_bit_by_bit_and_narrowing_is_numpy_s() -> None:
    x = np.array([1.0 / 3.0, -5.5, 1e39, -1e-46, 0.1, NAN, -INF, 16777217.0])
    y = np.array([-0.0, 3.0, 1e300, 0.0, 0.2, 1.0, 5e-324, -0.0])
    out = np.empty((4, 8))
    first = pick_bits(x, y, out)
    a, b = x.view(np.uint64), y.view(np.uint64)
    with np.errstate(over="ignore"):
        narrow = x.astype(np.float32).astype(np.float64)
    expected = [a & b, a | b, a & np.uint64(0x7FF << 52)]
    assert out[:3].tobytes() == np.array(expected).tobytes()
    assert out[3].tolist() == pytest.approx(narrow.tolist(), nan_ok=True, rel=0, abs=0)
    assert first == narrow[0] != x[0]


def test_numbers_take_the_same_functions() -> None:
    assert single(2.0, 3.0, 4.0) == (10.0, 2.0, 3.0, 2.0, math.nextafter(2.0, INF))
    assert single(NAN, 3.0, 4.0)[1:4] == (3.0, 3.0, 4.0)


def test_reading_at_any_place() -> None:
    x = np.arange(20.0)
    out = np.zeros((3, 8))
    for index in range(12):
        assert read(x, x.astype(np.float32), index, out) == index
        assert out[0].tolist() == out[1].tolist() == list(range(index, index + 8))
    assert out[2].tolist() == [0, 0, 0, 4, 60, 0, 0, 0]


def test_combining_with_memory() -> None:
    x = np.tile(np.array([1.0, -2.0, INF, 0.0, 5.0, -INF, 3.0, NAN]), (3, 1))
    y = np.array([2.0, -3.0, 1.0, NAN, 5.0, 0.0, -4.0, 1.0])
    before = x[0].copy()
    combine(x, y)
    assert x[0].tolist() == pytest.approx((before + y).tolist(), nan_ok=True, rel=0)
    # A NaN of the vector changes nothing: values that are not finite are noticed in the sums.
    assert x[1].tolist() == pytest.approx([1.0, -3.0, 1.0, 0.0, 5.0, -INF, -4.0, NAN], nan_ok=True, rel=0)
    assert x[2].tolist() == pytest.approx([2.0, -2.0, INF, 0.0, 5.0, 0.0, 3.0, NAN], nan_ok=True, rel=0)


def test_counting_places() -> None:
    bins = np.zeros((4, 8), dtype=np.int64)
    places = np.array([0] * 8 + [3, 3, 3, 3, 1, 1, 3, 0], dtype=np.uint16)
    count(places, bins)
    count(places, bins)
    assert bins.sum(axis=1).tolist() == [2, 4, 0, 10]
    assert bins[3].tolist() == [2, 2, 2, 2, 0, 0, 2, 0]  # a copy for each lane
