"""What is benchmarked gives one answer, on small files; times are printed by `python tests/benchmarks`."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks import contestants, data, pairs

N = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("benchmarks")


@pytest.mark.parametrize("name", ["NumPy float32 formula", "NumPy float64 formula", "NumPy float64 metrics"])
def test_arrays_in_memory(folder: Path, name: str) -> None:
    path = str(data.npz(folder, N, deflated=False))
    other = contestants.CONTESTANTS[name](path)
    assert other
    pairs.agree(contestants.in_memory(path), other, 1e-5 if "float32" in name else 1e-9)


@pytest.mark.parametrize("make", [data.flat, data.lists])
def test_scan(folder: Path, make: Callable[[Path, int, str], Path]) -> None:
    path = str(make(folder, N, "snappy"))
    assert contestants.scan(path) == {"n_tokens": N}
    assert contestants.evaluate(path)["n_tokens"] == N


@pytest.mark.parametrize("name", ["Polars", "DuckDB"])
def test_peers(folder: Path, name: str) -> None:
    pytest.importorskip(name.lower())
    path = str(data.flat(folder, N, "snappy"))
    other = contestants.CONTESTANTS[name](path)
    assert set(other) == set(contestants.HEADLINE)
    pairs.agree(contestants.evaluate(path), other, 1e-9)


def test_deflated(folder: Path) -> None:
    path = str(data.npz(folder, N, deflated=True))
    assert contestants.inflate(path) == {"n_tokens": N}
    pairs.agree(contestants.evaluate(path), contestants.in_memory(path), 0.0)


def test_answers_that_differ_are_refused() -> None:
    with pytest.raises(AssertionError, match="loss"):
        pairs.agree({"loss": 1.0}, {"loss": 1.0 + 1e-6}, 1e-9)
    with pytest.raises(AssertionError, match="loss"):
        pairs.agree({"loss": 1.0}, {"loss": math.nan}, 1e-9)
    with pytest.raises(AssertionError, match="no number"):
        pairs.agree({"loss": 1.0}, {"other": 1.0}, 1e-9)
