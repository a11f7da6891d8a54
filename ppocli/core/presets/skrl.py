"""skrl 2.1.1: `skrl.agents.torch.ppo.PPO.update`."""

from __future__ import annotations

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset
from ppocli.core.presets.common import ENTROPY, K3, entropy_scaled, value_scaled

SKRL = Preset(
    name="skrl",
    title="skrl",
    version="2.1.1",
    spec={
        "adv_norm": "batch",
        "adv_norm_ddof": 1,
        "adv_norm_eps": 1e-8,
        "adv_norm_degenerate": "formula",
        "value_clip": 0.2,
    },
    metrics=(
        PresetMetric(
            "Loss / Policy loss",
            "clipped surrogate of the normalised advantages; mean",
            (measure("loss", AGG),),
            kind="loss",
        ),
        PresetMetric(
            "kl_divergence",
            "k3; mean; compared with kl_threshold, not logged",
            (K3,),
            kind="approx KL",
        ),
        PresetMetric(
            "Loss / Value loss",
            "value_loss_scale (2.5 unless given) times the square of the clipped values; mean",
            (measure("value_error", form="clipped"),),
            value_scaled(2.5),
            kind="value loss",
        ),
        PresetMetric(
            "Loss / Entropy loss",
            "minus entropy_loss_scale (0 unless given) times the mean entropy",
            (ENTROPY,),
            entropy_scaled(0.0),
        ),
    ),
    aliases={"old_log_probs": ("log_prob",)},
    notes=(
        "the whole input is one minibatch; skrl divides sums over all minibatches by their planned number, "
        "also where kl_threshold ended an epoch",
        "skrl's memory holds advantages that are normalised already; doing it again changes them by 1e-8",
        "an exported memory holds advantages and returns of the rollout before",
        "vf_coef is value_loss_scale, ent_coef is entropy_loss_scale; value_clip 0 is value_clip=None",
    ),
)

PRESETS = {SKRL.name: SKRL}
