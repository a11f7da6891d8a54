from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ppocli.cli.app import main
from ppocli.engine.synth import PATHOLOGIES


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_list_has_a_line_for_each(run: Any) -> None:
    code, out, err = run("synth", "--list")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == list(PATHOLOGIES)
    assert lines[1] == "nan                  PPO101  three log-probs are NaN"
    assert max(map(len, lines)) <= 80


def test_what_was_written_is_said(run: Any) -> None:
    code, out, err = run("synth", "--pathology", "PPO502", "-o", "a b.parquet", "--seed", "4")
    assert (code, out) == (0, "")
    wrote, shows = err.splitlines()
    assert wrote.startswith("wrote a b.parquet: 64 sequences, ")
    assert wrote.endswith(" valid tokens")
    assert shows == "shows PPO502, the difference grows with the log-prob: ppocli drift 'a b.parquet'"
    assert run("synth", "-o", "healthy.parquet", "-q") == (0, "", "")
    assert sorted(one.name for one in Path().iterdir()) == ["a b.parquet", "healthy.parquet"]


def test_the_options_decide(run: Any) -> None:
    names = ("a", "b", "c", "d")
    for name, more in zip(
        names, ([], ["--seed", "0"], ["--seed", "1"], ["--sequences", "32", "--tokens", "40"]), strict=True
    ):
        assert run("synth", "-q", "-o", f"{name}.parquet", *more)[0] == 0
    a, b, c, d = (Path(f"{name}.parquet").read_bytes() for name in names)
    assert a == b
    assert a != c
    assert len(d) < len(a)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--pathology", "nan"], 2, "synth needs a file to write"),
        (["-o", "no/x.parquet"], 2, "there is no folder"),
        (["-o", "here.parquet"], 2, "--force overwrites it"),
        (["-o", "x.parquet", "--pathology", "idle-clup"], 2, "did you mean 'idle-clip'?"),
        (["-o", "x.parquet", "--pathology", "PPO106"], 2, "'PPO106' is not known"),
        (["-o", "x.parquet", "--sequences", "9"], 2, "--sequences is a whole number of at least 32, not 9"),
        (["-o", "x.parquet", "--tokens", "many"], 2, "'many' is not a whole number"),
        (["-o", "x.parquet", "--seed", "-3"], 2, "--seed is a whole number of at least 0, not -3"),
        (["x.parquet"], 2, "unexpected extra argument"),
    ],
)
def test_usage(run: Any, arguments: list[str], code: int, words: str) -> None:
    Path("here.parquet").write_bytes(b"mine")
    got, out, err = run("synth", *arguments)
    assert (got, out) == (code, "")
    assert words in err
    assert [one.name for one in Path().iterdir()] == ["here.parquet"]
    assert Path("here.parquet").read_bytes() == b"mine"


def test_a_pipe_gets_the_bytes_of_the_file(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["synth", "--pathology", "nan", "-o", "nan.parquet", "-q"]) == 0
    assert capfdbinary.readouterr() == (b"", b"")
    assert main(["synth", "--pathology", "nan", "-o", "-"]) == 0
    out, err = capfdbinary.readouterr()
    assert out == Path("nan.parquet").read_bytes()
    assert err.startswith(b"wrote to standard output: 64 sequences, ")
    assert [one.name for one in Path().iterdir()] == ["nan.parquet"]


def test_a_terminal_gets_no_parquet(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    code, out, err = run("synth", "-o", "-")
    assert (code, out) == (2, "")
    assert err.startswith("error: a Parquet file is not written to a terminal")
    assert not list(Path().iterdir())


def test_force_overwrites(run: Any) -> None:
    Path("x.parquet").write_bytes(b"mine")
    assert run("synth", "-o", "x.parquet", "--force", "-q")[0] == 0
    assert Path("x.parquet").read_bytes()[:4] == b"PAR1"
