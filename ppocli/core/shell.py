"""Words of command lines that a message tells the user to type."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def quote(word: str) -> str:
    r"""Return a word as a shell takes it, on one line: a line break is `$'\n'`, which most shells know."""
    if "\n" not in word:
        return shlex.quote(word)
    escaped = word.replace("\\", r"\\").replace("'", r"\'").replace("\n", r"\n")
    return f"$'{escaped}'"


def join(words: Iterable[str]) -> str:
    """Return a command line of these words."""
    return " ".join(map(quote, words))
