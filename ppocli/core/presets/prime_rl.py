"""prime-rl 0.8.0: `prime_rl.trainer.rl.loss`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.measures import AGG, Measure, PresetMetric, measure
from ppocli.core.presets import Preset

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec


def total(spec: LossSpec, policy: float, penalty: float) -> float:
    """Return policy + penalty."""
    return policy + penalty


def per_sequence(
    name: str, text: str, term: str, parity: str = "", **options: Any
) -> tuple[PresetMetric, ...]:
    """Return mean, smallest and largest over sequences of a sequence's token mean."""

    def over(statistic: str) -> Measure:
        return measure(term, f"row-{statistic}-token-mean", 1.0, **options)

    return (
        PresetMetric(f"{name}/mean", f"{text}; mean over sequences", (over("mean"),), kind=parity),
        PresetMetric(f"{name}/min", f"{text}; smallest of a sequence", (over("min"),)),
        PresetMetric(f"{name}/max", f"{text}; largest of a sequence", (over("max"),)),
    )


DROPPED = "share of tokens outside the trust region"
SIDES = (
    *per_sequence("is_masked_low", f"{DROPPED}, p too low and A < 0", "dropped", kind="low"),
    *per_sequence("is_masked_high", f"{DROPPED}, p too high and A > 0", "dropped", kind="high"),
    *per_sequence("masked_advantage_positive", "share of A > 0 among the dropped", "among", value="positive"),
    *per_sequence("masked_advantage_negative", "share of A < 0 among the dropped", "among", value="negative"),
)
COMMON = (
    PresetMetric(
        "loss",
        "-A * ratio inside the trust region + kl_tau * (new - old)^2 everywhere; token mean",
        (measure("loss", AGG), measure("log_ratio_penalty", AGG)),
        total,
        kind="loss",
    ),
    *per_sequence("is_masked", DROPPED, "dropped", "clip fraction"),
    *per_sequence("masked_mismatch_kl", "k3 over the dropped tokens", "among", where="dropped"),
    *per_sequence("unmasked_mismatch_kl", "k3 over the kept tokens", "among", where="kept"),
    PresetMetric(
        "mismatch_kl/all/mean", "k3; token mean", (measure("kl", estimator="k3"),), kind="approx KL"
    ),
)
DEFAULT = Preset(
    name="prime-rl",
    title="prime-rl",
    version="0.8.0",
    spec={"objective": "dppo-tv", "clip_low": 0.2, "clip_high": 0.2, "log_ratio_penalty": 1e-3},
    metrics=(*COMMON, *SIDES),
    aliases={
        "log_probs": ("trainer_logprobs",),
        "old_log_probs": ("inference_logprobs",),
        "mask": ("loss_mask",),
    },
    spoils=("loss",),
    notes=(
        "old_log_probs are those of the inference engine",
        "adv_tau is a factor of the advantages",
        "also logged: median and standard deviation over sequences",
    ),
)
IPO = replace(
    DEFAULT,
    name="prime-rl:ipo",
    spec={**DEFAULT.spec, "clip_low": 0.1, "clip_high": 0.1, "dppo_two_sided": True},
    metrics=COMMON,
)
PRESETS = {one.name: one for one in (DEFAULT, IPO)}
