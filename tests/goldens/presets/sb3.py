"""Stable-Baselines3 2.9.2."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from goldens.presets.asked import Asked, Mapping, inputs, metrics_of

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

COLUMNS = ("log_probs", "old_log_probs", "advantages", "values", "old_values", "returns", "entropy")
OVER_ALL = ("policy_gradient_loss", "value_loss", "clip_fraction", "entropy_loss")
"""What SB3 averages over every minibatch of every epoch."""


def train(row: Row, arrays: Arrays) -> Asked:
    """One update over the whole batch, or minibatches in the order of the permutations."""
    settings = row["settings"]
    asked = Asked("sb3", inputs(arrays, *COLUMNS))
    asked.settings = {
        "clip_eps": settings["clip_range"],
        "value_clip": settings["clip_range_vf"],
        "ent_coef": settings["ent_coef"],
        "vf_coef": settings["vf_coef"],
    }
    if not settings["normalize_advantage"]:
        asked.settings["adv_norm"] = "none"
    asked.values = {
        "train/learning_rate": 0.0,
        "train/n_updates": settings["n_epochs"],
        "train/clip_range": settings["clip_range"],
        "train/clip_range_vf": settings["clip_range_vf"],
    }
    if row["dtype"] == "float32":
        # exp(d) - 1 loses what float32 loses at 1; terms of normalised advantages cancel.
        asked.scale["train/approx_kl"] = 0.2
        asked.scale |= dict.fromkeys(("train/policy_gradient_loss", "train/loss"), mean_size(asked))
    if "permutations" in arrays:
        asked.values |= minibatches(row, asked, arrays["permutations"])
    return asked


def minibatches(row: Row, asked: Asked, permutations: np.ndarray) -> dict[str, Any]:
    """SB3's averages over minibatches, each of them evaluated alone.

    approx_kl is over the minibatches of the last epoch, the loss is that of the last one; the minibatch whose
    KL is above 1.5 target_kl ends the training, and is in the averages.
    """
    settings = row["settings"]
    size, target = settings["batch_size"], settings["target_kl"]
    seen: list[dict[str, Any]] = []
    last: list[dict[str, Any]] = []
    epochs, stopped = 0, False
    for order in permutations:
        if stopped:
            break
        epochs, last = epochs + 1, []
        for start in range(0, order.size, size):
            chosen = order[start : start + size]
            part = {role: np.asarray(values)[chosen] for role, values in asked.arrays.items()}
            last.append(metrics_of(Asked("sb3", part, asked.settings)))
            seen.append(last[-1])
            if target is not None and last[-1]["train/approx_kl"] > 1.5 * target:
                stopped = True
                break
    out = {f"train/{name}": mean_of(seen, f"train/{name}") for name in OVER_ALL}
    out["train/approx_kl"] = mean_of(last, "train/approx_kl")
    # Without an early end SB3's last minibatch is that of the loss; with one, that minibatch is.
    return {**out, "train/loss": last[-1]["train/loss"], "train/n_updates": epochs}


def mean_size(asked: Asked) -> float:
    """What the mean absolute term of a loss of normalised advantages is of the order of: the mean ratio."""
    log_ratio = np.asarray(asked.arrays["log_probs"]) - np.asarray(asked.arrays["old_log_probs"])
    return float(np.exp(log_ratio).mean())


def mean_of(metrics: list[dict[str, Any]], name: str) -> float:
    """The mean of a metric over minibatches."""
    return math.fsum(one[name] for one in metrics) / len(metrics)


MAPPINGS: dict[str, Mapping] = {"stable_baselines3.ppo.PPO.train": train}
