"""How evaluation scales: measured on one and two workers, simulated with recorded times beyond them.

    python tests/benchmarks/scaling.py [--rows 2000000] [--files 16]

Prints bytes and seconds per token and core, the size of a part, what the driver does per unit, and
what follows for more workers. Needs the extra ppocli[ray].
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ppocli.core.chunk import ReadOptions
from ppocli.core.spec import LossSpec
from ppocli.engine.by_file import ByFile, evaluate_with_partials
from ppocli.engine.evaluate import evaluate_files
from ppocli.engine.merge_reports import merge
from ppocli.engine.ray_engine import Cluster
from ppocli.engine.where import Here

UNITS = (10, 100, 1000)
WORKERS = (1, 2, 10, 100, 1000)
TERABYTES = 10


def write(folder: Path, layout: str, n_files: int, n_rows: int) -> list[str]:
    """Write files of three float32 columns, compressed with snappy: flat, or sequences of 500 tokens."""
    rng = np.random.default_rng(1)
    paths = []
    for k in range(n_files):
        old = -rng.exponential(1.0, n_rows).astype(np.float32)
        new = old + rng.normal(0, 0.1, n_rows).astype(np.float32)
        columns: dict[str, Any] = {
            "log_probs": new,
            "old_log_probs": old,
            "advantages": rng.normal(0, 1, n_rows).astype(np.float32),
        }
        if layout == "list":
            offsets = pa.array(np.append(np.arange(0, n_rows, 500), n_rows), pa.int32())
            columns = {
                name: pa.ListArray.from_arrays(offsets, pa.array(one)) for name, one in columns.items()
            }
            columns["group_id"] = np.arange(len(offsets) - 1) // 16
        paths.append(str(folder / f"{layout}-{k}.parquet"))
        pq.write_table(pa.table(columns), paths[-1])
    return paths


def on_workers(paths: list[str], n: int) -> tuple[float, list[float], int]:
    """Seconds of a run on n workers that have worked before, those of each unit, and the largest worker."""
    import ray

    ray.init(num_cpus=n, include_dashboard=False, log_to_driver=False, object_store_memory=128 << 20)
    try:
        for _ in range(2):
            with Cluster() as cluster:
                began = time.perf_counter()
                evaluate_files(
                    paths, LossSpec(), engine=lambda run, worst: ByFile(run, worst, cluster, keep=False)
                )
                seconds = time.perf_counter() - began
        return seconds, cluster.seconds, cluster.peak_bytes
    finally:
        ray.shutdown()


def here(paths: list[str], threads: int) -> tuple[float, float]:
    """Seconds and processor seconds of a local run whose kernels are loaded; of two, the smaller."""
    times, busy = [], []
    for _ in range(2):
        began, before = time.perf_counter(), time.process_time()
        evaluate_files(paths, LossSpec(), threads=threads)
        times.append(time.perf_counter() - began)
        busy.append(time.process_time() - before)
    return min(times), min(busy)


class Recorded:
    """Gives what units found before as the results of as many units as wanted, under names of their own."""

    name = "--engine recorded"
    said: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, states: list[str], n: int) -> None:
        self.texts = [states[k % len(states)].replace(".parquet", f"-{k}.parquet") for k in range(n)]

    def results(self, task: str, plan: Any, inputs: Any, given: Any, **how: Any) -> Any:
        for index, text in enumerate(self.texts):
            yield index, json.loads(text)


def driver_seconds(states: list[str], n: int) -> tuple[float, float]:
    """Seconds that the driver takes for n units: reading and entering the parts, and all of its work."""
    from ppocli.core.progress import NoProgress
    from ppocli.engine.assembly import Assembly
    from ppocli.engine.evaluate import Run

    names = [str(k) for k in range(n)]
    run = Run(LossSpec(), (), None, NoProgress(), False, names, {}, options=ReadOptions())
    run.engine = ByFile(run, 0, Recorded(states, n), keep=False)
    began = time.perf_counter()
    Assembly(run, "file", 0, 1).report(allow_empty=True)
    return (time.perf_counter() - began) / n, time.perf_counter() - began


def makespan(unit: list[float], n: int, workers: int, driver: float) -> float:
    """Seconds until n units are done: each worker takes the next; the driver enters them in order."""
    free = [0.0] * min(workers, n)
    done = 0.0
    for k in range(n):
        ends = heapq.heappop(free) + unit[k % len(unit)]
        heapq.heappush(free, ends)
        done = max(done, ends) + driver
    return done


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--files", type=int, default=16)
    asked = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with tempfile.TemporaryDirectory() as folder:
        for layout in ("flat", "list"):
            measure(Path(folder), layout, asked.files, asked.rows)


def measure(folder: Path, layout: str, n_files: int, n_rows: int) -> None:
    """Print one layout's numbers."""
    paths = write(folder, layout, n_files, n_rows)
    n_tokens, n_bytes = n_files * n_rows, sum(Path(path).stat().st_size for path in paths)
    per_token = n_bytes / n_tokens
    print(f"\n{layout}: {n_files} files of {n_rows:,} tokens, {per_token:.2f} bytes per token")
    (one, cpu), (two, _) = here(paths, 1), here(paths, 2)
    print(f"local, 1 thread {n_tokens / one / 1e6:.0f} M tokens/s, 2 threads {n_tokens / two / 1e6:.0f}")
    per_core = n_tokens / cpu
    print(f"processor time: {per_core / 1e6:.0f} M tokens per core and second")
    _, document = evaluate_with_partials(paths, LossSpec(), threads=1, where=Here(_quiet()))
    states = [json.dumps({"state": entry["state"]}) for entry in document["files"]]
    size = sum(map(len, states)) / len(states)
    print(f"part of a file: {size / 1e3:.1f} kB")
    units: list[float] = []
    for n in (2, 1):  # the times of one worker, which has a core for itself, are those of the simulation
        seconds, units, peak = on_workers(paths, n)
        print(
            f"ray, workers {n}: {n_tokens / seconds / 1e6:.0f} M tokens/s, {seconds:.2f} s, "
            f"unit {np.median(units):.3f} s, largest worker {peak / 2**20:.0f} MB"
        )
    driver = 0.0
    for n in UNITS:
        driver, whole = driver_seconds(states, n)
        print(
            f"driver, {n} units: {driver * 1e3:.2f} ms per unit, {whole:.2f} s in all; "
            f"merge {_merge(folder, document, n):.2f} s"
        )
    unit = float(np.median(units))
    print(
        f"unit {unit:.3f} s, driver {driver * 1e3:.2f} ms: "
        f"one driver keeps up with {unit / driver:.0f} workers"
    )
    for workers in WORKERS:
        spans = ", ".join(f"{n} units {makespan(units, n, workers, driver):.1f} s" for n in UNITS)
        print(f"simulated, {workers} workers: {spans}")
    hours = TERABYTES * 1e12 / per_token / per_core / 3600
    print(
        f"{TERABYTES} TB: {TERABYTES * 1e12 / per_token:.3g} tokens "
        f"at {per_core / 1e6:.0f} M/s per core: {hours:.0f} core-hours"
    )


def _merge(folder: Path, document: dict[str, Any], n: int) -> float:
    """Seconds to merge ten documents with n files in all."""
    from ppocli.core.partial_document import digest

    made = []
    for k in range(n):
        entry = json.loads(json.dumps(document["files"][k % len(document["files"])]))
        entry["state"]["input"]["path"] += f".{k}"
        entry["fingerprint"] = f"{k:064x}"
        made.append({**entry, "sha256": digest(entry)})
    paths = []
    for k in range(10):
        paths.append(folder / f"part-{k}.json")
        paths[-1].write_text(json.dumps({**document, "files": made[k::10], "n_paths": len(made[k::10])}))
    began = time.perf_counter()
    merge(paths)
    return time.perf_counter() - began


def _quiet() -> Any:
    from ppocli.core.progress import NoProgress

    return NoProgress()


if __name__ == "__main__":
    main()
