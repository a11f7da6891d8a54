from __future__ import annotations

import json
import math
from typing import Any

import pytest
import reports
from hypothesis import given
from hypothesis import strategies as st

from ppocli.render.console import Look
from ppocli.render.formats import eval_text
from ppocli.render.json import to_json, to_jsonl


def strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"bare {word}")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("name", reports.BY_NAME)
def test_document_survives_the_round_trip(name: str) -> None:
    made = reports.BY_NAME[name]()
    text = to_json(made.to_dict())
    document = strict(text)
    assert text.endswith("}\n")
    assert document["metrics"] == json.loads(json.dumps(made.to_dict()["metrics"]))
    assert list(document)[:6] == ["schema_version", "tool", "version", "kind", "status", "exit_code"]
    assert list(document)[-1] == "run"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_read_back_as_the_same_number_and_minus_zero_as_zero(value: float) -> None:
    back = strict(to_json({"x": value}))["x"]
    assert back == value
    assert math.copysign(1.0, back) == (1.0 if value == 0.0 else math.copysign(1.0, value))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_a_fault(value: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json({"metrics": {"x": value}})


def test_a_null_says_which_value_it_stands_for() -> None:
    document = strict(eval_text(reports.with_nulls(), "json", Look()))
    assert document["metrics"]["policy_loss"] is None
    assert document["nulls"]["policy_loss"] == {
        "reason": "2 NaN in advantages",
        "nonfinite": "nan",
        "where": {"path": "rollouts.parquet", "row": 1, "position": 2},
    }
    assert document["nulls"]["explained_variance"] == {"reason": "all returns are equal"}
    assert document["metrics"]["adv_min"] == 0.0
    assert "-0.0" not in to_json(reports.with_nulls().to_dict())


def test_names_are_unchanged_and_escaped_where_they_cannot_be_written() -> None:
    path = strict(to_json(reports.odd_names().to_dict()))["inputs"][0]["path"]
    assert path == reports.ODD_NAME
    assert "\x1b" not in to_json(reports.odd_names().to_dict())
    assert "ü" in to_json({"x": "ü"})
    assert to_json({"x": "ü"}, encoding="ascii") == '{\n  "x": "\\u00fc"\n}\n'
    assert strict(to_json({"x": "\udce9"}))["x"] == "\udce9"


def test_jsonl_has_a_line_for_each_file_and_the_total_last() -> None:
    made = reports.several()
    text = to_jsonl(made)
    assert text.endswith("}\n")
    lines = [strict(line) for line in text.splitlines()]
    assert [line["kind"] for line in lines] == ["file", "file", "file", "total"]
    assert [line.get("file") for line in lines] == ["a.parquet", "b.parquet", "c.parquet", None]
    assert lines[1]["metrics"]["policy_loss"] is None
    assert lines[1]["nulls"]["policy_loss"]["nonfinite"] == "nan"
    assert lines[2]["metrics"]["policy_loss"] == 0.25
    assert lines[3]["metrics"]["policy_loss"] == -0.0124817
    assert "groups" not in lines[3]
    assert {line["schema_version"] for line in lines} == {"1"}


def test_jsonl_of_one_file_is_one_line() -> None:
    assert [strict(line)["kind"] for line in to_jsonl(reports.report()).splitlines()] == ["total"]
