"""Which functions of frameworks their presets reproduce, and what a row asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goldens.presets import areal, openrlhf, sb3, skyrl, verl

if TYPE_CHECKING:
    from goldens.presets.asked import Mapping

MAPPINGS: dict[str, Mapping] = {
    **sb3.MAPPINGS,
    **verl.MAPPINGS,
    **openrlhf.MAPPINGS,
    **areal.MAPPINGS,
    **skyrl.MAPPINGS,
}
"""By the peer's function."""
