"""Measures against sums by hand, streamed in one batch or in many."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ppocli.core.measures import Measure, measure
from ppocli.core.spec import LossSpec
from ppocli.engine.measures import Batch, MeasureSet, Wanted
from ppocli.errors import UsageProblem

VALUES = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0]
VALID = [True, True, False, True, True, True]
OFFSETS = [0, 2, 3, 6]  # the second sequence has no valid token


def value(one: Measure, spec: LossSpec | None = None, values: Any = VALUES, spoils: bool = False) -> Any:
    """The value of a measure of the column `rewards`, and what is not finite about it."""
    asked = Wanted(spec or LossSpec(), one, spoils)
    made = MeasureSet([asked])
    totals = made.start(frozenset({"rewards"}), sequences=True)
    column, valid = {"rewards": np.array(values)}, np.array(VALID)
    for offsets in (None, np.array(OFFSETS)):
        for which, rows, part in made.evaluate(Batch(column, valid, offsets), totals):
            totals.add(which, rows, part)
    return made.value(asked, totals, horizon=10.0)


def column(reduce: str = "token-mean", factor: float = 1.0, **options: Any) -> Measure:
    return measure("column", reduce, factor, role="rewards", **options)


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        ("token-mean", 19 / 5),
        ("token-sum", 19.0),
        ("token-min", 1.0),
        ("token-max", 9.0),
        ("token-var", (9 + 1 + 1 + 25 + 81) / 5 - 3.8**2),
        ("stored-mean", 23 / 6),
        ("stored-sum", 23.0),
        ("seq-mean-token-mean", (2 + 5) / 2),
        ("seq-mean-token-sum", (4 + 15) / 2),
        ("seq-max-token-mean", 5.0),
        ("seq-min-token-max", 3.0),
        ("seq-mean-token-min", 1.0),
        ("seq-var-token-mean", 1.5**2),
        ("row-mean-token-mean", (2 + 0 + 5) / 3),
        ("row-mean-token-sum", (4 + 0 + 15) / 3),
    ],
)
def test_reductions(reduce: str, expected: float) -> None:
    assert value(column(reduce)) == (pytest.approx(expected, rel=1e-14), None)
    assert value(column(reduce, factor=-2.0)) == (pytest.approx(-2 * expected, rel=1e-14), None)


def test_deviations_with_ddof() -> None:
    plain = value(column("token-std"))[0]
    assert value(column("token-std", ddof=1))[0] == pytest.approx(plain * math.sqrt(5 / 4), rel=1e-14)


def test_divisors() -> None:
    assert value(column(), LossSpec(mean_eps=0.5))[0] == pytest.approx(19 / 5.5)
    spec = LossSpec(seq_eps=0.5)
    assert value(column("seq-mean-token-mean"), spec)[0] == pytest.approx((4 / 2.5 + 15 / 3.5) / 2)
    given = LossSpec(denominator=8.0, loss_scale=2.0)
    assert value(column("agg"), given)[0] == pytest.approx(2 * 19 / 8)


@pytest.mark.parametrize(
    ("agg", "expected"),
    [
        ("token-mean", 19 / 5),
        ("token-sum", 19.0),
        ("seq-mean-token-mean", 3.5),
        ("seq-mean-token-sum", 9.5),
        ("seq-mean-token-sum-norm", 0.95),
    ],
)
def test_the_aggregation_of_the_loss(agg: str, expected: float) -> None:
    assert value(column("agg"), LossSpec(agg=agg))[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("bad", "reduce", "nonfinite"),
    [
        (math.nan, "token-mean", "nan"),
        (math.inf, "token-mean", "inf"),
        (-math.inf, "seq-mean-token-mean", "-inf"),
        (math.inf, "token-std", "nan"),
        (math.inf, "token-max", "inf"),
        (math.inf, "token-min", None),
    ],
)
def test_what_is_not_finite_is_counted_and_said(bad: float, reduce: str, nonfinite: str | None) -> None:
    values = [3.0, bad, 4.0, 1.0, 5.0, 9.0]
    assert value(column(reduce), values=values)[1] == nonfinite


def test_padding_spoils_only_where_the_framework_multiplies_by_its_mask() -> None:
    values = [3.0, 1.0, math.nan, 1.0, 5.0, 9.0]
    assert value(column(), values=values) == (pytest.approx(3.8), None)
    assert value(column(), values=values, spoils=True)[1] == "nan"
    assert value(column("stored-mean"), values=values)[1] == "nan"


def test_what_cannot_be_had_is_said() -> None:
    made = MeasureSet([Wanted(LossSpec(), column()), Wanted(LossSpec(), column("seq-mean-token-mean"))])
    assert made.start(frozenset(), sequences=True).missing == dict.fromkeys((0, 1), "no column for rewards")
    assert made.start(frozenset({"rewards"}), sequences=False).missing == {1: "the input has no sequences"}


def test_unknown_reductions_are_refused() -> None:
    with pytest.raises(UsageProblem, match="reduction"):
        measure("column", "mean-of-means", role="rewards")
