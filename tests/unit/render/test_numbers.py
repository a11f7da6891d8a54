from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppocli.render.numbers import cell_text, count_text, number_text, plural


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-2.4, "-2.4"),
        (-0.0124817123, "-0.0124817"),
        (0.1234, "0.1234"),
        (24.5312345, "24.5312"),
        (123456.789, "123457"),
        (999999.4, "999999"),
        (999999.6, "1e+06"),
        (1234567.8, "1.23457e+06"),
        (0.0001, "0.0001"),
        (0.000099999, "9.9999e-05"),
        (0.00009999999, "0.0001"),
        (-1.5e-9, "-1.5e-09"),
        (1.7976931348623157e308, "1.79769e+308"),
        (5e-324, "4.94066e-324"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
    ],
)
def test_six_significant_digits(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("digits", "text"), [(1, "123457"), (3, "123457"), (8, "123456.79"), (17, "123456.78900000000")]
)
def test_digits_before_the_point_are_never_rounded_away(digits: int, text: str) -> None:
    assert float(number_text(123456.789, digits)) == pytest.approx(float(text), abs=0.006)
    assert len(number_text(123456.789, digits).replace(".", "")) >= 6


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 17))
def test_error_is_at_most_half_a_unit_of_the_last_digit(value: float, digits: int) -> None:
    exact, shown = Decimal(value), Decimal(number_text(value, digits))
    assert abs(shown - exact) <= abs(exact) * Decimal(10) ** (1 - digits) / 2


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_seventeen_digits_read_back_exactly(value: float) -> None:
    assert float(number_text(value, 17)) == value


def test_counts_are_grouped_and_null_is_a_word() -> None:
    assert count_text(1048576) == "1,048,576"
    assert cell_text(1048576) == "1,048,576"
    assert cell_text(1048576.0) == "1.04858e+06"
    assert cell_text(None) == "null"
    assert [plural(n, "file") for n in (0, 1, 2, 1024)] == ["0 files", "1 file", "2 files", "1,024 files"]
