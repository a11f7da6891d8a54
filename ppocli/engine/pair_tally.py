"""What was found in one file of side b, whose tokens are counted under their partners of side a."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ppocli.engine.blocks import widened_half

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ppocli.core.chunk import Column
    from ppocli.core.report import InputReport


@dataclass(slots=True)
class Tally:
    """Tokens that count on both sides, those that do not, and what is no number among the former.

    Attributes
    ----------
    counts : mapping of array name to [null, NaN, +inf, -inf]
    first_bad : int, optional
        The first token of `b`, counted from the start of the file, that is no finite number.
    """

    tokens: int = 0
    masked: int = 0
    counts: dict[str, list[int]] = field(default_factory=dict)
    first_bad: int | None = None

    def add(self, columns: Mapping[str, Column], first: int, n: int, mask: NDArray[np.uint8] | None) -> None:
        """Count n tokens from token `first` on."""
        valid = np.ones(n, dtype=np.bool_) if mask is None else mask != 0
        n_valid = int(np.count_nonzero(valid))
        self.tokens += n_valid
        self.masked += n - n_valid
        for name, column in columns.items():
            bad = self._add_column(name, column, valid)
            if name == "b" and bad is not None and self.first_bad is None:
                self.first_bad = first + bad

    def _add_column(self, name: str, column: Column, valid: NDArray[np.bool_]) -> int | None:
        """Count what is no finite number in a column; return the first such token."""
        values = widened_half(column.values)
        there = valid if column.present is None else valid & (column.present != 0)
        counts = self.counts.setdefault(name, [0, 0, 0, 0])
        bad = (valid & ~there) | (there & ~np.isfinite(values))
        if not bad.any():
            return None
        found = values[bad & there]
        counts[0] += int(np.count_nonzero(valid & ~there))
        counts[1] += int(np.count_nonzero(np.isnan(found)))
        counts[2] += int(np.count_nonzero(found == np.inf))
        counts[3] += int(np.count_nonzero(found == -np.inf))
        return int(bad.argmax())

    def entered(self, report: InputReport, names: Mapping[str, str]) -> InputReport:
        """Return the report of the file with its counts; `names`: the role of each array."""
        columns = dict(report.columns)
        for name, (null, nan, posinf, neginf) in self.counts.items():
            role = names[name]
            if role in columns:
                columns[role] = replace(
                    columns[role], n_null=null, n_nan=nan, n_posinf=posinf, n_neginf=neginf
                )
        return replace(report, tokens=self.tokens, masked=self.masked, columns=columns)
