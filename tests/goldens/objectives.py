"""Which functions of a peer our formulas on arrays express, and how."""

from __future__ import annotations

from goldens import corrections, other_objectives, preset_gradients, verl_objectives

FUNCTIONS = (
    verl_objectives.FUNCTIONS
    | other_objectives.FUNCTIONS
    | corrections.FUNCTIONS
    | preset_gradients.FUNCTIONS
)
"""By the peer's function."""

ARRAYS_ONLY = frozenset(preset_gradients.FUNCTIONS)
"""Functions whose numbers presets reproduce: only per-token arrays are compared on arrays."""
