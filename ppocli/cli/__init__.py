"""The command line. The only folder that imports Typer."""

from __future__ import annotations
