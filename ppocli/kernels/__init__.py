"""Compiled loops over blocks of tokens. The only folder that imports Numba."""

from __future__ import annotations
