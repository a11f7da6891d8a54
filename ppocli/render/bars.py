"""Bars made of block characters, or of ASCII."""

from __future__ import annotations

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
