"""Histograms of log_ratio in a report, against counting token by token."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import ppocli
from ppocli.core.report import Bin, EvalReport


def evaluated(log_ratios: list[float], **settings: Any) -> EvalReport:
    x = np.array(log_ratios)
    zeros = np.zeros_like(x)
    return ppocli.evaluate(log_probs=x, old_log_probs=zeros, advantages=zeros + 1.0, **settings)


def counted(bars: tuple[Bin, ...], values: list[float]) -> list[int]:
    """Count by comparison; no value of the tests stands on an edge but 0."""

    def holds(one: Bin, x: float) -> bool:
        low, high = one.low, one.high
        return (low is None or x > low or x == low == 0.0) and (high is None or x < high)

    return [sum(holds(one, x) for x in values) for one in bars]


def normal(scale: float, n: int = 3000) -> list[float]:
    values: list[float] = np.random.default_rng(5).normal(0.0, scale, n).tolist()
    return values


FAR = [40.0, 500.0, -33.0, 31.5, -31.9, 12.3]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(normal(0.01), id="narrow"),
        pytest.param(normal(0.3), id="usual"),
        pytest.param([*normal(0.05), *FAR], id="few far away"),
        pytest.param(normal(20.0), id="wider than the fine bins"),
        pytest.param([0.0], id="one at zero"),
        pytest.param([-700.0, -700.0], id="all beyond"),
        pytest.param([3.25], id="one on one side"),
    ],
)
def test_every_token_is_in_the_bar_that_names_it(values: list[float]) -> None:
    report = evaluated(values)
    for name, shown in (("log_ratio", values), ("log_ratio_abs", [abs(x) for x in values])):
        bars = report.histograms[name]
        assert [one.n for one in bars] == counted(bars, shown)
        assert sum(one.n for one in bars) == len(values)
        assert all(a.high == b.low for a, b in pairwise(bars))


def test_bars_have_one_width_and_one_is_centred_on_zero() -> None:
    bars = evaluated(normal(0.3)).histograms["log_ratio"]
    inner = bars[1:-1]
    assert bars[0].low is None
    assert bars[-1].high is None
    assert len(inner) <= 40
    widths = {128 * (one.high or 0.0) - 128 * (one.low or 0.0) for one in inner}
    assert len(widths) == 1
    assert widths.pop() % 2 == 1
    assert any(one.low == -(one.high or 0.0) for one in inner)


def test_few_tokens_far_away_do_not_widen_it() -> None:
    bars = evaluated([*normal(0.05), *FAR]).histograms["log_ratio"]
    assert (bars[-1].low or 0.0) < 0.5
    assert bars[-1].n >= 3


def test_it_reaches_beyond_the_clip_interval() -> None:
    bars = evaluated([0.0, 0.001], clip_low=0.2, clip_high=0.5).histograms["log_ratio"]
    assert (bars[0].high or 0.0) < math.log(0.8)
    assert (bars[-1].low or 0.0) > math.log(1.5)


def test_sizes_end_next_to_powers_of_two() -> None:
    bars = evaluated([0.0, 0.003, -0.005, 1.5, -200.0]).histograms["log_ratio_abs"]
    assert [one.low for one in bars] == [0.0, *(2.0**k - 2.0**-8 for k in range(-7, 6))]
    assert bars[-1] == Bin(32.0 - 2.0**-8, None, 1)
    assert bars[:2] == (Bin(0.0, 2.0**-8, 2), Bin(2.0**-8, 1.5 * 2.0**-7, 1))


def test_masked_and_nonfinite_tokens_are_not_in_it() -> None:
    x = np.array([0.1, np.nan, 0.2, 0.3])
    report = ppocli.evaluate(
        log_probs=x, old_log_probs=np.zeros(4), advantages=np.ones(4), mask=np.array([1, 1, 0, 1])
    )
    assert sum(one.n for one in report.histograms["log_ratio"]) == 2


def test_without_a_token_there_is_none() -> None:
    report = ppocli.evaluate(
        log_probs=np.zeros(2), old_log_probs=np.zeros(2), advantages=np.ones(2), mask=np.zeros(2, dtype=bool),
        allow_empty=True,
    )  # fmt: skip
    assert report.histograms == {}
    assert "histograms" not in report.to_dict()
