"""Why advantages cannot be normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppocli.core.report import Nonfinite


@dataclass(frozen=True, slots=True)
class NormFault:
    """Why normalised advantages, of all tokens or of some, cannot be said.

    Attributes
    ----------
    reason : str
    nonfinite : {"nan"}, optional
        What float64 arithmetic makes of every normalised advantage. None: something finite.
    has_twin : bool
        The finite advantages alone can be normalised, by themselves.
    """

    reason: str
    nonfinite: Nonfinite | None
    has_twin: bool
