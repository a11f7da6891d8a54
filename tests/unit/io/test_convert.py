from __future__ import annotations

import numpy as np
import pytest

from ppocli.core.chunk import IdCoder
from ppocli.errors import InputError
from ppocli.io import convert
from ppocli.io.buffers import Buffers


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "null"])
def test_log_probs_take_floats(dtype: str) -> None:
    assert convert.read_as("log_probs", "c", dtype, (), "f") == dtype


@pytest.mark.parametrize("dtype", ["int64", "uint16", "bool", "string", "decimal128(10, 2)", "object"])
def test_log_probs_refuse_everything_else_by_name(dtype: str) -> None:
    with pytest.raises(InputError) as caught:
        convert.read_as("log_probs", "c", dtype, (), "f")
    assert dtype in caught.value.message
    assert caught.value.where == "f"


def test_uint16_log_probs_hint_at_bits_and_are_taken_with_the_option() -> None:
    with pytest.raises(InputError, match="--bits old_log_probs"):
        convert.read_as("old_log_probs", "c", "uint16", ("log_probs",), "f")
    assert convert.read_as("old_log_probs", "c", "uint16", ("old_log_probs",), "f") == "bfloat16"
    with pytest.raises(InputError, match="float32"):
        convert.read_as("old_log_probs", "c", "float32", ("old_log_probs",), "f")


@pytest.mark.parametrize("role", ["advantages", "rewards", "returns", "values"])
def test_reals_take_integers(role: str) -> None:
    assert convert.read_as(role, "c", "int8", (), "f") == "int8"


def test_ids_refuse_floats_and_token_ids_refuse_text() -> None:
    assert convert.read_as("group_id", "c", "large_string", (), "f") == "large_string"
    with pytest.raises(InputError, match="float64"):
        convert.read_as("group_id", "c", "float64", (), "f")
    with pytest.raises(InputError, match="string"):
        convert.read_as("token_id", "c", "string", (), "f")


def test_bfloat16_bits_widen_to_their_values() -> None:
    # 1 sign bit, 8 of exponent, 7 of fraction: -1, -0.5, -20 and infinity.
    bits = np.array([0xBF80, 0xBF00, 0xC1A0, 0x7F80], np.uint16)
    assert convert.widened(bits).tolist() == [-1.0, -0.5, -20.0, np.inf]


def test_columns_are_contiguous_native_and_read_only() -> None:
    values = np.arange(8, dtype=">f4")[::2]
    column = convert.to_column(values, None, "float32")
    assert column.values.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert column.values.dtype == np.dtype("=f4")
    assert column.values.flags.c_contiguous
    assert not column.values.flags.writeable
    assert values.flags.writeable


def test_floats_are_not_copied() -> None:
    values = np.array([1.0, 2.0])
    assert np.shares_memory(convert.to_column(values, None, "float64").values, values)


def test_integers_become_float64_if_they_fit() -> None:
    exact = convert.to_column(np.array([-(2**53), 2**53]), None, "int64").values
    assert exact.dtype == np.float64
    assert exact.tolist() == [-9007199254740992.0, 9007199254740992.0]
    with pytest.raises(ValueError, match="2\\^53"):
        convert.to_column(np.array([2**53 + 1]), None, "int64")
    absent = convert.to_column(np.array([2**53 + 1, 3]), np.array([0, 1], np.uint8), "int64")
    assert absent.values[1] == 3.0


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "float32", "float64"])
def test_masks_of_every_type(dtype: str) -> None:
    mask = convert.to_mask(np.array([1, 0, 1]).astype(dtype), None, dtype)
    assert mask.dtype == np.uint8
    assert mask.tolist() == [1, 0, 1]


def test_mask_of_bfloat16() -> None:
    assert convert.to_mask(np.array([0x3F80, 0], np.uint16), None, "bfloat16").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("values", "index", "shown"),
    [
        (np.array([1.0, 0.5]), 1, "0.5"),
        (np.array([1.0, 0.0, np.nan]), 2, "nan"),
        (np.array([-1.0]), 0, "-1.0"),
        (np.array([1, 0, 2], np.uint8), 2, "2"),
        (np.array([0, -1], np.int32), 1, "-1"),
    ],
)
def test_other_mask_values_are_refused_with_their_place(values: object, index: int, shown: str) -> None:
    with pytest.raises(convert.BadMaskValue) as caught:
        convert.to_mask(np.asarray(values), None, str(np.asarray(values).dtype))
    assert (caught.value.index, caught.value.shown) == (index, shown)


def test_null_in_a_mask_is_refused() -> None:
    with pytest.raises(convert.BadMaskValue) as caught:
        convert.to_mask(np.array([True, True]), np.array([1, 0], np.uint8), "bool")
    assert (caught.value.index, caught.value.shown) == (1, "null")


def test_a_bad_mask_value_is_located_in_the_file() -> None:
    bad = convert.BadMaskValue(4, "2")
    assert bad.located("f", "m", 100, None).where == "f, row 104"
    # Rows of 3, 0 and 2 tokens: token 4 is the second of the third row.
    offsets = np.array([0, 3, 3, 5])
    assert bad.located("f", "m", 100, offsets).where == "f, row 102, position 1"


def test_ids_stay_exact() -> None:
    big = np.array([2**53, 2**53 + 1])
    assert convert.to_ids(big, None).codes.tolist() == [2**53, 2**53 + 1]
    above = np.array([2**64 - 1, 2**63], np.uint64)
    assert len(set(convert.to_ids(above, None).codes.tolist())) == 2


def test_text_codes_are_stable() -> None:
    coder = IdCoder()
    first = convert.text_codes(["b", "a", None], coder)
    again = convert.text_codes(["a", "b"], coder)
    assert first[0] == again[1]
    assert first[1] == again[0]
    assert first[0] != first[1]


def test_memory_is_used_again_only_when_nobody_looks() -> None:
    buffers = Buffers()
    first = buffers.take(4096)
    first[:] = 7
    part = first.view(np.float32)[10:20]
    address = first.ctypes.data
    second = buffers.take(4096)
    assert second.ctypes.data != address
    del first
    third = buffers.take(4096)
    assert third.ctypes.data != address
    assert part.view(np.uint8).tolist() == [7] * 40
    del part
    assert buffers.take(4000).ctypes.data == address
    assert buffers.take(0).size == 0


@pytest.mark.parametrize(("tokens", "rows"), [(1, 1), (2048, 2048), (5000, 4096), (262144, 262144)])
def test_flat_chunks_are_whole_blocks(tokens: int, rows: int) -> None:
    assert convert.flat_rows(tokens) == rows
