"""RLinf 0.3.0 and the Tinker cookbook 0.6.1."""

from __future__ import annotations

import numpy as np
from goldens.presets.asked import Asked, Mapping, inputs
from goldens.rows import Arrays, NotExpressed, Row

ACTOR = ("log_probs", "old_log_probs", "rollout_log_probs", "advantages", "mask")
CRITIC = ("values", "old_values", "returns", "mask")


def actor(row: Row, arrays: Arrays) -> Asked:
    """The clipped surrogate."""
    settings = row["settings"]
    low, high = settings["clip_log_ratio_min"], settings["clip_log_ratio_max"]
    if (low is None) != (high is None) or (low is not None and -low != high):
        raise NotExpressed("a clamp of the log-ratio with two different sides")
    asked = policy("rlinf", row, arrays)
    asked.settings["log_ratio_clamp"] = high
    asked.names["loss"] = "actor/policy_loss"
    sizes = (
        "loss",
        "actor/policy_loss",
        "actor/policy_loss_abs",
        "actor/ratio",
        "actor/ratio_abs",
        "actor/dual_cliped_ratio",
    )
    asked.scale = {name: scale_of(asked, high) for name in sizes}
    asked.scale["actor/approx_kl"] = kl_scale(asked, "log_probs", "old_log_probs")
    return asked


def decoupled(row: Row, arrays: Arrays) -> Asked:
    """The clipped surrogate against the proximal policy."""
    asked = policy("rlinf:decoupled", row, arrays)
    asked.settings["rollout_is_cap"] = row["settings"]["behave_weight_threshold"]
    asked.names["loss"] = "actor/policy_loss"
    asked.scale = {
        "loss": scale_of(asked, None) * weight_of(asked),
        "actor/policy_loss": scale_of(asked, None) * weight_of(asked),
        "actor/proximal_ratio": scale_of(asked, None),
        "actor/proximal_approx_kl": kl_scale(asked, "log_probs", "old_log_probs"),
        "actor/behav_approx_kl": kl_scale(asked, "old_log_probs", "rollout_log_probs"),
        "actor/behav_clip_fraction": 1.0,
    }
    return asked


def policy(like: str, row: Row, arrays: Arrays) -> Asked:
    """Columns and bounds."""
    settings = row["settings"]
    asked = Asked(like, inputs(arrays, *ACTOR))
    asked.settings = {
        "clip_low": settings["clip_ratio_low"],
        "clip_high": settings["clip_ratio_high"],
        "dual_clip": settings["clip_ratio_c"],
    }
    return asked


def critic(row: Row, arrays: Arrays) -> Asked:
    """The Huber loss of the values."""
    settings = row["settings"]
    zero = np.zeros(arrays["values"].shape)
    columns = {**arrays, "log_probs": zero, "old_log_probs": zero, "advantages": zero}
    asked = Asked("rlinf", inputs(columns, "log_probs", "old_log_probs", "advantages", *CRITIC))
    asked.names["loss"] = "critic/value_loss"
    asked.settings = {"value_clip": settings["value_clip"], "value_error_delta": settings["huber_delta"]}
    asked.missing = {"critic/value_clip_ratio": "rounding noise of values that were clipped before"}
    asked.scale["critic/explained_variance"] = 4.0
    return asked


def valid(asked: Asked, role: str) -> np.ndarray:
    """A column's valid tokens in float64."""
    values = np.asarray(asked.arrays[role], dtype=np.float64)
    mask = np.asarray(asked.arrays["mask"]) != 0
    if values.ndim == 1:
        values = np.broadcast_to(values[:, None], mask.shape)
    return values[mask]


def scale_of(asked: Asked, clamp: float | None) -> float:
    """The mean of ratio |A|, times what float32 loses where a large difference is exponentiated."""
    d = valid(asked, "log_probs") - valid(asked, "old_log_probs")
    held = d if clamp is None else np.clip(d, -clamp, clamp)
    size = np.maximum(np.abs(valid(asked, "advantages")), 1.0)
    return float(np.mean(np.maximum(np.exp(held), 1.0) * size)) * (1.0 + float(np.abs(d).max()) / 8.0)


def weight_of(asked: Asked) -> float:
    """The largest behaviour weight."""
    cap = asked.settings["rollout_is_cap"]
    d = valid(asked, "old_log_probs") - valid(asked, "rollout_log_probs")
    return float(np.exp(d).max() if cap is None else cap) * (1.0 + float(np.abs(d).max()) / 8.0)


def kl_scale(asked: Asked, new: str, old: str) -> float:
    """The mean size of the log-probs: what a difference in float32 is accurate to."""
    return float(np.mean(np.abs(valid(asked, new)) + np.abs(valid(asked, old))))


def tinker(row: Row, arrays: Arrays) -> Asked:
    """The sampler's log-probs against the trainer's."""
    columns = {**arrays, "log_probs": arrays["old_log_probs"], "advantages": np.zeros(arrays["mask"].shape)}
    asked = Asked("tinker", inputs(columns, *ACTOR))
    size = kl_scale(asked, "old_log_probs", "rollout_log_probs")
    asked.scale = {"optim/kl_sample_train_v1": size, "optim/kl_sample_train_v2": size}
    return asked


LOSSES = "rlinf.algorithms.losses"
MAPPINGS: dict[str, Mapping] = {
    f"{LOSSES}.compute_ppo_actor_loss": actor,
    f"{LOSSES}.compute_decoupled_ppo_actor_loss": decoupled,
    f"{LOSSES}.compute_ppo_critic_loss": critic,
    "tinker_cookbook.rl.metrics.compute_kl_sample_train": tinker,
}
