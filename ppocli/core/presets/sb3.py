"""Stable-Baselines3 2.9.2: `stable_baselines3.ppo.PPO.train`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset
from ppocli.core.presets.common import K3, coefficients, explained, variances

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

POLICY = measure("loss", AGG)
VALUE = measure("value_error", form="clipped")
ENTROPY = measure("column", factor=-1.0, role="entropy")


def total(spec: LossSpec, policy: float, value: float, entropy: float) -> float:
    """Return policy + ent_coef * entropy loss + vf_coef * value loss; 0 and 0.5 unless given."""
    vf_coef, ent_coef = coefficients(spec, 0.5, 0.0)
    return policy + ent_coef * entropy + vf_coef * value


SB3 = Preset(
    name="sb3",
    title="Stable-Baselines3",
    version="2.9.2",
    spec={"adv_norm": "batch", "adv_norm_ddof": 1, "adv_norm_eps": 1e-8},
    metrics=(
        PresetMetric(
            "train/policy_gradient_loss",
            "clipped surrogate of the normalised advantages; mean",
            (POLICY,),
            kind="loss",
        ),
        PresetMetric(
            "train/clip_fraction",
            "|ratio - 1| > clip_range; mean",
            (measure("distance"),),
            kind="clip fraction",
        ),
        PresetMetric("train/approx_kl", "k3; mean", (K3,), kind="approx KL"),
        PresetMetric(
            "train/value_loss",
            "squared error, of clipped values where clip_range_vf is set; mean",
            (VALUE,),
            kind="value loss",
        ),
        PresetMetric("train/entropy_loss", "minus the mean entropy", (ENTROPY,)),
        PresetMetric(
            "train/loss",
            "policy + ent_coef * entropy loss + vf_coef * value loss",
            (POLICY, VALUE, ENTROPY),
            total,
        ),
        PresetMetric(
            "train/explained_variance",
            "1 - var(returns - stored values) / var(returns)",
            variances("old_values"),
            explained,
        ),
    ),
    aliases={"old_log_probs": ("old_log_prob",)},
    notes=(
        "one update over the whole input; SB3 averages over minibatches and epochs, approx_kl over those of "
        "the last epoch, and train/loss is that of the last minibatch",
    ),
)

PRESETS = {SB3.name: SB3}
