"""verl 0.9.1."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from goldens.presets.asked import Asked, Mapping, dirty, inputs, metrics_of, term

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

COLUMNS = ("log_probs", "old_log_probs", "advantages", "mask")
EPS = 1e-8
LOSS = {"loss": "actor/pg_loss"}
KL = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}


def policy_loss(row: Row, arrays: Arrays) -> Asked:
    """One row of the registry of policy losses."""
    settings = row["settings"]
    mode = settings["loss_mode"]
    asked = Asked("verl" if mode == "vanilla" else f"verl:{mode}", inputs(arrays, *COLUMNS), names=dict(LOSS))
    asked.settings = {"agg": settings["loss_agg_mode"], **bounds(settings), **divisors(settings)}
    if mode in ("sapo", "geo_mean"):
        del asked.settings["agg"]  # it has no effect there
    weighted = settings.get("rollout_is_weights")
    if weighted:
        asked.arrays |= inputs(arrays, "rollout_log_probs")
        asked.settings |= {"rollout_is": weighted["level"], "rollout_is_cap": weighted["threshold"]}
    if mode == "gspo" and dirty(arrays):
        asked.missing["actor/pg_clipfrac"] = "NaN in the padding makes verl's comparisons fail"
    spec = asked.settings
    asked.bounds = (1.0 - spec["clip_low"], 1.0 + spec["clip_high"], settings.get("clip_ratio_c", 0.0))
    asked.decided = ("actor/pg_clipfrac", "actor/pg_clipfrac_lower")
    return asked


def bounds(settings: Row) -> dict[str, Any]:
    """The interval and the other hyper-parameters of a mode."""
    mode = settings["loss_mode"]
    both = settings.get("clip_ratio", 0.2)
    low, high = settings.get("clip_ratio_low"), settings.get("clip_ratio_high")
    out: dict[str, Any] = {
        "clip_low": both if low is None else low,
        "clip_high": both if high is None else high,
    }
    if mode == "vanilla":
        out["dual_clip"] = settings["clip_ratio_c"]
    if mode.startswith("dppo"):
        out["dppo_weight_cap"] = settings["clip_ratio_c"]
    named = {"tau_pos": "sapo_tau_pos", "tau_neg": "sapo_tau_neg", "dro_beta": "dro_beta"}
    return out | {ours: settings[name] for name, ours in named.items() if name in settings}


def divisors(settings: Row) -> dict[str, Any]:
    """What a global batch brings: its sizes, and the number of workers as a factor."""
    info = settings.get("global_batch_info") or {}
    tokens = settings["loss_agg_mode"].startswith("token")
    size = info.get("batch_num_tokens") if tokens else info.get("global_batch_size")
    if settings["loss_agg_mode"] == "token-sum":
        size = None
    return {
        "denominator": size,
        "loss_scale": info.get("dp_size", 1),
        "horizon": info.get("loss_scale_factor"),
    }


def bypass(row: Row, arrays: Arrays) -> Asked:
    """The old policy is the rollout policy; everything that verl logs of it has the preset's name."""
    settings = row["settings"]
    reinforce = settings["loss_type"] == "reinforce"
    columns = inputs(arrays, *COLUMNS) | {"old_log_probs": arrays["rollout_log_probs"]}
    like = "verl:bypass_mode_reinforce" if reinforce else "verl:bypass_mode"
    asked = Asked(like, columns, names=dict(LOSS))
    asked.settings = {
        "agg": settings["loss_agg_mode"],
        "clip_low": settings["clip_ratio_low"],
        "clip_high": settings["clip_ratio_high"],
        "rollout_rs": rules(settings),
    }
    weights = {"rollout_is": settings["rollout_is"], "rollout_is_cap": settings["rollout_is_threshold"]}
    if reinforce:
        none = {"rollout_is": "none", "rollout_is_cap": None}
        asked.settings |= weights if settings["rollout_is"] else none
    elif settings["rollout_is"]:
        # The clipped surrogate takes no weights; verl logs them all the same.
        logged = metrics_of(replace(asked, settings=asked.settings | weights))
        asked.values = {name: value for name, value in logged.items() if "rollout_is" in name}
    return asked


def rules(settings: Row) -> tuple[str, ...]:
    """The options of rejection with their bounds."""
    if not settings.get("rollout_rs"):
        return ()
    options, limits = settings["rollout_rs"].split(","), str(settings["rollout_rs_threshold"]).split(",")
    return tuple(f"{option}:{limit}" for option, limit in zip(options, limits, strict=True))


def correction(row: Row, arrays: Arrays) -> Asked:
    """The off-policy metrics, those of the weights and of the rules; they need no loss."""
    settings = row["settings"]
    columns = inputs(arrays, "old_log_probs", "rollout_log_probs", "mask")
    zero = np.zeros_like(arrays["old_log_probs"])
    columns |= inputs({"log_probs": arrays["old_log_probs"], "advantages": zero}, "log_probs", "advantages")
    asked = Asked("verl", columns)
    asked.settings = {"rollout_rs": rules(settings)}
    level = settings.get("rollout_is")
    if level:
        ends = [float(part) for part in str(settings["rollout_is_threshold"]).split("_")]
        asked.settings |= {"rollout_is": level, "rollout_is_cap": ends[-1]}
        if len(ends) == 2:
            asked.settings |= {"rollout_is_low": ends[0], "rollout_is_mode": "mask"}
        weights = term(asked, "weight")
        if settings.get("rollout_is_batch_normalize"):
            weights = weights / metrics_of(asked)["rollout_corr/rollout_is_batch_norm_factor"]
        asked.terms["rollout_is_weights"] = weights
    asked.terms["modified_response_mask"] = term(asked, "kept")
    asked.terms = {name: values for name, values in asked.terms.items() if name in arrays}
    return asked


def value_loss(row: Row, arrays: Arrays) -> Asked:
    """Half the larger square, beside a policy loss of 0."""
    settings = row["settings"]
    zero = {role: np.zeros(arrays["values"].shape) for role in COLUMNS[:3]}
    columns = inputs({**arrays, **zero}, *COLUMNS, "values", "old_values", "returns")
    asked = Asked("verl", columns, names={"vf_loss": "critic/vf_loss", "vf_clipfrac": "critic/vf_clipfrac"})
    asked.settings = {
        "value_clip": settings["cliprange_value"],
        "agg": settings["loss_agg_mode"],
        "horizon": settings["loss_scale_factor"],
    }
    return asked


def kl_penalty(row: Row, arrays: Arrays) -> Asked:
    """Means over the tokens and over all stored ones; single tokens where only differences are given."""
    settings = row["settings"]
    name = settings["kl_penalty"].removesuffix("+")
    estimator = {"ref_kl": KL.get(name, name)}
    steps = settings.get("ref_minus_logprob")
    if steps is not None:
        asked = Asked("verl", on_policy(np.zeros(1), np.zeros(1)), estimator)
        asked.values["kl"] = [
            metrics_of(Asked("verl", on_policy(np.zeros(1), np.array([step])), estimator))["actor/kl_loss"]
            for step in steps
        ]
        return asked
    pair = arrays["log_probs"], arrays["ref_log_probs"]
    asked = Asked("verl", {**on_policy(*pair), "mask": arrays["mask"]}, estimator)
    n = int((arrays["mask"] != 0).sum())
    asked.names["masked_mean"] = "actor/kl_loss"
    asked.factors["masked_mean"] = n / (n + EPS)
    clamps = {"clamp": 20.0, "cap": 10.0} if estimator["ref_kl"] == "k3" else {}
    ends = {"new": "ref_log_probs", "old": "log_probs"}
    asked.terms["kl"] = term(asked, "kl", estimator=estimator["ref_kl"], **ends, **clamps)
    whole = metrics_of(Asked("verl", on_policy(*pair), {**estimator, "agg": "token-sum"}))
    asked.values["sum_all"] = whole["actor/kl_loss"]
    return asked


def on_policy(log_probs: np.ndarray, ref_log_probs: np.ndarray) -> Arrays:
    """Columns in which only the reference differs."""
    zero = np.zeros(log_probs.shape)
    return {
        "log_probs": log_probs,
        "old_log_probs": log_probs,
        "ref_log_probs": ref_log_probs,
        "advantages": zero,
    }


CORE = "verl.trainer.ppo.core_algos."
MODES = ("vanilla", "gspo", "sapo", "gpg", "cispo", "dro", "geo_mean", "dppo_tv", "dppo_kl")
MAPPINGS: dict[str, Mapping] = {
    **{f"{CORE}POLICY_LOSS_REGISTRY['{mode}']": policy_loss for mode in MODES},
    f"{CORE}POLICY_LOSS_REGISTRY['bypass_mode']": bypass,
    f"{CORE}compute_value_loss": value_loss,
    f"{CORE}kl_penalty": kl_penalty,
    "verl.trainer.ppo.rollout_corr_helper.compute_rollout_correction_and_rejection_mask": correction,
}
