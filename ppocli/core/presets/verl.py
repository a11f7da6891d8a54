"""verl 0.9.1: `verl.trainer.ppo.core_algos`, `verl.workers.utils.losses`, `verl.utils.debug.metrics`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.measures import AGG, PresetMetric, measure
from ppocli.core.presets import Preset
from ppocli.core.presets.verl_rollout import rollout_metrics

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

NEW, OLD, REF = "log_probs", "old_log_probs", "ref_log_probs"
EPS = 1e-8
"""Added to the number of tokens in a masked mean, and to a sequence's length."""

CLAMP, CEILING = 20.0, 10.0
LOSS_TERM = measure("loss", AGG, mean_eps=0.0)


def loss(text: str, one: Any = LOSS_TERM) -> PresetMetric:
    """Return the metric of the policy loss."""
    return PresetMetric("actor/pg_loss", text, (one,), kind="loss")


def clip(text: str, kind: str) -> PresetMetric:
    """Return the metric of the clip fraction."""
    return PresetMetric(
        "actor/pg_clipfrac", f"{text}; token mean", (measure("clip", kind=kind),), kind="clip fraction"
    )


def lower(text: str, kind: str) -> PresetMetric:
    """Return the metric that is the dual-clip fraction in vanilla, and something else elsewhere."""
    return PresetMetric("actor/pg_clipfrac_lower", f"{text}; token mean", (measure("clip", kind=kind),))


def drift(text: str, **options: Any) -> PresetMetric:
    """Return the metric of the drift from the old policy."""
    return PresetMetric("actor/ppo_kl", f"{text}; token mean", (measure("kl", **options),), kind="approx KL")


def chosen_kl(spec: LossSpec, k1: float, size: float, k2: float, k3: float) -> float:
    """Return the estimate that `ref_kl` names."""
    return {"k1": k1, "abs": size, "k2": k2, "k3": k3}[spec.ref_kl]


def explained(spec: LossSpec, residual: float, returns: float) -> float:
    """Return 1 - var(returns - values) / (var(returns) + 1e-5)."""
    return 1.0 - residual / (returns + 1e-5)


def reference_kl(estimator: str, **options: Any) -> Any:
    """Return an estimate of the KL from the reference, aggregated like the loss."""
    return measure("kl", AGG, estimator=estimator, new=REF, old=NEW, mean_eps=0.0, **options)


CLAMPED = drift("k1 of the log-ratio clamped to +-20", clamp=CLAMP)
RAW = drift("k1")
ACTIVE = clip("clipped branch strictly chosen, sign of the advantage considered", "active")
NONE = lower("always 0", "dual")
PLAIN: dict[str, dict[str, float]] = {"mean": {"mean_eps": 0.0}, "max": {}}
"""Means of verl that have no epsilon, and extremes."""

SHARED = (
    PresetMetric(
        "actor/entropy", "entropy; chosen aggregation",
        (measure("column", AGG, role="entropy", mean_eps=0.0),), optional=True,
    ),
    PresetMetric(
        "actor/kl_loss",
        "KL from the reference by ref_kl (k3: log-ratio clamped to +-20, value to +-10); chosen aggregation",
        (
            reference_kl("k1"),
            reference_kl("abs"),
            reference_kl("k2"),
            reference_kl("k3", clamp=CLAMP, cap=10.0),
        ),
        chosen_kl,
        optional=True,
    ),
    PresetMetric(
        "critic/vf_loss", "half the larger square; chosen aggregation",
        (measure("value_error", AGG, 0.5, mean_eps=0.0),), kind="value loss",
    ),
    PresetMetric(
        "critic/vf_clipfrac", "clipped square strictly larger; token mean",
        (measure("value_clip", kind="active"),),
    ),
    PresetMetric(
        "critic/vf_explained_var", "1 - var(returns - values) / (var(returns) + 1e-5), ddof 1",
        (
            measure("difference", "token-var", a="returns", b="values", ddof=1),
            measure("column", "token-var", role="returns", ddof=1),
        ),
        explained,
        optional=True,
    ),
    *(
        PresetMetric(
            f"critic/{role}/{name}", f"{role} as stored; {name} over tokens",
            (measure("column", f"token-{name}", role=role, **options),), optional=True,
        )
        for role in ("advantages", "returns", "values")
        for name, options in {**PLAIN, "min": {}}.items()
    ),
    *(
        PresetMetric(
            f"training/rollout_probs_diff_{name}", f"|exp(old) - exp(rollout)|; {name} over tokens",
            (measure("statistic", f"token-{name}", name="tv", **options),), optional=True,
        )
        for name, options in PLAIN.items()
    ),
    PresetMetric(
        "training/rollout_probs_diff_std", "|exp(old) - exp(rollout)|; std over tokens, ddof 1",
        (measure("statistic", "token-std", name="tv", ddof=1),), optional=True,
    ),
)  # fmt: skip
AGGREGATED = ("actor/pg_loss", "actor/entropy", "actor/kl_loss", "critic/vf_loss")
NOTES = (
    "clip fractions and actor/ppo_kl: verl takes means over micro-batches of their token means",
    "with several workers verl divides by the whole batch: denominator, and loss_scale = workers",
)

VERL = Preset(
    name="verl",
    title="verl",
    version="0.9.1",
    spec={"dual_clip": 3.0, "log_ratio_clamp": CLAMP, "value_clip": 0.5, "mean_eps": EPS, "seq_eps": EPS,
          "rollout_is_clamp": CLAMP},
    metrics=(
        loss("clipped surrogate with dual clip; chosen aggregation"),
        ACTIVE,
        lower("dual-clip bound strictly chosen", "dual"),
        CLAMPED,
        *SHARED,
    ),
    more=rollout_metrics,
    aliases={NEW: ("log_prob",)},
    spoils_by_sequence=AGGREGATED,
    notes=NOTES,
)  # fmt: skip


def variant(name: str, metrics: tuple[PresetMetric, ...], *notes: str, **spec: Any) -> Preset:
    """Return another loss mode; `spec` is what differs from vanilla without dual clip."""
    settings = {**VERL.spec, "dual_clip": None, **spec}
    return replace(
        VERL,
        name=f"verl:{name}",
        spec=settings,
        metrics=(*metrics, *SHARED),
        notes=(*notes, *NOTES),
    )


def spoilt(preset: Preset) -> Preset:
    """Return a loss mode that multiplies by the mask whatever the aggregation."""
    return replace(preset, spoils=("actor/pg_loss",))


def trust_region(name: str, text: str, **spec: Any) -> Preset:
    """Return one of the two dppo modes."""
    return variant(
        name,
        (
            loss("-min(ratio, c) A log_probs inside the trust region, 0 outside; chosen aggregation"),
            clip(f"{text}; tokens without advantage by the lower bound", "dropped"),
            lower("ratio at least c inside the trust region", "capped"),
            CLAMPED,
        ),
        "c is clip_ratio_c: dppo_weight_cap",
        objective=name.replace("_", "-"), dppo_weight_cap=3.0, dppo_kl_eps=EPS, **spec,
    )  # fmt: skip


GSPO = spoilt(
    variant(
        "gspo",
        (loss("clipped surrogate of the sequence's geometric ratio; chosen aggregation"), ACTIVE, NONE, RAW),
        objective="gspo",
        gspo_token_gradient=True,
        log_ratio_clamp=None,
        log_ratio_ceiling=CEILING,
    )
)
SAPO = spoilt(
    variant(
        "sapo",
        (loss("soft gate; mean over sequences of token means"), replace(NONE, name="actor/pg_clipfrac"),
         NONE, CLAMPED),
        "loss_agg_mode has no effect: always seq-mean-token-mean",
        objective="sapo",
        agg="seq-mean-token-mean",
    )
)  # fmt: skip
GPG = variant("gpg", (loss("-A log_probs; chosen aggregation"),), objective="reinforce")
CISPO = variant(
    "cispo",
    (
        loss("-clip(ratio) A log_probs, the weight a constant; chosen aggregation"),
        clip("ratio outside the interval, whatever the advantage", "region"),
        NONE,
        CLAMPED,
    ),
    objective="cispo",
)
DRO = variant(
    "dro",
    (loss("-A log_probs + beta / 2 log_ratio^2; chosen aggregation"), RAW),
    objective="dro",
    log_ratio_clamp=None,
)
GEO_MEAN = spoilt(
    variant(
        "geo_mean",
        (
            loss(
                "geometric mean of clipped ratios times the mean advantage; mean over all stored sequences",
                measure("loss", "row-mean-token-mean"),
            ),
            clip("log-ratio outside the interval where A > 0", "positive"),
            lower("log-ratio outside the interval where A < 0", "negative"),
            RAW,
        ),
        "loss_agg_mode has no effect: always a mean over sequences, those without a token included",
        objective="gmpo",
        log_ratio_clamp=None,
    )
)
DPPO_TV = trust_region("dppo_tv", "outside of the total variation")
DPPO_KL = trust_region("dppo_kl", "outside of the binary KL")
BYPASS = replace(
    VERL,
    name="verl:bypass_mode",
    spec={**VERL.spec, "rollout_bypass": True},
    aliases={**VERL.aliases, OLD: ("rollout_log_probs",)},
    notes=(
        "the old policy is the rollout policy: give rollout_log_probs as old_log_probs",
        "loss_type ppo_clip takes no weights, though verl logs them: rollout_is is for loss_type reinforce",
        *NOTES,
    ),
)
BYPASS_REINFORCE = variant(
    "bypass_mode_reinforce",
    (loss("-w A log_probs, w the bounded ratio to the rollout policy; chosen aggregation"), RAW),
    *BYPASS.notes[:1],
    objective="reinforce", rollout_bypass=True, rollout_is="token", rollout_is_cap=2.0,
)  # fmt: skip

PRESETS = {
    one.name: one
    for one in (
        VERL, GSPO, SAPO, GPG, CISPO, DRO, GEO_MEAN, DPPO_TV, DPPO_KL, BYPASS, BYPASS_REINFORCE,
    )
}  # fmt: skip
