"""CleanRL at commit fe8d8a03c41a: the update of `cleanrl/ppo.py`."""

from __future__ import annotations

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset
from ppocli.core.presets.common import ENTROPY, K1, K3, explained, total_of, variances

POLICY = measure("loss", AGG)
VALUE = measure("value_error", factor=0.5)

CLEANRL = Preset(
    name="cleanrl",
    title="CleanRL",
    version="fe8d8a03c41a",
    spec={
        "adv_norm": "batch",
        "adv_norm_ddof": 1,
        "adv_norm_eps": 1e-8,
        "adv_norm_degenerate": "formula",
        "value_clip": 0.2,
    },
    metrics=(
        PresetMetric(
            "losses/policy_loss",
            "clipped surrogate of the normalised advantages; mean",
            (POLICY,),
            kind="loss",
        ),
        PresetMetric(
            "losses/clipfrac", "|ratio - 1| > clip_coef; mean", (measure("distance"),), kind="clip fraction"
        ),
        PresetMetric("losses/approx_kl", "k3; mean", (K3,), kind="approx KL"),
        PresetMetric("losses/old_approx_kl", "k1; mean", (K1,)),
        PresetMetric(
            "losses/value_loss",
            "half the larger of the plain and the clipped square; mean",
            (VALUE,),
            kind="value loss",
        ),
        PresetMetric("losses/entropy", "mean entropy", (ENTROPY,)),
        PresetMetric(
            "loss",
            "policy - ent_coef * entropy + vf_coef * value loss; 0.01 and 0.5 unless given",
            (POLICY, VALUE, ENTROPY),
            total_of(0.5, 0.01),
        ),
        PresetMetric(
            "losses/explained_variance",
            "1 - var(returns - stored values) / var(returns)",
            variances("old_values"),
            explained,
        ),
    ),
    aliases={
        "old_log_probs": ("b_logprobs",),
        "log_probs": ("newlogprob",),
        "advantages": ("b_advantages",),
        "returns": ("b_returns",),
        "old_values": ("b_values",),
        "values": ("newvalue",),
    },
    tied={"value_clip": "clip_high"},
    notes=(
        "one minibatch; CleanRL logs those of the last one, but clipfrac as the mean over all",
        "values are clipped by clip_coef, as the ratio is; clip_vloss=False is value_clip=None",
        "a minibatch of one step gives NaN: its deviation has ddof 1",
    ),
)

PRESETS = {CLEANRL.name: CLEANRL}
