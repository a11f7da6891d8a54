"""Gates that make no sense or could never fail, and what a gate judges."""

from __future__ import annotations

import math

import pytest

from ppocli.core.gate import Gate
from ppocli.core.limits import Limit
from ppocli.core.rules import RULES
from ppocli.errors import UsageProblem


@pytest.mark.parametrize(
    "wrong",
    [
        {"fail_on": "info"},
        {"by": ""},
        {"on_policy_tol": math.nan},
        {"on_policy_tol": math.inf},
        {"on_policy_tol": -1.0},
        {"select": ["PPO9"]},
        {"select": [""]},
        {"ignore": ["101"]},
        {"fail_on": "never"},  # and no limit
        {"select": ["PPO303"]},  # a warning, and errors fail
        {"select": ["PPO5"], "fail_on": "warning"},  # findings of drift
        {"select": ["PPO101"], "ignore": ["PPO1"]},
        {"ignore": ["PPO"]},
    ],
)
def test_gates_that_make_no_sense_or_can_never_fail_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageProblem):
        Gate(**wrong)  # type: ignore[arg-type]


def test_severities_and_codes_decide_what_is_judged() -> None:
    usual, strict = Gate(), Gate(fail_on="warning")
    assert [usual.judges("PPO101", one) for one in ("error", "warning", "info")] == [True, False, False]
    assert [strict.judges("PPO101", one) for one in ("error", "warning", "info")] == [True, True, False]
    chosen = Gate(select=("PPO1", "PPO302"), ignore=("PPO102",))
    assert [chosen.names(code) for code in ("PPO101", "PPO102", "PPO301", "PPO302")] == [
        True,
        False,
        False,
        True,
    ]
    never = Gate(fail_on="never", limits=(Limit("clip_frac", "max", 1.0),))
    assert not never.judges("PPO101", "error")


def test_the_gravest_severity_is_at_least_the_usual_one() -> None:
    rank = {"error": 0, "warning": 1, "info": 2}
    assert all(rank[rule.gravest] <= rank[rule.severity] for rule in RULES.values())
    assert {rule.code for rule in RULES.values() if rule.worst} == {
        "PPO102", "PPO305", "PPO403", "PPO408", "PPO409", "PPO410",
    }  # fmt: skip
