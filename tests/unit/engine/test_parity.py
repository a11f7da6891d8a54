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
from ppocli.errors import UsageProblem


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


def batch_of_28(path: Path) -> Path:
    """28 valid tokens in four sequences padded to 16, with a value head."""
    rng = np.random.default_rng(7)
    lengths, T = np.array([12, 5, 3, 8]), 16
    m = (np.arange(T)[None] < lengths[:, None]).astype(float)
    old = np.where(m > 0, -rng.exponential(1.2, m.shape), 0.0)
    d = np.where(m > 0, rng.normal(0, 0.25, m.shape), 0.0)
    d[0, 3], d[1, 2], d[3, 1], d[3, 6] = 1.9, -1.6, 1.3, -0.9
    new = np.minimum(old + d * m, 0) * m
    roll = np.where(m > 0, np.minimum(old + rng.normal(0, 0.08, m.shape), 0), 0.0) * m
    values = rng.normal(0, 1, m.shape) * m
    returns = values + rng.normal(0, 0.5, m.shape) * m
    np.savez(
        path,
        log_probs=new,
        old_log_probs=old,
        rollout_log_probs=roll,
        advantages=np.array([1.2, -0.7, -1.4, 0.9])[:, None] * np.ones(m.shape),
        mask=m,
        values=values,
        returns=returns,
        old_values=values - rng.normal(0, 0.4, m.shape) * m,
    )
    return path


# Computed apart from ppocli, with the frameworks' formulas in NumPy, and rounded to the digits given.
TABLE = {
    "loss": {
        -0.5366: ("verl", "openrlhf", "skyrl", "trl", "open-instruct", "rlinf"),
        -0.0681: ("slime", "roll"),
    },
    "clip fraction": {
        0.2857: ("verl", "openrlhf", "skyrl", "areal", "rlinf", "trl"),
        0.3604: ("slime", "roll"),
        0.3929: ("spinup",),
        0.1719: ("torchrl",),
    },
    "approx KL": {
        0.0822: ("verl", "openrlhf", "rlinf"),
        -0.0822: ("areal",),
        0.1699: ("slime",),
        0.1210: ("roll",),
        0.0360: ("torchrl",),
        0.0959: ("sb3", "cleanrl", "prime-rl"),
    },
    "value loss": {0.1658: ("verl",), 0.2025: ("skyrl",), 0.4051: ("slime",)},
}


def test_one_batch_every_frameworks_number(tmp_path: Path) -> None:
    overrides = {"clip_low": 0.2, "clip_high": 0.28, "value_clip": 0.2}
    report = parity_files([str(batch_of_28(tmp_path / "b.npz"))], overrides)
    cells = {one.name: one.metrics for one in report.frameworks}
    for kind, rows in TABLE.items():
        for expected, names in rows.items():
            for name in names:
                got = cells[name][kind].value
                assert got == pytest.approx(expected, abs=5e-5), (kind, name)


@pytest.mark.parametrize(("name", "expected"), [("verl:gspo", 0.714), ("trl:gspo", 0.750)])
def test_tokens_and_sequences_vote_differently(tmp_path: Path, name: str, expected: float) -> None:
    overrides = {"clip_low": 3e-4, "clip_high": 4e-4}
    report = parity_files([str(batch_of_28(tmp_path / "b.npz"))], overrides, only=[name])
    assert report.frameworks[0].metrics["clip fraction"].value == pytest.approx(expected, abs=5e-4)


def grouped(tmp_path: Path) -> Path:
    """Two groups of sequences, with what the sampler reported."""
    rng = np.random.default_rng(4)
    old = -rng.exponential(1.0, (6, 20))
    path = tmp_path / "grouped.npz"
    np.savez(
        path,
        log_probs=old + rng.normal(0.0, 0.2, old.shape),
        old_log_probs=old,
        rollout_log_probs=old + rng.normal(0.0, 0.1, old.shape),
        advantages=rng.normal(0.0, 1.0, old.shape),
        group_id=np.array([0, 0, 0, 0, 1, 1]),
    )
    return path


@pytest.mark.parametrize("agg", ["group-mean", "token-mean"])
def test_no_variant_has_another_number_than_like(tmp_path: Path, agg: str) -> None:
    path = grouped(tmp_path)
    report = parity_files([str(path)], {"agg": agg}, variants=True)
    for one in report.frameworks:
        for cell in one.metrics.values():
            if cell.value is not None:
                like = ppocli.evaluate(path, like=one.name, agg=agg).like
                assert like is not None
                assert cell.value == like.metrics[cell.name], one.name


def test_a_framework_that_reads_another_column_says_so(tmp_path: Path) -> None:
    # verl's bypass mode takes the sampler's log-probs for the old ones.
    report = parity_files([str(grouped(tmp_path))], only=["verl:bypass_mode"])
    null = report.frameworks[0].metrics["loss"].null
    assert null is not None
    assert (
        null.reason == "takes old_log_probs from the column 'rollout_log_probs'; see --like verl:bypass_mode"
    )


def test_a_wrong_name_is_that_of_only(dump: Path) -> None:
    with pytest.raises(UsageProblem, match="--only 'veryl' is not known"):
        parity_files([str(dump)], only=["veryl"])
