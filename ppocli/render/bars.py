"""Bars of a histogram, in characters that every terminal has."""

from __future__ import annotations

WIDTH = 24


def bar(n: int, most: int, width: int = WIDTH) -> str:
    """Return a bar for n of at most `most`; at least one character where there is anything."""
    if n <= 0 or most <= 0:
        return ""
    return "#" * max(1, round(width * n / most))
