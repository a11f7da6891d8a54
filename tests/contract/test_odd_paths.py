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


@pytest.mark.parametrize("command", ["eval", "inspect", "check"])
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
            r"error: no rollout file in 'a\x0ab'",
            r"  --> a\x0ab",
            r"help: 'a\x0ab' holds 'c\x0ad.txt'",
        ],
    )
    assert said("eval", "a\nb/*.npz")[1][-1] == r"help: 'a\x0ab' holds 'c\x0ad.txt'"


def test_files_that_have_to_be_named(said: Any) -> None:
    Path("a\nb").mkdir()
    Path("a\nb/c.jsonl").touch()
    assert said("eval", "a\nb")[1][-1] == (
        r"help: 'a\x0ab' holds 'c.jsonl'; .jsonl files have to be named, for example 'a\x0ab/*.jsonl'"
    )


def test_the_command_that_recovers_a_cut_file(said: Any) -> None:
    Path("x\ny.jsonl").write_text('{"log_probs": -1.0}\n{"log_pro')
    assert said("eval", "x\ny.jsonl")[1][-1].endswith(
        r"ppocli convert --recover $'x\ny.jsonl' -o recovered.parquet"
    )
    batch = pa.record_batch({"log_probs": [-1.0] * 1000})
    with pa.ipc.new_stream("x\ny.arrows", batch.schema) as writer:
        writer.write_batch(batch)
    data = Path("x\ny.arrows").read_bytes()
    Path("x\ny.arrows").write_bytes(data[: len(data) // 2])
    assert said("convert", "x\ny.arrows", "-o", "z.parquet")[1][-1].endswith(
        r"ppocli convert --recover $'x\ny.arrows' -o recovered.parquet"
    )


def test_nothing_to_convert(said: Any) -> None:
    write("x\ny.parquet", "no\nrole")
    code, lines = said("convert", "x\ny.parquet", "-o", "z.parquet")
    assert code == 3
    assert lines[1:3] == [r"  --> x\x0ay.parquet", r"      columns: no\x0arole"]


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
    assert r"help: ppocli drift $'x\ny.parquet'  (compares the two policies)" in lines
    ratio = "--col log_probs=old_log_probs --col old_log_probs=rollout_log_probs"
    assert rf"      ppocli eval $'x\ny.parquet' {ratio}  (ratio of the two, against the sampler)" in lines


def test_the_command_that_inspect_names(said: Any, capsys: pytest.CaptureFixture[str]) -> None:
    write("x\ny.parquet", "log_probs", "old_log_probs", "advantages")
    assert main(["inspect", "x\ny.parquet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert r"ready: ppocli eval $'x\ny.parquet'" in lines
