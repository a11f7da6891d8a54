"""The rows of the budget table. Budgets are ratios, or differences, taken pair by pair in one run."""

from __future__ import annotations

import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import data, memory
from benchmarks.pairs import Cost, Missing, Worker, per_token, whole

PPOCLI = (sys.executable, "-c", "from ppocli.cli.app import console_main; console_main()")
"""What the installed script runs."""


@dataclass(frozen=True)
class Line:
    """One line of the table; `met` is None where there is no budget, or nothing to hold against it."""

    section: str
    what: str
    measured: str
    budget: str = ""
    met: bool | None = None


@dataclass(frozen=True)
class Bench:
    """Where the files are, how many tokens the two sizes have, and how many pairs are timed."""

    folder: Path
    small: int
    large: int
    pairs: int

    def files(self, make: Callable[[int], Path]) -> list[tuple[int, Path]]:
        """Return the two files of a kind with their sizes."""
        return [(n, make(n)) for n in (self.small, self.large)]

    def compare(
        self, section: str, make: Callable[[int], Path], a: str, b: str, limit: float | None = None, *,
        make_b: Callable[[int], Path] | None = None,
    ) -> Line:  # fmt: skip
        """Return the line of a pair: the cost of an extra token of A over that of B."""
        try:
            cost = per_token(a, b, self.files(make), self.files(make_b or make), self.pairs)
        except Missing as missing:
            return Line(section, f"{a} / {b}", f"not measured: {missing}")
        return Line(section, f"{a} / {b}", _shown(cost), *_held(cost.ratio, limit))


def _shown(cost: Cost) -> str:
    """Return a cost as it is printed."""
    ratio = f"{cost.ratio:.2f} x [{cost.least:.2f}, {cost.most:.2f}]"
    return f"{ratio:22} {cost.a:.2f} / {cost.b:.2f} ns, processor {cost.cpu_a:.2f} / {cost.cpu_b:.2f}"


def _held(value: float, limit: float | None) -> tuple[str, bool | None]:
    """Return a budget as it is printed and whether it is met."""
    return ("", None) if limit is None else (f"<= {limit:.2f} x", value <= limit)


# ------------------------------------------------------------------------------------------- sections


def kernel(bench: Bench) -> Iterator[Line]:
    """Arrays in memory."""
    section = "arrays in memory, float32"

    def make(n: int) -> Path:
        return data.npz(bench.folder, n, deflated=False)

    yield bench.compare(section, make, "in memory", "NumPy float32 formula", 1 / 2.5)
    yield bench.compare(section, make, "in memory", "NumPy float64 formula")
    yield bench.compare(section, make, "in memory", "NumPy float64 metrics")
    with_mask = bench.files(lambda n: data.npz(bench.folder, n, deflated=False, mask=True))
    cost = per_token("in memory", "without mask", with_mask, with_mask, bench.pairs)
    extra = cost.a - cost.b
    yield Line(section, "a mask, per token", f"{extra:+.2f} ns", "<= +0.50 ns", extra <= 0.5)


def parquet(bench: Bench) -> Iterator[Line]:
    """Flat and list columns against a bare scan and against peers."""
    for codec in ("snappy", "zstd"):

        def make(n: int, codec: str = codec) -> Path:
            return data.flat(bench.folder, n, codec)

        section = f"flat Parquet, {codec}"
        yield bench.compare(section, make, "eval", "scan", 1.7)
        yield bench.compare(section, make, "eval", "Polars", 1 / 1.8)
        yield bench.compare(section, make, "eval", "DuckDB", 1 / 4.5)
    for codec in ("snappy", "zstd"):

        def make_list(n: int, codec: str = codec) -> Path:
            return data.lists(bench.folder, n, codec)

        yield bench.compare(f"list Parquet, {codec}", make_list, "eval", "scan", 1.3)


def npz(bench: Bench) -> Iterator[Line]:
    """NPZ against the kernel on the same arrays, and against bare inflating."""

    def stored(n: int) -> Path:
        return data.npz(bench.folder, n, deflated=False)

    def deflated(n: int) -> Path:
        return data.npz(bench.folder, n, deflated=True)

    yield bench.compare("NPZ, stored", stored, "eval", "in memory", 1.3)
    yield bench.compare("NPZ, deflated", deflated, "eval", "inflate")


def commands(bench: Bench) -> Iterator[Line]:
    """Other objectives and commands against `eval` of the same file."""
    section = "objectives and commands, against eval"

    def lists(n: int) -> Path:
        return data.lists(bench.folder, n, "snappy")

    def flat(n: int) -> Path:
        return data.flat(bench.folder, n, "snappy", "rollout_log_probs")

    def without_sampler(n: int) -> Path:
        return data.flat(bench.folder, n, "snappy")

    for name in ("adv-norm batch", "cispo", "gspo", "like verl", "parity"):
        yield bench.compare(section, lists, name, "eval")
    yield bench.compare(section, without_sampler, "audit", "eval", 5.0)
    yield bench.compare(section, flat, "drift", "eval", 1.3)
    # `eval` compares trainer and sampler too, where both are there.
    plain = "commands, against eval without the column of the sampler"
    yield bench.compare(plain, flat, "drift", "eval", 1.3, make_b=without_sampler)


def start_up(bench: Bench) -> Iterator[Line]:
    """Whole processes over bare Python."""
    small = data.lists(bench.folder, 6000, "snappy")
    bare = (sys.executable, "-c", "pass")
    runs: list[tuple[str, tuple[str, ...], int]] = [
        ("--version", ("--version",), 70),
        ("--help", ("--help",), 140),
        ("inspect FILE", ("inspect", str(small)), 320),
        ("eval FILE, 6,000 tokens", ("eval", str(small)), 650),
        ("eval FILE -f json", ("eval", str(small), "-f", "json"), 650),
    ]
    whole((*PPOCLI, "eval", str(small)))
    for what, arguments, limit in runs:
        pairs = [(whole((*PPOCLI, *arguments)), whole(bare)) for _ in range(bench.pairs)]
        yield _over("start-up, over bare Python", what, pairs, limit)
    pairs = []
    for _ in range(min(bench.pairs, 3)):
        with tempfile.TemporaryDirectory() as empty:
            first = whole((*PPOCLI, "eval", str(small)), {"PPOCLI_CACHE_DIR": empty})
        pairs.append((first, whole(bare)))
    yield _over("start-up, over bare Python", "first ever eval", pairs, 5000)


def _over(section: str, what: str, pairs: list[tuple[memory.Ended, memory.Ended]], limit: int) -> Line:
    """Return the line of a command over bare Python."""
    extra = [(a.seconds - b.seconds) * 1e3 for a, b in pairs]
    cpu = statistics.median((a.cpu - b.cpu) * 1e3 for a, b in pairs)
    median = statistics.median(extra)
    measured = f"+{median:.0f} ms [{min(extra):.0f}, {max(extra):.0f}]  processor {cpu:.0f} ms"
    return Line(section, what, measured, f"<= +{limit} ms", median <= limit)


def growth(bench: Bench) -> Iterator[Line]:
    """Time and memory of three sizes: time is linear and memory constant."""
    sizes = [bench.small, (bench.small + bench.large) // 2, bench.large]
    files = [data.flat(bench.folder, n, "snappy") for n in sizes]
    times: list[list[float]] = [[] for _ in sizes]
    with Worker("eval") as worker:
        for _ in range(bench.pairs + 1):
            for took, path in zip(times, files, strict=True):
                took.append(worker.run(path)["seconds"])
    first, middle, last = (statistics.median(took[1:]) for took in times)
    slopes = [(middle - first) / (sizes[1] - sizes[0]) * 1e9, (last - middle) / (sizes[2] - sizes[1]) * 1e9]
    bend = slopes[1] / slopes[0] if slopes[0] > 0 else math.nan
    measured = f"{slopes[0]:.2f}, then {slopes[1]:.2f} ns per token: {bend:.2f} x"
    yield Line(
        "growth over three sizes, flat Parquet", "time", measured, "0.80 to 1.25 x", 0.8 <= bend <= 1.25
    )
    most = [whole((*PPOCLI, "eval", str(path))).megabytes for path in files]
    shown = ", ".join(f"{one:.0f}" for one in most)
    yield Line(
        "growth over three sizes, flat Parquet", "memory", f"{shown} MB", "<= 400 MB", max(most) <= 400
    )


def peaks(bench: Bench) -> Iterator[Line]:
    """Peak memory of whole processes on files that could ask for much."""
    for what, path, options in memory.files(bench.folder):
        ended = whole((*PPOCLI, "eval", str(path), "--by", "total", "-f", "json", *options))
        measured = f"{ended.megabytes:.0f} MB in {ended.seconds:.1f} s"
        yield Line("peak memory of eval", what, measured, "<= 400 MB", ended.megabytes <= 400)


SECTIONS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "kernel": kernel,
    "parquet": parquet,
    "npz": npz,
    "commands": commands,
    "start-up": start_up,
    "growth": growth,
    "memory": peaks,
}


def machine() -> str:
    """Return a line about the machine and how busy it is."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    return (
        f"{len(os.sched_getaffinity(0))} processors, load average {load:.1f}, Python {sys.version.split()[0]}"
    )
