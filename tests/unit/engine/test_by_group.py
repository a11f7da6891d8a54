"""Metrics of each step: those of a run over the step's tokens alone, however the files are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core.chunk import ReadOptions
from ppocli.core.spec import LossSpec
from ppocli.engine import by_group, group_sequences, group_windows
from ppocli.engine.by_group import groups_by
from ppocli.errors import InputError

RNG = np.random.default_rng(3)


def table(n: int, steps: Any, seed: int) -> dict[str, Any]:
    """Flat columns of n tokens with a mask, a critic and sequence ids that cross steps."""
    rng = np.random.default_rng(seed)
    old = -rng.gamma(0.6, 1.0, n)
    return {
        "log_probs": old + rng.normal(0, 0.2, n),
        "old_log_probs": old,
        "advantages": rng.normal(0, 1, n),
        "values": rng.normal(0, 1, n),
        "returns": rng.normal(0, 1, n),
        "mask": rng.random(n) < 0.9,
        "sequence_id": rng.integers(0, 40, n),
        "group_id": rng.integers(0, 5, n),
        "step": steps,
    }


def groups(*paths: Path, chunk_rows: int | None = None, **settings: Any) -> dict[Any, dict[str, Any]]:
    made = groups_by(
        "step", [str(path) for path in paths], LossSpec(**settings), ReadOptions(), chunk_rows=chunk_rows
    )
    assert all(note.where is None for one in made for note in one.nulls.values())
    return {one.key["step"]: dict(one.metrics) for one in made}


def alone(parts: list[dict[str, Any]], tmp_path: Path, **settings: Any) -> dict[str, Any]:
    """The metrics of a run over these columns alone, one file for each part."""
    paths = []
    for number, part in enumerate(parts):
        paths.append(tmp_path / f"alone{number}.parquet")
        pq.write_table(pa.table(part), paths[-1])
    return dict(ppocli.evaluate(paths, by="total", **settings).metrics)


def test_steps_of_flat_files_are_those_of_runs_of_their_own(tmp_path: Path) -> None:
    tables = [table(5000, RNG.integers(10, 13, 5000), 1), table(3000, np.repeat([12, 7], 1500), 2)]
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, columns in zip(paths, tables, strict=True):
        pq.write_table(pa.table(columns), path, row_group_size=700)
    got = groups(*paths)
    assert list(got) == [7, 10, 11, 12]
    for step, metrics in got.items():
        parts = []
        for columns in tables:
            chosen = columns["step"] == step
            if chosen.any():
                parts.append({name: values[chosen] for name, values in columns.items()})
        assert metrics == alone(parts, tmp_path), step
    for chunk_rows in (1, 333, 100_000):
        assert groups(*paths, chunk_rows=chunk_rows) == got


def test_steps_of_list_rows(tmp_path: Path) -> None:
    lengths = RNG.integers(0, 90, 120)
    ends = np.cumsum(lengths)
    flat = table(int(ends[-1]), None, 4)
    names = ("log_probs", "old_log_probs", "advantages", "mask")
    rows = {name: [part.tolist() for part in np.split(flat[name], ends[:-1])] for name in names}
    steps = [f"step-{k % 3}" for k in range(120)]
    path = tmp_path / "lists.parquet"
    pq.write_table(pa.table({**rows, "step": steps}), path, row_group_size=17)
    got = groups(path)
    assert list(got) == ["step-0", "step-1", "step-2"]
    for step, metrics in got.items():
        chosen = [k for k in range(120) if steps[k] == step and lengths[k]]
        part = {name: [values[k] for k in chosen] for name, values in rows.items()}
        assert metrics == alone([part], tmp_path), step
    for chunk_rows in (1, 50, 100_000):
        assert groups(path, chunk_rows=chunk_rows) == got


def test_padded_arrays_and_null_steps(tmp_path: Path) -> None:
    old = -RNG.random((6, 5))
    arrays = {"log_probs": old + 0.1, "old_log_probs": old, "advantages": np.ones((6, 5))}
    np.savez(tmp_path / "a.npz", **arrays, mask=np.ones((6, 5)), step=np.array([2, 1, 2, 1, 1, 2]))
    got = groups(tmp_path / "a.npz")
    assert {step: one["n_sequences"] for step, one in got.items()} == {1: 3, 2: 3}
    flat = {
        "log_probs": [-1.0, -2.0, -3.0],
        "old_log_probs": [-1.0, -2.0, -2.0],
        "advantages": [1.0, 1.0, 1.0],
    }
    pq.write_table(pa.table({**flat, "step": pa.array([4, None, 4])}), tmp_path / "b.parquet")
    got = groups(tmp_path / "b.parquet")
    assert {step: (one["n_tokens"], one["approx_kl_k1"]) for step, one in got.items()} == {
        4: (2, 0.5),
        None: (1, 0.0),
    }


def test_advantages_are_normalised_over_the_whole_input(tmp_path: Path) -> None:
    # Advantages 1 and 3: mean 2, deviation 1; at ratio 1 the loss of a token is minus its advantage.
    columns = {
        "log_probs": [-1.0, -1.0],
        "old_log_probs": [-1.0, -1.0],
        "advantages": [1.0, 3.0],
        "step": [0, 1],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    got = groups(tmp_path / "a.parquet", adv_norm="batch", adv_norm_eps=0.0)
    assert [one["policy_loss"] for one in got.values()] == [1.0, -1.0]


def test_nan_stays_in_its_step(tmp_path: Path) -> None:
    columns = table(100, np.repeat([0, 1], 50), 5)
    columns["log_probs"][3] = np.nan
    columns["mask"][:] = True
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    got = groups(tmp_path / "a.parquet")
    assert (got[0]["policy_loss"], got[0]["n_nan"], got[1]["n_nan"]) == (None, 1, 0)
    assert got[1]["policy_loss"] is not None


def test_no_step_or_too_many_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"log_probs": [-1.0], "old_log_probs": [-1.0], "advantages": [1.0]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="no column for step") as caught:
        groups(tmp_path / "a.parquet")
    assert "--col step=COLUMN" in str(caught.value)
    monkeypatch.setattr(by_group, "GROUP_LIMIT", 3)
    for n in (3, 4):
        many = {name: values * n for name, values in columns.items()} | {"step": list(range(n))}
        pq.write_table(pa.table(many), tmp_path / "b.parquet")
        if n == 3:
            assert len(groups(tmp_path / "b.parquet")) == 3
        else:
            with pytest.raises(InputError, match="more than 3 steps"):
                groups(tmp_path / "b.parquet")


@pytest.mark.parametrize("objective", ["ppo", "gspo"])
def test_groups_over_many_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: str) -> None:
    monkeypatch.setattr(group_windows, "WINDOW", 4096)
    n, n_groups = 20_000, 9
    columns = table(n, np.arange(n) // 7 % n_groups, 6)  # in turn, seven tokens at a time
    columns["sequence_id"] = np.arange(n) // 7
    columns["log_probs"][[5, 9000, 9001]] = [np.nan, np.inf, -np.inf]
    steps = pa.array(columns["step"], mask=columns["step"] == 4)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({**columns, "step": steps}), path, row_group_size=3000)
    got = groups(path, objective=objective)
    assert list(got) == [0, 1, 2, 3, 5, 6, 7, 8, None]
    assert groups(path, objective=objective, chunk_rows=501) == got
    for step, metrics in got.items():
        chosen = columns["step"] == (4 if step is None else step)
        part = {name: values[chosen] for name, values in columns.items() if name != "step"}
        same_but_for_rounding(metrics, alone([part], tmp_path, objective=objective))


EXACT = (
    "clip_frac",
    "_low",
    "_high",
    "adv_min",
    "adv_max",
    "ratio_min",
    "ratio_max",
    "_p01",
    "_p50",
    "_p99",
    "zero_frac",
    "group_frac",
)


def same_but_for_rounding(got: dict[str, Any], want: dict[str, Any]) -> None:
    """Compare: whole numbers, nulls, shares, extremes and quantiles exactly, the rest to 1e-12."""
    assert list(got) == list(want)
    for name, value in want.items():
        if isinstance(value, dict):
            same_but_for_rounding(got[name], value)
        elif isinstance(value, float) and (name.startswith("seq_") or not name.endswith(EXACT)):
            assert got[name] == pytest.approx(value, rel=1e-12, abs=1e-15), name
        else:
            assert got[name] == value, name


def test_rows_of_lists_over_many_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_windows, "WINDOW", 2048)
    monkeypatch.setattr(group_sequences, "OPEN_LIMIT", 40)
    rng = np.random.default_rng(5)
    lengths = rng.integers(0, 120, 300)
    old = [list(-rng.random(n)) for n in lengths]
    rows = {
        "log_probs": [[x + 0.01 * (k % 7) for x in one] for k, one in enumerate(old)],
        "old_log_probs": old,
        "advantages": [[float(k % 3 - 1)] * len(one) for k, one in enumerate(old)],
    }
    steps = np.arange(300) % 11
    pq.write_table(pa.table({**rows, "step": steps}), tmp_path / "a.parquet", row_group_size=50)
    for step, metrics in groups(tmp_path / "a.parquet").items():
        chosen = [k for k in range(300) if steps[k] == step and lengths[k]]
        part = {name: [values[k] for k in chosen] for name, values in rows.items()}
        same_but_for_rounding(metrics, alone([part], tmp_path))
        assert metrics["n_rows"] == metrics["n_sequences"] == len(chosen)


def test_sequences_that_come_back_after_very_many_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_sequences, "OPEN_LIMIT", 8)
    ids = [*range(30), 3]
    columns = {name: [-1.0] * 31 for name in ("log_probs", "old_log_probs", "advantages")}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({**columns, "sequence_id": ids, "step": [k % 2 for k in range(31)]}), path)
    even, odd = groups_by("step", [str(path)], LossSpec(), ReadOptions())
    # The last token is of step 0, in which id 3 has not been before; in step 1 nothing came back either.
    assert (even.metrics["n_sequences"], odd.metrics["n_sequences"]) == (16, 15)
    pq.write_table(pa.table({**columns, "sequence_id": ids, "step": [0] * 31}), path)
    (one,) = groups_by("step", [str(path)], LossSpec(), ReadOptions())
    assert one.metrics["n_sequences"] is None
    assert "came back" in one.nulls["n_sequences"].reason


def test_any_column_tells_groups_apart(tmp_path: Path) -> None:
    columns = table(60, [0, 1, 2] * 20, 9) | {"phase": ["warm-up", "main"] * 30}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    made = groups_by("phase", [str(tmp_path / "a.parquet")], LossSpec(), ReadOptions())
    assert [dict(one.key) for one in made] == [{"phase": "main"}, {"phase": "warm-up"}]
    part = {
        name: np.asarray(values)[1::2] for name, values in columns.items() if name not in ("phase", "step")
    }
    want = alone([part], tmp_path)
    assert made[0].metrics == want
    with pytest.raises(InputError, match="no column 'nowhere'"):
        groups_by("nowhere", [str(tmp_path / "a.parquet")], LossSpec(), ReadOptions())


@pytest.mark.parametrize("name", ["a.parquet", "a.npz", "a.arrow", "a.jsonl"])
def test_a_column_that_tells_groups_apart_keeps_its_own_role(tmp_path: Path, name: str) -> None:
    columns = table(60, [0] * 60, 9)
    columns |= {
        "mask": [1, 0, 1] * 20,
        "group_id": [7, 7, 8] * 20,
        "sequence_id": [number // 5 for number in range(60)],
    }
    path = tmp_path / name
    if name == "a.npz":
        np.savez(path, **{role: np.asarray(values) for role, values in columns.items()})
    elif name == "a.jsonl":
        rows = pa.table(columns).to_pylist()
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    elif name == "a.arrow":
        made = pa.table(columns)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, made.schema) as writer:
            writer.write_table(made)
    else:
        pq.write_table(pa.table(columns), path)
    for by, want in (("mask", {1: (40, 12)}), ("group_id", {7: (20, 12), 8: (20, 12)})):
        made = groups_by(by, [str(path)], LossSpec(agg="group-mean"), ReadOptions())
        counts = {one.key[by]: (one.metrics["n_tokens"], one.metrics.get("n_sequences")) for one in made}
        assert {key: one for key, one in counts.items() if one[0]} == want
        assert sum(one.metrics["n_masked"] for one in made) == 20
        loss = [one.metrics["policy_loss_by_agg"] for one in made if one.metrics["n_tokens"]]
        assert all(one["group-mean"] is not None for one in loss)
        if by == "group_id":
            assert [one["group-mean"] for one in loss] == [one["token-mean"] for one in loss]
    made = groups_by("sequence_id", [str(path)], LossSpec(objective="gspo"), ReadOptions())
    assert [one.metrics["n_sequences"] for one in made] == [1] * 12


def test_the_trainer_against_the_sampler_by_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    parts = []
    for number in range(2):
        columns = table(3000, rng.integers(0, 3, 3000), 20 + number)
        columns["rollout_log_probs"] = columns["old_log_probs"] - rng.normal(0.01, 0.1, 3000)
        parts.append(columns)
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    made = groups_by("step", [str(tmp_path)], LossSpec(), ReadOptions(), chunk_rows=700)
    for one in made:
        chosen = [part["step"] == one.key["step"] for part in parts]
        paths = []
        for number, (part, rows) in enumerate(zip(parts, chosen, strict=True)):
            paths.append(tmp_path / f"alone{number}" / "x.parquet")
            paths[-1].parent.mkdir(exist_ok=True)
            pq.write_table(pa.table({name: values[rows] for name, values in part.items()}), paths[-1])
        assert one.drift == ppocli.evaluate(paths, by="total").drift
        apart = [part["old_log_probs"] - part["rollout_log_probs"] for part in parts]
        valid = [part["mask"] & rows for part, rows in zip(parts, chosen, strict=True)]
        d = np.concatenate([values[rows] for values, rows in zip(apart, valid, strict=True)])
        assert one.drift["metrics"]["diff_mean"] == pytest.approx(d.mean(), rel=1e-12)
        assert one.drift["metrics"]["n_tokens"] == d.size
