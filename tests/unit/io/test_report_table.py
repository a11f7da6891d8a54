from __future__ import annotations

import compared
import inspected
import pyarrow as pa
import pytest
import reports

import ppocli
from ppocli.errors import UsageProblem
from ppocli.io.report_table import to_arrow

TEXT = ("by", "group", "name", "unit", "definition", "reason", "nonfinite")


def test_columns_have_their_types() -> None:
    table = to_arrow(reports.report())
    assert table.column_names == [
        "by", "group", "name", "value", "unit", "definition", "reason", "nonfinite",
    ]  # fmt: skip
    assert table.schema.field("value").type == pa.float64()
    assert all(table.schema.field(name).type == pa.string() for name in TEXT)


def test_each_number_has_a_row() -> None:
    made = reports.full()
    table = to_arrow(made)
    values = dict(zip(table["name"].to_pylist(), table["value"].to_pylist(), strict=True))
    want = {name: value for name, value in made.metrics.items() if name != "policy_loss_by_agg"}
    want |= {
        f"policy_loss_by_agg.{name}": value for name, value in made.metrics["policy_loss_by_agg"].items()
    }
    assert values == want
    assert table.num_rows == len(want)
    assert table["group"].null_count == table["by"].null_count == table["reason"].null_count == len(want)


def test_a_null_keeps_its_reason() -> None:
    rows = {one["name"]: one for one in to_arrow(reports.with_nulls()).to_pylist()}
    assert rows["policy_loss"]["value"] is None
    assert rows["policy_loss"]["reason"] == "2 NaN in advantages"
    assert rows["policy_loss"]["nonfinite"] == "nan"
    assert rows["policy_loss_finite"]["value"] == -0.5


def test_groups_can_be_selected() -> None:
    rows = to_arrow(reports.several()).to_pylist()
    losses = [(one["by"], one["group"], one["value"]) for one in rows if one["name"] == "policy_loss"]
    assert losses == [
        ("file", "a.parquet", 0.0),
        ("file", "b.parquet", None),
        ("file", "c.parquet", 0.25),
        (None, None, -0.0124817),
    ]


def test_frameworks_of_parity_are_groups() -> None:
    rows = to_arrow(compared.parity()).to_pylist()
    assert [one["value"] for one in rows] == [-0.375, 0.25, 0.0625, 0.5, -0.125, None]
    assert {one["by"] for one in rows} == {"framework"}


def test_an_inspection_has_no_numbers_for_a_table() -> None:
    with pytest.raises(UsageProblem, match="a report of inspect has no metrics"):
        to_arrow(inspected.report())


def test_it_is_a_function_of_the_package() -> None:
    assert ppocli.to_arrow is to_arrow
    assert ppocli.to_arrow(reports.report()).num_rows > 0
