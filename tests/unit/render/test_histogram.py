from __future__ import annotations

import itertools

import pytest
import reports

from ppocli.core.report import Bin
from ppocli.core.spec import LossSpec
from ppocli.render.histogram import MOST_ROWS, histogram_block


def rows(bins: tuple[Bin, ...], *, ascii_only: bool = False, **settings: float) -> list[tuple[str, ...]]:
    made = reports.report(settings=LossSpec(**settings).to_dict(), histograms={"log_ratio": bins})
    (block,) = histogram_block(made, 6, ascii_only=ascii_only)
    return list(block.rows)


def test_bars_have_numbers_on_their_left_and_the_ends_of_the_clip_interval() -> None:
    assert rows(reports.histograms()["log_ratio"]) == [
        ("-inf", "-0.1875", "1", "14.29 %", "████", "← clip from -0.223144"),
        ("-0.1875", "-0.0625", "0", "0.00 %", "", ""),
        ("-0.0625", "0.0625", "4", "57.14 %", "█" * 16, ""),
        ("0.0625", "0.1875", "1", "14.29 %", "████", "← clip to 0.182322"),
        ("0.1875", "inf", "1", "14.29 %", "████", ""),
    ]


def test_in_ascii_nothing_else_is_drawn() -> None:
    made = rows(reports.histograms()["log_ratio"], ascii_only=True)
    assert all(cell.isascii() for row in made for cell in row)
    assert made[0][-2:] == ("####", "<- clip from -0.223144")


def test_both_ends_may_be_in_one_bar_and_an_end_belongs_to_the_bar_above() -> None:
    low = -0.5
    bins = (Bin(None, low, 2), Bin(low, 0.5, 2), Bin(0.5, None, 4))
    (_, middle, above) = rows(bins, clip_low=0.2, clip_high=0.2)
    assert middle[-1] == "← clip from -0.223144, clip to 0.182322"
    assert above[-1] == ""


def test_empty_bars_at_the_ends_are_left_out() -> None:
    bins = (Bin(None, -1.0, 0), Bin(-1.0, 1.0, 3), Bin(1.0, 3.0, 0), Bin(3.0, None, 0))
    ((low, high, n, share, drawn, _),) = rows(bins)
    assert (low, high, n, share, drawn) == ("-1", "1", "3", "100.00 %", "█" * 16)


def test_many_bars_are_joined_three_at_a_time_around_the_one_at_zero() -> None:
    inner = [Bin(k - 0.5, k + 0.5, 1 + abs(k)) for k in range(-20, 20)]
    made = rows((Bin(None, -20.5, 5), *inner, Bin(19.5, None, 6)))
    assert len(made) <= MOST_ROWS
    middle = next(row for row in made if row[0] == "-1.5")
    assert middle[:3] == ("-1.5", "1.5", "5")  # 2 + 1 + 2
    assert made[0][:3] == ("-inf", "-20.5", "5")
    assert made[-1][:3] == ("19.5", "inf", "6")
    assert sum(int(row[2]) for row in made) == 11 + sum(1 + abs(k) for k in range(-20, 20))
    assert all(before[1] == after[0] for before, after in itertools.pairwise(made))


@pytest.mark.parametrize("bins", [(), (Bin(None, 0.0, 0), Bin(0.0, None, 0))])
def test_without_a_token_there_is_none(bins: tuple[Bin, ...]) -> None:
    made = reports.report(histograms={"log_ratio": bins} if bins else {})
    assert list(histogram_block(made, 6, ascii_only=False)) == []
