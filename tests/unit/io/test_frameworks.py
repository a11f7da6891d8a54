"""Files as classic libraries write them (shapes and names: their sources, at the versions named)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core.chunk import ReadOptions
from ppocli.errors import InputError
from ppocli.io.describe import describe
from ppocli.io.source import open_input
from ppocli.io.writer import RolloutWriter

T, N = 3, 2
OLD = -np.arange(1.0, 7.0, dtype=np.float32).reshape(T, N) / 4
NEW = OLD + np.float32(0.125)
ADV = np.array([[1.0, -1.0], [2.0, -2.0], [0.5, 0.25]], np.float32)
# All ratios are e^0.125, inside the interval: the loss is -e^0.125 times the mean advantage.
LOSS = -math.exp(0.125) * float(ADV.mean())


def loss_of(path: Path, **settings: Any) -> tuple[float, int | None]:
    metrics = ppocli.evaluate(path, **settings).metrics
    return metrics["policy_loss"], metrics.get("n_sequences")


def test_sb3_before_and_after_training(tmp_path: Path) -> None:
    before, after = tmp_path / "before.npz", tmp_path / "after.npz"
    np.savez(before, log_probs=NEW, old_log_prob=OLD, advantages=ADV, rewards=ADV)
    assert loss_of(before, layout="time") == (pytest.approx(LOSS, abs=1e-7), N)
    # SB3 2.9.2, swap_and_flatten: environment by environment, a trailing 1; rewards keep (T, N).
    flat = {
        name: one.swapaxes(0, 1).reshape(-1, 1) for name, one in (("log_probs", NEW), ("old_log_prob", OLD))
    }
    np.savez(after, **flat, advantages=ADV.swapaxes(0, 1).reshape(-1, 1), rewards=ADV)
    assert loss_of(after, layout="env") == (pytest.approx(LOSS, abs=1e-7), N)
    same = [ppocli.evaluate(path, layout=how).metrics for path, how in ((before, "time"), (after, "env"))]
    assert same[0] == same[1]
    np.savez(after, **flat, advantages=ADV.swapaxes(0, 1).reshape(-1, 1))
    assert loss_of(after)[0] == pytest.approx(LOSS, abs=1e-7)


def test_skrl_memory(tmp_path: Path) -> None:
    # skrl 2.1.1, Memory.save: (memory_size, num_envs, size); one policy's log-probs only.
    path = tmp_path / "25-01-01_00-00-00-000000_memory_0x7f.npz"
    shape = (T, N, 1)
    arrays = {"log_prob": OLD.reshape(shape), "advantages": ADV.reshape(shape), "values": ADV.reshape(shape)}
    np.savez(path, **arrays, terminated=np.zeros(shape, bool), actions=np.zeros((T, N, 4), np.float32))
    with pytest.raises(InputError, match="column 'log_prob' is ambiguous") as caught:
        ppocli.evaluate(path, layout="time")
    assert "--col old_log_probs=log_prob" in str(caught.value.hint)
    columns = {"log_probs": "log_prob", "old_log_probs": "log_prob"}
    assert loss_of(path, layout="time", columns=columns) == (pytest.approx(-float(ADV.mean()), abs=1e-7), N)


RLLIB = {
    "eps_id": ["a", "b", "a", "b", "a", "b"],
    "action_logp": OLD.reshape(-1).tolist(),
    "advantages": ADV.reshape(-1).tolist(),
    "vf_preds": ADV.reshape(-1).tolist(),
    "value_targets": ADV.reshape(-1).tolist(),
}


def test_rllib_columns(tmp_path: Path) -> None:
    # Ray 2.60.0, a row per step; the current policy's log-probs were added by hand.
    path = tmp_path / "r.parquet"
    table = pa.table({**RLLIB, "action_dist_inputs": [[0.0, 1.0]] * 6, "weights_seq_no": [1] * 6})
    pq.write_table(table, path)
    with pytest.raises(InputError, match="column 'action_logp' is ambiguous"):
        ppocli.evaluate(path)
    pq.write_table(table.append_column("new_logp", pa.array(NEW.reshape(-1))), path)
    columns = {"old_log_probs": "action_logp"}
    assert loss_of(path, columns=columns) == (pytest.approx(LOSS, abs=1e-7), 2)
    report = ppocli.evaluate(path, columns=columns)
    assert {"returns", "old_values", "sequence_id"} <= set(report.inputs[0].columns)


def test_rllib_json_lines(tmp_path: Path) -> None:
    # The old stack's writer: a list per batch and column, several episodes in a row.
    path = tmp_path / "output.json"
    record = {"type": "SampleBatch", **RLLIB, "new_logp": NEW.reshape(-1).tolist(), "obs": [[0.0]] * 6}
    path.write_text(json.dumps(record) + "\n")
    assert loss_of(path, columns={"old_log_probs": "action_logp"}) == (pytest.approx(LOSS, abs=1e-7), 2)
    assert ppocli.evaluate(path, columns={"old_log_probs": "action_logp"}).inputs[0].layout == "packed"
    record["action_prob"] = np.exp(OLD.reshape(-1).astype(float)).tolist()
    path.write_text(json.dumps(record) + "\n")
    settings: dict[str, Any] = {"columns": {"old_log_probs": "action_prob"}, "probs": ["old_log_probs"]}
    assert loss_of(path, **settings)[0] == pytest.approx(LOSS, abs=1e-7)


def test_baselines_runner(tmp_path: Path) -> None:
    # openai/baselines ppo2: environment by environment, minus the log-prob.
    path = tmp_path / "batch.npz"
    neg = -OLD.swapaxes(0, 1).reshape(-1)
    np.savez(
        path,
        log_probs=NEW.swapaxes(0, 1).reshape(-1),
        neglogpacs=neg,
        advantages=ADV.swapaxes(0, 1).reshape(-1),
    )
    with pytest.raises(InputError) as caught:
        ppocli.evaluate(path)
    assert "--col old_log_probs=neglogpacs --neglogp old_log_probs" in str(caught.value.hint)
    assert loss_of(path, neglogp=["old_log_probs"])[0] == pytest.approx(LOSS, abs=1e-7)


@pytest.mark.parametrize("name", ["a.parquet", "a.npz", "a.arrow", "a.jsonl", "a.npy"])
def test_names_of_a_framework_hold_for_every_file_type(name: str, tmp_path: Path) -> None:
    # The framework's "logprobs" is the sampler's and its "old" has a name of its own.
    columns = {"log_probs": -1.0, "logprobs": -2.0, "prev": -3.0, "neglogp": 4.0, "advantages": 5.0}
    path = tmp_path / name
    arrays = {key: np.array([value], np.float32) for key, value in columns.items()}
    if name == "a.npz":
        np.savez(path, **arrays)
    elif name == "a.npy":
        record = np.zeros(1, [(key, "f4") for key in columns])
        for key, value in columns.items():
            record[key] = value
        np.save(path, record)
    elif name == "a.jsonl":
        path.write_text(json.dumps(columns) + "\n")
    elif name == "a.arrow":
        table = pa.table(arrays)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(pa.table(arrays), path)
    aliases = {"rollout_log_probs": ("none", "LOGPROBS"), "old_log_probs": ("prev",)}
    options = ReadOptions(aliases=aliases, neglogp=frozenset({"ref_log_probs"}))
    reader = open_input(str(path), options, {})
    (chunk,) = reader.chunks(tuple(reader.report.columns), 100)
    assert {role: one.values.tolist() for role, one in chunk.columns.items()} == {
        "log_probs": [-1.0],
        "old_log_probs": [-3.0],
        "rollout_log_probs": [-2.0],
        "ref_log_probs": [-4.0],
        "advantages": [5.0],
    }
    assert {one.role for one in describe(str(path), options, lambda roles: roles, 100).columns} == {
        *reader.report.columns
    }
    reader.close()


def test_a_file_that_ppocli_wrote_is_named_by_role_whatever_the_framework(tmp_path: Path) -> None:
    # In this framework a column "log_probs" is the old policy's; in a file by role it is the current one's.
    path = str(tmp_path / "a.parquet")
    with RolloutWriter(path) as writer:
        writer.append(log_probs=[[-1.0]], old_log_probs=[[-2.0]], advantages=[[3.0]])
    options = ReadOptions(aliases={"old_log_probs": ("log_probs",), "advantages": ("old_log_probs",)})
    columns = open_input(path, options, {}).report.columns
    assert {role: one.column for role, one in columns.items()} == {
        "log_probs": "log_probs",
        "old_log_probs": "old_log_probs",
        "advantages": "advantages",
    }
