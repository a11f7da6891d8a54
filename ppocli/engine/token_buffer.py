"""Tokens that are kept until there are enough of them to be sorted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppocli.engine.totals import returned_zeros

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array = NDArray[Any]


class TokenBuffer:
    """Arrays with room for a fixed number of tokens, which are used again once they were taken out.

    Kept as they come and joined in the end, the same tokens take up to twice the memory.

    Parameters
    ----------
    capacity : int
        Tokens at most.
    types : mapping of name to dtype
        Types of arrays that are kept in another than they come in.

    Attributes
    ----------
    n : int
        Tokens so far.
    """

    def __init__(self, capacity: int, types: Mapping[str, Any]) -> None:
        self.capacity, self.types, self.n = capacity, types, 0
        self._arrays: dict[str, Array] = {}

    def add(self, arrays: Mapping[str, Array], start: int, n: int) -> None:
        """Copy n tokens, from one on; there is room for them.

        An array that other tokens have and these lack, or that only later ones have, is 1 there: present, or
        counted.
        """
        place = slice(self.n, self.n + n)
        for name, values in arrays.items():
            if name not in self._arrays:
                kept = returned_zeros((self.capacity,), self.types.get(name, values.dtype))
                kept[: self.n] = 1
                self._arrays[name] = kept
            self._arrays[name][place] = values[start : start + n]
        for name in self._arrays.keys() - arrays.keys():
            self._arrays[name][place] = 1
        self.n += n

    def take(self) -> dict[str, Array]:
        """Return the tokens, which stand there until the next are added, and begin again."""
        n, self.n = self.n, 0
        return {name: kept[:n] for name, kept in self._arrays.items()}
