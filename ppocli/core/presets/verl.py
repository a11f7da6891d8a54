"""verl 0.9.1: `verl.trainer.ppo.core_algos`, `verl.workers.utils.losses`."""

from __future__ import annotations

from dataclasses import replace

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset

EPS = 1e-8
"""Added to the number of tokens in a masked mean, and to a sequence's length."""

LOSS = PresetMetric(
    "actor/pg_loss",
    "clipped surrogate with dual clip; chosen aggregation",
    (measure("loss", AGG),),
    kind="loss",
)
CLIP = PresetMetric(
    "actor/pg_clipfrac",
    "clipped branch strictly chosen, sign-aware; token mean",
    (measure("clip", kind="active"),),
    kind="clip fraction",
)
DUAL = PresetMetric(
    "actor/pg_clipfrac_lower", "dual-clip bound strictly chosen; token mean", (measure("clip", kind="dual"),)
)
DRIFT = PresetMetric(
    "actor/ppo_kl", "k1 of the clamped log-ratio; token mean", (measure("kl", clamp=20.0),), kind="approx KL"
)
VALUE = PresetMetric(
    "critic/vf_loss", "half the larger square; chosen aggregation", (measure("value_error", AGG, 0.5),),
    kind="value loss",
)  # fmt: skip
VALUE_CLIP = PresetMetric(
    "critic/vf_clipfrac",
    "clipped square strictly larger; token mean",
    (measure("value_clip", kind="active"),),
)

VERL = Preset(
    name="verl",
    title="verl",
    version="0.9.1",
    spec={"dual_clip": 3.0, "log_ratio_clamp": 20.0, "value_clip": 0.5, "mean_eps": EPS, "seq_eps": EPS},
    metrics=(LOSS, CLIP, DUAL, DRIFT, VALUE, VALUE_CLIP),
)
GSPO = replace(
    VERL,
    name="verl:gspo",
    spec={
        **VERL.spec,
        "objective": "gspo",
        "gspo_token_gradient": True,
        "dual_clip": None,
        "log_ratio_clamp": None,
        "log_ratio_ceiling": 10.0,
    },
    metrics=(
        LOSS,
        CLIP,
        replace(DRIFT, text="k1; token mean", measures=(measure("kl"),)),
        VALUE,
        VALUE_CLIP,
    ),
)

PRESETS = {one.name: one for one in (VERL, GSPO)}
