"""The catalogue of what an audit reports for a format: the single source of names, definitions and units."""

from __future__ import annotations

from dataclasses import dataclass

STORAGE, ARITHMETIC = "storage", "arithmetic"
QUESTIONS: dict[str, str] = {
    STORAGE: "log-probs rounded to the format, everything else in float64",
    ARITHMETIC: "every step of the loss rounded to the format",
}
BOTH = (STORAGE, ARITHMETIC)


@dataclass(frozen=True, slots=True)
class AuditMetric:
    """One number about a format.

    Attributes
    ----------
    name, text, unit : str
        As in `ppocli.core.metrics.Metric`.
    questions : tuple of str
        Under which questions it is reported.
    """

    name: str
    text: str
    unit: str
    questions: tuple[str, ...] = BOTH


AUDIT_METRICS: dict[str, AuditMetric] = {
    one.name: one
    for one in (
        AuditMetric("policy_loss", "token mean of the loss in the format", ""),
        AuditMetric("policy_loss_error", "policy_loss minus that in float64", ""),
        AuditMetric("policy_loss_rel_error", "|policy_loss_error| / |policy_loss in float64|", "fraction"),
        AuditMetric(
            "policy_loss_scaled_error",
            "|policy_loss_error| / mean |token loss|: what --loss-tolerance bounds",
            "fraction",
        ),
        AuditMetric(
            "policy_loss_of_rounded_sums",
            "sum of the losses and number of tokens rounded to the format before they are divided",
            "",
            (ARITHMETIC,),
        ),
        AuditMetric(
            "rounded_sums_scaled_error",
            "|policy_loss_of_rounded_sums - policy_loss in float64| / mean |token loss|",
            "fraction",
            (ARITHMETIC,),
        ),
        *(
            part
            for k, text in (
                ("approx_kl_k1", "mean(-log_ratio)"),
                ("approx_kl_k2", "mean(log_ratio^2 / 2)"),
                ("approx_kl_k3", "mean(ratio - 1 - log_ratio)"),
            )
            for part in (
                AuditMetric(k, f"{text} in the format", "nats"),
                AuditMetric(f"{k}_error", f"{k} minus that in float64", "nats"),
            )
        ),
        AuditMetric("clip_frac", "ratio outside the interval", "fraction"),
        AuditMetric("clip_frac_error", "clip_frac minus that in float64", "fraction"),
        AuditMetric("clip_frac_active", "clipped branch strictly chosen", "fraction"),
        AuditMetric("clip_frac_active_error", "clip_frac_active minus that in float64", "fraction"),
        AuditMetric("ess_frac", "(sum ratio)^2 / (n * sum ratio^2), of the format's ratios", "fraction"),
        AuditMetric("ess_frac_error", "ess_frac minus that in float64", "fraction"),
        AuditMetric("ratio_mean", "mean of the format's ratios, added up in float64", "ratio"),
        AuditMetric("ratio_min", "smallest ratio", "ratio"),
        AuditMetric("ratio_max", "largest ratio", "ratio"),
        AuditMetric("ratio_error_max", "largest |ratio - that in float64| / that in float64", "fraction"),
        AuditMetric("log_ratio_error_max", "largest |log_ratio - that in float64|", "nats"),
        AuditMetric("clip_flips", "tokens whose active-clip decision is not that of float64", "count"),
        AuditMetric("clip_flips_on", "of these, clipped in the format only", "count"),
        AuditMetric("clip_flips_off", "of these, clipped in float64 only", "count"),
        AuditMetric("ratio_overflow", "ratios that are finite in float64 and not in the format", "count"),
        AuditMetric("ratio_underflow", "ratios that become 0", "count"),
        AuditMetric("zero_log_ratio_frac", "log_ratio exactly 0", "fraction"),
        AuditMetric(
            "rounded_to_zero_frac",
            "log_ratio exactly 0 that is not 0 in float64, over all tokens",
            "fraction",
        ),
        AuditMetric("grad_abs_mean", "mean |d loss / d log_probs| before aggregation", ""),
        AuditMetric("grad_error", "sum |gradient - that in float64| / sum |that in float64|", "fraction"),
        AuditMetric("grad_vanished", "tokens whose gradient becomes 0", "count"),
        AuditMetric("grad_appeared", "tokens whose gradient is 0 in float64 only", "count"),
        AuditMetric("grad_reversed", "tokens whose gradient changes sign", "count"),
        AuditMetric("step_p50", "the format's step at the median of |log_probs|", "nats", (STORAGE,)),
        AuditMetric("step_p99", "the format's step at the 99 % quantile of |log_probs|", "nats", (STORAGE,)),
        AuditMetric(
            "below_step_frac",
            "0 < |log_ratio| < half of step_p50: drift that such a step can hide, over all tokens",
            "fraction",
            (STORAGE,),
        ),
    )
}
"""Every number by name, in the order in which the document lists them."""


def metrics_of(question: str) -> tuple[AuditMetric, ...]:
    """Return what is reported under a question."""
    return tuple(one for one in AUDIT_METRICS.values() if question in one.questions)
