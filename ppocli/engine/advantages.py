"""Advantages normalised within scopes: every N rows, every group, or over sequences instead of tokens.

The first pass collects the statistics of each scope, the second gives every token those of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.engine.blocks import stored_of, widened
from ppocli.engine.sequences import GROUP_LIMIT
from ppocli.engine.totals import Floats, Ints, KeyedTable
from ppocli.errors import InputError
from ppocli.kernels import layout, sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.spec import LossSpec
    from ppocli.engine.span import Span
    from ppocli.engine.windows import Window

SCOPE = "scope"
"""The array beside a span's columns: which scope each token belongs to, or -1."""

ROUNDED = 1e-5
"""What mean and deviation of normalised advantages are off 0 and 1 by float32: half a step of their own mean
before, in deviations, and that may have been 100."""
EPSILON = 1e-3
"""What an epsilon takes from the deviation at most: 1e-4 of advantages whose deviation was 0.1."""


@dataclass(slots=True, eq=False)
class AdvantageScopes:
    """The scopes of a run and their statistics.

    Attributes
    ----------
    spec : LossSpec
    base_row : int
        Rows of the inputs before the one that is read.
    normal : (int, int)
        Scopes whose values vary, and those of them whose mean is 0 and whose deviation is 1.
    """

    spec: LossSpec
    base_row: int = 0
    table: KeyedTable = field(default_factory=lambda: KeyedTable.narrow(2, timed=False))
    shift: Floats = field(default_factory=lambda: np.zeros(1))
    scale: Floats = field(default_factory=lambda: np.ones(1))
    spoilt: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1, dtype=np.bool_))
    normal: tuple[int, int] = (0, 0)

    def through(self, spans: Iterator[Span], path: str, *, collect: bool) -> Iterator[Span]:
        """Yield the spans again with the scope of each token; a first pass collects statistics."""
        for span in spans:
            starts = self._starts(span)
            first, second, known = self._keys(span, starts, path)
            places = self._places(first, second, known, path, collect=collect)
            lengths = np.diff(starts, append=span.n_tokens)
            span.arrays[SCOPE] = np.repeat(places, lengths)
            if collect and self.spec.adv_norm_unit == "token":
                self._add_tokens(span, starts, places)
            yield span

    def of_window(self, window: Window) -> dict[str, NDArray[Any]]:
        """Add the mean advantage of each whole sequence to the scope of its first token."""
        use, values, infinite = _finite(window.arrays)
        starts = window.offsets[:-1]
        n = np.add.reduceat(use, starts, dtype=np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            means = np.add.reduceat(values, starts) / np.maximum(n, 1)
        odd = np.logical_or.reduceat(infinite, starts)
        there, none = (n > 0) | odd, np.zeros(starts.size)
        places = np.where(there, window.arrays[SCOPE][starts], -1)
        moments = np.column_stack([n > 0, means, none, means, means, there, odd])
        sequence.add_moments(places, moments, self.table.states)
        return {}

    def moments(self) -> tuple[Ints, Floats]:
        """Return the keys of all scopes, (n, 2), and their moments as `add_moments` takes them, (n, 7)."""
        n = self.table.n
        return self.table.keys[:n], sequence.moments_of(self.table.states[:n])

    def merge(self, keys: Ints, moments: Floats, path: str) -> None:
        """Add the scopes of the next file, in order.

        Raises
        ------
        InputError
            There are more than are kept.
        """
        everything = np.zeros(0, dtype=np.uint8)
        places = self._places(keys[:, 0].copy(), keys[:, 1].copy(), everything, path, collect=True)
        sequence.add_moments(places, moments, self.table.states)

    def finish(self) -> dict[str, Any]:
        """Turn sums into shift and scale of every scope; return what to echo."""
        n_scopes = self.table.n
        n, total, square, low, high, n_values, infinite = sequence.moments_of(self.table.states[:n_scopes]).T
        equal = low == high
        mean = np.where(equal, low, total / np.maximum(n, 1.0))
        varying = (n > 1) & ~equal
        normal = is_normal(mean, square, n) & varying
        self.normal = int(varying.sum()), int(normal.sum())
        ddof = self.spec.adv_norm_ddof
        variance = np.where(equal, 0.0, np.maximum(square, 0.0)) / np.maximum(n - ddof, 1.0)
        deviation, eps = np.sqrt(variance), self.spec.adv_norm_eps
        scale = {
            "add": deviation + eps,
            "max": np.maximum(deviation, eps),
            "var": np.sqrt(variance + eps),
        }[self.spec.adv_norm_form]
        keep = self.spec.adv_norm_degenerate == "keep"
        alone = (n < 2) & keep
        overflow = ~(np.isfinite(mean) & np.isfinite(scale)) & (n > 0)
        undefined = (n <= ddof) | ~(scale > 0.0)
        # The last entry is that of tokens without a scope: index -1.
        self.shift = np.append(np.where(alone, 0.0, mean), 0.0)
        instead = 1.0 if keep else np.nan
        self.scale = np.append(np.where(overflow, np.nan, np.where(alone | undefined, instead, scale)), 1.0)
        # The mean over an infinite value is infinite, the deviation NaN, and so is what is divided by it.
        self.spoilt = np.append((infinite > 0) & (n_values > 1), False)
        lone = int((alone & (n > 0)).sum())
        left = f"; {lone:,} of one value, left as they are" if lone else ""
        beyond = int(overflow.sum())
        left += f"; the mean or the deviation of {beyond:,} overflows float64" if beyond else ""
        return {"adv_norm_note": f"{n_scopes:,} scope{'' if n_scopes == 1 else 's'}{left}"}

    def scale_of(self, arrays: Mapping[str, NDArray[Any]]) -> tuple[Floats, Floats]:
        """Return shift and scale of each token's advantage."""
        scope = arrays[SCOPE]
        scale = self.scale[scope]
        if self.spoilt.any():
            infinite = np.isinf(widened(stored_of(dict(arrays), "advantages")))
            scale = np.where(self.spoilt[scope] & infinite, np.nan, scale)
        return self.shift[scope], scale

    def _starts(self, span: Span) -> Ints:
        """Return where runs begin whose tokens are of one scope."""
        begins = np.zeros(span.n_tokens, dtype=np.bool_)
        begins[:: layout.RUN] = True
        if self.spec.adv_norm_rows:
            if span.row_starts is None:
                begins[
                    -(self.base_row + span.origin) % self.spec.adv_norm_rows :: self.spec.adv_norm_rows
                ] = True
            else:
                starts = span.row_starts - span.origin
                begins[starts[(starts >= 0) & (starts < span.n_tokens)]] = True
        elif self.spec.adv_norm == "group":
            for name in ("group_id", "group_id present", "step", "step present"):
                if name in span.arrays:
                    values = span.arrays[name]
                    begins[1:] |= values[1:] != values[:-1]
        return np.flatnonzero(begins)

    def _keys(self, span: Span, starts: Ints, path: str) -> tuple[Ints, Ints, NDArray[np.uint8]]:
        """Return the two parts of each run's key, and which runs have one (empty: all)."""
        zeros, everything = np.zeros(starts.size, dtype=np.int64), np.zeros(0, dtype=np.uint8)
        if self.spec.adv_norm_rows:
            rows = span.rows_of(starts + span.origin)
            return zeros, (self.base_row + rows) // self.spec.adv_norm_rows, everything
        if self.spec.adv_norm != "group":
            return zeros, zeros, everything
        if "group_id" not in span.arrays:
            raise InputError(
                "no column for group_id, which --adv-norm group needs",
                where=path,
                hint="--col group_id=COLUMN, or --adv-norm batch",
            )
        known = np.ones(starts.size, dtype=np.uint8)
        for name in ("group_id present", "step present"):
            if name in span.arrays:
                known &= span.arrays[name][starts]
        steps = span.arrays["step"][starts] if "step" in span.arrays else zeros
        return steps, span.arrays["group_id"][starts], known

    def _places(
        self, first: Ints, second: Ints, known: NDArray[np.uint8], path: str, *, collect: bool
    ) -> Ints:
        """Return the scope of each key, entering new ones in a first pass."""
        table = self.table
        if collect:
            table.reserve(min(table.n + first.size, GROUP_LIMIT))
        limit = GROUP_LIMIT if collect else table.n
        places, table.n = sequence.enter(
            table.slots, table.keys, table.states, table.n, limit, first, second, known
        )
        if places.size < first.size:
            raise InputError(
                f"more than {GROUP_LIMIT:,} scopes of --adv-norm {self.spec.adv_norm}", where=path
            )
        return places

    def _add_tokens(self, span: Span, starts: Ints, places: Ints) -> None:
        """Add the valid, finite advantages of a span to their scopes."""
        use, values, infinite = _finite(span.arrays)
        n = np.add.reduceat(use, starts, dtype=np.int64)
        lengths = np.diff(starts, append=span.n_tokens)
        with np.errstate(over="ignore", invalid="ignore"):
            sums = np.add.reduceat(values, starts)
            centred = np.where(use, values - np.repeat(sums / np.maximum(n, 1), lengths), 0.0)
            squares = np.add.reduceat(np.square(centred), starts)
        low = np.minimum.reduceat(np.where(use, values, np.inf), starts)
        high = np.maximum.reduceat(np.where(use, values, -np.inf), starts)
        odd = np.add.reduceat(infinite, starts, dtype=np.int64)
        moments = np.column_stack([n, sums, squares, low, high, n + odd, odd])
        sequence.add_moments(places, moments, self.table.states)


def is_normal(mean: Floats, square: Floats, n: Floats) -> NDArray[np.bool_]:
    """Return whether values have mean 0 and deviation 1, by either divisor, as if they were normalised.

    Parameters
    ----------
    mean, square, n : float64
        Of the values, the sum of squares about the mean, and how many there are.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        above = [np.sqrt(np.maximum(square, 0.0) / (n - ddof)) - 1.0 for ddof in (0, 1)]
    first, second = ((x > -EPSILON) & (x < ROUNDED) for x in above)
    normal: NDArray[np.bool_] = (np.abs(mean) < ROUNDED) & (first | second)
    return normal


def _finite(arrays: dict[str, NDArray[Any]]) -> tuple[NDArray[np.bool_], Floats, NDArray[np.bool_]]:
    """Return which advantages count, the advantages, 0 where they do not, and which are infinite."""
    values = widened(stored_of(arrays, "advantages"))
    use, infinite = np.isfinite(values), np.isinf(values)
    if "mask" in arrays:
        use &= arrays["mask"] != 0
        infinite &= arrays["mask"] != 0
    return use, np.where(use, values, 0.0), infinite


Scale = Callable[[Mapping[str, "NDArray[Any]"]], tuple[Floats, Floats]]
"""Takes the arrays of a batch and returns shift and scale of each token's advantage."""
