"""The protocol by which long work says how far it is. The engine calls it; the terminal implements it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives what has been read so far."""

    def start(self, total_rows: int, total_bytes: int) -> None:
        """Begin; the totals are those of all inputs."""

    def advance(self, rows: int, tokens: int) -> None:
        """Rows and tokens read since the last call."""

    def finish(self) -> None:
        """End, also after a failure."""


class NoProgress:
    """Says nothing."""

    def start(self, total_rows: int, total_bytes: int) -> None:
        """Do nothing."""

    def advance(self, rows: int, tokens: int) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""
