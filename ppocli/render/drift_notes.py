"""The definition of every metric of `drift` in at most forty characters, and which of them `eval` shows."""

from __future__ import annotations

NOTES: dict[str, str] = {
    "diff_mean": "mean(a - b), nats; signs cancel",
    "diff_p50": "median of a - b",
    "diff_abs_mean": "mean |a - b|, nats",
    "diff_abs_p50": "median of |a - b|",
    "diff_abs_p90": "90 % quantile",
    "diff_abs_p99": "99 % quantile",
    "diff_abs_max": "largest |a - b|",
    "diff_min": "smallest a - b",
    "diff_max": "largest a - b",
    "frac_abs_gt_0_5": "|a - b| > 0.5",
    "frac_abs_gt_1": "|a - b| > 1",
    "bit_equal_frac": "a = b exactly",
    "drift_kl_k1": "mean(b - a), nats, KL(b || a)",
    "drift_kl_k2": "mean(diff^2 / 2), nats",
    "drift_kl_k3": "mean(w - 1 - diff), nats, >= 0",
    "weight_mean": "w = exp(a - b), before any cap",
    "weight_min": "smallest w",
    "weight_max": "largest w",
    "ess_frac": "effective sample size of w / tokens",
    "band_0_999_1_002": "w in [0.999, 1.002]",
    "band_1pct": "w in [0.99, 1.01]",
    "band_5pct": "w in [0.95, 1.05]",
    "band_10pct": "w in [0.9, 1.1]",
    "tis_weight_mean": "mean min(w, tis_cap)",
    "tis_frac_capped": "w > tis_cap",
    "masked_weight_mean": "w outside the bounds counts as 0",
    "masked_frac": "w outside the bounds",
    "chi2_token": "mean(w^2) - 1",
    "mult_prob_error": "mean exp |a - b|, >= 1",
    "prob_diff_max": "largest |exp(a) - exp(b)|",
    "prob_pearson": "correlation of exp(a) and exp(b)",
    "frac_confident_gap": "|exp(a) - exp(b)| > 0.5",
    "chi2_seq": "mean of exp(2 sum diff), - 1",
    "log_ppl_diff": "mean of mean(b - a), nats",
    "ppl_ratio": "mean of exp(mean(b - a))",
    "ppl_ratio_of_means": "exp(log_ppl_diff)",
    "seq_diff_sum_min": "smallest sum of a - b, nats",
    "seq_diff_sum_max": "largest sum of a - b, nats",
}
"""The definition of every metric in at most forty characters."""

SHORT = (
    "diff_mean", "diff_abs_mean", "diff_abs_p99", "diff_abs_max", "drift_kl_k3", "weight_mean", "weight_max",
    "ess_frac",
)  # fmt: skip
"""What `eval` shows of it."""
