"""verl 0.9.1: `verl.trainer.ppo.rollout_corr_helper`, what is logged of tokens of another policy.

All of it is over the tokens before rules drop some, and over all stored sequences: one without a token counts
with a log-ratio and a weight of 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ppocli.core.measures import STORED_SEQUENCES, Measure, PresetMetric, measure, own_metric

if TYPE_CHECKING:
    from ppocli.core.rollout_rules import RejectionRule
    from ppocli.core.spec import LossSpec

EPS, CLAMP = 1e-8, 20.0
PREFIX = "rollout_corr/"


def rollout_metrics(spec: LossSpec) -> tuple[PresetMetric, ...]:
    """Return the metrics that verl logs of the correction."""
    metrics = off_policy(*spec.correction_pair)
    if spec.rollout_is != "none":
        metrics += weights(spec)
    for rule in spec.rejections:
        metrics += rejection(rule, spec)
    return metrics + (dropped() if spec.rejections else ())


def early(term: str, reduce: str = "token-mean", factor: float = 1.0, **options: Any) -> Measure:
    """Return a measure over the tokens before rules drop some."""
    return measure(term, reduce, factor, before=True, **options)


def named(name: str, text: str, *measures: Measure, combine: Any = None) -> PresetMetric:
    """Return a metric that is left out where its columns are missing."""
    return PresetMetric(PREFIX + name, text, measures, combine, optional=True)


N, ROWS = early("weight", "token-sum", power=0), own_metric(STORED_SEQUENCES)


def plus(constant: float) -> Any:
    """Return the sum with a constant."""
    return lambda spec, value: value + constant


def off_policy(old: str, rollout: str) -> tuple[PresetMetric, ...]:
    """Return perplexities by sequence, KL and chi-square between the two policies."""
    pair: dict[str, Any] = {"new": old, "old": rollout}

    def perplexity(name: str, whose: str, **x: Any) -> PresetMetric:
        one = early("over_sequence", "row-mean-token-max", then="expm1", **x)
        return named(name, f"exp(mean of {whose}); mean over sequences", one, combine=plus(1.0))

    def mean(name: str, text: str, reduce: str, **x: Any) -> PresetMetric:
        over = reduce.split("-")[1]
        return named(name, f"{text}; {over} over sequences", early("over_sequence", reduce, **x))

    one_old: dict[str, Any] = {"new": old, "old": None}
    one_rollout: dict[str, Any] = {"new": rollout, "old": None}
    difference = "rollout - old log-probs, mean over tokens"
    return (
        perplexity("training_ppl", "-old log-probs", times=-1.0, **one_old),
        mean("training_log_ppl", "-old log-probs, mean over tokens", "row-mean-token-max",
             times=-1.0, **one_old),
        named("kl", "k1 of old - rollout; token mean", early("kl", **pair)),
        named("k3_kl", "k3 of old - rollout; token mean", early("kl", estimator="k3", **pair)),
        perplexity("rollout_ppl", "-rollout log-probs", times=-1.0, **one_rollout),
        mean("rollout_log_ppl", "-rollout log-probs, mean over tokens", "row-mean-token-max",
             times=-1.0, **one_rollout),
        mean("log_ppl_diff", difference, "row-mean-token-max", times=-1.0, **pair),
        mean("log_ppl_abs_diff", f"|{difference}|", "row-mean-token-max", then="abs", **pair),
        mean("log_ppl_diff_max", difference, "row-max-token-max", times=-1.0, **pair),
        mean("log_ppl_diff_min", difference, "row-min-token-max", times=-1.0, **pair),
        perplexity("ppl_ratio", "rollout - old log-probs", times=-1.0, **pair),
        named("chi2_token", "squared ratio, log-ratio clamped to +-20; token mean, less 1",
              early("ratio", clamp=CLAMP, power=2, **pair), combine=plus(-1.0)),
        named("chi2_seq", "squared product of ratios, its log clamped to +-20; mean over sequences, less 1",
              early("over_sequence", "row-mean-token-max", level="sequence", clamp=CLAMP, times=2.0,
                    then="expm1", **pair)),
    )  # fmt: skip


def deviation(spec: LossSpec, mean: float, square: float, n: float) -> float:
    """Return the square root of the mean square less the squared mean; 0 for one token."""
    return math.sqrt(max(square - mean * mean, 0.0)) if n > 1 else 0.0


def sample_deviation(spec: LossSpec, deviation: float, rows: float) -> float:
    """Return the deviation; 0 for one sequence."""
    return deviation if rows != 1 else 0.0


def effective(spec: LossSpec, mean: float, square: float) -> float:
    """Return 1 / mean((w / mean w)^2)."""
    return (mean + EPS) ** 2 / square if square else math.nan


def farthest(spec: LossSpec, low: float, high: float) -> float:
    """Return the larger distance from 1."""
    return max(high - 1.0, 1.0 - low)


def total(spec: LossSpec, low: float, high: float) -> float:
    """Return the sum of two shares."""
    return low + high


def held_exp(spec: LossSpec, value: float) -> float:
    """Return exp, its argument at most 20."""
    return math.exp(min(value, CLAMP))


def weights(spec: LossSpec) -> tuple[PresetMetric, ...]:
    """Return the statistics of the weights: of the bounded ones, but where "raw" is said."""
    applied, square = early("weight"), early("weight", power=2)
    if spec.rollout_is == "token":
        edges = tuple(
            named(f"rollout_is_{edge}", f"{edge} over tokens", early("weight", f"token-{edge}"))
            for edge in ("max", "min")
        )
        over, who = "token-mean", "token mean"
    else:
        new, old = spec.correction_pair
        edges = tuple(
            named(f"rollout_is_{edge}", f"raw; {edge} over sequences",
                  early("over_sequence", f"row-{edge}-token-max", level="sequence", new=new, old=old),
                  combine=held_exp)
            for edge in ("max", "min")
        )  # fmt: skip
        over, who = "row-mean-token-max", "mean over sequences"
    by_sequence = {edge: early("weight", f"row-{edge}-token-mean") for edge in ("mean", "max", "min")}
    oob = named("rollout_is_oob_ratio", "raw weight outside the bounds; token mean",
                early("weight", kind="low"), early("weight", kind="high"), combine=total)  # fmt: skip
    return (
        named("rollout_is_mean", "token mean", applied),
        *edges,
        named("rollout_is_ratio_fraction_high", f"raw weight above the cap; {who}",
              early("weight", over, kind="high")),
        named("rollout_is_ratio_fraction_low",
              f"raw weight below the lower bound, or below 1 / cap without one; {who}",
              early("weight", over, kind="under")),
        named("rollout_is_std", "over tokens, ddof 0", applied, square, N, combine=deviation),
        named("rollout_is_eff_sample_size", "1 / mean((w / mean w)^2)", applied, square, combine=effective),
        *(named(f"rollout_is_seq_{edge}", f"token mean of a sequence; {edge} over sequences", one)
          for edge, one in by_sequence.items()),
        named("rollout_is_seq_std", "token mean of a sequence; std over sequences, ddof 1",
              early("weight", "row-std-token-mean", ddof=1), ROWS, combine=sample_deviation),
        named("rollout_is_seq_max_deviation", "token mean of a sequence; largest distance from 1",
              by_sequence["min"], by_sequence["max"], combine=farthest),
        named("rollout_is_seq_fraction_high", "token mean of raw weights above the cap; mean over sequences",
              early("weight", "row-mean-token-max", kind="mean_high")),
        named("rollout_is_seq_fraction_low", "token mean of raw weights below; mean over sequences",
              early("weight", "row-mean-token-max", -1.0, kind="mean_reached"), combine=plus(1.0)),
        *((oob,) if spec.rollout_is_low is not None else ()),
        named("rollout_is_batch_norm_factor", "what rollout_is_batch_normalize divides weights and loss by",
              applied if spec.rollout_is == "token" else early("weight", "seq-mean-token-mean")),
    )  # fmt: skip


def rejection(rule: RejectionRule, spec: LossSpec) -> tuple[PresetMetric, ...]:
    """Return the statistics of one rule; of its logarithm where it is about a ratio."""
    by_token = rule.level == "token"

    def one(part: str, reduce: str, **options: Any) -> Measure:
        return early("rule", reduce, name=rule.name, part=part, **options)

    def put(name: str, text: str, *measures: Measure, combine: Any = None) -> PresetMetric:
        return named(f"rollout_rs_{rule.name}_{name}", text, *measures, combine=combine)

    over, across = ("token", "token") if by_token else ("sequence", "seq")
    own = "" if by_token else "-token-max"
    mean = "mean" if by_token else "max"
    held = one("held", "token-mean"), one("held", "token-mean", power=2)
    by_sequence = {edge: one("value", f"seq-{edge}-token-{mean}") for edge in ("mean", "max", "min")}
    return (
        put("mean", "token mean", one("value", "token-mean")),
        put("max", f"largest over {over}s", one("value", f"{across}-max{own}")),
        put("min", f"smallest over {over}s", one("value", f"{across}-min{own}")),
        put("fraction_high", f"above the bound; mean over {over}s", one("high", f"{across}-mean{own}")),
        put("fraction_low", f"below the bound; mean over {over}s", one("low", f"{across}-mean{own}")),
        put("std", "values held within the bounds; over tokens, ddof 0", *held, N, combine=deviation),
        *(put(f"seq_{edge}", f"by sequence; {edge} over sequences", by) for edge, by in by_sequence.items()),
        put("seq_std", "by sequence; std, ddof 1", one("value", f"seq-std-token-{mean}", ddof=1),
            early("weight", "seq-sum-token-max", power=0), combine=sample_deviation),
        put("seq_max_deviation", "by sequence; largest size",
            by_sequence["min"], by_sequence["max"], combine=lambda spec, low, high: max(-low, high)),
        put("seq_fraction_high", "by sequence; above the bound", one("mean_high", "seq-mean-token-max")),
        *((put("seq_fraction_low", "by sequence; below the bound", one("mean_low", "seq-mean-token-max")),)
          if rule.statistic == "k1" else ()),
        put("masked_fraction", "not allowed by this rule; token mean", one("out", "token-mean")),
        put("seq_masked_fraction", "with a token that this rule does not allow; mean over sequences",
            one("out", "seq-mean-token-max")),
    )  # fmt: skip


def dropped() -> tuple[PresetMetric, ...]:
    """Return what all rules together drop."""
    return (
        named("rollout_rs_masked_fraction", "not allowed by some rule; token mean", early("rejected")),
        named("rollout_rs_seq_masked_fraction",
              "with a token that some rule does not allow; mean over stored sequences",
              early("rejected", "row-mean-token-max")),
    )  # fmt: skip
