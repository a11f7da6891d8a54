from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ppocli.core.chunk import Chunk, ReadOptions
from ppocli.core.roles import ROLES
from ppocli.errors import InputError
from ppocli.io.arrow import ArrowReader
from ppocli.io.mapped import MappedFile
from ppocli.io.parquet import ParquetReader

ALL = tuple(ROLES)
ROWS = {
    "log_probs": [[-1.0, -2.0], None, [-5.0], []],
    "old_log_probs": [[-1.1, -2.2], None, [-4.9], []],
    "advantages": [1.5, None, 2.5, 0.5],
    "group_id": ["a", "b", "a", None],
}


def write(path: Path, table: pa.Table, kind: str = "stream", rows: int = 2, **options: Any) -> str:
    made = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    written = pa.ipc.IpcWriteOptions(**options)
    with pa.OSFile(str(path), "wb") as sink, made(sink, table.schema, options=written) as writer:
        writer.write_table(table, max_chunksize=rows)
    return str(path)


def read(path: str, tokens: int = 1 << 18, **more: Any) -> list[Chunk]:
    return list(ArrowReader(path, more.pop("options", ReadOptions()), {}, **more).chunks(ALL, tokens))


def refusal(path: str, **more: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(path, **more)
    assert str(caught.value.where).startswith(path)
    return caught.value


def values(chunks: list[Chunk], role: str) -> list[float]:
    return [one for chunk in chunks for one in chunk.columns[role].values.tolist()]


@pytest.mark.parametrize("kind", ["stream", "file"])
@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"compression": "lz4"}])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_rows_of_files_and_streams(tmp_path: Path, kind: str, options: dict[str, Any], rows: int) -> None:
    path = write(tmp_path / "a", pa.table(ROWS), kind, rows, **options)
    reader = ArrowReader(path, ReadOptions(), {})
    assert (reader.report.format, reader.report.layout, reader.report.rows) == ("arrow", "list", 4)
    assert reader.per_row == {"advantages", "group_id"}
    chunks = list(reader.chunks(ALL, 1 << 18))
    assert values(chunks, "log_probs") == [-1.0, -2.0, -5.0]
    assert values(chunks, "advantages") == [1.5, 1.5, 2.5]
    assert [one.first_row for one in chunks] == list(range(0, 4, rows))
    assert sum(one.n_null_rows for one in chunks) == 1
    assert "1 row is null in every column and passed over" in reader.report.notes
    again = list(reader.chunks(("log_probs",), 1))
    assert values(again, "log_probs") == [-1.0, -2.0, -5.0]


def test_scalars_per_row_stay_apart_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "a", pa.table(ROWS), rows=100)
    (chunk,) = ArrowReader(path, ReadOptions(), {}).chunks(ALL, 100, repeat=False)
    assert chunk.columns["advantages"].values.tolist()[::2] == [1.5, 2.5]
    assert chunk.columns["advantages"].present is not None
    assert chunk.columns["advantages"].present.tolist() == [1, 0, 1, 1]


def test_a_large_flat_batch_is_cut_at_whole_blocks(tmp_path: Path) -> None:
    numbers = np.arange(20_000, dtype=np.float32)
    path = write(
        tmp_path / "a",
        pa.table(dict.fromkeys(["log_probs", "old_log_probs", "advantages"], numbers)),
        rows=20_000,
    )
    chunks = read(path, 5000)
    assert [one.n_rows for one in chunks] == [4096, 4096, 4096, 4096, 3616]
    assert values(chunks, "log_probs") == numbers.tolist()
    assert not chunks[0].columns["log_probs"].values.flags.writeable


def test_hugging_face_files_are_streams(tmp_path: Path) -> None:
    table = pa.table({**ROWS, "text": ["x"] * 4}).replace_schema_metadata({"huggingface": "{}"})
    assert values(read(write(tmp_path / "data-00000-of-00001.arrow", table)), "log_probs") == [
        -1.0,
        -2.0,
        -5.0,
    ]


def test_dictionaries_extensions_views_and_large_lists(tmp_path: Path) -> None:
    table = pa.table(
        {
            "log_probs": pa.array([[-1.0, -2.0], [-3.0]], pa.large_list(pa.float32())),
            "old_log_probs": pa.array([[-1.0, -2.0], [-3.0]], pa.list_(pa.float16())),
            "advantages": pa.array([1.0, 2.0]).dictionary_encode(),
            "group_id": pa.array(["a", "b"], pa.string_view()),
        }
    )
    (chunk,) = read(write(tmp_path / "a", table))
    assert values([chunk], "log_probs") == [-1.0, -2.0, -3.0]
    assert values([chunk], "old_log_probs") == [-1.0, -2.0, -3.0]
    assert values([chunk], "advantages") == [1.0, 1.0, 2.0]
    assert chunk.group_id is not None


def test_only_wanted_fields_are_decoded(tmp_path: Path) -> None:
    table = pa.table({**ROWS, "text": ["x" * 1000] * 4})
    path = tmp_path / "a"
    write(path, table, rows=100, compression="zstd")
    raw = bytearray(path.read_bytes())
    raw[raw.rindex(b"\x28\xb5\x2f\xfd") + 6] ^= 0xFF  # inside the text, the last of the compressed buffers
    path.write_bytes(raw)
    assert values(read(str(path)), "log_probs") == [-1.0, -2.0, -5.0]


@pytest.mark.parametrize("cut", [1, 9, 100, 300])
def test_a_stream_that_is_cut_is_refused_and_what_is_whole_can_be_recovered(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a"
    write(path, pa.table(ROWS), rows=1)
    whole = path.read_bytes()[:-8]
    path.write_bytes(whole[:-cut])
    error = refusal(str(path))
    assert error.message.startswith("cut or damaged in record batch 3 (before it 3 rows): ")
    assert f"ppocli convert --recover {path} -o" in str(error.hint)
    reader = ArrowReader(str(path), ReadOptions(), {}, recover=True)
    assert reader.report.rows == 3
    assert any(note.startswith("cut in record batch 3: ") for note in reader.report.notes)
    assert values(list(reader.chunks(ALL, 100)), "log_probs") == [-1.0, -2.0, -5.0]


def test_a_stream_without_its_end_mark_is_read_and_said(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, pa.table(ROWS))
    assert not any("end mark" in one for one in ArrowReader(str(path), ReadOptions(), {}).report.notes)
    path.write_bytes(path.read_bytes()[:-8])
    reader = ArrowReader(str(path), ReadOptions(), {})
    assert "the stream has no end mark: its writer may have been stopped" in reader.report.notes
    assert reader.report.rows == 4


def test_a_file_without_its_footer_can_be_recovered(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, pa.table(ROWS), "file", rows=1)
    path.write_bytes(path.read_bytes()[:-20])
    error = refusal(str(path))
    assert "the Arrow file cannot be read" in error.message
    assert "--recover" in str(error.hint)
    chunks = read(str(path), recover=True)
    assert values(chunks, "log_probs") == [-1.0, -2.0, -5.0]


def test_two_streams_in_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, pa.table(ROWS))
    once = path.read_bytes()
    path.write_bytes(once + once)
    assert f"{len(once):,} bytes follow the end" in refusal(str(path)).message


def test_offsets_that_lead_out_of_the_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    marker = np.array([0, 2, 7, 9], np.int32)
    lists = pa.ListArray.from_arrays(pa.array(marker), pa.array(np.arange(9.0)))
    table = pa.table(dict.fromkeys(["log_probs", "old_log_probs", "advantages"], lists))
    write(path, table, rows=100)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(marker.tobytes(), np.array([0, 2, 2**30, 9], np.int32).tobytes(), 1))
    error = refusal(str(path))
    assert error.message.startswith("record batch 0 is damaged: ")
    assert error.where == f"{path}, record batch 0"


def test_no_batches_and_no_columns(tmp_path: Path) -> None:
    schema = pa.schema({"log_probs": pa.float32(), "old_log_probs": pa.float32(), "advantages": pa.float32()})
    path = write(tmp_path / "a", schema.empty_table())
    assert ArrowReader(path, ReadOptions(), {}).report.rows == 0
    assert read(path) == []
    error = refusal(write(tmp_path / "b", pa.table({})))
    assert "no column for roles" in error.message


def test_a_missing_role_and_duplicate_columns(tmp_path: Path) -> None:
    table = pa.table([pa.array([1.0])] * 2, names=["log_probs", "log_probs"])
    assert "duplicate column 'log_probs'" in refusal(write(tmp_path / "a", table)).message


def test_the_same_as_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    rng = np.random.default_rng(5)
    lengths = rng.integers(0, 9, 200)
    columns = {
        name: pa.array([rng.normal(size=n).tolist() for n in lengths], pa.list_(pa.float32()))
        for name in ("log_probs", "old_log_probs", "advantages")
    }
    table = pa.table({**columns, "step": pa.array(np.arange(200) // 7)})
    pq.write_table(table, tmp_path / "p")
    parquet = list(ParquetReader(str(tmp_path / "p"), ReadOptions(), {}).chunks(ALL, 1 << 18))
    for kind in ("stream", "file"):
        arrow = read(write(tmp_path / kind, table, kind, rows=17), 50)
        for role in columns:
            assert values(arrow, role) == values(parquet, role)
        starts = [0]
        for one in arrow:
            assert one.offsets is not None
            starts += (one.offsets[1:] + starts[-1]).tolist()
        assert parquet[0].offsets is not None
        assert starts == parquet[0].offsets.tolist()


def test_mapped_pages_are_given_back_some_time_after_they_were_used(tmp_path: Path) -> None:
    path = tmp_path / "f"
    numbers = np.arange(1 << 16, dtype=np.float64)
    path.write_bytes(numbers.tobytes())
    mapped = MappedFile(str(path))
    whole = np.frombuffer(mapped.bytes, np.float64)
    for start in range(0, 1 << 16, 1 << 12):
        mapped.used([whole[start : start + (1 << 12)], np.zeros(3)])
    assert np.array_equal(whole, numbers)  # what was given back is read again


def test_unaligned_buffers_are_copied(tmp_path: Path) -> None:
    from ppocli.io.convert import frozen

    raw = np.frombuffer(b"\0" + np.arange(4.0).tobytes(), np.uint8)
    odd = raw[1:].view(np.float64)
    assert not odd.flags.aligned
    assert frozen(odd).flags.aligned
    assert frozen(odd).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_origins_that_a_file_of_ours_tells(tmp_path: Path) -> None:
    said = {"roles": {"log_probs": {"origin": "bfloat16"}, "nonsense": {"origin": "x"}}}
    table = pa.table(ROWS).replace_schema_metadata({"ppocli": json.dumps(said)})
    assert ArrowReader(write(tmp_path / "a", table), ReadOptions(), {}).origins == {"log_probs": "bfloat16"}
    for wrong in (b"\xff", b"[]", b"{}", b'{"roles": 1}', b'{"roles": {"log_probs": 1}}', b"[" * 10_000):
        table = pa.table(ROWS).replace_schema_metadata({"ppocli": wrong})
        assert ArrowReader(write(tmp_path / "a", table), ReadOptions(), {}).origins == {}
