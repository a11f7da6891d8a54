from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.core.chunk import Chunk, IdCoder, ReadOptions
from ppocli.core.roles import MAIN_ROLES, ROLES
from ppocli.errors import InputError
from ppocli.io.parquet import ParquetReader

ALL = tuple(ROLES)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "f.parquet")


def write(path: str, columns: dict[str, Any], **options: Any) -> None:
    pq.write_table(pa.table(columns), path, **options)


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
    reader = ParquetReader(path, options or ReadOptions(), more.pop("coders", {}), **more)
    chunks = list(reader.chunks(roles, tokens))
    reader.close()
    return chunks


def only(path: str, **more: Any) -> Chunk:
    (chunk,) = read(path, **more)
    return chunk


def refusal(path: str, **more: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(path, **more)
    assert str(caught.value.where).startswith(path)
    return caught.value


def values(chunk: Chunk, role: str) -> list[Any]:
    """The values as the file has them: None where one is absent."""
    column = chunk.columns[role]
    present = itertools.repeat(1) if column.present is None else column.present.tolist()
    return [value if there else None for value, there in zip(column.values.tolist(), present, strict=False)]


def lists(rows: Any, element: Any = None, kind: Any = pa.list_) -> pa.Array:
    return pa.array(rows, kind(element or pa.float64()))


def test_flat(path: str) -> None:
    write(path, main(pa.array([-1.0, -2.0], pa.float32()), [-1.5, -2.5], [3.0, 4.0], mask=[True, False]))
    reader = ParquetReader(path, ReadOptions(), {})
    report = reader.report
    assert (report.path, report.format, report.layout, report.rows) == (path, "parquet", "flat", 2)
    assert report.bytes == Path(path).stat().st_size
    assert (report.tokens, report.masked, report.notes) == (0, 0, ())
    assert {role: (one.column, one.dtype) for role, one in report.columns.items()} == {
        "log_probs": ("log_probs", "float32"),
        "old_log_probs": ("old_log_probs", "float64"),
        "advantages": ("advantages", "float64"),
        "mask": ("mask", "bool"),
    }
    (chunk,) = reader.chunks(ALL, 100)
    assert (chunk.first_row, chunk.n_rows, chunk.n_tokens, chunk.offsets) == (0, 2, 2, None)
    assert chunk.columns["log_probs"].values.dtype == np.float32
    assert values(chunk, "log_probs") == [-1.0, -2.0]
    assert values(chunk, "advantages") == [3.0, 4.0]
    assert chunk.mask is not None
    assert chunk.mask.tolist() == [1, 0]
    assert next(iter(reader.chunks(ALL, 100))).n_rows == 2


def test_every_array_is_contiguous_native_and_read_only(path: str) -> None:
    columns = main(
        lists([[-1.0, -2.0], None, [-3.0]]),
        mask=lists([[True, False], None, [True]], pa.bool_()),
        group_id=[1, 2, None],
        values=[1, None, 3],
    )
    write(path, columns)
    chunk = only(path)
    assert chunk.group_id is not None
    arrays = [one.values for one in chunk.columns.values()]
    arrays += [one.present for one in chunk.columns.values() if one.present is not None]
    arrays += [chunk.mask, chunk.offsets, chunk.group_id.codes, chunk.group_id.present]  # type: ignore[list-item]
    for array in arrays:
        assert array.flags.c_contiguous
        assert array.dtype.isnative
        assert not array.flags.writeable


def test_only_roles_that_are_asked_for(path: str) -> None:
    write(path, main([-1.0], mask=[1], sequence_id=[7], token_id=[5]))
    chunk = only(path, roles=("advantages",))
    assert list(chunk.columns) == ["advantages"]
    assert (chunk.mask, chunk.sequence_id) == (None, None)
    assert only(path, roles=()).n_tokens == 1


def test_flat_chunks_are_cut_at_blocks_across_row_groups(path: str) -> None:
    numbers = np.arange(10_000, dtype=np.float64)
    write(path, main(numbers), row_group_size=777)
    chunks = read(path, tokens=5000)
    assert [chunk.n_tokens for chunk in chunks] == [4096, 4096, 1808]
    assert [chunk.first_row for chunk in chunks] == [0, 4096, 8192]
    assert np.array_equal(np.concatenate([one.columns["log_probs"].values for one in chunks]), numbers)
    assert len(read(path, tokens=1000)) == 10


def test_null_and_nan_are_told_apart(path: str) -> None:
    write(path, main(pa.array([0.0, None, float("nan")])), row_group_size=2)
    column = only(path, roles=("log_probs",)).columns["log_probs"]
    assert column.present is not None
    assert column.present.tolist() == [1, 0, 1]
    assert column.values[0] == 0.0
    assert np.isnan(column.values[2])


def test_presence_of_pieces_that_do_not_begin_at_a_byte(path: str) -> None:
    written = [None if index % 3 == 0 else float(index) for index in range(50)]
    write(path, main(pa.array(written)))
    joined = [value for chunk in read(path, tokens=7) for value in values(chunk, "old_log_probs")]
    assert joined == written


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_lists(path: str, kind: Any) -> None:
    rows = [[-1.0, -2.0], [-3.0], [], [-4.0, -5.0, -6.0]]
    write(path, main(lists(rows, kind=kind), mask=lists([[1, 0], [1], [], [1, 1, 0]], pa.int8())))
    assert ParquetReader(path, ReadOptions(), {}).report.layout == "list"
    chunk = only(path)
    assert chunk.offsets is not None
    assert chunk.offsets.tolist() == [0, 2, 3, 3, 6]
    assert chunk.offsets.dtype == np.int64
    assert (chunk.n_rows, chunk.n_tokens, chunk.n_null_rows) == (4, 6, 0)
    assert values(chunk, "log_probs") == [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]
    assert chunk.mask is not None
    assert chunk.mask.tolist() == [1, 0, 1, 1, 1, 0]


@pytest.mark.parametrize("row_group_size", [1, 2, 3, 7])
@pytest.mark.parametrize("tokens", [1, 2, 5, 1000])
def test_lists_are_the_same_for_every_cut(path: str, row_group_size: int, tokens: int) -> None:
    rows = [[float(10 * row + at) for at in range(row % 4)] for row in range(7)]
    write(path, main(lists(rows), advantages=[float(row) for row in range(7)]), row_group_size=row_group_size)
    chunks = read(path, tokens=tokens)
    assert [chunk.first_row for chunk in chunks] == np.cumsum([0] + [one.n_rows for one in chunks])[
        :-1
    ].tolist()
    found = []
    for chunk in chunks:
        assert chunk.offsets is not None
        ends = chunk.offsets.tolist()
        found += [values(chunk, "log_probs")[a:b] for a, b in itertools.pairwise(ends)]
        for row, (a, b) in enumerate(itertools.pairwise(ends)):
            assert values(chunk, "advantages")[a:b] == [float(chunk.first_row + row)] * (b - a)
    assert found == rows


def test_rows_longer_than_the_mean_are_cut_again(path: str) -> None:
    rows = [[0.0]] * 90 + [[0.0] * 100] * 10
    write(path, main(lists(rows)))
    chunks = read(path, tokens=100)
    assert max(chunk.n_tokens for chunk in chunks) <= 200
    assert sum(chunk.n_rows for chunk in chunks) == 100


def test_a_null_row_in_every_column_is_passed_over_and_counted(path: str) -> None:
    rows = [[-1.0, -2.0], None, [-5.0]]
    write(path, main(lists(rows), group_id=[1, 2, 3]))
    reader = ParquetReader(path, ReadOptions(), {})
    assert reader.report.notes == ()
    (chunk,) = reader.chunks(ALL, 100)
    assert (chunk.n_rows, chunk.n_tokens, chunk.n_null_rows) == (3, 3, 1)
    assert chunk.offsets is not None
    assert chunk.offsets.tolist() == [0, 2, 2, 3]
    assert reader.report.notes == ("1 row is null in every column and passed over",)
    list(reader.chunks(ALL, 1))
    assert reader.report.notes == ("1 row is null in every column and passed over",)


@pytest.mark.parametrize("fixed", [False, True])
def test_a_null_list_beside_others_is_missing_values(path: str, fixed: bool) -> None:
    kind = (lambda one: pa.list_(one, 2)) if fixed else pa.list_
    gone = lists([[-1.0, -2.0], None, [-5.0, -6.0]], kind=kind)
    there = lists([[1.0, 2.0], [30.0, 40.0], [5.0, 6.0]])
    write(path, main(gone, advantages=there))
    chunk = only(path)
    assert values(chunk, "log_probs") == [-1.0, -2.0, None, None, -5.0, -6.0]
    assert values(chunk, "advantages") == [1.0, 2.0, 30.0, 40.0, 5.0, 6.0]
    assert chunk.n_null_rows == 0


def test_fixed_size_lists_with_null_rows_stay_aligned_in_slices(path: str) -> None:
    rows = [[-1.0, -2.0], None, [-5.0, -6.0], None, [-7.0, -8.0]]
    write(path, main(lists(rows, kind=lambda one: pa.list_(one, 2))))
    found = [(chunk.first_row, values(chunk, "log_probs")) for chunk in read(path, tokens=1)]
    assert found == [(0, [-1.0, -2.0]), (1, []), (2, [-5.0, -6.0]), (3, []), (4, [-7.0, -8.0])]


def test_a_row_whose_length_nothing_tells_is_refused(path: str) -> None:
    write(path, main(lists([[-1.0], None]), advantages=[1.0, 2.0]), row_group_size=1)
    error = refusal(path)
    assert "'advantages' has a value" in error.message
    assert str(error.where).endswith("row 1")


def test_a_null_scalar_is_null_for_all_tokens_of_its_row(path: str) -> None:
    write(path, main(lists([[-1.0, -2.0], [-3.0], None]), advantages=[None, 2.0, None]))
    chunk = only(path)
    assert values(chunk, "advantages") == [None, None, 2.0]
    assert chunk.n_null_rows == 1


@pytest.mark.parametrize("tokens", [1, 1000])
def test_different_lengths_name_row_columns_and_lengths(path: str, tokens: int) -> None:
    good, short = [[-1.0] * 4] * 8, [[-1.0] * 4] * 7 + [[-1.0] * 3]
    write(path, main(lists(good), rollout_log_probs=lists(short)), row_group_size=3)
    error = refusal(path, tokens=tokens)
    assert error.message == "'log_probs' has 4 values and 'rollout_log_probs' has 3 in row 7"
    assert error.where == f"{path}, row 7"


def test_lengths_that_agree_in_sum_are_still_refused(path: str) -> None:
    write(path, main(lists([[-1.0], [-2.0, -3.0]]), lists([[-1.0, -2.0], [-3.0]])))
    assert "row 0" in refusal(path).message


def test_lists_of_one_are_not_repeated(path: str) -> None:
    write(path, main(lists([[-1.0, -2.0], [-3.0, -4.0]]), advantages=lists([[1.0], [2.0]])))
    error = refusal(path)
    assert error.message == "'log_probs' has 2 values and 'advantages' has 1 in row 0"
    assert "not as a list" in str(error.hint)
    write(path, main(lists([[-1.0], [-3.0]]), advantages=lists([[1.0], [2.0]])))
    assert values(only(path), "advantages") == [1.0, 2.0]


def test_one_log_prob_per_row_beside_lists_is_refused(path: str) -> None:
    write(path, main(lists([[-1.0, -2.0]]), old=[-1.0], advantages=[1.0]))
    error = refusal(path)
    assert "'old_log_probs' (old_log_probs) is float64" in error.message
    assert "'log_probs' is list<float64>" in error.message


def test_deeper_columns_than_log_probs_are_refused(path: str) -> None:
    write(path, main([-1.0], advantages=lists([[1.0, 2.0]])))
    assert "'advantages' (advantages) is list<float64>" in refusal(path).message


def test_steps_then_tokens(path: str) -> None:
    nested = pa.list_(pa.list_(pa.float64()))
    log_probs = pa.array([[[-1.0, -2.0], [-3.0]], [], [[], [-4.0, -5.0]]], nested)
    columns = main(log_probs, advantages=lists([[1.0, -1.0], [], [7.0, 8.0]]), values=[10.0, 20.0, 30.0])
    write(path, columns)
    reader = ParquetReader(path, ReadOptions(), {})
    assert reader.report.layout == "list<list>"
    assert "advantages: one value per inner list, repeated over its tokens" in reader.report.notes
    assert "values: one value per row, repeated over its tokens" in reader.report.notes
    for tokens in (1, 1000):
        chunks = read(path, tokens=tokens)
        rows = [chunk.n_rows for chunk in chunks]
        assert sum(rows) == 3
        assert [one for chunk in chunks for one in values(chunk, "log_probs")] == [
            -1.0,
            -2.0,
            -3.0,
            -4.0,
            -5.0,
        ]
        assert [one for chunk in chunks for one in values(chunk, "advantages")] == [1.0, 1.0, -1.0, 8.0, 8.0]
        assert [one for chunk in chunks for one in values(chunk, "values")] == [10.0, 10.0, 10.0, 30.0, 30.0]
    assert only(path).offsets.tolist() == [0, 3, 3, 5]  # type: ignore[union-attr]


def test_a_null_step_is_missing_values(path: str) -> None:
    nested = pa.list_(pa.list_(pa.float64()))
    whole = pa.array([[[-1.0], [-2.0, -3.0]]], nested)
    gone = pa.array([[[-1.0], None]], nested)
    write(path, main(whole, gone, advantages=whole))
    assert values(only(path), "old_log_probs") == [-1.0, None, None]


def test_steps_of_different_lengths_are_located(path: str) -> None:
    nested = pa.list_(pa.list_(pa.float64()))
    one = pa.array([[[-1.0]], [[-1.0], [-2.0, -3.0]]], nested)
    other = pa.array([[[-1.0]], [[-1.0], [-2.0]]], nested)
    write(path, main(one, other, advantages=one))
    error = refusal(path)
    assert error.where == f"{path}, row 1, step 1"
    assert "'log_probs' has 2 values and 'old_log_probs' has 1" in error.message


def test_lists_nested_too_deep(path: str) -> None:
    write(path, main(pa.array([[[[-1.0]]]], pa.list_(pa.list_(pa.list_(pa.float64()))))))
    assert "list<list<list<float64>>>: lists nest too deep" in refusal(path).message


def test_lengths_are_known_when_only_a_scalar_column_is_asked_for(path: str) -> None:
    write(path, main(lists([[-1.0, -2.0], [-3.0]]), advantages=[5.0, 6.0]))
    chunk = only(path, roles=("advantages",))
    assert values(chunk, "advantages") == [5.0, 5.0, 6.0]
    assert list(chunk.columns) == ["advantages"]


def test_packed_rows_have_an_id_per_token(path: str) -> None:
    columns = main(lists([[-1.0] * 4, [-2.0]]), sequence_id=lists([[0, 0, 1, 1], [5]], pa.int64()))
    write(path, columns)
    assert ParquetReader(path, ReadOptions(), {}).report.layout == "packed"
    chunk = only(path)
    assert chunk.sequence_id is not None
    assert chunk.sequence_id.codes.tolist() == [0, 0, 1, 1, 5]


def test_ids_per_row_and_per_token_cannot_be_mistaken(path: str) -> None:
    # Two rows with two tokens: two codes could be either, and are those of the tokens.
    write(path, main(lists([[], [-1.0, -2.0]]), group_id=[8, 9]))
    assert only(path).group_id.codes.tolist() == [9, 9]  # type: ignore[union-attr]
    write(path, main(lists([[-3.0], [-1.0, -2.0]]), group_id=[8, 9]))
    assert only(path).group_id.codes.tolist() == [8, 9]  # type: ignore[union-attr]


def test_integer_ids_keep_every_digit(path: str) -> None:
    a, b = 2**53 + 1, 2**53
    write(path, main([-1.0] * 4, sequence_id=pa.array([a, a, b, None], pa.int64())))
    ids = only(path).sequence_id
    assert ids is not None
    assert ids.present is not None
    assert ids.codes[:3].tolist() == [a, a, b]
    assert ids.present.tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_text_ids_share_codes_over_files(tmp_path: Path, kind: Any) -> None:
    coders = {"group_id": IdCoder()}
    seen = []
    for name, texts in (("a", ["x", "y", None, "x"]), ("b", ["y", "z"])):
        file = str(tmp_path / name)
        write(file, main([-1.0] * len(texts), group_id=pa.array(texts, kind)))
        for chunk in read(file, tokens=3, coders=coders):
            assert chunk.group_id is not None
            present = chunk.group_id.present
            there = [True] * chunk.n_rows if present is None else present.astype(bool).tolist()
            seen += [
                code if ok else None for code, ok in zip(chunk.group_id.codes.tolist(), there, strict=True)
            ]
    x, y, z = seen[0], seen[1], seen[5]
    assert seen == [x, y, None, x, y, z]
    assert len({x, y, z}) == 3


def test_text_ids_that_are_all_null_or_no_text(path: str) -> None:
    write(path, main([-1.0, -2.0], group_id=pa.array([None, None], pa.string())))
    assert only(path).group_id.present.tolist() == [0, 0]  # type: ignore[union-attr]
    bytes_of_text = pa.array([b"\xff"]).view(pa.string())
    write(path, main([-1.0], group_id=bytes_of_text))
    assert "'group_id' (group_id) holds text that is not UTF-8" in refusal(path).message


def test_tensor_extension_columns_are_read_by_their_storage(path: str) -> None:
    storage = pa.array([[-1.0, -2.0], [-3.0, -4.0]], pa.list_(pa.float64(), 2))
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float64(), [2]), storage)
    write(path, main(tensors, advantages=[1.0, 2.0]))
    assert ParquetReader(path, ReadOptions(), {}).report.layout == "list"
    assert values(only(path), "log_probs") == [-1.0, -2.0, -3.0, -4.0]


def test_token_ids_are_read_when_asked(path: str) -> None:
    write(path, main(lists([[-1.0, -2.0], [-3.0]]), token_ids=lists([[11, 12], [13]], pa.int32())))
    chunk = only(path, roles=("token_id",))
    assert chunk.columns["token_id"].values.tolist() == [11, 12, 13]
    assert chunk.columns["token_id"].values.dtype == np.int64
    assert "token_id" not in only(path, roles=MAIN_ROLES).columns


def test_token_ids_that_are_not_one_per_token_are_left_alone(path: str) -> None:
    for ids, shown in ((lists([[1, 2]], pa.int64()), "list<int64>"), (["a b"], "string")):
        write(path, main([-1.0], token_ids=ids))
        reader = ParquetReader(path, ReadOptions(), {})
        assert "token_id" not in reader.report.columns
        assert any(note.startswith("token_id: not read") and shown in note for note in reader.report.notes)
        assert "token_id" not in next(iter(reader.chunks(ALL, 10))).columns
    assert "is string" in refusal(path, options=ReadOptions(columns={"token_id": "token_ids"})).message


def test_token_ids_of_other_lengths_are_refused_only_when_asked(path: str) -> None:
    write(path, main(lists([[-1.0, -2.0]]), input_ids=lists([[9, 11, 12]], pa.int32())))
    assert only(path, roles=MAIN_ROLES).n_tokens == 2
    assert "'input_ids' has 3" in refusal(path, roles=("token_id",)).message


@pytest.mark.parametrize(
    ("kind", "dtype"), [(pa.float16(), "float16"), (pa.float32(), "float32"), (pa.float64(), "float64")]
)
@pytest.mark.parametrize("nested", [False, True])
def test_floats_of_every_width(path: str, kind: Any, dtype: str, nested: bool) -> None:
    numbers = [np.float16(-1.5), np.float16(-2.25)]
    array = pa.array([numbers], pa.list_(kind)) if nested else pa.array(numbers, kind)
    write(path, main(array))
    column = only(path).columns["log_probs"]
    assert str(column.values.dtype) == dtype
    assert column.values.tolist() == [-1.5, -2.25]


def test_halffloat_with_nulls_and_a_null_row(path: str) -> None:
    half = lambda rows: pa.array(  # noqa: E731
        [None if row is None else [None if one is None else np.float16(one) for one in row] for row in rows],
        pa.list_(pa.float16()),
    )
    write(path, main(half([[-1.5, None], None]), advantages=half([[1.0, 2.0], [3.0]])))
    assert values(only(path), "log_probs") == [-1.5, None, None]


def test_byte_stream_split_and_dictionary_encoding(path: str) -> None:
    halves = np.array([-0.1, -0.2], np.float16)
    write(path, main(halves), use_dictionary=False, column_encoding="BYTE_STREAM_SPLIT")
    assert values(only(path), "log_probs") == [-0.0999755859375, -0.199951171875]
    write(path, main(np.array([-0.5, -0.25] * 50)), use_dictionary=True)
    assert values(only(path), "log_probs") == [-0.5, -0.25] * 50
    write(path, main(pa.array([-0.5, None, -0.5]).dictionary_encode()))
    assert values(only(path), "log_probs") == [-0.5, None, -0.5]


@pytest.mark.parametrize(
    ("array", "named"),
    [
        (pa.array([-1, -2]), "int64"),
        (pa.array([49024, 48896], pa.uint16()), "uint16"),
        (pa.array(["-1", "-2"]), "string"),
        (pa.array([1, 2]).cast(pa.decimal128(30, 3)), "decimal128(30, 3)"),
        (pa.array([[-1], [-2]]), "int64"),
    ],
)
def test_log_probs_of_other_types_are_refused(path: str, array: pa.Array, named: str) -> None:
    write(path, main(array, advantages=[1.0, 2.0]))
    error = refusal(path)
    assert f"column 'log_probs' (log_probs) is {named}" in error.message


def test_bfloat16_bits_by_option(path: str) -> None:
    bits = pa.array([0xBF80, 0xBF00], pa.uint16())
    write(path, main(bits, advantages=[1.0, 2.0]))
    options = ReadOptions(bits=frozenset({"log_probs", "old_log_probs"}))
    reader = ParquetReader(path, options, {})
    assert reader.report.columns["log_probs"].dtype == "bfloat16"
    assert "log_probs: uint16 read as the bits of bfloat16 values" in reader.report.notes
    column = next(iter(reader.chunks(ALL, 10))).columns["log_probs"]
    assert column.values.dtype == np.uint16
    assert column.values.tolist() == [0xBF80, 0xBF00]


def test_integer_advantages_are_widened(path: str) -> None:
    write(path, main([-1.0, -2.0], advantages=pa.array([3, None], pa.int8())))
    chunk = only(path)
    assert chunk.columns["advantages"].values.dtype == np.float64
    assert values(chunk, "advantages") == [3.0, None]
    write(path, main([-1.0], advantages=pa.array([2**53 + 1])))
    assert "2^53" in refusal(path).message


@pytest.mark.parametrize(
    ("mask", "shown", "place"),
    [
        ([1.0, 0.5, 0.0], "0.5", "row 1"),
        ([1.0, 1.0, float("nan")], "nan", "row 2"),
        ([1, -1, 0], "-1", "row 1"),
        ([1, 0, 2], "2", "row 2"),
        ([True, None, False], "null", "row 1"),
    ],
)
@pytest.mark.parametrize("tokens", [1, 100])
def test_bad_mask_values_are_located(path: str, mask: list[Any], shown: str, place: str, tokens: int) -> None:
    write(path, main([-1.0, -2.0, -3.0], mask=mask))
    error = refusal(path, tokens=tokens)
    assert f"mask column 'mask' holds {shown};" in error.message
    assert error.where == f"{path}, {place}"


def test_bad_mask_values_in_lists_have_row_and_position(path: str) -> None:
    mask = lists([[1, 1], [1, 1, 3]], pa.int64())
    write(path, main(lists([[-1.0, -2.0], [-3.0, -4.0, -5.0]]), loss_mask=mask))
    error = refusal(path)
    assert error.where == f"{path}, row 1, position 2"
    assert "'loss_mask' holds 3" in error.message


def test_a_null_mask_row_beside_values_is_refused(path: str) -> None:
    write(path, main(lists([[-1.0], [-2.0]]), mask=lists([[True], None], pa.bool_())))
    assert refusal(path).where == f"{path}, row 1, position 0"


def test_a_mask_per_row_counts_for_its_tokens(path: str) -> None:
    write(path, main(lists([[-1.0, -2.0], [-3.0]]), mask=[True, False]))
    assert only(path).mask.tolist() == [1, 1, 0]  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [pa.null(), pa.list_(pa.null())])
def test_a_mask_of_type_null_counts_as_absent(path: str, kind: Any) -> None:
    write(path, main(lists([[-1.0]]), mask=pa.array([None], kind)))
    reader = ParquetReader(path, ReadOptions(), {})
    assert "mask" not in reader.report.columns
    assert "mask: column 'mask' holds only nulls (type null), counted as absent" in reader.report.notes
    assert next(iter(reader.chunks(ALL, 10))).mask is None


def test_columns_of_type_null_that_are_needed_or_named_are_all_null(path: str) -> None:
    write(path, main(lists([[-1.0, -2.0]]), old=pa.nulls(1), advantages=[1.0]))
    chunk = only(path)
    assert values(chunk, "old_log_probs") == [None, None]
    columns = main([-1.0], values=pa.nulls(1), ref_logprobs=pa.nulls(1), sequence_id=pa.nulls(1))
    write(path, columns)
    named = ReadOptions({"values": "values"})
    reader = ParquetReader(path, named, {}, required=("ref_log_probs",))
    (chunk,) = reader.chunks(ALL, 10)
    assert values(chunk, "values") == values(chunk, "ref_log_probs") == [None]
    reader.close()
    # Other ones are what a framework writes that has no critic and no reference policy.
    reader = ParquetReader(path, ReadOptions(), {})
    assert not {"values", "ref_log_probs"} & reader.report.columns.keys()
    said = "ref_log_probs: column 'ref_logprobs' holds only nulls (type null), counted as absent"
    assert said in reader.report.notes
    (chunk,) = reader.chunks(ALL, 10)
    assert chunk.columns.keys() == {"log_probs", "old_log_probs", "advantages"}
    assert chunk.sequence_id.present.tolist() == [0]  # type: ignore[union-attr]


def test_structures_are_read_only_by_dotted_name(path: str) -> None:
    inner = pa.array(
        [{"adv": 1.0, "deep": {"lp": -1.0}}, None, {"adv": None, "deep": None}],
        pa.struct([("adv", pa.float64()), ("deep", pa.struct([("lp", pa.float64())]))]),
    )
    write(
        path, {"log_probs": [-1.0, -2.0, -3.0], "old_log_probs": [-1.0] * 3, "info": inner, "reward": inner}
    )
    assert "no column for role 'advantages'" in refusal(path).message
    options = ReadOptions(columns={"advantages": "info.adv", "ref_log_probs": "info.deep.lp"})
    chunk = only(path, options=options)
    assert values(chunk, "advantages") == [1.0, None, None]
    assert values(chunk, "ref_log_probs") == [-1.0, None, None]
    assert "rewards" not in chunk.columns


def test_a_dot_in_a_column_name(path: str) -> None:
    write(path, main([-1.0]) | {"a.b": [5.0]})
    assert values(only(path, options=ReadOptions(columns={"values": "a.b"})), "values") == [5.0]


def test_column_names_that_are_not_utf8(path: str) -> None:
    write(path, main([-1.0]) | {"qqqq": [1.0]}, store_schema=False)
    Path(path).write_bytes(Path(path).read_bytes().replace(b"qqqq", b"\xff\xff\xff\xff"))
    assert "footer cannot be read" in refusal(path).message


def test_duplicate_columns_are_refused(path: str) -> None:
    table = pa.table([[-1.0], [-9.0]], names=["log_probs", "log_probs"])
    pq.write_table(table, path)
    assert "duplicate column 'log_probs'" in refusal(path).message


def test_missing_roles_list_columns_with_types(path: str) -> None:
    write(path, {"log_probs": lists([[-1.0]]), "old_log_probs": lists([[-1.0]]), "advantges": [1.0]})
    error = refusal(path)
    assert "advantges float64" in str(error.where)
    assert "log_probs list<float64>" in str(error.where)


def test_required_roles_are_a_parameter(path: str) -> None:
    write(path, {"old_log_probs": [-1.0], "rollout_log_probs": [-2.0]})
    chunk = only(path, required=("old_log_probs", "rollout_log_probs"))
    assert values(chunk, "rollout_log_probs") == [-2.0]
    assert "current policy" in refusal(path).message
    reader = ParquetReader(path, ReadOptions(), {}, required=())
    assert list(reader.report.columns) == ["old_log_probs", "rollout_log_probs"]
    write(path, {"text": ["a", "b"]})
    reader = ParquetReader(path, ReadOptions(), {}, required=())
    assert (reader.report.columns, reader.report.layout, reader.report.rows) == ({}, "flat", 2)


def test_sum_dims_sums_the_innermost_lists(path: str) -> None:
    columns = main(
        lists([[-1.0, -2.0], [-3.0, None], None, []], pa.float32()), advantages=[1.0, 2.0, 3.0, 4.0]
    )
    write(path, columns)
    reader = ParquetReader(path, ReadOptions(sum_dims=True), {})
    assert reader.report.layout == "flat"
    (chunk,) = reader.chunks(ALL, 100)
    assert chunk.offsets is None
    assert values(chunk, "log_probs") == [-3.0, None, None, None]
    nested = pa.array([[[-1.0, -2.0], [-4.0, -8.0]], [[-16.0, -32.0]]], pa.list_(pa.list_(pa.float64())))
    write(path, main(nested, advantages=lists([[1.0, 2.0], [3.0]])))
    chunk = only(path, options=ReadOptions(sum_dims=True))
    assert values(chunk, "log_probs") == [-3.0, -12.0, -48.0]
    assert values(chunk, "advantages") == [1.0, 2.0, 3.0]


def test_sum_dims_of_bits(path: str) -> None:
    bits = pa.array([[0xBF80, 0xBF00]], pa.list_(pa.uint16()))
    write(path, main(bits, advantages=[1.0]))
    options = ReadOptions(sum_dims=True, bits=frozenset({"log_probs", "old_log_probs"}))
    assert values(only(path, options=options), "log_probs") == [-1.5]


def test_zero_rows_and_zero_row_groups(path: str) -> None:
    write(path, main(pa.array([], pa.float64())))
    assert read(path) == []
    write(path, main(pa.array([], pa.list_(pa.float64()))))
    assert read(path) == []


@pytest.mark.parametrize("group", [0, 1, 2])
def test_page_checksums_are_verified_and_the_row_group_is_named(path: str, group: int) -> None:
    numbers = np.random.default_rng(0).normal(size=9_000)
    plain = {"compression": "none", "use_dictionary": False, "row_group_size": 3_000}
    write(path, main(numbers), write_page_checksum=True, **plain)
    where = pq.ParquetFile(path).metadata.row_group(group).column(1).data_page_offset
    data = bytearray(Path(path).read_bytes())
    data[where + 5000] ^= 1
    Path(path).write_bytes(data)
    for tokens in (2048, 1 << 20):
        error = refusal(path, tokens=tokens)
        assert "damaged" in error.message
        assert error.where == f"{path}, row group {group}"
    assert sum(chunk.n_tokens for chunk in read(path, roles=("log_probs",), tokens=2048)) == 9_000


def test_pages_that_cannot_be_decoded(path: str) -> None:
    numbers = np.random.default_rng(0).normal(size=20_000)
    write(path, main(lists([[one] for one in numbers])), compression="snappy", use_dictionary=False)
    where = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    data = bytearray(Path(path).read_bytes())
    data[where : where + 2000] = b"\xff" * 2000
    Path(path).write_bytes(data)
    error = refusal(path)
    assert "damaged" in error.message
    assert error.where == f"{path}, row group 0"


def test_row_groups_of_very_different_rows_are_read_apart(path: str) -> None:
    schema = pa.schema([(name, pa.list_(pa.float64())) for name in MAIN_ROLES])
    with pq.ParquetWriter(path, schema) as writer:
        for count, length in ((1000, 1), (3, 5000), (1000, 1)):
            rows = [[float(length)] * length] * count
            writer.write_table(pa.table(dict.fromkeys(MAIN_ROLES, rows), schema))
    chunks = read(path, tokens=1000)
    assert sum(chunk.n_tokens for chunk in chunks) == 17_000
    assert max(chunk.n_tokens for chunk in chunks) == 5000
    assert [chunk.n_rows for chunk in chunks if chunk.n_tokens == 5000] == [1, 1, 1]


def test_a_structure_under_a_roles_name_is_not_passed_over(path: str) -> None:
    # Damage to one byte of a footer makes a list column such a structure; without its mask all tokens count.
    write(path, main([-1.0], mask=[{"list": [True]}]))
    error = refusal(path)
    assert error.message.startswith("column 'mask' is struct<")
    assert "--col mask=mask.FIELD" in str(error.hint)
    write(path, main([-1.0], mask=[{"now": True}]))
    chunk = only(path, options=ReadOptions({"mask": "mask.now"}))
    assert chunk.mask is not None
    assert chunk.mask.tolist() == [1]


def test_a_footer_that_counts_other_rows_than_there_are(path: str) -> None:
    write(path, main([-1.0, -2.0, -3.0]), row_group_size=2)
    reader = ParquetReader(path, ReadOptions(), {})
    meta = reader._file.metadata

    class Lying:
        num_rows = 4

        def __getattr__(self, name: str) -> Any:
            return getattr(meta, name)

    class File:
        metadata = Lying()

        def __getattr__(self, name: str) -> Any:
            return getattr(opened, name)

    opened, reader._file = reader._file, File()
    with pytest.raises(InputError, match="it counts 4 rows, and there are 3"):
        list(reader.chunks(ALL, 100))
