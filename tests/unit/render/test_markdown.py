from __future__ import annotations

import re

import pytest
import reports

from ppocli.render.markdown import escape, eval_markdown


def cells(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)[1:-1]


@pytest.mark.parametrize("name", reports.BY_NAME)
def test_every_line_of_a_table_has_the_same_number_of_cells(name: str) -> None:
    text = eval_markdown(reports.BY_NAME[name]())
    tables = [part for part in text.split("\n\n") if part.startswith("|")]
    assert tables
    for table in tables:
        lines = table.strip().split("\n")
        assert len({len(cells(line)) for line in lines}) == 1
        assert set(cells(lines[1])) <= {" --- ", " ---: "}


def test_numbers_and_header_are_there() -> None:
    text = eval_markdown(reports.several())
    assert "| c.parquet | 1,048,578 | 0.25 | 0.5 | 0.25 |" in text
    assert "- 3 files  3 rows, 7 tokens, 2 masked, 3 sequences, float32" in text
    assert r"| policy\_loss | -0.0124817 | token-mean, to be minimised |" in text
    assert text.endswith("\n")


def test_digits() -> None:
    assert r"| policy\_loss | -0.012 |" in eval_markdown(reports.report(), digits=2)


def test_names_stay_text() -> None:
    assert escape("a|b <img> [x](y) `c` _d_") == r"a\|b \<img\> \[x\]\(y\) \`c\` \_d\_"
    text = eval_markdown(reports.odd_names())
    assert r"\[red\]x\[/red\] \\x1b\[31m\|ü\\x0a.parquet" in text
    assert "\x1b" not in text
