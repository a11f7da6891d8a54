"""Which functions of frameworks their presets reproduce, and what a row asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goldens.presets import areal, classic, openrlhf, rlinf, sb3, skyrl, torchrl, verl

if TYPE_CHECKING:
    from goldens.presets.asked import Mapping

MAPPINGS: dict[str, Mapping] = {
    **sb3.MAPPINGS,
    **classic.MAPPINGS,
    **torchrl.MAPPINGS,
    **rlinf.MAPPINGS,
    **verl.MAPPINGS,
    **openrlhf.MAPPINGS,
    **areal.MAPPINGS,
    **skyrl.MAPPINGS,
}
"""By the peer's function."""
