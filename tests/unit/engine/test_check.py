"""Judging: what passes, what fails, what cannot be judged, and the exit code that follows."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
import reports
from jsonschema import Draft202012Validator

from ppocli.core.gate import Gate
from ppocli.core.limits import Limit, Tolerance, profile_limits
from ppocli.core.report import Finding, NullNote, Place
from ppocli.core.schema import document_schema
from ppocli.engine.check import judge
from ppocli.engine.on_policy import likely_cause
from ppocli.errors import InputError

VALIDATOR = Draft202012Validator(document_schema())
Document = dict[str, Any]


def document(metrics: dict[str, Any] | None = None, **changes: Any) -> Document:
    return reports.report(metrics, **changes).to_dict()


def judged(doc: Document, *limits: Limit, baseline: Document | None = None, **gate: Any) -> Any:
    """Judge, and see that the document validates and is not changed."""
    before = copy.deepcopy(doc)
    report = judge(doc, Gate(limits=limits, **gate), baseline)
    assert doc == before
    VALIDATOR.validate(json.loads(json.dumps(report.to_dict())))
    return report


def statuses(report: Any) -> dict[str, str]:
    return {one.name: one.status for one in report.checks}


@pytest.mark.parametrize(
    ("limit", "passes"),
    [
        # clip_frac is 0.1234, n_tokens 7.
        (Limit("clip_frac", "max", 0.1234), True),
        (Limit("clip_frac", "max", math.nextafter(0.1234, 0.0)), False),
        (Limit("clip_frac", "min", 0.1234), True),
        (Limit("clip_frac", "min", math.nextafter(0.1234, 1.0)), False),
        (Limit("n_tokens", "max", 7), True),
        (Limit("n_tokens", "min", 8), False),
        (Limit("clip_frac", "expect", 0.1234), True),
        (Limit("clip_frac", "expect", 0.12, 0.0035), True),
        (Limit("clip_frac", "expect", 0.12, 0.0033), False),
        (Limit("clip_frac", "expect", 0.13, 0.0033), False),
        (Limit("n_tokens", "expect", 5, 2), True),
        (Limit("policy_loss", "max", -0.0124817), True),
        (Limit("policy_loss", "min", -0.01), False),
        (Limit("policy_loss_by_agg.token-sum", "max", 0.0), True),
        (Limit("overflow_float16", "max", 0), True),
    ],
)
def test_a_value_equal_to_its_limit_passes(limit: Limit, passes: bool) -> None:
    report = judged(document(), limit)
    assert report.checks[0].status == ("pass" if passes else "fail")
    assert report.exit_code == (0 if passes else 1)
    assert report.status == ("ok" if passes else "failed")
    assert bool(report.checks[0].reason) == (not passes)


@pytest.mark.parametrize("nonfinite", ["nan", "inf", "-inf", None])
@pytest.mark.parametrize("kind", ["max", "min", "expect"])
def test_null_fails_every_limit(kind: Any, nonfinite: Any) -> None:
    where = Place("rollouts.parquet", 1, 2)
    nulls = {"approx_kl_k3": NullNote("1 NaN in log_probs at valid tokens", nonfinite, where)}
    doc = document({"approx_kl_k3": None}, nulls=nulls)
    report = judged(doc, Limit("approx_kl_k3", kind, 0.0, 1e300 if kind == "expect" else 0.0))
    [check, _] = report.checks
    assert (check.status, check.value, check.where, report.exit_code) == ("fail", None, where, 1)
    assert check.reason.startswith(nonfinite or "null")
    assert "1 NaN in log_probs" in check.reason


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_no_document_may_hold_fail_as_well(value: float) -> None:
    limits = [
        Limit("clip_frac", "max", 1.0),
        Limit("clip_frac", "min", 0.0),
        Limit("clip_frac", "expect", 0.5, 1.0),
    ]
    failed = [judge(document({"clip_frac": value}), Gate(limits=(one,))).checks[0].status for one in limits]
    wanted = {"nan": ["fail"] * 3, "inf": ["fail", "pass", "fail"], "-inf": ["pass", "fail", "fail"]}
    assert failed == wanted[str(value)]


def test_a_missing_column_fails_and_is_named() -> None:
    names = (
        "entropy_mean",
        "explained_variance",
        "drift.diff_mean",
        "seq_clip_frac",
        "dual_clip_frac",
        "ess_frac",
    )
    report = judged(document(), *(Limit(name, "max", 1.0) for name in names))
    assert [one.status for one in report.checks[:-1]] == ["fail"] * 6
    assert [one.reason for one in report.checks[:-1]] == [
        "no column for entropy",
        "no column for returns",
        "no column for rollout_log_probs",
        "the input has no sequences",
        "not reported for this input",
        "not reported for this input",
    ]
    assert report.exit_code == 1


def test_the_finite_twin_is_the_metric_itself_where_all_values_are_finite() -> None:
    nulls = {"policy_loss": NullNote("2 NaN in advantages", "nan")}
    dirty = document({"policy_loss": None, "policy_loss_finite": 0.5}, nulls=nulls)
    twin, metric = Limit("policy_loss_finite", "max", 0.4), Limit("policy_loss", "max", 0.4)
    by_agg = Limit("policy_loss_by_agg_finite.token-mean", "max", -0.25)
    assert [one.status for one in judged(dirty, twin, metric).checks[:2]] == ["fail", "fail"]
    assert judged(dirty, twin).checks[0].value == 0.5
    clean = judged(document(), twin, by_agg)
    assert [(one.status, one.value) for one in clean.checks[:2]] == [("pass", -0.0124817), ("pass", -0.25)]


def test_drift_and_framework_names_are_found() -> None:
    doc = document()
    doc["drift"] = {"metrics": {"diff_mean": 0.25, "ess_frac": None, "mult_prob_error": 1.5},
                    "nulls": {"ess_frac": {"reason": "2 NaN"}}}  # fmt: skip
    doc["like"] = {"name": "verl", "metrics": {"actor/ppo_kl": 0.0012}}
    gate = Gate(
        limits=(
            Limit("drift.diff_mean", "max", 0.25),
            Limit("drift.ess_frac", "min", 0.0),
            Limit("drift.weight_max", "max", 9.0),
            Limit("actor/ppo_kl", "expect", 0.0012, 1e-9),
            Limit("actor/loss", "max", 1.0),
        )
    )
    report = judge(doc, gate)
    assert [one.status for one in report.checks[:-1]] == ["pass", "fail", "fail", "pass", "fail"]
    assert "2 NaN" in report.checks[1].reason


def test_nothing_valid_is_neither_a_pass_nor_a_failure() -> None:
    doc = reports.empty().to_dict()
    limits = (Limit("approx_kl_k3", "max", 0.05), Limit("n_tokens", "min", 1))
    report = judged(doc, *limits)
    assert [one.status for one in report.checks] == ["error", "fail", "pass"]
    assert (report.exit_code, report.status, report.checks[0].reason) == (5, "failed", "no valid token")
    assert judged(doc, exit_zero=True).exit_code == 5
    assert judged(doc).exit_code == 5
    allowed = judged(doc, limits[0], allow_empty=True)
    assert ([one.status for one in allowed.checks], allowed.exit_code) == (["skip", "pass"], 0)
    assert judged(doc, *limits, allow_empty=True).exit_code == 1


def test_exit_zero_changes_the_code_and_nothing_else() -> None:
    report = judged(document(), Limit("clip_frac", "max", 0.0), exit_zero=True)
    assert (report.exit_code, report.status, report.failed) == (0, "failed", True)


ERROR = Finding("PPO101", "error", 2, "2 NaN", "look", Place("rollouts.parquet", 1, 2))
WARNING = Finding("PPO102", "warning", 12, "12 ratios overflow float16", "train in float32")
INFO = Finding("PPO403", "info", 3, "3 log-probs above 0", "nothing to do")


@pytest.mark.parametrize(
    ("gate", "failed", "code"),
    [
        ({}, ["PPO101"], 1),
        ({"fail_on": "warning"}, ["PPO101", "PPO102"], 1),
        ({"ignore": ("PPO101",)}, [], 0),
        ({"ignore": ("PPO101",), "fail_on": "warning"}, ["PPO102"], 1),
        ({"select": ("PPO102",), "fail_on": "warning"}, ["PPO102"], 1),
        ({"select": ("PPO3",)}, [], 0),
        ({"select": ("PPO1",)}, ["PPO101"], 1),
    ],
)
def test_findings_are_judged_by_severity_and_code(gate: dict[str, Any], failed: list[str], code: int) -> None:
    report = judged(document(findings=(ERROR, WARNING, INFO)), **gate)
    assert [one.name for one in report.checks if one.status == "fail"] == failed
    assert report.exit_code == code
    # Whatever is judged, the findings stay in the document.
    assert [one["code"] for one in report.to_dict()["findings"]] == ["PPO101", "PPO102", "PPO403"]
    skipped = [one.name for one in report.checks if one.status == "skip"]
    assert skipped == (["PPO101"] if "PPO101" not in failed else [])


def test_findings_can_be_left_unjudged_but_limits_stay() -> None:
    report = judged(document(findings=(ERROR,)), Limit("clip_frac", "max", 1.0), fail_on="never")
    assert (statuses(report), report.exit_code) == ({"clip_frac <= 1": "pass"}, 0)


def test_without_limits_the_output_says_what_is_judged() -> None:
    assert judged(document()).gate["notes"] == ["no limit is given: only findings are judged"]
    assert statuses(judged(document())) == {"no finding of severity error": "pass"}
    assert judged(document(), Limit("clip_frac", "max", 1.0)).gate["notes"] == []


def several() -> Document:
    """Three files; the policy loss of the k-th is k / 8, null in the second, whose advantages hold a NaN."""
    return reports.several().to_dict()


def test_each_file_is_judged_and_the_failing_ones_are_named() -> None:
    report = judged(several(), Limit("policy_loss", "max", 0.125), by="file")
    got = [(one.key.get("file"), one.status, one.value) for one in report.checks[:-1]]
    assert got == [("a.parquet", "pass", 0.0), ("b.parquet", "fail", None), ("c.parquet", "fail", 0.25)]
    assert report.checks[-1].key == {}
    assert report.exit_code == 1


def test_a_file_without_a_valid_token_fails_where_files_are_judged() -> None:
    doc = several()
    doc["groups"][1] = {"key": {"file": "b.parquet"}, "metrics": {"n_tokens": 0, "policy_loss": None},
                        "nulls": {"policy_loss": {"reason": "no valid token"}}}  # fmt: skip
    limit = Limit("policy_loss", "max", 1.0)
    report = judge(doc, Gate(limits=(limit,), by="file"))
    assert [one.status for one in report.checks] == ["pass", "fail", "pass", "pass"]
    assert report.exit_code == 1
    allowed = judge(doc, Gate(limits=(limit,), by="file", allow_empty=True))
    assert [one.status for one in allowed.checks] == ["pass", "skip", "pass", "pass"]


def test_a_single_file_is_judged_under_its_name() -> None:
    [check, _] = judged(document(), Limit("clip_frac", "max", 1.0), by="file").checks
    assert check.key == {"file": "rollouts.parquet"}


def test_files_that_the_report_does_not_have_cannot_be_judged() -> None:
    doc = several()
    del doc["groups"]
    with pytest.raises(InputError, match="does not have the metrics of each file"):
        judge(doc, Gate(limits=(Limit("clip_frac", "max", 1.0),), by="file"))


ON_POLICY = {
    "log_ratio_abs_max": 0.0,
    "log_ratio_abs_mean": 0.0,
    "zero_log_ratio_frac": 1.0,
    "approx_kl_k1": 0.0,
}
OFF = {
    "log_ratio_abs_max": 0.3,
    "log_ratio_abs_mean": 0.1,
    "zero_log_ratio_frac": 1 / 7,
    "approx_kl_k1": 0.01,
}


def test_data_expected_on_policy() -> None:
    good = judged(document(ON_POLICY), expect_on_policy=True)
    assert statuses(good) == {"log_ratio_abs_max <= 1e-06": "pass", "no finding of severity error": "pass"}
    bad = judged(document(OFF), expect_on_policy=True)
    # One cause, one failure; the finding gives evidence and advice.
    assert [one.name for one in bad.checks if one.status == "fail"] == ["log_ratio_abs_max <= 1e-06"]
    [finding] = bad.document["findings"]
    assert (finding["code"], finding["severity"], finding["count"]) == ("PPO302", "error", 6)
    assert "0.3 at most and 0.1 on average, 6 of 7 tokens moved" in finding["message"]
    assert judged(document(OFF)).document["findings"] == []
    assert judged(document(OFF), expect_on_policy=True, on_policy_tol=0.3).exit_code == 0
    assert judged(document(OFF), expect_on_policy=True, fail_on="never").exit_code == 1


def test_not_knowing_whether_it_is_on_policy_fails() -> None:
    nulls = {"log_ratio_abs_max": NullNote("1 NaN in log_probs at valid tokens", "nan")}
    report = judged(document({"log_ratio_abs_max": None}, nulls=nulls), expect_on_policy=True)
    assert (report.checks[0].status, report.document["findings"], report.exit_code) == ("fail", [], 1)


@pytest.mark.parametrize(
    ("mean", "k1", "word"),
    [
        (3e-6, 3e-6, "float32 rounding"),
        (0.004, 0.0001, "bfloat16 noise"),
        (0.2, -0.01, "dropout"),
        (0.2, 0.19, "temperature"),
        (0.2, -0.19, "temperature"),
        (0.2, None, "dropout"),
    ],
)
def test_the_likely_cause_goes_by_size_and_direction(mean: float, k1: float | None, word: str) -> None:
    assert word in likely_cause({"log_ratio_abs_mean": mean, "approx_kl_k1": k1})


def test_a_baseline_is_compared_within_its_tolerances() -> None:
    base = document({"clip_frac": 0.1, "approx_kl_k3": 0.004})
    absolute = Tolerance("approx_kl_k3", 0.00012306, False, "0.00012306")
    for amount, passes in ((0.24, True), (0.23, False)):  # 0.1234 is 23.4 % above 0.1
        share = Tolerance("clip_frac", amount, True, f"{amount:.0%}")
        report = judged(document(), tolerances=(share, absolute), baseline=base)
        first, second = report.checks[:2]
        assert (first.status, first.limit, first.value) == ("pass" if passes else "fail", 0.1, 0.1234)
        assert first.name == f"clip_frac within {share.text} of the baseline"
        assert second.status == "pass"


@pytest.mark.parametrize("side", ["here", "baseline"])
def test_null_on_either_side_of_a_comparison_fails(side: str) -> None:
    null = document({"clip_frac": None}, nulls={"clip_frac": NullNote("1 NaN in log_probs", "nan")})
    tolerance = Tolerance("clip_frac", 9.0, False, "9")
    pair = (null, document()) if side == "here" else (document(), null)
    report = judged(pair[0], tolerances=(tolerance,), baseline=pair[1])
    assert report.checks[0].status == "fail"
    assert "1 NaN in log_probs" in report.checks[0].reason


def test_profiles_skip_what_has_no_column_but_never_pass_on_nothing() -> None:
    report = judged(document({"entropy_estimate": 0.5}), *profile_limits(["slime"]))
    assert [one.status for one in report.checks] == ["skip", "pass", "pass", "skip", "skip", "pass"]
    assert report.exit_code == 0
    report = judged(document(), *profile_limits(["verl"]))
    assert [one.status for one in report.checks] == ["skip"] * 3 + ["fail", "pass"]
    assert "none of its 3 limits could be judged: no column for rollout_log_probs" in report.checks[3].reason
    assert report.exit_code == 1


def test_profiles_fail_on_what_is_null() -> None:
    nulls = {"entropy_estimate": NullNote("1 NaN in log_probs", "nan")}
    report = judged(document({"entropy_estimate": None}, nulls=nulls), *profile_limits(["slime"]))
    assert [one.status for one in report.checks[:3]] == ["skip", "fail", "fail"]


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"clip_frac": 31.0}, "clip_frac is 31, not within 0 and 1"),
        ({"ess_frac": -0.1}, "ess_frac is -0.1, not within 0 and 1"),
        ({"approx_kl_k3": -1e-4}, "approx_kl_k3 is -0.0001, below 0"),
        ({"ref_kl_k2_finite": -1.0}, "ref_kl_k2_finite is -1, below 0"),
        ({"ratio_std": -0.5}, "ratio_std is -0.5, below 0"),
        ({"explained_variance": 1.5}, "explained_variance is 1.5, above 1"),
        (
            {"ratio_min": 0.5, "ratio_mean": 3.0, "ratio_max": 2.0},
            "ratio_mean is 3, not within ratio_min 0.5",
        ),
        ({"adv_min": -1.0, "adv_mean": -1.5, "adv_max": 2.0}, "adv_mean is -1.5"),
    ],
)
def test_what_no_data_can_give_is_an_error(metrics: dict[str, float], said: str) -> None:
    report = judge(document(metrics), Gate())
    [finding] = report.document["findings"]
    assert (finding["code"], finding["severity"], finding["count"]) == ("PPO106", "error", 1)
    assert said in finding["message"]
    assert report.exit_code == 1


def test_an_impossible_mismatch_is_an_error() -> None:
    doc = document()
    doc["drift"] = {"metrics": {"mult_prob_error": 0.98}, "nulls": {}}
    assert "mult_prob_error is 0.98, below 1" in judge(doc, Gate()).checks[0].reason


def test_what_rounding_can_give_is_none() -> None:
    edge = {"clip_frac": 1.0, "ess_frac": 1.0 + 1e-12, "ratio_min": 2.0, "ratio_mean": 2.0000000000000004}
    edge |= {"ratio_max": 2.0, "approx_kl_k3": 0.0, "explained_variance": -40.0}
    assert judge(document(edge), Gate()).document["findings"] == []


def test_the_first_group_that_breaks_a_limit_is_named() -> None:
    limits = (
        Limit("policy_loss", "max", 0.5),
        Limit("clip_frac", "max", 0.9),
        Limit("n_tokens", "max", 4099),
    )
    made = judge(reports.steps().to_dict(), Gate(limits=limits, by="step"))
    assert made.gate["first_failed"] == [
        {"check": "policy_loss <= 0.5", "key": {"step": 10}, "value": None, "n_failed": 3, "n_groups": 5},
        {"check": "n_tokens <= 4099", "key": {"step": None}, "value": 4100, "n_failed": 1, "n_groups": 5},
    ]


def test_where_nothing_is_judged_by_group_there_is_no_first() -> None:
    made = judge(reports.steps().to_dict(), Gate(limits=(Limit("policy_loss", "max", -1.0),)))
    assert made.gate["first_failed"] == []
