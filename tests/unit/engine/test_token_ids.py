"""Ids of the places in a report. In every batch the second last token is the worst one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ppocli

NEW = [-1.0, -1.0, -1.0, -1.0, -1.0]
OLD = [-1.0, -1.0, -1.0, -4.0, -1.0]
ADV = [1.0, 1.0, 1.0, 1.0, 1.0]


def rows(values: list[Any], lengths: tuple[int, ...] = (2, 0, 3)) -> list[list[Any]]:
    ends = np.cumsum(lengths)
    return [values[end - n : end] for n, end in zip(lengths, ends, strict=True)]


def write(path: Path, token_id: Any, **more: Any) -> Path:
    columns = {"log_probs": NEW, "old_log_probs": OLD, "advantages": ADV, "token_id": token_id, **more}
    pq.write_table(pa.table(columns), path)
    return path


def worst(source: Any, **settings: Any) -> tuple[int, int | None, int | None]:
    place = ppocli.evaluate(source, worst=1, **settings).worst[0].where
    return place.row, place.position, place.token_id


def test_flat(tmp_path: Path) -> None:
    assert worst(write(tmp_path / "a.parquet", [10, 11, 12, 13, 14])) == (3, None, 13)


def test_flat_with_sequences(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [10, 11, 12, 13, 14], sequence_id=[1, 2, 1, 1, 2])
    assert worst(path) == (3, 2, 13)  # the third token of sequence 1


def test_lists(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = {"log_probs": NEW, "old_log_probs": OLD, "advantages": ADV, "token_id": [10, 11, 12, 13, 14]}
    pq.write_table(pa.table({name: rows(values) for name, values in columns.items()}), path)
    for chunk_rows in (1, 2, None):
        assert worst(path, chunk_rows=chunk_rows) == (2, 1, 13)


def test_arrays_in_time_order(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    old = np.array([[-1.0, -1.0, -1.0], [-1.0, -1.0, -4.0]])
    ids = np.array([[10, 11, 12], [13, 14, 15]])
    new = np.full((2, 3), -1.0)
    np.savez(path, log_probs=new, old_log_probs=old, advantages=np.ones((2, 3)), token_id=ids)
    assert worst(path) == (1, 2, 15)
    assert worst(path, layout="time") == (2, 1, 15)  # row: the environment; position: the time


def test_ids_of_any_width(tmp_path: Path) -> None:
    for ids in (
        pa.array([0, 0, 0, 65535, 0], pa.uint16()),
        pa.array([0, 0, 0, 2**53 + 1, 0], pa.int64()),
        pa.array([0, 0, 0, 7, 0], pa.int8()),
        pa.array([0, 0, 0, 2**63 + 5, 0], pa.uint64()),
        pa.array([0, 0, 0, 2**64 - 1, None], pa.uint64()),
        pa.array([0, 0, 0, -(2**63), 0], pa.int64()),
    ):
        assert worst(write(tmp_path / "a.parquet", ids))[2] == ids[3].as_py()


def test_ids_of_any_width_in_arrays() -> None:
    for dtype, largest in ((np.uint64, 2**64 - 1), (np.int64, 2**63 - 1), (np.uint8, 255)):
        ids = np.array([0, 0, 0, largest, 0], dtype)
        report = ppocli.evaluate(log_probs=NEW, old_log_probs=OLD, advantages=ADV, token_id=ids, worst=1)
        assert report.worst[0].where.token_id == largest


def test_no_id_where_none_can_be_said(tmp_path: Path) -> None:
    for ids in (
        pa.array([10, 11, 12, None, 14]),
        pa.array(["a", "b", "c", "d", "e"]),
        pa.array([10.0, 11.0, 12.0, 13.0, 14.0]),
        pa.array([[10], [11], [12], [13, 14], [15]]),  # two ids for the token: they do not line up
    ):
        assert worst(write(tmp_path / "a.parquet", ids)) == (3, None, None)


def test_every_place_of_a_report_has_its_id(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [10, 11, 12, 13, 14], entropy=[1.0, float("nan"), 1.0, 1.0, 1.0])
    report = ppocli.evaluate(path)
    assert report.places["ratio_max"].token_id == 13
    note = report.nulls["entropy_mean"]
    assert note.where is not None
    assert note.where.token_id == 11
    assert [one.where.token_id for one in report.findings if one.where] == [11]


def test_nulls_of_every_file_have_the_ids_of_their_places(tmp_path: Path) -> None:
    spoiled = [1.0, 1.0, float("nan"), 1.0, 1.0]
    paths = [
        write(tmp_path / "a.parquet", [10, 11, 12, 13, 14]),
        write(tmp_path / "b.parquet", [20, 21, 22, 23, 24], entropy=spoiled, rewards=spoiled),
        write(tmp_path / "c.parquet", [30, 31, 32, 33, 34], rewards=spoiled),
    ]
    report = ppocli.evaluate(paths)
    found = [
        {name: note.where.token_id for name, note in group.nulls.items() if note.where is not None}
        for group in report.groups
    ]
    assert found[0] == {}
    assert found[1]["entropy_mean"] == found[1]["reward_mean"] == 22
    assert found[2] == {"reward_mean": 32, "reward_std": 32}
