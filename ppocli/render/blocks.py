"""What a screen is made of: header lines and small tables, to be drawn for a terminal or as Markdown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    kind : {"metric", "name", "number", "note", "path"}
        Tables that begin with a "metric" column are aligned with each other; a "note" may wrap, a "path" may
        be shortened.
    """

    header: str
    kind: str = "name"


@dataclass(frozen=True, slots=True)
class Block:
    """A small table; without rows its `text` is shown instead, its lines unbroken if they are to be typed."""

    columns: tuple[Column, ...] = (Column(""),)
    rows: tuple[tuple[str, ...], ...] = ()
    title: str = ""
    text: str = ""
    to_type: bool = False


@dataclass(frozen=True, slots=True)
class Screen:
    """Header lines, then tables."""

    header: tuple[str, ...]
    blocks: tuple[Block, ...]
