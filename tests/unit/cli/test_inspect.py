from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import inspected
import numpy as np
import pytest

from ppocli.core.report import Skipped
from ppocli.errors import InputError


class Engine:
    """Stands for the engine: remembers how it was called, returns a report or raises."""

    def __init__(self) -> None:
        self.answer: Any = inspected.report()
        self.calls: list[dict[str, Any]] = []

    def inspect_files(self, paths: list[str], options: Any, **keywords: Any) -> Any:
        self.calls.append({"paths": paths, "options": options, **keywords})
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    module = types.ModuleType("ppocli.engine.inspect")
    module.inspect_files = made.inspect_files  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ppocli.engine.inspect", module)
    for name in ("NO_COLOR", "FORCE_COLOR", "PPOCLI_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.mark.parametrize("name", ["table", "json", "jsonl", "csv", "tsv", "md"])
def test_every_format_ends_with_a_newline_and_says_nothing_else(run: Any, name: str) -> None:
    code, out, err = run("inspect", "x", "-f", name)
    assert (code, err) == (0, "")
    assert out.endswith("\n")
    assert not out.endswith("\n\n")


def test_table_is_the_default(run: Any) -> None:
    assert run("inspect", "x")[1] == run("inspect", "x", "-f", "table")[1]
    assert run("inspect", "x")[1].startswith("rollouts.parquet  Parquet 2.6")


def test_options_reach_the_engine(engine: Engine, run: Any) -> None:
    run("inspect", "a", "b")
    options = ("--col", "log_probs=x", "--layout", "time", "--sum-dims", "--bits", "values")
    run("inspect", "c", *options, "--scan", "--skip-bad")
    first, second = engine.calls
    assert (first["paths"], first["scan"], first["skip_bad"]) == (["a", "b"], False, False)
    assert (second["paths"], second["scan"], second["skip_bad"]) == (["c"], True, True)
    reading = second["options"]
    assert (dict(reading.columns), reading.layout, reading.sum_dims) == ({"log_probs": "x"}, "time", True)
    assert reading.bits == {"values"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["x", "-f", "xml"],
        ["x", "--col", "logprob=x"],
        ["x", "--layout", "rows"],
        ["x", "--digits", "0"],
        ["x", "--progress", "no"],
        ["x", "--export", "a.xml"],
        ["x", "--worst", "3"],
        ["x", "--allow-empty"],
        [],
    ],
)
def test_usage_errors_are_found_before_anything_is_read(
    engine: Engine, run: Any, arguments: list[str]
) -> None:
    code, out, err = run("inspect", *arguments)
    assert (code, out) == (2, "")
    assert err
    assert engine.calls == []


def test_digits_change_tables_and_never_data(run: Any) -> None:
    assert "  -38 " in run("inspect", "x", "--digits", "2")[1]
    assert ",-38.125," in run("inspect", "x", "--digits", "2", "-f", "csv")[1]


def test_output_and_exports(run: Any, tmp_path: Path) -> None:
    target, export = tmp_path / "a.txt", tmp_path / "a.json"
    code, out, err = run("inspect", "x", "-o", str(target), "--export", str(export))
    assert (code, out, err) == (0, "", "")
    assert target.read_text().startswith("rollouts.parquet")
    assert json.loads(export.read_text())["kind"] == "inspect"
    assert run("inspect", "x", "-o", str(target))[0] == 2
    assert run("inspect", "x", "-o", str(target), "--force")[0] == 0


def test_skipped_files_are_said_unless_quiet(engine: Engine, run: Any) -> None:
    engine.answer = inspected.report(skipped=(Skipped("a\n", "cut"), Skipped("b", "cut")))
    line = "warning: 2 files skipped; the first: a\\x0a: cut\n"
    assert run("inspect", "x", "--skip-bad")[2] == line
    assert run("inspect", "x")[2] == ""
    code, out, err = run("inspect", "x", "--skip-bad", "-q")
    assert (code, err) == (0, "")
    assert "skipped 2 files: " in out
    assert run("inspect", "x", "--skip-bad", "-qq") == (0, "", "")


def test_color(run: Any) -> None:
    assert "\x1b[" in run("inspect", "x", "--color", "always")[1]
    assert "\x1b" not in run("inspect", "x", "--color", "never")[1]


def test_the_bar_is_taken_away_when_the_run_fails(
    engine: Engine, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    class Bar:
        def finish(self) -> None:
            ended.append(True)

    monkeypatch.setattr("ppocli.cli.inspect.progress_for", lambda *_, **__: Bar())
    engine.answer = InputError("cut", where="x")
    assert run("inspect", "x")[0] == 3
    assert ended == [True]
    assert isinstance(engine.calls[0]["progress"], Bar)


def test_with_the_real_engine(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ppocli.engine.inspect")
    path = tmp_path / "a.npz"
    np.savez(path, log_probs=np.array([-1.0, -2.0]), old_log_probs=np.zeros(2), advantages=np.ones(2))
    code, out, err = run("inspect", str(path), "-f", "json", "--scan")
    assert (code, err) == (0, "")
    (one,) = json.loads(out)["files"]
    assert one["scan"]["columns"]["log_probs"]["min"] == -2.0
    path.write_bytes(path.read_bytes()[:-30])
    code, out, err = run("inspect", str(path))
    assert (code, out) == (3, "")
    assert err.startswith("error: the NPZ file is truncated or damaged")
    assert f"--> {path}" in err
    assert run("inspect", str(tmp_path / "nothing.npz"))[0] == 3
    assert run("inspect", str(tmp_path / "*.parquet"))[0] == 5
