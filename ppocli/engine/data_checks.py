"""What columns say about themselves and each other: narrow formats, and returns = advantages + values.

Places are counted in blocks from the start of a file, so that nothing depends on how it was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.engine.blocks import stored
from ppocli.engine.scan import is_exact
from ppocli.kernels import layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppocli.core.report import Place
    from ppocli.engine.blocks import Blocks
    from ppocli.engine.totals import Floats

LOG_PROBS = ("log_probs", "old_log_probs", "ref_log_probs")
NARROW = ("bfloat16", "float16")
"""Formats that may hold all values of a wider column; bfloat16 first, whose log-probs float16 often holds."""

ONE_BLOCK_IN = 64
"""A narrow column is looked at in every 64th block; any other is found out by the first."""
DISTINCT = 32
"""Fewer different values may be round numbers typed by hand."""

ROUNDING = 1e-4
"""Share of |returns| + |values| by which the identity of a token may be off in float32."""
RUN = 32 * layout.BLOCK
PAIRS_IN, PAIR_BLOCKS, MOST_PAIRS = 16, 32, 1 << 18
"""For a linear relation every 16th block of a file is kept, 32 at most, and so many tokens of a run."""


@dataclass(slots=True, eq=False)
class Narrow:
    """A wide column whose values may all be numbers of a narrow format.

    Attributes
    ----------
    formats : list of str
        Formats that held every value looked at so far.
    looked : int
        Values looked at.
    """

    formats: list[str] = field(default_factory=lambda: list(NARROW))
    looked: int = 0
    distinct: Floats = field(default_factory=lambda: np.zeros(0))

    def add(self, values: np.typing.NDArray[Any]) -> None:
        """Look at some finite values."""
        if not values.size:
            return
        self.formats = [name for name in self.formats if is_exact(values, name)]
        self.looked += values.size
        if self.formats and self.distinct.size < DISTINCT:
            self.distinct = np.union1d(self.distinct, values)[:DISTINCT]


@dataclass(slots=True, eq=False)
class NarrowFound:
    """Files in which a column is narrow: how many, how many values were looked at, and the first."""

    format: str
    looked: int
    files: int
    where: Place


@dataclass(slots=True, eq=False)
class Identity:
    """How far returns are from advantages + values, old ones if there are.

    Attributes
    ----------
    n, n_off : int
        Tokens with all three finite, and those that are off by more than rounding.
    largest : float
        The largest |returns - advantages - values| of those that are off, at `where`.
    pairs : (2, n_pairs) float64
        Advantages, and returns - values, of a sample of the tokens.
    """

    n: int = 0
    n_off: int = 0
    largest: float = 0.0
    where: Place | None = None
    pairs: Floats = field(default_factory=lambda: np.zeros((2, 0)))

    def merge(self, other: Identity) -> None:
        """Add the next file."""
        self.n += other.n
        self.n_off += other.n_off
        if other.largest > self.largest:
            self.largest, self.where = other.largest, other.where
        self.pairs = np.concatenate([self.pairs, other.pairs], axis=1)[:, :MOST_PAIRS]


@dataclass(slots=True, eq=False)
class DataChecks:
    """What was seen in a file, or in the files of a run.

    Attributes
    ----------
    columns : mapping of role to Narrow
        Of the file that is read.
    narrow : mapping of role to NarrowFound
        Of files that have been read.
    identity : Identity
    """

    columns: dict[str, Narrow] = field(default_factory=dict)
    narrow: dict[str, NarrowFound] = field(default_factory=dict)
    identity: Identity = field(default_factory=Identity)

    def look(self, blocks: Blocks, place: Callable[[int], Place]) -> None:
        """Look at the blocks of a span; `place` leads from a token's index in the file to its place."""
        for role in LOG_PROBS:
            if role in blocks.plan.roles:
                self._look_narrow(role, blocks)
        roles = blocks.plan.roles
        prediction = next((role for role in ("old_values", "values") if role in roles), None)
        if prediction and {"advantages", "returns"} <= roles:
            for start in range(0, blocks.span.n_tokens, RUN):
                self._look_identity(prediction, blocks, start, place)

    def finish(self, where: Place) -> None:
        """Decide what the columns of a file are; `where` is its first row."""
        for role, column in self.columns.items():
            if column.formats and column.distinct.size >= DISTINCT:
                self.narrow[role] = NarrowFound(column.formats[0], column.looked, 1, where)
        self.columns = {}

    def merge(self, other: DataChecks) -> None:
        """Add the checks of the next file."""
        self.identity.merge(other.identity)
        for role, found in other.narrow.items():
            known = self.narrow.setdefault(role, NarrowFound(found.format, 0, 0, found.where))
            known.looked += found.looked
            known.files += found.files

    def _look_narrow(self, role: str, blocks: Blocks) -> None:
        """Look at every 64th block of a float32 or float64 column, until a value needs its width."""
        column = self.columns.setdefault(role, Narrow())
        if not column.formats:
            return
        values = stored(blocks.span, role)
        if values.dtype not in (np.float32, np.float64):
            column.formats = []  # as its type says
            return
        first = -(blocks.span.origin // layout.BLOCK) % ONE_BLOCK_IN
        for block in range(first, blocks.n, ONE_BLOCK_IN):
            start, stop = blocks.tokens_of(block)
            part = values[start:stop]
            column.add(part[np.isfinite(part) & blocks.counted(start, stop)])

    def _look_identity(
        self, prediction: str, blocks: Blocks, start: int, place: Callable[[int], Place]
    ) -> None:
        """Compare returns with advantages + values at some tokens."""
        stop = min(start + RUN, blocks.span.n_tokens)
        one = self.identity
        advantages, returns, values = (
            blocks.widened(role, start, stop) for role in ("advantages", "returns", prediction)
        )
        with np.errstate(invalid="ignore", over="ignore"):
            difference = returns - values
            error = np.abs(difference - advantages)
            counted = blocks.counted(start, stop) & np.isfinite(error)
            off = (error > ROUNDING * (np.abs(returns) + np.abs(values))) & counted
        one.n += int(np.count_nonzero(counted))
        n_off = int(np.count_nonzero(off))
        if n_off:
            one.n_off += n_off
            error[~off] = 0.0
            at = int(error.argmax())
            if error[at] > one.largest:
                one.largest, one.where = float(error[at]), place(blocks.span.origin + start + at)
        for block in range((blocks.span.origin + start) // layout.BLOCK, PAIRS_IN * PAIR_BLOCKS):
            a = block * layout.BLOCK - blocks.span.origin - start
            if a >= stop - start:
                break
            if block % PAIRS_IN == 0:
                part = slice(a, a + layout.BLOCK)
                keep = counted[part]
                pairs = np.stack([advantages[part][keep], difference[part][keep]])
                one.pairs = np.concatenate([one.pairs, pairs], axis=1)
