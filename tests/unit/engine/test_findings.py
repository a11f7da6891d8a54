"""Findings from small inputs whose faults are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core.report import EvalReport, Finding, Place


def lists(path: Path, mask: list[list[int]]) -> str:
    """A row of tokens for each row of the mask."""
    zeros = [[-1.0] * len(row) for row in mask]
    columns = {"log_probs": zeros, "old_log_probs": zeros, "advantages": [1.0] * len(mask)}
    types = {"log_probs": pa.list_(pa.float32()), "old_log_probs": pa.list_(pa.float32())}
    arrays = {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    pq.write_table(pa.table({**arrays, "mask": pa.array(mask, pa.list_(pa.int8()))}), path)
    return str(path)


def flat(**columns: Any) -> EvalReport:
    n = len(next(iter(columns.values())))
    usual = {"log_probs": np.full(n, -1.0), "old_log_probs": np.full(n, -1.0), "advantages": np.ones(n)}
    return ppocli.evaluate(**usual, **columns)


def empty(report: EvalReport) -> list[Finding]:
    return [one for one in report.findings if one.code == "PPO401"]


def test_sequences_that_are_masked_throughout(tmp_path: Path) -> None:
    path = lists(tmp_path / "a.parquet", [[1, 1], [0, 0, 0], [0, 1], [0]])
    (one,) = empty(ppocli.evaluate(path))
    assert (one.severity, one.count, one.where) == ("info", 2, Place(path, 1))
    assert one.message == (
        f"2 sequences without a valid token (every token of them is masked); the first in {path} row 1"
    )


def test_one_masked_sequence_is_told_in_the_singular(tmp_path: Path) -> None:
    path = lists(tmp_path / "a.parquet", [[1, 1], [0]])
    (one,) = empty(ppocli.evaluate(path))
    assert one.message.startswith("1 sequence without a valid token (every token of it is masked);")


def test_empty_rows_are_not_masked_ones(tmp_path: Path) -> None:
    assert empty(ppocli.evaluate(lists(tmp_path / "a.parquet", [[1, 1], [], [1, 0], []]))) == []
    (one,) = empty(ppocli.evaluate(lists(tmp_path / "b.parquet", [[], [1], [], [0], []])))
    assert (one.count, one.where) == (1, Place(str(tmp_path / "b.parquet"), 3))


def test_a_file_of_empty_rows_is_not_said_to_be_masked(tmp_path: Path) -> None:
    path = lists(tmp_path / "a.parquet", [[], []])
    (one,) = empty(ppocli.evaluate(path, allow_empty=True))
    assert one.message == f"no valid token in {path} (empty rows)"


def test_a_file_that_is_masked_throughout_has_one_finding(tmp_path: Path) -> None:
    masked = lists(tmp_path / "a.parquet", [[0, 0], [0]])
    (one,) = empty(ppocli.evaluate(masked, allow_empty=True))
    assert one.message == f"no valid token in {masked} (every token is masked)"
    other = lists(tmp_path / "b.parquet", [[1], [0]])
    whole, part = empty(ppocli.evaluate([masked, other]))
    assert whole.message == one.message
    assert (part.count, part.where) == (1, Place(other, 1))


def test_the_first_of_several_files_is_named(tmp_path: Path) -> None:
    paths = [
        lists(tmp_path / f"{name}.parquet", mask)
        for name, mask in (("a", [[1], [1]]), ("b", [[1], [1], [0]]), ("c", [[0], [1], [0]]))
    ]
    (one,) = empty(ppocli.evaluate(paths))
    assert (one.count, one.where) == (3, Place(paths[1], 2))


def test_interleaved_sequences_by_id() -> None:
    report = flat(sequence_id=[5, 3, 5, 4, 3, 4], mask=[1, 0, 1, 0, 0, 0])
    (one,) = empty(report)
    assert (one.count, one.where) == (2, Place("<arrays>", 1))
    assert report.metrics["n_sequences"] == 1


def test_a_long_sequence_with_one_valid_token_is_not_masked(tmp_path: Path) -> None:
    mask = [0] * 5000
    assert empty(ppocli.evaluate(lists(tmp_path / "a.parquet", [[1], [*mask, 1, *mask]]))) == []
    (one,) = empty(ppocli.evaluate(lists(tmp_path / "b.parquet", [[1], mask, [1]])))
    assert one.count == 1


@pytest.mark.parametrize("limit", [2, 10])
def test_the_first_in_the_file_is_named_whatever_was_closed_first(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppocli.engine.sequences.OPEN_LIMIT", limit)
    # Sequence 1 is touched last, so with room for two it is closed after 2 and 3.
    report = flat(sequence_id=[1, 2, 1, 3, 1, 4], mask=[0, 0, 0, 0, 0, 1])
    (one,) = empty(report)
    assert (one.count, one.where) == (3, Place("<arrays>", 0))


def test_healthy_data_has_no_such_finding() -> None:
    sample = Path(__file__).parents[3] / "sample_data" / "healthy.parquet"
    assert ppocli.evaluate(sample).findings == ()
