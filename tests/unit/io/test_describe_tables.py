from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator

from ppocli.cli.app import main
from ppocli.core.chunk import ReadOptions
from ppocli.core.schema import document_schema
from ppocli.engine.inspect import inspect_files
from ppocli.errors import InputError

if TYPE_CHECKING:
    from ppocli.core.inspect_report import InspectedFile

COLUMNS = {
    "log_probs": [[-1.0, -2.0], [-3.0]],
    "old_log_probs": [[-1.0, -2.5], [-3.0]],
    "adv": [1.0, -1.0],
    "text": ["a", "b"],
}
MASK = {"loss_mask": [[1, 0], [1]]}


def look(path: Path, **options: Any) -> InspectedFile:
    scan = options.pop("scan", False)
    report = inspect_files([str(path)], ReadOptions(**options), scan=scan)
    Draft202012Validator(document_schema()).validate(json.loads(json.dumps(report.to_dict())))
    return report.files[0]


def write(folder: Path, kind: str, columns: dict[str, Any] | None = None) -> Path:
    path = folder / f"f.{kind}"
    table = pa.table({**COLUMNS, **MASK} if columns is None else columns)
    if kind == "jsonl":
        path.write_text("".join(json.dumps(one) + "\n" for one in table.to_pylist()))
        return path
    made = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, made(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    return path


@pytest.mark.parametrize("kind", ["stream", "file", "jsonl"])
def test_tables(tmp_path: Path, kind: str) -> None:
    found = look(write(tmp_path, kind))
    assert found.format == ("jsonl" if kind == "jsonl" else "arrow")
    assert found.version == (None if kind == "jsonl" else kind)
    assert found.rows == (None if kind == "jsonl" else 2)
    assert found.parts == (1 if kind == "jsonl" else 2)
    assert (found.layout, found.ready) == ("list", True)
    columns = {one.name: one for one in found.columns}
    assert list(columns) == ["log_probs", "old_log_probs", "adv", "text", "loss_mask"]
    assert columns["log_probs"].type == "list<float64>"
    assert (columns["adv"].role, columns["adv"].found_by) == ("advantages", "alias")
    assert columns["text"].role is None
    assert columns["text"].bytes is None
    assert "advantages: column 'adv'" in found.notes
    assert found.plan is not None
    assert set(found.plan.columns) == {"log_probs", "old_log_probs", "adv", "loss_mask"}
    assert found.plan.memory > 200_000_000


@pytest.mark.parametrize("kind", ["stream", "jsonl"])
def test_a_scan_counts(tmp_path: Path, kind: str) -> None:
    found = look(write(tmp_path, kind), scan=True)
    assert found.rows == 2
    assert found.scan is not None
    assert (found.scan.tokens, found.scan.masked, found.scan.longest_row) == (2, 1, 2)
    assert found.scan.columns["old_log_probs"].min == -3.0


def test_a_scan_of_flat_lines_counts_rows(tmp_path: Path) -> None:
    columns = {"old_log_probs": [-1.0, -2.0, -3.0]}
    found = look(write(tmp_path, "jsonl", columns), scan=True)
    assert (found.layout, found.rows) == ("flat", 3)


@pytest.mark.parametrize("kind", ["file", "jsonl"])
def test_what_eval_would_refuse_is_described(tmp_path: Path, kind: str) -> None:
    found = look(
        write(
            tmp_path, kind, {"prev_logprobs": [[-1.0]], "generation_logprobs": [[-1.0]], "advantages": [1.0]}
        )
    )
    assert found.missing == ("log_probs",)
    assert "current policy" in str(found.problem)
    assert "ppocli drift" in found.advice
    assert {one.role for one in found.columns} == {"old_log_probs", "rollout_log_probs", "advantages"}
    assert found.plan is not None


def test_npy(tmp_path: Path) -> None:
    path = tmp_path / "r.npy"
    np.save(
        path,
        np.zeros(5, [("log_probs", "f4", (3,)), ("old_log_probs", "f8", (3,)), ("adv", "f4"), ("x", "S2")]),
    )
    found = look(path, scan=True)
    assert (found.format, found.rows, found.parts, found.layout) == ("npy", 5, 4, "padded")
    assert found.ready
    assert [(one.name, one.shape, one.bytes) for one in found.columns] == [
        ("log_probs", (5, 3), 60),
        ("old_log_probs", (5, 3), 120),
        ("adv", (5,), 20),
        ("x", (5,), 10),
    ]
    assert found.plan is not None
    assert found.plan.batch_bytes == 15 * (4 + 8 + 4)
    assert found.scan is not None
    assert found.scan.tokens == 15
    np.save(path, np.zeros(5, [("a", "f4")]))
    found = look(path)
    assert not found.ready
    assert found.layout is None


@pytest.mark.parametrize("kind", ["stream", "file", "jsonl"])
def test_the_screen(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, kind)
    assert main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    name = {"stream": "Arrow stream", "file": "Arrow file", "jsonl": "JSON Lines"}[kind]
    assert f"f.{kind}  {name}, " in shown
    assert ("2 record batches" in shown) == (kind != "jsonl")
    assert "ready: ppocli eval" in shown
    assert main(["inspect", str(path), str(write(tmp_path, "arrow"))]) == 0
    assert "2 files" in capsys.readouterr().out


def test_damage_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "stream")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="cut or damaged"):
        look(path)
