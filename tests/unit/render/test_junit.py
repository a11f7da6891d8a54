"""JUnit XML, read back by a parser that is not ours."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import checked
import pytest
import reports
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase

from ppocli.errors import EmptyInput, InputError
from ppocli.render.junit import failure_junit, to_junit


def parsed(text: str) -> dict[str, list[Any]]:
    """The suites by name, each with its cases; the counts of every element are checked."""
    assert text.endswith("\n")
    root = JUnitXml.fromstring(text.encode())
    suites = {suite.name: list(suite) for suite in root}
    for suite in root:
        counted = [
            (suite.tests, None),
            (suite.failures, Failure),
            (suite.errors, Error),
            (suite.skipped, Skipped),
        ]
        for said, kind in counted:
            assert said == sum(kind is None or isinstance(result_of(case), kind) for case in suite)
    assert root.tests == sum(len(cases) for cases in suites.values())
    assert root.failures == sum(suite.failures for suite in root)
    return suites


def result_of(case: TestCase) -> Any:
    return case.result[0] if case.result else None


def kinds(cases: list[Any]) -> dict[str, str]:
    return {case.name: type(result_of(case)).__name__ if case.result else "pass" for case in cases}


def test_each_check_is_a_case_and_results_are_told_apart() -> None:
    suites = parsed(to_junit(checked.mixed()))
    assert list(suites) == ["rollouts.parquet"]
    assert kinds(suites["rollouts.parquet"]) == {
        "read": "pass",
        "clip_frac <= 0.1": "Failure",
        "approx_kl_k3 <= 0.00412306": "pass",
        "entropy_mean >= 0.5": "Failure",
        "drift.diff_abs_mean <= 0.1": "Skipped",
        "entropy_estimate >= 0": "pass",
        "entropy_estimate <= 1": "pass",
        "entropy_mean >= 0": "Skipped",
        "entropy_mean <= 1": "Skipped",
        "PPO101": "Failure",
    }
    assert {case.classname for case in suites["rollouts.parquet"]} == {"ppocli.check"}


def test_a_failure_says_what_where_and_what_to_type() -> None:
    cases = {case.name: case for case in parsed(to_junit(checked.mixed()))["rollouts.parquet"]}
    limit = result_of(cases["clip_frac <= 0.1"])
    assert (limit.message, limit.type) == ("0.1234 is more than 0.1", "max")
    assert limit.text == "0.1234 is more than 0.1\nfrom --max\nhelp: ppocli explain clip_frac"
    finding = result_of(cases["PPO101"])
    assert (finding.message, finding.type) == ("2 NaN at valid tokens", "finding")
    assert "--> rollouts.parquet, row 1, position 2, token 1555" in finding.text
    assert "help: ppocli explain PPO101" in finding.text
    assert result_of(cases["entropy_mean >= 0"]).message == "no column for entropy"


def test_each_input_is_a_suite() -> None:
    suites = parsed(to_junit(checked.files()))
    assert list(suites) == ["total", "a.parquet", "b.parquet", "c.parquet"]
    assert [kinds(suites[name]).get("policy_loss <= 0.125") for name in suites] == [
        None,
        "pass",
        "Failure",
        "Failure",
    ]
    assert kinds(suites["total"]) == {"no finding of severity error": "pass"}


def test_nothing_valid_is_an_error_and_the_empty_inputs_are_skipped() -> None:
    from ppocli.core.limits import Limit

    suites = parsed(to_junit(checked.judged(reports.empty(), Limit("clip_frac", "max", 1.0))))
    assert kinds(suites["total"]) == {"clip_frac <= 1": "Error", "no finding of severity error": "pass"}
    reads = {name: result_of(suites[name][0]).message for name in ("none.parquet", "masked.npz")}
    assert reads == {
        "none.parquet": "no valid token: 0 rows",
        "masked.npz": "no valid token: 3 rows, 9 masked",
    }


def test_odd_names_are_shown_and_stay_xml() -> None:
    text = to_junit(checked.BY_NAME["odd"]())
    assert text.isprintable() or set(text) - {"\n"} <= set(filter(str.isprintable, text))
    assert r"[red]x[/red] \x1b[31m|ü\x0a.parquet" in parsed(text)
    assert ET.fromstring(text).tag == "testsuites"


@pytest.mark.parametrize(
    ("problem", "suite"),
    [
        (InputError("no Parquet file <a&b>", where="rank7.parquet\ncolumns: a", hint="do"), "rank7.parquet"),
        (EmptyInput("no file matches 'x*'"), "x*, y"),
    ],
)
def test_what_cannot_be_read_is_an_error(problem: Any, suite: str) -> None:
    suites = parsed(failure_junit(problem, ["x*", "y"]))
    [case] = suites[suite]
    assert isinstance(result_of(case), Error)
    assert (case.name, result_of(case).message, result_of(case).type) == (
        "read",
        problem.message,
        type(problem).__name__,
    )
    assert result_of(case).text == str(problem)
