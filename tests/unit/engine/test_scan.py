from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.core.chunk import Column, ReadOptions
from ppocli.core.progress import NoProgress
from ppocli.core.roles import ROLES
from ppocli.engine import scan
from ppocli.engine.scan import ColumnCounter, IdCounter, scan_file

if TYPE_CHECKING:
    from ppocli.core.inspect_report import ColumnScan, FileScan

NAN, INF = float("nan"), float("inf")
F32 = pa.float32()


def scanned(
    path: Path, tokens: int = 1 << 18, options: ReadOptions | None = None
) -> tuple[FileScan, list[str]]:
    roles = set(ROLES) - {"token_id"}
    return scan_file(str(path), options or ReadOptions(), roles, tokens, NoProgress())


def parquet(tmp_path: Path, **columns: Any) -> Path:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def counted(values: Any, dtype: str, present: Any = None, valid: Any = None) -> ColumnScan:
    counter = ColumnCounter(dtype)
    there = None if present is None else np.array(present, np.uint8)
    counter.add(Column(np.asarray(values), there), None if valid is None else np.array(valid, np.bool_))
    return counter.finish()


def test_every_kind_of_value_is_counted() -> None:
    values = np.array([NAN, INF, -INF, 0.0, -0.0, 2.5, -3.5, 7.0], np.float32)
    one = counted(values, "float32", present=[1, 1, 1, 1, 1, 1, 1, 0])
    assert (one.n_null, one.n_nan, one.n_posinf, one.n_neginf, one.n_zero) == (1, 1, 1, 1, 2)
    assert one.zero_frac == 2 / 7
    assert (one.min, one.max, one.constant, one.n_masked_odd) == (-3.5, 2.5, False, 0)


def test_masked_values_count_apart() -> None:
    values = np.array([1.0, NAN, 5.0, INF, 9.0])
    one = counted(values, "float64", present=[1, 1, 1, 1, 0], valid=[1, 0, 1, 0, 0])
    assert (one.n_null, one.n_nan, one.n_posinf, one.n_neginf) == (0, 0, 0, 0)
    assert (one.min, one.max, one.n_masked_odd) == (1.0, 5.0, 3)


def test_nothing_there_gives_nothing() -> None:
    one = counted(np.zeros(2), "float64", present=[0, 0])
    assert (one.n_null, one.zero_frac, one.min, one.max, one.constant, one.exact_in) == (
        *(2, None, None, None),
        *(False, ()),
    )


@pytest.mark.parametrize(
    ("values", "constant"), [([2.0, 2.0], True), ([2.0, 2.5], False), ([2.0, NAN], False), ([NAN], False)]
)
def test_constant_columns(values: list[float], constant: bool) -> None:
    assert counted(np.array(values), "float64").constant is constant


@pytest.mark.parametrize(
    ("value", "formats"),
    [
        (1.0, ("bfloat16", "float16", "float32")),
        (-0.0, ("bfloat16", "float16", "float32")),
        (1 + 2**-7, ("bfloat16", "float16", "float32")),  # bfloat16 has 7 bits of fraction
        (1 + 2**-8, ("float16", "float32")),
        (1 + 2**-10, ("float16", "float32")),  # float16 has 10
        (1 + 2**-11, ("float32",)),
        (65504.0, ("float16", "float32")),
        (65536.0, ("bfloat16", "float32")),  # above the range of float16
        (2.0**-24, ("bfloat16", "float16", "float32")),
        (2.0**-25, ("bfloat16", "float32")),  # half of float16's smallest number
        (1 + 2**-23, ("float32",)),
        (1 + 2**-24, ()),
        (1e300, ()),
    ],
)
def test_formats_that_hold_all_values(value: float, formats: tuple[str, ...]) -> None:
    assert counted(np.array([value, 1.0, NAN, INF]), "float64").exact_in == formats
    if "float32" in formats:
        single = counted(np.array([value, 1.0], np.float32), "float32").exact_in
        assert single == tuple(name for name in formats if name != "float32")


def test_a_format_is_out_for_good_once_a_value_does_not_fit() -> None:
    counter = ColumnCounter("float32")
    for value in (1.0, 1 + 2**-12, 1.0):
        counter.add(Column(np.array([value], np.float32)), None)
    assert counter.finish().exact_in == ()


def test_bfloat16_bits_are_read_as_numbers() -> None:
    one = counted(np.array([0xBF80, 0xC000, 0x7F80, 0x7FC0], np.uint16), "bfloat16")  # -1, -2, inf, nan
    assert (one.min, one.max, one.n_posinf, one.n_nan, one.exact_in) == (-2.0, -1.0, 1, 1, ())


def test_ids_are_numbers_unless_they_are_text() -> None:
    assert counted(np.array([3, 2**60]), "int64").max == 2**60
    text = counted(np.array([3, 4]), "string")
    assert (text.min, text.max) == (None, None)


def test_a_list_file(tmp_path: Path) -> None:
    rows = pa.array([[-1.0, -2.0, 0.0], [], [-4.0, None], [-8.0]], pa.list_(F32))
    mask = pa.array([[True, False, True], [], [True, True], [False]])
    path = parquet(tmp_path, log_probs=rows, old_log_probs=rows, advantages=[1.0, 2.0, 2.0, 2.0], mask=mask)
    expected = None
    for tokens in (1, 2, 1 << 18):
        found, notes = scanned(path, tokens)
        assert (found.tokens, found.masked, found.longest_row) == (4, 2, 3)
        assert (found.n_sequences, found.n_empty_sequences) == (2, 2)
        one = found.columns["log_probs"]
        assert (one.n_null, one.n_zero, one.min, one.max) == (1, 1, -4.0, 0.0)
        assert one.zero_frac == 1 / 3
        assert (found.columns["advantages"].min, found.columns["advantages"].max) == (1.0, 2.0)
        assert set(found.columns) == {"log_probs", "old_log_probs", "advantages"}
        assert expected in (None, (found, notes))
        expected = (found, notes)
    assert "2 sequences without a valid token count nowhere" in notes


def test_flat_rows_and_sequences_by_id(tmp_path: Path) -> None:
    values = np.array([-1.0, -2.0, -3.0, -4.0, -5.0])
    path = tmp_path / "f.npz"
    ids, mask = np.array([7, 9, 7, 8, 9]), np.array([1, 0, 1, 1, 0])
    np.savez(path, log_probs=values, old_log_probs=values, advantages=values, sequence_id=ids, mask=mask)
    for tokens in (2, 100):
        found, _ = scanned(path, tokens)
        assert (found.tokens, found.masked, found.longest_row) == (3, 2, None)
        assert (found.n_sequences, found.n_empty_sequences) == (2, 1)
        assert (found.columns["sequence_id"].min, found.columns["sequence_id"].max) == (7, 8)
    np.savez(path, log_probs=values, old_log_probs=values, advantages=values)
    bare, _ = scanned(path)
    assert (bare.n_sequences, bare.n_empty_sequences) == (None, None)


def test_a_null_id_belongs_to_no_sequence(tmp_path: Path) -> None:
    values = pa.array([-1.0, -2.0, -3.0])
    path = parquet(
        tmp_path, log_probs=values, old_log_probs=values, advantages=values, sequence_id=["a", None, "b"]
    )
    found, _ = scanned(path)
    assert (found.n_sequences, found.n_empty_sequences) == (2, 0)
    one = found.columns["sequence_id"]
    assert (one.n_null, one.min, one.max) == (1, None, None)


def test_one_id_per_row_of_a_list_file(tmp_path: Path) -> None:
    rows = pa.array([[-1.0, -2.0], [-3.0], [-4.0, -5.0]])
    mask = pa.array([[True, True], [False], [True, False]])
    path = parquet(
        tmp_path, log_probs=rows, old_log_probs=rows, advantages=rows, mask=mask, sequence_id=[1, 2, 1]
    )
    found, _ = scanned(path)
    assert (found.n_sequences, found.n_empty_sequences, found.longest_row) == (1, 1, 2)


def test_too_many_ids_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "ID_LIMIT", 3)
    ids = IdCounter()
    ids.add(Column(np.array([1, 2, 3])), None)
    assert ids.counts() == (3, 0)
    ids.add(Column(np.array([4])), None)
    ids.add(Column(np.array([5])), None)
    assert ids.counts() == (None, None)


def test_notes_of_a_scan(tmp_path: Path) -> None:
    coarse = pa.array([-1.0, -2.5, float("nan")], F32)
    fine = pa.array([-1.0, -1 - 2**-20, -3.0], F32)
    path = parquet(
        tmp_path, log_probs=coarse, old_log_probs=fine, advantages=[2.0, 2.0, 2.0], mask=[True, True, False]
    )
    _, notes = scanned(path)
    assert notes == [
        "log_probs: every value of this float32 column is a bfloat16 value",
        "advantages: constant, every value is 2.0",
        "null or not finite at masked tokens, where it does no harm: log_probs 1",
    ]


def test_a_file_without_a_valid_token(tmp_path: Path) -> None:
    values = pa.array([-1.0])
    path = parquet(tmp_path, log_probs=values, old_log_probs=values, advantages=values, mask=[False])
    found, notes = scanned(path)
    assert (found.tokens, found.masked, found.columns["log_probs"].min) == (0, 1, None)
    assert notes == ["no valid token"]


def test_summed_dimensions_are_scanned_as_summed(tmp_path: Path) -> None:
    bits = np.array([[0xBF80, 0xC000], [0xC040, 0xBF80]], np.uint16).view("V2")  # -1, -2; -3, -1
    path = tmp_path / "f.npz"
    np.savez(path, log_probs=bits, old_log_probs=bits, advantages=np.zeros(2))
    found, _ = scanned(path, options=ReadOptions(sum_dims=True))
    assert (found.tokens, found.columns["log_probs"].min, found.columns["log_probs"].max) == (2, -4.0, -3.0)


def test_null_rows_are_told(tmp_path: Path) -> None:
    rows = pa.array([[-1.0], None], pa.list_(F32))
    path = parquet(tmp_path, log_probs=rows, old_log_probs=rows, advantages=rows)
    found, notes = scanned(path)
    assert (found.tokens, found.n_sequences, found.n_empty_sequences) == (1, 1, 1)
    assert "1 row is null in every column and passed over" in notes
