"""A second opinion on a damaged file: read whole by PyArrow, NumPy or json, then the formula in NumPy."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROLES = ("log_probs", "old_log_probs", "advantages")
COMPARED = ("n_rows", "n_tokens", "n_masked", "n_null", "n_nan", "n_posinf", "n_neginf")


def metrics_of(kind: str, content: bytes) -> dict[str, Any]:
    """Return counts and the loss over finite tokens; raise whatever the library raises."""
    rows, tokens = TABLES[kind](content)
    mask = tokens.pop("mask", None)
    if mask is not None and all(one is None for one in mask):
        mask = None  # a column of type null counts as absent
    n = len(tokens["log_probs"])
    valid = np.ones(n, bool) if mask is None else np.array([one == 1 for one in mask])
    values = {
        role: np.array([np.nan if one is None else one for one in tokens[role]], float)[valid]
        for role in ROLES
    }
    nulls = sum(int(sum(one is None for one in np.array(tokens[role], object)[valid])) for role in ROLES)
    every = np.concatenate(list(values.values())) if n else np.empty(0)
    finite = np.logical_and.reduce([np.isfinite(one) for one in values.values()])
    new, old, adv = (values[role][finite] for role in ROLES)
    with np.errstate(all="ignore"):
        ratio = np.exp(new - old)
        loss = -np.minimum(ratio * adv, np.clip(ratio, 0.8, 1.2) * adv)
        loss[adv == 0] = 0.0  # by definition, whatever the ratio
        mean = float(np.mean(loss)) if loss.size else None
    return {
        "n_rows": rows,
        "n_tokens": int(valid.sum()),
        "n_masked": int((~valid).sum()),
        "n_null": nulls,
        "n_nan": int(np.isnan(every).sum()) - nulls,
        "n_posinf": int(np.isposinf(every).sum()),
        "n_neginf": int(np.isneginf(every).sum()),
        "loss": mean,
        "scale": float(np.mean(np.abs(loss))) if loss.size else None,
    }


def _of_table(table: pa.Table) -> tuple[int, dict[str, Any]]:
    """Names are compared without case, as ppocli does: one flipped bit makes a capital."""
    columns = {name.lower(): table[name] for name in table.column_names}
    return _of_rows(
        pa.table({role: columns[role] for role in (*ROLES, "mask") if role in columns}).to_pylist()
    )


def _of_rows(rows: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """Return tokens by role; a value beside lists is repeated, a null list is that many nulls."""
    tokens: dict[str, list[Any]] = {role: [] for role in rows[0]} if rows else {role: [] for role in ROLES}
    for row in rows:
        lengths = {len(one) for one in row.values() if isinstance(one, list)}
        if len(lengths) > 1:
            raise ValueError("lengths differ")
        nested = any(isinstance(one, list) for other in rows for one in other.values())
        n = lengths.pop() if lengths else (0 if nested else 1)
        for role, one in row.items():
            tokens[role] += one if isinstance(one, list) else [one] * n
    return len(rows), tokens


def _parquet(content: bytes) -> tuple[int, dict[str, Any]]:
    file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
    wanted = [name for name in file.schema_arrow.names if name.lower() in (*ROLES, "mask")]
    return _of_table(file.read(columns=wanted))


def _arrow(content: bytes) -> tuple[int, dict[str, Any]]:
    opened = pa.ipc.open_file if content[:6] == b"ARROW1" else pa.ipc.open_stream
    names = opened(pa.BufferReader(content)).schema.names
    wanted = [index for index, name in enumerate(names) if name.lower() in (*ROLES, "mask")]
    options = pa.ipc.IpcReadOptions(included_fields=wanted)
    table = opened(pa.BufferReader(content), options=options).read_all()
    table.validate(full=True)
    return _of_table(table)


def _npz(content: bytes) -> tuple[int, dict[str, Any]]:
    with np.load(io.BytesIO(content), allow_pickle=False) as members:
        arrays = {name.lower(): members[name] for name in members.files if name.lower() in (*ROLES, "mask")}
    shape = arrays["log_probs"].shape
    tokens = {role: np.broadcast_to(one, shape).reshape(-1).tolist() for role, one in arrays.items()}
    return (shape[0] if shape else 1), tokens


def _npy(content: bytes) -> tuple[int, dict[str, Any]]:
    records = np.load(io.BytesIO(content), allow_pickle=False)
    names = [name for name in records.dtype.names if name.lower() in (*ROLES, "mask")]
    return len(records), {name.lower(): records[name].tolist() for name in names}


def _jsonl(content: bytes) -> tuple[int, dict[str, Any]]:
    # Here case counts: a key of another case in one line is another key, and the role's own is missing there.
    rows = [json.loads(line) for line in content.decode("utf-8-sig").split("\n") if line.strip()]
    keys = [key for key in (*ROLES, "mask") if any(key in row for row in rows)]
    return _of_rows([{key: row.get(key) for key in keys} for row in rows])


TABLES = {"parquet": _parquet, "arrow": _arrow, "npz": _npz, "npy": _npy, "jsonl": _jsonl}
