"""The protocol by which long work says how far it is. The engine calls it; the terminal implements it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives what has been read so far, and words for people."""

    def start(self, total_bytes: int) -> None:
        """Begin; the total is that of all inputs, as often as they are read."""

    def advance(self, n_bytes: float, n_tokens: int, n_rows: int = 0) -> None:
        """Bytes (a share of a file's size), tokens and rows read since the last call."""

    def notice(self, text: str) -> None:
        """One line that is not a result: what takes time, or what was changed."""

    def finish(self) -> None:
        """End, also after a failure."""


class NoProgress:
    """Says nothing."""

    def start(self, total_bytes: int) -> None:
        """Do nothing."""

    def advance(self, n_bytes: float, n_tokens: int, n_rows: int = 0) -> None:
        """Do nothing."""

    def notice(self, text: str) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""
