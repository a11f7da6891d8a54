"""Timing in pairs: A and B in turn in one run, so that a machine that changes its speed changes both."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Missing(Exception):
    """A peer that is not installed, or a command that does not exist."""


class Worker:
    """A process that runs one contestant as often as it is asked to, so that start-up is not measured."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, HERE / "worker.py", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def run(self, path: Path) -> dict[str, Any]:
        """Run once; return seconds, numbers and the peak of memory so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(str(path)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} failed on {path}")
        reply: dict[str, Any] = json.loads(line)
        if "missing" in reply["numbers"]:
            raise Missing(reply["numbers"]["missing"])
        return reply

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Cost:
    """Nanoseconds per extra token of A and of B, and their ratio pair by pair: median, least and most.

    `cpu_a` and `cpu_b` are nanoseconds of all processors together, which other work disturbs less.
    """

    a: float
    b: float
    cpu_a: float
    cpu_b: float
    ratio: float
    least: float
    most: float


def per_token(
    a: str, b: str, files_a: Sequence[tuple[int, Path]], files_b: Sequence[tuple[int, Path]], pairs: int
) -> Cost:
    """Time two contestants on files of two sizes, after a run of each that is not counted.

    The cost of a token is the difference of the times over the difference of the sizes, so that what a run
    costs in any case drops out. Raises where their numbers differ.
    """
    costs: dict[str, list[float]] = {key: [] for key in ("a", "b", "cpu a", "cpu b")}
    more = files_a[1][0] - files_a[0][0]
    with Worker(a) as one, Worker(b) as other:
        for worker, files in ((one, files_a), (other, files_b)):
            for _, path in files:
                worker.run(path)
        for _ in range(pairs):
            replies = []
            for (_, path_a), (_, path_b) in zip(files_a, files_b, strict=True):
                replies.append((one.run(path_a), other.run(path_b)))
                agree(*(reply["numbers"] for reply in replies[-1]), 1e-4 if "float32" in b else 1e-9)
            for which, side in enumerate(("a", "b")):
                small, large = replies[0][which], replies[1][which]
                costs[side].append((large["seconds"] - small["seconds"]) / more * 1e9)
                costs[f"cpu {side}"].append((large["cpu"] - small["cpu"]) / more * 1e9)
    ratios = [x / y for x, y in zip(costs["a"], costs["b"], strict=True) if y > 0] or [math.nan]
    middle = [statistics.median(one) for one in costs.values()]
    return Cost(*middle, statistics.median(ratios), min(ratios), max(ratios))


def agree(a: dict[str, float], b: dict[str, float], tolerance: float) -> None:
    """Refuse two answers that differ in a number both have; a mean of both signs is held against 1."""
    common = [name for name in b if name in a]
    if b and not common:
        raise AssertionError("the two have no number in common")
    for name in common:
        if not math.isclose(a[name], b[name], rel_tol=tolerance, abs_tol=tolerance):
            raise AssertionError(f"{name}: {a[name]!r} and {b[name]!r}")


@dataclass(frozen=True)
class Ended:
    """A whole process: wall and processor seconds, and the most memory it held."""

    seconds: float
    cpu: float
    megabytes: float


LAUNCHER = """
import json, os, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
process.returncode = os.waitstatus_to_exitcode(status)
seconds = time.perf_counter() - began
print(json.dumps([process.returncode, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
"""
"""Starts a command from a small process: the most memory of one counts what its parent holds at its start."""


def whole(arguments: Sequence[str], environment: dict[str, str] | None = None) -> Ended:
    """Run a command to its end, its output thrown away."""
    launched = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *arguments],
        capture_output=True,
        check=True,
        env={**os.environ, **(environment or {})},
    )
    code, *measured = json.loads(launched.stdout)
    if code not in (0, 1):
        raise RuntimeError(f"{' '.join(arguments)} ended with {code}")
    return Ended(*measured)
