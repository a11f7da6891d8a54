"""Batches of log-probs of a trainer (a) and a sampler (b), each with one known fault, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

ROWS, TOKENS = 60, 60
Batch = tuple[np.ndarray, np.ndarray]


def log_softmax(z: np.ndarray) -> np.ndarray:
    top = z.max(axis=-1, keepdims=True)
    return z - top - np.log(np.exp(z - top).sum(axis=-1, keepdims=True))


def sampled(rng: np.random.Generator) -> np.ndarray:
    """Log-probs of tokens drawn from softmaxes of many scales, confident and unsure; float32 values."""
    z = rng.normal(0.0, 1.0, (ROWS * TOKENS, 40)) * rng.gamma(2.0, 1.5, (ROWS * TOKENS, 1))
    p = log_softmax(z)
    chosen = (p + rng.gumbel(size=p.shape)).argmax(axis=1)
    values = p[np.arange(len(p)), chosen].reshape(ROWS, TOKENS)
    return np.minimum(values, -1e-6).astype(np.float32).astype(float)


def noise(rng: np.random.Generator, b: np.ndarray) -> np.ndarray:
    """Rounding noise of two engines: a few hundredths of a nat, larger for unlikely tokens, heavy tails."""
    scale = 0.01 * rng.uniform(0.5, 2.0)
    return np.minimum(b + scale * (0.3 + np.sqrt(-b)) * rng.standard_t(6, b.shape), -1e-7)


def healthy(rng: np.random.Generator) -> Batch:
    b = sampled(rng)
    return noise(rng, b), b


def offset(rng: np.random.Generator) -> Batch:
    """The sampler renormalises over the set that top-p keeps."""
    b = sampled(rng)
    a = noise(rng, b) - rng.uniform(0.05, 0.4)
    return a, b


def temperature(rng: np.random.Generator) -> Batch:
    """The sampler divides logits by a temperature, the trainer does not."""
    t = float(rng.choice([0.8, 0.9, 1.1, 1.25, 1.5]))
    z = rng.normal(0.0, 1.0, (ROWS * TOKENS, 40)) * rng.gamma(2.0, 1.5, (ROWS * TOKENS, 1))
    a, b = log_softmax(z), log_softmax(z / t)
    chosen = (b + rng.gumbel(size=b.shape)).argmax(axis=1)
    at = np.arange(len(b))
    a, b = (x[at, chosen].reshape(ROWS, TOKENS) for x in (a, b))
    return np.minimum(a + rng.normal(0.0, 0.005, a.shape), -1e-7), np.minimum(b, -1e-6)


def shift(rng: np.random.Generator) -> Batch:
    """One column is late by a token."""
    a, b = healthy(rng)
    return (a, np.roll(b, 1, axis=1)) if rng.random() < 0.5 else (np.roll(a, 1, axis=1), b)


def zero_fill(rng: np.random.Generator) -> Batch:
    """Some of the sampler's log-probs are missing and were filled with 0."""
    a, b = healthy(rng)
    return a, np.where(rng.random(b.shape) < 0.02, 0.0, b)


def sentinel(rng: np.random.Generator) -> Batch:
    """Some of the sampler's log-probs are missing and hold a placeholder."""
    a, b = healthy(rng)
    value = float(rng.choice([-9999.0, -100.0, -1000.0, 1.0]))
    return a, np.where(rng.random(b.shape) < 0.01, value, b)


def bfloat16(rng: np.random.Generator) -> Batch:
    """One side was stored in bfloat16."""
    a = sampled(rng)
    bits = a.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    both = a, rounded.astype(float)
    return both if rng.random() < 0.5 else both[::-1]


def clamp(rng: np.random.Generator) -> Batch:
    """The sampler holds log-probs above a bound."""
    a, b = healthy(rng)
    return a, np.maximum(b, float(np.float32(np.quantile(b, 0.05))))


def stale(rng: np.random.Generator) -> Batch:
    """The sampler has older weights: it is sure of some tokens that the trainer finds unlikely."""
    a, b = healthy(rng)
    hit = rng.random(b.shape) < 0.01
    a = np.where(hit, -rng.uniform(2.5, 6.0, b.shape), a)
    return a, np.where(hit, -rng.uniform(0.01, 0.2, b.shape), b)


def few_sequences(rng: np.random.Generator) -> Batch:
    """Two of the sequences were scored with other weights."""
    a, b = healthy(rng)
    for row in rng.choice(ROWS, 2, replace=False):
        a[row] = np.minimum(b[row] + rng.normal(0.0, 1.5, TOKENS), -1e-3)
    return a, b


FAULTS: dict[str, Callable[[np.random.Generator], Batch]] = {
    "none": healthy,
    "PPO501": offset,
    "PPO502": temperature,
    "PPO503": shift,
    "PPO504": zero_fill,
    "PPO505": sentinel,
    "PPO506": bfloat16,
    "PPO507": clamp,
    "PPO508": stale,
    "PPO509": few_sequences,
}
"""The fault that each finding is about, and none."""
