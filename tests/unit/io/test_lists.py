"""Any nesting, nulls and cuts against plain loops over Python lists."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppocli.io import lists

NUMBERS = st.one_of(st.none(), st.integers(-3, 3).map(float))
NAMES = {role: role for role in ("log_probs", "old_log_probs", "advantages", "values", "mask")}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Any], list[Any], list[Any]]:
    """Rows of two list columns of equal lengths where both are there, and of one number per row."""
    first, second, number = [], [], []
    for _ in range(draw(st.integers(1, 8))):
        length = draw(st.integers(0, 4))
        rows = [draw(st.lists(NUMBERS, min_size=length, max_size=length)) for _ in range(2)]
        there = [draw(st.booleans()), draw(st.booleans())]
        first.append(rows[0] if there[0] else None)
        second.append(rows[1] if there[1] else None)
        number.append(draw(NUMBERS) if any(there) else None)
    return first, second, number


def by_hand(first: list[Any], second: list[Any], number: list[Any]) -> tuple[list[Any], list[int], int]:
    """Tokens as (first, second, number), lengths of rows, and rows that are null throughout."""
    tokens, lengths, null_rows = [], [], 0
    for one, two, three in zip(first, second, number, strict=True):
        known = one if one is not None else two
        null_rows += known is None
        length = 0 if known is None else len(known)
        lengths.append(length)
        tokens += [
            (None if one is None else one[at], None if two is None else two[at], three)
            for at in range(length)
        ]
    return tokens, lengths, null_rows


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float16())]
)
@given(table=tables(), start=st.integers(0, 7))
def test_rows_to_tokens(kind: Any, table: tuple[list[Any], list[Any], list[Any]], start: int) -> None:
    # The arrays are slices, so that their offsets and bitmaps do not begin at 0.
    start = min(start, len(table[0]) - 1)
    arrays = {
        "log_probs": pa.array(table[0], kind)[start:],
        "old_log_probs": pa.array(table[1], pa.list_(pa.float64()))[start:],
        "values": pa.array(table[2], pa.float64())[start:],
    }
    aligned = lists.RowAligner("f", NAMES).align(arrays, 0)
    tokens, lengths, null_rows = by_hand(*(column[start:] for column in table))
    assert list(zip(*(aligned.arrays[role].to_pylist() for role in arrays), strict=True)) == tokens
    assert [b - a for a, b in itertools.pairwise(aligned.offsets.tolist())] == lengths
    assert aligned.n_null_rows == null_rows


@given(
    rows=st.lists(
        st.one_of(st.none(), st.lists(st.lists(NUMBERS, max_size=3), max_size=3)), min_size=1, max_size=6
    )
)
def test_steps_to_tokens(rows: list[Any]) -> None:
    nested = pa.array(rows, pa.list_(pa.list_(pa.float64())))
    per_step = pa.array(
        [None if row is None else [float(at) for at in range(len(row))] for row in rows],
        pa.list_(pa.float64()),
    )
    aligned = lists.RowAligner("f", NAMES).align({"log_probs": nested, "advantages": per_step}, 0)
    expected = [
        (value, float(at)) for row in rows if row is not None for at, step in enumerate(row) for value in step
    ]
    found = [aligned.arrays[role].to_pylist() for role in ("log_probs", "advantages")]
    assert list(zip(*found, strict=True)) == expected
    assert aligned.offsets.tolist() == [
        0,
        *itertools.accumulate(sum(map(len, row)) if row is not None else 0 for row in rows),
    ]
    assert lists.leaf_ends(nested)[-1] == len(expected)


@given(bits=st.lists(st.one_of(st.none(), st.booleans()), max_size=40), start=st.integers(0, 20))
def test_bools_and_presence_from_any_bit(bits: list[bool | None], start: int) -> None:
    array = pa.array(bits, pa.bool_())[start:]
    present = lists.present_of(array)
    values = lists.values_of(array).tolist()
    there = [1] * len(array) if present is None else present.tolist()
    assert [value if ok else None for value, ok in zip(values, there, strict=True)] == bits[start:]


def test_values_behind_null_rows_do_not_count() -> None:
    offsets, gone = pa.array([0, 2, 4, 5], pa.int32()), pa.array([False, True, False])
    log_probs = pa.ListArray.from_arrays(offsets, pa.array([-1.0, -2.0, -99.0, -100.0, -5.0]), mask=gone)
    aligned = lists.RowAligner("f", NAMES).align({"log_probs": log_probs, "old_log_probs": log_probs}, 0)
    assert aligned.arrays["log_probs"].to_pylist() == [-1.0, -2.0, -5.0]
    assert aligned.n_null_rows == 1
    whole = pa.array([[1.0, 2.0], [30.0, 40.0], [5.0]])
    aligned = lists.RowAligner("f", NAMES).align({"log_probs": log_probs, "old_log_probs": whole}, 0)
    assert aligned.arrays["log_probs"].to_pylist() == [-1.0, -2.0, None, None, -5.0]


def test_child_values_of_a_slice() -> None:
    whole = pa.array([[-1.0, -2.0], [-3.0], [-4.0, -5.0, -6.0]])
    aligned = lists.RowAligner("f", NAMES).align({"log_probs": whole[1:]}, 0)
    assert lists.values_of(aligned.arrays["log_probs"]).tolist() == [-3.0, -4.0, -5.0, -6.0]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.float16(), "float16"),
        (pa.list_(pa.float32(), 3), "list<float32>"),
        (pa.large_list(pa.list_(pa.float64())), "list<list<float64>>"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.bool_(), "bool"),
        (pa.null(), "null"),
    ],
)
def test_types_are_shown_with_numpy_names(kind: Any, text: str) -> None:
    assert lists.describe(kind) == text
