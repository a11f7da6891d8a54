"""slime 624b824a: its functions return sums over samples, or over tokens, where it logs means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from goldens.presets import trl
from goldens.presets.asked import Asked, Mapping, inputs
from goldens.presets.nemo_rl import with_no_policy

import ppocli

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

COLUMNS = (
    "log_probs", "old_log_probs", "rollout_log_probs", "ref_log_probs", "advantages", "mask", "entropy",
)  # fmt: skip
LOW_VARIANCE_CAP = 10.0
MISMATCH = "train_rollout_logprob_abs_diff"


def policy_loss(row: Row, arrays: Arrays) -> Asked:
    """One loss with its metrics."""
    settings = row["settings"]
    like = {"gspo": "slime:gspo", "cispo": "slime:cispo"}.get(settings["advantage_estimator"], "slime")
    asked = Asked(like, inputs(arrays, *COLUMNS))
    low_variance = settings["kl_loss_type"] == "low_var_kl"
    asked.settings = {
        **aggregation(settings),
        **correction(settings),
        "clip_low": settings["eps_clip"],
        "clip_high": settings["eps_clip_high"],
        "dual_clip": settings["eps_clip_c"],
        "ent_coef": settings["entropy_coef"],
        "kl_coef": settings["kl_loss_coef"],
        "ref_kl": "k3" if low_variance else settings["kl_loss_type"],
        "ref_kl_cap": LOW_VARIANCE_CAP if low_variance else None,
        "ref_kl_ratio": settings["use_unbiased_kl"],
        "off_policy_threshold": settings["opsm_delta"] if settings["use_opsm"] else None,
    }
    asked.names = {name: f"train/{name.removesuffix('_returned')}" for name in row["outputs"]}
    asked.factors = raw_sums(row, arrays)
    if settings["use_rollout_logprobs"]:
        moved = {**asked.arrays, "old_log_probs": asked.arrays["log_probs"]}
        like_report = ppocli.evaluate(**moved, like=like, **asked.settings).like
        assert like_report is not None
        asked.values[MISMATCH] = like_report.metrics[f"train/{MISMATCH}"]
        asked.arrays["old_log_probs"] = asked.arrays["rollout_log_probs"]
    if settings["use_opsm"] and (arrays["mask"] == 0).any():
        asked.missing["opsm_clipfrac"] = "counts the padding of dropped samples too"
    if like == "slime:gspo" and trl.spoiled(arrays).any():
        asked.missing["pg_clipfrac"] = trl.NAN_RATIO
    return asked


def aggregation(settings: Row) -> dict[str, Any]:
    """Means of samples, or of tokens."""
    return {"agg": "token-mean" if settings["calculate_per_token_loss"] else "seq-mean-token-mean"}


def raw_sums(row: Row, arrays: Arrays) -> dict[str, float]:
    """What a mean is multiplied by to give the sum."""
    settings = row["settings"]
    tokens = float(np.count_nonzero(arrays["mask"]))
    factor = tokens if settings["calculate_per_token_loss"] else float(settings["num_samples"])
    return dict.fromkeys(row["outputs"], factor)


def correction(settings: Row) -> dict[str, Any]:
    """The weight against the policy that sampled."""
    if not settings["use_tis"]:
        return {}
    return {
        "rollout_is": "token",
        "rollout_is_mode": "truncate" if settings["custom_tis_function_path"] is None else "mask",
        "rollout_is_low": settings["tis_clip_low"],
        "rollout_is_cap": settings["tis_clip"],
    }


def value_loss(row: Row, arrays: Arrays) -> Asked:
    """The value loss; there is no policy."""
    asked = Asked("slime", with_no_policy(arrays))
    asked.settings = {**aggregation(row["settings"]), "value_clip": row["settings"]["value_clip"]}
    asked.names = {name: f"train/{name}" for name in row["outputs"]}
    asked.factors = raw_sums(row, arrays)
    return asked


MAPPINGS: dict[str, Mapping] = {
    "slime.backends.megatron_utils.loss.policy_loss_function": policy_loss,
    "slime.backends.megatron_utils.loss.value_loss_function": value_loss,
}
