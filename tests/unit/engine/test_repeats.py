"""Sequence ids that stand in more than one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.report import Place
from ppocli.engine import repeats
from ppocli.engine.repeats import RepeatedIds

if TYPE_CHECKING:
    import pytest


def test_each_id_counts_once_for_every_file_that_repeats_it() -> None:
    found, seen, count = RepeatedIds(), set[int](), 0
    first: Place | None = None
    rng = np.random.default_rng(8)
    for file in range(6):
        ids = rng.integers(-40, 40, rng.integers(0, 30)) * 2**50
        again = set(ids.tolist()) & seen
        count += len(again)
        rows = rng.permutation(200)[: ids.size]
        if again and first is None:
            first = Place(
                str(file), min(int(row) for one, row in zip(ids, rows, strict=True) if one in again)
            )
        seen |= set(ids.tolist())
        found.add(str(file), ids, rows)
        path = None if first is None else first.path
        assert (found.count, found.path, found.where, found.checked) == (count, path, first, True)


def test_beyond_the_limit_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "LIMIT", 4)
    found = RepeatedIds()
    found.add("a", np.array([1, 2, 2, 3, 4]), np.arange(5))
    assert found.checked
    found.add("b", np.array([4, 5]), np.full(2, -1))
    found.add("c", np.array([1]), np.arange(1))
    assert (found.count, found.path, found.where, found.checked) == (1, "b", None, False)
