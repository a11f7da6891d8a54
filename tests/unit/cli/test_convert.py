from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ppocli.cli.app import main

RECORD = {"log_probs": [-1.0], "old_log_probs": [-1.5], "advantages": 2.0, "note": "[bold]x\x1b[31m"}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("in.jsonl")
    path.write_text(json.dumps(RECORD) + "\n")
    return path


def test_what_was_written_is_said(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "in.jsonl", "-o", "out.parquet", "--verify"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("out.parquet  1 row, 1 token, ")
    assert "verified: equal to the inputs bit for bit" in " ".join(shown.out.split())
    assert "not written, for they play no role: note" in shown.out
    assert "advantages     float64  float64  row" in shown.out
    assert pq.read_table("out.parquet")["log_probs"].to_pylist() == [[-1.0]]
    assert main(["eval", "out.parquet", "-qq"]) == 0


def test_json_and_markdown(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "in.jsonl", "-o", "out.parquet", "-f", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["output"]["path"]) == ("convert", "out.parquet")
    assert document["output"]["verified"] is False
    assert document["inputs"][0]["rows"] == 1
    assert main(["convert", "in.jsonl", "-o", "out.parquet", "-f", "md", "--force"]) == 0
    assert "| log\\_probs | float64 | float64 | token |" in capsys.readouterr().out
    assert main(["convert", "in.jsonl", "-o", "out.parquet", "--force", "-qq"]) == 0
    assert capsys.readouterr().out == ""


def test_lines_for_machines(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("log_probs", "token"), ("old_log_probs", "token"), ("advantages", "row")]
    for form, mark in (("csv", ","), ("tsv", "\t")):
        assert main(["convert", "in.jsonl", "-o", "out.parquet", "-f", form, "--force"]) == 0
        lines = [line.split(mark) for line in capsys.readouterr().out.splitlines()]
        assert lines[0] == ["path", "column", "type", "origin", "per"]
        assert lines[1:] == [["out.parquet", role, "float64", "float64", per] for role, per in rows]
    assert main(["convert", "in.jsonl", "-o", "out.parquet", "-f", "jsonl", "--force"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["output"]["columns"]["advantages"]["per"] == "row"


def test_settings_come_from_a_file_and_from_variables(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ppocli.toml").write_text(
        'neglogp = ["log_probs"]\nformat = "csv"\n[columns]\nreturns = "note"\n[convert]\nverify = true\n'
        'format = "json"\n'
    )
    monkeypatch.setenv("PPOCLI_PROBS", "old_log_probs")
    source.write_text(json.dumps({**RECORD, "note": [7.0], "old_log_probs": [0.5]}) + "\n")
    assert main(["convert", "in.jsonl", "-o", "out.parquet"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["output"]["verified"] is True
    assert document["settings"] == {
        "columns": {"returns": "note"},
        "neglogp": ["log_probs"],
        "probs": ["old_log_probs"],
    }
    table = pq.read_table("out.parquet")
    assert table["log_probs"].to_pylist() == [[1.0]]
    assert table["old_log_probs"].to_pylist() == [[math.log(0.5)]]
    assert table["returns"].to_pylist() == [[7.0]]


def test_wrong_settings_name_their_place(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, said in (
        ('layout = "tim"', "--layout 'tim' is not known"),
        ('neglogp = "advantages"', "--neglogp: role 'advantages' is not known"),
        ('[convert]\nverify = "yes"', "[convert] verify: true or false, not the text 'yes'"),
        ('[convert]\noutput = "x"', "[convert] output: no such setting"),
        ('[convert]\nformat = "xml"', "--format 'xml' is not known"),
    ):
        Path("ppocli.toml").write_text(text)
        for command in (["convert", "in.jsonl", "-o", "out.parquet"], ["config", "show"]):
            assert main(command) == 2
            lines = capsys.readouterr().err.splitlines()
            assert said in lines[0]
            assert lines[1] == f"  --> ppocli.toml:{1 + text.count(chr(10))}"
    assert not Path("out.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["in.jsonl"], "missing option"),
        (["in.jsonl", "-o", "in.jsonl"], "exists"),
        (["in.jsonl", "-o", "in.jsonl", "--force"], "is an input"),
        (["in.jsonl", "-o", "no/x.parquet"], "there is no folder"),
        (["in.jsonl", "-o", "-"], "convert writes a file, not standard output"),
        (["in.jsonl", "-o", "x.parquet", "-f", "xml"], "--format 'xml' is not known"),
        (
            ["in.jsonl", "-o", "x.parquet", "--neglogp", "advantages"],
            "--neglogp: role 'advantages' is not known",
        ),
        (
            ["in.jsonl", "-o", "x.parquet", "--neglogp", "log_probs", "--probs", "log_probs"],
            "both name 'log_probs'",
        ),
    ],
)
def test_usage(source: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""


def test_input_errors(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "none.jsonl", "-o", "x.parquet"]) == 3
    assert main(["convert", "*.npz", "-o", "x.parquet"]) == 5
    Path("bad.jsonl").write_text("{")
    assert main(["convert", "bad.jsonl", "-o", "x.parquet"]) == 3
    assert not Path("x.parquet").exists()
    assert main(["convert"]) == 2
    capsys.readouterr()
