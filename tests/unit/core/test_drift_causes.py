"""Each finding about a cause fires on its own fault and on no other, and on exact marks of few tokens."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import ppocli
from ppocli.core.drift_causes import Heavy, Sample, causes, filled, steps_of
from ppocli.core.rules import RULES
from ppocli.engine.synth_pairs import FAULTS, healthy

SEEDS = 100
ROWS, TOKENS = 60, 60
CODES = list(FAULTS)
MAKERS = {"none": healthy, **FAULTS}


@pytest.mark.slow
def test_confusion_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows are faults, columns findings: how often each fired over the seeds."""
    lines = [f"{'fault':8}" + "".join(f"{code:>8}" for code in CODES)]
    wrong = []
    for number, (fault, make) in enumerate(MAKERS.items()):
        fired = Counter[str]()
        for seed in range(SEEDS):
            a, b = make(np.random.default_rng([seed, number]), ROWS, TOKENS)
            report = ppocli.drift(old_log_probs=a, rollout_log_probs=b, detail="main")
            fired.update({one.code for one in report.findings})
        lines.append(f"{fault:8}" + "".join(f"{fired[code]:8}" for code in CODES))
        expected = {fault: SEEDS} if fault in CODES else {}
        if dict(fired) != expected:
            wrong.append((fault, dict(fired)))
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert wrong == []


@pytest.mark.parametrize("fault", MAKERS)
@pytest.mark.parametrize("seed", [1000, 1001, 1002])
def test_its_own_fault_and_no_other(fault: str, seed: int) -> None:
    a, b = MAKERS[fault](np.random.default_rng(seed), ROWS, TOKENS)
    found = ppocli.drift(old_log_probs=a, rollout_log_probs=b).findings
    assert {one.code for one in found} == ({fault} if fault in CODES else set())


def sample(a: list[float], b: list[float], labels: list[int] | None = None) -> Sample:
    n = len(a)
    keys = np.stack([np.zeros(n, dtype=np.int64), np.array(labels or [0] * n, dtype=np.int64)], axis=1)
    return Sample(
        np.array(a, dtype=float), np.array(b, dtype=float), keys, np.zeros(n, dtype=np.int64), ("f",)
    )


def codes(a: list[float], b: list[float], **given: object) -> list[str]:
    found = causes(sample(a, b), "a", "b", (), None)
    return [one.code for one in found]


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ([-0.6931, -1.2040], [-0.4700, -0.9809], ["PPO501"]),  # 0.2231 on both
        ([-0.143, -2.143], [-0.408, -1.408], ["PPO502"]),  # slope 2 / 3
        ([-1.0, -2.0], [-1.5, -1.5], []),  # slope 2 is no temperature
        ([-0.1, -2.0, -0.3, -4.0, -0.5], [-2.0, -0.3, -4.0, -0.5, -0.9], ["PPO503"]),
        ([-1.0, -2.0, -3.0], [-1.001, -2.001, -3.002], []),  # 0.001 nats are no offset
        ([-1.0], [-2.0], []),
        ([], [], []),
    ],
)
def test_exact_marks_of_few_tokens(a: list[float], b: list[float], want: list[str]) -> None:
    assert codes(a, b) == want


def test_a_shift_is_looked_for_inside_sequences_only() -> None:
    a, b = [-1.0, -3.0, -2.0, -5.0], [-3.0, -1.0, -5.0, -2.0]
    assert [one.code for one in causes(sample(a, b, [0, 1, 2, 3]), "a", "b", (), None)] == []


def test_tokens_that_were_filled_in_are_left_out() -> None:
    a, b = np.array([0.0, -1.0, -9999.0, -2.0]), np.array([-3.0, -1.0, -1.0, -2.0])
    assert filled(a, b, {0.0, -9999.0}).tolist() == [True, False, True, False]
    assert filled(a, b, ()).tolist() == [False] * 4


def test_steps_of_bfloat16() -> None:
    # 1 to 2 has steps of 2^-7, -0.3 lies in [0.25, 0.5): 2^-9.
    assert steps_of(np.array([1.0, 1.5, -0.3]), 7).tolist() == [2.0**-7, 2.0**-7, 2.0**-9]


@pytest.mark.parametrize(
    ("heavy", "fires"),
    [
        (Heavy(40, 2, 0.6, 0.05), True),
        (Heavy(40, 2, 0.4, 0.05), False),  # not half of the difference
        (Heavy(40, 2, 0.6, 0.3), False),  # but nearly a third of the tokens: long sequences
        (Heavy(10, 1, 0.9, 0.05), False),  # too few sequences
    ],
)
def test_few_sequences(heavy: Heavy, fires: bool) -> None:
    rng = np.random.default_rng(0)
    b = -rng.exponential(1.0, 200)
    a = b + rng.normal(0.0, 0.01, 200)
    found = causes(sample(a.tolist(), b.tolist()), "a", "b", (), heavy)
    assert ("PPO509" in [one.code for one in found]) == fires


def test_the_evidence_names_numbers() -> None:
    rng = np.random.default_rng(0)
    b = -rng.exponential(1.0, 500)
    [one] = causes(sample((b - 0.25).tolist(), b.tolist()), "old", "rollout", (), None)
    assert one.count == 500
    assert "-0.25 nats" in one.message
    assert f"{math.exp(-0.25):.4g}" in one.message


def test_every_cause_has_a_rule_with_its_false_alarm() -> None:
    for code in (*CODES, "PPO510"):
        rule = RULES[code]
        assert rule.false_alarm
        assert rule.severity == ("info" if code == "PPO510" else "warning")
