"""Batches as healthy runs log them, from seeds: LLM steps with groups, and minibatches of classic RL."""

from __future__ import annotations

from typing import Any

import numpy as np


def batch(seed: int) -> dict[str, Any]:
    """Arrays by role of one batch; even seeds are LLM steps (padded), odd ones classic RL (flat).

    The policy moved by a log-ratio whose mean is -s^2 / 2, so that the mean ratio is 1, as it is in
    expectation under the old policy; s runs from 0 (on policy) to 0.25 over the seeds.
    """
    rng = np.random.default_rng(seed)
    spread = 0.25 * (seed % 20) / 19
    return _llm(rng, spread) if seed % 2 == 0 else _classic(rng, spread)


def _moved(rng: np.random.Generator, old: Any, spread: float) -> Any:
    """Log-probs after an update: heavier tails than a Gaussian's, as in practice."""
    step = rng.standard_t(8, old.shape) * spread / np.sqrt(8 / 6)
    return old + step - spread**2 / 2


def _llm(rng: np.random.Generator, spread: float) -> dict[str, Any]:
    """Answers to a few prompts, group-relative advantages, rewards 0 and 1, most tokens near certain."""
    groups, answers, longest = int(rng.integers(3, 7)), 8, int(rng.integers(12, 48))
    rows = groups * answers
    old = -rng.gamma(0.4, 1.2, (rows, longest)) - 1e-6
    rewards = (rng.random((groups, answers)) < rng.uniform(0.3, 0.7, (groups, 1))).astype(float)
    rewards[:, :2] = 0.0, 1.0
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    advantages = (centred / (rewards.std(axis=1, keepdims=True) + 1e-6)).reshape(rows)
    lengths = rng.integers(longest // 3, longest + 1, rows)
    return {
        "log_probs": np.minimum(_moved(rng, old, spread), 0.0).astype(np.float32),
        "old_log_probs": old.astype(np.float32),
        "rollout_log_probs": np.minimum(old + rng.normal(0, 0.005, old.shape), 0.0).astype(np.float32),
        "ref_log_probs": np.minimum(old + rng.normal(0, 0.05, old.shape), 0.0).astype(np.float32),
        "advantages": advantages.astype(np.float32),
        "mask": np.arange(longest) < lengths[:, None],
        "group_id": np.repeat(np.arange(groups), answers),
    }


def _classic(rng: np.random.Generator, spread: float) -> dict[str, Any]:
    """Continuous actions (log-densities of either sign), GAE-like advantages, a critic, entropies."""
    n = int(rng.integers(64, 2048))
    old = rng.normal(0.4, 1.1, n)
    returns = rng.normal(rng.uniform(-5, 50), rng.uniform(0.5, 10), n)
    return {
        "log_probs": _moved(rng, old, spread).astype(np.float32),
        "old_log_probs": old.astype(np.float32),
        "advantages": rng.normal(rng.uniform(-0.2, 0.2), 1.0, n).astype(np.float32),
        "values": (returns + rng.normal(0, 1.0, n)).astype(np.float32),
        "returns": returns.astype(np.float32),
        "entropy": rng.uniform(1.0, 3.0, n).astype(np.float32),
    }
