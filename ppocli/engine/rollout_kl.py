"""How far the policy that sampled is from the old one, by a pass of its own: for the rule of idle clips."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.engine.blocks import widened
from ppocli.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ppocli.core.chunk import Chunk, Reader

ROLES = ("old_log_probs", "rollout_log_probs")
CHUNK_TOKENS = 1 << 20

STEPS_PER_NAT = 1 << 20
"""Terms are counted in whole steps, so that their sum does not depend on how the files are cut."""
LARGEST = 1000.0
"""A term counts for at most this: 2^22 tokens of a chunk cannot overflow 64 bits then."""


def rollout_kl(readers: Iterable[tuple[int, Reader]]) -> float | None:
    """Return KL(rollout || old) by k3 = mean(expm1(d) - d), d = old_log_probs - rollout_log_probs.

    Parameters
    ----------
    readers : iterable of (index, Reader)
        Inputs without a rollout column, or whose rollout column cannot be read, are left out.

    Returns
    -------
    float or None
        Nats, in steps of 1e-6 per token, terms above 1000 counted as 1000. Over the valid tokens where both
        are finite; None where there is none.
    """
    n = steps = 0
    for _, reader in readers:
        if set(ROLES) <= set(reader.report.columns):
            try:
                for chunk in reader.chunks({*ROLES, "mask"}, CHUNK_TOKENS):
                    terms = _terms(chunk)
                    n += terms.size
                    steps += int(terms.sum())
            except InputError:  # `eval` does without this column
                continue
    return steps / STEPS_PER_NAT / n if n else None


def _terms(chunk: Chunk) -> NDArray[np.int64]:
    """Return the terms of the valid tokens of a chunk, in steps."""
    chosen = np.ones(chunk.n_tokens, dtype=bool) if chunk.mask is None else chunk.mask != 0
    sides = []
    for role in ROLES:
        column = chunk.columns[role]
        values = widened(column.values)
        if column.present is not None:
            chosen &= column.present != 0
        chosen &= np.isfinite(values)
        sides.append(values)
    d = sides[0][chosen] - sides[1][chosen]
    with np.errstate(over="ignore"):
        terms = np.minimum(np.expm1(d) - d, LARGEST)
    steps: NDArray[np.int64] = np.rint(terms * STEPS_PER_NAT).astype(np.int64)
    return steps
