"""How corrections are written, and what is refused."""

from __future__ import annotations

import math

import pytest

from ppocli.core.rollout_rules import RejectionRule, WeightRule, parse_rejection
from ppocli.errors import UsageProblem


@pytest.mark.parametrize(
    ("text", "level", "statistic", "low", "high"),
    [
        ("token_k1:0.6_1.4", "token", "k1", 0.6, 1.4),
        ("token_k1:4", "token", "k1", 0.25, 4.0),
        ("token_ratio:2", "token", "ratio", 0.5, 2.0),
        ("seq_mean_ratio:0.99_1.01", "seq_mean", "ratio", 0.99, 1.01),
        ("seq_max_k3:0.6", "seq_max", "k3", None, 0.6),
        ("seq_sum_k2:0.3", "seq_sum", "k2", None, 0.3),
        ("token_tv:0.02", "token", "tv", None, 0.02),
        ("token_binary_kl:0_0.001", "token", "binary_kl", 0.0, 0.001),
        ("veto:1e-4", "seq_min", "ratio", 1e-4, None),
    ],
)
def test_what_a_text_means(
    text: str, level: str, statistic: str, low: float | None, high: float | None
) -> None:
    assert parse_rejection(text) == RejectionRule(level, statistic, low, high)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("token_k1", "is not MODE:BOUNDS"),
        ("token_k1:", "is not MODE:BOUNDS"),
        ("token_k1:a", "'a' in 'token_k1:a' is not a number"),
        ("token_k1:1_2_3", "more than two bounds"),
        ("token_k1:2_1", "the lower bound 2 is above the upper 1"),
        ("token_k3:nan", "is a finite number"),
        ("token_k3:-1", "is a finite number of at least 0"),
        ("veto:0.1_1", "veto has one bound"),
        ("tokens_k1:1", "'tokens_k1' is not known"),
        ("token_k4:1", "'k4' is not known"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageProblem, match=says.replace("(", r"\(")):
        parse_rejection(text)


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(UsageProblem) as caught:
        parse_rejection("seqmean_k3:1")
    assert caught.value.hint is not None
    assert "did you mean 'seq_mean_k3'?" in caught.value.hint


def test_a_rule_without_a_bound_is_refused() -> None:
    with pytest.raises(UsageProblem, match="token_k3 needs a bound"):
        RejectionRule("token", "k3")


@pytest.mark.parametrize(
    "wrong",
    [
        {"level": "sequences"},
        {"mode": "clip"},
        {"cap": 0.0},
        {"cap": math.inf},
        {"cap": math.nan},
        {"low": -0.1},
        {"low": 2.0, "cap": 1.0},
        {"log_ratio_clamp": -1.0},
    ],
)
def test_weight_rules_that_make_no_sense(wrong: dict[str, float | str]) -> None:
    with pytest.raises(UsageProblem):
        WeightRule(**wrong)  # type: ignore[arg-type]
