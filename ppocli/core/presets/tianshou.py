"""Tianshou 2.0.1: `tianshou.algorithm.modelfree.ppo.PPO`."""

from __future__ import annotations

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset
from ppocli.core.presets.common import ENTROPY, total_of

POLICY = measure("loss", AGG)
VALUE = measure("value_error")

TIANSHOU = Preset(
    name="tianshou",
    title="Tianshou",
    version="2.0.1",
    spec={
        "adv_norm": "batch",
        "adv_norm_ddof": 1,
        "adv_norm_eps": 1e-8,
        "adv_norm_degenerate": "formula",
    },
    metrics=(
        PresetMetric(
            "actor_loss",
            "clipped surrogate of the normalised advantages, dual clip where set; mean",
            (POLICY,),
            kind="loss",
        ),
        PresetMetric(
            "vf_loss",
            "squared error, or the larger of it and the clipped one; no factor; mean",
            (VALUE,),
            kind="value loss",
        ),
        PresetMetric("ent_loss", "mean entropy", (ENTROPY,)),
        PresetMetric(
            "loss",
            "actor + vf_coef * value - ent_coef * entropy; 0.5 and 0.01 unless given",
            (POLICY, VALUE, ENTROPY),
            total_of(0.5, 0.01),
        ),
    ),
    aliases={"old_log_probs": ("logp_old",), "advantages": ("adv",), "old_values": ("v_s",)},
    notes=(
        "one minibatch; Tianshou logs statistics over all of them, and no clip fraction or KL",
        "value_clip=True clips values by eps_clip; the ratio is rounded to float32 there, not here",
        "a minibatch of one step gives NaN: its deviation has ddof 1",
    ),
)

PRESETS = {TIANSHOU.name: TIANSHOU}
