"""Whether two streams of chunks hold the same rows, bit for bit, however they are cut."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.engine.span import Assembler

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.chunk import Chunk

Arrays = dict[str, "NDArray[Any]"]

_BLOCK = 1 << 16


def difference(source: Iterable[Chunk], written: Iterable[Chunk]) -> str | None:
    """Return the first difference, or None.

    Values are compared by their bits after those of `source` are widened to the type of `written`, which is
    exact; what stands at a null is not compared. Ids must have been coded by the same coders.

    Parameters
    ----------
    source, written : iterable of Chunk
        Read with `repeat=True`.
    """
    lengths = hashlib.sha256(), hashlib.sha256()
    at = 0
    for one, other in zip_longest(_pieces(source, lengths[0]), _pieces(written, lengths[1])):
        if one is None or other is None:
            return f"the numbers of tokens differ: one has {at:,}, the other has more"
        if found := _first(one, other, at):
            return found
        at += _count(one)
    if lengths[0].digest() != lengths[1].digest():
        return "the lengths of the rows differ"
    return None


def _pieces(chunks: Iterable[Chunk], lengths: Any) -> Iterator[Arrays]:
    """Yield the tokens of chunks, `_BLOCK` at a time; hash the lengths of the rows."""
    assembler = Assembler(_BLOCK)

    def spans() -> Iterator[Any]:
        for chunk in chunks:
            if chunk.offsets is not None:
                lengths.update(np.diff(chunk.offsets).astype("<i8").tobytes())
            yield from assembler.push(chunk)
        yield from assembler.finish()

    for span in spans():
        for start in range(0, span.n_tokens, _BLOCK):
            yield {name: array[start : start + _BLOCK] for name, array in span.arrays.items()}


def _count(arrays: Arrays) -> int:
    """Return the number of tokens of a piece."""
    return next((array.size for array in arrays.values()), 0)


def _first(one: Arrays, other: Arrays, at: int) -> str | None:
    """Return the first difference of two pieces that begin at token `at`."""
    if _count(one) != _count(other):
        return f"the numbers of tokens differ from token {at:,} on"
    count = _count(one)
    every = np.ones(count, np.uint8)
    for name in dict.fromkeys([*one, *other]):
        if name == "mask" or name.endswith(" present"):
            same = one.get(name, every) == other.get(name, every)
        elif name not in one or name not in other:
            return f"'{name}' is missing in one of the two"
        else:
            wanted, got = _as(one[name], other[name].dtype), other[name]
            same = wanted.view(f"u{wanted.itemsize}") == got.view(f"u{got.itemsize}")
            same |= one.get(f"{name} present", every) == 0
        if not same.all():
            return f"'{name}' differs at token {at + int(np.argmin(same)):,}"
    return None


def _as(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values in a wider type; unsigned 16 bits are bfloat16."""
    if values.dtype == np.uint16 and dtype != np.uint16:
        values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.ascontiguousarray(values.astype(dtype, copy=False))
