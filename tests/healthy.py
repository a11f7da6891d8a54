"""Batches as healthy runs log them, from seeds: LLM steps with groups, and minibatches of classic RL."""

from __future__ import annotations

from typing import Any

import numpy as np

from ppocli.engine import synth_batches


def batch(seed: int) -> dict[str, Any]:
    """Arrays by role of one batch; even seeds are LLM steps (padded), odd ones classic RL (flat).

    The policy moved by log-ratios whose standard deviation is s, less where an LLM is sure of the token; s
    runs from 0 (on policy) to 0.25 over the seeds.
    """
    rng = np.random.default_rng(seed)
    spread = 0.25 * (seed % 20) / 19
    return _llm(rng, spread) if seed % 2 == 0 else _classic(rng, spread)


def _llm(rng: np.random.Generator, spread: float) -> dict[str, Any]:
    """A step of an LLM as `synth` makes it, of some size."""
    made = synth_batches.batch(rng, 8 * int(rng.integers(3, 7)), int(rng.integers(12, 48)), spread)
    return {role: x.astype(np.float32) if x.dtype == np.float64 else x for role, x in made.items()}


def _classic(rng: np.random.Generator, spread: float) -> dict[str, Any]:
    """Continuous actions (log-densities of either sign), GAE-like advantages, a critic, entropies."""
    n = int(rng.integers(64, 2048))
    old, step = rng.normal(0.4, 1.1, n), rng.standard_t(8, n)
    returns = rng.normal(rng.uniform(-5, 50), rng.uniform(0.5, 10), n)
    return {
        "log_probs": (old + step * spread / np.sqrt(8 / 6) - spread**2 / 2).astype(np.float32),
        "old_log_probs": old.astype(np.float32),
        "advantages": rng.normal(rng.uniform(-0.2, 0.2), 1.0, n).astype(np.float32),
        "values": (returns + rng.normal(0, 1.0, n)).astype(np.float32),
        "returns": returns.astype(np.float32),
        "entropy": rng.uniform(1.0, 3.0, n).astype(np.float32),
    }
