"""RLlib 2.60.0: `ray.rllib.algorithms.ppo.torch.ppo_torch_learner.PPOTorchLearner`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset
from ppocli.core.presets.common import ENTROPY, total_of, variances

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

POLICY = measure("loss", AGG)
VALUE = measure("value_error", form="plain")
EPS = 1e-6
"""Added to the variance of the returns."""


def explained_floored(spec: LossSpec, residual: float, returns: float) -> float:
    """Return max(-1, 1 - var(returns - values) / (var(returns) + 1e-6)); NaN stays."""
    value = 1.0 - residual / (returns + EPS)
    return -1.0 if value < -1.0 else value


RLLIB = Preset(
    name="rllib",
    title="RLlib",
    version="2.60.0",
    spec={
        "clip_low": 0.3,
        "clip_high": 0.3,
        "adv_norm": "batch",
        "adv_norm_ddof": 0,
        "adv_norm_eps": 1e-4,
        "adv_norm_form": "max",
        "adv_norm_degenerate": "formula",
        "value_error_cap": 10.0,
    },
    metrics=(
        PresetMetric(
            "policy_loss",
            "clipped surrogate of the normalised advantages; mean over loss_mask",
            (POLICY,),
            kind="loss",
        ),
        PresetMetric(
            "vf_loss",
            "squared error, at most vf_clip_param; mean over loss_mask",
            (VALUE,),
            kind="value loss",
        ),
        PresetMetric(
            "vf_loss_unclipped",
            "squared error; mean over loss_mask",
            (measure("value_error", form="plain", capped=False),),
        ),
        PresetMetric("entropy", "mean entropy over loss_mask", (ENTROPY,)),
        PresetMetric(
            "total_loss",
            "policy + vf_loss_coeff * vf_loss - entropy_coeff * entropy, without the KL term; 1 and 0 unless "
            "given",
            (POLICY, VALUE, ENTROPY),
            total_of(1.0, 0.0),
        ),
        PresetMetric(
            "vf_explained_var",
            "max(-1, 1 - var(returns - values) / (var(returns) + 1e-6)), ddof 1, current values, masked "
            "steps included",
            variances("values", ddof=1, over="stored"),
            explained_floored,
        ),
    ),
    aliases={
        "old_log_probs": ("action_logp",),
        "returns": ("value_targets",),
        "old_values": ("vf_preds",),
        "mask": ("loss_mask",),
    },
    notes=(
        "mean_kl_loss is exact, from the two distributions, which log-probs do not hold; total_loss here is "
        "without kl_coeff * mean_kl_loss",
        "RLlib's statistics of the advantages also take in one artificial step per episode",
        "vf_clip_param bounds the squared error, not the change of the value: value_error_cap",
        "the last minibatch is what RLlib logs",
    ),
)

PRESETS = {RLLIB.name: RLLIB}
