"""rsl_rl 5.5.1: `rsl_rl.algorithms.PPO.update`."""

from __future__ import annotations

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset
from ppocli.core.presets.common import ENTROPY, total_of

POLICY = measure("loss", AGG)
VALUE = measure("value_error")

RSL_RL = Preset(
    name="rsl-rl",
    title="rsl_rl",
    version="5.5.1",
    spec={
        "adv_norm": "batch",
        "adv_norm_ddof": 1,
        "adv_norm_eps": 1e-8,
        "adv_norm_degenerate": "formula",
        "value_clip": 0.2,
    },
    metrics=(
        PresetMetric(
            "Loss/surrogate",
            "clipped surrogate of the normalised advantages; mean",
            (POLICY,),
            kind="loss",
        ),
        PresetMetric(
            "Loss/value",
            "larger of the plain and the clipped square, no factor; mean",
            (VALUE,),
            kind="value loss",
        ),
        PresetMetric("Loss/entropy", "mean entropy", (ENTROPY,)),
        PresetMetric(
            "loss",
            "surrogate + value_loss_coef * value - entropy_coef * entropy; 1, 0.01 unless given; not logged",
            (POLICY, VALUE, ENTROPY),
            total_of(1.0, 0.01),
        ),
    ),
    aliases={"old_log_probs": ("actions_log_prob", "old_actions_log_prob")},
    tied={"value_clip": "clip_high"},
    notes=(
        "the whole input is one minibatch; rsl_rl logs means over all, and no clip fraction or KL",
        "advantages are normalised over the rollout, or over each minibatch; ddof 1",
        "values are clipped by clip_param, as the ratio is; use_clipped_value_loss=False is value_clip=None",
    ),
)

PRESETS = {RSL_RL.name: RSL_RL}
