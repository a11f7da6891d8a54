"""AReaL 1.0.4: `areal.utils.functional`, `areal.trainer.ppo`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.measures import AGG, Measure, PresetMetric, measure
from ppocli.core.presets import Preset

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

NEW, OLD, ROLLOUT = "log_probs", "old_log_probs", "rollout_log_probs"
ACTOR, CRITIC = "ppo_actor/update/", "ppo_critic/"


def actor(name: str, text: str, *measures: Measure, combine: Any = None, **kind: Any) -> PresetMetric:
    """Return a metric of the actor."""
    return PresetMetric(ACTOR + name, text, measures, combine, **kind)


def quotient(spec: LossSpec, total: float, kept: float) -> float:
    """Return a mean over the tokens that are left; NaN without any."""
    return total / kept if kept else math.nan


def share(spec: LossSpec, *parts: float) -> float:
    """Return the sum of shares."""
    return math.fsum(parts)


def behaviour(spec: LossSpec) -> tuple[PresetMetric, ...]:
    """Return what is logged of the sampling policy; means are over the tokens that the rules leave."""
    if not spec.needs_rollout:
        return ()
    left = measure("weight", power=0, kept=True)
    dropped = (measure("rejected"),)
    touched = (measure("weight", kind="low"), measure("weight", kind="high"))
    outside = dropped if spec.rejections and spec.rollout_rs_mode != "clamp" else touched
    return (
        actor(
            "behave_imp_weight/avg",
            "weight of the old over the rollout policy; mean over the tokens that are left",
            measure("weight", kept=True),
            left,
            combine=quotient,
        ),
        actor(
            "behave_approx_kl/avg",
            "old - rollout log-probs; mean over the tokens that are left",
            measure("kl", factor=-1.0, new=OLD, old=ROLLOUT, kept=True),
            left,
            combine=quotient,
        ),
        actor("rs_filtered_fraction", "left out, or with a weight that is held; token mean", *outside,
              combine=share),
    )  # fmt: skip


RATIO: dict[str, Any] = {"level": "spec", "kept": True}
SHARED = (
    actor("actor_loss/avg", "clipped surrogate, weighted in the decoupled loss; token mean",
          measure("loss", AGG), kind="loss"),
    actor("clip_ratio/avg", "clipped branch strictly chosen, sign of the advantage considered; token mean",
          measure("clip", kind="active", kept=True), kind="clip fraction"),
    actor("dual_clip_ratio/avg", "dual-clip bound strictly chosen; token mean",
          measure("clip", kind="dual", kept=True)),
    actor("approx_kl/avg", "log-probs - old log-probs, minus k1; token mean",
          measure("kl", factor=-1.0), kind="approx KL"),
    actor("importance_weight/avg", "ratio to the old policy; token mean", measure("ratio", **RATIO)),
    actor("importance_weight/max", "ratio to the old policy; largest",
          measure("ratio", "token-max", **RATIO)),
    actor("importance_weight/min", "ratio to the old policy; smallest",
          measure("ratio", "token-min", **RATIO)),
    actor("new_logp/avg", "log-probs; token mean", measure("column", role=NEW)),
    actor("old_logp/avg", "rollout log-probs; token mean", measure("column", role=ROLLOUT), optional=True),
    actor("entropy/avg", "entropy; token mean", measure("column", role="entropy"), optional=True),
)  # fmt: skip
VALUES = (
    PresetMetric(CRITIC + "critic_loss/avg", "half the larger square; token mean",
                 (measure("value_error", AGG, 0.5),), kind="value loss"),
    PresetMetric(CRITIC + "clip_ratio/avg", "clipped square strictly larger; token mean",
                 (measure("value_clip", kind="active"),)),
)  # fmt: skip

AREAL = Preset(
    name="areal",
    title="AReaL",
    version="1.0.4",
    spec={"value_clip": 0.5, "rollout_rs_mode": "zero"},
    metrics=(*SHARED, *VALUES),
    more=behaviour,
    aliases={ROLLOUT: ("logprobs",)},
    notes=("means are over all tokens of the mask: those that rules take out count as 0",),
)
DECOUPLED = replace(
    AREAL,
    name="areal:decoupled",
    spec={**AREAL.spec, "rollout_is": "token"},
    notes=(
        *AREAL.notes,
        "rejection_sampling: metric ratio is LEVEL_ratio:LOW_HIGH, kl_k1 the same with exp of its bounds, "
        "kl_k3 is k3_reverse; at the level of sequences metric ratio also has rollout_is geometric; "
        "action clamp is rollout_rs_mode clamp with the bounds as rollout_is_low and rollout_is_cap",
    ),
)
GSPO = replace(
    AREAL,
    name="areal:gspo",
    spec={**AREAL.spec, "objective": "gspo", "adv_level": "sequence"},
    notes=(*AREAL.notes, "each token has its sequence's mean advantage"),
)
GATES = tuple(
    actor(f"{name}/avg", f"{text}; token mean", measure("gate", side=side))
    for name, text, side in (
        ("sapo_soft_gate", "scaled gate by the sign of the advantage", "chosen"),
        ("sapo_scaled_gate_pos", "scaled gate with tau_pos", "positive"),
        ("sapo_scaled_gate_neg", "scaled gate with tau_neg", "negative"),
    )
)
SAPO = replace(
    AREAL,
    name="areal:sapo",
    spec={**AREAL.spec, "objective": "sapo"},
    metrics=(
        replace(SHARED[0], text="soft gate; token mean"),
        *SHARED[1:],
        *GATES,
        *VALUES,
    ),
    notes=("importance_sampling_level sequence: ratio_level and adv_level sequence",),
)

PRESETS = {one.name: one for one in (AREAL, DECOUPLED, GSPO, SAPO)}
