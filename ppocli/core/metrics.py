"""The catalogue of metrics: the single source of their names, definitions, units and needs.

Tables, the JSON Schema and the README's list are made from it or tested against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Section = Literal[
    "objective", "ratio", "sequence", "data", "value", "reference", "correction", "format", "count", "drift"
]

_POLICY = ("log_probs", "old_log_probs", "advantages")
_RATIO = ("log_probs", "old_log_probs")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes
    ----------
    name : str
        The key in `metrics`.
    text : str
        Its definition in one line; over valid tokens unless it says otherwise.
    unit : str
        "nats", "fraction", "ratio", "count" or "" for the unit of the column.
    needs : tuple of str
        Roles whose columns it is computed from. Without one of them the metric is not reported.
    section : str
        The table it stands in.
    sequences : bool
        True if it is taken over sequences, and so only reported where the input has sequences.
    """

    name: str
    text: str
    unit: str
    needs: tuple[str, ...]
    section: Section
    sequences: bool = False


def _catalogue() -> tuple[Metric, ...]:
    m = Metric
    out = [
        m(
            "policy_loss",
            "the objective to be minimised, with the chosen aggregation",
            "",
            _POLICY,
            "objective",
        ),
        m("policy_loss_se", "standard error of the token mean of the loss", "", _POLICY, "objective"),
        m("policy_loss_by_agg", "the objective with each aggregation", "", _POLICY, "objective"),
        m(
            "policy_loss_micro_batch_mean",
            "mean over micro-batches of micro_batch stored rows of the token mean of the loss",
            "",
            _POLICY,
            "objective",
        ),
        m("unclipped_loss", "mean(-ratio * advantage)", "", _POLICY, "objective"),
        m(
            "clip_frac",
            "ratio strictly outside [1 - clip_low, 1 + clip_high], any sign of the advantage",
            "fraction",
            _RATIO,
            "objective",
        ),
        m("clip_frac_low", "ratio below 1 - clip_low", "fraction", _RATIO, "objective"),
        m("clip_frac_high", "ratio above 1 + clip_high", "fraction", _RATIO, "objective"),
        m(
            "clip_frac_active",
            "clipped branch strictly chosen: the gradient is cut",
            "fraction",
            _POLICY,
            "objective",
        ),
        m(
            "clip_frac_active_low",
            "ratio below 1 - clip_low and advantage < 0",
            "fraction",
            _POLICY,
            "objective",
        ),
        m(
            "clip_frac_active_high",
            "ratio above 1 + clip_high and advantage > 0",
            "fraction",
            _POLICY,
            "objective",
        ),
        m(
            "dual_clip_frac",
            "advantage < 0 and the dual-clip bound strictly chosen",
            "fraction",
            _POLICY,
            "objective",
        ),
        m("delta_clip_frac", "ratio above delta and advantage < 0", "fraction", _POLICY, "objective"),
        m("grad_abs_mean", "mean |d loss / d log_probs| before aggregation", "", _POLICY, "objective"),
        m("grad_zero_frac", "tokens whose gradient is exactly 0", "fraction", _POLICY, "objective"),
        m(
            "total_loss",
            "policy_loss + vf_coef * value_loss - ent_coef * entropy_mean + kl_coef * ref_kl_k3",
            "",
            _POLICY,
            "objective",
        ),
        m("approx_kl_k1", "mean(-log_ratio), estimates KL(old || new)", "nats", _RATIO, "ratio"),
        m("approx_kl_k1_se", "standard error of approx_kl_k1", "nats", _RATIO, "ratio"),
        m("approx_kl_k2", "mean(log_ratio^2 / 2), estimates KL(old || new)", "nats", _RATIO, "ratio"),
        m(
            "approx_kl_k3",
            "mean(expm1(log_ratio) - log_ratio), estimates KL(old || new), never negative",
            "nats",
            _RATIO,
            "ratio",
        ),
        m("ratio_mean", "mean of exp(log_probs - old_log_probs)", "ratio", _RATIO, "ratio"),
        m("ratio_std", "standard deviation of the ratio, ddof 0", "ratio", _RATIO, "ratio"),
        m("ratio_min", "smallest ratio", "ratio", _RATIO, "ratio"),
        m("ratio_max", "largest ratio", "ratio", _RATIO, "ratio"),
    ]
    out += [
        m(f"ratio_p{q:02d}", f"{q} % quantile of the ratio, right to 0.4 %", "ratio", _RATIO, "ratio")
        for q in (1, 5, 50, 95, 99)
    ]
    out += [
        m("log_ratio_abs_mean", "mean |log_ratio|", "nats", _RATIO, "ratio"),
        m("log_ratio_abs_max", "largest |log_ratio|", "nats", _RATIO, "ratio"),
        m("zero_log_ratio_frac", "log_ratio exactly 0", "fraction", _RATIO, "ratio"),
        m("log_ratio_beyond_20", "|log_ratio| > 20", "count", _RATIO, "ratio"),
        m(
            "log_ratio_on_bound",
            "log_ratio exactly +-10 or +-20, where trainers clamp",
            "count",
            _RATIO,
            "ratio",
        ),
        m("n_log_ratio_clamped", "tokens that log_ratio_clamp changed", "count", _RATIO, "ratio"),
        m("ess_frac", "(sum ratio)^2 / (n * sum ratio^2)", "fraction", _RATIO, "ratio"),
        m("seq_ratio_geo", "mean over sequences of exp(mean log_ratio)", "ratio", _RATIO, "sequence", True),
        m("seq_ratio_geo_min", "smallest exp(mean log_ratio)", "ratio", _RATIO, "sequence", True),
        m("seq_ratio_geo_max", "largest exp(mean log_ratio)", "ratio", _RATIO, "sequence", True),
        m(
            "seq_ratio_product",
            "mean over sequences of exp(sum log_ratio)",
            "ratio",
            _RATIO,
            "sequence",
            True,
        ),
        m("seq_log_ratio_mean", "mean over sequences of sum log_ratio", "nats", _RATIO, "sequence", True),
        m("seq_log_ratio_min", "smallest sum log_ratio", "nats", _RATIO, "sequence", True),
        m("seq_log_ratio_max", "largest sum log_ratio", "nats", _RATIO, "sequence", True),
        m(
            "seq_clip_frac",
            "sequences whose exp(mean log_ratio) is strictly outside the interval",
            "fraction",
            _RATIO,
            "sequence",
            True,
        ),
        m("adv_mean", "mean of the advantages as stored", "", ("advantages",), "data"),
        m(
            "adv_std",
            "standard deviation of the advantages as stored, ddof as in adv_norm_ddof",
            "",
            ("advantages",),
            "data",
        ),
        m("adv_min", "smallest advantage as stored", "", ("advantages",), "data"),
        m("adv_max", "largest advantage as stored", "", ("advantages",), "data"),
        m("zero_advantage_frac", "advantage exactly 0", "fraction", ("advantages",), "data"),
        m(
            "zero_variance_group_frac",
            "groups whose advantages are all equal",
            "fraction",
            ("advantages", "group_id"),
            "data",
        ),
        m("reward_mean", "mean reward", "", ("rewards",), "data"),
        m("reward_std", "standard deviation of the rewards, ddof 0", "", ("rewards",), "data"),
        m("return_mean", "mean return", "", ("returns",), "data"),
        m("return_std", "standard deviation of the returns, ddof 0", "", ("returns",), "data"),
        m(
            "value_loss",
            "mean (values - returns)^2; with value_clip the larger of that and the clipped square; no factor",
            "",
            ("values", "returns"),
            "value",
        ),
        m(
            "value_clip_frac",
            "|values - old_values| > value_clip",
            "fraction",
            ("values", "old_values", "returns"),
            "value",
        ),
        m(
            "value_clip_frac_active",
            "clipped square strictly larger",
            "fraction",
            ("values", "old_values", "returns"),
            "value",
        ),
        m(
            "explained_variance",
            "1 - var(returns - values) / var(returns), ddof 0; old_values where there are no values",
            "",
            ("returns",),
            "value",
        ),
        m(
            "explained_variance_old",
            "1 - var(returns - old_values) / var(returns), ddof 0",
            "",
            ("returns", "old_values"),
            "value",
        ),
        m("entropy_mean", "mean of the entropy column", "nats", ("entropy",), "reference"),
        m("entropy_estimate", "mean(-log_probs)", "nats", ("log_probs",), "reference"),
        m(
            "ref_kl_k1",
            "mean(x), x = log_probs - ref_log_probs, estimates KL(new || ref)",
            "nats",
            ("log_probs", "ref_log_probs"),
            "reference",
        ),
        m("ref_kl_k2", "mean(x^2 / 2)", "nats", ("log_probs", "ref_log_probs"), "reference"),
        m(
            "ref_kl_k3",
            "mean(expm1(-x) + x), never negative",
            "nats",
            ("log_probs", "ref_log_probs"),
            "reference",
        ),
    ]
    rollout = ("old_log_probs", "rollout_log_probs")
    out += [
        m(
            "policy_loss_uncorrected",
            "the objective without the correction against the rollout policy",
            "",
            (*_POLICY, "rollout_log_probs"),
            "correction",
        ),
        m("rollout_rejected_frac", "valid tokens that rollout_rs drops", "fraction", rollout, "correction"),
        m("rollout_weight_raw_mean", "mean weight before its bounds", "ratio", rollout, "correction"),
        m("rollout_weight_raw_min", "smallest weight before its bounds", "ratio", rollout, "correction"),
        m("rollout_weight_raw_max", "largest weight before its bounds", "ratio", rollout, "correction"),
        m("rollout_weight_mean", "mean weight that multiplies the loss", "ratio", rollout, "correction"),
        m("rollout_weight_min", "smallest weight that multiplies the loss", "ratio", rollout, "correction"),
        m("rollout_weight_max", "largest weight that multiplies the loss", "ratio", rollout, "correction"),
        m("rollout_weight_capped_frac", "weights above rollout_is_cap", "fraction", rollout, "correction"),
        m("rollout_weight_low_frac", "weights below rollout_is_low", "fraction", rollout, "correction"),
        m(
            "rollout_weight_ess_frac",
            "(sum weight)^2 / (n * sum weight^2) of the weights that multiply the loss",
            "fraction",
            rollout,
            "correction",
        ),
    ]
    for kind, what in (("overflow", "overflows"), ("underflow", "becomes 0 in")):
        out += [
            m(f"{kind}_{name}", f"tokens whose exp(log_ratio) {what} {name}", "count", _RATIO, "format")
            for name in ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
        ]
    out += [
        m("n_rows", "rows stored", "count", (), "count"),
        m("n_tokens", "valid tokens", "count", (), "count"),
        m("n_masked", "masked tokens", "count", (), "count"),
        m("n_sequences", "sequences with a valid token", "count", (), "count", True),
        m("n_groups", "groups with a valid token", "count", ("group_id",), "count"),
        m("n_files", "files read", "count", (), "count"),
        m("n_null", "nulls at valid tokens, over the columns used", "count", (), "count"),
        m("n_nan", "NaN at valid tokens, over the columns used", "count", (), "count"),
        m("n_posinf", "+inf at valid tokens, over the columns used", "count", (), "count"),
        m("n_neginf", "-inf at valid tokens, over the columns used", "count", (), "count"),
        m(
            "n_positive_log_probs",
            "log-probs above 0 at valid tokens, over the log-prob columns",
            "count",
            (),
            "count",
        ),
    ]
    return tuple(out)


METRICS: dict[str, Metric] = {metric.name: metric for metric in _catalogue()}
"""Every metric by name, in the order in which the document lists them."""
