"""The tables of metrics by step, file or another column: trends, then one row for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.core.trend import label_of, trends
from ppocli.render.bars import sparkline
from ppocli.render.blocks import Block, Column
from ppocli.render.console import printable
from ppocli.render.numbers import cell_text, count_text, number_text, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppocli.core.report import EvalReport, Group, NullNote, Number

COLUMNS = ("n_tokens", "policy_loss", "clip_frac", "approx_kl_k3")
MOST_ROWS = 50
"""Groups with a row of their own on the screen; of more, the first and the last, or the worst if sorted."""

SPARKS = 12
"""Characters of a trend."""
TREND_DIGITS = 5
"""Digits of the ends of a trend: with more, the table does not fit into 80 columns."""


def group_blocks(report: EvalReport, digits: int, sort: str | None, *, ascii_only: bool) -> Iterator[Block]:
    """Yield the tables of a report with groups: trends where they have an order, then the rows."""
    groups = report.groups
    if len(groups) < 2:
        return
    by = next(iter(groups[0].key))
    if by != "file":
        yield _trends(groups, digits, ascii_only=ascii_only)
    yield _rows(report, by, digits, sort)


def _trends(groups: tuple[Group, ...], digits: int, *, ascii_only: bool) -> Block:
    """Return one row for each metric: its course, both ends, and the largest change with its place."""
    ordered, digits = in_order_of_keys(groups), min(digits, TREND_DIGITS)
    by = next(iter(groups[0].key))
    over = plural(len(groups), "step") if by == "step" else f"{count_text(len(groups))} values"
    columns = (
        Column(f"over {over}"),
        Column("trend"),
        Column("first", "number"),
        Column("last", "number"),
        Column("largest\nchange", "number"),
        Column(f"at\n{printable(by)}", "number"),
    )
    rows = []
    for one in trends(ordered):
        first, last = one.ends
        rows.append(
            (
                one.name,
                sparkline(one.values, SPARKS, ascii_only=ascii_only),
                cell_text(first, digits),
                cell_text(last, digits),
                "" if one.largest is None else signed(one.largest, digits),
                "" if one.at is None else printable(label_of(one.at)),
            )
        )
    return Block(columns, tuple(rows))


def in_order_of_keys(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Return groups in the order they were found in, whatever they are sorted by: numbers, text, null."""

    def place(one: Group) -> tuple[int, float, str]:
        value = next(iter(one.key.values()))
        if value is None:
            return 2, 0, ""
        return (0, value, "") if isinstance(value, int) else (1, 0, str(value))

    return tuple(sorted(groups, key=place))


def signed(value: float, digits: int) -> str:
    """Return a change: +0.25, -0.1, 0."""
    text = count_text(value) if isinstance(value, int) else number_text(value, digits)
    return f"+{text}" if value > 0 else text


def _rows(report: EvalReport, by: str, digits: int, sort: str | None) -> Block:
    """Return the table with one row for each group, then the total."""
    names = [name for name in COLUMNS if name in report.metrics]
    changed = sort if sort is not None else "policy_loss"
    if sort is not None and sort not in names and sort in report.metrics:
        names.append(sort)
    columns = [Column(printable(by), "path" if by == "file" else "name")]
    for name in names:
        columns.append(Column("tokens" if name == "n_tokens" else name, "number"))
        if name == changed and by != "file":
            columns.append(Column("change", "number"))

    def cells(label: str, one: EvalReport | Group) -> tuple[str, ...]:
        out = [label]
        for name in names:
            out.append(value_cell(one.metrics.get(name), one.nulls.get(name), digits))
            if name == changed and by != "file":
                change = getattr(one, "change", {}).get(name)
                out.append("" if change is None else signed(change, digits))
        return tuple(out)

    groups = report.groups
    rows = [cells(printable(label_of(one.key)), one) for one in groups]
    if len(rows) > MOST_ROWS and by != "file":
        hidden = (f"{len(rows) - MOST_ROWS:,} more", *("" for _ in columns[1:]))
        half = MOST_ROWS if sort is not None else MOST_ROWS // 2
        rows = [*rows[:half], hidden, *(rows[half - MOST_ROWS :] if half < MOST_ROWS else [])]
    title = f"-f csv has all {len(groups):,} rows" if len(groups) > MOST_ROWS and by != "file" else ""
    return Block(tuple(columns), (*rows, cells("total", report)), title)


def value_cell(value: Number, note: NullNote | None, digits: int) -> str:
    """Return one value; a null says which non-finite value the arithmetic would have given."""
    word = f" ({note.nonfinite})" if value is None and note is not None and note.nonfinite else ""
    return cell_text(value, digits) + word
