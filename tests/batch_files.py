"""Reads rollout files into the tokens that `naive` takes, and writes batches; no code of the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Collection

    import naive
    from strategies import Batch

KEYS = {"sequence_id": "sequence", "group_id": "group"}


def tokens_of(path: Path) -> tuple[list[naive.Token], int]:
    """The tokens of a file and how many rows it stores."""
    columns = _npz(path) if path.suffix == ".npz" else pq.read_table(path).to_pydict()
    columns = {KEYS.get(role, role): values for role, values in columns.items()}
    n_rows = len(columns["log_probs"])
    tokens: list[naive.Token] = []
    for row in range(n_rows):
        cells = {role: values[row] for role, values in columns.items()}
        if not isinstance(cells["log_probs"], list):
            tokens.append(cells)
            continue
        for place in range(len(cells["log_probs"])):
            token = {role: cell[place] if isinstance(cell, list) else cell for role, cell in cells.items()}
            tokens.append({"sequence": row, **token})
    return tokens, n_rows


def _npz(path: Path) -> dict[str, list[Any]]:
    with np.load(path, allow_pickle=False) as members:
        return {role: members[role].tolist() for role in members.files}


def write_batch(
    batch: Batch,
    path: Path,
    *,
    dtype: str | None = None,
    row_group_size: int | None = None,
    roles: Collection[str] | None = None,
    as_ids: bool = False,
) -> Path:
    """Write a batch as Parquet: list columns where it has rows, or flat with a `sequence_id` if `as_ids`."""
    width = dtype or batch.dtype
    columns: dict[str, pa.Array] = {
        role: pa.array(values.astype(width), mask=null_mask(batch, role))
        for role, values in batch.columns.items()
        if roles is None or role in roles
    }
    if batch.mask is not None:
        columns["mask"] = pa.array(batch.mask)
    lengths = batch.lengths
    rows = None if lengths is None else np.repeat(np.arange(len(lengths)), lengths)
    if lengths is None:
        table = pa.table(columns)
    elif as_ids:
        table = pa.table({**columns, "sequence_id": pa.array(rows)})
        if batch.groups is not None:
            table = table.append_column("group_id", pa.array(np.array(batch.groups)[rows]))
    else:
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        lists = {role: pa.ListArray.from_arrays(offsets, one) for role, one in columns.items()}
        table = pa.table(lists)
        if batch.groups is not None:
            table = table.append_column("group_id", pa.array(batch.groups))
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


def null_mask(batch: Batch, role: str) -> np.ndarray:
    """True where the column holds no value."""
    out = np.zeros(batch.n_tokens, bool)
    out[[place for name, place in batch.nulls if name == role]] = True
    return out
