"""How much is read at a time, and how the options of reading are echoed: shared by all commands that read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppocli.core.chunk import ReadOptions

CHUNK_TOKENS = 1 << 20
"""Tokens that are read at a time; a matter of memory and speed, never of results."""

ID_ROLES = ("sequence_id", "group_id", "step")


def reading_settings(options: ReadOptions) -> dict[str, Any]:
    """Return the reading options that are not the default, as they are echoed."""
    said = {
        "columns": dict(options.columns),
        "layout": options.layout,
        "sum_dims": options.sum_dims,
        "bits": sorted(options.bits),
    }
    default = {"columns": {}, "layout": "auto", "sum_dims": False, "bits": []}
    return {name: value for name, value in said.items() if value != default[name]}
