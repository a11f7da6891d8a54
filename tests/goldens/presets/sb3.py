"""Stable-Baselines3 2.9.2."""

from __future__ import annotations

from goldens.presets.asked import Asked, Mapping, inputs
from goldens.rows import Arrays, NotExpressed, Row

COLUMNS = ("log_probs", "old_log_probs", "advantages", "values", "old_values", "returns", "entropy")


def train(row: Row, arrays: Arrays) -> Asked:
    """One update over the whole batch."""
    settings = row["settings"]
    if "permutations" in arrays:
        raise NotExpressed("minibatches in a random order")
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
    return asked


MAPPINGS: dict[str, Mapping] = {"stable_baselines3.ppo.PPO.train": train}
