"""Charts of metrics from group to group: marks at the right places, limits, nulls, thousands of groups."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pages
import pytest
import reports
from pages import Element, parsed

from ppocli.core.check_report import Check, CheckReport
from ppocli.core.report import Group, NullNote
from ppocli.render.html import html_page
from ppocli.render.html.series import MOST_COLUMNS, pieces
from ppocli.render.html.series_charts import grid_between
from ppocli.render.html.svg import unit

TOP, HEIGHT, EDGE = 6.0, 110.0, 0.05


def groups_of(values: list[Any], name: str = "policy_loss", key: str = "step") -> tuple[Group, ...]:
    return tuple(
        Group({key: 10 * k}, {"n_tokens": 100 + k, name: value},
              {name: NullNote("1 NaN in log_probs", "nan")} if value is None else {})
        for k, value in enumerate(values)
    )  # fmt: skip


def page(values: list[Any], name: str = "policy_loss", key: str = "step", **more: Any) -> Element:
    return parsed(html_page(reports.report(groups=groups_of(values, name, key)), **more))


def places(chart: Element) -> list[tuple[float, float]]:
    """Return the dots as parts of the width and of the height above the axis, margins taken off."""
    floor = float(axis(chart)["y1"] or 0.0)
    upward = [(floor - float(one["cy"] or 0.0)) / HEIGHT for one in chart.all("circle", "dot")]
    across = [float((one["cx"] or "").rstrip("%")) / 100.0 for one in chart.all("circle", "dot")]
    return [(x, (y - EDGE) / (1.0 - 2.0 * EDGE)) for x, y in zip(across, upward, strict=True)]


def axis(chart: Element) -> Element:
    (found,) = chart.all("line", "axis")
    return found


def hints(chart: Element, element: str, kind: str) -> list[str]:
    return [one.all("title")[0].text() for one in chart.all(element, kind)]


def test_a_dot_for_each_value_and_a_mark_for_each_null() -> None:
    root = page([1.0, 3.0, None, 2.0])
    chart = root.by_id("series-policy_loss")
    assert places(chart) == [
        pytest.approx(one, abs=1e-3) for one in [(0.125, 0.0), (0.375, 1.0), (0.875, 0.5)]
    ]
    assert hints(chart, "circle", "dot") == ["step 0: 1", "step 10: 3 (+2)", "step 30: 2"]
    assert hints(chart, "rect", "lost") == ["step 20: null (nan: 1 NaN in log_probs)"]
    lines = [one["points"] for one in chart.all("polyline", "trend")]
    # In a plane of 1000 by 1000, y down: 1000 - 1000 (0.05 + 0.9 part).
    assert lines == ["125.0,950.0 375.0,50.0", "875.0,500.0 875.0,500.0"]
    caption = root.by_id("groups").all("figcaption")[0].text()
    assert "First 1, last 2; between 1 and 3; largest change +2 at step 10; null in 1 of 4." in caption
    assert root.by_id("groups-title").text() == "By step"


def test_the_table_has_every_group_and_every_metric() -> None:
    table = page([1.0, None, 0.123456789]).by_id("groups").all("table")[0]
    rows = [[cell.text() for cell in row.all("td")] for row in table.all("tr")[1:]]
    assert [one.text() for one in table.all("th")] == ["step", "tokens", "policy_loss"]
    assert rows == [["0", "100", "1"], ["10", "101", "null"], ["20", "102", "0.123457"]]


def test_groups_stand_in_the_order_of_their_keys() -> None:
    made = reports.report(groups=tuple(reversed(groups_of([1.0, 2.0, 4.0]))))
    chart = parsed(html_page(made, sort="policy_loss")).by_id("series-policy_loss")
    assert hints(chart, "circle", "dot") == ["step 0: 1", "step 10: 2 (+1)", "step 20: 4 (+2)"]


@pytest.mark.parametrize(
    ("n", "sort", "drawn"), [(2, None, False), (3, None, True), (3, "policy_loss", False)]
)
def test_files_are_a_series_in_the_order_they_were_read(n: int, sort: str | None, *, drawn: bool) -> None:
    names = [f"runs/step_{k}.parquet" for k in range(n)]
    report = reports.several(*names)
    root = parsed(html_page(report, sort=sort))
    charts = [one["id"] for one in root.by_id("groups").all("svg") if one["id"]]
    assert ("series-policy_loss" in charts) == drawn
    assert root.by_id("groups-title").text() == "Files"
    assert [name in root.by_id("groups").text() for name in names] == [True] * n
    if drawn:
        ticks = [one.text() for one in root.by_id("series-policy_loss").all("text")]
        assert ticks == ["step…rquet"] * 3


def test_one_group_is_no_series() -> None:
    assert "series-policy_loss" not in html_page(reports.report(groups=groups_of([1.0])))


def test_the_total_loss_is_drawn_where_it_is_not_the_policy_loss() -> None:
    for total, drawn in ((1.0, False), (1.5, True)):
        groups = tuple(
            replace(one, metrics={**one.metrics, "total_loss": total * one.metrics["policy_loss"]})
            for one in groups_of([1.0, 2.0])
        )
        assert ("series-total_loss" in html_page(reports.report(groups=groups))) == drawn


def judged(values: list[float | None], limits: dict[str, tuple[str, float]]) -> CheckReport:
    """Judge clip_frac of each step by limits given as name: (kind, bound)."""
    groups = groups_of(list(values), "clip_frac")
    report = reports.report(groups=groups)
    checks = [
        Check(name, kind, "pass" if value is not None and (value <= bound) == (kind == "max") else "fail",  # type: ignore[arg-type]
              f"--{kind}", "because", "clip_frac", value, bound, key=one.key)
        for name, (kind, bound) in limits.items()
        for one, value in zip(groups, values, strict=True)
    ]  # fmt: skip
    checks.append(Check("no finding of severity error", "findings", "pass", "--fail-on", value=0))
    gate = {"notes": (), "fail_on": "error"}
    return CheckReport(report.to_dict(), tuple(checks), gate, 1)


def test_limits_are_drawn_with_the_first_group_that_breaks_them() -> None:
    root = parsed(html_page(judged([0.1, None, 0.3, 0.25], {"clip_frac <= 0.2": ("max", 0.2)})))
    chart = root.by_id("series-clip_frac")
    (line,) = chart.all("line", "limit level")
    floor = float(axis(chart)["y1"] or 0.0)
    # 0.2 is half way from 0.1 to 0.3.
    assert floor - float(line["y1"] or 0.0) == pytest.approx(HEIGHT / 2.0, abs=0.01)
    assert len(chart.all("circle", "dot bad")) == 2
    assert len(chart.all("circle", "dot")) == 3
    (first,) = [one for one in chart.all("line", "limit") if one["class"] == "limit"]
    assert first["x1"] == "37.5%"
    assert "first broken at 10" in chart.text()
    caption = next(one.text() for one in root.by_id("groups").all("figcaption") if "clip_frac" in one.text())
    assert "limit clip_frac <= 0.2: broken in 3 of 4, first at step 10." in caption
    table = root.by_id("checks").all("table")[0]
    rows = [[cell.text() for cell in row.all("td")] for row in table.all("tr")[1:]]
    assert rows == [
        ["FAIL", "clip_frac <= 0.2", "3 of 4", "step 10", "null", "because"],
        ["ok", "no finding of severity error", "", "", "", ""],
    ]


def test_a_limit_far_from_all_values_is_only_said() -> None:
    root = parsed(html_page(judged([0.1, 0.11], {"clip_frac <= 0.9": ("max", 0.9)})))
    chart = root.by_id("series-clip_frac")
    assert chart.all("line", "limit") == []
    assert chart.all("circle", "bad") == []
    assert "limit clip_frac <= 0.9, beyond what is shown: kept." in root.by_id("groups").text()


def test_a_metric_with_a_limit_has_a_chart_even_if_it_is_not_followed() -> None:
    groups = groups_of([1.0, 9.0], "ratio_max")
    checks = tuple(
        Check("ratio_max <= 8", "max", status, "--max", "", "ratio_max", None, 8.0, key=one.key)
        for one, status in zip(groups, ("pass", "fail"), strict=True)
    )  # fmt: skip
    document = reports.report(groups=groups).to_dict()
    root = parsed(html_page(CheckReport(document, checks, {"notes": ()}, 1)))
    assert len(root.by_id("series-ratio_max").all("circle", "dot")) == 2


def test_thousands_of_groups_keep_their_extremes() -> None:
    values: list[Any] = [math.sin(k / 100.0) for k in range(5000)]
    values[1234], values[4321] = 7.0, -7.0
    values[102:105] = [None] * 3  # in the stretch of 17 that begins there
    text = html_page(reports.report(groups=groups_of(values)))
    chart = parsed(text).by_id("series-policy_loss")
    assert chart.all("circle") == []
    points = [
        tuple(map(float, one.split(",")))
        for line in chart.all("polyline", "trend")
        for one in (line["points"] or "").split()
    ]
    assert len(points) <= 2 * MOST_COLUMNS
    assert min(points, key=lambda one: one[1]) == pytest.approx((1000.0 * 1234.5 / 5000, 50.0), abs=0.06)
    assert max(points, key=lambda one: one[1]) == pytest.approx((1000.0 * 4321.5 / 5000, 950.0), abs=0.06)
    assert [one[0] for one in points] == sorted(one[0] for one in points)
    assert hints(chart, "rect", "lost") == ["step 1020: null (nan: 1 NaN in log_probs)"]
    assert "null in 3 of 5,000" in text
    rows = parsed(text).by_id("groups").all("table")[0].all("tr")
    assert len(rows) == 1002
    assert rows[501].text() == "4,000 more"
    assert "-f csv has all 5,000" in text


def test_a_line_through_stretches_ends_where_a_whole_stretch_is_null() -> None:
    n = 4 * MOST_COLUMNS
    values: list[Any] = [float(k % 4) for k in range(n)]
    values[5] = None
    assert [len(one) for one in pieces(values, every=False)] == [2 * MOST_COLUMNS]
    values[4:8] = [None] * 4
    assert [len(one) for one in pieces(values, every=False)] == [2, 2 * MOST_COLUMNS - 4]
    assert pieces([None, None], every=False) == []


def test_a_series_that_is_null_everywhere_is_said_where_it_has_a_limit() -> None:
    text = html_page(judged([None, None], {"clip_frac <= 0.2": ("max", 0.2)}))
    chart = parsed(text).by_id("series-clip_frac")
    assert chart.all("circle") == []
    assert len(chart.all("rect", "lost")) == 2
    assert "Null in all of 2; limit clip_frac &lt;= 0.2: broken in 2 of 2, first at step 0." in text


@pytest.mark.parametrize("values", [[1e308, -1e308], [5e-324, 0.0], [0.5, 0.5], [1e300, 1e300], [-0.0, 0.0],
                                    [1.0, 1.0 + 2.0**-52], [3, 10**18]])  # fmt: skip
def test_values_far_apart_and_close_together(values: list[float]) -> None:
    text = html_page(reports.report(groups=groups_of(values)))
    chart = parsed(text).by_id("series-policy_loss")
    assert all(-0.001 <= y <= 1.001 for _, y in places(chart))
    assert len(places(chart)) == 2
    assert not re.search(r"=\"[^\"]*\b(nan|inf)\b", text)


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.0, 1.0, ["0", "0.5", "1"]),
        (0.0, 0.77, ["0", "0.2", "0.4", "0.6"]),
        (-0.25, 0.09, ["-0.2", "-0.1", "0"]),
        (0.0147, 0.0184, ["0.015", "0.016", "0.017", "0.018"]),
        (100001.0, 100004.0, ["100001", "100002", "100003", "100004"]),
        (0.5, 0.5, ["0.5"]),
        (-1e308, 1e308, ["0"]),
    ],
)
def test_lines_across_are_round_numbers_that_can_be_told_apart(
    low: float, high: float, texts: list[str]
) -> None:
    grid = grid_between(low, high)
    assert [text for _, text in grid] == texts
    assert all(low <= value <= high for value, _ in grid)
    assert all(float(text) == pytest.approx(value, rel=1e-9) for value, text in grid)


def test_places_between_two_ends() -> None:
    assert [unit(one, -1.0, 3.0) for one in (-1.0, 0.0, 3.0)] == [0.0, 0.25, 1.0]
    assert unit(0.0, -1.7e308, 1.7e308) == 0.5
    assert unit(2.0, 2.0, 2.0) == 0.5


def test_drift_by_step_is_a_series_too() -> None:
    root = parsed(html_page(pages.drift()))
    chart = root.by_id("series-diff_abs_mean")
    assert [y for _, y in places(chart)] == pytest.approx([1 / 3, 1.0, 0.0], abs=1e-3)
    assert hints(chart, "circle", "dot") == ["step 3: 0.2", "step 4: 0.4 (+0.2)", "step 5: 0.1 (-0.3)"]
    table = root.by_id("groups").all("table")[0]
    rows = [[cell.text() for cell in row.all("td")] for row in table.all("tr")[1:]]
    assert rows == [["3", "5", "0.1", "0.2"], ["4", "7", "0.1", "0.4"], ["5", "1", "0.1", "0.1"]]


def test_checks_of_drift_stand_first() -> None:
    check = Check("diff_abs_max <= 1", "max", "fail", "--max", "more", "diff_abs_max", 2.0, 1.0)
    root = parsed(html_page(pages.drift(checks=(check,))))
    assert root.all("section")[0]["id"] == "checks"
    assert [one.text() for one in root.by_id("checks").all("td")] == [
        "FAIL",
        "diff_abs_max <= 1",
        "2",
        "more",
    ]
    assert root.by_id("verdict").text().startswith("Failed")


def test_hostile_keys_stay_text() -> None:
    text = html_page(pages.hostile()["groups"])
    chart = parsed(text).by_id("series-policy_loss")
    assert len(chart.all("circle", "dot")) == 3
    assert "<script" not in text.replace("&lt;script", "")
    assert "<img" not in text


def test_text_and_null_as_keys() -> None:
    keys = [None, "b\x1b", "a", 3]
    groups = tuple(Group({"source": key}, {"policy_loss": float(k)}, {}) for k, key in enumerate(keys))
    chart = parsed(html_page(reports.report(groups=groups))).by_id("series-policy_loss")
    shown = ["source 3: 3", "source a: 2 (-1)", r"source b\x1b: 1 (-1)", "source null: 0 (-1)"]
    assert hints(chart, "circle", "dot") == shown
