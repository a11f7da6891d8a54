"""Small files that say they are large: refused before anything takes the memory."""

from __future__ import annotations

import copy
import io
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.core.chunk import ReadOptions
from ppocli.core.roles import ROLES
from ppocli.errors import InputError
from ppocli.io import bombs, pages
from ppocli.io.ipc_sizes import compressed_batches
from ppocli.io.source import open_input

MAIN = ("log_probs", "old_log_probs", "advantages")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(bombs, "MOST_AT_ONCE", 1 << 16)
    return 1 << 16


def read(path: Path, **options: Any) -> int:
    reader = open_input(str(path), ReadOptions(**options), {})
    return sum(chunk.n_tokens for chunk in reader.chunks(tuple(ROLES), 1 << 18))


def refusal(path: Path, **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(path, **options)
    assert str(caught.value.where).startswith(str(path))
    return caught.value


def table(values: Any) -> pa.Table:
    return pa.table(dict.fromkeys(MAIN, values))


def test_the_rule() -> None:
    limit = bombs.MOST_AT_ONCE
    bombs.check(limit, 0, "x", "y")
    bombs.check(limit * 10, limit * 10 // bombs.RATIO + 1, "x", "y")
    with pytest.raises(
        InputError, match="x would take 268,435,457 bytes of memory at once, and 7 bytes are stored"
    ):
        bombs.check(limit + 1, 7, "x", "y")


def one_page(path: Path, values: Any, **options: Any) -> None:
    options = {"compression": "zstd", "use_dictionary": False, "data_page_size": 1 << 30, **options}
    if "max_rows_per_page" in str(pq.write_table.__doc__):
        options["max_rows_per_page"] = 1 << 30
    pq.write_table(table(values), path, **options)


def test_a_page_out_of_proportion(tmp_path: Path, small: int) -> None:
    path = tmp_path / "p"
    one_page(path, np.zeros(100_000, np.float32))
    error = refusal(path)
    assert error.message.startswith("a page of column 'log_probs' would take 400,0")
    assert error.where == f"{path}, row group 0"
    noise = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    one_page(path, noise)
    assert read(path) == 100_000
    one_page(path, np.zeros(10_000, np.float32))
    assert read(path) == 10_000


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_headers_of_pages(tmp_path: Path, version: str, codec: str) -> None:
    path = tmp_path / "p"
    lists = [[float(i)] * (i % 5) for i in range(3000)]
    columns = {
        "f": lists,
        "text": ["x" * (i % 300) for i in range(3000)],
        "i": range(3000),
        "b": [i % 2 > 0 for i in range(3000)],
    }
    written = pa.table(columns)
    options: dict[str, Any] = {"data_page_version": version, "compression": codec, "data_page_size": 2000}
    pq.write_table(written, path, row_group_size=1000, write_page_checksum=True, **options)
    meta = pq.read_metadata(path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for group in range(meta.num_row_groups):
            for leaf in range(meta.num_columns):
                chunk = meta.row_group(group).column(leaf)
                found = list(pages._pages(descriptor, chunk))
                # Pages follow each other without a gap, up to the last byte of the chunk.
                start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
                assert start < found[0][0] < start + 400
                assert found[-1][0] + found[-1][2] == start + chunk.total_compressed_size
                sizes = sum(size for _, size, _ in found)
                assert 0 < chunk.total_uncompressed_size - sizes < 400 * len(found)
    finally:
        os.close(descriptor)


def test_both_readers_of_headers_agree(tmp_path: Path) -> None:
    path = tmp_path / "p"
    pq.write_table(table(np.arange(5000.0)), path, write_page_checksum=True)
    raw, meta = path.read_bytes(), pq.read_metadata(path)
    at = meta.row_group(0).column(0).dictionary_page_offset
    quick = pages._page_header(raw[at : at + 256])
    usual = pages._USUAL
    try:
        pages._USUAL = re.compile(b"(?!)")
        assert pages._page_header(raw[at : at + 256]) == quick
    finally:
        pages._USUAL = usual


@pytest.mark.parametrize(
    ("raw", "after"),
    [
        (b"\x11", 0),  # true
        (b"\x13\x05", 1),
        (b"\x15\x80\x01", 2),
        (b"\x17" + bytes(8), 8),
        (b"\x18\x03abc", 4),
        (b"\x19\x35\x02\x04\x06", 4),  # a list of three integers
        (b"\x19\xf1\x10" + bytes(16), 18),  # a list of sixteen bools
        (b"\x1b\x01\x58\x02\x01a", 5),  # a map with one entry, integer to binary
        (b"\x1b\x00", 1),
        (b"\x1c\x15\x02\x1c\x00\x00", 5),
    ],
)
def test_values_that_are_passed_over(raw: bytes, after: int) -> None:
    reader = pages._Compact(raw)
    (head,) = [kind for _, kind in [next(reader.fields())]]
    reader.skip(head, 5)
    assert reader.at == 1 + after


@pytest.mark.parametrize(
    "raw", [b"", b"\x15", b"\x15\xff" + b"\xff" * 20, b"\x1d\x00", b"\x1c" * 100, b"\x19\xf5\xff\xff\xff\x7f"]
)
def test_what_is_no_header(raw: bytes) -> None:
    with pytest.raises((IndexError, ValueError)):
        pages._page_header(raw)


def test_a_page_that_leads_out_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "p"
    one_page(path, np.arange(1000, dtype=np.float32), compression="none")
    raw = bytearray(path.read_bytes())
    at = pq.read_metadata(path).row_group(0).column(2).data_page_offset
    # Type 0, then two sizes of about 4,000 in zigzag, two bytes each.
    assert raw[at : at + 3] == b"\x15\x00\x15"
    assert raw[at + 5] == 0x15
    raw[at + 6 : at + 8] = b"\xff\x7e"  # -8,096: not a size, PyArrow says so
    path.write_bytes(raw)
    assert refusal(path).message.startswith("the data are damaged: ")
    raw[at + 6 : at + 8] = b"\xfe\x7f"
    path.write_bytes(raw)
    error = refusal(path)
    message = (
        "the data are damaged: a page of column 'advantages' claims 8,191 bytes, beyond the end of the file"
    )
    assert error.message == message
    assert error.where == f"{path}, row group 0"


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_a_compressed_batch_out_of_proportion(tmp_path: Path, small: int, kind: str) -> None:
    def write(values: Any, **options: Any) -> Path:
        path = tmp_path / "a"
        made = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        one = table(values)
        with (
            pa.OSFile(str(path), "wb") as sink,
            made(sink, one.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer,
        ):
            writer.write_table(one)
            writer.write_table(one.slice(0, 5))
        return path

    zeros = np.zeros(100_000, np.float32)
    error = refusal(write(zeros, compression="zstd"))
    assert error.message.startswith("compressed batch 0 would take 1,200,0")
    assert read(write(zeros)) == 100_005
    noise = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    assert read(write(noise, compression="lz4")) == 100_005


def test_sizes_of_compressed_batches() -> None:
    lists = pa.array([[1.0, 2.0], None, [3.0]], pa.list_(pa.float64()))
    words = pa.array(["a", "b", "a"] * 100).dictionary_encode()
    one = pa.table({"l": pa.concat_arrays([lists] * 100), "w": words, "b": [True, False, None] * 100})
    for options in ({"compression": "zstd"}, {"compression": "lz4"}, {}):
        out = io.BytesIO()
        with pa.ipc.new_stream(out, one.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            for batch in one.to_batches(max_chunksize=100):
                writer.write_batch(batch)
        found = list(compressed_batches(memoryview(out.getvalue()), 0))
        assert len(found) == (4 if options else 0)  # one dictionary and three batches
        for declared, stored in found[1:]:
            # Offsets 4 * 101, values 8 * 100, indices 4 * 100, and bitmaps of about 13 bytes each.
            assert 4 * 101 + 8 * 100 + 4 * 100 <= declared <= 4 * 101 + 8 * 100 + 4 * 100 + 3 * 64
            assert 0 < stored < 5000


@pytest.mark.parametrize(
    "raw", [b"", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x10\x00\x00\x00" + b"\xff" * 16, b"\x01" * 64]
)
def test_no_messages(raw: bytes) -> None:
    assert list(compressed_batches(memoryview(raw), 0)) == []


def test_a_row_of_an_archive_out_of_proportion(tmp_path: Path, small: int) -> None:
    path = tmp_path / "f.npz"
    wide = np.zeros((2, 100_000), np.float32)
    np.savez_compressed(path, **dict.fromkeys(MAIN, wide))
    error = refusal(path)
    assert error.message.startswith("a row of array 'log_probs' would take 400,000 bytes")
    assert error.where == f"{path}, member 'log_probs.npy'"
    np.savez(path, **dict.fromkeys(MAIN, wide))
    assert read(path) == 200_000
    np.savez_compressed(path, **dict.fromkeys(MAIN, wide.reshape(-1, 10)))
    assert read(path) == 200_000
    assert "put in order, would take 800,000 bytes" in refusal(path, layout="time").message


def test_a_row_of_parquet_out_of_proportion(tmp_path: Path, small: int) -> None:
    path = tmp_path / "p"
    pq.write_table(table(pa.array([[0.5] * 100_000], pa.list_(pa.float32()))), path)
    assert refusal(path).message.startswith("a row would take 400,000 bytes of memory at once")
    pq.write_table(table(pa.array([[0.5] * 1000] * 100, pa.list_(pa.float32()))), path)
    assert read(path) == 100_000


def test_members_that_lie_over_each_other(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    out = io.BytesIO()
    np.save(out, np.array([-1.0]))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("log_probs.npy", out.getvalue())
        for name in ("old_log_probs.npy", "advantages.npy"):
            shared = copy.copy(archive.infolist()[0])
            shared.filename = shared.orig_filename = name
            archive.filelist.append(shared)
        archive._didModify = True  # type: ignore[attr-defined]
    assert refusal(path).message == "members 'log_probs.npy' and 'old_log_probs.npy' lie over each other"


def test_paths_in_members_are_names_and_nothing_else(tmp_path: Path) -> None:
    path, out = tmp_path / "f.npz", io.BytesIO()
    np.save(out, np.array([-1.0]))
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("../../evil.npy", "/tmp/evil.npy", *(f"{role}.npy" for role in MAIN)):
            archive.writestr(name, out.getvalue())
    assert read(path) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["f.npz"]
    chosen = {"values": "../../evil"}
    assert read(path, columns=chosen) == 1
