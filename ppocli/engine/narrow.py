"""Columns of log-probs that hold only numbers of a narrow format: looked at until a value says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.engine.blocks import stored, widened_half

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ppocli.engine.blocks import Blocks
    from ppocli.engine.totals import Totals

ROLES = ("log_probs", "old_log_probs", "ref_log_probs")
FORMATS = ("bfloat16", "float16")

LEAST, DISTINCT = 64, 8
"""Fewer values, or fewer different ones, may be numbers of a narrow format by chance."""

FIRST, MOST = 256, 1 << 16
"""Values looked at first, most columns going no further; and then at a time."""


@dataclass(slots=True)
class Narrow:
    """What is known of one column.

    Attributes
    ----------
    formats : tuple of str
        Those that hold every finite value at valid tokens so far.
    n : int
        Such values, as long as there is a format.
    distinct : set of float
        Up to `DISTINCT` of them.
    """

    formats: tuple[str, ...] = FORMATS
    n: int = 0
    distinct: set[float] = field(default_factory=set)

    def add(self, values: NDArray[Any]) -> None:
        """Look at finite values, float32 or float64."""
        self.formats = tuple(name for name in self.formats if _is_held(values, name))
        self.n += values.size
        if self.formats and len(self.distinct) < DISTINCT:
            self._distinguish(np.unique(values).tolist())

    def merge(self, other: Narrow) -> None:
        """Add what is known of the same column in the next file."""
        self.formats = tuple(name for name in self.formats if name in other.formats)
        self.n += other.n
        self._distinguish(sorted(other.distinct))

    def _distinguish(self, values: list[float]) -> None:
        """Keep some of the values that differ."""
        for value in values:
            if len(self.distinct) < DISTINCT:
                self.distinct.add(value)

    @property
    def is_narrow(self) -> bool:
        """Whether the column says something about its format."""
        return bool(self.formats) and self.n >= LEAST and len(self.distinct) >= DISTINCT


def look(blocks: Blocks, totals: Totals) -> None:
    """Look at the columns of log-probs of a span."""
    for role in ROLES:
        if role not in blocks.plan.roles:
            continue
        known = totals.narrow.setdefault(role, Narrow())
        for values in _valid(blocks, role):
            if not known.formats:
                break
            known.add(values)


def _valid(blocks: Blocks, role: str) -> Iterator[NDArray[Any]]:
    """Yield the finite values at valid tokens, few at first."""
    values = stored(blocks.span, role)
    start, stop = 0, min(FIRST, values.size)
    while start < stop:
        some = widened_half(values[start:stop])
        yield some[blocks.counted(start, stop) & np.isfinite(some)]
        start, stop = stop, min(stop + MOST, values.size)


def _is_held(values: NDArray[Any], name: str) -> bool:
    """Whether a format holds all of these finite values."""
    with np.errstate(over="ignore"):
        if name == "float16":
            return bool((values.astype(np.float16) == values).all())
        single = values.astype(np.float32, copy=False)
        return bool(((single.view(np.uint32) & 0xFFFF) == 0).all() and (single == values).all())
