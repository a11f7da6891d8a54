from __future__ import annotations

import re

import pytest
import reports

from ppocli.render.blocks import Block, Column, Screen
from ppocli.render.console import Look
from ppocli.render.screen import eval_screen
from ppocli.render.table import draw, eval_table

ESCAPE = re.compile("\x1b\\[[0-9;]*m")


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 120, None])
@pytest.mark.parametrize("name", reports.BY_NAME)
def test_no_cell_with_a_number_or_a_name_is_ever_cut(name: str, width: int | None) -> None:
    made = reports.BY_NAME[name]()
    text = eval_table(made, Look(width=width))
    assert "…" not in text
    for block in eval_screen(made).blocks:
        for row in block.rows:
            cells = [c for c, column in zip(row, block.columns, strict=True) if column.kind != "note"]
            line = r"\s+".join(re.escape(cell) for cell in cells if cell)
            assert re.search(rf"^\s*{line}", text, re.MULTILINE), cells


@pytest.mark.parametrize("name", ["small", "full", "nulls", "several"])
def test_eighty_columns_are_enough(name: str) -> None:
    text = eval_table(reports.BY_NAME[name](), Look(width=80))
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("width", [20, 80, None])
def test_text_ends_lines_without_spaces_and_itself_with_a_newline(width: int | None) -> None:
    text = eval_table(reports.full(), Look(width=width))
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_ascii_look_uses_ascii_only() -> None:
    assert eval_table(reports.full(), Look(width=80, ascii=True)).isascii()
    assert eval_table(reports.several("x" * 90, "b"), Look(80, ascii=True, terminal=True)).isascii()
    assert "─" in eval_table(reports.full(), Look(width=80))


def test_without_color_there_is_no_escape_byte_and_with_it_the_same_text() -> None:
    plain = eval_table(reports.with_nulls(), Look(width=80))
    colored = eval_table(reports.with_nulls(), Look(width=80, color=True))
    assert "\x1b" not in plain
    assert "\x1b[1;31m" in colored
    bare = [line.rstrip() for line in ESCAPE.sub("", colored).splitlines()]
    assert bare == plain.splitlines()


def test_names_are_shown_as_they_are_and_control_characters_as_escapes() -> None:
    text = eval_table(reports.odd_names(), Look())
    assert text.count(r"[red]x[/red] \x1b[31m|ü\x0a.parquet") == 6
    assert r"log_probs = '[bold]lp\x07'" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_path_in_the_header_is_whole_where_it_is_wider_than_the_screen() -> None:
    path = "/".join(["runs"] * 40) + "/a.parquet"
    made = reports.report(inputs=(reports.one_input(path),))
    for width in (20, 80):
        assert path in eval_table(made, Look(width=width)).splitlines()


def test_paths_lose_their_middle_on_a_narrow_terminal_only() -> None:
    path = f"runs/{'x' * 60}/rank3.parquet"
    made = reports.several(path, "b.parquet")
    assert path in eval_table(made, Look(width=80))
    on_terminal = eval_table(made, Look(width=80, terminal=True))
    assert path not in on_terminal
    assert re.search(r"^runs/x+…x*/rank3\.parquet +1,048,576", on_terminal, re.MULTILINE)
    assert max(map(len, on_terminal.splitlines())) <= 80
    assert path in eval_table(made, Look(width=200, terminal=True))


LONG = "a note that has more words than there is room for beside a number"


def noted(note: str, name: str = "clip_frac") -> str:
    columns = (Column("metric", "metric"), Column("value", "number"), Column("note", "note"))
    return draw(Screen((), (Block(columns, ((name, "0.25", note), ("b", "1", ""))),)), Look(width=40))


def test_a_note_stands_beside_its_row_where_it_has_room() -> None:
    assert noted(LONG).splitlines()[3:] == [
        "clip_frac   0.25  a note that has more",
        "                  words than there is",
        "                  room for beside a",
        "                  number",
        "b              1",
    ]


def test_a_note_stands_below_its_row_where_it_has_not() -> None:
    assert noted(LONG, "a_metric_with_a_longer_name").splitlines()[1:] == [
        "metric                       value",
        "──────────────────────────────────",
        "a_metric_with_a_longer_name   0.25",
        "  a note that has more words than there",
        "  is room for beside a number",
        "b                                1",
    ]


def test_a_short_note_needs_little_room() -> None:
    assert noted("tiny", "a_metric_with_a_longer_name").splitlines()[3:] == [
        "a_metric_with_a_longer_name   0.25  tiny",
        "b                                1",
    ]


def test_longer_names_of_a_framework_do_not_push_the_other_tables() -> None:
    columns = (Column("metric", "metric"), Column("value", "number"), Column("note", "note"))
    mine, theirs = Block(columns, (("a", "1", "x"),)), Block(columns, (("b" * 31, "2", "y"),))
    lines = draw(Screen((), (mine, theirs)), Look(width=80)).splitlines()
    assert lines[3] == "a           1  x"
    assert lines[-1] == f"{'b' * 31}      2  y"
