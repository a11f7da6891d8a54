"""Small whole files of every format, to be damaged."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LENGTHS = (3, 0, 5, 2, 7, 1, 4)
ROLES = ("log_probs", "old_log_probs", "advantages")


def columns() -> dict[str, np.ndarray]:
    """Tokens of a few sequences, as float32."""
    rng = np.random.default_rng(11)
    n = sum(LENGTHS)
    old = -rng.exponential(1.0, n)
    made = {"log_probs": old + rng.normal(0, 0.2, n), "old_log_probs": old, "advantages": rng.normal(0, 1, n)}
    return {role: values.astype(np.float32) for role, values in made.items()}


def nested() -> pa.Table:
    """One row per sequence, with a mask, an id and a text that plays no role."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(LENGTHS)]), pa.int32())
    lists = {role: pa.ListArray.from_arrays(offsets, pa.array(values)) for role, values in columns().items()}
    mask = np.arange(sum(LENGTHS)) % 5 > 0
    return pa.table(
        {
            **lists,
            "mask": pa.ListArray.from_arrays(offsets, pa.array(mask)),
            "group_id": [f"g{i % 3}" for i in range(len(LENGTHS))],
            "text": ["some words"] * len(LENGTHS),
        }
    )


def flat() -> pa.Table:
    """One row per token."""
    return pa.table(columns())


def _parquet(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, write_page_checksum=True, row_group_size=4, **options)
    return out.getvalue()


def _arrow(table: pa.Table, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    made = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with made(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=3)
    return out.getvalue()


def _npz(deflated: bool) -> bytes:
    out = io.BytesIO()
    shape = (2, sum(LENGTHS) // 2)
    arrays: dict[str, Any] = {role: values.reshape(shape) for role, values in columns().items()}
    arrays["mask"] = np.arange(sum(LENGTHS)).reshape(shape) % 5 > 0
    (np.savez_compressed if deflated else np.savez)(out, **arrays)
    return out.getvalue()


def _npy() -> bytes:
    out = io.BytesIO()
    records = np.zeros(sum(LENGTHS), [(role, "<f4") for role in ROLES])
    for role, values in columns().items():
        records[role] = values
    np.save(out, records)
    return out.getvalue()


def seeds() -> dict[str, dict[str, bytes]]:
    """Files by format and name."""
    table = nested()
    lines = "".join(json.dumps(one) + "\n" for one in table.to_pylist())
    return {
        "parquet": {
            "lists": _parquet(table, compression="zstd"),
            "flat": _parquet(flat(), compression="snappy", use_dictionary=False),
        },
        "npz": {"deflated": _npz(True), "stored": _npz(False)},
        "arrow": {
            "stream": _arrow(table, "stream"),
            "file": _arrow(table, "file"),
            "zstd": _arrow(table, "stream", compression="zstd"),
            "flat": _arrow(flat(), "file"),
        },
        "jsonl": {"lists": lines.encode()},
        "npy": {"records": _npy()},
    }
