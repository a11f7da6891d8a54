"""NeMo-RL 7ea279abf: `nemo_rl.algorithms.loss.loss_functions`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.measures import AGG, STORED_SEQUENCES, PresetMetric, measure, own_metric
from ppocli.core.presets import Preset

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

EPS = 1e-8
"""Added to the number of tokens in a masked mean, and to a sequence's length."""


def total(spec: LossSpec, policy: float, penalty: float) -> float:
    """Return policy + penalty."""
    return policy + penalty


def scaled(spec: LossSpec, value: float) -> float:
    """Return the value loss times its scale, 1 unless given."""
    return value if spec.vf_coef is None else spec.vf_coef * value


RATIOS = tuple(
    PresetMetric(
        f"probs_ratio{name}{suffix}",
        f"ratio{', held within the interval' if clipped else ''}; {text}",
        (measure("objective_ratio", reduce, clipped=clipped),),
    )
    for suffix, reduce, text in (
        ("", "token-mean", "token mean"),
        ("_min", "token-min", "smallest"),
        ("_max", "token-max", "largest"),
    )
    for name, clipped in (("", False), ("_clamped", True))
)
MISMATCH = (
    PresetMetric(
        "token_mult_prob_error", "exp(|rollout - old|); token mean", (measure("multiplicative_error"),)
    ),
    PresetMetric(
        "gen_kl_error",
        "KL(rollout || old), the estimator of the reference KL without clamps; token mean",
        (measure("kl", estimator="ref_kl", new="old_log_probs", old="rollout_log_probs"),),
        kind="approx KL",
    ),
    PresetMetric(
        "policy_kl_error",
        "KL(old || rollout), the estimator of the reference KL without clamps; token mean",
        (measure("kl", estimator="ref_kl", new="rollout_log_probs", old="old_log_probs"),),
    ),
    PresetMetric(
        "js_divergence_error",
        "k3 of old and of rollout against their mean, averaged; token mean",
        (measure("mixture_divergence"),),
    ),
    PresetMetric(
        "sampling_importance_ratio",
        "weight old / rollout as it is applied; token mean",
        (measure("sampling_ratio"),),
    ),
    PresetMetric(
        "is_oob_ratio",
        "tokens whose weight is out of bounds, or sequences whose geometric mean is; mean",
        (measure("weight", kind="touched"), measure("held_back", "seq-mean-token-max")),
        total,
    ),
    PresetMetric(
        "approx_entropy", "-exp(new - rollout) * new; token mean", (measure("weighted_entropy"),)
    ),
)  # fmt: skip
VALUES = (
    PresetMetric(
        "value_loss",
        "scale times half the larger square; token mean",
        (measure("value_error", factor=0.5),),
        scaled,
        kind="value loss",
    ),
    PresetMetric("vf_clipfrac", "clipped square strictly larger; token mean", (measure("value_clip"),)),
    PresetMetric("returns_mean", "token mean", (measure("column", role="returns"),)),
    PresetMetric("values_mean", "token mean", (measure("column", role="values"),)),
    PresetMetric("values_min", "smallest", (measure("column", "token-min", role="values"),)),
    PresetMetric("values_max", "largest", (measure("column", "token-max", role="values"),)),
    PresetMetric("returns_sq_mean", "square; token mean", (measure("column", role="returns", power=2),)),
    PresetMetric(
        "residual_sq_mean", "(returns - values)^2; token mean", (measure("value_error", form="plain"),)
    ),
)
NEMO_RL = Preset(
    name="nemo-rl",
    title="NeMo-RL",
    version="7ea279abf",
    spec={"kl_coef": 0.01, "ref_kl_clamp": 20.0, "ref_kl_cap": 10.0, "mean_eps": EPS, "seq_eps": EPS},
    metrics=(
        PresetMetric(
            "loss",
            "clipped surrogate + reference_policy_kl_penalty * reference KL; chosen aggregation",
            (measure("loss", AGG), measure("ref_kl", AGG, penalty=True)),
            total,
            kind="loss",
        ),
        *RATIOS,
        PresetMetric(
            "kl_penalty",
            "reference KL, clamped at 20 before and 10 after exp; chosen aggregation",
            (measure("ref_kl", AGG),),
        ),
        *MISMATCH,
        PresetMetric("num_valid_samples", "sequences with a valid token", (own_metric("n_sequences"),)),
        *VALUES,
    ),
    aliases={
        "old_log_probs": ("prev_logprobs",),
        "rollout_log_probs": ("generation_logprobs",),
        "ref_log_probs": ("reference_policy_logprobs",),
        "mask": ("token_mask", "token_loss_mask"),
    },
    spoils=(
        "loss", "probs_ratio", "probs_ratio_clamped", "kl_penalty", "token_mult_prob_error", "gen_kl_error",
        "policy_kl_error", "js_divergence_error", "approx_entropy", "value_loss", "returns_mean",
        "values_mean", "returns_sq_mean", "residual_sq_mean",
    ),
    notes=(
        "NeMo-RL has no clip fraction",
        "a reference KL of 0.01 is on by default: kl_coef",
        "seq-mask-tis is rollout_is token with rollout_rs seq_mean_ratio and rollout_rs_mode zero",
        "weights that are not finite are 0 there",
    ),
)  # fmt: skip
SEQUENCE: dict[str, Any] = {
    **NEMO_RL.spec,
    "objective": "gspo",
    "agg": "seq-mean-token-mean",
    "ratio_eps": EPS,
}
SEQUENCE_RATIO = PresetMetric(
    "sampling_importance_ratio",
    "product of old / rollout over the sequence as applied; sum over sequences, for this version counts "
    "each weight once per valid sequence and divides by their number; one without a token has 1",
    (measure("sampling_ratio", "row-sum-token-max", less=1.0), own_metric(STORED_SEQUENCES)),
    total,
)
PRESETS = {
    one.name: one
    for one in (
        NEMO_RL,
        replace(
            NEMO_RL,
            name="nemo-rl:gspo",
            spec=SEQUENCE,
            metrics=tuple(
                SEQUENCE_RATIO if one.name == SEQUENCE_RATIO.name else one for one in NEMO_RL.metrics
            ),
        ),
        replace(NEMO_RL, name="nemo-rl:cispo", spec={**NEMO_RL.spec, "objective": "cispo"}),
        replace(NEMO_RL, name="nemo-rl:reinforce", spec={**NEMO_RL.spec, "objective": "reinforce"}),
    )
}
