"""The bounds of the weights between trainer and sampler, as options that commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ppocli.cli.declare import OBJECTIVE, real_option
from ppocli.core.drift_options import DriftCaps


@dataclass(frozen=True, slots=True)
class CapOptions:
    """Bounds; what is None was not given."""

    tis_cap: Annotated[
        float | None,
        real_option(OBJECTIVE, "--tis-cap", "Cap of truncated weights: also report min(w, X)."),
    ] = None
    mask_low: Annotated[
        float | None,
        real_option(OBJECTIVE, "--mask-low", "Lower bound of masked weights: those below count as 0."),
    ] = None
    mask_high: Annotated[
        float | None,
        real_option(OBJECTIVE, "--mask-high", "Upper bound of masked weights: those above count as 0."),
    ] = None

    def caps(self) -> DriftCaps:
        """Return the bounds.

        Raises
        ------
        UsageProblem
            One that is out of its range.
        """
        return DriftCaps(self.tis_cap, self.mask_low, self.mask_high)
