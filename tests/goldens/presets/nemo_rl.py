"""NeMo-RL 7ea279abf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from goldens.presets import trl
from goldens.presets.asked import Asked, Mapping, inputs

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

COLUMNS = ("log_probs", "old_log_probs", "rollout_log_probs", "ref_log_probs", "advantages", "mask")
EPS = 1e-8
NAN_RATIO = "NaN in the padding makes the ratio of a sequence NaN"
NOT_RATIOS = "the current log-probs stand in for ratios there"
RATIOS = tuple(
    f"probs_ratio{clamped}{edge}" for clamped in ("", "_clamped") for edge in ("", "_min", "_max")
)  # fmt: skip


def clipped_pg(row: Row, arrays: Arrays) -> Asked:
    """One loss with its metrics."""
    settings = row["settings"]
    like = "nemo-rl"
    if settings["disable_ppo_ratio"]:
        like = "nemo-rl:reinforce"
    elif settings["sequence_level_importance_ratios"]:
        like = "nemo-rl:gspo"
    elif settings["use_cispo"]:
        like = "nemo-rl:cispo"
    asked = Asked(like, inputs(arrays, *COLUMNS))
    if settings["force_on_policy_ratio"]:
        asked.arrays["old_log_probs"] = asked.arrays["log_probs"]
    asked.settings = {
        "clip_low": settings["ratio_clip_min"],
        "clip_high": settings["ratio_clip_max"],
        "dual_clip": settings["ratio_clip_c"],
        "kl_coef": settings["reference_policy_kl_penalty"],
        "ref_kl": settings["reference_policy_kl_type"],
        "ref_kl_clamp": settings["kl_input_clamp_value"],
        "ref_kl_cap": settings["kl_output_clamp_value"],
        **aggregation(settings),
        **correction(settings),
    }
    asked.names["loss_tensor"] = "loss"
    asked.values["positive_nll_loss"] = 0.0
    if not settings["reference_policy_kl_penalty"]:
        asked.values["kl_penalty"] = 0.0
    if settings["disable_ppo_ratio"]:
        asked.missing = dict.fromkeys(RATIOS, NOT_RATIOS)
    sequences = settings["global_valid_seqs"]
    if settings["sequence_level_importance_ratios"]:
        asked.factors["sampling_importance_ratio"] = sequences / (sequences + EPS)
        if trl.spoiled(arrays).any():
            asked.missing = dict.fromkeys((*RATIOS, "sampling_importance_ratio"), NAN_RATIO)
    if settings["truncated_importance_sampling_type"] == "seq-mask-tis":
        asked.factors["is_oob_ratio"] = sequences / (sequences + EPS)
    return asked


def aggregation(settings: Row) -> dict[str, Any]:
    """Tokens over their number, or means of sequences over theirs."""
    if settings["token_level_loss"]:
        return {"denominator": settings["global_valid_toks"]}
    return {"agg": "seq-mean-token-mean", "denominator": settings["global_valid_seqs"] + EPS}


def correction(settings: Row) -> dict[str, Any]:
    """The weight against the policy that sampled."""
    if not settings["use_importance_sampling_correction"]:
        return {}
    kind = settings["truncated_importance_sampling_type"]
    low = settings["truncated_importance_sampling_ratio_min"]
    high = settings["truncated_importance_sampling_ratio"]
    level = {"rollout_is": "sequence" if settings["sequence_level_importance_ratios"] else "token"}
    if kind == "seq-mask-tis":
        return level | {"rollout_rs": (f"seq_mean_ratio:{low!r}_{high!r}",), "rollout_rs_mode": "zero"}
    mode = "mask" if kind == "icepop" else "truncate"
    return level | {"rollout_is_mode": mode, "rollout_is_low": low, "rollout_is_cap": high}


def mse_value(row: Row, arrays: Arrays) -> Asked:
    """The value loss; there is no policy."""
    settings = row["settings"]
    asked = Asked("nemo-rl", with_no_policy(arrays))
    asked.settings = {"value_clip": settings["cliprange"], "vf_coef": settings["scale"]}
    asked.names = {"loss": "value_loss", "loss_tensor": "value_loss"}
    asked.values["num_valid_samples"] = arrays["mask"].shape[0]
    return asked


def with_no_policy(arrays: Arrays) -> Arrays:
    """The columns of a value loss, beside a policy that has not moved."""
    zero = np.zeros(arrays["values"].shape)
    columns = {**arrays, "log_probs": zero, "old_log_probs": zero, "advantages": zero}
    roles = ("values", "old_values", "returns", "log_probs", "old_log_probs", "advantages", "mask")
    return inputs(columns, *roles)


MAPPINGS: dict[str, Mapping] = {
    "nemo_rl.algorithms.loss.loss_functions.ClippedPGLossFn": clipped_pg,
    "nemo_rl.algorithms.loss.loss_functions.MseValueLossFn": mse_value,
}
