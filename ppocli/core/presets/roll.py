"""ROLL 8eb27cc2: `roll.pipeline.rlvr.actor_worker`, `actor_pg_worker`, `roll.pipeline.base_worker`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.measures import AGG, STORED_SEQUENCES, Measure, PresetMetric, measure, own_metric
from ppocli.core.presets import Preset

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

KIMI_TAU = 0.1
N_TOKENS = own_metric("n_tokens")
PADDED = "summed over padding too, divided by the number of valid tokens"


def share(spec: LossSpec, total: float, n: float) -> float:
    """Return total / n."""
    return total / n


def penalised(spec: LossSpec, policy: float, entropy: float, penalty: float) -> float:
    """Return policy - entropy bonus + penalty."""
    return policy - entropy + penalty


def padded_penalised(spec: LossSpec, policy: float, entropy: float, n: float, penalty: float) -> float:
    """Return the same, from sums over padding of all but the penalty, which is masked."""
    return (policy - entropy) / n + penalty


def clipped_share(spec: LossSpec, clipped: float, error: float) -> float:
    """Return the share of clipped values; without a clip ROLL puts the mean error in its place."""
    return error if spec.value_clip is None else clipped


def half(spec: LossSpec, value: float) -> float:
    """Return half of it."""
    return 0.5 * value


ENTROPY, PENALTY = measure("entropy_bonus", AGG), measure("ref_kl", AGG, penalty=True)
LOSS = (
    PresetMetric("actor/pg_loss@sum", "objective; chosen aggregation", (measure("loss", AGG),), kind="loss"),
    PresetMetric(
        "actor/total_loss@sum",
        "pg_loss + kl_loss_coef * kl_loss - entropy_loss_coef * entropy; chosen aggregation",
        (measure("loss", AGG), ENTROPY, PENALTY),
        penalised,
    ),
)
PADDED_LOSS = (
    PresetMetric(
        "actor/pg_loss@sum", f"objective; {PADDED}", (measure("loss", "stored-sum"), N_TOKENS), share,
        kind="loss",
    ),
    PresetMetric(
        "actor/total_loss@sum",
        f"pg_loss + kl_loss_coef * kl_loss - entropy_loss_coef * entropy; all but kl_loss {PADDED}",
        (measure("loss", "stored-sum"), measure("entropy_bonus", "stored-sum"), N_TOKENS, PENALTY),
        padded_penalised,
    ),
)  # fmt: skip
COMMON = (
    PresetMetric(
        "actor/kl_loss@sum",
        "k3 of new against the reference, capped at 10; chosen aggregation",
        (measure("ref_kl", AGG),),
    ),
    PresetMetric(
        "actor/approxkl@sum",
        "k2 of new against old; chosen aggregation",
        (measure("kl", AGG, estimator="k2"),),
        kind="approx KL",
    ),
    PresetMetric("actor/policykl@sum", "new - old; chosen aggregation", (measure("kl", AGG, -1.0),)),
    PresetMetric("actor/valid_samples@sum", "sequences with a valid token", (own_metric("n_sequences"),)),
    PresetMetric("actor/total_samples@sum", "sequences", (own_metric(STORED_SEQUENCES),)),
    PresetMetric(
        "actor/ratio_mean@sum",
        "ratio; mean over sequences of token means",
        (measure("objective_ratio", "seq-mean-token-mean"),),
    ),
    PresetMetric("actor/ratio_max@max", "largest ratio", (measure("objective_ratio", "token-max"),)),
    PresetMetric("actor/ratio_min@min", "smallest ratio", (measure("objective_ratio", "token-min"),)),
)


def mismatch(kind: str, text: str, ratio: Measure, difference: Measure) -> tuple[PresetMetric, PresetMetric]:
    """Return ratio and difference of the probabilities of old and rollout at one granularity."""
    return (
        PresetMetric(f"actor/train_infer_ratio_{kind}_mean@sum", f"old / rollout, {text}", (ratio,)),
        PresetMetric(f"actor/train_infer_diff_{kind}_mean@sum", f"p_old - p_rollout, {text}", (difference,)),
    )


def ratio_of(level: str) -> Measure:
    """Return the mean over sequences of old / rollout."""
    options = {"new": "old_log_probs", "old": "rollout_log_probs", "level": level}
    return measure("ratio", "seq-mean-token-mean", 1.0, **options)


MEAN, SUM = (measure("probability_difference", f"seq-mean-token-{within}") for within in ("mean", "sum"))
GEOMETRIC = "geometric mean or mean of a sequence; mean over sequences"
MISMATCH = (
    *mismatch("token", "mean over sequences of token means", ratio_of("token"), MEAN),
    *mismatch("geometric", GEOMETRIC, ratio_of("geometric"), MEAN),
    *mismatch("sequence", "product or sum of a sequence; mean over sequences", ratio_of("sequence"), SUM),
    *mismatch("segment", f"{GEOMETRIC}; of its parts, if its mask has gaps", ratio_of("geometric"), MEAN),
    PresetMetric(
        "actor/is_weight_clipfrac@sum",
        f"weight above its bound; {PADDED}",
        (measure("weight", "stored-sum", kind="high"), N_TOKENS),
        share,
    ),
)


def clip_share(name: str, text: str, kind: str) -> PresetMetric:
    """Return a clip fraction that runs over padding."""
    return PresetMetric(
        f"actor/ppo_ratio_{name}@sum",
        f"ratio {text}, any sign of A; {PADDED}",
        (measure("clip", "stored-sum", kind=kind), N_TOKENS),
        share,
    )


RATIO_CLIPS = (
    clip_share("high_clipfrac", "above the interval", "high"),
    clip_share("low_clipfrac", "below the interval", "low"),
    clip_share("clipfrac", "outside the interval", "region"),
)
CLIP = PresetMetric(
    "actor/clipfrac@sum",
    "clipped branch strictly chosen, sign-aware; chosen aggregation",
    (measure("clip", AGG, kind="active"),),
    kind="clip fraction",
)
PADDED_CLIP = replace(
    CLIP,
    text=f"clipped branch strictly chosen, sign-aware; {PADDED}",
    measures=(measure("clip", "stored-sum", kind="active"), N_TOKENS),
    combine=share,
)
SQUARE = "row-mean-token-mean"
VALUES = (
    PresetMetric(
        "critic/loss",
        "half the larger square; mean over sequences of token means",
        (measure("value_error", SQUARE, 0.5),),
        kind="value loss",
    ),
    PresetMetric(
        "critic/value",
        "old values; mean over sequences of token means",
        (measure("column", SQUARE, role="old_values"),),
    ),
    PresetMetric(
        "critic/vpred",
        "values; mean over sequences of token means",
        (measure("column", SQUARE, role="values"),),
    ),
    PresetMetric(
        "critic/clipfrac",
        "clipped square strictly larger, mean over sequences of token means; without a clip the mean error",
        (measure("value_clip", SQUARE), measure("value_error", SQUARE)),
        clipped_share,
    ),
    PresetMetric(
        "critic/error",
        "(values - returns)^2; mean over sequences of token means",
        (measure("value_error", SQUARE, form="plain"),),
    ),
)


def outside(prefix: str) -> tuple[PresetMetric, ...]:
    """Return the clip fractions of a bounded weight, plain means over padding."""
    kinds = (("lower", "low", "below"), ("upper", "high", "above"), ("total", "region", "outside"))
    return tuple(
        PresetMetric(
            f"actor/{prefix}_{name}_clipfrac",
            f"ratio {text} the bounds; mean over all positions, padding included",
            (measure("clip", "stored-mean", kind=kind),),
            kind="clip fraction" if kind == "region" else "",
        )
        for name, kind, text in kinds
    )


def clipped_ratio(name: str, over: str) -> PresetMetric:
    """Return the mean of the bounded ratio."""
    empty = ", one without a token counting as 0" if over == "row" else ""
    return PresetMetric(
        f"actor/{name}",
        f"ratio held within the bounds; mean over sequences of token means{empty}",
        (measure("objective_ratio", f"{over}-mean-token-mean", clipped=True),),
    )


def kept(spec: LossSpec, dropped: float) -> float:
    """Return the share of what is not dropped."""
    return 1.0 - dropped


UNIFIED = tuple(
    PresetMetric(
        f"actor/cispo_cispo_{name}",
        f"{text}; mean over all positions, padding included",
        (measure("clip", "stored-mean", kind=kind),),
        combine,
    )
    for name, kind, text, combine in (
        ("masked_positive_tokens", "active_high", "ratio above the bounds and A > 0", None),
        ("masked_negative_tokens", "active_low", "ratio below the bounds and A < 0", None),
        ("kept_tokens", "active", "neither of the two", kept),
    )
)


def relative(spec: LossSpec, square: float, gradient: float) -> float:
    """Return the size of the penalty over that of the gradient."""
    return 0.5 * spec.dro_beta * square / (gradient + 1e-8)


def penalty_size(spec: LossSpec, square: float) -> float:
    """Return the mean penalty."""
    return 0.5 * spec.dro_beta * square


SQUARED = measure("logarithm", "stored-mean", power=2)
GRADIENT = measure("logarithm", "stored-mean", size=True, times="advantages")
KIMI = tuple(
    PresetMetric(f"actor/kimi15_kimi15_{name}", f"{text}; over all positions, padding included", of, combine)
    for name, text, of, combine in (
        ("log_ratio_mean", "log(ratio + 1e-8); mean", (measure("logarithm", "stored-mean"),), None),
        (
            "log_ratio_std",
            "log(ratio + 1e-8); standard deviation, ddof 1",
            (measure("logarithm", "stored-std", ddof=1),),
            None,
        ),
        ("log_ratio_abs_mean", "size; mean", (measure("logarithm", "stored-mean", size=True),), None),
        ("policy_grad_magnitude", "|A log(ratio + 1e-8)|; mean", (GRADIENT,), None),
        ("kl_reg_magnitude", "tau / 2 log(ratio + 1e-8)^2; mean", (SQUARED,), penalty_size),
        ("reg_ratio", "the penalty over the size of the gradient; means", (SQUARED, GRADIENT), relative),
    )
)
NOTES = (
    "aggregation token-mean does not multiply by the mask: roll:token-mean",
    "seq-mean-token-sum-norm divides by the padded length alone: denominator 1",
    "the dual-clip bound is 1 + 2 * pg_clip: dual_clip 1.4",
)
SPEC: dict[str, Any] = {"agg": "seq-mean-token-mean", "ref_kl_cap": 10.0}
FREE = {"ppo_ratio", "clipfrac", "samples", "segment"}
"""Parts of the names of metrics that NaN in the padding does not reach."""


def roll(variant: str, spec: dict[str, Any], *metrics: PresetMetric) -> Preset:
    """Return a preset."""
    names = [one.name for one in metrics]
    return Preset(
        name="roll" if not variant else f"roll:{variant}",
        title="ROLL",
        version="8eb27cc2",
        spec={**SPEC, **spec},
        metrics=metrics,
        aliases={"rollout_log_probs": ("infer_logprobs",), "mask": ("response_mask",)},
        spoils=tuple(name for name in names if not any(part in name for part in FREE)),
        notes=NOTES,
    )


SURROGATE = (*LOSS, *COMMON, *RATIO_CLIPS, CLIP, *MISMATCH, *VALUES)
REINFORCE = (*LOSS, *COMMON, *MISMATCH, *VALUES)
PRESETS = {
    one.name: one
    for one in (
        roll("", {}, *SURROGATE),
        roll("gspo", {"objective": "gspo"}, *SURROGATE),
        roll(
            "token-mean", {"agg": "token-mean"},
            *PADDED_LOSS, *COMMON, *RATIO_CLIPS, PADDED_CLIP, *MISMATCH, *VALUES,
        ),
        roll("vanilla", {"objective": "reinforce"}, *REINFORCE),
        roll(
            "tis", {"objective": "cispo", "cispo_low": 0.0, "cispo_high": 1.0},
            *REINFORCE, *outside("tis"), clipped_ratio("tis_clipped_ratio_mean@sum", "seq"),
        ),
        roll(
            "cispo", {"objective": "cispo", "clip_low": 0.1, "clip_high": 0.1},
            *REINFORCE, *outside("cispo_cispo"), clipped_ratio("cispo_clipped_ratio_mean", "row"), *UNIFIED,
        ),
        roll("kimi15", {"objective": "dro", "dro_beta": KIMI_TAU}, *REINFORCE, *KIMI),
    )
}  # fmt: skip
