"""open-instruct e6c3044a: `open_instruct.grpo_utils`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.measures import AGG, PresetMetric, measure, own_metric
from ppocli.core.presets import Preset

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec


def total(spec: LossSpec, policy: float, penalty: float) -> float:
    """Return policy + penalty."""
    return policy + penalty


def by_sequence(spec: LossSpec, weighted: float, n: float) -> float:
    """Return the mean over tokens of the loss of a sequence, which is its sum over the denominator."""
    return weighted / n / (spec.denominator or n)


NEW_ROLLOUT: dict[str, Any] = {"new": "log_probs", "old": "rollout_log_probs", "estimator": "abs"}
KLS = tuple(
    PresetMetric(
        f"objective/kl{index}_avg",
        f"{text} of new against the reference, the difference held within 40; token mean",
        (measure("ref_kl", estimator=estimator),),
        kind="approx KL" if index == 2 else "",
    )
    for index, (estimator, text) in enumerate(
        (("k1", "k1"), ("k2", "k2"), ("k3", "k3"), ("ratio-k1", "ratio * k1"))
    )
)
RHO = (
    PresetMetric(
        "val/rho_weight", "weight old / rollout as applied; token mean", (measure("sampling_ratio"),)
    ),
    PresetMetric(
        "val/rho_clipfrac", "weight held at a bound; token mean", (measure("weight", kind="touched"),)
    ),
    PresetMetric("val/rho_drop_frac", "weight set to 0; token mean", (measure("held_back"),)),
    PresetMetric("val/rho_drop_low_frac", "below the mask; token mean", (measure("held_back", side="low"),)),
    PresetMetric(
        "val/rho_drop_high_frac", "above the mask; token mean", (measure("held_back", side="high"),)
    ),
)
DEBUG = tuple(
    PresetMetric(
        f"debug/vllm_vs_local_logprob_diff_{name}",
        f"|new - rollout|; {text}",
        (measure("kl", reduce, 1.0, **NEW_ROLLOUT, **options),),
    )
    for name, text, reduce, options in (
        ("mean", "token mean", "token-mean", {}),
        ("max", "largest token", "token-max", {}),
        ("std", "standard deviation over tokens, ddof 1", "token-std", {"ddof": 1}),
    )
)
DAPO = Preset(
    name="open-instruct",
    title="open-instruct",
    version="e6c3044a",
    spec={"clip_low": 0.2, "clip_high": 0.272, "kl_coef": 0.05, "ref_kl_clamp": 40.0},
    metrics=(
        PresetMetric(
            "total_loss",
            "objective + beta * KL estimate; token mean, or over loss_denominator",
            (measure("loss", AGG), measure("ref_kl", AGG, penalty=True)),
            total,
        ),
        PresetMetric(
            "loss/total_avg",
            "loss of each sequence, its sum over all tokens or loss_denominator; mean weighted by length",
            (measure("loss_times_length", "token-sum"), own_metric("n_tokens")),
            by_sequence,
        ),
        PresetMetric("loss/policy_avg", "clipped surrogate; token mean", (measure("loss"),), kind="loss"),
        PresetMetric(
            "loss/kl_avg", "beta * KL estimate; token mean", (measure("ref_kl", penalty=True),)
        ),
        *KLS,
        PresetMetric(
            "policy/clipfrac_avg",
            "clipped branch strictly chosen, sign-aware, and a weight that is not 0; token mean",
            (measure("clip_kept"),),
            kind="clip fraction",
        ),
        PresetMetric("val/ratio", "ratio; token mean", (measure("objective_ratio"),)),
        PresetMetric(
            "val/ratio_var",
            "variance over sequences, weighted by length, of their mean ratio",
            (measure("objective_ratio", "token-var", averaged=True),),
        ),
        *RHO,
        PresetMetric("policy/entropy_avg", "token mean", (measure("column", role="entropy"),)),
        *DEBUG,
        PresetMetric(
            "debug/vllm_local_reverse_kl",
            "p_rollout * (rollout - new); token mean",
            (measure("behaviour_weighted"),),
        ),
    ),
    aliases={
        "rollout_log_probs": ("vllm_logprobs",),
        "mask": ("response_mask",),
        "advantages": ("advantage",),
    },
    spoils=(
        "total_loss", "loss/total_avg", "loss/policy_avg", "loss/kl_avg", *(one.name for one in KLS),
        "val/ratio", "val/ratio_var", "policy/entropy_avg",
    ),
    notes=(
        "use_rho_correction is rollout_is token, rollout_is_cap 2 and rollout_is_clamp 10",
        "a mask of rho is rollout_rs with rollout_rs_mode zero",
        "kl_estimator 3 is ratio * k1, not k3",
    ),
)  # fmt: skip
CISPO = replace(
    DAPO,
    name="open-instruct:cispo",
    spec={**DAPO.spec, "objective": "cispo", "cispo_low": 0.0},
    metrics=tuple(
        replace(one, text="ratio above the bound, any sign of A, and a weight that is not 0; token mean")
        if one.name == "policy/clipfrac_avg"
        else one
        for one in DAPO.metrics
    ),
)
PRESETS = {one.name: one for one in (DAPO, CISPO)}
