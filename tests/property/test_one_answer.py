"""One answer: the same bits whatever the threads, chunks, row groups, float types and other metrics."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batch_files import write_batch
from strategies import Batch

import ppocli

SAME = ("metrics", "nulls", "groups", "findings", "worst")
SEED = 20


def big_batch(*, ragged: bool, optional: bool = True) -> Batch:
    """Some 30,000 tokens in float16 values: many blocks, long and empty rows, a mask, overflow, a NaN."""
    rng = np.random.default_rng(SEED)
    lengths = [int(n) for n in rng.integers(0, 700, 90)] if ragged else None
    n = sum(lengths) if lengths else 31_003

    def half(values: np.ndarray) -> np.ndarray:
        return values.astype(np.float16).astype(np.float64)

    old = half(-rng.exponential(1.0, n))
    columns = {
        "log_probs": half(old + rng.normal(0, 0.3, n)),
        "old_log_probs": old,
        "advantages": half(rng.normal(0, 1, n)),
    }
    columns["log_probs"][[17, 5000, n - 1]] = 95.0
    if optional:
        columns |= {
            role: half(rng.normal(0, 1, n)) for role in ("values", "old_values", "returns", "entropy")
        }
        columns["ref_log_probs"] = half(old + rng.normal(0, 0.2, n))
        columns["rewards"] = half(rng.normal(0, 1, n))
        columns["entropy"][12_345] = np.nan
    groups = [int(g) for g in rng.integers(0, 9, len(lengths))] if lengths else None
    return Batch(columns, lengths, rng.random(n) < 0.9, groups)


def answer(path: Path | list[Path], **settings: Any) -> str:
    """All that must not change, as text."""
    document = ppocli.evaluate(path, value_clip=0.2, **settings).to_dict()
    return json.dumps({key: document.get(key) for key in SAME}, sort_keys=True)


@pytest.fixture(scope="module", params=[True, False], ids=["list", "flat"])
def batch(request: pytest.FixtureRequest) -> Batch:
    return big_batch(ragged=request.param)


@pytest.fixture
def plain(batch: Batch, tmp_path: Path) -> Path:
    return write_batch(batch, tmp_path / "rollouts.parquet")


def moved(folder: Path, name: str) -> Path:
    """A path of the same name in a folder of its own: paths are part of the answer."""
    (folder / name).mkdir()
    return folder / name / "rollouts.parquet"


def same_names(text: str) -> str:
    """The answer without the folders of its paths."""

    def short(one: dict[str, Any]) -> dict[str, Any]:
        return {**one, "path": Path(one["path"]).name} if "path" in one else one

    return json.dumps(json.loads(text, object_hook=short), sort_keys=True)


@pytest.mark.parametrize("chunk_rows", [1, 7, 64, 4096, 10**6])
def test_chunks(batch: Batch, plain: Path, chunk_rows: int) -> None:
    if batch.lengths is None and chunk_rows < 64:
        chunk_rows *= 100  # 31,003 chunks of one token prove no more and take a minute
    assert answer(plain, chunk_rows=chunk_rows) == answer(plain)


@pytest.mark.parametrize("row_group_size", [1, 13, 2048])
def test_row_groups(batch: Batch, plain: Path, tmp_path: Path, row_group_size: int) -> None:
    if batch.lengths is None and row_group_size == 1:
        row_group_size = 100
    other = write_batch(batch, moved(tmp_path, "groups"), row_group_size=row_group_size)
    assert same_names(answer(other)) == same_names(answer(plain))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_float_types(batch: Batch, plain: Path, tmp_path: Path, dtype: str) -> None:
    other = write_batch(batch, moved(tmp_path, dtype), dtype=dtype)
    assert same_names(answer(other)) == same_names(answer(plain))


@pytest.mark.parametrize("worst", [0, 1, 50])
def test_worst_tokens_change_nothing_else(plain: Path, worst: int) -> None:
    document = json.loads(answer(plain, worst=worst))
    document.pop("worst")
    bare = json.loads(answer(plain))
    bare.pop("worst")
    assert document == bare


def test_columns_change_only_their_own_metrics(batch: Batch, plain: Path, tmp_path: Path) -> None:
    few = write_batch(batch, moved(tmp_path, "few"), roles=("log_probs", "old_log_probs", "advantages"))
    full, bare = (ppocli.evaluate(path).metrics for path in (plain, few))
    # The value loss is part of the total; the entropy column holds a NaN, the reference one positive values.
    own = {"total_loss", "n_nan", "n_positive_log_probs"}
    assert {name for name in bare if bare[name] != full[name]} <= own
    assert bare["policy_loss"] == full["policy_loss"]


def test_sequences_by_row_and_by_id(tmp_path: Path) -> None:
    batch = big_batch(ragged=True)
    by_row = ppocli.evaluate(write_batch(batch, tmp_path / "rows.parquet"), horizon=700).metrics
    by_id = ppocli.evaluate(write_batch(batch, tmp_path / "ids.parquet", as_ids=True), horizon=700).metrics
    assert {name for name in by_row if by_row[name] != by_id[name]} == {"n_rows"}


def test_arrays_and_files(tmp_path: Path) -> None:
    batch = big_batch(ragged=False)
    path = write_batch(batch, tmp_path / "flat.parquet")
    arrays = {**batch.columns, "mask": batch.mask}
    assert ppocli.evaluate(**arrays, value_clip=0.2).metrics == ppocli.evaluate(path, value_clip=0.2).metrics


def test_threads(plain: Path) -> None:
    answers = {}
    for threads in (1, 2, 7):
        options = ["-f", "json", "--threads", str(threads), "--worst", "5"]
        done = subprocess.run(
            [sys.executable, "-m", "ppocli", "eval", str(plain), *options],
            capture_output=True,
            text=True,
            check=True,
        )
        document = json.loads(done.stdout)
        assert document["run"]["threads"] == threads
        answers[threads] = {key: document.get(key) for key in SAME}
    assert answers[1] == answers[2] == answers[7]
