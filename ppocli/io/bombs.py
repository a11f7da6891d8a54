"""Files that are small and become large: what has to be in memory at once must be in proportion to the file.

Readers work in blocks, so a large file is no trouble. What cannot be read in parts (a Parquet page, a
compressed record batch, one row) is refused where it is large and next to nothing is stored for it.
"""

from __future__ import annotations

from ppocli.errors import InputError

MOST_AT_ONCE = 1 << 28
"""Bytes that one piece may take whatever is stored for it."""

RATIO = 100
"""Beyond that, a piece may be so many times larger than what is stored for it. Log-probs compress to half."""


def check(declared: int, stored: int, what: str, where: str) -> None:
    """Refuse a piece that would take much memory and is next to nothing in the file.

    Parameters
    ----------
    declared, stored : int
        Bytes in memory, and in the file.
    what, where : str
        The piece and its place, for the message.

    Raises
    ------
    InputError
    """
    if declared > MOST_AT_ONCE and declared > RATIO * stored:
        raise InputError(
            f"{what} would take {declared:,} bytes of memory at once, and {stored:,} bytes are stored for it",
            where=where,
            hint="such a file is made to fill the memory, or all its values are equal: write smaller pieces",
        )
