"""slime 624b824a: `slime.backends.megatron_utils.loss`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec


def total(spec: LossSpec, policy: float, entropy: float, penalty: float) -> float:
    """Return policy - entropy bonus + penalty."""
    return policy - entropy + penalty


def clip_of(kind: str, text: str) -> PresetMetric:
    """Return the clip fraction."""
    return PresetMetric(
        "train/pg_clipfrac",
        f"{text}; chosen aggregation",
        (measure("clip", AGG, kind=kind),),
        kind="clip fraction",
    )


ACTIVE = clip_of("active", "clipped branch strictly chosen, sign-aware")
SLIME = Preset(
    name="slime",
    title="slime",
    version="624b824a",
    spec={"agg": "seq-mean-token-mean", "count_empty": True, "value_clip": 0.2, "ref_kl": "k1"},
    metrics=(
        PresetMetric(
            "train/loss",
            "pg_loss - entropy_coef * entropy_loss + kl_loss_coef * kl_loss",
            (measure("loss", AGG), measure("entropy_bonus", AGG), measure("ref_kl", AGG, penalty=True)),
            total,
        ),
        PresetMetric(
            "train/pg_loss",
            "clipped surrogate; chosen aggregation, by default mean over sequences of token means",
            (measure("loss", AGG),),
            kind="loss",
        ),
        PresetMetric(
            "train/entropy_loss",
            "the entropy, sign as it is; chosen aggregation",
            (measure("column", AGG, role="entropy"),),
        ),
        ACTIVE,
        PresetMetric(
            "train/ppo_kl", "k1 = old - new; chosen aggregation", (measure("kl", AGG),), kind="approx KL"
        ),
        PresetMetric(
            "train/kl_loss",
            "KL of new against the reference by kl_loss_type; chosen aggregation",
            (measure("ref_kl", AGG),),
        ),
        PresetMetric(
            "train/train_rollout_logprob_abs_diff",
            "|old - rollout|; chosen aggregation",
            (measure("kl", AGG, estimator="abs", new="old_log_probs", old="rollout_log_probs"),),
        ),
        PresetMetric("train/ois", "ratio; chosen aggregation", (measure("objective_ratio", AGG),)),
        PresetMetric(
            "train/tis",
            "old / rollout before truncation; chosen aggregation",
            (measure("ratio", AGG, new="old_log_probs", old="rollout_log_probs"),),
        ),
        PresetMetric(
            "train/tis_clipfrac",
            "weight out of bounds; chosen aggregation",
            (measure("weight", AGG, kind="touched"),),
        ),
        PresetMetric(
            "train/tis_abs", "|old / rollout - 1|; chosen aggregation", (measure("distance_from_one", AGG),)
        ),
        PresetMetric(
            "train/opsm_clipfrac",
            "tokens with A < 0 whose sequence is too far off; chosen aggregation",
            (measure("held_back", AGG),),
        ),
        PresetMetric(
            "train/value_loss",
            "the larger square, no factor; chosen aggregation",
            (measure("value_error", AGG),),
            kind="value loss",
        ),
        PresetMetric(
            "train/value_clipfrac",
            "|v - v_old| > value_clip; chosen aggregation",
            (measure("value_clip", AGG, kind="outside"),),
        ),
    ),
    aliases={"mask": ("loss_masks",)},
    spoils=(
        "train/loss", "train/pg_loss", "train/entropy_loss", "train/ppo_kl", "train/kl_loss",
        "train/train_rollout_logprob_abs_diff", "train/ois", "train/tis", "train/tis_abs",
        "train/value_loss",
    ),
    notes=(
        "--calculate-per-token-loss is agg token-mean",
        "a sequence without a valid token counts in means over sequences",
        "log_probs of a train dump is the old policy",
        "kl_loss_type k1 is slime's default: ref_kl; low_var_kl is k3 with ref_kl_cap 10",
    ),
)  # fmt: skip
CLIPPED = clip_of("region", "ratio outside the interval, any sign of A")
PRESETS = {
    one.name: one
    for one in (
        SLIME,
        replace(SLIME, name="slime:gspo", spec={**SLIME.spec, "objective": "gspo"}),
        replace(
            SLIME,
            name="slime:cispo",
            spec={**SLIME.spec, "objective": "cispo"},
            metrics=tuple(CLIPPED if one is ACTIVE else one for one in SLIME.metrics),
        ),
    )
}
