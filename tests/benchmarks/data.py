"""The files that are measured: one set of numbers in every layout, at two or more sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROLES = ("log_probs", "old_log_probs", "advantages")
GROUP_ROWS = 1 << 20
"""Rows of a row group of flat files, as PyArrow writes them unless told otherwise."""

LONGEST = 1000
"""Sequences are 1 to this many tokens long."""


def columns(n: int) -> dict[str, np.ndarray]:
    """Return n tokens: log-probs of a policy a step behind, standard normal advantages, four fifths valid."""
    rng = np.random.default_rng(20)
    new = rng.standard_exponential(n, dtype=np.float32) * np.float32(-0.5)
    old = np.minimum(new + rng.standard_normal(n, dtype=np.float32) * np.float32(0.15), np.float32(-1e-4))
    advantages = rng.standard_normal(n, dtype=np.float32)
    return {
        "log_probs": new,
        "old_log_probs": old,
        "advantages": advantages,
        "mask": rng.random(n, dtype=np.float32) < 0.8,
        "rollout_log_probs": old + rng.standard_normal(n, dtype=np.float32) * np.float32(0.01),
    }


def offsets_of(n: int) -> np.ndarray:
    """Return where sequences start in n tokens."""
    lengths = np.random.default_rng(21).integers(1, LONGEST + 1, size=2 * n // LONGEST + 1000)
    ends = np.cumsum(lengths)
    return np.concatenate([[0], ends[ends < n], [n]]).astype(np.int64)


def flat(folder: Path, n: int, codec: str, *more: str) -> Path:
    """Write one row per token."""
    path = folder / f"flat-{n}-{codec}{''.join(f'-{name}' for name in more)}.parquet"
    if not path.exists():
        table = pa.table({name: columns(n)[name] for name in (*ROLES, *more)})
        pq.write_table(table, path, compression=codec, row_group_size=GROUP_ROWS)
    return path


def lists(folder: Path, n: int, codec: str) -> Path:
    """Write one row per sequence."""
    path = folder / f"list-{n}-{codec}.parquet"
    if not path.exists():
        tokens, offsets = columns(n), pa.array(offsets_of(n), type=pa.int32())
        table = pa.table({name: pa.ListArray.from_arrays(offsets, pa.array(tokens[name])) for name in ROLES})
        rows = max(1, GROUP_ROWS * table.num_rows // n)
        pq.write_table(table, path, compression=codec, row_group_size=rows)
    return path


def npz(folder: Path, n: int, *, deflated: bool, mask: bool = False) -> Path:
    """Write arrays of n tokens."""
    path = folder / f"npz-{n}-{'deflated' if deflated else 'stored'}{'-mask' if mask else ''}.npz"
    if not path.exists():
        names = (*ROLES, "mask") if mask else ROLES
        (np.savez_compressed if deflated else np.savez)(path, **{name: columns(n)[name] for name in names})
    return path
