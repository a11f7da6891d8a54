"""TRL 1.16.0: `trl.trainer.grpo_trainer.GRPOTrainer`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

SPEC: dict[str, Any] = {"ref_kl_ratio": True, "off_policy_anchor": "rollout"}
OLD_ROLLOUT: dict[str, Any] = {"new": "old_log_probs", "old": "rollout_log_probs"}


def total(spec: LossSpec, policy: float, penalty: float) -> float:
    """Return policy + penalty."""
    return policy + penalty


def above_one(spec: LossSpec, value: float) -> float:
    """Return 1 + value: sequences without a token count as 1."""
    return 1.0 + value


LOSS = PresetMetric(
    "loss",
    "objective + beta * k3 against the reference; chosen aggregation",
    (measure("loss", AGG), measure("ref_kl", AGG, penalty=True)),
    total,
    kind="loss",
)
CLIPS = (
    PresetMetric(
        "clip_ratio/low_mean",
        "ratio < 1 - epsilon and A < 0; token mean, at sequence level one vote per sequence",
        (measure("clip", "vote-mean", kind="active_low"),),
    ),
    PresetMetric(
        "clip_ratio/high_mean",
        "ratio > 1 + epsilon_high and A > 0; token mean, at sequence level one vote per sequence",
        (measure("clip", "vote-mean", kind="active_high"),),
    ),
    PresetMetric(
        "clip_ratio/region_mean",
        "either of the two, sign-aware; token mean, at sequence level one vote per sequence",
        (measure("clip", "vote-mean", kind="active"),),
        kind="clip fraction",
    ),
    PresetMetric(
        "clip_ratio/low_min",
        "smallest share of a sequence below the interval with A < 0",
        (measure("clip", "row-min-token-mean", kind="active_low"),),
    ),
    PresetMetric(
        "clip_ratio/high_max",
        "largest share of a sequence above the interval with A > 0",
        (measure("clip", "row-max-token-mean", kind="active_high"),),
    ),
)
CISPO_CLIP = PresetMetric(
    "cispo_clip_ratio",
    "ratio > epsilon_high and A > 0; token mean, at sequence level one vote per sequence",
    (measure("clip", "vote-mean", kind="active_high"),),
    kind="clip fraction",
)
PHI = PresetMetric(
    "vespo/phi_seq_mean", "weight phi of the loss; mean over sequences, one without a token has 1",
    (measure("phi", "row-mean-token-mean"),), above_one,
)  # fmt: skip
OTHERS = (
    PresetMetric(
        "kl",
        "k3 of new against the reference, times the ratio unless use_bias_correction_kl is off; token mean",
        (measure("ref_kl"),),
        kind="approx KL",
    ),
    PresetMetric("entropy", "token mean", (measure("column", role="entropy"),)),
    PresetMetric(
        "sampling/sampling_logp_difference/mean",
        "|old - rollout|; token mean",
        (measure("kl", "token-mean", 1.0, estimator="abs", **OLD_ROLLOUT),),
    ),
    PresetMetric(
        "sampling/sampling_logp_difference/max",
        "|old - rollout|; largest token",
        (measure("kl", "token-max", 1.0, estimator="abs", **OLD_ROLLOUT),),
    ),
    PresetMetric(
        "sampling/importance_sampling_ratio/min",
        "weight old / rollout after truncation or masking; smallest",
        (measure("weight", "vote-min", kind="excess", by="weight"),),
        above_one,
    ),
    PresetMetric(
        "sampling/importance_sampling_ratio/mean",
        "weight old / rollout after truncation or masking; mean over tokens or sequences",
        (measure("weight", "vote-mean", kind="excess", by="weight"),),
        above_one,
    ),
    PresetMetric(
        "sampling/importance_sampling_ratio/max",
        "weight old / rollout after truncation or masking; largest",
        (measure("weight", "vote-max", kind="excess", by="weight"),),
        above_one,
    ),
)
NOTES = (
    "clip metrics with delta at or below 1 + epsilon_high count no high clip in TRL",
    "the vLLM correction is on in TRL when vLLM samples: rollout_is sequence, rollout_is_mode mask, cap 3",
    "losses are also divided by gradient_accumulation_steps: loss_scale",
)
ALIASES = {
    "log_probs": ("per_token_logps",),
    "old_log_probs": ("old_per_token_logps",),
    "ref_log_probs": ("ref_per_token_logps",),
    "rollout_log_probs": ("sampling_per_token_logps",),
    "mask": ("completion_mask",),
    "entropy": ("entropies",),
}
SPOILS = ("loss", "kl", "entropy", *(one.name for one in OTHERS if one.name.startswith("sampling/")))

DAPO = Preset(
    name="trl:dapo",
    title="TRL",
    version="1.16.0",
    spec=SPEC,
    metrics=(LOSS, *CLIPS, *OTHERS),
    aliases=ALIASES,
    spoils=SPOILS,
    notes=("the mean is over the tokens of the global batch: denominator", *NOTES),
)


def variant(
    loss_type: str, spec: dict[str, Any], *clips: PresetMetric, notes: tuple[str, ...] = ()
) -> Preset:
    """Return the preset of a loss type."""
    return replace(
        DAPO,
        name=f"trl:{loss_type}",
        spec={**SPEC, **spec},
        metrics=(LOSS, *clips, *OTHERS),
        notes=(*notes, *NOTES),
    )


ROWS: dict[str, Any] = {"agg": "seq-mean-token-mean", "count_empty": True}
HORIZON = "the divisor is max_completion_length, not the longest sequence of the file: horizon"
BOUND = "epsilon_high is the bound of the ratio itself, not 1 + epsilon_high: cispo_high"
VESPO: dict[str, Any] = {
    "objective": "vespo",
    "log_ratio_clamp": 20.0,
    "vespo_log_low": math.log(1e-8),
    "vespo_log_high": 20.0,
    "vespo_rollout_is": True,
}
GRPO = variant("grpo", ROWS, *CLIPS)
PRESETS = {
    one.name: one
    for one in (
        replace(DAPO, name="trl"),
        DAPO,
        GRPO,
        variant("bnpo", {}, *CLIPS),
        variant("dr_grpo", {"agg": "seq-mean-token-sum-norm", "count_empty": True}, *CLIPS, notes=(HORIZON,)),
        variant("luspo", {"agg": "seq-mean-token-sum", "count_empty": True}, *CLIPS),
        variant("gspo", {**ROWS, "objective": "gspo"}, *CLIPS),
        variant("cispo", {"objective": "cispo", "cispo_low": 0.0}, CISPO_CLIP, notes=(BOUND,)),
        variant("sapo", {**ROWS, "objective": "sapo"}),
        variant("vespo", VESPO, PHI),
    )
}
