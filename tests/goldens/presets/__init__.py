"""Which functions of frameworks their presets reproduce, and what a row asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goldens.presets import classic, rlinf, sb3, torchrl

if TYPE_CHECKING:
    from goldens.presets.asked import Mapping

MAPPINGS: dict[str, Mapping] = {
    **sb3.MAPPINGS,
    **classic.MAPPINGS,
    **torchrl.MAPPINGS,
    **rlinf.MAPPINGS,
}
"""By the peer's function."""
