"""Log-probs of a trainer (a) and a sampler (b) for the same tokens: healthy, and with one fault each.

Every function draws from `rng` and returns a and b, both (sequences, tokens) float64.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Pair = tuple[Floats, Floats]
Maker = Callable[[np.random.Generator, int, int], Pair]

CHOICES = 40
"""Tokens that there are to choose from."""


def log_softmax(logits: Floats) -> Floats:
    """Return log-probs over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    out: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return out


def sampled(rng: np.random.Generator, sequences: int, tokens: int, temperature: float = 1.0) -> Pair:
    """Draw tokens, confident and unsure ones; return the log-probs of the model and of the sampler.

    The sampler divides the logits by `temperature`. One sequence at a time, so that memory stays small.
    """
    model, sampler = np.empty((2, sequences, tokens))
    at = np.arange(tokens)
    for row in range(sequences):
        logits = rng.normal(0.0, 1.0, (tokens, CHOICES)) * rng.gamma(2.0, 1.5, (tokens, 1))
        p = log_softmax(logits / temperature)
        chosen = (p + rng.gumbel(size=p.shape)).argmax(axis=1)
        sampler[row] = p[at, chosen]
        model[row] = sampler[row] if temperature == 1.0 else log_softmax(logits)[at, chosen]
    return as_float32(np.minimum(model, -1e-6)), as_float32(np.minimum(sampler, -1e-6))


def as_float32(values: Floats) -> Floats:
    """Round to float32, and keep float64."""
    return values.astype(np.float32).astype(np.float64)


def as_bfloat16(values: Floats) -> Floats:
    """Round finite values to bfloat16, to nearest even, and keep float64."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return rounded.astype(np.float64)


def noise(rng: np.random.Generator, b: Floats) -> Floats:
    """Add the rounding noise of two engines: hundredths of a nat, more for unlikely tokens."""
    scale = 0.01 * rng.uniform(0.5, 2.0)
    return np.minimum(b + scale * (0.3 + np.sqrt(-b)) * rng.standard_t(6, b.shape), -1e-7)


def healthy(rng: np.random.Generator, sequences: int, tokens: int) -> Pair:
    """Let two engines differ by rounding only."""
    b = sampled(rng, sequences, tokens)[1]
    return noise(rng, b), b


def offset(rng: np.random.Generator, sequences: int, tokens: int) -> Pair:
    """Let the sampler renormalise over the set that top-p keeps."""
    a, b = healthy(rng, sequences, tokens)
    return a - rng.uniform(0.1, 0.4), b


def temperature(rng: np.random.Generator, sequences: int, tokens: int) -> Pair:
    """Let the sampler divide the logits by a temperature, and the trainer not."""
    model, b = sampled(rng, sequences, tokens, float(rng.choice([0.8, 0.9, 1.1, 1.25, 1.5])))
    return np.minimum(model + rng.normal(0.0, 0.005, model.shape), -1e-7), b


def shift(rng: np.random.Generator, sequences: int, tokens: int) -> Pair:
    """Let one column be late by a token."""
    a, b = healthy(rng, sequences, tokens)
    return (a, np.roll(b, 1, axis=1)) if rng.random() < 0.5 else (np.roll(a, 1, axis=1), b)


def zero_fill(rng: np.random.Generator, sequences: int, tokens: int) -> Pair:
    """Fill some of the sampler's log-probs with 0, as if they were missing."""
    a, b = healthy(rng, sequences, tokens)
    return a, np.where(rng.random(b.shape) < 0.05, 0.0, b)


def placeholder(rng: np.random.Generator, sequences: int, tokens: int) -> Pair:
    """Write a placeholder for some of the sampler's log-probs."""
    a, b = healthy(rng, sequences, tokens)
    value = float(rng.choice([-9999.0, -100.0, -1000.0, 1.0]))
    return a, np.where(rng.random(b.shape) < 0.02, value, b)


def bfloat16(rng: np.random.Generator, sequences: int, tokens: int) -> Pair:
    """Store one side in bfloat16."""
    a = sampled(rng, sequences, tokens)[0]
    both = a, as_bfloat16(a)
    return both if rng.random() < 0.5 else both[::-1]


def clamp(rng: np.random.Generator, sequences: int, tokens: int) -> Pair:
    """Let the sampler hold its log-probs above a bound."""
    a, b = healthy(rng, sequences, tokens)
    return a, np.maximum(b, float(np.float32(np.quantile(b, 0.05))))


def stale(rng: np.random.Generator, sequences: int, tokens: int) -> Pair:
    """Give the sampler older weights: it is sure of some tokens that the trainer finds unlikely."""
    a, b = healthy(rng, sequences, tokens)
    hit = rng.random(b.shape) < 0.02
    a = np.where(hit, -rng.uniform(2.5, 6.0, b.shape), a)
    return a, np.where(hit, -rng.uniform(0.01, 0.2, b.shape), b)


def few_sequences(rng: np.random.Generator, sequences: int, tokens: int) -> Pair:
    """Score one of 25 sequences with other weights."""
    a, b = healthy(rng, sequences, tokens)
    for row in rng.choice(sequences, max(1, sequences // 25), replace=False):
        a[row] = np.minimum(b[row] + rng.normal(0.0, 3.0, tokens), -1e-3)
    return a, b


FAULTS: dict[str, Maker] = {
    "PPO501": offset,
    "PPO502": temperature,
    "PPO503": shift,
    "PPO504": zero_fill,
    "PPO505": placeholder,
    "PPO506": bfloat16,
    "PPO507": clamp,
    "PPO508": stale,
    "PPO509": few_sequences,
}
"""The fault that each finding of `drift` is about."""
