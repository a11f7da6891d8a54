from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

import ppocli
from ppocli.core.chunk import ReadOptions
from ppocli.core.schema import document_schema
from ppocli.engine.convert import convert_files
from ppocli.errors import InputError
from ppocli.io.canonical import Canonical

if TYPE_CHECKING:
    from ppocli.core.convert_report import ConvertReport

ROOT = Path(__file__).parents[3]
SAMPLES = sorted((ROOT / "sample_data").glob("*.*[tz]"))
FLOATS = ("log_probs", "old_log_probs", "advantages")


def convert(*paths: Path, out: Path, **more: Any) -> ConvertReport:
    options = ReadOptions(**{key: more.pop(key) for key in list(more) if key in ReadOptions.__slots__})
    report = convert_files(
        [str(path) for path in paths], str(out), options, verify=more.pop("verify", True), **more
    )
    Draft202012Validator(document_schema()).validate(json.loads(json.dumps(report.to_dict())))
    assert [one.name for one in out.parent.iterdir() if one.name.startswith(".")] == []
    return report


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.parquet"


def jsonl(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def comparable(report: ppocli.EvalReport) -> dict[str, Any]:
    document = report.to_dict()
    for note in document["nulls"].values():
        note.pop("where", None)
    return {key: document[key] for key in ("metrics", "nulls")}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_samples_evaluate_to_the_same_bits(path: Path, out: Path) -> None:
    report = convert(path, out=out)
    assert report.verified
    before, after = ppocli.evaluate(path), ppocli.evaluate(out)
    assert comparable(before) == comparable(after)
    assert report.tokens == before.metrics["n_tokens"] + before.metrics["n_masked"]
    meta = pq.ParquetFile(out)
    assert {meta.metadata.row_group(0).column(i).compression for i in range(meta.metadata.num_columns)} == {
        "ZSTD"
    }


def test_lines_become_rows(tmp_path: Path, out: Path) -> None:
    record = {
        "new_logp": [-1.0, None],
        "old_logp": [-1.5, -2.0],
        "adv": 0.5,
        "uid": "b",
        "text": "x",
        "mask": [1, 0],
    }
    report = convert(jsonl(tmp_path / "a.jsonl", record, {**record, "uid": None, "adv": None}), out=out)
    table = pq.read_table(out)
    assert table.to_pydict() == {
        "log_probs": [[-1.0, None], [-1.0, None]],
        "old_log_probs": [[-1.5, -2.0]] * 2,
        "advantages": [0.5, None],
        "mask": [[True, False]] * 2,
        "group_id": ["b", None],
    }
    assert report.left_out == ("text",)
    assert report.columns["advantages"].per == "row"
    assert (report.rows, report.tokens, report.layout) == (2, 4, "list")
    assert report.to_dict()["inputs"][0]["columns"]["advantages"] == {"column": "adv", "dtype": "float64"}


def test_log_probs_that_are_all_null_are_written_one_per_token(tmp_path: Path, out: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"log_probs": None, "old_log_probs": [-1.0, -2.0], "advantages": 0.5})
    report = convert(path, out=out)
    assert report.verified
    assert pq.read_table(out)["log_probs"].to_pylist() == [[None, None]]
    assert comparable(ppocli.evaluate(out)) == comparable(ppocli.evaluate(path))


def test_packed_steps_flat_and_every_float(tmp_path: Path, out: Path) -> None:
    packed = {"log_probs": [[-1.0, -2.0, -3.0]], "sequence_id": [[7, 7, 8]]}
    pq.write_table(pa.table({**packed, "old_log_probs": packed["log_probs"]}), tmp_path / "p")
    assert convert(tmp_path / "p", out=out).rows == 1
    assert pq.read_table(out)["sequence_id"].to_pylist() == [[7, 7, 8]]
    steps = pa.table({"old_log_probs": [[[-1.0], [-2.0, -3.0]], []], "rewards": [[1.0, 2.0], []]})
    pq.write_table(steps, tmp_path / "s")
    convert(tmp_path / "s", out=out, overwrite=True)
    assert pq.read_table(out).to_pydict() == {
        "old_log_probs": [[-1.0, -2.0, -3.0], []],
        "rewards": [[1.0, 2.0, 2.0], []],
    }
    big = 2**63 + 5
    np.savez(
        tmp_path / "f.npz",
        log_probs=np.array([-0.1, np.nan], ml_dtypes.bfloat16),
        old_log_probs=np.array([-0.1, -np.inf], np.float16),
        advantages=np.array([3, -4]),
        sequence_id=np.array([big, 1], np.uint64),
    )
    report = convert(tmp_path / "f.npz", out=out, overwrite=True)
    table = pq.read_table(out)
    assert report.layout == "flat"
    assert table["sequence_id"].to_pylist() == [big, 1]
    assert table["advantages"].to_pylist() == [3.0, -4.0]
    assert table.schema.types == [pa.float32(), pa.float32(), pa.float64(), pa.uint64()]
    assert table["log_probs"][0].as_py() == float(ml_dtypes.bfloat16(-0.1))
    assert report.columns["log_probs"].origin == "bfloat16"


def test_what_options_do_is_written(tmp_path: Path, out: Path) -> None:
    pairs = np.array([[0.5, 0.25]])
    np.savez(tmp_path / "f.npz", log_probs=-pairs, action_prob=pairs, advantages=np.ones(1))
    options: dict[str, Any] = {"probs": frozenset({"old_log_probs"}), "sum_dims": True}
    report = convert(tmp_path / "f.npz", out=out, **options)
    assert report.verified
    assert pq.read_table(out)["old_log_probs"].to_pylist() == [pytest.approx(np.log(0.125), abs=1e-15)]
    assert pq.read_table(out)["log_probs"].to_pylist() == [-0.75]


def test_several_sources(tmp_path: Path, out: Path) -> None:
    rows = np.zeros((2, 3), np.float32)
    np.savez(tmp_path / "1.npz", log_probs=rows - 1, old_log_probs=rows - 1, advantages=np.ones((2, 3)))
    record = {"log_probs": [-2.0], "old_log_probs": [-2.0], "advantages": 0.25, "mask": [0]}
    jsonl(tmp_path / "2.jsonl", record)
    report = convert(tmp_path / "1.npz", tmp_path / "2.jsonl", out=out)
    table = pq.read_table(out)
    assert table["log_probs"].to_pylist() == [[-1.0] * 3, [-1.0] * 3, [-2.0]]
    assert table["log_probs"].type == pa.list_(pa.float64())
    assert table["advantages"].to_pylist() == [[1.0] * 3, [1.0] * 3, [0.25]]
    assert table["mask"].to_pylist() == [[True] * 3, [True] * 3, [False]]
    assert report.columns["log_probs"].origin == "float32, float64"
    assert [one.rows for one in report.inputs] == [2, 1]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"log_probs": [-1.0], "old_log_probs": [-1.0]}, "has other columns"),
        ({"log_probs": -1.0, "old_log_probs": -1.0, "advantages": 1.0, "group_id": 1}, "rows are tokens"),
        (
            {"log_probs": [-1.0], "old_log_probs": [-1.0], "advantages": 1.0, "group_id": "a"},
            "'group_id' has another type",
        ),
    ],
)
def test_sources_that_do_not_go_together(
    tmp_path: Path, out: Path, second: dict[str, Any], words: str
) -> None:
    first = {"log_probs": [-1.0], "old_log_probs": [-1.0], "advantages": 1.0, "group_id": 1}
    sources = jsonl(tmp_path / "1.jsonl", first), jsonl(tmp_path / "2.jsonl", second)
    with pytest.raises(InputError, match=words) as caught:
        convert(*sources, out=out)
    assert caught.value.where == str(sources[1])
    assert not out.exists()


def test_flat_sources_with_sequence_ids_stay_apart(tmp_path: Path, out: Path) -> None:
    record = {"old_log_probs": -1.0, "sequence_id": 1}
    sources = jsonl(tmp_path / "1.jsonl", record), jsonl(tmp_path / "2.jsonl", record)
    with pytest.raises(InputError, match="sequence ids mean nothing across files"):
        convert(*sources, out=out)
    convert(sources[0], out=out)


def test_names_of_several_meanings_are_not_guessed(tmp_path: Path, out: Path) -> None:
    source = jsonl(tmp_path / "1.jsonl", {"logprobs": [-1.0], "advantages": 1.0})
    with pytest.raises(InputError, match="column 'logprobs' is ambiguous") as caught:
        convert(source, out=out)
    assert "--col rollout_log_probs=logprobs" in str(caught.value.hint)
    convert(source, out=out, columns={"log_probs": "logprobs"})
    assert pq.read_schema(out).names == ["log_probs", "advantages"]
    # In a file of ours the name has one meaning.
    convert(out, out=tmp_path / "again.parquet")
    twice = jsonl(tmp_path / "2.jsonl", {"old_logp": [-1.0], "logp_old": [-1.0]})
    with pytest.raises(InputError, match="all fit the role 'old_log_probs'"):
        convert(twice, out=out, overwrite=True)


def test_nothing_to_convert(tmp_path: Path, out: Path) -> None:
    with pytest.raises(InputError, match="no column plays a role") as caught:
        convert(jsonl(tmp_path / "1.jsonl", {"text": "x"}), out=out)
    assert "columns: text" in str(caught.value.where)


def test_a_failure_leaves_nothing_under_the_name(tmp_path: Path, out: Path) -> None:
    good = {"old_log_probs": [-1.0], "mask": [1]}
    source = jsonl(tmp_path / "1.jsonl", good, {**good, "mask": [0.5]})
    with pytest.raises(InputError, match="a mask is 0 or 1"):
        convert(source, out=out)
    assert {one.name for one in tmp_path.iterdir()} == {"1.jsonl"}
    with pytest.raises(InputError, match="the file exists"):
        convert(source, out=source)


def test_verify_finds_a_value_that_changed(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"old_log_probs": [-1.0, -2.0]}, {"old_log_probs": [-3.0]}]
    source = jsonl(tmp_path / "1.jsonl", *rows)
    honest = Canonical.batch

    def forged(self: Canonical, *given: Any) -> Any:
        batch = honest(self, *given)
        return pa.record_batch([pa.array([[-1.0, -2.0], [np.nextafter(-3.0, 0.0)]])], schema=batch.schema)

    monkeypatch.setattr(Canonical, "batch", forged)
    with pytest.raises(InputError, match="'old_log_probs' differs at token 2"):
        convert(source, out=out)
    assert not out.exists()
    convert(source, out=out, verify=False)
    assert out.exists()


def test_a_recording_of_a_killed_run(tmp_path: Path, out: Path) -> None:
    script = (
        "import numpy as np, os, ppocli, signal, ml_dtypes\n"
        "writer = ppocli.RolloutWriter('r.parquet')\n"
        "for step in range(3):\n"
        "    values = np.full((2, 4), -1.0 - step, ml_dtypes.bfloat16)\n"
        "    writer.append(log_probs=values, step=step, group_id=['a', 'b'])\n"
        "writer._raw.write(b'\\xff\\xff\\xff\\xff\\x00\\x01\\x00\\x00half a message')\n"
        "writer._raw.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    with pytest.raises(InputError, match="cut or damaged in record batch 3"):
        convert_files([str(left)], str(out))
    report = convert_files([str(left)], str(out), recover=True, verify=True)
    assert report.rows == 6
    # Eight bytes that begin a message, and the 14 of its beginning.
    assert "cut in record batch 3: 22 bytes not read" in report.inputs[0].notes
    assert report.columns["log_probs"].origin == "bfloat16"
    table = pq.read_table(out)
    assert table["step"].to_pylist() == [0, 0, 1, 1, 2, 2]
    assert table["group_id"].to_pylist() == ["a", "b"] * 3
    assert table["log_probs"].to_pylist() == [[-1.0] * 4] * 2 + [[-2.0] * 4] * 2 + [[-3.0] * 4] * 2
    with pytest.raises(InputError, match="nothing to recover in a file of this format"):
        convert_files([str(out)], str(tmp_path / "x.parquet"), recover=True)


def test_recovered_lines(tmp_path: Path, out: Path) -> None:
    source = jsonl(tmp_path / "1.jsonl", *[{"old_log_probs": [-1.0 * i]} for i in range(5)])
    source.write_bytes(source.read_bytes()[:-7])
    report = convert(source, out=out, recover=True)
    assert report.rows == 4
    assert "the last line is cut" in report.inputs[0].notes[-1]


def test_memory_does_not_grow_with_text_ids(tmp_path: Path, out: Path) -> None:
    table = pa.table({"old_log_probs": np.zeros(300_000), "group_id": [f"id {i}" for i in range(300_000)]})
    pq.write_table(table, tmp_path / "p", row_group_size=50_000)
    convert(tmp_path / "p", out=out, verify=False)
    assert pq.read_table(out)["group_id"].to_pylist() == table["group_id"].to_pylist()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "1.jsonl", {"old_log_probs": [-1.0]})
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        convert(source, out=folder / "o.parquet")
