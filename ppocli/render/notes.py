"""The definition of every metric in at most forty characters: the note column of the tables.

The full wording is in `ppocli.core.metrics`. `{region}`, `{below}` and `{above}` stand for what the objective
clips, `{agg}` for the chosen aggregation.
"""

from __future__ import annotations

from collections.abc import Mapping

from ppocli.core.formats import FORMATS

METRIC_NOTES: dict[str, str] = {
    "policy_loss": "{agg}, to be minimised",
    "policy_loss_se": "standard error of the token mean",
    "policy_loss_by_agg": "the same loss with each aggregation",
    "policy_loss_micro_batch_mean": "mean of the micro-batches' token means",
    "unclipped_loss": "mean(-ratio * advantage)",
    "clip_frac": "{region}",
    "clip_frac_low": "{below}",
    "clip_frac_high": "{above}",
    "clip_frac_active": "clipped branch chosen: gradient cut",
    "clip_frac_active_low": "{below} and advantage < 0",
    "clip_frac_active_high": "{above} and advantage > 0",
    "dual_clip_frac": "dual-clip bound chosen, advantage < 0",
    "delta_clip_frac": "ratio > delta and advantage < 0",
    "grad_abs_mean": "mean |d loss / d log_probs|, per token",
    "grad_zero_frac": "gradient exactly 0",
    "total_loss": "policy + value - entropy + KL terms",
    "approx_kl_k1": "mean(-log_ratio), nats, KL(old || new)",
    "approx_kl_k1_se": "standard error of approx_kl_k1, nats",
    "approx_kl_k2": "mean(log_ratio^2 / 2), nats",
    "approx_kl_k3": "mean(ratio - 1 - log_ratio), nats, >= 0",
    "ratio_mean": "ratio = exp(log_probs - old_log_probs)",
    "ratio_std": "standard deviation, ddof 0",
    "ratio_min": "smallest ratio",
    "ratio_max": "largest ratio",
    "ratio_p01": "1 % of the ratios are at most this",
    "ratio_p05": "5 % quantile",
    "ratio_p50": "median",
    "ratio_p95": "95 % quantile",
    "ratio_p99": "99 % quantile",
    "log_ratio_abs_mean": "mean |log_ratio|, nats",
    "log_ratio_abs_max": "largest |log_ratio|, nats",
    "zero_log_ratio_frac": "log_ratio exactly 0",
    "log_ratio_beyond_20": "tokens with |log_ratio| > 20",
    "log_ratio_on_bound": "tokens exactly on +-10 or +-20: a clamp?",
    "n_log_ratio_clamped": "tokens that --log-ratio-clamp changed",
    "ess_frac": "effective sample size / tokens",
    "seq_ratio_geo": "mean of exp(mean log_ratio)",
    "seq_ratio_geo_min": "smallest exp(mean log_ratio)",
    "seq_ratio_geo_max": "largest exp(mean log_ratio)",
    "seq_ratio_product": "mean of exp(sum log_ratio)",
    "seq_log_ratio_mean": "mean of sum log_ratio, nats",
    "seq_log_ratio_min": "smallest sum log_ratio, nats",
    "seq_log_ratio_max": "largest sum log_ratio, nats",
    "seq_clip_frac": "exp(mean log_ratio) outside the interval",
    "adv_mean": "advantages as stored",
    "adv_std": "standard deviation, ddof {ddof}",
    "adv_min": "smallest advantage",
    "adv_max": "largest advantage",
    "zero_advantage_frac": "advantage exactly 0",
    "zero_variance_group_frac": "groups with all advantages equal",
    "reward_mean": "rewards as stored",
    "reward_std": "standard deviation, ddof 0",
    "return_mean": "returns as stored",
    "return_std": "standard deviation, ddof 0",
    "value_loss": "mean squared error, no factor",
    "value_clip_frac": "|values - old_values| > --value-clip",
    "value_clip_frac_active": "clipped error strictly the larger",
    "explained_variance": "1 - var(returns - value) / var(returns)",
    "explained_variance_old": "the same with old_values",
    "entropy_mean": "mean of the entropy column, nats",
    "entropy_estimate": "mean(-log_probs), nats",
    "ref_kl_k1": "mean(x), x = log_probs - ref_log_probs",
    "ref_kl_k2": "mean(x^2 / 2), nats",
    "ref_kl_k3": "mean(exp(-x) - 1 + x), nats, >= 0",
    "policy_loss_uncorrected": "the same loss without the correction",
    "rollout_rejected_frac": "tokens that --rollout-rs drops",
    "rollout_weight_raw_mean": "weight before its bounds: mean",
    "rollout_weight_raw_min": "weight before its bounds: smallest",
    "rollout_weight_raw_max": "weight before its bounds: largest",
    "rollout_weight_mean": "weight on the loss: mean",
    "rollout_weight_min": "weight on the loss: smallest",
    "rollout_weight_max": "weight on the loss: largest",
    "rollout_weight_capped_frac": "weights above --rollout-is-cap",
    "rollout_weight_low_frac": "weights below rollout_is_low",
    "rollout_weight_ess_frac": "effective sample size / tokens",
    "n_rows": "rows stored",
    "n_tokens": "valid tokens",
    "n_masked": "masked tokens",
    "n_sequences": "sequences with a valid token",
    "n_groups": "groups with a valid token",
    "n_files": "files read",
    "n_null": "nulls at valid tokens",
    "n_nan": "NaN at valid tokens",
    "n_posinf": "+inf at valid tokens",
    "n_neginf": "-inf at valid tokens",
    "n_positive_log_probs": "log-probs above 0",
}

AGGREGATION_NOTES: dict[str, str] = {
    "token-mean": "sum over tokens / tokens",
    "seq-mean-token-mean": "mean over sequences of the token mean",
    "seq-mean-token-sum": "mean over sequences of the token sum",
    "seq-mean-token-sum-norm": "the same / horizon",
    "token-sum": "sum over tokens",
    "group-mean": "mean over groups of the token mean",
}


METRIC_NOTES |= {
    f"overflow_{one.name}": f"tokens, log_ratio > {one.overflow_log:.2f}" for one in FORMATS.values()
}
METRIC_NOTES |= {
    f"underflow_{one.name}": f"tokens, log_ratio < {one.underflow_log:.2f}" for one in FORMATS.values()
}


def note_of(name: str, words: Mapping[str, str]) -> str:
    """Return the note of a metric with the clip interval, the aggregation and the ddof filled in."""
    return METRIC_NOTES[name].format_map(words)
