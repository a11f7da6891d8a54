"""What a ZIP archive must not be, before its members are read."""

from __future__ import annotations

import zipfile
from itertools import pairwise
from typing import TYPE_CHECKING

from ppocli.io import bombs
from ppocli.io.members import stands_in_order

if TYPE_CHECKING:
    from ppocli.io.members import Member

_LOCAL_HEADER_BYTES = 30


def overlapping(archive: zipfile.ZipFile) -> tuple[str, str] | None:
    """Return the names of two members that lie over each other, if there are any.

    Archives that become far larger than they are do so by directory entries that share their data.
    """
    entries = sorted(archive.infolist(), key=lambda one: one.header_offset)
    for one, following in pairwise(entries):
        # At least: the local header's name and extra field lie between.
        if one.header_offset + _LOCAL_HEADER_BYTES + one.compress_size > following.header_offset:
            return one.filename, following.filename
    return None


def check_row(member: Member, path: str, row_tokens: int | None, axes: tuple[int, ...] | None) -> None:
    """Refuse an array whose single row, or whose copy in another order, is out of proportion; see `bombs`.

    Parameters
    ----------
    member : Member
    path : str
        For the message.
    row_tokens : int, optional
        Tokens of a row; None where rows are tokens.
    axes : tuple of int, optional
        The order in which its axes are wanted.

    Raises
    ------
    InputError
    """
    where = f"{path}, member '{member.info.filename}'"
    whole = member.size * member.dtype.itemsize
    row = whole // max(1, member.shape[0]) if row_tokens and member.shape else 0
    bombs.check(row, member.info.compress_size, f"a row of array '{member.name}'", where)
    if not stands_in_order(member, axes):
        bombs.check(whole, member.info.compress_size, f"array '{member.name}', put in order,", where)
