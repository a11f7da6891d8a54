"""Clip-cov and kl-cov: objectives that choose tokens by a covariance over the whole batch. Float64 NumPy.

They need all tokens at once, and clip-cov a random draw, so no command computes them: these functions write
the definitions down. Conventions as in `core.token_objectives`.

References
----------
.. [1] Cui et al., "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models",
   arXiv:2505.22617.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppocli.core.token_objectives import importance_sampling, ppo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.spec import LossSpec

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]


def covariance(log_probs: Floats, advantages: Floats) -> Floats:
    """Return (A - mean A) (log_probs - mean log_probs), each token's part of their covariance [1]_."""
    return (advantages - np.mean(advantages)) * (log_probs - np.mean(log_probs))


def clip_cov_candidates(
    log_probs: Floats, log_ratio: Floats, advantages: Floats, bounds: LossSpec, low: float, high: float
) -> Bools:
    """Return the tokens that clip-cov may drop: low < covariance < high, and the ratio does not clip [1]_."""
    part = covariance(log_probs, advantages)
    masks = ppo(log_ratio, advantages, bounds).masks
    return (part > low) & (part < high) & ~(masks.active_low | masks.active_high)


def clip_cov_count(n_tokens: int, n_candidates: int, share: float) -> int:
    """Return how many candidates are dropped, at random: share of all tokens, rounded down, at least 1."""
    return min(max(int(share * n_tokens), 1), n_candidates)


def clip_cov_loss(log_ratio: Floats, advantages: Floats, bounds: LossSpec, dropped: Bools) -> Floats:
    """Return the clipped surrogate, 0 for the tokens that were drawn [1]_; (n,), to be minimised."""
    return np.where(dropped, 0.0, ppo(log_ratio, advantages, bounds).loss)


def kl_cov_chosen(log_probs: Floats, advantages: Floats, share: float) -> Bools:
    """Return the tokens with the largest covariances: share of all, rounded down, at least 1 [1]_."""
    part = covariance(log_probs, advantages)
    count = min(max(int(share * part.size), 1), part.size)
    chosen = np.zeros(part.size, np.bool_)
    chosen[np.argsort(-part, kind="stable")[:count]] = True
    return chosen


def kl_cov_loss(
    log_ratio: Floats, advantages: Floats, bounds: LossSpec, chosen: Bools, coefficient: float
) -> Floats:
    """Return -ratio A, plus coefficient * |log_ratio| for the chosen tokens [1]_; (n,), to be minimised."""
    loss = importance_sampling(log_ratio, advantages, bounds).loss
    return np.where(chosen, loss + coefficient * np.abs(log_ratio), loss)
