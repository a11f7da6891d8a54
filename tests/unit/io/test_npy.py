from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppocli.core.chunk import Chunk, ReadOptions
from ppocli.core.roles import ROLES
from ppocli.errors import InputError
from ppocli.io.npy import NpyReader

ALL = tuple(ROLES)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "r.npy")


def save(path: str, n: int, *fields: Any) -> np.ndarray:
    records = np.zeros(n, list(fields))
    for index, name in enumerate(records.dtype.names or ()):
        if records.dtype[name].base.kind in "fiu":
            count = records[name].size
            records[name] = (np.arange(count) + 10.0 * index).reshape(records[name].shape)
    np.save(path, records)
    return records


def read(path: str, tokens: int = 1 << 18, **options: Any) -> list[Chunk]:
    return list(NpyReader(path, ReadOptions(**options), {}).chunks(ALL, tokens))


def values(chunks: list[Chunk], role: str) -> list[float]:
    return [one for chunk in chunks for one in chunk.columns[role].values.tolist()]


def refusal(path: str, **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(path, **options)
    assert caught.value.where is not None
    assert caught.value.where.startswith(path)
    return caught.value


def test_flat_records(path: str) -> None:
    save(path, 9000, ("log_probs", "<f4"), ("old_log_probs", ">f8"), ("advantages", "f2"), ("step", "i4"))
    reader = NpyReader(path, ReadOptions(), {})
    assert (reader.report.format, reader.report.layout, reader.report.rows) == ("npy", "flat", 9000)
    assert reader.per_row == frozenset()
    chunks = list(reader.chunks(ALL, 5000))
    assert [one.n_rows for one in chunks] == [4096, 4096, 808]
    assert values(chunks, "log_probs") == [float(i) for i in range(9000)]
    assert values(chunks, "old_log_probs") == [i + 10.0 for i in range(9000)]
    assert chunks[0].columns["old_log_probs"].values.dtype == np.dtype("=f8")
    assert chunks[1].step is not None
    assert chunks[1].step.codes[0] == 4096 + 30
    assert values(list(reader.chunks(("log_probs",), 10**6)), "log_probs")[-1] == 8999.0


def test_padded_records(path: str) -> None:
    save(
        path,
        4,
        ("log_probs", "f4", (3,)),
        ("old_log_probs", "f4", (3, 1)),
        ("advantages", "f8"),
        ("mask", "?", (3,)),
    )
    reader = NpyReader(path, ReadOptions(), {})
    assert (reader.report.layout, reader.report.rows) == ("padded", 4)
    assert reader.per_row == {"advantages"}
    chunks = list(reader.chunks(ALL, 6))
    assert [one.n_rows for one in chunks] == [2, 2]
    assert values(chunks, "log_probs") == [float(i) for i in range(12)]
    assert values(chunks, "advantages") == [20.0] * 3 + [21.0] * 3 + [22.0] * 3 + [23.0] * 3
    assert chunks[0].mask is not None
    assert not chunks[0].mask.any()


def test_text_ids_and_bfloat16(path: str) -> None:
    records = np.zeros(
        2, [("log_probs", "V2"), ("old_log_probs", "V2"), ("advantages", "f4"), ("group_id", "U3")]
    )
    records["log_probs"] = np.array([0xBF80, 0xC000], "<u2").view("V2")
    records["group_id"] = ["b", "a"]
    np.save(path, records)
    (chunk,) = read(path)
    assert values([chunk], "log_probs") == [0xBF80, 0xC000]
    assert chunk.columns["log_probs"].values.dtype == np.uint16
    assert chunk.group_id is not None
    assert len(set(chunk.group_id.codes.tolist())) == 2


def test_a_plain_array_is_one_column_and_not_enough(path: str) -> None:
    np.save(path, np.zeros((3, 2), np.float32))
    error = refusal(path)
    assert "one plain array, (3, 2) float32" in error.message
    assert "np.savez" in str(error.hint)


def test_objects_are_never_unpickled(path: str) -> None:
    np.save(path, np.array([{"log_probs": 1}], object), allow_pickle=True)
    assert "nothing is unpickled" in refusal(path).message
    records = np.zeros(2, [("log_probs", object)])
    np.save(path, records, allow_pickle=True)
    assert "nothing is unpickled" in refusal(path).message


def test_sizes_that_do_not_fit(path: str) -> None:
    save(path, 10, ("log_probs", "f8"), ("old_log_probs", "f8"), ("advantages", "f8"))
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[:-8])
    assert refusal(path).message == "the header declares 240 bytes, the file holds 232"
    Path(path).write_bytes(whole + b"\0")
    assert "the file holds 241" in refusal(path).message
    Path(path).write_bytes(whole.replace(b"(10,)", b"(99999999999999999999,)".ljust(5), 1))
    assert "bytes" in refusal(path).message or "header" in refusal(path).message
    Path(path).write_bytes(whole.replace(b"(10,)", b"(-9,)", 1))
    assert refusal(path).message.startswith("the header declares")
    for cut in (7, 9, 40):
        Path(path).write_bytes(whole[:cut])
        assert refusal(path).message.startswith("the NPY header cannot be read")


def test_other_shapes_and_types(path: str) -> None:
    np.save(path, np.zeros((2, 2), [("log_probs", "f4")]))
    assert "records of shape (2, 2)" in refusal(path).message
    save(path, 2, ("log_probs", [("a", "f4")]), ("old_log_probs", "f4"), ("advantages", "f4"))
    assert "'log_probs' (log_probs) is a structure" in refusal(path).message
    save(path, 2, ("log_probs", "f4", (2,)), ("old_log_probs", "f4"), ("advantages", "f4"))
    assert "shape (2, 2)" in refusal(path).message
    save(path, 4, ("log_probs", "f4", (2,)), ("old_log_probs", "f4", (2,)), ("advantages", "f4", (2,)))
    assert "(time, environment) is not read" in refusal(path, layout="time").message


def test_no_records(path: str) -> None:
    save(path, 0, ("log_probs", "f4"), ("old_log_probs", "f4"), ("advantages", "f4"))
    assert read(path) == []
    save(path, 2, ("log_probs", "f4", (0,)), ("old_log_probs", "f4", (0,)), ("advantages", "f4"))
    assert sum(one.n_tokens for one in read(path)) == 0


def test_a_header_of_python_2_is_read_without_a_word(path: str) -> None:
    save(path, 30, ("log_probs", "<f4"), ("old_log_probs", "<f4"), ("advantages", "<f4"))
    content = Path(path).read_bytes()
    old = content.replace(b"(30,), }  ", b"(30L,), } ", 1)  # NumPy warns of such numbers
    assert len(old) == len(content)
    assert old != content
    Path(path).write_bytes(old)
    assert values(read(path), "log_probs") == [float(i) for i in range(30)]
