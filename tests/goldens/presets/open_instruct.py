"""open-instruct e6c3044a: one sample at a time; what it logs is weighted by their lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from goldens.presets.asked import Asked, Mapping, inputs
from goldens.rows import NotExpressed

import ppocli

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

COLUMNS = (
    "log_probs", "old_log_probs", "rollout_log_probs", "ref_log_probs", "advantages", "mask", "entropy",
)  # fmt: skip
ESTIMATORS = ("k1", "k2", "k3", "ratio-k1")
RHO = ("weight", "clipfrac", "drop_frac", "drop_low_frac", "drop_high_frac")


def compute_grpo_loss(row: Row, arrays: Arrays) -> Asked:
    """One loss with its metrics."""
    settings = row["settings"]
    if settings["rho_mask_tv_divergence"]:
        raise NotExpressed("a mask by the mean of |rho - 1| over the sequence and the sign of A")
    cispo = settings["loss_fn"] == "cispo"
    asked = Asked("open-instruct:cispo" if cispo else "open-instruct", inputs(arrays, *COLUMNS))
    asked.settings = {
        "clip_low": settings["clip_lower"],
        "clip_high": settings["clip_higher"],
        "kl_coef": settings["beta"] if settings["load_ref_policy"] else 0.0,
        "ref_kl": ESTIMATORS[settings["kl_estimator"]],
    }
    if settings["loss_denominator"] != "token":
        asked.settings["denominator"] = settings["loss_denominator"]
    if not settings["load_ref_policy"]:
        asked.values |= {f"objective/kl{i}_avg": 0.0 for i in range(4)} | {"loss/kl_avg": 0.0}
    if settings["use_rho_correction"]:
        asked.settings |= correction(settings)
    else:
        asked.values |= {f"val/rho_{name}": 0.0 for name in RHO}
    debug(arrays, asked)
    return asked


def debug(arrays: Arrays, asked: Asked) -> None:
    """The mismatch of the log-probs of the forward pass: in the records those of the old policy."""
    local = {**asked.arrays, "log_probs": asked.arrays["old_log_probs"]}
    like = ppocli.evaluate(**local, like=asked.like, **asked.settings).like
    assert like is not None
    asked.values |= {name: value for name, value in like.metrics.items() if name.startswith("debug/")}
    if np.count_nonzero(arrays["mask"]) == 1:
        asked.missing["debug/vllm_vs_local_logprob_diff_std"] = "is 0 for one token, where we have none"


def correction(settings: Row) -> dict[str, Any]:
    """Weights and masks; a bound of 0 is none."""
    sequence = settings["rho_mask_sequence_level"]
    low, high = settings["rho_mask_lower_bound"], settings["rho_mask_upper_bound"]
    out = {
        "rollout_is": "geometric" if sequence else "token",
        "rollout_is_clamp": 10.0,
        "rollout_is_low": settings["rho_clamp_lower_bound"] or None,
        "rollout_is_cap": settings["rho_clamp_upper_bound"] or None,
    }
    if low or high:
        mode = "seq_mean_ratio" if sequence else "token_ratio"
        out |= {"rollout_rs": (f"{mode}:{low!r}_{high!r}",), "rollout_rs_mode": "zero"}
    return out


MAPPINGS: dict[str, Mapping] = {
    "open_instruct.grpo_utils.compute_grpo_loss + compute_rho_correction + loss stats": compute_grpo_loss
}
