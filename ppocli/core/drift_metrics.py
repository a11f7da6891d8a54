"""The catalogue of what `drift` reports, and the corrections that it tries.

a and b are two log-probs of a token, by default the trainer's and the sampler's; diff = a - b, w = exp(diff).
"""

from __future__ import annotations

from ppocli.core.drift_partials import BANDS
from ppocli.core.metrics import Metric
from ppocli.core.rollout_rules import WeightRule

_BAND_NAMES = ("band_0_999_1_002", "band_1pct", "band_5pct", "band_10pct")


def _catalogue() -> tuple[Metric, ...]:
    def m(name: str, text: str, unit: str, sequences: bool = False) -> Metric:
        return Metric(name, text, unit, ("a", "b"), "drift", sequences)

    def counted(name: str, text: str, sequences: bool = False) -> Metric:
        return Metric(name, text, "count", (), "count", sequences)

    bands = [
        m(name, f"tokens with {low:g} <= w <= {high:g}", "fraction")
        for name, (low, high) in zip(_BAND_NAMES, BANDS, strict=True)
    ]
    return (
        m("diff_mean", "mean(a - b); terms of both signs cancel", "nats"),
        m("diff_p50", "median of a - b", "nats"),
        m("diff_abs_mean", "mean |a - b|", "nats"),
        m("diff_abs_p50", "median of |a - b|", "nats"),
        m("diff_abs_p90", "90 % quantile of |a - b|", "nats"),
        m("diff_abs_p99", "99 % quantile of |a - b|", "nats"),
        m("diff_abs_max", "largest |a - b|", "nats"),
        m("diff_min", "smallest a - b", "nats"),
        m("diff_max", "largest a - b", "nats"),
        m("frac_abs_gt_0_5", "tokens with |a - b| > 0.5", "fraction"),
        m("frac_abs_gt_1", "tokens with |a - b| > 1", "fraction"),
        m("bit_equal_frac", "tokens with a = b exactly", "fraction"),
        m("drift_kl_k1", "mean(b - a), estimates KL(b || a)", "nats"),
        m("drift_kl_k2", "mean(diff^2 / 2), estimates KL(b || a)", "nats"),
        m("drift_kl_k3", "mean(expm1(diff) - diff), estimates KL(b || a), never negative", "nats"),
        m("weight_mean", "mean(w), w = exp(a - b), before any cap", "ratio"),
        m("weight_min", "smallest w", "ratio"),
        m("weight_max", "largest w", "ratio"),
        m("ess_frac", "(sum w)^2 / (n sum w^2)", "fraction"),
        *bands,
        m("tis_weight_mean", "mean of min(w, tis_cap)", "ratio"),
        m("tis_frac_capped", "tokens with w > tis_cap", "fraction"),
        m("masked_weight_mean", "mean of w inside [mask_low, mask_high], 0 outside", "ratio"),
        m("masked_frac", "tokens with w outside [mask_low, mask_high]", "fraction"),
        m("chi2_token", "mean(w^2) - 1", ""),
        m("mult_prob_error", "mean exp |a - b|, at least 1", "ratio"),
        m("prob_diff_max", "largest |exp(a) - exp(b)|", ""),
        m("prob_pearson", "correlation of exp(a) and exp(b); null where one of them is constant", ""),
        m("frac_confident_gap", "tokens with |exp(a) - exp(b)| > 0.5: one side is sure, the other is not",
          "fraction"),
        m("chi2_seq", "mean over sequences of exp(2 sum diff) - 1", "", True),
        m("log_ppl_diff", "mean over sequences of mean(b - a)", "nats", True),
        m("ppl_ratio", "mean over sequences of exp(mean(b - a))", "ratio", True),
        m("ppl_ratio_of_means", "exp(log_ppl_diff)", "ratio", True),
        m("seq_diff_sum_min", "smallest sum of a - b over a sequence", "nats", True),
        m("seq_diff_sum_max", "largest sum of a - b over a sequence", "nats", True),
        counted("n_rows", "rows stored"),
        counted("n_tokens", "valid tokens"),
        counted("n_masked", "masked tokens"),
        counted("n_sequences", "sequences with a valid token", True),
        counted("n_files", "files read"),
        counted("n_null", "nulls at valid tokens, over both columns"),
        counted("n_nan", "NaN at valid tokens, over both columns"),
        counted("n_posinf", "+inf at valid tokens, over both columns"),
        counted("n_neginf", "-inf at valid tokens, over both columns"),
    )  # fmt: skip


DRIFT_METRICS: dict[str, Metric] = {metric.name: metric for metric in _catalogue()}
"""Every metric of `drift` by name, in the order in which the document lists them."""

BAND_METRICS = _BAND_NAMES

REAL_METRICS = (
    "diff_mean", "diff_p50", "diff_abs_mean", "diff_abs_p50", "diff_abs_p90", "diff_abs_p99", "diff_abs_max",
    "diff_min", "diff_max", "frac_abs_gt_0_5", "frac_abs_gt_1", "bit_equal_frac",
)  # fmt: skip
"""Those that make sense for columns that are not log-probs, such as values."""

CORRECTIONS: tuple[WeightRule, ...] = (
    WeightRule("token", cap=2.0),
    WeightRule("token", low=0.5, cap=2.0, mode="mask"),
    WeightRule("token", low=0.5, cap=5.0, mode="mask"),
    WeightRule("sequence", cap=2.0),
    WeightRule("sequence", low=0.5, cap=2.0, mode="mask"),
    WeightRule("geometric", low=0.99, cap=1.01, mode="mask"),
    WeightRule("geometric", low=0.999, cap=1.002, mode="mask"),
)
"""The corrections that are tried: levels, modes and bounds that trainers have as defaults or recommend."""
