"""Merging rows of sums and moments against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from ppocli.core.partials import LANE_SUMS, MOMENTS, SUM
from ppocli.kernels import merge

N_SUMS, N_MOMENTS = len(SUM), len(MOMENTS)


class Totals:
    """Totals that nothing was added to yet."""

    def __init__(self) -> None:
        self.hi, self.lo = np.zeros(N_SUMS), np.zeros(N_SUMS)
        self.m2 = np.zeros((N_MOMENTS, 2))
        self.nonfinite = np.zeros((N_SUMS, 3), dtype=np.int64)

    def add(self, sums: np.ndarray, squares: np.ndarray) -> Totals:
        merge.merge_blocks(sums, squares, self.hi, self.lo, self.m2, self.nonfinite)
        return self

    def merge(self, other: Totals) -> None:
        merge.merge_row(self.hi, self.lo, self.m2, self.nonfinite, other.hi, other.lo, other.m2)

    def exact(self, which: int) -> Fraction:
        return Fraction(self.hi[which]) + Fraction(self.lo[which])


def rows_of(blocks: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows as the kernels write them, where every moment is of the same values."""
    sums, squares = np.zeros((len(blocks), N_SUMS)), np.zeros((len(blocks), N_MOMENTS, 2))
    for b, values in enumerate(blocks):
        for m, name in enumerate(MOMENTS):
            sums[b, SUM[name]] = math.fsum(values)
            sums[b, SUM[f"n_{LANE_SUMS[name]}"]] = values.size
            centre = values[0] if values.size else 0.0
            squares[b, m] = centre, math.fsum((values - centre) ** 2)
    return sums, squares


def test_sums_keep_twice_the_digits() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(300, N_SUMS)) * 10.0 ** rng.integers(-10, 10, (300, N_SUMS))
    rows[150:] = -rows[:150] * (1 + rng.normal(0, 1e-15, (150, N_SUMS)))
    hi, lo, nonfinite = np.zeros(N_SUMS), np.zeros(N_SUMS), np.zeros((N_SUMS, 3), dtype=np.int64)
    merge.add_rows(rows, hi, lo, nonfinite)
    for which in range(N_SUMS):
        exact = sum(map(Fraction, rows[:, which].tolist()))
        size = sum(abs(Fraction(x)) for x in rows[:, which].tolist())
        assert abs(Fraction(hi[which]) + Fraction(lo[which]) - exact) <= Fraction(300 * 3, 2**106) * size
    assert not nonfinite.any()


@pytest.mark.parametrize("width", [1, 7, 8, 9, 24])
def test_any_number_of_sums(width: int) -> None:
    rows = np.arange(3.0 * width).reshape(3, width)
    hi, lo = np.zeros(width), np.zeros(width)
    merge.add_rows(rows, hi, lo, np.zeros((width, 3), dtype=np.int64))
    assert hi.tolist() == rows.sum(axis=0).tolist()
    assert lo.tolist() == [0.0] * width


def test_rows_are_added_in_order() -> None:
    # A pair of numbers holds 1e200 + 1, beside which 1e-200 is lost.
    for column, expected in (
        ([1e200, -1e200, 1.0, -1.0, 1e-200], 1e-200),
        ([1e200, 1.0, 1e-200, -1e200, -1.0], 0.0),
    ):
        totals = Totals()
        rows = np.zeros((5, N_SUMS))
        rows[:, 3] = column
        totals.add(rows, np.zeros((5, N_MOMENTS, 2)))
        assert totals.exact(3) == Fraction(expected)


@pytest.mark.parametrize("which", [0, 17, N_SUMS - 1])
def test_what_is_not_finite_is_counted_and_left_out(which: int) -> None:
    totals = Totals()
    rows = np.ones((6, N_SUMS))
    rows[:, which] = [1.0, np.inf, -np.inf, np.nan, np.inf, 2.0]
    totals.add(rows, np.zeros((6, N_MOMENTS, 2)))
    assert totals.nonfinite[which].tolist() == [1, 2, 1]  # NaN, +inf, -inf
    assert totals.exact(which) == 3
    others = np.delete(np.arange(N_SUMS), which)
    assert totals.hi[others].tolist() == [6.0] * (N_SUMS - 1)
    assert not totals.nonfinite[others].any()


def test_a_total_that_overflows_is_counted() -> None:
    totals = Totals()
    rows = np.zeros((3, N_SUMS))
    rows[:, 5] = [1.5e308, 1.5e308, -1.0]
    totals.add(rows, np.zeros((3, N_MOMENTS, 2)))
    assert totals.nonfinite[5].tolist() == [0, 1, 0]
    assert totals.exact(5) == Fraction(1.5e308) - 1


def blocks_of(n: int, mean: float, spread: float) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    sizes = [2048, 1, 0, 2, 2048, n]
    return [mean + rng.normal(0.0, spread, size) + rng.normal(0.0, spread) for size in sizes]


@pytest.mark.parametrize(("mean", "spread"), [(0.0, 1.0), (1.0, 1e-3), (1e6, 1e-3), (-3.0, 1e8)])
def test_moments_about_the_mean(mean: float, spread: float) -> None:
    blocks = blocks_of(777, mean, spread)
    totals = Totals().add(*rows_of(blocks))
    values = [Fraction(x) for block in blocks for x in block.tolist()]
    middle = sum(values) / len(values)
    exact = sum((x - middle) ** 2 for x in values)
    for m in range(N_MOMENTS):
        got = Fraction(totals.m2[m, 0]) + Fraction(totals.m2[m, 1])
        # The sums that are given are rounded, and their error counts the more, the smaller the spread.
        assert float(got / exact) == pytest.approx(1.0, abs=1e-12 + 2.0**-50 * abs(mean) / spread)


def test_a_constant_has_no_deviation() -> None:
    totals = Totals().add(*rows_of([np.full(2048, 0.1), np.full(5, 0.1)]))
    assert totals.m2[:, 0] == pytest.approx(np.zeros(N_MOMENTS), abs=1e-28)


def test_squares_that_overflow_are_not_taken_for_0() -> None:
    sums, squares = rows_of([np.array([1.0, 2.0, 3.0])])
    sums[:, SUM["ratio"]], squares[:, MOMENTS.index("ratio")] = 1e300, (1e299, np.inf)
    m2 = Totals().add(sums, squares).m2[MOMENTS.index("ratio")]
    assert not np.isfinite(m2.sum())


def test_files_merge_to_what_one_file_gives() -> None:
    blocks = blocks_of(2048, 5.0, 2.0)
    whole = Totals().add(*rows_of(blocks))
    total = Totals()
    for part in (blocks[:2], [np.zeros(0)], blocks[2:]):
        total.merge(Totals().add(*rows_of(part)))
    for which in range(N_SUMS):
        assert abs(total.exact(which) - whole.exact(which)) <= Fraction(1, 2**98) * abs(whole.exact(which))
    assert total.m2.sum(axis=1) == pytest.approx(whole.m2.sum(axis=1), rel=1e-13)


def test_merging_the_first_file_copies_it() -> None:
    one, total = Totals().add(*rows_of(blocks_of(100, 1.0, 1.0))), Totals()
    total.merge(one)
    assert total.hi.tobytes() == one.hi.tobytes()
    assert total.lo.tobytes() == one.lo.tobytes()
    assert total.m2.sum(axis=1) == pytest.approx(one.m2.sum(axis=1), rel=1e-15)


def test_nothing_merges_to_nothing() -> None:
    totals = Totals().add(np.zeros((0, N_SUMS)), np.zeros((0, N_MOMENTS, 2)))
    totals.merge(Totals())
    assert not totals.hi.any()
    assert not totals.m2.any()
