"""What columns say about themselves and each other: narrow formats, and returns = advantages + values.

Places are counted in blocks from the start of a file, so that nothing depends on how it was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.engine.blocks import stored, widened_half
from ppocli.engine.exact import is_exact
from ppocli.kernels import layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppocli.core.report import Place
    from ppocli.engine.blocks import Blocks
    from ppocli.engine.totals import Floats

LOG_PROBS = ("log_probs", "old_log_probs", "ref_log_probs")
NARROW = ("bfloat16", "float16")
"""Formats that may hold all values of a wider column; bfloat16 first, whose log-probs float16 often holds."""
FORMATS = (*NARROW, "float32")

ONE_BLOCK_IN = 64
"""How often a narrow column is looked at; any other is found out by the first block."""
DISTINCT = 32
"""Fewer different values may be round numbers typed by hand."""

ROUNDING = 1e-4
"""Share of |returns| + |values| by which the identity of a token may be off in float32."""
TOGETHER = 8
"""Blocks that are compared at a time: 64 kB of each column stay in the cache."""
PAIR_BLOCKS, MOST_PAIRS = 32 * ONE_BLOCK_IN, 1 << 18
"""Of so many blocks of a file every 64th is kept for a correlation, and so many tokens of a run."""


@dataclass(slots=True, eq=False)
class Narrow:
    """A column whose values may all be numbers of a narrow format, whatever the type that holds them.

    Attributes
    ----------
    formats : list of str
        Formats that held every value looked at so far.
    looked : int
        Values looked at.
    """

    formats: list[str] = field(default_factory=lambda: list(FORMATS))
    looked: int = 0
    distinct: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def is_narrow(self) -> bool:
        """Whether a 16-bit format held every value."""
        return bool(self.formats) and self.formats[0] in NARROW

    def add(self, values: np.typing.NDArray[Any]) -> None:
        """Look at some finite values."""
        if not values.size:
            return
        self.formats = [name for name in self.formats if is_exact(values, name)]
        self.looked += values.size
        if self.is_narrow and self.distinct.size < DISTINCT:
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
        Tokens with all three finite that were compared, and those that are off by more than rounding.
    holds : bool, optional
        Whether it holds at half of the first tokens of the file that is read, or more. If not, every 64th
        block is compared.
    largest : float
        The largest |returns - advantages - values| of those that are off, at `where`.
    pairs : (2, n_pairs) float64
        Advantages, and returns - values, of a sample of the tokens.
    """

    n: int = 0
    n_off: int = 0
    holds: bool | None = None
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
    formats : mapping of role to list of str
        Of `FORMATS` those that held every value looked at in all files; however the values were stored.
    identity : Identity
    """

    columns: dict[str, Narrow] = field(default_factory=dict)
    narrow: dict[str, NarrowFound] = field(default_factory=dict)
    formats: dict[str, list[str]] = field(default_factory=dict)
    identity: Identity = field(default_factory=Identity)

    def look(self, blocks: Blocks, place: Callable[[int], Place]) -> None:
        """Look at the blocks of a span; `place` leads from a token's index in the file to its place."""
        for role in LOG_PROBS:
            if role in blocks.plan.roles:
                self._look_narrow(role, blocks)
        roles = blocks.plan.roles
        prediction = next((role for role in ("old_values", "values") if role in roles), None)
        if prediction and {"advantages", "returns"} <= roles:
            self._look_identity(prediction, blocks, place)

    def finish(self, where: Place) -> None:
        """Decide what the columns of a file are; `where` is its first row."""
        for role, column in self.columns.items():
            if column.looked:
                self.formats[role] = column.formats
            if column.is_narrow and column.distinct.size >= DISTINCT:
                self.narrow[role] = NarrowFound(column.formats[0], column.looked, 1, where)
        self.columns = {}

    def merge(self, other: DataChecks) -> None:
        """Add the checks of the next file."""
        self.identity.merge(other.identity)
        for role, found in other.narrow.items():
            known = self.narrow.setdefault(role, NarrowFound(found.format, 0, 0, found.where))
            known.looked += found.looked
            known.files += found.files
        for role, formats in other.formats.items():
            self.formats[role] = [name for name in self.formats.get(role, FORMATS) if name in formats]

    def _look_narrow(self, role: str, blocks: Blocks) -> None:
        """Look at every 64th block of a column, until a value needs its width."""
        column = self.columns.setdefault(role, Narrow())
        values = stored(blocks.span, role)
        if not column.formats or (values.dtype == np.float32 and column.formats == ["float32"]):
            return
        first = -(blocks.span.origin // layout.BLOCK) % ONE_BLOCK_IN
        for block in range(first, blocks.n, ONE_BLOCK_IN):
            start, stop = blocks.tokens_of(block)
            part = widened_half(values[start:stop])
            column.add(part[np.isfinite(part) & blocks.counted(start, stop)])

    def _look_identity(self, prediction: str, blocks: Blocks, place: Callable[[int], Place]) -> None:
        """Compare returns with advantages + values: everywhere where the file begins so, else in a sample."""
        one, first = self.identity, blocks.span.origin // layout.BLOCK
        roles = "advantages", "returns", prediction
        for block in range(-first % ONE_BLOCK_IN, min(blocks.n, PAIR_BLOCKS - first), ONE_BLOCK_IN):
            advantages, difference, keep = _widened(blocks, roles, *blocks.tokens_of(block))
            one.pairs = np.concatenate([one.pairs, np.stack([advantages[keep], difference[keep]])], axis=1)
        block = 0
        while block < blocks.n:
            together = 1
            if one.holds:
                together = min(TOGETHER, blocks.n - block)
            elif one.holds is False and (first + block) % ONE_BLOCK_IN:
                block += -(first + block) % ONE_BLOCK_IN
                continue
            start, stop = blocks.tokens_of(block)[0], blocks.tokens_of(block + together - 1)[1]
            n = _all_near(blocks, roles, start, stop) if one.holds else None
            if n is None:
                self._compare(blocks, roles, start, stop, place)
            else:
                one.n += n
            block += together

    def _compare(
        self, blocks: Blocks, roles: tuple[str, ...], start: int, stop: int, place: Callable[[int], Place]
    ) -> None:
        """Count and locate tokens that are off."""
        one = self.identity
        advantages, difference, counted = _widened(blocks, roles, start, stop)
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(difference - advantages)
            sizes = [np.abs(blocks.widened(role, start, stop)) for role in roles[1:]]
            off = (error > ROUNDING * sizes[0] + ROUNDING * sizes[1]) & counted
        n, n_off = int(np.count_nonzero(counted)), int(np.count_nonzero(off))
        one.n += n
        one.n_off += n_off
        if one.holds is None and n:
            one.holds = 2 * n_off <= n
        if n_off:
            at = int(np.where(off, error, 0.0).argmax())
            if error[at] > one.largest:
                one.largest, one.where = float(error[at]), place(blocks.span.origin + start + at)


def _widened(
    blocks: Blocks, roles: tuple[str, ...], start: int, stop: int
) -> tuple[Floats, Floats, np.typing.NDArray[np.bool_]]:
    """Return advantages, returns - values, and which tokens count and have all three."""
    advantages, returns, values = (blocks.widened(role, start, stop) for role in roles)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = returns - values
        counted = blocks.counted(start, stop) & np.isfinite(difference - advantages)
    return advantages, difference, counted


def _all_near(blocks: Blocks, roles: tuple[str, ...], start: int, stop: int) -> int | None:
    """Return how many tokens count if all are surely near enough, in the columns' own arithmetic; else None.

    Half of what is allowed is 2^-14.3 of |returns| + |values|, far above the rounding of float32.
    """
    advantages, returns, values = (widened_half(stored(blocks.span, role)[start:stop]) for role in roles)
    with np.errstate(invalid="ignore", over="ignore"):
        error = returns - values
        error -= advantages
        np.abs(error, out=error)
        allowed = np.abs(returns)
        allowed += np.abs(values)
        allowed *= error.dtype.type(0.5 * ROUNDING)
        # False for NaN, and where the sum of the sizes overflows.
        near = bool((error <= allowed).all()) and bool(np.isfinite(allowed.max()))
    return int(np.count_nonzero(blocks.counted(start, stop))) if near else None
