"""Line breaks in the names of files and columns: every message keeps to its lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.cli.app import main


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line in an empty folder: exit code and the lines of standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, list[str]]:
        code = main(list(arguments))
        return code, capsys.readouterr().err.splitlines()

    return call


def write(path: str, *names: str) -> None:
    pq.write_table(pa.table({name: [-1.0] for name in names}), path)


@pytest.mark.parametrize("command", ["eval", "inspect"])
def test_near_names_of_a_missing_file(said: Any, command: str) -> None:
    Path("day\none.parquet").touch()
    assert said(command, "day\none.parket") == (
        3,
        [
            "error: no such file",
            r"  --> day\x0aone.parket",
            r"help: did you mean 'day\x0aone.parquet'?",
        ],
    )
    assert said(command, "no\nfolder/x.parquet")[1][1:] == [
        r"  --> no\x0afolder/x.parquet",
        r"help: the folder 'no\x0afolder' does not exist either",
    ]


def test_what_a_folder_holds(said: Any) -> None:
    Path("a\nb").mkdir()
    Path("a\nb/c\nd.txt").touch()
    assert said("eval", "a\nb") == (
        5,
        [
            r"error: no Parquet or NPZ file in 'a\x0ab'",
            r"  --> a\x0ab",
            r"help: 'a\x0ab' holds 'c\x0ad.txt'",
        ],
    )
    assert said("eval", "a\nb/*.npz")[1][-1] == r"help: 'a\x0ab' holds 'c\x0ad.txt'"


def test_columns_of_a_file(said: Any) -> None:
    write("x\ny.parquet", "old\nlog_probs", "log_probs", "advantages")
    code, lines = said("eval", "x\ny.parquet")
    assert code == 3
    assert lines[1] == r"  --> x\x0ay.parquet"
    assert lines[2].startswith(r"      columns: old\x0alog_probs float64, ")
    assert [line for line in lines if not line.startswith(("error: ", "  --> ", "      ", "help: "))] == []
    code, lines = said("eval", "x\ny.parquet", "--col", "old_log_probs=old\nlogprobs")
    assert lines[-1] == (r"help: did you mean 'old\x0alog_probs'?  --col $'old_log_probs=old\nlog_probs'")


def test_the_command_to_type(said: Any) -> None:
    write("x\ny.parquet", "old_log_probs", "rollout_log_probs", "advantages")
    code, lines = said("eval", "x\ny.parquet")
    assert code == 3
    assert r"help: ppocli drift $'x\ny.parquet'  (compares the two)" in lines


def test_the_command_that_inspect_names(said: Any, capsys: pytest.CaptureFixture[str]) -> None:
    write("x\ny.parquet", "log_probs", "old_log_probs", "advantages")
    assert main(["inspect", "x\ny.parquet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert r"ready: ppocli eval $'x\ny.parquet'" in lines
