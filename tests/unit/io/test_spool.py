"""Standard input, through the command: once per process there is one."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.core.chunk import ReadOptions
from ppocli.errors import EmptyInput, InputError, UsageProblem
from ppocli.io import spool
from ppocli.io.source import expand, open_input

COLUMNS = {"log_probs": [-1.0, -2.0], "old_log_probs": [-1.5, -2.5], "advantages": [1.0, 2.0]}


def as_bytes(kind: str) -> bytes:
    table, out = pa.table(COLUMNS), io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, out)
    elif kind == "npz":
        np.savez(out, **COLUMNS)
    elif kind == "jsonl":
        out.write(b"".join(json.dumps(one).encode() + b"\n" for one in table.to_pylist()))
    else:
        made = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with made(out, table.schema) as writer:
            writer.write_table(table)
    return out.getvalue()


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    spool._copy.cache_clear()


@pytest.mark.parametrize("kind", ["parquet", "npz", "jsonl", "stream", "file"])
def test_every_format_can_be_read_twice(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    feed(monkeypatch, as_bytes(kind))
    for _ in range(2):
        reader = open_input("-", ReadOptions(), {})
        assert reader.report.path == "-"
        assert reader.report.bytes == len(as_bytes(kind))
        (chunk,) = reader.chunks(("log_probs",), 100)
        assert chunk.columns["log_probs"].values.tolist() == [-1.0, -2.0]
        reader.close()


def test_the_copy_has_no_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    feed(monkeypatch, b"x" * 100)
    copy = Path(spool.local("-"))
    assert copy.read_bytes() == b"x" * 100
    if copy.is_relative_to("/proc"):
        assert list(tmp_path.iterdir()) == []
    assert spool.local("-") == str(copy)
    assert spool.local("other") == "other"


def test_nothing_and_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, b"")
    with pytest.raises(InputError, match="standard input is empty") as caught:
        open_input("-", ReadOptions(), {})
    assert caught.value.where == "-"
    feed(monkeypatch, b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(UsageProblem, match="terminal"):
        spool.local("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageProblem, match="closed"):
        spool.local("-")


def test_no_room_for_the_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    feed(monkeypatch, b"x")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(InputError, match="cannot be copied") as caught:
        spool.local("-")
    assert "TMPDIR" in str(caught.value.hint)


def test_a_dash_is_standard_input_whatever_files_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert expand(["-"]) == (("-",), ())
    files, skipped = expand(["-", "-"])
    assert files == ("-",)
    assert skipped[0].reason == "same file as '-'"
    Path("-").write_bytes(b"x")
    assert expand(["./-"])[0] == ("./-",)


def test_lines_and_arrays_have_to_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run/a.jsonl", "run/b.npy", "run/c.arrow", "run/d.parquet", "run/metrics.jsonl"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(b"x")
    assert expand(["run"])[0] == ("run/c.arrow", "run/d.parquet")
    assert expand(["run/*"])[0] == ("run/c.arrow", "run/d.parquet")
    assert expand(["run/*.jsonl"])[0] == ("run/a.jsonl", "run/metrics.jsonl")
    assert expand(["run/a*.jsonl"])[0] == ("run/a.jsonl",)
    assert expand(["run/?.npy"])[0] == ("run/b.npy",)
    Path("run/c.arrow").unlink()
    Path("run/d.parquet").unlink()
    with pytest.raises(EmptyInput) as caught:
        expand(["run"])
    assert "for example 'run/*.jsonl'" in str(caught.value.hint)
