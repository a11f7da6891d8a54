from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.errors import InputError, UsageProblem
from ppocli.io.writer import RolloutWriter

NEW = np.array([[-0.5, -1.5, -2.5], [-0.25, -0.75, -9.0]], np.float32)
OLD = np.array([[-0.75, -1.25, -2.5], [-0.5, -1.0, 7.0]], np.float32)
MASK = np.array([[1, 1, 1], [1, 1, 0]])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r.parquet"


def record(path: Path, *batches: dict[str, Any], **metadata: Any) -> pa.Table:
    with RolloutWriter(path, **metadata) as writer:
        for batch in batches:
            writer.append(**batch)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    return pq.read_table(path, page_checksum_verification=True)


def said(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pq.read_schema(path).metadata[b"ppocli"])
    return found


def test_padded_batches_become_rows(path: Path) -> None:
    batch = {"log_probs": NEW, "old_log_probs": OLD, "advantages": [1.0, -1.0], "mask": MASK, "step": 7}
    table = record(path, batch, {**batch, "step": 8}, run="ppo-7")
    assert table.schema.types == [
        pa.list_(pa.float32()),
        pa.list_(pa.float32()),
        pa.float64(),
        pa.list_(pa.bool_()),
        pa.int64(),
    ]
    assert table["log_probs"].to_pylist() == [[-0.5, -1.5, -2.5], [-0.25, -0.75, -9.0]] * 2
    assert table["advantages"].to_pylist() == [1.0, -1.0, 1.0, -1.0]
    assert table["mask"].to_pylist() == [[True, True, True], [True, True, False]] * 2
    assert table["step"].to_pylist() == [7, 7, 8, 8]
    about = said(path)
    assert about["version"] == ppocli.__version__
    assert about["layout"] == "list"
    assert about["metadata"] == {"run": "ppo-7"}
    assert about["roles"]["log_probs"] == {"type": "float32", "origin": "float32", "per": "token"}
    assert about["roles"]["advantages"] == {"type": "float64", "origin": "float64", "per": "row"}


def test_the_recorded_file_has_the_loss_of_the_arrays(path: Path) -> None:
    batch = {"log_probs": NEW, "old_log_probs": OLD, "advantages": [1.0, -1.0], "mask": MASK}
    record(path, batch)
    # Log-ratios 0.25, -0.25, 0 with A = 1 and 0.25, 0.25 with A = -1; the last token is masked.
    up, down = np.exp(0.25), np.exp(-0.25)
    by_hand = -(1.2 + down + 1.0 - up - up) / 5
    metrics = ppocli.evaluate(path).metrics
    assert metrics["policy_loss"] == pytest.approx(by_hand, abs=1e-15)
    assert (metrics["n_tokens"], metrics["n_masked"], metrics["n_sequences"]) == (5, 1, 2)


def test_lists_of_arrays_keep_their_lengths(path: Path) -> None:
    rows = [np.array([-1.0, -2.0]), np.array([]), np.array([-3.0])]
    table = record(path, {"log_probs": rows, "old_log_probs": rows, "rewards": [0.5, 2.0, 1.5]})
    assert table["log_probs"].to_pylist() == [[-1.0, -2.0], [], [-3.0]]
    assert table["log_probs"].type == pa.list_(pa.float64())
    assert table["rewards"].to_pylist() == [0.5, 2.0, 1.5]


def test_one_row_as_long_as_there_are_rows_keeps_its_scalars(path: Path) -> None:
    rows = [np.array([]), np.array([-1.0, -2.0])]
    table = record(path, {"log_probs": rows, "rewards": [0.5, 2.0], "group_id": [4, 5]})
    assert table["rewards"].to_pylist() == [0.5, 2.0]
    assert table["group_id"].to_pylist() == [4, 5]


def test_flat_arrays_are_a_row_per_token(path: Path) -> None:
    table = record(
        path,
        {"log_probs": NEW[0], "advantages": [1, 2, 3], "step": 1},
        {"log_probs": [-1.0]} and {"log_probs": NEW[1][:, None], "advantages": [4, 5, 6], "step": 2},
    )
    assert table["log_probs"].to_pylist() == [-0.5, -1.5, -2.5, -0.25, -0.75, -9.0]
    assert table["advantages"].to_pylist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert table["step"].to_pylist() == [1, 1, 1, 2, 2, 2]
    assert said(path)["layout"] == "flat"


def test_ids_of_every_kind(path: Path) -> None:
    big = np.array([2**64 - 1, 3], np.uint64)
    batch = {
        "log_probs": NEW,
        "group_id": ["b", "a"],
        "sequence_id": big,
        "token_id": np.arange(6).reshape(2, 3),
    }
    table = record(path, batch, {**batch, "group_id": ["c", "b"]})
    assert table["group_id"].to_pylist() == ["b", "a", "c", "b"]
    assert table["sequence_id"].to_pylist() == [2**64 - 1, 3] * 2
    assert table["token_id"].to_pylist() == [[0, 1, 2], [3, 4, 5]] * 2


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_stored_as_float32_exactly(path: Path, dtype: Any) -> None:
    values = np.array([[-0.1, -3.3, np.nan, -np.inf, 1e-7]], dtype)
    table = record(path, {"log_probs": values})
    assert table["log_probs"].type == pa.list_(pa.float32())
    stored = table["log_probs"].combine_chunks().flatten().to_numpy()
    expected = [float(one) for one in values[0]]
    assert np.array_equal(stored, np.array(expected, np.float32), equal_nan=True)
    assert said(path)["roles"]["log_probs"]["origin"] == np.dtype(dtype).name


class FakeTensor:
    """What the writer uses of a torch tensor."""

    def __init__(self, array: Any, dtype: str) -> None:
        self._array, self.dtype, self.detached, self.ndim = array, dtype, False, array.ndim

    def detach(self) -> FakeTensor:
        made = FakeTensor(self._array, self.dtype)
        made.detached = True
        return made

    def cpu(self) -> FakeTensor:
        return self

    def contiguous(self) -> FakeTensor:
        return self

    def view(self, dtype: str) -> FakeTensor:
        return FakeTensor(self._array.view(np.int16), dtype)

    def numpy(self) -> Any:
        if self.dtype == "float8":
            raise TypeError("unsupported ScalarType Float8")
        return self._array

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a tensor that requires a gradient refuses this")


def test_torch_tensors(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(Tensor=FakeTensor, bfloat16="bfloat16", int16="int16")
    monkeypatch.setitem(sys.modules, "torch", fake)
    bits = np.array([[-1.5, -0.3125]]).astype(ml_dtypes.bfloat16)
    table = record(
        path, {"log_probs": FakeTensor(bits, "bfloat16"), "advantages": FakeTensor(np.ones(1), "f8")}
    )
    assert table["log_probs"].to_pylist() == [[-1.5, -0.3125]]
    assert said(path)["roles"]["log_probs"]["origin"] == "bfloat16"
    with (
        pytest.raises(InputError, match="a tensor of type float8"),
        RolloutWriter(path.with_name("x")) as writer,
    ):
        writer.append(log_probs=FakeTensor(np.ones((1, 2)), "float8"))


def test_arrays_that_only_speak_dlpack(path: Path) -> None:
    class Device:
        def __dlpack__(self, **more: Any) -> Any:
            return NEW.__dlpack__(**more)

        def __dlpack_device__(self) -> Any:
            return NEW.__dlpack_device__()

    assert record(path, {"log_probs": Device()})["log_probs"].to_pylist() == NEW.tolist()


def test_small_appends_share_row_groups_and_large_ones_are_cut(path: Path) -> None:
    record(path, *[{"log_probs": NEW}] * 50)
    assert pq.ParquetFile(path).num_row_groups == 1
    path.unlink()
    wide = np.zeros((40, 1 << 16), np.float32)
    record(path, {"log_probs": wide})
    meta = pq.ParquetFile(path).metadata
    assert meta.num_row_groups == 3
    assert sum(meta.row_group(i).num_rows for i in range(3)) == 40


def test_what_was_appended_is_there_when_the_process_is_killed(tmp_path: Path) -> None:
    script = (
        "import numpy as np, os, ppocli, signal\n"
        "writer = ppocli.RolloutWriter('r.parquet')\n"
        "for step in range(3):\n"
        "    writer.append(log_probs=np.full((2, 4), -1.0 - step), step=step)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".r.parquet.")
    with pa.ipc.open_stream(left.read_bytes()) as stream:
        assert stream.read_all()["step"].to_pylist() == [0, 0, 1, 1, 2, 2]


def test_an_exception_leaves_the_recording_and_says_how_to_get_at_it(path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught, RolloutWriter(path) as writer:
        writer.append(log_probs=NEW, step=1 // (writer.append(log_probs=NEW, step=1) is not None))
    assert not path.exists()
    assert writer.recording.exists()
    (note,) = caught.value.__notes__
    assert note == f"ppocli: 2 rows were recorded; ppocli convert --recover {writer.recording} -o {path}"
    with pytest.raises(UsageProblem, match="closed"):
        writer.append(log_probs=NEW)


def test_an_exception_before_the_first_append_leaves_nothing(path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught, RolloutWriter(path):
        1 / 0  # noqa: B018
    assert not hasattr(caught.value, "__notes__")
    assert list(path.parent.iterdir()) == []


def test_nothing_appended_is_no_file(path: Path) -> None:
    with RolloutWriter(path) as writer:
        writer.append(log_probs=np.zeros((0, 4)))
        writer.append(log_probs=[])
    assert writer.rows == 0
    assert list(path.parent.iterdir()) == []
    writer.close()


def test_counts(path: Path) -> None:
    with RolloutWriter(path) as writer:
        writer.append(log_probs=NEW)
        writer.append(log_probs=NEW[:, :2])
        assert (writer.rows, writer.tokens) == (4, 10)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"log_probs": NEW}, "lacks advantages"),
        ({"log_probs": NEW, "advantages": [1.0, 2.0], "values": NEW}, "also has values"),
        (
            {"log_probs": NEW.astype(float), "advantages": [1.0, 2.0]},
            "'log_probs' is float64, .* was float32",
        ),
        ({"log_probs": NEW, "advantages": NEW}, "'advantages' has one value per token, .* per sequence"),
        (
            {"log_probs": NEW[0], "advantages": NEW[0]},
            "flat, one row per token, the first was one row per sequence",
        ),
        ({}, "nothing to append"),
        ({"logprobs": NEW}, "role 'logprobs' is not known"),
    ],
)
def test_a_batch_unlike_the_first_is_refused_and_leaves_no_trace(
    path: Path, batch: dict[str, Any], words: str
) -> None:
    first = {"log_probs": NEW, "advantages": [1.0, 2.0]}
    with RolloutWriter(path) as writer:
        writer.append(**first)
        with pytest.raises(UsageProblem, match=words):
            writer.append(**batch)
        writer.append(**first)
    assert pq.read_table(path).num_rows == 4


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (
            {"log_probs": NEW, "old_log_probs": OLD[:, :2]},
            r"shape \(2, 3\) and 'old_log_probs' has shape \(2, 2\)",
        ),
        ({"log_probs": [[-1.0], [-1.0, -2.0]], "old_log_probs": [[-1.0], [-1.0]]}, "in row 1"),
        ({"log_probs": NEW, "mask": MASK * 0.5}, "holds 0.5; a mask is 0 or 1"),
        ({"log_probs": np.array([[1, 2]])}, "is int64: log-probs are floating point"),
    ],
)
def test_a_batch_that_does_not_fit_together_is_refused_with_its_place(
    path: Path, batch: dict[str, Any], words: str
) -> None:
    with RolloutWriter(path) as writer:
        writer.append(**{role: NEW if role != "mask" else MASK for role in batch})
        with pytest.raises(InputError, match=words) as caught:
            writer.append(**batch)
    assert caught.value.where == f"{path}, appending row 2 and on"
    assert pq.read_table(path).num_rows == 2


def test_types_that_are_stored_alike_may_take_turns(path: Path) -> None:
    half = np.array([[-1.5]], np.float16)
    record(path, {"log_probs": half, "mask": [[1]]}, {"log_probs": half.astype(np.float32), "mask": [[True]]})
    assert said(path)["roles"]["log_probs"]["origin"] == "float16, float32"


def test_an_existing_file_is_refused_at_once(path: Path) -> None:
    path.write_bytes(b"x")
    with pytest.raises(InputError, match="the file exists"):
        RolloutWriter(path)
    with RolloutWriter(path, overwrite=True) as writer:
        writer.append(log_probs=NEW)
        assert path.read_bytes() == b"x"
    assert pq.read_table(path).num_rows == 2
    with pytest.raises(InputError, match="no folder"):
        RolloutWriter(path.parent / "no" / "x.parquet")
    with pytest.raises(InputError, match="a folder"):
        RolloutWriter(path.parent)


def test_a_file_that_comes_into_being_is_not_overwritten(path: Path) -> None:
    writer = RolloutWriter(path)
    writer.append(log_probs=NEW)
    path.write_bytes(b"x")
    with pytest.raises(InputError, match="the file exists") as caught:
        writer.close()
    assert str(writer.recording) in str(caught.value.hint)
    assert path.read_bytes() == b"x"
    assert {one.name for one in path.parent.iterdir()} == {path.name, writer.recording.name}


def test_two_writers_of_one_path_do_not_share_a_recording(path: Path) -> None:
    with RolloutWriter(path, overwrite=True) as one, RolloutWriter(path, overwrite=True) as two:
        one.append(log_probs=NEW)
        two.append(log_probs=OLD)
    assert pq.read_table(path)["log_probs"].to_pylist() == NEW.tolist()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    writer = RolloutWriter(tmp_path / "r.parquet")
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        writer.append(log_probs=NEW)


def test_metadata_that_json_cannot_hold(path: Path) -> None:
    for value in (np.float32(1), float("nan"), object()):
        with pytest.raises(UsageProblem, match="JSON"):
            RolloutWriter(path, clip_eps=value)


def test_a_full_disk_closes_the_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RolloutWriter(path)
    writer.append(log_probs=NEW)

    class Full:
        def write_batch(self, batch: Any) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    monkeypatch.setattr(writer, "_stream", Full())
    with pytest.raises(InputError, match="cannot be written: No space left on device") as caught:
        writer.append(log_probs=NEW)
    assert "--recover" in str(caught.value.hint)
    with pytest.raises(UsageProblem, match="closed"):
        writer.append(log_probs=NEW)
