"""Writes the sample files: python sample_data/make_samples.py [DIRECTORY]

The same values come out everywhere: nothing but PCG64 draws, the four operations, square roots and casts,
whose results IEEE 754 fixes, added up in a written order (`exp`, `log` and `normal` differ by library).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Floats = np.ndarray


class Draws:
    """Random numbers of one file."""

    def __init__(self, seed: int) -> None:
        self.bits = np.random.Generator(np.random.PCG64(seed))

    def uniform(self, n: int) -> Floats:
        return self.bits.random(n)

    def bell(self, n: int) -> Floats:
        """Mean 0, variance 1, within +-6: the sum of twelve uniform draws, less 6."""
        total = np.full(n, -6.0)
        for _ in range(12):
            total += self.bits.random(n)
        return total

    def whole(self, low: int, high: int, n: int) -> np.ndarray:
        """Whole numbers from low to high - 1."""
        return self.bits.integers(low, high, n)


def surprise(draws: Draws, n: int) -> Floats:
    """Minus a token's log-prob: most tokens are near certain, some cost several nats."""
    u = draws.uniform(n)
    return 0.0005 + 0.5 * u * u * u / (1.03 - u)


def moved(draws: Draws, old: Floats, spread: float, push: Floats | float = 0.0) -> Floats:
    """Log-probs after an update: old plus a step, smaller where the policy is sure; never above 0.

    `push` is the part of the step that is not noise: along the advantages, where the update did its work.
    """
    step = spread * -old / (0.1 - old)
    return np.minimum(old + step * (draws.bell(len(old)) + push) - 0.5 * step * step, -1e-5)


def whitened(values: Floats) -> Floats:
    """Mean 0, deviation 1, rounded to 1e-6 so that the order of the sums cannot show."""
    n = len(values)
    centred = values - sum(values.tolist()) / n
    deviation = np.sqrt(sum((centred * centred).tolist()) / n)
    return np.round(centred / deviation, 6)


def bfloat16(values: Floats) -> Floats:
    """Rounded to bfloat16, nearest even, as float32."""
    bits = values.astype(np.float32).view(np.uint32)
    kept = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return kept.view(np.float32)


def write_parquet(path: Path, columns: dict[str, Any], lengths: np.ndarray | None = None) -> None:
    """Flat columns, or list columns where a column has a value for each token of the rows."""
    offsets = None if lengths is None else pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    table = {}
    for role, values in columns.items():
        kept = values.astype(np.float32) if values.dtype == np.float64 else values
        per_token = offsets is not None and len(values) == offsets[-1].as_py()
        table[role] = pa.ListArray.from_arrays(offsets, kept) if per_token else pa.array(kept)
    note = {"ppocli": json.dumps({"roles": sorted(columns)})}
    pq.write_table(
        pa.table(table).replace_schema_metadata(note), path, compression="zstd", write_page_checksum=True
    )


def healthy(folder: Path) -> None:
    """An LLM batch of 64 answers to 16 prompts: a critic, a reference, entropies, masked tool output."""
    draws = Draws(1)
    lengths = draws.whole(24, 180, 64)
    n = int(lengths.sum())
    row = np.repeat(np.arange(64), lengths)
    old = -surprise(draws, n)
    score = np.where(draws.uniform(64) < 0.45, 1.0, 0.0)
    place = np.arange(n) - (np.cumsum(lengths) - lengths)[row]
    last = place == lengths[row] - 1
    returns = score[row] + 0.15 * draws.bell(n)
    old_values = 0.5 + 0.7 * (returns - 0.5) + 0.2 * draws.bell(n)
    start = draws.whole(4, 12, 64)[row]
    tool = (row % 8 == 3) & (place >= start) & (place < start + 10)
    advantages = whitened(returns - old_values)
    columns = {
        "group_id": np.arange(64) // 4,
        "log_probs": moved(draws, old, 0.2, 0.15 * advantages),
        "old_log_probs": old,
        "ref_log_probs": moved(draws, old, 0.25),
        "advantages": advantages,
        "mask": ~tool,
        "old_values": old_values,
        "values": old_values + 0.3 * (returns - old_values) + 0.03 * draws.bell(n),
        "returns": returns,
        "rewards": np.where(last, score[row], 0.0),
        "entropy": 0.5 * -old + draws.uniform(n),
    }
    write_parquet(folder / "healthy.parquet", columns, lengths)


def classic(folder: Path) -> None:
    """A minibatch of 2,048 steps of a Gaussian policy: log-densities may be above 0."""
    draws = Draws(2)
    n = 2048
    old = 0.2 - 2.4 * surprise(draws, n)
    returns = 20.0 + 6.0 * draws.bell(n)
    old_values = returns + 2.5 * draws.bell(n)
    advantages = whitened(returns - old_values)
    columns = {
        "log_probs": old + 0.13 * (draws.bell(n) + 0.15 * advantages) - 0.00845,
        "old_log_probs": old,
        "advantages": advantages,
        "old_values": old_values,
        "values": old_values + 0.4 * (returns - old_values) + 0.2 * draws.bell(n),
        "returns": returns,
        "entropy": 0.8 + 0.05 * draws.bell(n),
    }
    write_parquet(folder / "classic_rl.parquet", columns)


def clipped(folder: Path) -> None:
    """The 40th epoch over one stale batch of 48 answers: most ratios are outside the interval."""
    draws = Draws(3)
    lengths = draws.whole(30, 120, 48)
    n = int(lengths.sum())
    old = -surprise(draws, n) - 0.2
    advantages = whitened(draws.bell(n))
    push = 0.5 * advantages
    columns = {
        "log_probs": np.minimum(old + push + 0.55 * draws.bell(n), -1e-5),
        "old_log_probs": old,
        "advantages": advantages,
    }
    write_parquet(folder / "heavy_clipping.parquet", columns, lengths)


def overflow(folder: Path) -> None:
    """A run that came apart: log-ratios beyond the range of float16 and of float32, three log-probs NaN."""
    draws = Draws(4)
    n = 1000
    old = -surprise(draws, n)
    new = moved(draws, old, 0.15)
    # New close to 0, old far below: ratios exp(12) to exp(16), then exp(90) to exp(120).
    for first, count, low, width in ((100, 12, 12.0, 4.0), (400, 5, 90.0, 30.0)):
        new[first : first + count] = -0.125
        old[first : first + count] = -0.125 - low - width * draws.uniform(count)
    new[[250, 251, 800]] = np.nan
    arrays = {
        "log_probs": new.astype(np.float32),
        "old_log_probs": old.astype(np.float32),
        "advantages": whitened(draws.bell(n)).astype(np.float32),
    }
    np.savez(folder / "overflow.npz", **arrays)


def mismatch(folder: Path) -> None:
    """GRPO: one advantage per answer; the sampler reported bfloat16, the trainer recomputed in float32."""
    draws = Draws(5)
    lengths = draws.whole(20, 160, 32)
    old = -surprise(draws, int(lengths.sum()))
    score = np.where(draws.uniform(32) < 0.5, 1.0, 0.0)
    # The third group has only right answers: its advantages are all 0.
    score[8:12] = 1.0
    group = np.arange(32) // 4
    mean = np.array([score[group == g].sum() / 4.0 for g in range(8)])
    columns = {
        "group_id": group,
        "log_probs": moved(draws, old, 0.2),
        "old_log_probs": old,
        "rollout_log_probs": bfloat16(old),
        "advantages": score - mean[group],
    }
    write_parquet(folder / "trainer_and_rollout.parquet", columns, lengths)


def padded(folder: Path) -> None:
    """A (24, 96) array of a trainer, with NaN where there is padding: the mask decides what is read."""
    draws = Draws(6)
    shape = (24, 96)
    lengths = draws.whole(10, 97, 24)
    mask = np.arange(96) < lengths[:, None]
    old = -surprise(draws, 24 * 96)
    arrays = {
        "log_probs": moved(draws, old, 0.2).reshape(shape),
        "old_log_probs": old.reshape(shape),
        "advantages": np.round(draws.bell(24 * 96), 6).reshape(shape),
    }
    kept = {role: np.where(mask, values, np.nan).astype(np.float32) for role, values in arrays.items()}
    np.savez(folder / "padded.npz", **kept, mask=mask)


def main(folder: Path) -> None:
    for write in (healthy, classic, clipped, overflow, mismatch, padded):
        write(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
