"""OpenRLHF 0.11.2: `openrlhf.models.loss`, `openrlhf.models.utils`, `openrlhf.trainer.ray.ppo_actor`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

NEW, OLD, ROLLOUT, REF = "log_probs", "old_log_probs", "rollout_log_probs", "ref_log_probs"
KL_CAP = 10.0


def reference_kl(estimator: str) -> Any:
    """Return an estimate of the KL from the reference, held within +-10, aggregated like the loss."""
    return measure("kl", AGG, estimator=estimator, new=REF, old=NEW, cap=KL_CAP)


def chosen_kl(spec: LossSpec, k1: float, k2: float, k3: float, size: float) -> float:
    """Return the estimate that `ref_kl` names."""
    return {"k1": k1, "k2": k2, "k3": k3, "abs": size}[spec.ref_kl]


def filtered(spec: LossSpec, low: float, high: float) -> float:
    """Return the sum of two shares."""
    return low + high


def corrected(spec: LossSpec) -> tuple[PresetMetric, ...]:
    """Return what is logged of the correction: the shares of tokens, or sequences, outside its bounds."""
    if not spec.needs_rollout:
        return ()
    drift = PresetMetric(
        "train/vllm_kl", "rollout - old log-probs; token mean", (measure("kl", new=OLD, old=ROLLOUT),)
    )
    name = "train/is_filter_ratio"
    if not spec.rejections:
        text = "weight outside the bounds; token mean"
        sides = measure("weight", kind="low"), measure("weight", kind="high")
        return drift, PresetMetric(name, text, sides, filtered)
    if all(rule.level == "token" for rule in spec.rejections):
        return drift, PresetMetric(name, "not allowed by a rule; token mean", (measure("rejected"),))
    text = "not allowed by a rule, or without a valid token; mean over stored sequences"
    kept = measure("kept", "row-mean-token-max", -1.0)
    return drift, PresetMetric(name, text, (kept,), lambda spec, value: 1.0 + value)


OPENRLHF = Preset(
    name="openrlhf",
    title="OpenRLHF",
    version="0.11.2",
    spec={
        "log_ratio_clamp": 20.0,
        "value_clip": 0.5,
        "ref_kl": "k1",
        "seq_eps": 1e-8,
        "rollout_rs_mode": "zero",
        "rollout_rs_prob_clamp": 1e-6,
    },
    metrics=(
        PresetMetric(
            "train/policy_loss",
            "clipped surrogate, log-ratio clamped to +-20; chosen aggregation",
            (measure("loss", AGG),),
            kind="loss",
        ),
        PresetMetric(
            "train/ppo_clip_ratio",
            "clipped branch strictly chosen, sign of the advantage considered; token mean",
            (measure("clip", kind="active"),),
            kind="clip fraction",
        ),
        PresetMetric(
            "train/ppo_kl", "k1 of the log-ratio as it is; token mean", (measure("kl"),), kind="approx KL"
        ),
        PresetMetric(
            "train/kl",
            "KL from the reference by ref_kl, each token within +-10; chosen aggregation",
            (reference_kl("k1"), reference_kl("k2"), reference_kl("k3"), reference_kl("abs")),
            chosen_kl,
            optional=True,
        ),
        PresetMetric(
            "train/logprobs_diff",
            "log-probs - reference log-probs; token mean",
            (measure("difference", a=NEW, b=REF),),
            optional=True,
        ),
        PresetMetric(
            "train/entropy_loss",
            "entropy; chosen aggregation",
            (measure("column", AGG, role="entropy"),),
            optional=True,
        ),
        PresetMetric(
            "train/critic_loss",
            "half the larger square; chosen aggregation",
            (measure("value_error", AGG, 0.5),),
            kind="value loss",
        ),
        PresetMetric(
            "train/values", "values; token mean", (measure("column", role="values"),), optional=True
        ),
    ),
    more=corrected,
    aliases={OLD: ("action_log_probs",)},
    spoils=(
        "train/policy_loss",
        "train/ppo_kl",
        "train/vllm_kl",
        "train/kl",
        "train/logprobs_diff",
        "train/entropy_loss",
        "train/critic_loss",
        "train/values",
    ),
    notes=(
        "correction mode mask: rollout_is token and a rule (token_ or seq_mean_ of ratio, binary_kl or tv); "
        "mode clip: rollout_is token with rollout_is_low and rollout_is_cap",
        "the logged policy_loss, kl and entropy_loss are weighted by tokens twice: they agree with these "
        "where all micro-batches have equally many tokens",
        "with several workers: denominator, and loss_scale = workers",
    ),
)
GSPO = replace(
    OPENRLHF,
    name="openrlhf:gspo",
    spec={**OPENRLHF.spec, "objective": "gspo", "log_ratio_clamp": None, "agg": "seq-mean-token-mean"},
    notes=(
        "with a correction the ratio is new / rollout and no weight is applied: give rollout_log_probs as "
        "old_log_probs; train/ppo_kl is then to the rollout policy",
        *OPENRLHF.notes[1:],
    ),
)

PRESETS = {one.name: one for one in (OPENRLHF, GSPO)}
