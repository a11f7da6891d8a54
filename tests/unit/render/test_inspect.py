from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import inspected
import pytest
import reports

from ppocli.core.report import Skipped
from ppocli.render.console import Look
from ppocli.render.formats import inspect_text
from ppocli.render.inspect import inspect_screen
from ppocli.render.numbers import size_text

if TYPE_CHECKING:
    from ppocli.render.blocks import Block, Screen


def rows(block: Block) -> list[tuple[str, ...]]:
    return [tuple(column.header for column in block.columns), *block.rows]


def texts(screen: Screen) -> list[str]:
    return [block.text for block in screen.blocks if not block.rows]


def test_one_parquet_file() -> None:
    screen = inspect_screen(inspected.report())
    assert screen.header == (
        "rollouts.parquet  Parquet 2.6, 48.2 MB, 12 rows, 8 row groups, zstd, snappy, layout list",
    )
    assert rows(screen.blocks[0]) == [
        ("column", "type", "role", "nulls", "min", "max"),
        ("log_probs", "list<float32>", "log_probs", "0", "-38.125", "0"),
        ("old_logp", "list<float32>", "old_log_probs (alias)", "0", "-inf", "-0.5"),
        ("a", "list<float32>", "advantages (--col)", "-", "-", "-"),
        ("keep", "list<bool>", "mask (alias)", "0", "false", "true"),
        ("seq", "int64", "-", "12", "0", "4,095"),
        ("text", "string", "-", "1", "-", "-"),
    ]
    assert texts(screen) == [
        "sequences: 12 rows of 8.25 values on average\n"
        "read plan: 4 of 6 columns, 1.26 kB of 48.2 MB, 3 batches of 2 to 8 rows, about 312 MB of memory "
        "(more with a row above 1,048,576 tokens)\n"
        "note: old_log_probs: column 'old_logp'",
        "ready: ppocli eval rollouts.parquet --col advantages=a",
    ]


def test_digits_are_those_asked_for() -> None:
    assert inspect_screen(inspected.report(), digits=2).blocks[0].rows[0][4] == "-38"


def test_one_npz_file() -> None:
    screen = inspect_screen(inspected.report(inspected.npz_file()))
    assert screen.header == ("dump.npz  NPZ, 999 bytes, 2 rows, 3 arrays, stored, deflated, layout padded",)
    assert rows(screen.blocks[0]) == [
        ("array", "type", "shape", "role", "storage"),
        ("log_probs", "float32", "(2, 3)", "log_probs", "stored, column-major, mappable"),
        ("meta", "object", "()", "-", "deflated"),
        ("bad", "unreadable", "-", "-", "stored"),
    ]
    assert texts(screen) == [
        "sequences: 2 rows of equal length\nnot ready: no column for roles 'old_log_probs', 'advantages'",
        "help: name the columns:  --col old_log_probs=NAME --col advantages=NAME\n      or others",
    ]


def test_temporary_files_are_part_of_the_plan() -> None:
    one = inspected.npz_file(problem=None, advice="ppocli eval dump.npz")
    assert (
        "about 170 MB of memory, temporary files of 2 MB" in texts(inspect_screen(inspected.report(one)))[0]
    )


@pytest.mark.parametrize(("longest", "said"), [(None, True), (1 << 20, False), ((1 << 20) + 1, True)])
def test_memory_depends_on_the_longest_row_until_a_scan_has_seen_it(longest: int | None, said: bool) -> None:
    scan = None if longest is None else replace(inspected.a_scan(), longest_row=longest)
    (text, _) = texts(inspect_screen(inspected.report(inspected.parquet_file(scan=scan))))
    assert ("(more with a row above 1,048,576 tokens)" in text) == said


def test_a_scan_has_a_table_and_a_line() -> None:
    screen = inspect_screen(inspected.report(inspected.parquet_file(scan=inspected.a_scan())))
    assert rows(screen.blocks[1]) == [
        ("valid tokens", "null", "nan", "inf", "-inf", "zeros", "min", "max", ""),
        ("log_probs", "0", "0", "0", "0", "0", "-38.125", "-0.25", ""),
        ("old_log_probs", "1", "2", "3", "4", "0.0625", "-9.5", "0", "exact in bfloat16 and float16"),
        ("advantages", "9", "0", "0", "0", "-", "-", "-", ""),
        ("group_id", "0", "0", "0", "0", "0", "2", "2", "constant"),
    ]
    assert (
        "data: 90 valid tokens, 9 masked, longest row 17 tokens, 11 sequences with a valid token, 1 without"
        in texts(screen)[0].split("\n")
    )


@pytest.mark.parametrize(
    ("layout", "line"),
    [("flat", "told apart by 'seq'"), ("packed", "told apart by 'seq' inside rows")],
)
def test_sequences_by_id(layout: str, line: str) -> None:
    columns = list(inspected.parquet_file().columns)
    columns[4] = replace(columns[4], role="sequence_id", found_by="alias")
    one = inspected.parquet_file(layout=layout, columns=tuple(columns))
    assert texts(inspect_screen(inspected.report(one)))[0].startswith(f"sequences: {line}\n")


def test_several_files_have_a_line_each_and_one_description_for_each_schema() -> None:
    files = [
        inspected.parquet_file(),
        inspected.npz_file(schema=2, rows=None),
        inspected.parquet_file(path="b.parquet"),
    ]
    screen = inspect_screen(inspected.report(*files, skipped=(Skipped("c", "same file as 'b'"),)))
    assert screen.header == (
        "3 files  24 rows, 96.4 MB, 2 schemas, 2 ready for eval",
        "skipped 1 file: c: same file as 'b'",
    )
    assert rows(screen.blocks[0]) == [
        ("file", "rows", "parts", "size", "schema", "eval"),
        ("rollouts.parquet", "12", "8", "48.2 MB", "1", "ready"),
        ("dump.npz", "-", "3", "999 bytes", "2", "not ready"),
        ("b.parquet", "12", "8", "48.2 MB", "1", "ready"),
    ]
    firsts = [text for text in texts(screen) if text.startswith("schema ")]
    assert [text.partition("  ")[0] for text in firsts] == [
        "schema 1, 2 files, the first: rollouts.parquet",
        "schema 2, 1 file, the first: dump.npz",
    ]


def test_more_schemas_than_are_shown_are_counted() -> None:
    files = [inspected.parquet_file(path=f"{k}.parquet", schema=k) for k in range(1, 6)]
    screen = inspect_screen(inspected.report(*files))
    assert len([text for text in texts(screen) if text.startswith("schema ")]) == 3
    assert texts(screen)[-1] == "2 more schemas: -f json describes every file"
    assert screen.blocks[0].columns[2].header == "row groups"


def test_scanned_files_show_their_tokens() -> None:
    files = [inspected.parquet_file(scan=inspected.a_scan()), inspected.npz_file(schema=2)]
    first, second = inspect_screen(inspected.report(*files)).blocks[0].rows
    assert first[4:7] == ("90", "9", "19")  # 1 + 2 + 3 + 4 and 9 null or not finite
    assert second[4:7] == ("-", "-", "-")


def test_no_file_at_all() -> None:
    screen = inspect_screen(inspected.BY_NAME["none"]())
    assert screen.header[0] == "0 files  0 rows, 0 bytes, 0 schemas, 0 ready for eval"
    assert screen.header[1] == "skipped 1 file: a.parquet: unreadable: cut"
    assert screen.blocks == ()


@pytest.mark.parametrize("width", [20, 80, 120])
@pytest.mark.parametrize("terminal", [True, False])
def test_lines_to_type_are_never_broken(width: int, terminal: bool) -> None:
    text = inspect_text(inspected.report(), "table", Look(width=width, terminal=terminal))
    assert "\nready: ppocli eval rollouts.parquet --col advantages=a\n" in text
    assert "…" not in text
    for cell in ("-38.125", "old_log_probs (alias)", "4,095"):
        assert cell in text


def test_the_screen_fits_80_columns() -> None:
    text = inspect_text(inspected.BY_NAME["scanned"](), "table", Look(width=80))
    assert max(map(len, text.splitlines())) <= 80


def test_ascii_only() -> None:
    assert inspect_text(inspected.BY_NAME["several"](), "table", Look(width=80, ascii=True)).isascii()


def test_markdown_has_the_same_tables() -> None:
    text = inspect_text(inspected.report(), "md", Look())
    assert "| column | type | role | nulls | min | max |" in text
    assert r"| old\_logp | list\<float32\> | old\_log\_probs \(alias\) | 0 | -inf | -0.5 |" in text
    assert "<br>read plan: 4 of 6 columns" in text
    assert "ready: ppocli eval rollouts.parquet" in text


@pytest.mark.parametrize("form", ["table", "md"])
def test_odd_names_are_shown_escaped(form: str) -> None:
    text = inspect_text(inspected.odd_names(), form, Look())
    assert "\x1b" not in text
    assert reports.ODD_NAME not in text
    # the path, the skipped path and its reason, a column, a note, the problem
    assert text.count(r"\x1b" if form == "table" else r"\\x1b") == 6


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1 kB"),
        (1_234, "1.23 kB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (48_200_000, "48.2 MB"),
        (1_500_000_000, "1.5 GB"),
        (10**15, "1000 TB"),
    ],
)
def test_sizes(n_bytes: int, text: str) -> None:
    assert size_text(n_bytes) == text


def test_a_scan_of_no_column_has_no_table() -> None:
    scan = replace(inspected.a_scan(), columns={})
    screen = inspect_screen(inspected.report(inspected.parquet_file(scan=scan)))
    assert [bool(block.rows) for block in screen.blocks] == [True, False, False]
