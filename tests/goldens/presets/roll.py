"""ROLL 8eb27cc2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from goldens.presets import trl
from goldens.presets.asked import Asked, Mapping, inputs
from goldens.presets.nemo_rl import with_no_policy
from goldens.rows import NotExpressed

import ppocli

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

COLUMNS = (
    "log_probs", "old_log_probs", "rollout_log_probs", "ref_log_probs", "advantages", "mask", "entropy",
)  # fmt: skip
NORM = "seq-mean-token-sum-norm"
POSITIONS = "the vote of a sequence counts at its padding too"
FILTER = "the share that a filter leaves"
CLIPS = (
    "actor/ppo_ratio_high_clipfrac@sum",
    "actor/ppo_ratio_low_clipfrac@sum",
    "actor/ppo_ratio_clipfrac@sum",
)


def actor(row: Row, arrays: Arrays) -> Asked:
    """The surrogate of the RLVR pipeline with its metrics."""
    settings = row["settings"]
    like = "roll:token-mean" if settings["loss_agg_mode"] == "token-mean" else "roll"
    asked = Asked(like, inputs(arrays, *COLUMNS))
    asked.settings = surrogate(settings)
    if settings["importance_sampling"] == "seq":
        asked.settings["objective"] = "gspo"
        asked.missing = dict.fromkeys(CLIPS, POSITIONS)
        if trl.spoiled(arrays).any():
            asked.missing["actor/clipfrac@sum"] = trl.NAN_RATIO
    shared(row, arrays, asked)
    correct(row, arrays, asked)
    return asked


def surrogate(settings: Row) -> dict[str, Any]:
    """Bounds and aggregation."""
    low, high = settings["pg_clip_low"], settings["pg_clip_high"]
    if not settings["use_pg_clip_range"]:
        low = high = settings["pg_clip"]
    return {
        "clip_low": low,
        "clip_high": high,
        "dual_clip": 1.0 + 2.0 * settings["pg_clip"] if settings["dual_clip_loss"] else None,
        "agg": settings["loss_agg_mode"],
        **({"denominator": 1.0} if settings["loss_agg_mode"] == NORM else {}),
    }


def actor_pg(row: Row, arrays: Arrays) -> Asked:
    """One of the policy-gradient variants with its metrics."""
    settings = row["settings"]
    kind = settings["pg_variant"]
    if kind == "topr":
        raise NotExpressed("topr goes by scores, which are not among the arrays")
    asked = Asked("roll" if kind == "ppo" else f"roll:{kind}", inputs(arrays, *COLUMNS))
    if kind == "ppo":
        asked.settings = surrogate(settings)
    if kind == "cispo":
        low, high = settings["cispo_epsilon_low"], settings["cispo_epsilon_high"]
        masked = settings.get("cispo_use_unified_mask", False)
        asked.settings = {"clip_low": low, "clip_high": high, "cispo_masked": masked}
        bounds = {"epsilon_low": low, "epsilon_high": high, "clip_lower": 1.0 - low, "clip_upper": 1.0 + high}
        asked.values = {f"actor/cispo_cispo_{name}": value for name, value in bounds.items()}
        asked.values["actor/cispo_cispo_use_unified_mask"] = float(masked)
    if kind == "tis":
        asked.values = {"actor/tis_lower_bound": 0.0, "actor/tis_upper_bound": 1.0}
    if kind == "kimi15":
        asked.values = {"actor/kimi15_kimi15_tau": 0.1}
    shared(row, arrays, asked)
    return asked


def shared(row: Row, arrays: Arrays, asked: Asked) -> None:
    """Names, penalties, and what is constant without weights of samples."""
    settings = row["settings"]
    asked.settings["kl_coef"] = settings["kl_loss_coef"] if settings["use_kl_loss"] else 0.0
    asked.settings["ent_coef"] = settings["entropy_loss_coef"]
    asked.names = {"loss": "actor/total_loss@sum", "actor/weighted_pg_loss@sum": "actor/pg_loss@sum"}
    weights = sample_weights(settings, arrays)
    some = arrays["mask"].any(axis=1)
    for suffix in ("", "@sum"):
        name = f"actor/valid_sample_ratio{suffix}"
        asked.values[name] = 1.0 if suffix else float(some.mean())
    for name in ("mean", "min", "max"):
        value = float(getattr(weights, name)())
        asked.values[f"actor/sample_weights_{name}"] = value
        asked.values[f"actor/sample_weights_{name}@{name}"] = value
    if settings["length_loss_weight"]:
        advantages = weights[:, None] * arrays["advantages"]
        weighted = metrics({**asked.arrays, "advantages": advantages}, asked)
        asked.values["actor/weighted_pg_loss@sum"] = weighted["actor/pg_loss@sum"]
        for name in ("loss", "actor/total_loss@sum"):
            asked.values[name] = weighted["actor/total_loss@sum"]


def sample_weights(settings: Row, arrays: Arrays) -> np.ndarray:
    """The weight of each sample, by its length where that is asked for."""
    lengths = arrays["mask"].sum(axis=1)
    if not settings["length_loss_weight"]:
        return np.ones(lengths.size)
    weights = 1.5 - (lengths - lengths.min()) / (lengths.max() - lengths.min() + 1e-8)
    scaled: np.ndarray = weights * (lengths.size / (weights.sum() + 1e-8))
    return scaled


def metrics(arrays: Arrays, asked: Asked) -> dict[str, float | None]:
    """The metrics of another call."""
    like = ppocli.evaluate(**arrays, like=asked.like, **asked.settings).like
    assert like is not None
    return dict(like.metrics)


def correct(row: Row, arrays: Arrays, asked: Asked) -> None:
    """The weight or the filter by the mismatch of old and rollout; a segment is the whole sequence."""
    rule = row["settings"]["train_infer_correction"]
    if rule is None:
        return
    if "is_weight" in rule:
        level = {"segment": "geometric"}.get(rule["is_weight"], rule["is_weight"])
        asked.settings |= {"rollout_is": level, "rollout_is_cap": rule["upper_bound"]}
        if level != "token":
            asked.missing["actor/is_weight_clipfrac@sum"] = POSITIONS
        return
    before = metrics(asked.arrays, asked)
    asked.values |= {
        name: before[name] for name in row["outputs"] if "train_infer_" in name and name in before
    }
    asked.missing |= {name: FILTER for name in row["outputs"] if "_mask_mean" in name}
    kept = arrays["mask"].astype(bool) & filtered(rule, arrays)
    if not kept.any():
        raise NotExpressed("a filter leaves no token")
    valid = arrays["mask"].any(axis=1)
    asked.arrays["mask"] = kept.astype(float)
    asked.settings["denominator"] = float(valid.sum())
    asked.factors["actor/ratio_mean@sum"] = kept.any(axis=1).sum() / valid.sum()
    asked.values["actor/valid_sample_ratio@sum"] = kept.any(axis=1).sum() / valid.sum()
    tokens = kept.sum() / arrays["mask"].sum()
    asked.factors |= dict.fromkeys(CLIPS, float(tokens))


def filtered(rule: dict[str, Any], arrays: Arrays) -> np.ndarray:
    """Tokens whose ratio and difference of probabilities are inside the closed intervals."""
    valid = arrays["mask"] != 0
    old, rollout = (np.where(valid, arrays[name], 0.0) for name in ("old_log_probs", "rollout_log_probs"))
    log_ratio, difference = old - rollout, np.where(valid, np.exp(old) - np.exp(rollout), 0.0)
    if rule["filter"] != "token":
        divisor = 1.0 if rule["filter"] == "sequence" else np.maximum(valid.sum(axis=1, keepdims=True), 1)
        log_ratio = log_ratio.sum(axis=1, keepdims=True) / divisor
        difference = difference.sum(axis=1, keepdims=True) / divisor
    ratio = np.exp(log_ratio)
    inside = (ratio >= rule["ratio"][0]) & (ratio <= rule["ratio"][1])
    inside &= (difference >= rule["diff"][0]) & (difference <= rule["diff"][1])
    return np.broadcast_to(inside, valid.shape)


def critic(row: Row, arrays: Arrays) -> Asked:
    """The value loss; there is no policy."""
    asked = Asked("roll", with_no_policy(arrays))
    asked.settings = {"value_clip": row["settings"]["value_clip"]}
    asked.names = {"loss": "critic/loss"}
    if row["settings"]["value_clip"] is None and not np.isfinite(arrays["values"]).all():
        asked.missing["critic/clipfrac"] = (
            "without a clip it is the mean error, which NaN in the padding makes NaN"
        )
    return asked


MAPPINGS: dict[str, Mapping] = {
    "roll.pipeline.rlvr.actor_worker.ActorWorker.loss_func": actor,
    "roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker.loss_func": actor_pg,
    "roll.pipeline.base_worker.CriticWorker.loss_func": critic,
}
