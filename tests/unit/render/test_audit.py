from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import audited
import pytest

from ppocli.core.audit_metrics import AUDIT_METRICS, metrics_of
from ppocli.core.precision import PRECISIONS
from ppocli.core.report import NullNote
from ppocli.render.audit import audit_screen, short_blocks
from ppocli.render.bars import bar
from ppocli.render.console import Look
from ppocli.render.formats import audit_text

if TYPE_CHECKING:
    from ppocli.render.blocks import Block, Screen


def block(screen: Screen, head: str) -> Block:
    return next(one for one in screen.blocks if head in (one.title, one.columns[0].header))


def text_of(screen: Screen, start: str) -> str:
    return next(one.text for one in screen.blocks if one.text.startswith(start))


def test_bars() -> None:
    assert [bar(share, 2) for share in (0.0, 1e-9, 0.25, 0.5, 0.8125, 1.0)] == ["", "▏", "▌", "█", "█▋", "██"]
    assert [bar(share, 4, ascii_only=True) for share in (0.0, 0.01, 0.5, 1.0)] == ["", "#", "##", "####"]


def test_a_verdict_for_each_format_and_question() -> None:
    rows = block(audit_screen(audited.report()), "format").rows
    assert [row[:3] for row in rows] == [
        ("bfloat16", "storage", "warning"),
        ("bfloat16", "arithmetic", "ok"),
        ("float16", "storage", "ok"),
        ("float16", "arithmetic", "error"),
        ("int8", "storage", "ok"),
    ]
    assert rows[0][3] == (
        "clip decision flips: 1 token (0.14 of all)\n"
        "--> worst flip: rollouts.parquet, row 7, position 3, ratio 1.1875 becomes 1.25"
    )
    assert rows[1][3] == "within all limits"


@pytest.mark.parametrize("question", ["storage", "arithmetic"])
def test_every_metric_of_a_question_has_a_row(question: str) -> None:
    table = block(audit_screen(audited.report(), digits=17), question)
    assert [row[0] for row in table.rows] == [one.name for one in metrics_of(question)]
    heads = [column.header for column in table.columns]
    expected = ["bfloat16", "float16", *(["int8"] if question == "storage" else [])]
    assert heads == [question, "float64", *expected]
    report = audited.report()
    for row in table.rows:
        answer = dict(report.audit.formats["bfloat16"].answers())[question]
        assert float(row[2].replace(",", "")) == answer.metrics[row[0]]
        reference = report.evaluation.metrics.get(row[0])
        assert row[1] == "" if reference is None else float(row[1].replace(",", "")) == reference


def test_a_null_says_what_the_format_gave() -> None:
    table = block(audit_screen(audited.report()), "arithmetic")
    assert table.rows[0] == ("policy_loss", table.rows[0][1], "2", "null (inf)")


def test_values_over_finite_tokens_stand_where_strict_ones_are_null() -> None:
    one = audited.answer("storage", 1.0)
    metrics = dict.fromkeys(one.metrics) | {f"{name}_finite": value for name, value in one.metrics.items()}
    spoiled = replace(one, metrics=metrics, nulls={name: NullNote("x") for name in one.metrics})
    formats = {"bfloat16": replace(audited.result().formats["bfloat16"], storage=spoiled)}
    screen = audit_screen(audited.report(formats=formats, n_left_out=2))
    assert block(screen, "storage").rows[0][2] == "1"
    assert "2 tokens left out: a value is not finite" in screen.header


def test_many_formats_are_shown_three_beside_each_other() -> None:
    one = audited.result().formats["bfloat16"]
    formats = dict.fromkeys(list(PRECISIONS)[:7], one)
    screen = audit_screen(audited.report(formats=formats))
    tables = [len(b.columns) - 2 for b in screen.blocks if b.columns[0].kind == "metric"][:3]
    assert tables == [3, 3, 1]


@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_chart_has_each_step_where_it_falls(ascii_only: bool) -> None:
    screen = audit_screen(audited.report(), ascii_only=ascii_only)
    chart = block(screen, "|log_ratio|")
    full, half, quarter = ("#" * 24, "#" * 12, "#" * 6) if ascii_only else ("█" * 24, "█" * 12, "█" * 6)
    assert [row[:3] for row in chart.rows] == [
        ("0.0156 to 0.0312", "14.29%", quarter),
        ("0.0312 to 0.0625", "28.57%", half),
        ("0.0625 to 0.125", "0.00%", ""),
        ("0.125 to 0.25", "57.14%", full),
    ]
    # The steps of the report made by hand are 1 + 33/64, 3 + 33/64 and 4 + 33/64: larger than all drift.
    note = text_of(screen, "|log_probs|")
    assert note.startswith(
        "|log_probs|: median 1.5, 99 % quantile 24; |log_ratio|: median 0.0312, 99 % quantile 0.25"
    )
    assert "steps outside the chart: bfloat16 1.52, float16 3.52, int8 4.52" in note
    one = audited.result().formats["bfloat16"]
    metrics = {**one.storage.metrics, "step_p50": 0.0625}
    formats = {"bfloat16": replace(one, storage=replace(one.storage, metrics=metrics))}
    chart = block(audit_screen(audited.report(formats=formats)), "|log_ratio|")
    assert [row[3] for row in chart.rows] == ["", "", "bfloat16 step 0.0625", ""]


def test_rare_small_drift_is_one_row() -> None:
    tail = tuple((2.0**-k, 1) for k in range(40, 20, -1))
    screen = audit_screen(audited.report(histogram=(*tail, (2.0**-5, 99_980)), n_tokens=100_000))
    rows = block(screen, "|log_ratio|").rows
    assert [(row[0], row[1]) for row in rows] == [("0 to 9.54e-07", "0.02%"), ("0.0312 to 0.0625", "99.98%")]


def test_orders_of_the_sum() -> None:
    rows = {
        row[0]: row[1:] for row in block(audit_screen(audited.report()), "float32 sum of the losses").rows
    }
    assert rows["exact"] == ("1", "", "of the same terms")
    assert rows["naive"] == ("0.928571", "-0.0714286", "one after the other; stands still after 5 tokens")
    assert rows["bfloat16"][1:] == ("0.142857", "bfloat16, one after the other; 1 term did not move it")
    assert rows["pairwise"][1] == "0"


def test_the_recommendation_and_what_it_was_chosen_from() -> None:
    screen = audit_screen(audited.report())
    table = next(b for b in screen.blocks if [c.header for c in b.columns[:2]] == ["storage", "arithmetic"])
    assert text_of(screen, "recommendation") == (
        "recommendation: store log-probs as float16, compute in float32: the cheapest that flips no clip "
        "decision and keeps the loss within the tolerance"
    )
    assert table.rows[0] == (
        "bfloat16", "float32", "2", "-", "-", "not evaluated: storage alone flips decisions",
    )  # fmt: skip
    assert table.rows[2] == ("float16", "float32", "2", "0", "0.000125", "recommended")
    nothing = audit_screen(audited.report(recommendation=None, n_left_out=1))
    assert text_of(nothing, "recommendation: none")
    unknown = next(
        b for b in nothing.blocks if [c.header for c in b.columns[:2]] == ["storage", "arithmetic"]
    )
    assert unknown.rows[0][5] == "not evaluated: a token holds a value that is not finite"
    unstored = audited.result(candidates=()).formats["bfloat16"]
    registers = audit_screen(audited.report(candidates=(), formats={"tf32": unstored}))
    assert text_of(registers, "recommendation") == "recommendation: none, as columns are not stored in tf32"


def test_the_short_form() -> None:
    table, text = short_blocks(audited.result(), 6)
    assert [row[:2] for row in table.rows][:2] == [
        ("bfloat16 storage", "warning"),
        ("bfloat16 arithmetic", "ok"),
    ]
    widths = [max(len(row[k]) for row in table.rows) for k in range(len(table.columns))]
    assert sum(widths) + 2 * len(widths) <= 80
    assert text.text.startswith("recommendation: store log-probs as float16")


@pytest.mark.parametrize("look", [Look(width=80), Look(width=80, ascii=True), Look()])
def test_every_number_is_whole_on_any_screen(look: Look) -> None:
    text = audit_text(audited.report(), "table", look, digits=17)
    for one in audited.result().formats.values():
        for _, answer in one.answers():
            for value in answer.metrics.values():
                if isinstance(value, float):
                    assert repr(value).removesuffix(".0") in text
    assert text.isascii() == look.ascii
    if look.width:
        short = audit_text(audited.report(), "table", look)
        assert max(map(len, short.splitlines())) <= 80


def test_markdown_has_the_tables() -> None:
    text = audit_text(audited.report(), "md", Look())
    assert "| bfloat16 | storage | warning |" in text
    assert "| policy\\_loss |" in text


def test_json_lines_have_one_for_each_format_and_question() -> None:
    lines = [json.loads(line) for line in audit_text(audited.report(), "jsonl", Look()).splitlines()]
    assert [(one["kind"], one.get("format"), one.get("question")) for one in lines] == [
        ("format", "bfloat16", "storage"),
        ("format", "bfloat16", "arithmetic"),
        ("format", "float16", "storage"),
        ("format", "float16", "arithmetic"),
        ("format", "int8", "storage"),
        ("total", None, None),
    ]
    document = json.loads(audit_text(audited.report(), "json", Look()))
    assert {
        k: v for k, v in lines[0].items() if k not in ("kind", "format", "question", "schema_version")
    } == (document["audit"]["bfloat16"]["storage"])


@pytest.mark.parametrize(("name", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_delimited_text_has_the_same_numbers(name: str, delimiter: str) -> None:
    text = audit_text(audited.report(), name, Look())
    rows = list(csv.DictReader(io.StringIO(text), delimiter=delimiter))
    assert [(row["format"], row["question"], row["verdict"]) for row in rows][3] == (
        "float16",
        "arithmetic",
        "error",
    )
    assert rows[3]["policy_loss"] == "inf"
    assert rows[1]["step_p50"] == ""
    for row, (_, answer) in zip(rows[:2], audited.result().formats["bfloat16"].answers(), strict=True):
        for key in AUDIT_METRICS:
            if key in answer.metrics:
                assert float(row[key]) == answer.metrics[key]
