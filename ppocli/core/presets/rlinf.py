"""RLinf 0.3.0: `rlinf.algorithms.losses`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset
from ppocli.core.presets.common import explained, variances

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

DROPPED = measure("weight", kind="high")
"""Share of tokens whose behaviour weight is above the threshold."""


def over_kept(spec: LossSpec, value: float, dropped: float) -> float:
    """Return a mean over all tokens, dropped ones being 0, as a mean over those left; 0 where none is."""
    return value / (1.0 - dropped) if dropped < 1.0 else 0.0


LOSS = PresetMetric(
    "actor/policy_loss",
    "clipped surrogate, dual clip where set; token mean",
    (measure("loss", AGG),),
    kind="loss",
)
CLIP = PresetMetric(
    "actor/clip_fraction",
    "clipped branch strictly chosen, sign-aware; token mean",
    (measure("clip", kind="active"),),
    kind="clip fraction",
)
CRITIC = (
    PresetMetric(
        "critic/value_loss",
        "larger of the plain and the clipped Huber error; token mean",
        (measure("value_error"),),
        kind="value loss",
    ),
    PresetMetric(
        "critic/explained_variance",
        "1 - var(returns - values) / var(returns), current values",
        variances("values", ddof=1),
        explained,
    ),
)
RLINF = Preset(
    name="rlinf",
    title="RLinf",
    version="0.3.0",
    spec={
        "dual_clip": 3.0,
        "value_clip": 0.2,
        "value_error": "huber",
        "value_error_delta": 10.0,
    },
    metrics=(
        LOSS,
        CLIP,
        PresetMetric(
            "actor/approx_kl",
            "k1 of the log-ratio, clamped where the loss's is; token mean",
            (measure("kl", clamp="loss"),),
            kind="approx KL",
        ),
        PresetMetric(
            "actor/policy_loss_abs", "mean size of the token losses", (measure("loss", AGG, absolute=True),)
        ),
        PresetMetric("actor/ratio", "mean ratio", (measure("ratio", clamp="loss"),)),
        PresetMetric("actor/ratio_abs", "mean |ratio - 1|", (measure("ratio_distance"),)),
        PresetMetric("actor/clipped_ratio", "mean clipped ratio", (measure("clipped_ratio"),)),
        PresetMetric(
            "actor/dual_cliped_ratio",
            "ratio where the dual-clip bound is chosen, else 0; token mean",
            (measure("dual_ratio"),),
        ),
        *CRITIC,
    ),
    aliases={"log_probs": ("logprobs",), "old_log_probs": ("prev_logprobs",), "old_values": ("prev_values",)},
    spoils=("actor/policy_loss", "actor/policy_loss_abs", "critic/value_loss"),
    selects=("log_probs", "old_log_probs"),
    notes=(
        "critic/value_clip_ratio is left out: it tests values after they were clipped and counts rounding "
        "errors only; value_clip_frac is the share that is clipped",
        "clip_ratio_low, clip_ratio_high and clip_ratio_c have no default in the code: 0.2, 0.2 and 3 here",
        "max_episode_steps divides by a constant that a file does not hold",
    ),
)
DECOUPLED = replace(
    RLINF,
    name="rlinf:decoupled",
    spec={**RLINF.spec, "objective": "decoupled", "rollout_is_mode": "mask"},
    spoils=("actor/policy_loss", "critic/value_loss"),
    selects=("log_probs",),
    metrics=(
        replace(
            LOSS,
            text="clipped surrogate against the proximal policy, times the behaviour weight; mean over the "
            "tokens whose weight is at most behave_weight_threshold",
            measures=(measure("loss", AGG), DROPPED),
            combine=over_kept,
        ),
        CLIP,
        PresetMetric(
            "actor/proximal_approx_kl", "k1 against the proximal policy; token mean", (measure("kl"),),
            kind="approx KL",
        ),
        PresetMetric(
            "actor/behav_approx_kl",
            "k1 of the proximal against the behaviour policy; mean over the tokens that are kept",
            (measure("weight", factor=-1.0, kind="log"), DROPPED),
            over_kept,
        ),
        PresetMetric("actor/proximal_ratio", "mean ratio to the proximal policy", (measure("ratio"),)),
        PresetMetric(
            "actor/clipped_proximal_ratio", "mean clipped ratio", (measure("clipped_ratio"),)
        ),
        PresetMetric(
            "actor/dual_clip_fraction", "dual-clip bound strictly chosen; token mean",
            (measure("clip", kind="dual"),),
        ),
        PresetMetric(
            "actor/behav_clip_fraction", "share of tokens whose behaviour weight is above the threshold",
            (DROPPED,),
        ),
        *CRITIC,
    ),
    notes=(
        "old_log_probs is the proximal policy, rollout_log_probs the behaviour policy",
        "behave_weight_threshold is rollout_is_cap; tokens above it are dropped",
        *RLINF.notes,
    ),
)  # fmt: skip

PRESETS = {one.name: one for one in (RLINF, DECOUPLED)}
