"""Which functions of a peer our formulas on arrays express, and how."""

from __future__ import annotations

from goldens import corrections, other_objectives, trl_objectives, verl_objectives

FUNCTIONS = (
    verl_objectives.FUNCTIONS | trl_objectives.FUNCTIONS | other_objectives.FUNCTIONS | corrections.FUNCTIONS
)
"""By the peer's function."""
