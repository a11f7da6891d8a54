"""The formulas and the vocabulary: standard library and NumPy only."""

from __future__ import annotations
