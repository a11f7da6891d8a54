"""Rollout files of every layout for runs over several of them, with the hard values in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KINDS = ("list", "flat", "text", "plain", "padded")


def columns_of(rng: np.random.Generator, n: int, *, dirty: bool) -> dict[str, Any]:
    """Columns of n tokens; dirty ones hold a NaN, an infinity, a placeholder and a ratio that overflows."""
    old = -rng.exponential(1.0, n)
    columns = {
        "log_probs": old + rng.normal(0, 0.3, n),
        "old_log_probs": old,
        "advantages": rng.normal(0, 1, n),
        "values": rng.normal(0, 1, n),
        "returns": rng.normal(0, 1, n),
        "rollout_log_probs": old + rng.normal(0, 0.02, n),
    }
    if dirty and n > 8:
        columns["log_probs"][3], columns["log_probs"][5] = 800.0, np.nan
        columns["advantages"][2], columns["values"][1] = np.inf, np.nan
        columns["old_log_probs"][7] = -9999.0
    return columns


def write(kind: str, path: Path, seed: int, n_rows: int, *, dirty: bool = False) -> Path:
    """Write one file; `text` has text ids, some of which stand in every such file, `plain` no sequences."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 40, n_rows)
    n = int(lengths.sum())
    columns = columns_of(rng, n, dirty=dirty)
    mask = rng.random(n) < 0.9
    rows = np.repeat(np.arange(n_rows), lengths)
    if kind == "padded":
        return _padded(columns, mask, lengths, path.with_suffix(".npz"))
    if kind == "plain":
        table = pa.table({**columns, "mask": mask})
    elif kind == "list":
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        every = {**columns, "mask": mask, "token_id": rng.integers(0, 1000, n)}
        lists = {role: pa.ListArray.from_arrays(offsets, pa.array(one)) for role, one in every.items()}
        table = pa.table({**lists, "group_id": pa.array(rng.integers(0, 5, n_rows))})
    else:
        name = (lambda what, one: f"{what}-{one}") if kind == "text" else (lambda what, one: one)
        groups, steps = rng.integers(0, 5, n_rows), rng.integers(0, 3, n_rows)
        # The first two ids stand in every file; the others are the file's own.
        ids = [int(row) if row < 2 else int(row) + 1000 * seed for row in range(n_rows)]
        table = pa.table(
            {
                **columns,
                "mask": mask,
                "sequence_id": pa.array([name("s", ids[row]) for row in rows]),
                "group_id": pa.array([name("g", int(groups[row])) for row in rows]),
                "step": pa.array([name("t", int(steps[row])) for row in rows]),
                "token_id": rng.integers(0, 1000, n),
            }
        )
    pq.write_table(table, path, row_group_size=97)
    return path


def _padded(columns: dict[str, Any], mask: np.ndarray, lengths: np.ndarray, path: Path) -> Path:
    """Write sequences as rows of one length."""
    width = max(int(lengths.max(initial=1)), 1)
    there = np.arange(width) < lengths[:, None]
    arrays = {}
    for role, values in {**columns, "mask": mask.astype(np.uint8)}.items():
        arrays[role] = np.zeros((lengths.size, width), dtype=values.dtype)
        arrays[role][there] = values
    np.savez(path, **arrays)
    return path
