"""SkyRL 0.4.0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from goldens.presets.asked import Asked, Mapping, dirty, inputs, metrics_of

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

UTILS = "skyrl.backends.skyrl_train.utils.ppo_utils."
COLUMNS = ("log_probs", "old_log_probs", "advantages", "mask")
NAMES = {
    "loss": "policy/policy_loss",
    "clip_ratio": "policy/loss_metrics/clip_ratio",
    "importance_ratio": "policy/loss_metrics/importance_ratio",
    **{f"cispo/{name}": f"policy/cispo/{name}" for name in (
        "ratio_mean", "ratio_clamped_mean", "ratio_max", "ratio_min")},
}  # fmt: skip
REDUCTIONS = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "seq_mean_token_sum_norm": "seq-mean-token-sum-norm",
    "prompt_mean": "group-mean",
}


def policy_loss(row: Row, arrays: Arrays) -> Asked:
    """One of the losses; the advantages go in as they are before SkyRL scales them."""
    settings, name = row["settings"], row["function"].removeprefix(UTILS)
    like, spec, ratios = LOSSES[name](settings)
    columns = inputs(arrays, *COLUMNS)
    anchored = name != "compute_policy_loss_cispo" or settings["cispo"]["cispo_anchor"] != "old"
    if anchored and "rollout_log_probs" in arrays:
        columns["old_log_probs"] = arrays["rollout_log_probs"]
    asked = Asked(like, columns, spec, names=dict(NAMES), bounds=ratios, decided=("clip_ratio",))
    asked.settings |= {"agg": REDUCTIONS[settings["loss_reduction"]]}
    if settings["loss_reduction"] == "seq_mean_token_sum_norm":
        asked.settings["horizon"] = settings["max_seq_len"]
    if settings["loss_reduction"] == "prompt_mean":
        groups = np.zeros(arrays["mask"].shape, dtype=np.int64)
        for which, (first, last) in enumerate(settings["prompt_boundaries"]):
            groups[first:last] = which
        asked.arrays["group_id"] = groups
    if like == "skyrl:gspo" and dirty(arrays):
        asked.missing["clip_ratio"] = "NaN in the padding makes SkyRL's comparisons fail"
    return asked


Settings = tuple[str, dict[str, Any], tuple[float, ...]]
"""The preset, its settings, and the ratios at which it decides."""


def interval(settings: Row) -> tuple[dict[str, Any], tuple[float, ...]]:
    """The clip interval."""
    low, high = settings["eps_clip_low"], settings["eps_clip_high"]
    return {"clip_low": low, "clip_high": high}, (1.0 - low, 1.0 + high)


def ppo(settings: Row) -> Settings:
    spec, ratios = interval(settings)
    dual = settings["clip_ratio_c"] if settings["policy_loss_type"] == "dual_clip" else None
    return "skyrl", {**spec, "dual_clip": dual}, (*ratios, dual or 0.0)


def gspo(settings: Row) -> Settings:
    return "skyrl:gspo", *interval(settings)


def sapo(settings: Row) -> Settings:
    taus = {f"sapo_{name}": settings["sapo"][name] for name in ("tau_pos", "tau_neg")}
    return "skyrl:sapo", taus, ()


def cispo(settings: Row) -> Settings:
    low = 1.0 - settings["cispo"]["cispo_eps_clip_low"]
    high = 1.0 + settings["cispo"]["cispo_eps_clip_high"]
    return "skyrl:cispo", {"cispo_low": low, "cispo_high": high}, (low, high)


def rollout_is(settings: Row) -> Settings:
    low, high = interval(settings)[1]
    return "skyrl:rollout_is", {"rollout_is_low": low, "rollout_is_cap": high}, (low, high)


def importance(settings: Row) -> Settings:
    return "skyrl:importance_sampling", {}, ()


def dppo(settings: Row) -> Settings:
    given = settings["dppo"]
    like = {"binary_tv": "skyrl:dppo_tv", "binary_kl": "skyrl:dppo_kl"}[given["dppo_type"]]
    return like, {"clip_low": given["delta_low"], "clip_high": given["delta_high"]}, ()


LOSSES = {
    "ppo_policy_loss": ppo,
    "gspo_policy_loss": gspo,
    "sapo_policy_loss": sapo,
    "compute_policy_loss_cispo": cispo,
    "rollout_is_policy_loss": rollout_is,
    "importance_sampling_loss": importance,
    "dppo_policy_loss": dppo,
}


def critic(row: Row, arrays: Arrays) -> Asked:
    """Half the larger square, beside a policy loss of 0."""
    zero = {role: np.zeros(arrays["values"].shape) for role in COLUMNS[:3]}
    columns = inputs({**arrays, **zero}, *COLUMNS, "values", "old_values", "returns")
    names = {"loss": "critic/critic_loss", "clipfrac": "critic/values_clipfrac"}
    asked = Asked("skyrl", columns, {"value_clip": row["settings"]["value_clip"]}, names=names)
    if row["settings"]["value_clip"] is None:
        asked.values["clipfrac"] = None
        assert "critic/values_clipfrac" not in metrics_of(asked)
    return asked


MAPPINGS: dict[str, Mapping] = {
    **{UTILS + name: policy_loss for name in LOSSES},
    f"{UTILS}ppo_critic_loss": critic,
}
