"""TorchRL 0.14.1: `torchrl.objectives.ClipPPOLoss` and `PPOLoss`."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset
from ppocli.core.presets.common import ENTROPY, entropy_scaled, value_scaled, variances

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec


def explained_eps(spec: LossSpec, residual: float, returns: float) -> float:
    """Return 1 - var(returns - values) / (var(returns) + eps), eps that of float64."""
    return 1.0 - residual / (returns + sys.float_info.epsilon)


def ess(spec: LossSpec, ratio: float, square: float) -> float:
    """Return (mean ratio)^2 / mean ratio^2: the effective sample size over the number of steps."""
    return ratio * ratio / square if square > 0.0 else math.nan


LOSS = PresetMetric(
    "loss_objective", "clipped surrogate; mean over the mask", (measure("loss", AGG),), kind="loss"
)
CLIP = PresetMetric(
    "clip_fraction",
    "log-ratio outside the logarithms of the bounds, NaN counted; mean over all steps, padding included",
    (measure("outside_log", "stored-mean"),),
    kind="clip fraction",
)
DRIFT = PresetMetric(
    "kl_approx",
    "k1; mean over all steps, padding included",
    (measure("kl", "stored-mean"),),
    kind="approx KL",
)
VALUE = PresetMetric(
    "loss_critic",
    "critic_coeff (1 unless given) times the error of loss_critic_type, the larger of plain and clipped "
    "where clip_value is set; mean over the mask",
    (measure("value_error"),),
    value_scaled(1.0),
    kind="value loss",
)
VALUE_CLIP = PresetMetric(
    "value_clip_fraction",
    "|value - old value| > clip_value; mean over all steps, padding included",
    (measure("value_clip", "stored-mean", kind="outside"),),
)
OTHERS = (
    PresetMetric(
        "entropy",
        "mean entropy over all steps, padding included",
        (measure("column", "stored-mean", role="entropy"),),
    ),
    PresetMetric(
        "loss_entropy",
        "minus entropy_coeff (0.01 unless given) times the mean entropy over the mask",
        (ENTROPY,),
        entropy_scaled(0.01),
    ),
    VALUE,
    VALUE_CLIP,
    PresetMetric(
        "explained_variance",
        "1 - var(returns - values) / (var(returns) + eps), current values, padding included",
        variances("values", over="stored"),
        explained_eps,
    ),
)
RATIOS = (
    PresetMetric(
        "ESS",
        "(sum ratio)^2 / (n sum ratio^2) over all steps, padding included",
        (measure("ratio", "stored-mean"), measure("ratio", "stored-mean", power=2)),
        ess,
    ),
    PresetMetric(
        "max_ratio", "largest ratio of all steps, padding included", (measure("ratio", "stored-max"),)
    ),
    PresetMetric(
        "mean_ratio", "mean ratio over all steps, padding included", (measure("ratio", "stored-mean"),)
    ),
)

CLIP_PPO = Preset(
    name="torchrl",
    title="TorchRL",
    version="0.14.1",
    spec={
        "adv_norm_ddof": 1,
        "adv_norm_eps": 1e-6,
        "adv_norm_form": "max",
        "value_error": "smooth-l1",
    },
    metrics=(LOSS, CLIP, DRIFT, *OTHERS, *RATIOS),
    aliases={
        "old_log_probs": ("action_log_prob", "sample_log_prob"),
        "advantages": ("advantage",),
        "returns": ("value_target",),
        "values": ("state_value",),
    },
    notes=(
        "loss_critic_type is value_error (default smooth_l1), critic_coeff vf_coef, entropy_coeff ent_coef",
        "ESS and explained_variance are one number per time step for (B, T) input in TorchRL, here one over "
        "all steps",
        "normalize_advantage is adv_norm=batch: (A - mean) / max(std, 1e-6), ddof 1",
        "eps of explained_variance is that of float64; TorchRL takes that of the returns' own type",
    ),
)
PPO = replace(
    CLIP_PPO,
    name="torchrl:ppo",
    spec={**CLIP_PPO.spec, "objective": "is"},
    metrics=(replace(LOSS, text="-ratio A without a clip; mean over the mask"), DRIFT, *OTHERS),
)

PRESETS = {one.name: one for one in (CLIP_PPO, PPO)}
