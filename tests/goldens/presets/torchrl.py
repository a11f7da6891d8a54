"""TorchRL 0.14.1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from goldens.presets.asked import Asked, Mapping, inputs, metrics_of
from goldens.presets.sb3 import COLUMNS, mean_size

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

ERRORS = {"smooth_l1": "smooth-l1", "l2": "square", "l1": "abs"}


def clip_ppo(row: Row, arrays: Arrays) -> Asked:
    """The clipped loss; without a mask padding counts as everything else."""
    settings = row["settings"]
    asked = base("torchrl", row, arrays)
    clip = settings["clip_epsilon"]
    low, high = clip if isinstance(clip, list) else (clip, clip)
    asked.settings |= {
        "clip_low": low,
        "clip_high": high,
        "adv_norm": "batch" if settings["normalize_advantage"] else "none",
        "value_clip": settings["clip_value"],
    }
    asked.slack["clip_fraction"] = near(asked, 1.0 - low, 1.0 + high)
    asked.values |= per_step(asked, ("explained_variance", "ESS"))
    return asked


def ppo(row: Row, arrays: Arrays) -> Asked:
    """The loss without a clip."""
    asked = base("torchrl:ppo", row, arrays)
    asked.values |= per_step(asked, ("explained_variance",))
    return asked


def klpen(row: Row, arrays: Arrays) -> Asked:
    """The loss with a penalty; its KL is exact, from the distributions."""
    asked = ppo(row, arrays)
    asked.missing = dict.fromkeys(
        ("loss_objective", "kl_mean", "beta_after"), "the exact KL needs the distributions"
    )
    return asked


def base(like: str, row: Row, arrays: Arrays) -> Asked:
    """Columns and coefficients."""
    settings = row["settings"]
    asked = Asked(like, inputs(arrays, *COLUMNS))
    asked.settings = {
        "vf_coef": settings["critic_coeff"],
        "ent_coef": settings["entropy_coeff"],
        "value_error": ERRORS[settings["loss_critic_type"]],
    }
    asked.scale["loss_objective"] = mean_size(asked)
    return asked


def per_step(asked: Asked, names: tuple[str, ...]) -> dict[str, Any]:
    """One number per time step for (B, T); TorchRL keeps the last axis of variances: lists of one."""
    shape = np.asarray(asked.arrays["log_probs"]).shape
    steps = range(shape[1]) if len(shape) == 2 else (slice(None),)
    out: dict[str, list[Any]] = {name: [] for name in names}
    for t in steps:
        part = {
            role: np.ascontiguousarray(np.asarray(values)[..., t]) for role, values in asked.arrays.items()
        }
        found = metrics_of(Asked(asked.like, part, asked.settings))
        for name in names:
            out[name].append([found[name]] if name == "explained_variance" else found[name])
    return out if len(shape) == 2 else {name: values[0] for name, values in out.items()}


def near(asked: Asked, *bounds: float) -> float:
    """The share of steps whose ratio is within float32 of a bound."""
    ratio = np.exp(np.asarray(asked.arrays["log_probs"]) - np.asarray(asked.arrays["old_log_probs"]))
    return float(np.any([np.abs(ratio - bound) <= 1e-6 for bound in bounds], axis=0).mean())


MAPPINGS: dict[str, Mapping] = {
    "torchrl.objectives.ClipPPOLoss": clip_ppo,
    "torchrl.objectives.PPOLoss": ppo,
    "torchrl.objectives.KLPENPPOLoss": klpen,
}
