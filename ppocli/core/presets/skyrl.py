"""SkyRL 0.4.0: `skyrl.backends.skyrl_train.utils.ppo_utils`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

NEW, OLD, ROLLOUT, REF = "log_probs", "old_log_probs", "rollout_log_probs", "ref_log_probs"
CLAMP, CEILING, EPS = 20.0, 10.0, 1e-8
LOSS, CLIP, VALUE = "policy/policy_loss", "policy/loss_metrics/clip_ratio", "critic/critic_loss"


def loss(text: str) -> PresetMetric:
    """Return the metric of the policy loss."""
    return PresetMetric(LOSS, f"{text}; chosen aggregation", (measure("loss", AGG),), kind="loss")


def clip(text: str, *measures: Any, combine: Any = None) -> PresetMetric:
    """Return the metric of the clip fraction."""
    return PresetMetric(CLIP, f"{text}; token mean", measures, combine, kind="clip fraction")


def token(name: str, text: str, term: str, reduce: str = "token-mean", **options: Any) -> PresetMetric:
    """Return a metric of single tokens."""
    return PresetMetric(f"policy/{name}", text, (measure(term, reduce, **options),))


ACTIVE = clip(
    "clipped branch strictly chosen, sign of the advantage considered", measure("clip", kind="active")
)
NONE = clip("always 0", measure("clip", kind="dual"))
APART: dict[str, Any] = {"estimator": "abs", "new": OLD, "old": ROLLOUT}
SHARED = (
    PresetMetric(
        "policy/policy_kl",
        "k3 from the reference, log-ratio clamped to +-20, value to +-10; mean over sequences of token means",
        (measure("kl", "seq-mean-token-mean", estimator="k3", new=REF, old=NEW, clamp=CLAMP, cap=10.0),),
        optional=True,
    ),
    PresetMetric(
        "policy/policy_entropy", "entropy; token mean", (measure("column", role="entropy"),), optional=True
    ),
    *(
        PresetMetric(
            f"policy/rollout_train_logprobs_abs_diff_{name}",
            f"|old - rollout log-probs|; {name} over tokens{', ddof 1' if name == 'std' else ''}",
            (measure("kl", f"token-{name}", **APART, **({"ddof": 1} if name == "std" else {})),),
            optional=True,
        )
        for name in ("mean", "max", "min", "std")
    ),
    PresetMetric(
        VALUE, "half the larger square; mean over sequences of token means",
        (measure("value_error", "row-mean-token-mean", 0.5),), kind="value loss",
    ),
)  # fmt: skip


def clipped_values(spec: LossSpec) -> tuple[PresetMetric, ...]:
    """Return the clip fraction of the values, which SkyRL logs where it clips them."""
    text = "clipped square strictly larger; token mean"
    metric = PresetMetric("critic/values_clipfrac", text, (measure("value_clip", kind="active"),))
    return () if spec.value_clip is None else (metric,)


SKYRL = Preset(
    name="skyrl",
    title="SkyRL",
    version="0.4.0",
    spec={"log_ratio_clamp": CLAMP, "value_clip": 0.2, "count_empty": True},
    metrics=(loss("clipped surrogate"), ACTIVE, *SHARED),
    aliases={OLD: ("action_log_probs",)},
    more=clipped_values,
    spoils=(LOSS, VALUE),
    notes=(
        "loss_reduction token_mean, sequence_mean, seq_mean_token_sum_norm, prompt_mean: agg token-mean, "
        "seq-mean-token-mean, seq-mean-token-sum-norm (horizon = max_seq_len), group-mean; stored sequences "
        "without a token count",
        "give the advantages as they are before SkyRL scales them by the reduction",
        "clip ratios: SkyRL takes means over micro-batches of their token means",
        "policy_loss_type dual_clip: dual_clip = 3",
    ),
)


def variant(name: str, *metrics: PresetMetric, notes: tuple[str, ...] = (), **spec: Any) -> Preset:
    """Return another loss."""
    return replace(
        SKYRL,
        name=f"skyrl:{name}",
        spec={**SKYRL.spec, **spec},
        metrics=(*metrics, *SHARED),
        notes=(*notes, *SKYRL.notes[:-1]),
    )


GSPO = variant(
    "gspo",
    loss("clipped surrogate of the sequence's geometric ratio"),
    ACTIVE,
    objective="gspo",
    agg="seq-mean-token-mean",
    gspo_token_gradient=True,
    log_ratio_clamp=None,
    log_ratio_ceiling=CEILING,
)
SAPO = variant("sapo", loss("soft gate"), NONE, objective="sapo", agg="seq-mean-token-mean")
CISPO_RATIOS = ("cispo/ratio_mean", "cispo/ratio_clamped_mean")
CISPO = replace(
    variant(
        "cispo",
        loss("-clip(ratio) A log_probs, the weight a constant"),
        clip("ratio outside the interval, whatever the advantage", measure("clip", kind="region")),
        token("cispo/ratio_mean", "ratio; token mean", "ratio", clamp=CLAMP),
        token(
            "cispo/ratio_clamped_mean", "ratio within the interval; token mean", "ratio",
            clamp=CLAMP, bounds="cispo",
        ),
        token("cispo/ratio_max", "ratio; largest", "ratio", "token-max", clamp=CLAMP),
        token("cispo/ratio_min", "ratio; smallest", "ratio", "token-min", clamp=CLAMP),
        notes=("cispo_eps_clip_low, _high = l, h: cispo_low = 1 - l, cispo_high = 1 + h",
               "cispo_anchor rollout: give rollout_log_probs as old_log_probs"),
        objective="cispo",
        cispo_low=0.0,
        cispo_high=5.0,
    ),
    spoils=(LOSS, VALUE, *(f"policy/{name}" for name in CISPO_RATIOS)),
)  # fmt: skip
SAMPLER = "the ratio is to the policy that sampled: give rollout_log_probs as old_log_probs"
ROLLOUT_IS = replace(
    variant(
        "rollout_is",
        loss("-ratio A log_probs, the ratio a constant, 0 outside the interval"),
        clip(
            "ratio outside the interval",
            measure("weight", kind="low"),
            measure("weight", kind="high"),
            combine=lambda spec, low, high: low + high,
        ),
        notes=(SAMPLER, "eps_clip_low, _high = l, h: rollout_is_low = 1 - l, rollout_is_cap = 1 + h"),
        objective="reinforce",
        rollout_bypass=True,
        rollout_is="token",
        rollout_is_mode="mask",
        rollout_is_low=0.8,
        rollout_is_cap=1.2,
        rollout_is_clamp=CLAMP,
    ),
    aliases={OLD: ("rollout_logprobs", "rollout_log_probs")},
)
RATIO = "policy/loss_metrics/importance_ratio"
IMPORTANCE = replace(
    variant(
        "importance_sampling",
        loss("-ratio A"),
        token("loss_metrics/importance_ratio", "ratio; token mean", "ratio"),
        objective="is",
        log_ratio_clamp=None,
    ),
    spoils=(LOSS, VALUE, RATIO),
)


def trust_region(name: str, text: str, low: float, high: float) -> Preset:
    """Return one of the two dppo types."""
    return replace(
        variant(
            name,
            loss("-ratio A inside the trust region, 0 outside"),
            clip(text, measure("clip", kind="active")),
            notes=(SAMPLER, "delta_low, delta_high: clip_low, clip_high"),
            objective=name.replace("_", "-"),
            dppo_kl_eps=EPS,
            clip_low=low,
            clip_high=high,
        ),
        aliases=ROLLOUT_IS.aliases,
    )


DPPO_TV = trust_region("dppo_tv", "outside of the total variation", 0.2, 0.2)
DPPO_KL = trust_region("dppo_kl", "outside of the binary KL", 0.2, 0.2)

PRESETS = {one.name: one for one in (SKYRL, GSPO, SAPO, CISPO, ROLLOUT_IS, IMPORTANCE, DPPO_TV, DPPO_KL)}
