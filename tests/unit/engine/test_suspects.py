"""Placeholders and padding at valid tokens, counted and located."""

from __future__ import annotations

import numpy as np
import pytest

import ppocli
from ppocli.core.report import Place


def findings(**arrays: object) -> dict[tuple[str, int], str]:
    """Return code and count of each finding, with its message."""
    return {(one.code, one.count): one.message for one in ppocli.evaluate(**arrays).findings}


def healthy(n: int = 5000) -> dict[str, np.ndarray]:
    return {"log_probs": np.full(n, -1.0), "old_log_probs": np.full(n, -1.0), "advantages": np.ones(n)}


def test_healthy_data_has_none() -> None:
    assert findings(**healthy()) == {}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_placeholder_opposite_a_log_prob(dtype: str) -> None:
    data = healthy()
    data["old_log_probs"][[3000, 4500]] = -9999.0
    report = ppocli.evaluate(**{name: x.astype(dtype) for name, x in data.items()})
    (found,) = (one for one in report.findings if one.code == "PPO402")
    assert (found.count, found.where) == (2, Place("<arrays>", 3000))
    assert found.message == "2 valid tokens with old_log_probs exactly -9999: a sentinel?"


def test_masked_placeholders_do_not_count() -> None:
    data = healthy()
    data["old_log_probs"][3000] = -9999.0
    mask = np.ones(5000, dtype=bool)
    mask[3000] = False
    assert findings(**data, mask=mask) == {}


def test_plus_one_counts_as_a_placeholder_and_other_positive_values_do_not() -> None:
    data = healthy()
    data["log_probs"][10], data["log_probs"][11] = 1.0, 0.5
    assert findings(**data) == {
        ("PPO402", 1): "1 valid token with log_probs exactly 1: a sentinel?",
        ("PPO403", 2): "2 log-probs above 0",
    }


def test_zeros_everywhere_look_like_padding() -> None:
    data = healthy()
    for x in data.values():
        x[4000:4003] = 0.0
    data["advantages"][5:9] = 0.0  # a zero advantage alone does not
    assert findings(**data) == {
        (
            "PPO404",
            3,
        ): "3 valid tokens with log_probs, old_log_probs and advantage all exactly 0: padding?"
    }


def test_a_real_log_prob_of_minus_100_in_both_columns_is_no_placeholder() -> None:
    data = healthy()
    data["log_probs"][7] = data["old_log_probs"][7] = -100.0
    assert findings(**data) == {}
