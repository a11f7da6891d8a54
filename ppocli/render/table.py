"""Screens for the terminal: Rich tables that never cut a number."""

from __future__ import annotations

import textwrap
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


def eval_table(
    report: EvalReport, look: Look, *, digits: int = 6, sort: str | None = None, hist: bool = False
) -> str:
    """Return the screen of `ppocli eval` as text that ends with a newline.

    Designed for 80 columns. Where there are fewer, notes wrap, on a terminal paths lose their middle, and
    what still does not fit makes the lines longer: numbers are whole at any width.
    """
    from ppocli.render.screen import eval_screen

    return draw(eval_screen(report, digits, sort, hist=hist, ascii_only=look.ascii), look)


def draw(screen: Screen, look: Look) -> str:
    """Return the header lines and tables of a screen as text."""
    from rich.text import Text

    widths = _shared_widths(screen.blocks)
    tables = [_table(block, look, widths) for block in screen.blocks]
    out = StringIO()
    console = rich_console(look, out, UNLIMITED)
    for number, line in enumerate(screen.header):
        console.print(Text(_wrapped(line, look), style="bold" if number == 0 else ""))
    for block, table in zip(screen.blocks, tables, strict=True):
        console.print()
        if block.title:
            console.print(Text(block.title, style="bold"))
        if block.rows:
            console.print(table, width=max(look.width, _narrowest(table)) if look.width else UNLIMITED)
        else:
            lines = block.text.split("\n")
            console.print(Text("\n".join(lines if block.to_type else [_wrapped(one, look) for one in lines])))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def _wrapped(line: str, look: Look) -> str:
    """Break a line at spaces only: a path or a number wider than the screen stays whole."""
    if look.width is None:
        return line
    return "\n".join(textwrap.wrap(line, look.width, break_long_words=False, break_on_hyphens=False))


def _shared_widths(blocks: tuple[Block, ...]) -> tuple[int, int]:
    """Return the widths of the first two columns that all tables of metrics share."""
    rows = [row for block in blocks if block.columns[0].kind == "metric" for row in block.rows]
    return max([0, *(len(row[0]) for row in rows)]), max([0, *(len(row[1]) for row in rows)])


def _narrowest(table: Table) -> int:
    """Return the least width in which no number is cut."""
    from rich.measure import Measurement

    console = rich_console(Look(), StringIO())
    return Measurement.get(console, console.options, table).minimum


def _table(block: Block, look: Look, shared: tuple[int, int]) -> Table:
    """Build the Rich table of one block."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    table = Table(box=_rule(look.ascii), padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    rows = _fitted(block, look)
    for place, column in enumerate(block.columns):
        words = [*column.header.split("\n"), *(row[place] for row in rows)]
        least = max(map(cell_len, words)) if column.kind != "note" else 0
        if block.columns[0].kind == "metric" and place < len(shared):
            least = max(least, shared[place])
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
