"""How much is read at a time, and how the options of reading are echoed: shared by all commands that read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppocli.core.url import Url

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppocli.core.chunk import ReadOptions

CHUNK_BYTES, CHUNK_BYTES_WITH_IDS = 6 << 20, 2 << 20
"""What is read at a time: 512 Ki tokens of three float32 columns, fewer of wider ones.

A matter of memory and speed, never of results. About eight chunks exist at once, decoded and ahead. Each
costs 0.35 ms of its own, which is 2 ns a token in chunks of 2 MB and 0.7 in those of 6 MB; those take 40 MB
more memory, which a run that keeps tables of ids cannot spare, nor a worker of a cluster: Ray takes 100.
"""

FEWEST_TOKENS = 1 << 16
"""However wide the columns are, this many tokens are read at a time."""

ID_ROLES = ("sequence_id", "group_id", "step")


class ReadAgain(Exception):
    """An input is skipped of which something has been added to what goes over several inputs."""


class _State:
    """What holds for the process."""

    chunk_bytes = CHUNK_BYTES


def read_small_chunks() -> None:
    """Let this process, a worker of a cluster, read as little at a time as a run with ids."""
    _State.chunk_bytes = CHUNK_BYTES_WITH_IDS


def chunk_tokens_for(types: Iterable[str]) -> int:
    """Return how many tokens to read at a time, by the names of the columns' types."""
    widths = {"64": 8, "32": 4, "16": 2}
    names = tuple(types)
    per_token = sum(next((n for digits, n in widths.items() if digits in name), 1) for name in names)
    has_ids = not all(any(kind in name for kind in ("float", "bool", "uint8")) for name in names)
    return max((CHUNK_BYTES_WITH_IDS if has_ids else _State.chunk_bytes) // max(per_token, 1), FEWEST_TOKENS)


def total_bytes(paths: Iterable[str]) -> int:
    """Return the size of all inputs that are files, or objects whose sizes a store has listed."""
    total = 0
    for path in paths:
        if isinstance(path, Url):
            total += path.size or 0
        elif Path(path).is_file():
            total += Path(path).stat().st_size
    return total


def reading_settings(options: ReadOptions) -> dict[str, Any]:
    """Return the reading options that are not the default, as they are echoed."""
    said = {
        "columns": dict(options.columns),
        "layout": options.layout,
        "sum_dims": options.sum_dims,
        "bits": sorted(options.bits),
        "neglogp": sorted(options.neglogp),
        "probs": sorted(options.probs),
    }
    default = {"columns": {}, "layout": "auto", "sum_dims": False, "bits": [], "neglogp": [], "probs": []}
    return {name: value for name, value in said.items() if value != default[name]}
