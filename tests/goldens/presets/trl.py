"""TRL 1.16.0."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from goldens.presets.asked import Asked, Mapping, inputs

import ppocli

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

COLUMNS = (
    "log_probs", "old_log_probs", "rollout_log_probs", "ref_log_probs", "advantages", "mask", "entropy",
)  # fmt: skip
CLIP_RATIOS = ("low_mean", "high_mean", "region_mean", "low_min", "high_max")
NAN_RATIO = "NaN in the padding makes the ratio of a sequence NaN, and no clip is counted"


def compute_loss(row: Row, arrays: Arrays) -> Asked:
    """One loss with its metrics."""
    settings = row["settings"]
    loss_type, sequence = settings["loss_type"], settings["importance_sampling_level"] == "sequence"
    asked = Asked(f"trl:{loss_type}", inputs(arrays, *COLUMNS))
    asked.settings = {
        "kl_coef": settings["beta"],
        "ref_kl_ratio": settings["use_bias_correction_kl"],
        "off_policy_threshold": settings["off_policy_mask_threshold"],
        **divisor(settings, arrays),
        **correction(settings),
    }
    if sequence:
        asked.settings["ratio_level"] = "sequence"
    {"cispo": cispo, "sapo": sapo, "vespo": vespo}.get(loss_type, surrogate)(settings, arrays, asked)
    if "entropy" not in arrays:
        asked.values["entropy"] = 0.0
    if sequence and any(spoiled(arrays)):
        asked.missing |= dict.fromkeys([f"clip_ratio/{name}" for name in CLIP_RATIOS], NAN_RATIO)
        asked.missing["cispo_clip_ratio"] = NAN_RATIO
    if settings["top_entropy_quantile"] < 1.0:
        asked.values["loss"] = with_top_entropy(settings["top_entropy_quantile"], arrays, asked)
    return asked


def with_top_entropy(share: float, arrays: Arrays, asked: Asked) -> float | None:
    """The loss where only the share of tokens with the largest entropy keeps its loss: A = 0 elsewhere."""
    valid = arrays["mask"] != 0
    kept = arrays["entropy"] >= np.quantile(arrays["entropy"][valid], 1.0 - share)
    advantages = np.where(kept, arrays["advantages"][:, None], 0.0)
    like = ppocli.evaluate(
        **{**asked.arrays, "advantages": advantages}, like=asked.like, **asked.settings
    ).like
    assert like is not None
    return like.metrics["loss"]


def divisor(settings: Row, arrays: Arrays) -> dict[str, Any]:
    """What a sum is divided by: sequences or tokens, and steps of accumulation."""
    accumulation = settings["gradient_accumulation_steps"]
    per_step = settings["num_items_in_batch"] * accumulation / settings["steps_per_generation"]
    if settings["loss_type"] in ("dapo", "cispo", "vespo"):
        return {"denominator": per_step}
    scale = {"loss_scale": 1.0 / accumulation}
    return scale | (
        {"horizon": settings["max_completion_length"]} if settings["loss_type"] == "dr_grpo" else {}
    )


def correction(settings: Row) -> dict[str, Any]:
    """The importance weight against the policy that sampled."""
    mode = settings.get("vllm_importance_sampling_mode")
    if mode is None:
        return {}
    level, mode = mode.split("_")
    return {
        "rollout_is": level,
        "rollout_is_mode": mode,
        "rollout_is_low": settings["vllm_importance_sampling_clip_min"],
        "rollout_is_cap": settings["vllm_importance_sampling_clip_max"],
    }


def surrogate(settings: Row, arrays: Arrays, asked: Asked) -> None:
    """The clipped surrogate.

    A delta below 1 + epsilon_high is the clip for A > 0, and for A < 0 leaves 1 + epsilon_high as a bound on
    the loss, that is a dual clip; TRL then counts no high clip.
    """
    low, high, delta = settings["epsilon_low"], settings["epsilon_high"], settings["delta"]
    asked.settings |= {"clip_low": low, "clip_high": high, "delta": delta}
    if delta is not None and delta <= 1.0 + high:
        asked.settings |= {"clip_high": delta - 1.0, "delta": None, "dual_clip": 1.0 + high}
        asked.values = {"clip_ratio/high_mean": 0.0, "clip_ratio/high_max": 0.0}
        asked.names = {"clip_ratio/region_mean": "clip_ratio/low_mean"}
    if settings["importance_sampling_level"] == "sequence":
        asked.settings["objective"] = "gspo"
    doubt(settings, arrays, asked, [f"clip_ratio/{name}" for name in CLIP_RATIOS], 1.0 - low, 1.0 + high)


def cispo(settings: Row, arrays: Arrays, asked: Asked) -> None:
    """epsilon_high is the bound itself."""
    asked.settings["cispo_high"] = settings["epsilon_high"]
    doubt(settings, arrays, asked, ["cispo_clip_ratio"], settings["epsilon_high"])


def sapo(settings: Row, arrays: Arrays, asked: Asked) -> None:
    """The soft gate."""
    asked.settings["sapo_tau_pos"] = settings["sapo_temperature_pos"]
    asked.settings["sapo_tau_neg"] = settings["sapo_temperature_neg"]


def vespo(settings: Row, arrays: Arrays, asked: Asked) -> None:
    """The sequence's weight."""
    asked.settings |= {name: settings[name] for name in settings if name.startswith("vespo_")}
    if arrays["advantages"].ndim == 2:
        asked.missing["vespo/phi_seq_mean"] = "with an advantage per token TRL takes the mean over tokens"
    if any(spoiled(arrays)):
        asked.missing["vespo/phi_seq_mean"] = "a sequence with NaN in its padding counts as 0"


def spoiled(arrays: Arrays) -> np.ndarray:
    """Rows whose padding is not finite."""
    dirty = ~np.isfinite(arrays["log_probs"] - arrays["old_log_probs"])
    found: np.ndarray = (dirty & (arrays["mask"] == 0)).any(axis=1)
    return found


def doubt(settings: Row, arrays: Arrays, asked: Asked, names: list[str], *bounds: float) -> None:
    """Allow votes that rounding may decide: of tokens, or of sequences whose mean is at a bound."""
    valid = arrays["mask"] != 0
    with np.errstate(invalid="ignore"):
        log_ratio = np.where(valid, arrays["log_probs"] - arrays["old_log_probs"], 0.0)
    sequence = settings["importance_sampling_level"] == "sequence"
    if sequence:
        lengths = np.maximum(valid.sum(axis=1, keepdims=True), 1)
        log_ratio = np.broadcast_to(log_ratio.sum(axis=1, keepdims=True) / lengths, valid.shape)
    near = np.zeros(valid.shape, bool)
    for bound in bounds:
        at = math.log(bound)
        width = max(4.0 * float(np.spacing(abs(at))), 1e-12 if sequence else 0.0)
        near |= (np.abs(log_ratio - at) <= width) & (log_ratio != 0.0) & valid
    rows = near.sum(axis=1) / np.maximum(valid.sum(axis=1), 1)
    mean = float(rows.mean()) if sequence else float(near.sum() / max(valid.sum(), 1))
    for name in names:
        asked.slack[name] = float(rows.max()) if name.endswith(("_min", "_max")) else mean


MAPPINGS: dict[str, Mapping] = {"trl.trainer.grpo_trainer.GRPOTrainer._compute_loss": compute_loss}
