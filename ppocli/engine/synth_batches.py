"""A healthy batch of rollouts, and what each fault that `eval` and `check` find makes of it.

Columns are (sequences, tokens) arrays by role, or (sequences,) with one value for each sequence.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.engine.synth_pairs import as_bfloat16, healthy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.engine.synth_pairs import Floats, Maker

    Columns = dict[str, NDArray[Any]]
    Bools = NDArray[np.bool_]

ANSWERS = 8
"""Sequences of a group: answers to one prompt."""

SPREAD, LITTLE = 0.1, 0.02
"""How far the policy has moved, nats; where a fault must not drown in it."""


def batch(
    rng: np.random.Generator, sequences: int, tokens: int, spread: float = SPREAD, pair: Maker = healthy
) -> Columns:
    """Make answers to a few prompts, rewards 0 and 1, advantages relative to the group, a critic.

    The policy has moved by log-ratios of about `spread`, less where it is sure of the token. Old and rollout
    log-probs are those of `pair`.
    """
    old, rollout = pair(rng, sequences, tokens)
    group_id = np.arange(sequences) // ANSWERS
    rewards = (rng.random(sequences) < rng.uniform(0.3, 0.7, sequences)).astype(float)
    rewards[::ANSWERS], rewards[1::ANSWERS] = 0.0, 1.0
    lengths = rng.integers(max(tokens // 3, 1), tokens + 1, sequences)
    mask = np.arange(tokens) < lengths[:, None]
    returns = rewards[:, None] * 0.99 ** np.maximum(lengths[:, None] - 1 - np.arange(tokens), 0)
    return {
        "log_probs": moved(rng, old, spread),
        "old_log_probs": old,
        "rollout_log_probs": rollout,
        "ref_log_probs": np.minimum(old + rng.normal(0.0, 0.05, old.shape), -1e-7),
        "advantages": relative(rewards, group_id),
        "mask": mask,
        "rewards": rewards,
        "returns": returns,
        "values": returns + rng.normal(0.0, 0.2, old.shape),
        "group_id": group_id,
    }


def moved(rng: np.random.Generator, old: Floats, spread: float) -> Floats:
    """Return log-probs after an update that adds d to a token's logit: p exp(d) / (1 - p + p exp(d)).

    d has heavier tails than a Gaussian, as in practice, and the standard deviation `spread`.
    """
    d = rng.standard_t(8, old.shape) * spread / math.sqrt(8 / 6) - spread**2 / 2
    new: Floats = np.minimum(old + d - np.log1p(np.exp(old) * np.expm1(d)), -1e-7)
    return new


def relative(rewards: Floats, group_id: NDArray[np.int64]) -> Floats:
    """Return rewards minus the mean of their group, over its deviation."""
    out = np.empty(rewards.size)
    for group in np.unique(group_id):
        mine = rewards[group_id == group]
        out[group_id == group] = (mine - mine.mean()) / (mine.std() + 1e-6)
    return out


def some(rng: np.random.Generator, mask: Bools, share: float, least: int = 8) -> Bools:
    """Mark a share of the valid tokens, drawn at random, and at least so many."""
    valid = np.flatnonzero(mask)
    hit = np.zeros(mask.size, dtype=np.bool_)
    hit[rng.choice(valid, max(least, int(share * valid.size)), replace=False)] = True
    return hit.reshape(mask.shape)


def alternating(hit: Bools) -> Floats:
    """Return +1 and -1 in turn at what is marked, 0 elsewhere."""
    out = np.zeros(hit.shape)
    out[hit] = np.where(np.arange(int(hit.sum())) % 2, -1.0, 1.0)
    return out


def move(columns: Columns, hit: Bools, log_ratio: Any, high: float = -0.5) -> Columns:
    """Let some tokens have a log-ratio, positive or negative: the likelier side has the log-prob `high`."""
    x = np.broadcast_to(log_ratio, hit.shape)
    new, old = high + np.minimum(x, 0.0), high - np.maximum(x, 0.0)
    rest = ("old_log_probs", "rollout_log_probs", "ref_log_probs")
    changed = {role: np.where(hit, old, columns[role]) for role in rest}
    return {**columns, **changed, "log_probs": np.where(hit, new, columns["log_probs"])}


# ------------------------------------------------------------------------------------------- numerics


def nan(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Make some log-probs NaN."""
    c = batch(rng, sequences, tokens)
    return {**c, "log_probs": np.where(some(rng, c["mask"], 0.0, 3), np.nan, c["log_probs"])}


def overflow(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Make some tokens likelier by a factor of exp(12), which float16 cannot hold."""
    c = batch(rng, sequences, tokens)
    hit = some(rng, c["mask"], 0.005)
    return move(c, hit, 12.0 + 0.2 * alternating(hit))


def clamp_bound(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Put some log-ratios exactly at the +-10 that a trainer clamps them to."""
    c = batch(rng, sequences, tokens)
    hit = some(rng, c["mask"], 0.005)
    return move(c, hit, 10.0 * alternating(hit))  # -0.5 and -10.5: exact


def far(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Make some tokens less likely by 24 nats: the log-probs of other tokens."""
    c = batch(rng, sequences, tokens)
    hit = some(rng, c["mask"], 0.005)
    return move(c, hit, -24.0 + 0.2 * alternating(hit))


# ------------------------------------------------------------------------------------------ precision


def bfloat16(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Round all log-probs to bfloat16."""
    c = batch(rng, sequences, tokens)
    return {role: as_bfloat16(values) if role.endswith("log_probs") else values for role, values in c.items()}


def near_the_bounds(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Put many ratios so near to 0.8 and 1.2 that rounding the log-probs moves them across."""
    c = batch(rng, sequences, tokens)
    # Log-probs around -2, where steps of bfloat16 are 2^-7 and of float16 2^-9, larger than +-0.0005.
    sides = alternating(some(rng, c["mask"], 0.3))
    x = np.where(sides > 0, math.log(1.2), math.log(0.8)) + rng.uniform(-5e-4, 5e-4, sides.shape)
    return move(c, sides != 0, x, high=-2.1)


def small_steps(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Move the policy by about 0.001 nats, less than the steps of bfloat16."""
    c = batch(rng, sequences, tokens)
    old = np.minimum(c["old_log_probs"], -0.5)
    return {**c, "old_log_probs": old, "log_probs": old + rng.normal(0.0, 1e-3, old.shape)}


def tiny_kl(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Move the policy by 1e-5 nats: k3 in float32 is rounding."""
    c = batch(rng, sequences, tokens)
    old = np.minimum(c["old_log_probs"], -1e-3)
    return {**c, "old_log_probs": old, "log_probs": old + 1e-5 * rng.choice([-1.0, 1.0], old.shape)}


# ------------------------------------------------------------------------------------------ objective


def idle_clip(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Recompute old_log_probs with the weights that are trained; the sampler's are older."""
    c = batch(rng, sequences, tokens)
    old = c["old_log_probs"]
    rollout = np.minimum(old + rng.normal(0.0, 0.5, old.shape), -1e-7)
    return {**c, "log_probs": old, "rollout_log_probs": rollout - 0.2}


def one_token(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Make one token likelier by a factor of exp(9)."""
    c = batch(rng, sequences, tokens, LITTLE)
    return move(c, some(rng, c["mask"], 0.0, 1), 9.0)


def zero_advantages(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Give all answers of every group the same reward."""
    c = batch(rng, sequences, tokens)
    return {**c, "rewards": np.ones(sequences), "advantages": np.zeros(sequences)}


def one_sided(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Make every token less likely by about 0.3 nats."""
    c = batch(rng, sequences, tokens)
    new = c["old_log_probs"] - 0.3 + rng.normal(0.0, 0.02, c["mask"].shape)
    return {**c, "log_probs": new}


def constant_returns(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Leave the column of returns at what it was filled with at first."""
    c = batch(rng, sequences, tokens)
    return {**c, "returns": np.full(c["mask"].shape, 0.5)}


# ----------------------------------------------------------------------------------------------- data


def masked_sequences(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Mask every eighth sequence throughout."""
    c = batch(rng, sequences, tokens)
    return {**c, "mask": c["mask"] & (np.arange(sequences) % 8 != 3)[:, None]}


def placeholder(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Write -100 for some log-probs."""
    c = batch(rng, sequences, tokens)
    return {**c, "log_probs": np.where(some(rng, c["mask"], 0.01), -100.0, c["log_probs"])}


def above_zero(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Let some tokens have a probability above 1."""
    c = batch(rng, sequences, tokens)
    return move(c, some(rng, c["mask"], 0.005), 0.01, high=0.009)


def zeroed(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Write 0 for some old log-probs of tokens that were not likely."""
    c = batch(rng, sequences, tokens)
    hit = some(rng, c["mask"], 0.005)
    return {**move(c, hit, 0.05, high=-2.5), "old_log_probs": np.where(hit, 0.0, c["old_log_probs"])}


def negated(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Store minus the log-probs."""
    c = batch(rng, sequences, tokens)
    return {role: -values if role.endswith("log_probs") else values for role, values in c.items()}


def flat_groups(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Give all answers of three of four groups the same reward."""
    c = batch(rng, sequences, tokens)
    flat = c["group_id"] % 4 != 2
    rewards = np.where(flat, 1.0, c["rewards"])
    return {**c, "rewards": rewards, "advantages": relative(rewards, c["group_id"])}


def other_returns(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Take returns - values for the advantages, then change some returns."""
    c = batch(rng, sequences, tokens)
    advantages = c["returns"] - c["values"]
    returns = c["returns"] + 0.5 * some(rng, c["mask"], 0.01)
    return {**c, "old_values": c["values"], "advantages": advantages, "returns": returns}


def padding(rng: np.random.Generator, sequences: int, tokens: int) -> Columns:
    """Fill the padding with 0, and leave it unmasked."""
    c = batch(rng, sequences, tokens)
    inside = c["mask"]
    per_token = {role: values for role, values in c.items() if values.ndim == 2}
    per_token["advantages"] = np.repeat(c["advantages"][:, None], tokens, axis=1)
    filled = {role: np.where(inside, values, 0.0) for role, values in per_token.items() if role != "mask"}
    return {**c, **filled, "mask": np.ones_like(inside)}
