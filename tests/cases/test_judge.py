"""The judge of the cases finds what is wrong, and passes what is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import judge

COMMAND = ["ppocli", "eval", "x", "-f", "json"]


def answered(tmp_path: Path, metrics: dict[str, Any], *, code: int = 0, err: str = "", **nulls: Any) -> Any:
    return judge.Answer(code, json.dumps({"metrics": metrics, "nulls": nulls}), err, tmp_path)


def run(**more: Any) -> dict[str, Any]:
    return {"command": COMMAND, "behaviour": {"exit": [0]}, **more}


@pytest.mark.parametrize(
    ("metrics", "wanted"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-10}),
        ({"a": 3}, {"a": 3}),
        ({"a": {"x": 1.0, "y": 2.0}}, {"a": {"x": 1.0}}),
    ],
)
def test_right_values_pass(tmp_path: Path, metrics: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert judge.faults(run(expected=wanted), answered(tmp_path, metrics)) == []


@pytest.mark.parametrize(
    ("metrics", "wanted"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-8}),
        ({"a": 3.0000001}, {"a": 3}),
        ({"a": None}, {"a": 1.0}),
        ({}, {"a": 1.0}),
        ({}, {"a": None}),
        ({"a": None}, {"a": None}),
        ({"a": None}, {"a": "Infinity"}),
        ({"a": 5.0}, {"a": "Infinity"}),
        ({"a": {"x": 2.0}}, {"a": {"x": 1.0}}),
        ({"a": True}, {"a": 1}),
    ],
)
def test_wrong_values_are_found(tmp_path: Path, metrics: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert judge.faults(run(expected=wanted), answered(tmp_path, metrics)) != []


def test_an_infinity_needs_its_kind(tmp_path: Path) -> None:
    wanted = run(expected={"a": "Infinity"})
    right = answered(tmp_path, {"a": None}, a={"reason": "overflow", "nonfinite": "inf"})
    wrong = answered(tmp_path, {"a": None}, a={"reason": "overflow", "nonfinite": "-inf"})
    assert judge.faults(wanted, right) == []
    assert judge.faults(wanted, wrong) != []


def test_other_definitions_are_accepted(tmp_path: Path) -> None:
    case = run(expected={"a": 1.0, "b": {"x": 1.0}}, also_accept={"a": [2.0], "b.x": 3.0})
    assert judge.faults(case, answered(tmp_path, {"a": 2.0, "b": {"x": 3.0}})) == []
    assert judge.faults(case, answered(tmp_path, {"a": 4.0, "b": {"x": 3.0}})) != []


@pytest.mark.parametrize(
    ("behaviour", "err", "code"),
    [
        ({"exit": [0]}, "", 3),
        ({"stderr_contains": ["mask"]}, "nothing", 0),
        ({"must_not_mention": ["mask"]}, "the MASK", 0),
        ({"output_contains": [["no", "such"]]}, "word", 0),
        ({"output_contains": ["re:row\\D{0,4}7"]}, "row 8", 0),
        ({"limits": {"stderr_lines": 1}}, "a\nb\n", 0),
        ({}, "Traceback (most recent call last)", 0),
        ({"must_not": ["gate_pass"]}, "", 0),
    ],
)
def test_wrong_behaviour_is_found(tmp_path: Path, behaviour: dict[str, Any], err: str, code: int) -> None:
    assert judge.faults(run(behaviour=behaviour), answered(tmp_path, {}, err=err, code=code)) != []


def test_bare_nan_is_not_json(tmp_path: Path) -> None:
    answer = judge.Answer(0, '{"metrics": {"a": NaN}}', "", tmp_path)
    assert any("strict" in one for one in judge.faults(run(), answer))
