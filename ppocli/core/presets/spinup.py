"""Spinning Up at commit 038665d62d56: `spinup.algos.pytorch.ppo.ppo`."""

from __future__ import annotations

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset
from ppocli.core.presets.common import ENTROPY, K1

SPINUP = Preset(
    name="spinup",
    title="Spinning Up",
    version="038665d62d56",
    spec={
        "adv_norm": "batch",
        "adv_norm_ddof": 0,
        "adv_norm_eps": 0.0,
        "adv_norm_degenerate": "formula",
    },
    metrics=(
        PresetMetric(
            "LossPi",
            "clipped surrogate of the normalised advantages; mean",
            (measure("loss", AGG),),
            kind="loss",
        ),
        PresetMetric(
            "ClipFrac",
            "ratio outside [1 - clip_ratio, 1 + clip_ratio]; mean",
            (measure("clip", kind="region"),),
            kind="clip fraction",
        ),
        PresetMetric("KL", "k1; mean", (K1,), kind="approx KL"),
        PresetMetric(
            "LossV",
            "squared error, no factor; mean",
            (measure("value_error", form="plain"),),
            kind="value loss",
        ),
        PresetMetric("Entropy", "mean entropy; in no loss", (ENTROPY,)),
    ),
    aliases={"old_log_probs": ("logp_old",), "advantages": ("adv_buf",), "returns": ("ret_buf",)},
    notes=(
        "the advantages of the epoch are divided by their deviation (ddof 0) with no epsilon: equal "
        "advantages, or one alone, give NaN",
        "returns are rewards-to-go, not advantages + values; values are not clipped",
    ),
)

PRESETS = {SPINUP.name: SPINUP}
