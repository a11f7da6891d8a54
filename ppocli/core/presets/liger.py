"""Liger-Kernel 0.8.5: `liger_kernel.chunked_loss.LigerFusedLinearGRPOLoss`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

SPEC: dict[str, Any] = {"kl_coef": 0.04, "ref_kl_ratio": False}


def total(spec: LossSpec, policy: float, penalty: float) -> float:
    """Return policy + penalty."""
    return policy + penalty


def luspo(spec: LossSpec, positions: float, sequences: float) -> float:
    """Return the mean over positions; at sequence level a sequence has one loss."""
    return sequences if spec.shares_ratio else positions


LOSS = PresetMetric(
    "loss",
    "objective + beta * k3 against the reference; chosen aggregation",
    (measure("loss", AGG), measure("ref_kl", AGG, penalty=True)),
    total,
    kind="loss",
)
LUSPO = PresetMetric(
    "loss",
    "(objective + beta * k3 against the reference) * length of the sequence; mean over all positions, "
    "padding included; at sequence level mean over sequences of their sums",
    (measure("loss_times_length", "stored-mean"), measure("loss", "row-mean-token-sum")),
    luspo,
    kind="loss",
)
CLIP = PresetMetric(
    "clip_ratio",
    "ratio outside the interval on the side that A pushes to; token mean, at sequence level too",
    (measure("clip", kind="active"),),
    kind="clip fraction",
)
KL = PresetMetric(
    "kl", "k3 of new against the reference; token mean", (measure("ref_kl"),), kind="approx KL"
)  # fmt: skip
NOTES = (
    "beta is 0.04 by default and then needs the reference: kl_coef",
    "a sequence without a valid token counts in means over sequences",
)
DAPO = Preset(
    name="liger:dapo",
    title="Liger-Kernel",
    version="0.8.5",
    spec=SPEC,
    metrics=(LOSS, CLIP, KL),
    aliases={
        "log_probs": ("per_token_logps",),
        "old_log_probs": ("old_per_token_logps",),
        "ref_log_probs": ("ref_per_token_logps",),
        "mask": ("attention_mask",),
    },
    spoils=("loss", "kl"),
    notes=NOTES,
)


def variant(
    loss_type: str, spec: dict[str, Any], *metrics: PresetMetric, notes: tuple[str, ...] = ()
) -> Preset:
    """Return the preset of a loss type."""
    return replace(
        DAPO,
        name=f"liger:{loss_type}",
        spec={**SPEC, **spec},
        metrics=metrics or DAPO.metrics,
        notes=(*notes, *NOTES),
    )


ROWS: dict[str, Any] = {"agg": "seq-mean-token-mean", "count_empty": True}
HORIZON = "the divisor is max_completion_length, not the longest sequence of the file: horizon"
BOUND = "epsilon_high is the bound of the ratio itself, not 1 + epsilon_high: cispo_high"
SEQUENCE_KL = "beta at sequence level, where the mean runs over padding, is not reproduced"
PADDING = "the mean runs over padding: the number depends on what is stored there and on the padded length"
VESPO: dict[str, Any] = {
    "objective": "vespo",
    "log_ratio_clamp": 20.0,
    "vespo_log_low": math.log(1e-8),
    "vespo_log_high": 20.0,
    "vespo_rollout_is": True,
}
PRESETS = {
    one.name: one
    for one in (
        replace(DAPO, name="liger"),
        DAPO,
        variant("grpo", ROWS),
        variant("bnpo", {}),
        variant("dr_grpo", {"agg": "seq-mean-token-sum-norm", "count_empty": True}, notes=(HORIZON,)),
        variant("luspo", {}, LUSPO, CLIP, KL, notes=(PADDING, SEQUENCE_KL)),
        variant("gspo", {**ROWS, "objective": "gspo"}),
        variant("cispo", {"objective": "cispo", "cispo_low": 0.0}, notes=(BOUND,)),
        variant("sapo", {**ROWS, "objective": "sapo"}),
        variant("vespo", VESPO),
    )
}
