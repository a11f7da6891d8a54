"""Bars and lines made of block characters, or of ASCII."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉"
FULL, ASCII_FULL = "█", "#"


def bar(share: float, width: int, *, ascii_only: bool = False) -> str:
    """Return a bar for a share of the longest one, 0 to 1; whatever is not 0 shows.

    Parameters
    ----------
    width : int
        Characters of the longest bar.
    ascii_only : bool
        Whole characters only, without eighths.
    """
    if not share > 0.0:
        return ""
    if ascii_only:
        return ASCII_FULL * max(round(share * width), 1)
    eighths = max(round(share * width * 8), 1)
    return FULL * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


_LEVELS, _ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.,-=+*#"
_ABSENT, _ASCII_ABSENT = "×", "x"


def sparkline(values: Sequence[float | int | None], width: int, *, ascii_only: bool = False) -> str:
    """Return a series as a line of at most `width` characters, the smallest value low and the largest high.

    Where several values share a character it shows the one that is furthest from the median of all, so that a
    single outlier is seen. Null is a cross. A series that does not vary stands at half height.
    """
    known = sorted(value for value in values if value is not None)
    levels, absent = (_ASCII_LEVELS, _ASCII_ABSENT) if ascii_only else (_LEVELS, _ABSENT)
    if not known:
        return absent * min(len(values), width)
    low, high, middle = known[0], known[-1], known[len(known) // 2]
    span = high / 2 - low / 2  # of halves: the whole one may overflow
    out = []
    for part in _parts(values, width):
        there = [value for value in part if value is not None]
        if not there:
            out.append(absent)
            continue
        value = max(there, key=lambda one: abs(one - middle))
        share = (value / 2 - low / 2) / span if span else 0.5
        out.append(levels[min(int(share * len(levels)), len(levels) - 1)] if math.isfinite(share) else absent)
    return "".join(out)


def _parts(values: Sequence[float | int | None], width: int) -> Sequence[Sequence[float | int | None]]:
    """Cut a series into at most `width` parts of about the same length."""
    n = min(len(values), width)
    return [values[k * len(values) // n : (k + 1) * len(values) // n] for k in range(n)]
