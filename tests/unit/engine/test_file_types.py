"""One answer, whatever the file type: the same values give the same bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli

B, T = 40, 90


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    old = -rng.exponential(1.0, (B, T)).astype(np.float32)
    new = old + rng.normal(0, 0.3, (B, T)).astype(np.float32)
    new[3, 7], old[5, 1] = np.nan, -np.inf
    mask = np.arange(T) < rng.integers(1, T, B)[:, None]
    adv = rng.normal(0, 1, (B, T)).astype(np.float32)
    return {"log_probs": new, "old_log_probs": old, "advantages": adv, "mask": mask}


def write(kind: str, path: Path) -> Path:
    arrays = batch()
    table = pa.table({role: pa.array(list(values)) for role, values in arrays.items()})
    if kind == "npz":
        np.savez(path, **arrays)
    elif kind == "deflated npz":
        np.savez_compressed(path, **arrays)
    elif kind == "npy":
        records = np.zeros(B, [(role, values.dtype, (T,)) for role, values in arrays.items()])
        for role, values in arrays.items():
            records[role] = values
        np.save(path, records)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif kind == "parquet":
        pq.write_table(table, path, row_group_size=7)
    elif kind == "recorded":
        with ppocli.RolloutWriter(path) as writer:
            for start in range(0, B, 9):
                writer.append(**{role: values[start : start + 9] for role, values in arrays.items()})
    else:
        made = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as sink, made(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=11)
    # NumPy adds its suffix.
    return path if path.exists() else path.with_name(path.name + (".npy" if kind == "npy" else ".npz"))


def answer(path: Path, chunk_rows: int | None) -> dict[str, Any]:
    document = ppocli.evaluate(path, chunk_rows=chunk_rows, worst=3).to_dict()
    kept = {key: document[key] for key in ("metrics", "nulls", "worst", "places")}
    return json.loads(json.dumps(kept).replace(str(path), "FILE"))


@pytest.mark.parametrize("kind", ["npz", "deflated npz", "npy", "jsonl", "stream", "file", "recorded"])
def test_every_file_type_gives_the_same_bits(kind: str, tmp_path: Path) -> None:
    expected = answer(write("parquet", tmp_path / "p"), None)
    path = write(kind, tmp_path / "other")
    for chunk_rows in (None, 100):
        assert answer(path, chunk_rows) == expected
