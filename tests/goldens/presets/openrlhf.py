"""OpenRLHF 0.11.2."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from goldens.presets.asked import Asked, Mapping, dirty, inputs, metrics_of, term

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

KL_CAP = 10.0
COLUMNS = ("log_probs", "old_log_probs", "advantages", "mask")
NAMES = {
    "loss": "train/policy_loss",
    "clip_ratio": "train/ppo_clip_ratio",
    "ppo_kl": "train/ppo_kl",
    "vllm_kl": "train/vllm_kl",
    "is_filter_ratio": "train/is_filter_ratio",
}


def policy_loss(row: Row, arrays: Arrays) -> Asked:
    """The clipped surrogate, or that of the sequence's ratio; with a correction against the sampler."""
    settings = row["settings"]
    gspo = settings.get("policy_loss_type") == "gspo"
    asked = Asked("openrlhf:gspo" if gspo else "openrlhf", inputs(arrays, *COLUMNS), names=dict(NAMES))
    asked.settings = {"clip_low": settings["clip_eps_low"], "clip_high": settings["clip_eps_high"]}
    asked.settings["dual_clip"] = settings.get("dual_clip")
    asked.settings |= aggregation(settings)
    if gspo and "rollout_log_probs" in arrays:
        # The drift stays that from the old policy.
        asked.values["ppo_kl"] = metrics_of(asked)["train/ppo_kl"]
        asked = replace(asked, arrays={**asked.arrays, "old_log_probs": arrays["rollout_log_probs"]})
    elif "rollout_log_probs" in arrays:
        asked.arrays |= inputs(arrays, "rollout_log_probs")
        asked.settings |= correction(settings)
    asked.bounds = (
        1.0 - settings["clip_eps_low"],
        1.0 + settings["clip_eps_high"],
        settings.get("dual_clip") or 0.0,
    )
    asked.decided = ("clip_ratio",)
    if gspo and dirty(arrays):
        asked.missing["clip_ratio"] = "NaN in the padding makes OpenRLHF's comparisons fail"
    return asked


def aggregation(settings: Row) -> dict[str, Any]:
    """Over tokens or over sequences, with the sizes of a global batch."""
    by_token = settings.get("token_level_loss", settings.get("policy_loss_type") != "gspo")
    return {
        "agg": "token-mean" if by_token else "seq-mean-token-mean",
        "denominator": settings.get("batch_num_tokens" if by_token else "global_batch_size"),
        "loss_scale": settings.get("dp_size", 1),
    }


def correction(settings: Row) -> dict[str, Any]:
    """Weights within bounds, or weights of the tokens that a rule allows."""
    low, high = settings["is_correction_threshold"]
    if settings["is_correction_mode"] == "clip":
        return {"rollout_is": "token", "rollout_is_low": low, "rollout_is_cap": high}
    level = "token" if settings["is_correction_level"] == "token" else "seq_mean"
    rule = f"{level}_{settings['is_correction_gating']}:{low}_{high}"
    return {"rollout_is": "token", "rollout_rs": (rule,)}


def value_loss(row: Row, arrays: Arrays) -> Asked:
    """Half the larger square, beside a policy loss of 0."""
    zero = {role: np.zeros(arrays["values"].shape) for role in COLUMNS[:3]}
    columns = inputs({**arrays, **zero}, *COLUMNS, "values", "old_values", "returns")
    settings = {"value_clip": row["settings"]["clip_eps"], **aggregation(row["settings"])}
    return Asked("openrlhf", columns, settings, names={"critic_loss": "train/critic_loss"})


def approx_kl(row: Row, arrays: Arrays) -> Asked:
    """The KL from the reference; the peer reads its columns as float32."""
    columns = {role: arrays[role].astype(np.float32) for role in ("log_probs", "ref_log_probs")}
    columns |= {"old_log_probs": columns["log_probs"], "mask": arrays["mask"]}
    columns["advantages"] = np.zeros_like(columns["log_probs"])
    estimator = row["settings"]["kl_estimator"]
    asked = Asked("openrlhf", columns, {"ref_kl": estimator}, names={"token_mean": "train/kl"})
    asked.terms["kl"] = term(
        asked, "kl", estimator=estimator, new="ref_log_probs", old="log_probs", cap=KL_CAP
    )
    asked.scale["kl"] = float(np.abs(asked.terms["kl"]).mean())
    asked.float32 = ("kl", "token_mean")
    return asked


MAPPINGS: dict[str, Mapping] = {
    "openrlhf.models.loss.PolicyLoss": policy_loss,
    "openrlhf.models.loss.ValueLoss": value_loss,
    "openrlhf.models.utils.compute_approx_kl": approx_kl,
}
