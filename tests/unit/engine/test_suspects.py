from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ppocli

if TYPE_CHECKING:
    from ppocli.core.report import Finding


def findings(code: str, new: list[float], old: list[float] | None = None, **more: Any) -> list[Finding]:
    arrays: dict[str, Any] = {
        "log_probs": np.array(new),
        "old_log_probs": np.full(len(new), -1.0) if old is None else np.array(old),
        "advantages": np.ones(len(new)),
    } | more
    return [one for one in ppocli.evaluate(**arrays).findings if one.code == code]


@pytest.mark.parametrize("sentinel", [-1e9, -1e4, -9999.0, -1000.0, -999.0, -100.0, 1.0])
def test_a_placeholder_is_counted_and_located(sentinel: float) -> None:
    new = [-1.0] * 5000
    new[2047] = new[2048] = new[4999] = sentinel
    (one,) = findings("PPO402", new)
    assert one.count == 3
    assert "log_probs exactly" in one.message
    assert one.where is not None
    assert one.where.row == 2047


def test_placeholders_of_either_column_are_told_apart() -> None:
    found = findings("PPO402", [-100.0, -1.0, -1.0], [-1.0, -1.0, -999.0])
    assert [(one.count, one.where.row if one.where else None) for one in found] == [(1, 0), (1, 2)]


def test_a_masked_placeholder_is_none() -> None:
    assert findings("PPO402", [-100.0, -1.0], mask=[0, 1]) == []


def test_a_placeholder_beside_a_nan() -> None:
    (one,) = findings("PPO402", [math.nan, -100.0, -1.0])
    assert (one.count, one.where.row if one.where else None) == (1, 1)


def test_ordinary_values_are_no_placeholders() -> None:
    assert findings("PPO402", [-1.0, -0.5, -12.0, -99.0]) == []


def test_tokens_that_look_like_padding() -> None:
    new, old = [-1.0, 0.0, 0.0, 0.0, 0.0], [-1.0, 0.0, -0.5, 0.0, 0.0]
    adv = np.array([0.0, 0.0, 0.0, 1.0, 0.0])
    (one,) = findings("PPO404", new, old, advantages=adv)
    assert (one.count, one.where.row if one.where else None) == (2, 1)
    assert findings("PPO404", new, old, advantages=adv, mask=[1, 0, 1, 1, 0]) == []


def test_padding_beside_a_nan() -> None:
    (one,) = findings("PPO404", [0.0, math.nan, 0.0], [0.0, 0.0, 0.0], advantages=np.array([0.0, 0.0, 0.0]))
    assert (one.count, one.where.row if one.where else None) == (2, 0)
