from __future__ import annotations

import io
import threading
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppocli.core.chunk import Chunk, IdCoder, ReadOptions
from ppocli.core.roles import ROLES
from ppocli.errors import InputError
from ppocli.io import reorder
from ppocli.io.npz import NpzReader

ALL = tuple(ROLES)
# Loading this with pickle would create the file UNPICKLED in the working directory.
CANARY = b"cio\nopen\n(S'UNPICKLED'\nS'w'\ntR."


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "f.npz")


def main(log_probs: Any, old: Any = None, advantages: Any = None, **more: Any) -> dict[str, Any]:
    old = log_probs if old is None else old
    return {
        "log_probs": log_probs,
        "old_log_probs": old,
        "advantages": old if advantages is None else advantages,
        **more,
    }


def read(
    path: str, roles: Any = ALL, tokens: int = 1 << 18, options: ReadOptions | None = None, **more: Any
) -> list[Chunk]:
    return list(NpzReader(path, options or ReadOptions(), {}, **more).chunks(roles, tokens))


def only(path: str, **more: Any) -> Chunk:
    (chunk,) = read(path, **more)
    return chunk


def refusal(path: str, **more: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(path, **more)
    assert str(caught.value.where).startswith(path)
    return caught.value


def values(chunks: Chunk | list[Chunk], role: str) -> list[Any]:
    pieces = [chunks] if isinstance(chunks, Chunk) else chunks
    return [value for chunk in pieces for value in chunk.columns[role].values.tolist()]


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
    return out.getvalue()


def header(descr: str, shape: tuple[int, ...], version: bytes = b"\x01\x00") -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode()


def archive(path: str, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)


def patched(path: str, role: str, data: bytes, **rest: Any) -> None:
    """Write an archive in which one member is the given bytes."""
    members = {name: npy(value) for name, value in main([-1.0, -2.0], **rest).items()}
    archive(path, members | {role: data})


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_flat(path: str, save: Any) -> None:
    log_probs = np.array([-1.0, -2.0, -3.0], np.float32)
    save(path, **main(log_probs, np.array([-1.5, -2.5, -3.5]), adv_mask=1, mask=np.array([1, 0, 1], np.int8)))
    reader = NpzReader(path, ReadOptions(), {})
    report = reader.report
    assert (report.format, report.layout, report.rows) == ("npz", "flat", 3)
    assert report.bytes == Path(path).stat().st_size
    assert report.columns["log_probs"].dtype == "float32"
    assert report.columns["mask"].dtype == "int8"
    for tokens in (1, 2, 1000):
        chunks = list(reader.chunks(ALL, tokens))
        assert [chunk.n_tokens for chunk in chunks] == {1: [1, 1, 1], 2: [2, 1], 1000: [3]}[tokens]
        assert values(chunks, "log_probs") == [-1.0, -2.0, -3.0]
        assert values(chunks, "old_log_probs") == [-1.5, -2.5, -3.5]
        assert [one for chunk in chunks for one in chunk.mask.tolist()] == [1, 0, 1]  # type: ignore[union-attr]
        assert chunks[-1].offsets is None
    reader.close()


def test_arrays_are_aligned_contiguous_native_and_read_only(path: str) -> None:
    np.savez(
        path, **main(np.array([-1.0, -2.0], ">f4"), np.array([-1.0, -2.0], ">f8"), np.array([1, 2], ">i2"))
    )
    chunk = only(path)
    for column in chunk.columns.values():
        assert column.values.flags.c_contiguous
        assert column.values.flags.aligned
        assert column.values.dtype.isnative
        assert not column.values.flags.writeable
    assert values(chunk, "old_log_probs") == [-1.0, -2.0]
    assert values(chunk, "advantages") == [1.0, 2.0]


def test_chunks_stay_as_they_are_when_the_next_one_is_read(path: str) -> None:
    numbers = np.arange(40_960, dtype=np.float32)
    np.savez(path, **main(numbers))
    kept = [chunk.columns["log_probs"].values for chunk in read(path, tokens=4096)]
    assert np.array_equal(np.concatenate(kept), numbers)


def test_only_roles_that_are_asked_for(path: str) -> None:
    np.savez(path, **main([-1.0], mask=[1], sequence_id=[3], token_id=[4]))
    chunk = only(path, roles=("advantages",))
    assert list(chunk.columns) == ["advantages"]
    assert (chunk.mask, chunk.sequence_id) == (None, None)
    assert only(path).columns["token_id"].values.tolist() == [4]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_padded_with_mask(path: str, save: Any) -> None:
    log_probs = -np.arange(6.0).reshape(2, 3)
    save(path, **main(log_probs, mask=np.array([[1, 1, 0], [1, 0, 0]])))
    for tokens in (1, 3, 5, 6):
        chunks = read(path, tokens=tokens)
        assert [chunk.n_rows for chunk in chunks] == ([1, 1] if tokens < 6 else [2])
        assert [chunk.first_row for chunk in chunks] == ([0, 1] if tokens < 6 else [0])
        assert values(chunks, "log_probs") == [0.0, -1.0, -2.0, -3.0, -4.0, -5.0]
        assert chunks[0].offsets.tolist() == ([0, 3] if tokens < 6 else [0, 3, 6])  # type: ignore[union-attr]
    assert chunks[0].mask.tolist() == [1, 1, 0, 1, 0, 0]  # type: ignore[union-attr]
    assert NpzReader(path, ReadOptions(), {}).report.layout == "padded"


def test_one_value_per_row_and_one_for_all(path: str) -> None:
    np.savez(
        path,
        **main(np.zeros((2, 3)), advantages=[[5.0], [6.0]]),
        values=7.0,
        rewards=np.array([1, 2]),
        group_id=[8, 9],
        step=4,
    )
    for tokens in (1, 1000):
        chunks = read(path, tokens=tokens)
        assert values(chunks, "advantages") == [5.0, 5.0, 5.0, 6.0, 6.0, 6.0]
        assert values(chunks, "values") == [7.0] * 6
        assert values(chunks, "rewards") == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
        assert [code for chunk in chunks for code in chunk.group_id.codes.tolist()] == [8, 9]  # type: ignore[union-attr]
        assert [code for chunk in chunks for code in chunk.step.codes.tolist()] == [4, 4]  # type: ignore[union-attr]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("limit", [1 << 24, 0])
def test_column_major_and_time_first(
    path: str, save: Any, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With limit 0 everything goes through a temporary file, in slabs of two steps.
    monkeypatch.setattr(reorder, "IN_MEMORY", limit)
    monkeypatch.setattr(reorder, "_SLAB", 2 * 4 * 8)
    by_row = np.arange(20.0).reshape(5, 4)
    save(path, **main(np.asfortranarray(by_row), by_row))
    chunks = read(path, tokens=8)
    assert values(chunks, "log_probs") == values(chunks, "old_log_probs") == by_row.reshape(-1).tolist()
    time_first = np.ascontiguousarray(by_row.T)
    # Column-major and time first is in row order again.
    save(path, **main(time_first, np.asfortranarray(time_first), advantages=np.arange(5.0)))
    chunks = read(path, tokens=8, options=ReadOptions(layout="time"))
    assert [chunk.n_rows for chunk in chunks] == [2, 2, 1]
    assert values(chunks, "log_probs") == values(chunks, "old_log_probs") == by_row.reshape(-1).tolist()
    assert values(chunks, "advantages") == [float(row) for row in range(5) for _ in range(4)]


def test_systems_that_cannot_reserve_room(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder, "IN_MEMORY", 0)
    monkeypatch.delattr("os.posix_fallocate", raising=False)
    monkeypatch.delattr("mmap.MADV_DONTNEED", raising=False)
    np.savez(path, **main(np.asfortranarray([[-1.0, -2.0], [-3.0, -4.0]])))
    assert values(only(path), "log_probs") == [-1.0, -2.0, -3.0, -4.0]


@pytest.mark.parametrize("limit", [1 << 24, 0])
def test_time_first_with_dimensions(path: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder, "IN_MEMORY", limit)
    monkeypatch.setattr(reorder, "_SLAB", 1)
    per_dimension = np.arange(24.0).reshape(3, 4, 2)
    # Environment 0 of four: steps (0, 1), (8, 9), (16, 17).
    sums = [1.0, 17.0, 33.0, 5.0, 21.0, 37.0, 9.0, 25.0, 41.0, 13.0, 29.0, 45.0]
    options = ReadOptions(layout="time", sum_dims=True)
    np.savez(path, **main(per_dimension, np.asfortranarray(per_dimension), advantages=np.zeros((3, 4))))
    chunks = read(path, options=options, tokens=3)
    assert values(chunks, "log_probs") == sums
    assert values(chunks, "old_log_probs") == sums


def test_no_room_for_the_temporary_file(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reorder, "IN_MEMORY", 0)
    monkeypatch.setattr("os.posix_fallocate", full)
    np.savez(path, **main(np.asfortranarray(np.zeros((2, 3))), np.zeros((2, 3))))
    error = refusal(path)
    assert "array 'log_probs' is not stored in row order" in error.message
    assert "No space left on device" in error.message
    assert "TMPDIR" in str(error.hint)


def test_no_folder_for_the_temporary_file(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*args: object, **kwargs: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(reorder, "IN_MEMORY", 0)
    monkeypatch.setattr("tempfile.TemporaryFile", nowhere)
    np.savez(path, **main(np.asfortranarray(np.zeros((2, 3))), np.zeros((2, 3))))
    assert "No usable temporary directory" in refusal(path).message


def test_dimensions_are_summed_in_float64(path: str) -> None:
    small = np.array([[-1.0, -(2.0**-30)], [-2.0, -4.0]], np.float32)
    np.savez(path, **main(small, advantages=[1.0, 2.0]))
    column = only(path, options=ReadOptions(sum_dims=True)).columns["log_probs"]
    assert column.values.dtype == np.float64
    assert column.values.tolist() == [-1.0 - 2.0**-30, -6.0]


def test_dimensions_read_as_tokens_are_said(path: str) -> None:
    np.savez(path, **main(np.zeros((2, 3)), advantages=[1.0, 2.0]))
    reader = NpzReader(path, ReadOptions(), {})
    assert "second axis read as tokens; --sum-dims if these are action dimensions" in reader.report.notes


def test_bfloat16_as_raw_bytes(path: str) -> None:
    bits = np.array([0xBF80, 0xBF00, 0xC1A0], "<u2")
    patched(path, "log_probs", header("<V2", (3,)) + bits.tobytes(), old=[-1.0] * 3)
    reader = NpzReader(path, ReadOptions(), {})
    assert reader.report.columns["log_probs"].dtype == "bfloat16"
    assert "log_probs: raw 2-byte values (V2) read as bfloat16" in reader.report.notes
    column = next(iter(reader.chunks(ALL, 10))).columns["log_probs"]
    assert column.values.dtype == np.uint16
    assert column.values.tolist() == bits.tolist()


def test_bfloat16_dimensions(path: str) -> None:
    bits = np.array([[0xBF80, 0xBF00]], "<u2")
    patched(path, "log_probs", header("<V2", (1, 2)) + bits.tobytes(), old=[-1.0])
    assert values(only(path, options=ReadOptions(sum_dims=True)), "log_probs") == [-1.5]


def test_bits_as_integers_only_by_option(path: str) -> None:
    bits = np.array([0xBF80, 0xBF00], np.uint16)
    np.savez(path, **main(bits, advantages=[1.0, 2.0]))
    error = refusal(path)
    assert "'log_probs' (log_probs) is uint16" in error.message
    assert "--bits log_probs" in str(error.hint)
    options = ReadOptions(bits=frozenset({"log_probs", "old_log_probs"}))
    assert values(only(path, options=options), "log_probs") == [0xBF80, 0xBF00]


@pytest.mark.parametrize(("array", "named"), [(np.array([1, 2]), "int64"), (np.array([1j, 2]), "complex128")])
def test_other_types_are_refused(path: str, array: Any, named: str) -> None:
    np.savez(path, **main(array, advantages=[1.0, 2.0]))
    assert named in refusal(path).message


def test_object_arrays_are_refused_without_unpickling(path: str) -> None:
    patched(path, "log_probs", header("|O", (2,)) + CANARY)
    error = refusal(path)
    assert "'log_probs' (log_probs) holds Python objects" in error.message
    assert "pickle" in error.message
    assert "sequence_id" in str(error.hint)
    assert error.where == f"{path}, member 'log_probs.npy'"
    assert not Path("UNPICKLED").exists()


def test_a_dict_saved_as_an_object(path: str) -> None:
    archive(path, {"arr_0": header("|O", ()) + CANARY})
    error = refusal(path)
    assert "'arr_0' is a Python object" in error.message
    assert "np.savez(path, **arrays)" in str(error.hint)
    assert not Path("UNPICKLED").exists()


def test_an_object_named_by_hand(path: str) -> None:
    archive(path, {name: npy([-1.0]) for name in ("log_probs", "old_log_probs")} | {"x": header("|O", ())})
    error = refusal(path, options=ReadOptions(columns={"advantages": "x"}))
    assert "'x' (advantages) holds Python objects" in error.message
    assert "np.savez(path, **arrays)" in str(error.hint)


def test_unused_object_arrays_do_not_matter(path: str) -> None:
    patched(path, "infos", header("|O", (2,)) + CANARY)
    assert values(only(path), "log_probs") == [-1.0, -2.0]


def test_positional_names_list_shapes_and_types(path: str) -> None:
    np.savez(path, np.zeros(2), np.zeros((2, 3), np.float32))
    error = refusal(path)
    assert "arr_0 (2,) float64, arr_1 (2, 3) float32" in str(error.where)
    assert "--col log_probs=NAME" in str(error.hint)
    np.savez(path, np.array([-1.0]), np.array([-2.0]), np.array([3.0]))
    col = {"log_probs": "arr_0", "old_log_probs": "arr_1", "advantages": "arr_2"}
    assert values(only(path, options=ReadOptions(columns=col)), "advantages") == [3.0]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_members_are_refused(path: str) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, value in (("log_probs", -1.0), ("log_probs", -9.0), ("old_log_probs", -1.0), ("adv", 1.0)):
            file.writestr(f"{name}.npy", npy([value]))
    assert "duplicate array 'log_probs'" in refusal(path).message


def test_declared_size_is_compared_before_anything_is_allocated(path: str) -> None:
    patched(path, "log_probs", header("<f8", (10**12,)))
    tracemalloc.start()
    error = refusal(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "declares 8,000,000,000,000 bytes, the member holds 0 bytes" in error.message
    assert peak < 10_000_000


def test_a_member_longer_than_declared_is_refused(path: str) -> None:
    patched(path, "log_probs", npy([-1.0, -2.0]) + b"\0" * 8)
    assert "declares 16 bytes, the member holds 24 bytes" in refusal(path).message


def test_a_size_that_the_archive_cannot_hold_is_refused(path: str) -> None:
    small = header("<f8", (10**8,)) + b"\0" * 10
    patched(path, "log_probs", small)
    data = bytearray(Path(path).read_bytes())
    # The directory says what the header says, so only the archive's own size tells that it cannot be.
    entry = data.index(b"PK\x01\x02")
    declared = 8 * 10**8 + len(small) - 10
    data[entry + 24 : entry + 28] = declared.to_bytes(4, "little")
    Path(path).write_bytes(data)
    assert "the archive cannot hold more than" in refusal(path).message


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_of_the_standard_library_are_read(path: str, compression: int) -> None:
    archive(path, {name: npy(value) for name, value in main([-1.0, -2.0]).items()}, compression)
    assert values(only(path), "log_probs") == [-1.0, -2.0]


def test_unknown_compression_and_encryption(path: str) -> None:
    np.savez(path, **main([-1.0]))
    clean = Path(path).read_bytes()
    entry = clean.index(b"PK\x01\x02")
    for offset, value, words in ((10, 99, "compression"), (8, 1, "encrypted")):
        data = bytearray(clean)
        data[entry + offset] = value
        Path(path).write_bytes(data)
        error = refusal(path)
        assert "'log_probs' (log_probs) cannot be read" in error.message
        assert words in error.message


def test_wrong_checksum_of_a_deflated_member(path: str) -> None:
    np.savez_compressed(path, **main(np.zeros(10_000), np.arange(10_000.0)))
    data = bytearray(Path(path).read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 16] ^= 1
    Path(path).write_bytes(data)
    for tokens in (100, 1 << 20):
        error = refusal(path, tokens=tokens)
        assert "'log_probs' is damaged" in error.message
        assert "CRC" in error.message


@pytest.mark.parametrize(
    ("rows", "tokens"),
    [(3, 1), (300, 7), (300, 1000), (300_000, 5000), (300_000, 70_000), (300_000, 1 << 20)],
)
def test_one_bit_of_a_stored_member(path: str, rows: int, tokens: int) -> None:
    noise = np.random.default_rng(0).normal(size=rows)
    np.savez(path, **main(noise, noise + 1.0, noise + 2.0))
    clean = Path(path).read_bytes()
    assert sum(chunk.n_tokens for chunk in read(path, tokens=tokens)) == rows
    last = clean.index(b"PK\x01\x02")
    first = clean.index(b"NUMPY", clean.index(b"advantages.npy")) + 128
    for role, place in (
        ("log_probs", clean.index(b"NUMPY") + 128),
        ("advantages", first),
        ("advantages", last - 1),
    ):
        data = bytearray(clean)
        data[place] ^= 4
        Path(path).write_bytes(data)
        error = refusal(path, tokens=tokens)
        assert f"array '{role}'" in error.message  # small ones are read, and refused, with their header
        assert "CRC" in error.message
        assert f"member '{role}.npy'" in str(error.where)


def test_one_bit_of_a_stored_member_in_column_order(path: str) -> None:
    square = np.random.default_rng(0).normal(size=(300, 200))
    np.savez(path, **main(np.asfortranarray(square), square, square))
    data = bytearray(Path(path).read_bytes())
    data[5000] ^= 1
    Path(path).write_bytes(data)
    assert "'log_probs' is damaged" in refusal(path).message


def test_a_reader_that_stops_early_checks_nothing_and_leaves_no_thread(path: str) -> None:
    np.savez(path, **main(np.zeros(300_000)))
    data = bytearray(Path(path).read_bytes())
    data[2_000_000] ^= 1
    Path(path).write_bytes(data)
    chunks = NpzReader(path, ReadOptions(), {}).chunks(ALL, 100_000)
    assert next(chunks).n_tokens > 0
    chunks.close()
    assert [one for one in threading.enumerate() if one.name.startswith("ppocli-checksum")] == []


def test_broken_deflate_stream(path: str) -> None:
    noise = np.random.default_rng(0).normal(size=10_000)
    np.savez_compressed(path, **main(noise))
    data = bytearray(Path(path).read_bytes())
    data[5000:5100] = b"\xff" * 100
    Path(path).write_bytes(data)
    assert "damaged" in refusal(path).message


def test_broken_local_header(path: str) -> None:
    np.savez(path, **main([-1.0]))
    reader = NpzReader(path, ReadOptions(), {})
    data = bytearray(Path(path).read_bytes())
    data[0] = 0
    Path(path).write_bytes(data)
    with pytest.raises(InputError, match="no local header"):
        list(reader.chunks(ALL, 10))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not numpy at all",
        header("<f8", (2,), b"\x03\x00"),
        header("<f8", (-1,)),
        b"\x93NUMPY\x01\x00\x10\x00{'descr': ",
    ],
)
def test_broken_headers(path: str, data: bytes) -> None:
    patched(path, "log_probs", data)
    error = refusal(path)
    assert error.message.startswith("array 'log_probs' (log_probs) cannot be read: ")


def test_one_byte_raw_types_are_refused_by_name(path: str) -> None:
    patched(path, "log_probs", header("|V1", (2,)) + b"ab")
    assert "raw bytes (1 per value)" in refusal(path).message


def test_lengths_that_differ(path: str) -> None:
    np.savez(path, **main(np.zeros(200), advantages=np.zeros(199)))
    error = refusal(path)
    assert error.message == "'log_probs' has 200 values and 'advantages' has 199"
    assert error.where == path


def test_bad_mask_values_are_located(path: str) -> None:
    np.savez(path, **main(np.zeros((3, 2)), mask=np.array([[1, 1], [1, 0], [1, 0.5]])))
    for tokens in (1, 1000):
        error = refusal(path, tokens=tokens)
        assert error.where == f"{path}, row 2, position 1"
        assert "holds 0.5" in error.message


def test_half_precision_mask_and_columns(path: str) -> None:
    np.savez(path, **main(np.full(5000, -0.1, np.float16), mask=np.ones(5000, np.float16)))
    chunk = only(path)
    assert int(chunk.mask.astype(np.int64).sum()) == 5000  # type: ignore[union-attr]
    assert chunk.columns["log_probs"].values[0] == -0.0999755859375


def test_text_and_integer_ids(path: str) -> None:
    coder = IdCoder()
    big = 2**53 + 1
    np.savez(path, **main([-1.0] * 3), group_id=["b", "a", "b"], sequence_id=[big, big, big - 1])
    (chunk,) = NpzReader(path, ReadOptions(), {"group_id": coder}).chunks(ALL, 10)
    assert chunk.group_id is not None
    assert chunk.sequence_id is not None
    assert chunk.group_id.codes.tolist() == [coder.code("b"), coder.code("a"), coder.code("b")]
    assert chunk.sequence_id.codes.tolist() == [big, big, big - 1]


def test_token_ids_that_do_not_fit_are_left_alone_unless_named(path: str) -> None:
    np.savez(path, **main(np.zeros((2, 3))), input_ids=np.zeros((2, 5), int))
    reader = NpzReader(path, ReadOptions(), {})
    assert "token_id" not in reader.report.columns
    assert "token_id: not read, 'input_ids' has shape (2, 5)" in reader.report.notes
    patched(path, "input_ids", header("|O", (2,)) + CANARY)
    assert "token_id" not in NpzReader(path, ReadOptions(), {}).report.columns
    assert "Python objects" in refusal(path, options=ReadOptions(columns={"token_id": "input_ids"})).message


def test_packed_rows(path: str) -> None:
    np.savez(path, **main(np.zeros((1, 4))), sequence_id=[[0, 0, 1, 1]])
    assert NpzReader(path, ReadOptions(), {}).report.layout == "packed"
    assert only(path).sequence_id.codes.tolist() == [0, 0, 1, 1]  # type: ignore[union-attr]


def test_integers_that_float64_does_not_hold(path: str) -> None:
    np.savez(path, **main([-1.0], advantages=np.array([2**60 + 1])))
    assert "2^53" in refusal(path).message


def test_data_that_end_early(path: str) -> None:
    np.savez(path, **main(np.zeros(1000)))
    reader = NpzReader(path, ReadOptions(), {})
    Path(path).write_bytes(Path(path).read_bytes()[:20_000])
    with pytest.raises(InputError, match=r"'advantages' is damaged: the data end \d+ bytes early"):
        list(reader.chunks(ALL, 100))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_nothing_stored(path: str, shape: tuple[int, ...]) -> None:
    np.savez(path, **main(np.zeros(shape)))
    assert sum(chunk.n_tokens for chunk in read(path)) == 0


def test_files_are_closed_when_reading_stops_early(path: str) -> None:
    np.savez_compressed(path, **main(np.zeros(100_000)))
    chunks = NpzReader(path, ReadOptions(), {}).chunks(ALL, 4096)
    next(iter(chunks))
    del chunks
