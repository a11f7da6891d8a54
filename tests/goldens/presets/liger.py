"""Liger-Kernel 0.8.5."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from goldens.presets import trl
from goldens.presets.asked import Asked, Mapping, inputs

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

COLUMNS = ("log_probs", "old_log_probs", "ref_log_probs", "advantages", "mask")
CLIP = "metrics[-1] clip fraction"


def ppo_loss_fn(row: Row, arrays: Arrays) -> Asked:
    """One loss with its two metrics."""
    settings = row["settings"]
    loss_type, sequence = settings["loss_type"], settings["importance_sampling_level"] == "sequence"
    asked = Asked(f"liger:{loss_type}", inputs(arrays, *COLUMNS))
    asked.names = {CLIP: "clip_ratio", "metrics[0] kl": "kl"}
    asked.settings = {
        "kl_coef": settings["beta"],
        "ref_kl_ratio": settings.get("use_bias_correction_kl", False),
        "clip_low": settings["epsilon_low"],
        "clip_high": settings["epsilon_high"],
    }
    if settings.get("delta") is not None:
        asked.settings["delta"] = settings["delta"]
    if "vllm_is_ratio" in arrays:
        asked.arrays["rollout_log_probs"] = arrays["rollout_log_probs"]
        asked.settings |= {"rollout_is": "token", "rollout_is_cap": float(arrays["vllm_is_ratio"].max())}
        if loss_type == "luspo" and not same_weights(arrays):
            asked.missing["loss"] = "the mean over padding has weights there that no log-probs have"
    if loss_type == "dr_grpo":
        asked.settings["horizon"] = settings["max_completion_length"]
    if loss_type == "vespo":
        asked.settings |= {name: settings[name] for name in settings if name.startswith("vespo_")}
    if loss_type == "sapo":
        trl.sapo(settings, arrays, asked)
    bounds = [1.0 - settings["epsilon_low"], 1.0 + settings["epsilon_high"]]
    if loss_type == "cispo":
        asked.settings["cispo_high"] = settings["epsilon_high"]
        bounds = [settings["epsilon_high"]]
    if sequence:
        asked.settings["ratio_level"] = "sequence"
        if loss_type not in ("cispo", "sapo", "vespo"):
            asked.settings["objective"] = "gspo"
        if trl.spoiled(arrays).any():
            asked.missing[CLIP] = trl.NAN_RATIO
    trl.doubt(settings, arrays, asked, [CLIP], *bounds)
    return asked


def same_weights(arrays: Arrays) -> bool:
    """Whether the weights are those of the log-probs in the padding too."""
    weights = arrays["vllm_is_ratio"]
    ours = np.minimum(np.exp(arrays["old_log_probs"] - arrays["rollout_log_probs"]), weights.max())
    return bool(np.allclose(ours, weights, rtol=1e-12, atol=0.0))


MAPPINGS: dict[str, Mapping] = {
    "liger_kernel.chunked_loss.grpo_loss.LigerFusedLinearGRPOFunction.ppo_loss_fn": ppo_loss_fn
}
