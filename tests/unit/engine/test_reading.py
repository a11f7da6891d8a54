"""How much is read at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.engine import reading
from ppocli.engine.reading import chunk_tokens_for, read_small_chunks

if TYPE_CHECKING:
    import pytest

COLUMNS = ["float32"] * 3


def test_chunks_by_the_width_of_the_columns() -> None:
    assert chunk_tokens_for(COLUMNS) == 6 * 2**20 // 12
    assert chunk_tokens_for(["list<float32>", "list<float64>", "list<bool>"]) == 6 * 2**20 // 13
    assert chunk_tokens_for(["float64"] * 40) == 65_536


def test_chunks_are_smaller_where_there_are_tables_of_ids() -> None:
    assert chunk_tokens_for([*COLUMNS, "int64"]) == 2 * 2**20 // 20
    assert chunk_tokens_for([*COLUMNS, "string"]) == 2 * 2**20 // 13


def test_a_worker_of_a_cluster_reads_less_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading._State, "chunk_bytes", reading.CHUNK_BYTES)
    read_small_chunks()
    assert chunk_tokens_for(COLUMNS) == 2 * 2**20 // 12
