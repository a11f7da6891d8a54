from __future__ import annotations

import csv
import io
import math

import pytest
import reports
from hypothesis import given
from hypothesis import strategies as st

from ppocli.render.delimited import to_delimited


def read(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_one_row_for_each_file_and_the_total_last(delimiter: str) -> None:
    table = read(to_delimited(reports.several(), delimiter), delimiter)
    assert [row["kind"] for row in table] == ["file", "file", "file", "total"]
    assert [row["file"] for row in table] == ["a.parquet", "b.parquet", "c.parquet", ""]
    assert [row["policy_loss"] for row in table] == ["0.0", "nan", "0.25", "-0.0124817"]
    assert [row["n_tokens"] for row in table] == ["1048576", "1048577", "1048578", "7"]
    assert [row["ess_frac"] for row in table] == ["0.75", "0.76", "0.77", ""]


def test_nested_names_are_dotted() -> None:
    [row] = read(to_delimited(reports.report(), ","))
    assert row["policy_loss_by_agg.token-mean"] == "-0.25"
    assert row["policy_loss_by_agg.group-mean"] == "-1.5"
    assert "policy_loss_by_agg" not in row


def test_a_null_is_the_value_it_stands_for_or_empty() -> None:
    [row] = read(to_delimited(reports.with_nulls(), ","))
    assert row["policy_loss"] == "nan"
    assert row["policy_loss_by_agg.token-sum"] == "nan"
    assert row["ratio_max"] == "inf"
    assert row["explained_variance"] == ""
    assert row["policy_loss_finite"] == "-0.5"
    assert row["adv_min"] == "0.0"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_read_back_exactly(value: float) -> None:
    [row] = read(to_delimited(reports.report({"policy_loss": value}), ","))
    assert float(row["policy_loss"]) == value
    assert math.copysign(1.0, float(row["policy_loss"])) == (-1.0 if value < 0 else 1.0)


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_names_cannot_break_the_table(delimiter: str) -> None:
    text = to_delimited(reports.several('a,"b"\tc\n\x1b.parquet', "b"), delimiter)
    table = read(text, delimiter)
    assert table[0]["file"] == r'a,"b"\x09c\x0a\x1b.parquet'
    assert "\x1b" not in text
    assert len(text.splitlines()) == 4
