"""`parity`: its cells against `evaluate(like=...)`, what it cannot compute, and its outputs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import ppocli
from ppocli.cli.app import main
from ppocli.core.parity_report import KINDS
from ppocli.core.presets import all_presets
from ppocli.core.schema import document_schema
from ppocli.engine.parity import parity_files


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    B, T = 6, 20
    old = -rng.exponential(1.0, (B, T))
    path = tmp_path / "dump.npz"
    np.savez(
        path,
        log_probs=old + rng.normal(0.0, 0.2, (B, T)),
        old_log_probs=old,
        advantages=rng.normal(0.0, 1.0, (B, T)),
        mask=(np.arange(T) < rng.integers(5, T, (B, 1))).astype(np.uint8),
    )
    return path


def test_every_cell_is_what_like_gives(dump: Path) -> None:
    overrides: dict[str, Any] = {"clip_low": 0.15, "clip_high": 0.25}
    report = parity_files([str(dump)], overrides)
    assert [one.name for one in report.frameworks] == [p.name for p in all_presets() if ":" not in p.name]
    for one in report.frameworks:
        for cell in one.metrics.values():
            if cell.value is not None:
                like = ppocli.evaluate(dump, like=one.name, **overrides).like
                assert like is not None
                assert cell.value == like.metrics[cell.name], one.name
                assert cell.definition == like.definitions[cell.name]


def test_a_number_that_cannot_be_had_says_why(dump: Path) -> None:
    report = parity_files([str(dump)], only=["verl"])
    cell = report.frameworks[0].metrics["value loss"]
    assert cell.value is None
    assert cell.null is not None
    assert cell.null.reason.startswith("no column for values, returns")


def test_the_spread_is_that_of_the_values(dump: Path) -> None:
    report = parity_files([str(dump)], only=["verl", "sb3"])
    values = [one.metrics["approx KL"].value for one in report.frameworks]
    assert report.spread()["approx KL"] == {"min": min(values), "max": max(values), "n": 2}
    assert "value loss" not in report.spread()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["parity", *arguments, "-q"])
    out, err = capsys.readouterr()
    return code, out, err


def test_outputs_say_the_same(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (str(dump), "--only", "verl", "--only", "sb3")
    document = json.loads(run(capsys, *arguments, "-f", "json")[1])
    Draft202012Validator(document_schema()).validate(document)
    rows = list(csv.DictReader(run(capsys, *arguments, "-f", "csv")[1].splitlines()))
    screen = run(capsys, *arguments, "--digits", "9")[1]
    cells = {
        (one["name"], kind): cell for one in document["frameworks"] for kind, cell in one["metrics"].items()
    }
    assert {(row["framework"], row["quantity"]) for row in rows} == cells.keys()
    for row in rows:
        cell = cells[row["framework"], row["quantity"]]
        assert row["value"] == ("" if cell["value"] is None else repr(cell["value"]))
        assert row["reason"] == cell.get("reason", "")
        assert cell["value"] is None or cell["name"] in screen
    for kind in KINDS[:3]:
        values = [cells[name, kind]["value"] for name in ("verl", "sb3")]
        positions = [screen.index(f"{value:.9g}"[:9]) for value in sorted(values)]
        assert positions == sorted(positions)


def test_usage(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, str(dump), "--only", "verll")
    assert (code, "did you mean 'verl'" in err) == (2, True)
    code, _, err = run(capsys, str(dump), "--like", "verl")
    assert (code, "--only verl" in err) == (2, True)


def test_nothing_to_compare_is_exit_code_5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.npz"
    one = np.zeros((1, 2))
    np.savez(path, log_probs=one, old_log_probs=one, advantages=one, mask=np.zeros((1, 2), np.uint8))
    assert run(capsys, str(path), "-f", "json")[0] == 5
