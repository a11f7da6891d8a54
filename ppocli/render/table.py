"""Screens for the terminal: Rich tables that never cut a number."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING

from ppocli.render.console import UNLIMITED, Look, rich_console, shorten

if TYPE_CHECKING:
    from rich.box import Box
    from rich.table import Table

    from ppocli.core.report import EvalReport
    from ppocli.render.blocks import Block, Column, Screen

_STYLES = {
    "null": "bold red",
    "error": "bold red",
    "FAIL": "bold red",
    "ERROR": "bold red",
    "warning": "bold yellow",
    "info": "cyan",
}
_SHORTEST_PATH = 16
_NARROWEST_NOTE = 20
"""Columns that a note has beside its row; where there are fewer, it stands below."""
_LONGEST_NAME = 30
"""Tables with longer names, those of frameworks, are not aligned with the others."""


def eval_table(
    report: EvalReport, look: Look, *, digits: int = 6, sort: str | None = None, hist: bool = False
) -> str:
    """Return the screen of `ppocli eval` as text that ends with a newline.

    Designed for 80 columns. Where there are fewer, notes wrap or stand below their rows, on a terminal paths
    lose their middle, and what still does not fit makes the lines longer: numbers are whole at any width.
    """
    from ppocli.render.screen import eval_screen

    return draw(eval_screen(report, digits, sort, hist=hist, ascii_only=look.ascii), look)


def draw(screen: Screen, look: Look) -> str:
    """Return the header lines and tables of a screen as text."""
    from rich.text import Text

    widths = _shared_widths(screen.blocks)
    out = StringIO()
    console = rich_console(look, out, UNLIMITED)
    for number, line in enumerate(screen.header):
        console.print(Text(_wrapped(line, look), style="bold" if number == 0 else ""))
    for block in screen.blocks:
        console.print()
        if block.title:
            console.print(Text(block.title, style="bold"))
        if block.rows:
            out.write(_rows(block, look, widths))
        else:
            lines = block.text.split("\n")
            console.print(Text("\n".join(lines if block.to_type else [_wrapped(one, look) for one in lines])))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def _wrapped(line: str, look: Look) -> str:
    """Break a line at spaces only: a path or a number wider than the screen stays whole."""
    if look.width is None:
        return line
    return "\n".join(textwrap.wrap(line, look.width, break_long_words=False, break_on_hyphens=False))


def _rows(block: Block, look: Look, shared: tuple[int, int]) -> str:
    """Return a table as text, its notes below the rows where they have no room beside them."""
    notes = [row[-1] for row in block.rows]
    below = _has_notes_below(block, look, shared)
    if below:
        block = replace(block, columns=block.columns[:-1], rows=tuple(row[:-1] for row in block.rows))
    table = _table(block, look, shared)
    out = StringIO()
    width = max(look.width, _narrowest(table)) if look.width else UNLIMITED
    rich_console(look, out, UNLIMITED).print(table, width=width)
    if not below:
        return out.getvalue()
    lines = out.getvalue().splitlines()
    n_head = len(lines) - len(notes)  # no other cell has a line break
    made = lines[:n_head]
    for line, note in zip(lines[n_head:], notes, strict=True):
        made.append(line)
        for part in note.splitlines():
            made += textwrap.wrap(
                part, look.width or UNLIMITED, initial_indent="  ", subsequent_indent="  ",
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
    return "\n".join(made) + "\n"


def _shared_widths(blocks: tuple[Block, ...]) -> tuple[int, int]:
    """Return the widths of the first two columns that all tables of metrics share."""
    tables = [block.rows for block in blocks if block.columns[0].kind == "metric"]
    rows = [row for table in tables if _longest(table) <= _LONGEST_NAME for row in table]
    return max([0, *(len(row[0]) for row in rows)]), max([0, *(len(row[1]) for row in rows)])


def _longest(rows: tuple[tuple[str, ...], ...]) -> int:
    """Return the length of the longest name of a table."""
    return max([0, *(len(row[0]) for row in rows)])


def _has_notes_below(block: Block, look: Look, shared: tuple[int, int]) -> bool:
    """Tell whether the last column holds notes, and the others leave too little room for them."""
    from rich.cells import cell_len

    if look.width is None or block.columns[-1].kind != "note" or len(block.columns) == 1:
        return False
    longest = max(cell_len(line) for row in block.rows for line in row[-1].split("\n"))
    others = sum(_least_widths(block, block.rows, shared)[:-1]) + 2 * (len(block.columns) - 1)
    return look.width - others < min(longest, _NARROWEST_NOTE)


def _least_widths(block: Block, rows: tuple[tuple[str, ...], ...], shared: tuple[int, int]) -> list[int]:
    """Return the width in which each column is whole; 0 for notes."""
    from rich.cells import cell_len

    out = []
    aligned = block.columns[0].kind == "metric" and _longest(rows) <= _LONGEST_NAME
    for place, column in enumerate(block.columns):
        words = [*column.header.split("\n"), *(row[place] for row in rows)]
        least = max(map(cell_len, words)) if column.kind != "note" else 0
        out.append(max(least, shared[place]) if aligned and place < len(shared) else least)
    return out


def _narrowest(table: Table) -> int:
    """Return the least width in which no number is cut."""
    from rich.measure import Measurement

    console = rich_console(Look(), StringIO())
    return Measurement.get(console, console.options, table).minimum


def _table(block: Block, look: Look, shared: tuple[int, int]) -> Table:
    """Build the Rich table of one block."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=_rule(look.ascii), padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    rows = _fitted(block, look)
    for column, least in zip(block.columns, _least_widths(block, rows, shared), strict=True):
        table.add_column(
            Text(column.header, style="bold"),
            justify="right" if column.kind == "number" else "left",
            no_wrap=column.kind != "note",
            # Rich itself would break or cut at a space.
            min_width=least,
        )
    for row in rows:
        cells = (
            Text(cell, style=_style(cell, column)) for cell, column in zip(row, block.columns, strict=True)
        )
        table.add_row(*cells)
    return table


def _rule(ascii_only: bool) -> Box:
    """Return a box that draws one line, below the header."""
    from rich.box import Box

    blank, line = "    ", "----" if ascii_only else "────"
    return Box("\n".join([blank, blank, line, blank, blank, blank, blank, blank]), ascii=ascii_only)


def _style(cell: str, column: Column) -> str:
    """Return the style of a cell whose meaning is also in its word."""
    return _STYLES.get(cell.split(" ", 1)[0], "") if column.kind in ("number", "name") else ""


def _fitted(block: Block, look: Look) -> tuple[tuple[str, ...], ...]:
    """Shorten paths on a terminal that is too narrow for them."""
    if not (look.terminal and look.width and block.columns[0].kind == "path"):
        return block.rows
    others = sum(
        2 + max(len(cell) for cell in (*column.header.split("\n"), *(row[place] for row in block.rows)))
        for place, column in enumerate(block.columns)
        if place > 0
    )
    room = max(look.width - others, _SHORTEST_PATH)
    return tuple((shorten(row[0], room, look.ellipsis), *row[1:]) for row in block.rows)
