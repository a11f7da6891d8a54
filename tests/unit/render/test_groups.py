from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import reports

from ppocli.core.report import Group
from ppocli.core.trend import with_changes
from ppocli.render.groups import MOST_ROWS, group_blocks, in_order_of_keys, signed

if TYPE_CHECKING:
    from ppocli.render.blocks import Block


def blocks(report: object, sort: str | None = None, *, ascii_only: bool = False) -> list[Block]:
    return list(group_blocks(report, 6, sort, ascii_only=ascii_only))  # type: ignore[arg-type]


def heads(block: Block) -> list[str]:
    return [one.header for one in block.columns]


def test_trends_show_the_course_both_ends_and_the_largest_change() -> None:
    trend, _ = blocks(reports.steps())
    assert heads(trend) == ["over 5 steps", "trend", "first", "last", "largest\nchange", "at\nstep"]
    assert trend.rows == (
        ("policy_loss", "▃▁×█▇", "0.5", "0.875", "-0.25", "9"),
        ("clip_frac", "▅▅▅▅▅", "0.5", "0.5", "0", "9"),
        ("approx_kl_k3", "▅▅▅▅▅", "0.25", "0.25", "", ""),
    )
    in_ascii, _ = blocks(reports.steps(), ascii_only=True)
    assert in_ascii.rows[0][1] == ",_x#*"


def test_each_group_is_a_row_with_its_change() -> None:
    _, rows = blocks(reports.steps())
    assert heads(rows) == ["step", "tokens", "policy_loss", "change", "clip_frac", "approx_kl_k3"]
    assert rows.rows == (
        ("8", "4,096", "0.5", "", "0.5", "0.25"),
        ("9", "4,097", "0.25", "-0.25", "0.5", "0.25"),
        ("10", "4,098", "null (nan)", "", "0.5", "0.25"),
        ("b", "4,099", "1", "", "0.5", "0.25"),
        ("null", "4,100", "0.875", "-0.125", "0.5", "0.25"),
        ("total", "7", "-0.0124817", "", "0.1234", "0.00412306"),
    )


def test_files_have_no_order_and_no_trend() -> None:
    (rows,) = blocks(reports.several())
    assert heads(rows) == ["file", "tokens", "policy_loss", "clip_frac", "approx_kl_k3"]
    assert rows.columns[0].kind == "path"


def test_the_metric_groups_are_sorted_by_shows_its_change() -> None:
    made = reports.steps()
    groups = tuple(
        replace(one, metrics={**one.metrics, "ess_frac": 0.5 + k / 8}) for k, one in enumerate(made.groups)
    )
    made = replace(made, groups=with_changes(groups), metrics={**made.metrics, "ess_frac": 0.75})
    trend, rows = blocks(replace(made, groups=made.groups[::-1]), "ess_frac")
    assert heads(rows)[-2:] == ["ess_frac", "change"]
    assert [row[0] for row in rows.rows] == ["null", "b", "10", "9", "8", "total"]
    assert [row[-1] for row in rows.rows] == ["+0.125"] * 4 + ["", ""]
    # The course is that of the keys all the same.
    assert trend.rows[0][1] == "▃▁×█▇"


def test_numbers_come_before_text_and_no_value_last() -> None:
    keys = ["b", 10, None, 9, "a"]
    ordered = in_order_of_keys(tuple(Group({"step": key}, {}, {}) for key in keys))
    assert [one.key["step"] for one in ordered] == [9, 10, "a", "b", None]


@pytest.mark.parametrize(
    ("sort", "first", "last"),
    [(None, MOST_ROWS // 2, MOST_ROWS // 2), ("policy_loss", MOST_ROWS, 0)],
)
def test_of_thousands_the_ends_or_the_worst_are_shown(sort: str | None, first: int, last: int) -> None:
    one = reports.steps().groups[0]
    groups = tuple(replace(one, key={"step": k}) for k in range(5000))
    trend, rows = blocks(reports.report(groups=groups), sort)
    assert heads(trend)[0] == "over 5,000 steps"
    labels = [row[0] for row in rows.rows]
    assert labels[:first] == [str(k) for k in range(first)]
    assert labels[first] == "4,950 more"
    assert labels[first + 1 :] == [*(str(k) for k in range(5000 - last, 5000)), "total"]
    assert rows.title == "-f csv has all 5,000 rows"


def test_another_column_counts_its_values() -> None:
    groups = tuple(Group({"run": name}, {"clip_frac": 0.5}, {}) for name in "ab")
    trend, rows = blocks(reports.report(groups=groups))
    assert heads(trend)[0] == "over 2 values"
    assert heads(rows)[0] == "run"


def test_a_single_group_needs_no_table() -> None:
    assert blocks(reports.report(groups=reports.steps().groups[:1])) == []


def test_changes_have_a_sign() -> None:
    assert [signed(value, 6) for value in (0.25, -0.1, 0.0, 12345, -2)] == [
        "+0.25", "-0.1", "0", "+12,345", "-2",
    ]  # fmt: skip
