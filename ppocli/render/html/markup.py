"""Markup that text from outside cannot break out of: what is not `Markup` is escaped, attributes always."""

from __future__ import annotations

from html import escape

from ppocli.render.console import printable

VOID = frozenset({"meta", "br"})


class Markup(str):
    """Text that is markup already, because `tag` or `join` made it."""

    __slots__ = ()


Child = str | None
"""What stands inside an element: markup, or text that is going to be escaped; None: nothing."""


def text(value: str) -> Markup:
    """Return text as markup: special characters escaped, quotes too, what does not show as an escape."""
    return value if isinstance(value, Markup) else Markup(escape(printable(value), quote=True))


def lines(value: str) -> Markup:
    """Return text of several lines, with breaks between them."""
    return Markup("<br>".join(text(line) for line in value.split("\n")))


def breakable(path: str) -> Markup:
    """Return a path that may be broken after each folder."""
    return Markup("/<wbr>".join(text(part) for part in path.split("/")))


def join(*children: Child) -> Markup:
    """Return elements and texts one after the other."""
    return Markup("".join(text(one) for one in children if one is not None))


def tag(name: str, /, *children: Child, **attributes: str | int | None) -> Markup:
    """Return an element.

    Parameters
    ----------
    attributes : str, int or None
        `class_` stands for class, `aria_label` for aria-label; None: left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def raw_style(css: str) -> Markup:
    """Return the style sheet of the page; it is ours and holds no text from outside."""
    return Markup(f"<style>{css}</style>")
