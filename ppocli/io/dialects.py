"""What the dumps of some frameworks need that column names alone do not say."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

SAMPLE_MASKS = ("sample_loss_mask", "sample_mask")
"""Names of a second mask, one value per sequence, that multiplies the mask of the tokens."""

_NEMO_RL = frozenset({"prev_logprobs", "generation_logprobs", "token_loss_mask", "sample_loss_mask"})
_PRIME_RL = frozenset({"trainer_logprobs", "inference_logprobs", "micro_sequence_idx", "export_sequence_idx"})


def sample_mask_of(columns: Collection[str], taken: dict[str, str], notes: list[str]) -> str | None:
    """Return the column of the second mask; where there is no first one, it becomes the mask."""
    name = next((one for one in SAMPLE_MASKS if one in columns and one not in taken.values()), None)
    if name is None:
        return None
    if "mask" not in taken:
        taken["mask"] = name
        notes.append(f"mask: column '{name}'")
        return None
    notes.append(f"mask: '{taken['mask']}' and '{name}', a token counts where both are 1")
    return name


def skips_first(columns: Collection[str]) -> bool:
    """Return whether a dump's loss leaves out position 0 of every sequence.

    NeMo-RL stores whole sequences, prompt included, and slices all of them with [:, 1:]: the first token has
    no log-prob. The mask need not say so.
    """
    return set(columns) >= _NEMO_RL


def dialect_notes(columns: Collection[str], fields: Collection[Any]) -> Iterator[str]:
    """Yield what there is to know about a dump."""
    if set(columns) >= _PRIME_RL:
        yield "a null of prime-rl's token exports is a number that was not finite"
    if {"prev_logprobs", "generation_logprobs"} <= set(columns) and "mask" not in fields:
        yield "no mask: in NeMo-RL's dumps the tokens of prompts and padding count then, too"
