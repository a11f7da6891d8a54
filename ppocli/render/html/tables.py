"""Tables of a page: those of the screens, and the definitions behind the names of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.core.metrics import METRICS, Metric
from ppocli.render.blocks import Block, Column
from ppocli.render.html.markup import Markup, join, lines, tag, text

UNITS = {"nats": "nats", "fraction": "a fraction, 0 to 1", "ratio": "a ratio", "count": "a count"}

Define = Callable[[str], str | None]
"""Gives the definition of a metric, or None for what is no metric."""


def definition(name: str) -> str | None:
    """Return what a metric of `eval` is, with its unit."""
    return _said(METRICS, name)


def drift_definition(name: str) -> str | None:
    """Return what a metric of `drift` is, with its unit; some have the name of one of `eval`."""
    return _said(DRIFT_METRICS, name)


def _said(catalogue: Mapping[str, Metric], name: str) -> str | None:
    base = name.removesuffix("_finite")
    metric = catalogue.get(base)
    if metric is None:
        return None
    unit = f"; {UNITS[metric.unit]}" if metric.unit else ""
    finite = "over the tokens whose columns are finite: " if base != name else ""
    return f"{finite}{metric.text}{unit}"


class Terms:
    """Names with their definition on hover and focus; numbered, so that every id of a page is unique."""

    def __init__(self, define: Define = definition) -> None:
        self.define = define
        self._n = 0

    def term(self, name: str, define: Define | None = None) -> Markup:
        """Return a name; its definition shows beside it, also to a keyboard and to a screen reader."""
        meaning = (define or self.define)(name)
        if meaning is None:
            return tag("span", name, class_="name")
        self._n += 1
        tip = f"d{self._n}"
        return tag(
            "span",
            tag("span", meaning, class_="tip", role="tooltip", id=tip),
            tag("dfn", name, tabindex="0", aria_describedby=tip),
            class_="term",
        )


def cell(value: str) -> Markup:
    """Return the content of a cell; a null stands out."""
    word, _, rest = value.partition(" ")
    if word == "null":
        return join(tag("span", word, class_="null"), f" {rest}" if rest else None)
    return lines(value)


def block_table(block: Block, terms: Terms, *, define: Define | None = None) -> Markup:
    """Return a table of a screen; without rows its text."""
    if not block.rows:
        return tag("p", lines(block.text))
    if block.columns[0].kind == "metric" and [one.kind for one in block.columns[1:]] == ["number", "note"]:
        return _metrics(block, terms, define)
    body = [
        tag("tr", *(
            _cell(column, value, terms if k == 0 and column.kind == "metric" else None, define)
            for k, (column, value) in enumerate(zip(block.columns, row, strict=True))
        ))
        for row in block.rows
    ]  # fmt: skip
    head = [_head(column) for column in block.columns]
    return scroll(
        tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body)),
        block.title or block.columns[0].header,
    )


def _head(column: Column) -> Markup:
    return tag("th", column.header.replace("\n", " "), scope="col", class_=_kind(column))


def _kind(column: Column) -> str | None:
    return {"number": "number", "note": "note", "name": "keep", "path": "keep"}.get(column.kind)


def _cell(column: Column, value: str, terms: Terms | None, define: Define | None) -> Markup:
    if terms is not None:
        return tag("td", terms.term(value, define), class_="name")
    return tag("td", cell(value), class_=_kind(column))


def _metrics(block: Block, terms: Terms, define: Define | None) -> Markup:
    """Return a table of metrics; on a phone its notes stand below, so its roles are written out."""
    rows = [
        tag(
            "tr",
            tag("td", terms.term(name, define), class_="name", role="cell"),
            tag("td", cell(value), class_="number", role="cell"),
            tag("td", lines(note), class_="note", role="cell"),
            role="row",
        )
        for name, value, note in block.rows
    ]
    heads = [
        tag("th", column.header, scope="col", role="columnheader", class_=_kind(column))
        for column in block.columns
    ]
    head = tag("thead", tag("tr", *heads, role="row"), role="rowgroup")
    return tag("table", head, tag("tbody", *rows, role="rowgroup"), class_="metrics", role="table")


def plain_table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> Markup:
    """Return a table of texts and numbers.

    Parameters
    ----------
    numbers : iterable of int
        Columns of numbers, counted from 0.
    """
    right = set(numbers)

    def of(k: int) -> str | None:
        return "number" if k in right else None

    body = [
        tag("tr", *(tag("td", cell(one) if not isinstance(one, Markup) else one, class_=of(k))
                    for k, one in enumerate(row)))
        for row in rows
    ]  # fmt: skip
    head = tag("tr", *(tag("th", one, scope="col", class_=of(k)) for k, one in enumerate(heads)))
    return tag("table", tag("thead", head), tag("tbody", *body))


def stacked(heads: Sequence[tuple[str, str | None]], rows: Iterable[Sequence[Markup | str]]) -> Markup:
    """Return a table whose rows are paragraphs on a phone, where its roles are written out.

    Parameters
    ----------
    heads : sequence of (text, class)
        There a cell of class "number" or "named" says what it is; one of class "text" has its own line.
    """
    body = [
        tag("tr", *(
            tag("td", one if isinstance(one, Markup) else cell(one), class_=kind, role="cell",
                data_head=head if kind in ("number", "named") else None)
            for one, (head, kind) in zip(row, heads, strict=True)
        ), role="row")
        for row in rows
    ]  # fmt: skip
    top = [tag("th", head, scope="col", role="columnheader", class_=kind) for head, kind in heads]
    head = tag("thead", tag("tr", *top, role="row"), role="rowgroup")
    return tag("table", head, tag("tbody", *body, role="rowgroup"), class_="stack", role="table")


def scroll(table: Markup, label: str) -> Markup:
    """Return a table in a box that scrolls sideways by itself, also by keyboard."""
    return tag(
        "div",
        table,
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=label.replace("\n", " ") or "table",
    )


def headed(block: Block) -> tuple[str, Block]:
    """Return the heading of a table, and the table: one of metrics has its heading above the names."""
    if block.title or block.columns[0].kind != "metric":
        return block.title, block
    first, *others = block.columns
    return first.header, replace(block, columns=(Column("name", "metric"), *others))


def block_card(block: Block, terms: Terms, define: Define | None = None) -> Markup:
    """Return a table of a screen in a box, under its heading."""
    title, table = headed(block)
    return card(block_table(table, terms, define=define), title=title[:1].upper() + title[1:])


def text_card(blocks: Iterable[Block]) -> Markup | None:
    """Return what some blocks say in words in one box, or nothing."""
    said = [tag("p", lines(block.text), class_="soft") for block in blocks if block.text]
    return card(*said) if said else None


def card(*children: str | None, title: str = "", class_: str = "card", **attributes: str | None) -> Markup:
    """Return a box with a heading."""
    return tag("div", tag("h3", title) if title else None, *children, class_=class_, **attributes)


def folded(summary: str, *children: str) -> Markup:
    """Return what is shown when asked for."""
    return tag("details", tag("summary", summary), *children)


def listed(items: Iterable[str]) -> Markup | None:
    """Return lines of text one below the other, or nothing."""
    made = [tag("li", text(one)) for one in items]
    return tag("ul", *made, class_="lines") if made else None
