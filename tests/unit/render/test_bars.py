from __future__ import annotations

import math
import sys

import pytest

from ppocli.render.bars import bar, sparkline


@pytest.mark.parametrize(
    ("share", "drawn", "in_ascii"),
    [
        (1.0, "████", "####"),
        (0.5, "██", "##"),
        (0.375, "█▌", "##"),
        (0.15625, "▋", "#"),
        (1e-9, "▏", "#"),
        (0.0, "", ""),
        (-1.0, "", ""),
        (math.nan, "", ""),
    ],
)
def test_a_bar_is_as_long_as_its_share_and_what_is_not_zero_shows(
    share: float, drawn: str, in_ascii: str
) -> None:
    assert bar(share, 4) == drawn
    assert bar(share, 4, ascii_only=True) == in_ascii


def test_values_stand_between_the_smallest_and_the_largest() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8, ascii_only=True) == "_.,-=+*#"
    assert sparkline([3, -5, -5], 8) == "█▁▁"


def test_a_null_is_a_cross() -> None:
    assert sparkline([0.0, None, 1.0], 8) == "▁×█"
    assert sparkline([None, 0.0, 1.0], 8, ascii_only=True) == "x_#"
    assert sparkline([None] * 9, 4) == "××××"
    assert sparkline([], 4) == ""


def test_what_does_not_vary_stands_at_half_height() -> None:
    assert sparkline([2.5, 2.5, 2.5], 8) == "▅▅▅"


def test_a_single_outlier_is_seen_among_thousands() -> None:
    values = [0.5] * 5000
    values[2345] = 9.0
    drawn = sparkline(values, 10)
    assert drawn == "▁▁▁▁█▁▁▁▁▁"


def test_a_part_of_nulls_alone_is_a_cross_and_a_single_one_is_passed_over() -> None:
    assert sparkline([0, 0, None, None, 1, None], 3) == "▁×█"


def test_a_span_that_overflows_is_drawn() -> None:
    largest = sys.float_info.max
    assert sparkline([-largest, 0.0, largest], 3) == "▁▅█"
