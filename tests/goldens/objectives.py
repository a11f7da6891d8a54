"""Which functions of a peer our formulas on arrays express, and how."""

from __future__ import annotations

from goldens import normalisation, preset_gradients, verl_objectives

FUNCTIONS = verl_objectives.FUNCTIONS | normalisation.FUNCTIONS | preset_gradients.FUNCTIONS
"""By the peer's function."""

ARRAYS_ONLY = frozenset(preset_gradients.FUNCTIONS)
"""Functions whose numbers presets reproduce: only per-token arrays are compared on arrays."""
