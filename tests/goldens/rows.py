"""Rows of a goldens folder: reading them, and how close a number must be."""

from __future__ import annotations

import functools
import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Row = dict[str, Any]
Arrays = dict[str, np.ndarray]
WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class NotExpressed(Exception):
    """A row that ours cannot express yet; the text says why."""


def read(folder: Path) -> list[Row]:
    """All rows, in order: of goldens.jsonl, and of other files of the kind beside it."""
    files = sorted(folder.glob("*.jsonl"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [json.loads(line) for line in lines if line]


def arrays_of(folder: Path, row: Row) -> Arrays:
    """The input by role, and the peer's per-token results by name."""
    stored = load(folder / row["input"])
    out = {role: stored[name].copy() for role, name in row["arrays_by_role"].items()}
    if row.get("arrays"):
        stored = load(folder / row["arrays_file"])
        out.update({name: stored[key].copy() for name, key in row["arrays"].items()})
    return out


@functools.cache
def load(path: Path) -> Arrays:
    """Every array of an NPZ file."""
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


def tolerance(row: Row, name: str) -> float:
    """Relative: 1e-9 in float64, or what the peer itself rounded to."""
    if row["dtype"] != "float64":
        pytest.skip(f"{row['peer']}: rows in {row['dtype']} are not expressed yet")
    if row.get("float32_inside"):
        return 1e-6
    return 4e-7 if name in (row.get("float32_outputs") or ()) else 1e-9


def close(got: Any, want: Any, name: str, *, rel: float, scale: float = 0.0, slack: float = 0.0) -> None:
    """Assert |got - want| <= rel * max(|want|, scale) + slack; lists by element, NaN equals NaN."""
    if isinstance(want, list):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            close(one, other, name, rel=rel, scale=scale, slack=slack)
        return
    target = WORDS.get(want) if isinstance(want, str) else want
    assert target is not None
    assert got is not None, name
    if math.isnan(target):
        assert math.isnan(got), name
        return
    assert abs(got - target) <= max(rel * max(abs(target), scale), 1e-12) + slack, (name, got, target)


@dataclass
class Tally:
    """What was compared, for the printed summary: by (peer, function)."""

    rows: Counter[tuple[str, str]] = field(default_factory=Counter)
    outputs: Counter[tuple[str, str]] = field(default_factory=Counter)
    arrays: Counter[tuple[str, str]] = field(default_factory=Counter)
    missing: dict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def lines(self) -> list[str]:
        """One line per function: rows, numbers, arrays; under it what is not expressed and why."""
        out = []
        for key in sorted(self.rows.keys() | self.missing.keys()):
            peer, function = key
            counts = f"{self.rows[key]} rows, {self.outputs[key]} numbers, {self.arrays[key]} arrays"
            out.append(f"{peer} {function.removeprefix(peer + '.')}: {counts}")
            out += [f"    not compared: {n} {reason}" for reason, n in sorted(self.missing[key].items())]
        return out
