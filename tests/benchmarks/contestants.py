"""Those that are compared: each takes a file, does its work once and returns its numbers by name.

They run in processes of their own (`worker.py`). What a peer's query leaves out of what `eval` prints:
quantiles, places of extremes, counts for each number format, gradients, standard errors, findings.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import numpy as np

ROLES = ("log_probs", "old_log_probs", "advantages")
Numbers = dict[str, float]
CPUS = len(os.sched_getaffinity(0))

HEADLINE = ("policy_loss", "unclipped_loss", "clip_frac", "clip_frac_active", "approx_kl_k1", "approx_kl_k2")
HEADLINE += (
    "approx_kl_k3",
    "ratio_mean",
    "ratio_std",
    "ratio_min",
    "ratio_max",
    "ess_frac",
    "adv_mean",
    "adv_std",
)
"""What the peers compute too."""


# ------------------------------------------------------------------------------------------- ppocli


def evaluate(path: str, **settings: Any) -> Numbers:
    """`eval`."""
    import ppocli

    report = ppocli.evaluate(path, **settings)
    return {name: x for name, x in report.metrics.items() if isinstance(x, (int, float))}


def variant(path: str, **settings: Any) -> Numbers:
    """Return what `eval` with other settings has in common with it."""
    numbers = evaluate(path, **settings)
    return {name: numbers[name] for name in ("n_tokens", "approx_kl_k1", "ratio_mean", "adv_mean")}


def in_memory(path: str) -> Numbers:
    """The same on the arrays of an NPZ file, in memory."""
    import ppocli

    arrays = _arrays(path)
    names = ROLES + (("mask",) if "mask" in arrays else ())
    report = ppocli.evaluate(**{name: arrays[name] for name in names})
    stored = report.metrics["n_tokens"] + report.metrics["n_masked"]
    return {
        "n_stored": stored,
        **{name: x for name, x in report.metrics.items() if isinstance(x, (int, float))},
    }


def without_mask(path: str) -> Numbers:
    """The same without the mask of the file."""
    import ppocli

    report = ppocli.evaluate(**{name: _arrays(path)[name] for name in ROLES})
    return {"n_stored": report.metrics["n_tokens"]}


@cache
def _arrays(path: str) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def command(name: str, *options: str) -> Callable[[str], Numbers]:
    """Return a command of the command line, in this process; its number is that of the tokens it read."""

    def run(path: str) -> Numbers:
        from ppocli.cli.app import COMMANDS, main

        if name not in COMMANDS:
            raise LookupError(f"no command {name}")
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) as out:
            code = main([name, path, *options, "-f", "json", "--quiet"])
            out.flush()
            document = json.loads(out.buffer.getvalue())
        if code not in (0, 1):
            raise RuntimeError(f"{name} ended with {code}")
        return {"n_tokens": sum(one["tokens"] for one in document["inputs"])}

    return run


# ------------------------------------------------------------------------------------------- NumPy


def formula(path: str, dtype: str) -> Numbers:
    """The formula as it is usually written, on arrays in memory."""
    new, old, advantages = (x.astype(dtype, copy=False) for x in map(_arrays(path).get, ROLES))
    ratio = np.exp(new - old)
    clipped = np.clip(ratio, 0.8, 1.2)
    return {"policy_loss": float(-np.mean(np.minimum(ratio * advantages, clipped * advantages)))}


def metrics_in_numpy(path: str) -> Numbers:
    """The headline metrics in float64, on arrays in memory."""
    new, old, advantages = (x.astype(np.float64) for x in map(_arrays(path).get, ROLES))
    x = new - old
    ratio = np.exp(x)
    free, held = ratio * advantages, np.clip(ratio, 0.8, 1.2) * advantages
    active = ((ratio < 0.8) & (advantages < 0)) | ((ratio > 1.2) & (advantages > 0))
    return {
        "policy_loss": float(-np.minimum(free, held).mean()),
        "unclipped_loss": float(-free.mean()),
        "clip_frac": float(((ratio < 0.8) | (ratio > 1.2)).mean()),
        "clip_frac_active": float(active.mean()),
        "approx_kl_k1": float(-x.mean()),
        "approx_kl_k2": float((x * x).mean() / 2),
        "approx_kl_k3": float((ratio - 1 - x).mean()),
        "ratio_mean": float(ratio.mean()),
        "ratio_std": float(ratio.std()),
        "ratio_min": float(ratio.min()),
        "ratio_max": float(ratio.max()),
        "ess_frac": float(ratio.sum() ** 2 / (ratio * ratio).sum() / ratio.size),
        "adv_mean": float(advantages.mean()),
        "adv_std": float(advantages.std()),
    }


# ------------------------------------------------------------------------------------------- Parquet


def scan(path: str) -> Numbers:
    """PyArrow decoding every value and nothing else, by the best means: mapped, a row group per thread."""
    import pyarrow.parquet as pq

    def read(group: int) -> int:
        with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
            table = file.read_row_group(group, columns=list(ROLES), use_threads=False)
        column = table.column(0)
        return sum(
            len(chunk.values) if hasattr(chunk, "values") else len(chunk) for chunk in column.iterchunks()
        )

    with pq.ParquetFile(path) as file:
        groups = range(file.metadata.num_row_groups)
    with ThreadPoolExecutor(CPUS) as pool:
        return {"n_tokens": sum(pool.map(read, groups))}


def polars(path: str) -> Numbers:
    """Polars' streaming engine with the headline metrics."""
    import polars as pl

    new, old, a = (pl.col(name).cast(pl.Float64) for name in ROLES)
    x = new - old
    r = x.exp()
    held = r.clip(0.8, 1.2)
    active = ((r < 0.8) & (a < 0)) | ((r > 1.2) & (a > 0))
    query = pl.scan_parquet(path).select(
        policy_loss=-pl.min_horizontal(r * a, held * a).mean(),
        unclipped_loss=-(r * a).mean(),
        clip_frac=((r < 0.8) | (r > 1.2)).mean(),
        clip_frac_active=active.mean(),
        approx_kl_k1=-x.mean(),
        approx_kl_k2=(x * x).mean() / 2,
        approx_kl_k3=(r - 1 - x).mean(),
        ratio_mean=r.mean(),
        ratio_std=r.std(ddof=0),
        ratio_min=r.min(),
        ratio_max=r.max(),
        ess_frac=r.sum() ** 2 / (r * r).sum() / pl.len(),
        adv_mean=a.mean(),
        adv_std=a.std(ddof=0),
    )
    return query.collect(engine="streaming").row(0, named=True)


SQL = """
with columns as (select log_probs::double - old_log_probs::double x, advantages::double a
    from read_parquet('{path}')),
  t as (select x, exp(x) r, a from columns)
select -avg(least(r * a, least(greatest(r, 0.8), 1.2) * a)) policy_loss, -avg(r * a) unclipped_loss,
  avg((r < 0.8 or r > 1.2)::int) clip_frac,
  avg(((r < 0.8 and a < 0) or (r > 1.2 and a > 0))::int) clip_frac_active,
  -avg(x) approx_kl_k1, avg(x * x) / 2 approx_kl_k2, avg(r - 1 - x) approx_kl_k3,
  avg(r) ratio_mean, stddev_pop(r) ratio_std, min(r) ratio_min, max(r) ratio_max,
  sum(r) * sum(r) / sum(r * r) / count(*) ess_frac, avg(a) adv_mean, stddev_pop(a) adv_std from t
"""


def duckdb(path: str) -> Numbers:
    """DuckDB with the headline metrics."""
    import duckdb as peer

    found = peer.sql(SQL.format(path=path))
    return dict(zip(found.columns, found.fetchall()[0], strict=True))


# ------------------------------------------------------------------------------------------- NPZ


def inflate(path: str) -> Numbers:
    """Zlib inflating the members, a thread for each, in blocks."""

    def read(info: zipfile.ZipInfo) -> int:
        total, crc = 0, 0
        with zipfile.ZipFile(path) as archive, archive.open(info) as member:
            while block := member.read(1 << 20):
                total, crc = total + len(block), zlib.crc32(block, crc)
        return total

    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
    with ThreadPoolExecutor(CPUS) as pool:
        total = sum(pool.map(read, infos))
    header = 128  # of a small array in npy format
    return {"n_tokens": (total // len(infos) - header) // 4}


CONTESTANTS: Mapping[str, Callable[[str], Numbers]] = {
    "eval": evaluate,
    "in memory": in_memory,
    "without mask": without_mask,
    "NumPy float32 formula": partial(formula, dtype="float32"),
    "NumPy float64 formula": partial(formula, dtype="float64"),
    "NumPy float64 metrics": metrics_in_numpy,
    "scan": scan,
    "Polars": polars,
    "DuckDB": duckdb,
    "inflate": inflate,
    "gspo": partial(variant, objective="gspo"),
    "cispo": partial(variant, objective="cispo"),
    "like verl": partial(variant, like="verl"),
    "adv-norm batch": partial(variant, adv_norm="batch"),
    "parity": command("parity"),
    "audit": command("audit", "--formats", "float32,bfloat16,float16,float8_e4m3fn,int8"),
    "drift": command("drift"),
}
