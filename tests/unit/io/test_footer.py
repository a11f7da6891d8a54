from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.core.chunk import ReadOptions
from ppocli.errors import InputError
from ppocli.io import footer
from ppocli.io.parquet import ParquetReader

# One row, column `a`: list<float> [1, 2]; no dictionary, no statistics, uncompressed; 221 bytes.
SMALLEST = base64.b64decode(
    "UEFSMRUAFSgVKCwVBBUAFQYVBhwAAAACAAAAAwICAAAABAMAAIA/AAAAQBUEGUw1ABgGc2NoZW1hFQIANQIYAWEVAhUGTDwAAAA1BBgE"
    "bGlzdBUCABUIJQIYB2VsZW1lbnQAFgIZHBkcJgAcFQgZJQYAGTgBYQRsaXN0B2VsZW1lbnQVABYEFk4WTiYISRwVABUAFQIAPCkmAgIZ"
    "RgAAAAQAAAAWThYCJggWTgAoIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4xGRwcAAAAqgAAAFBBUjE="
)


def damaged(at: int, old: int, new: int) -> bytes:
    assert SMALLEST[at] == old
    return SMALLEST[:at] + bytes([new]) + SMALLEST[at + 1 :]


def opened(path: Path) -> Any:
    return footer.open_footer(str(path))[0]


def test_the_smallest_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(SMALLEST)
    file = opened(path)
    footer.check_chunks(file, str(path), [0])
    assert footer.codecs(file, str(path)) == ["uncompressed"]
    assert file.metadata.row_group(0).column(0).num_values == 2


@pytest.mark.parametrize(
    ("at", "old", "new"),
    [
        (61, 2, 0),  # column `a` is required: its definition levels end at 2, and the histogram has 4 counts
        (87, 37, 36),  # the element's repetition has another type of number, and is passed over
        (151, 41, 57),  # the histogram of repetition levels stands in the field of definition levels
    ],
)
def test_a_level_histogram_of_the_wrong_length_is_an_error_and_no_abort(
    tmp_path: Path, at: int, old: int, new: int
) -> None:
    # PyArrow aborts the process when asked for `metadata.row_group(0).column(0)` of these files.
    path = tmp_path / "f.parquet"
    path.write_bytes(damaged(at, old, new))
    code = (
        "import sys; from ppocli.core.chunk import ReadOptions; from ppocli.errors import InputError\n"
        "from ppocli.io.parquet import ParquetReader\n"
        "try: ParquetReader(sys.argv[1], ReadOptions({'log_probs': 'a'}), {}, ('log_probs',))\n"
        "except InputError as error: print(error.message)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("the Parquet footer cannot be read: ")


def test_a_codec_that_does_not_exist_is_an_error_and_no_abort(tmp_path: Path) -> None:
    # The codec stands behind the path in the schema: field 4, zigzag 0 for UNCOMPRESSED.
    at = SMALLEST.index(b"element\x15\x00\x16\x04") + len(b"element\x15")
    path = tmp_path / "f.parquet"
    path.write_bytes(damaged(at, 0, 18))
    code = (
        "import sys; from ppocli.errors import InputError; from ppocli.io import footer\n"
        "file, _ = footer.open_footer(sys.argv[1])\n"
        "try: footer.codecs(file, sys.argv[1])\n"
        "except InputError as error: print(error.message)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("the Parquet footer cannot be read: ")


def test_checking_reads_no_data(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    whole = tmp_path / "whole.parquet"
    whole.write_bytes(SMALLEST)
    file = opened(whole)
    path.write_bytes(b"\0" * len(SMALLEST))  # of the same size, and without anything in it
    footer.check_chunks(file, str(path), [0])


def test_a_file_without_columns_has_no_codec(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({}), path)
    file = opened(path)
    footer.check_chunks(file, str(path), [])
    assert footer.codecs(file, str(path)) == []


def groups(tmp_path: Path, column: Any, size: int) -> Any:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": column}), path, row_group_size=size)
    return opened(path).metadata


@pytest.mark.parametrize(
    ("n_groups", "size", "is_tiny"),
    [(100, 2, False), (101, 2, True), (101, 999, True), (101, 1000, False), (1, 1, False)],
)
def test_many_row_groups_of_few_rows_are_tiny(
    tmp_path: Path, n_groups: int, size: int, is_tiny: bool
) -> None:
    meta = groups(tmp_path, pa.array([0.5] * (n_groups * size), pa.float32()), size)
    note = footer.tiny_row_groups(meta, ())
    assert (note is not None) == is_tiny
    if note:
        assert note.startswith(f"101 row groups of {size} rows on average: tiny row groups")


@pytest.mark.parametrize(("length", "is_tiny"), [(9_999, True), (10_000, False)])
def test_row_groups_of_few_long_rows_are_not_tiny(tmp_path: Path, length: int, is_tiny: bool) -> None:
    values = pa.array([0.5] * (101 * length), pa.float32())
    column = pa.ListArray.from_arrays(pa.array(range(0, 101 * length + 1, length), pa.int32()), values)
    assert (footer.tiny_row_groups(groups(tmp_path, column, 1), [0]) is not None) == is_tiny


def test_the_reader_tells_about_tiny_row_groups(tmp_path: Path) -> None:
    groups(tmp_path, pa.array([0.5] * 202, pa.float32()), 2)
    path = str(tmp_path / "f.parquet")
    reader = ParquetReader(path, ReadOptions({"log_probs": "a"}), {}, ())
    assert [note.partition(":")[0] for note in reader.report.notes] == ["101 row groups of 2 rows on average"]
    reader.close()


def test_row_groups_are_read_together_while_their_rows_are_alike() -> None:
    # rows of a batch: 100 * 10 / 50 = 20, 100 * 10 / 100 = 10, 100 * 10 / 1000 = 1, and at least 1
    told = [(0, 10, 50), (1, 10, 100), (2, 10, 1000), (4, 10, 100_000)]
    assert list(footer.runs(told, 100)) == [([0, 1], 10), ([2, 4], 1)]
    assert list(footer.runs([], 100)) == []


def test_a_writer_whose_name_is_not_utf_8_is_not_named(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(SMALLEST.replace(b"parquet-cpp", b"parquet\xff\xfe\xfd\xfc"))
    assert footer.writer(opened(path).metadata) is None
    path.write_bytes(SMALLEST)
    assert footer.writer(opened(path).metadata) == "parquet-cpp-arrow version 26.0.1"


def test_open_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(SMALLEST[:-1])
    with pytest.raises(InputError, match="truncated"):
        footer.open_footer(str(path))
