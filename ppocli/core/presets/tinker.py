"""Tinker cookbook 0.6.1: `tinker_cookbook.rl.metrics.compute_kl_sample_train`."""

from __future__ import annotations

from ppocli.core.measures import PresetMetric, measure
from ppocli.core.presets import Preset

NEW, OLD = "old_log_probs", "rollout_log_probs"
"""The policy before the update, against the sampler's own log-probs."""

TINKER = Preset(
    name="tinker",
    title="Tinker cookbook",
    version="0.6.1",
    spec={"agg": "token-sum"},
    metrics=(
        PresetMetric(
            "optim/kl_sample_train_v1",
            "mean of sampling - training log-probs (k1), over action tokens",
            (measure("kl", new=NEW, old=OLD),),
            kind="approx KL",
        ),
        PresetMetric(
            "optim/kl_sample_train_v2",
            "half the mean square of that difference (k2)",
            (measure("kl", estimator="k2", new=NEW, old=OLD),),
        ),
        PresetMetric(
            "optim/entropy",
            "minus the mean sampling log-prob",
            (measure("column", factor=-1.0, role=OLD),),
        ),
    ),
    aliases={"rollout_log_probs": ("logprobs",)},
    notes=(
        "training log-probs are old_log_probs, sampling log-probs are rollout_log_probs",
        "the losses are computed on Tinker's servers; they are sums over tokens",
    ),
)

PRESETS = {TINKER.name: TINKER}
