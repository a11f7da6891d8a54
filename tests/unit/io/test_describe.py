from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.core.chunk import ReadOptions
from ppocli.errors import InputError
from ppocli.io.describe import describe

if TYPE_CHECKING:
    from ppocli.core.inspect_report import InspectedFile, StoredColumn

READ = {"log_probs", "old_log_probs", "advantages", "mask", "sequence_id"}
F32 = pa.float32()


def look(path: Path, options: ReadOptions | None = None, tokens: int = 1 << 20) -> InspectedFile:
    return describe(str(path), options or ReadOptions(), READ.intersection, tokens)


def parquet(tmp_path: Path, columns: dict[str, Any], **options: Any) -> Path:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return path


def npz(tmp_path: Path, **arrays: Any) -> Path:
    path = tmp_path / "f.npz"
    np.savez(path, **arrays)
    return path


def main(values: Any, **more: Any) -> dict[str, Any]:
    return {"log_probs": values, "old_log_probs": values, "advantages": values, **more}


def column(found: InspectedFile, name: str) -> StoredColumn:
    (one,) = [one for one in found.columns if one.name == name]
    return one


def limits(found: InspectedFile, name: str) -> tuple[Any, ...]:
    one = column(found, name)
    return one.n_null, one.min, one.max, dict(one.nonfinite)


def test_a_parquet_file(tmp_path: Path) -> None:
    values = pa.array([-1.5, -0.25, None, -4.0], F32)
    path = parquet(tmp_path, main(values, note=["a", "b", "c", None]), row_group_size=2, compression="zstd")
    found = look(path)
    meta = pq.read_metadata(path)
    assert (found.path, found.format, found.rows, found.parts) == (str(path), "parquet", 4, 2)
    assert (found.version, found.writer) == ("2.6", meta.created_by)
    assert (found.bytes, found.footer_bytes) == (path.stat().st_size, meta.serialized_size)
    assert (found.layout, found.ready, found.missing, found.problem) == ("flat", True, (), None)
    assert found.notes == ()
    one = column(found, "log_probs")
    assert (one.type, one.role, one.found_by, one.compression) == ("float32", "log_probs", "name", "zstd")
    assert one.values == 4
    assert one.bytes == sum(meta.row_group(k).column(0).total_compressed_size for k in range(2))
    assert limits(found, "log_probs") == (1, -4.0, -0.25, {})
    text = column(found, "note")
    assert (text.type, text.role, text.found_by, text.n_null) == ("string", None, None, 1)
    assert (text.min, text.max) == (None, None)
    assert (text.shape, text.order, text.mappable) == (None, None, None)


def test_limits_come_in_the_column_s_own_type(tmp_path: Path) -> None:
    columns = {
        "half": pa.array([1.5, -2.0], pa.float16()),
        "big": pa.array([1, 2**63 + 5], pa.uint64()),
        "flag": [True, False],
        "infinite": pa.array([float("-inf"), 1.0]),
        "with_nan": pa.array([float("nan"), 2.0]),
        "only_nan": pa.array([float("nan")] * 2),
        "only_null": pa.array([None, None], F32),
        "word": ["a", "b"],
    }
    found = look(parquet(tmp_path, columns))
    assert limits(found, "half") == (0, -2.0, 1.5, {})
    assert limits(found, "big") == (0, 1, 2**63 + 5, {})
    assert limits(found, "flag") == (0, False, True, {})
    assert limits(found, "infinite") == (0, None, 1.0, {"min": "-inf"})
    assert limits(found, "with_nan") == (0, 2.0, 2.0, {})
    assert limits(found, "only_nan") == (0, None, None, {})
    assert limits(found, "only_null") == (2, None, None, {})
    assert limits(found, "word") == (0, None, None, {})


def test_what_one_row_group_does_not_say_is_not_known_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    nan, number = pa.table({"a": [float("nan")]}), pa.table({"a": [1.0]})
    with pq.ParquetWriter(path, nan.schema) as writer:
        writer.write_table(nan)
        writer.write_table(number)
    assert limits(look(path), "a") == (0, None, None, {})
    missing = pa.table({"a": pa.array([None], pa.float64())})
    with pq.ParquetWriter(path, missing.schema) as writer:
        writer.write_table(missing)
        writer.write_table(number)
    assert limits(look(path), "a") == (1, 1.0, 1.0, {})


def test_without_statistics_nothing_is_claimed(tmp_path: Path) -> None:
    found = look(parquet(tmp_path, main(pa.array([-1.0, -2.0], F32)), write_statistics=False))
    assert limits(found, "log_probs") == (None, None, None, {})
    assert found.ready


def test_list_columns_count_values_and_say_what_nulls_are(tmp_path: Path) -> None:
    rows = pa.array([[-1.0, None, -3.0], [], None, [-4.0]], pa.list_(F32))
    found = look(parquet(tmp_path, main(rows)))
    assert found.layout == "list"
    # three values, one for the empty list, one for the null list, one more value
    assert column(found, "log_probs").values == 6
    assert limits(found, "log_probs") == (3, -4.0, -1.0, {})
    assert found.notes == (
        "nulls of list columns are as the footer counts them: null and empty lists are among them",
    )


def test_structures_are_shown_by_their_fields(tmp_path: Path) -> None:
    deep = pa.struct([("x", pa.list_(pa.float64()))])
    kind = pa.struct([("lp", pa.float64()), ("deep", deep)])
    inside = pa.array([{"lp": 0.5, "deep": {"x": [1.0, 2.0]}}, None], kind)
    pairs = pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32()))
    found = look(parquet(tmp_path, {"s": inside, "m": pairs, "z": pa.array([7, 9])}))
    assert [one.name for one in found.columns] == ["s.lp", "s.deep.x", "m", "z"]
    assert column(found, "s.deep.x").type == "list<float64>"
    assert limits(found, "s.lp") == (1, 0.5, 0.5, {})
    assert column(found, "m").values is None
    assert limits(found, "z") == (0, 7, 9, {})
    chosen = look(tmp_path / "f.parquet", ReadOptions({"log_probs": "s.lp"}))
    one = column(chosen, "s.lp")
    assert (one.role, one.found_by) == ("log_probs", "option")


def test_roles_and_what_found_them(tmp_path: Path) -> None:
    values = pa.array([-1.0, -2.0], F32)
    path = parquet(tmp_path, {"logprobs": values, "old_logp": values, "adv": values, "x": values})
    found = look(path, ReadOptions({"returns": "x"}))
    by = {one.name: (one.role, one.found_by) for one in found.columns}
    assert by == {
        "logprobs": ("log_probs", "alias"),
        "old_logp": ("old_log_probs", "alias"),
        "adv": ("advantages", "alias"),
        "x": ("returns", "option"),
    }
    assert found.plan is not None
    assert found.plan.columns == ("logprobs", "old_logp", "adv")


def test_a_file_without_any_role_is_described(tmp_path: Path) -> None:
    found = look(parquet(tmp_path, {"a": [1, 2], "b": ["x", "y"]}))
    assert (found.ready, found.layout, found.plan, found.rows) == (False, None, None, 2)
    assert found.missing == ("log_probs", "old_log_probs", "advantages")
    assert found.problem == "no column for roles 'log_probs', 'old_log_probs', 'advantages'"
    assert "--col log_probs=NAME --col old_log_probs=NAME --col advantages=NAME" in found.advice
    bare = look(npz(tmp_path, a=np.zeros(3), b=np.zeros((2, 2))))
    assert (bare.ready, bare.layout, bare.plan, bare.rows) == (False, None, None, None)
    assert bare.problem == found.problem
    empty = look(parquet(tmp_path, {}))
    assert (empty.columns, empty.ready) == ((), False)


def test_only_old_and_rollout_log_probs_lead_to_drift(tmp_path: Path) -> None:
    values = pa.array([-1.0, -2.0], F32)
    path = parquet(tmp_path, {"old_log_probs": values, "rollout_log_probs": values, "advantages": values})
    found = look(path)
    assert found.missing == ("log_probs",)
    assert found.advice.startswith(f"ppocli drift {path}")
    assert found.layout == "flat"


def test_a_name_of_several_meanings_is_not_taken(tmp_path: Path) -> None:
    values = pa.array([-1.0, -2.0], F32)
    found = look(parquet(tmp_path, {"logprobs": values, "advantages": values}))
    assert column(found, "logprobs").role is None
    assert found.problem is not None
    assert "'logprobs' is ambiguous" in found.problem
    assert "--col log_probs=logprobs" in found.advice


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_a_name_that_stands_twice_is_described_and_not_ready(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"f.{kind}"
    if kind == "parquet":
        values = pa.array([-1.0, -2.0], F32)
        pq.write_table(pa.table([values, values], names=["log_probs", "log_probs"]), path)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("log_probs.npy", npy(np.zeros(2)))
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("log_probs.npy", npy(np.zeros(2)))
    found = look(path)
    assert [one.name for one in found.columns] == ["log_probs", "log_probs"]
    assert [one.role for one in found.columns] == [None, None]
    assert found.problem is not None
    assert found.problem.startswith("duplicate ")


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_a_type_that_a_role_does_not_take_is_described(tmp_path: Path) -> None:
    path = parquet(tmp_path, main(pa.array([-1.0, -2.0], F32), log_probs=pa.array([1, 2], pa.uint16())))
    found = look(path)
    assert column(found, "log_probs").role == "log_probs"
    assert (found.layout, found.plan, found.missing) == (None, None, ())
    assert found.problem == "column 'log_probs' (log_probs) is uint16: log-probs are floating point"
    assert "--bits log_probs" in found.advice
    assert look(path, ReadOptions(bits=frozenset({"log_probs"}))).ready


def test_notes_about_types(tmp_path: Path) -> None:
    columns = main(
        pa.array([-1.0, -2.0], F32),
        mask=pa.array([None, None]),
        nothing=pa.array([None, None]),
        rewards=pa.array([1, 2], pa.uint16()),
        raw=pa.array([1, 2], pa.uint16()),
    )
    assert look(parquet(tmp_path, columns)).notes == (
        "mask: column 'mask' holds only nulls (type null), counted as absent",
        "column 'nothing' has type null: every value is missing",
        "column 'rewards' is uint16: if these are the bits of bfloat16 values, say so: --bits rewards",
        "column 'raw' is uint16: if these are the bits of bfloat16 values, say so: "
        "--col ROLE=raw --bits ROLE",
    )


def test_the_plan_of_a_flat_file(tmp_path: Path) -> None:
    path = parquet(tmp_path, main(pa.array([-1.0] * 5000, F32), text=["x"] * 5000), row_group_size=1000)
    found = look(path, tokens=3000)
    assert found.plan is not None
    plan = found.plan
    assert plan.columns == ("log_probs", "old_log_probs", "advantages")
    assert plan.bytes == sum(one.bytes for one in found.columns if one.name != "text")
    # whole blocks of 2,048 tokens: 2,048 + 2,048 + 904; three columns of 4 bytes; at most 3,000 tokens
    assert (plan.batch_rows, plan.n_batches, plan.batch_bytes) == ((2048, 2048), 3, 3000 * 12)


def test_the_plan_of_lists_follows_the_length_of_rows(tmp_path: Path) -> None:
    short, long = [[-1.0] * 2] * 50, [[-1.0] * 100] * 4
    rows = pa.array([*short, *long], pa.list_(pa.float64()))
    path = tmp_path / "f.parquet"
    table = pa.table(main(rows, mask=pa.array([[True] * len(one) for one in [*short, *long]])))
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table.slice(0, 50))
        writer.write_table(table.slice(50))
    plan = look(path, tokens=40).plan
    assert plan is not None
    # 40 tokens are 10 rows of 2, each of which counts as 4, and less than one row of 100: 5 batches and 4;
    # 3 x 8 + 1 bytes a token
    assert (plan.batch_rows, plan.n_batches) == ((1, 10), 9)
    assert plan.batch_bytes == 100 * 25


def test_the_plan_of_an_npz_file(tmp_path: Path) -> None:
    wide = np.zeros((10, 100), np.float32)
    path = npz(tmp_path, **main(wide), mask=np.ones((10, 100), bool), other=wide)
    plan = look(path, tokens=450).plan
    assert plan is not None
    assert plan.columns == ("log_probs", "old_log_probs", "advantages", "mask")
    # 4 rows of 100 tokens at a time; 3 x 4 + 1 bytes a token; each member has a header of 128 bytes
    assert (plan.batch_rows, plan.n_batches, plan.batch_bytes) == ((4, 4), 3, 4 * 100 * 13)
    assert plan.bytes == 3 * (4000 + 128) + 1000 + 128
    assert plan.temporary == 0


def test_what_is_not_stored_in_row_order_needs_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppocli.io.describe_npz.IN_MEMORY", 100)
    turned = np.asfortranarray(np.zeros((10, 100), np.float32))
    plain = np.zeros((10, 100), np.float32)
    path = npz(tmp_path, log_probs=turned, old_log_probs=plain, advantages=plain)
    found = look(path)
    assert found.plan is not None
    assert found.plan.temporary == 4000
    assert [one.order for one in found.columns] == ["F", "C", "C"]
    timed = look(path, ReadOptions(layout="time")).plan
    assert timed is not None
    assert timed.temporary == 8000


def test_an_npz_file(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    np.savez_compressed(path, **main(np.zeros((2, 3), ">f4")), advantages_=np.zeros(()))
    found = look(path)
    assert (found.format, found.rows, found.parts, found.layout) == ("npz", 2, 4, "padded")
    assert (found.version, found.writer, found.footer_bytes) == (None, None, None)
    one = column(found, "log_probs")
    assert (one.type, one.shape, one.order, one.values) == ("float32, other byte order", (2, 3), "C", 6)
    assert (one.compression, one.mappable, one.n_null, one.min) == ("deflated", False, None, None)
    with zipfile.ZipFile(path) as archive:
        assert one.bytes == archive.getinfo("log_probs.npy").compress_size
    assert column(found, "advantages_").shape == ()
    assert column(look(npz(tmp_path, a=np.zeros(3))), "a").mappable


def test_two_raw_bytes_are_bfloat16(tmp_path: Path) -> None:
    bits = np.array([0xBF80, 0xC000], np.uint16).view("V2")
    found = look(npz(tmp_path, log_probs=bits, old_log_probs=bits, advantages=np.zeros(2), extra=bits))
    assert column(found, "log_probs").type == "bfloat16"
    assert found.ready
    assert found.notes == (
        "log_probs: raw 2-byte values (V2) read as bfloat16",
        "old_log_probs: raw 2-byte values (V2) read as bfloat16",
        "array 'extra' holds raw 2-byte values (V2): bfloat16 if it plays a role",
    )


def test_objects_are_named_and_never_read(tmp_path: Path) -> None:
    ragged = np.array([[1.0], [2.0, 3.0]], object)
    found = look(npz(tmp_path, **main(np.zeros(2)), meta=ragged))
    assert found.ready
    assert found.notes == ("array 'meta' holds Python objects, which only pickle could read: never read",)
    assert column(found, "meta").mappable is False
    refused = look(npz(tmp_path, **{**main(np.zeros(2)), "log_probs": ragged}))
    assert not refused.ready
    assert refused.problem is not None
    assert "holds Python objects" in refused.problem
    assert column(refused, "log_probs").role == "log_probs"


def test_shapes_that_do_not_fit_are_described(tmp_path: Path) -> None:
    path = npz(tmp_path, **{**main(np.zeros((2, 3))), "old_log_probs": np.zeros((2, 4))})
    found = look(path)
    assert (found.ready, found.layout) == (False, None)
    assert found.problem == "'log_probs' has shape (2, 3) and 'old_log_probs' has shape (2, 4)"
    assert [one.role for one in found.columns] == ["log_probs", "old_log_probs", "advantages"]


def broken_header(tmp_path: Path, name: str) -> Path:
    """An archive whose array `name` declares a trillion values and holds none."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    path = tmp_path / "f.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        for other in {"log_probs", "old_log_probs", "advantages"} - {name}:
            archive.writestr(f"{other}.npy", npy(np.zeros(2)))
    return path


def test_a_damaged_array_is_an_error_only_where_it_plays_a_role(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'log_probs' \(log_probs\) cannot be read.*8,000,000,000,000"):
        look(broken_header(tmp_path, "log_probs"))
    found = look(broken_header(tmp_path, "extra"))
    assert found.ready
    one = column(found, "extra")
    assert (one.type, one.values, one.shape, one.mappable) == ("unreadable", None, None, False)
    assert any(note.startswith("array 'extra' cannot be read: ") for note in found.notes)


@pytest.mark.parametrize(
    ("content", "word"),
    [(b"", "empty"), (b"PK\x03\x04rest", "truncated"), (b"PAR1rest of it", "truncated"), (b"x,y\n", "not a")],
)
def test_damaged_and_foreign_files_are_errors(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    with pytest.raises(InputError, match=word) as caught:
        look(path)
    assert caught.value.where == str(path)


def test_a_footer_that_contradicts_its_schema_is_damaged(tmp_path: Path) -> None:
    path = parquet(
        tmp_path, {"a": pa.array([True, False])}, store_schema=False, use_dictionary=False, compression="none"
    )
    raw = path.read_bytes()
    # The column's metadata begin with their physical type (field 1, zigzag 0: BOOLEAN) and its encodings.
    at = raw.rindex(b"\x1c\x15\x00\x19")
    path.write_bytes(raw[: at + 2] + b"\x08" + raw[at + 3 :])  # FLOAT, which has other statistics
    with pytest.raises(InputError, match="row group 0 contradicts the schema about column 'a'"):
        look(path)


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_one_column_can_play_two_roles(tmp_path: Path, kind: str) -> None:
    values = np.array([-1.0, -2.0])
    arrays = {"x": values, "advantages": values}
    path = npz(tmp_path, **arrays) if kind == "npz" else parquet(tmp_path, arrays)
    found = look(path, ReadOptions({"old_log_probs": "x", "log_probs": "x"}))
    assert (found.ready, found.missing) == (True, ())
    assert column(found, "x").role == "log_probs"
    assert found.notes == ("column 'x' plays old_log_probs, too",)
    assert found.plan is not None
    assert set(found.plan.columns) == {"x", "advantages"}
