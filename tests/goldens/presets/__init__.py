"""Which functions of frameworks their presets reproduce, and what a row asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goldens.presets import (
    areal,
    classic,
    liger,
    nemo_rl,
    open_instruct,
    openrlhf,
    prime_rl,
    rlinf,
    roll,
    sb3,
    skyrl,
    slime,
    torchrl,
    trl,
    verl,
)

if TYPE_CHECKING:
    from goldens.presets.asked import Mapping

MAPPINGS: dict[str, Mapping] = {
    **sb3.MAPPINGS,
    **trl.MAPPINGS,
    **liger.MAPPINGS,
    **nemo_rl.MAPPINGS,
    **slime.MAPPINGS,
    **prime_rl.MAPPINGS,
    **roll.MAPPINGS,
    **open_instruct.MAPPINGS,
    **classic.MAPPINGS,
    **torchrl.MAPPINGS,
    **rlinf.MAPPINGS,
    **verl.MAPPINGS,
    **openrlhf.MAPPINGS,
    **areal.MAPPINGS,
    **skyrl.MAPPINGS,
}
"""By the peer's function."""
