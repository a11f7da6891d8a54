"""Values that no data can give: a saved report that was edited, or written by something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppocli.core.metrics import METRICS
from ppocli.core.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CODE = "PPO106"
ROUNDING = 1e-9
"""Means are right to 2^-47 of the mean magnitude; a fraction of 1 + 1e-9 is still 1."""

NOT_NEGATIVE = ("approx_kl_k2", "approx_kl_k3", "ref_kl_k2", "ref_kl_k3", "log_ratio_abs_mean", "value_loss")
ORDERED = (
    ("ratio_min", "ratio_mean", "ratio_max"),
    ("adv_min", "adv_mean", "adv_max"),
    ("seq_ratio_geo_min", "seq_ratio_geo", "seq_ratio_geo_max"),
    ("seq_log_ratio_min", "seq_log_ratio_mean", "seq_log_ratio_max"),
)
AT_LEAST_ONE = ("drift.mult_prob_error",)
AT_MOST_ONE = ("explained_variance", "explained_variance_old")


def impossible_findings(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return finding PPO106 as an entry of `findings`, or nothing, for a document of `eval`."""
    said = list(_impossible(document["metrics"], document.get("drift")))
    if not said:
        return []
    rule = RULES[CODE]
    more = f" and {len(said) - 3:,} more" if len(said) > 3 else ""
    message = f"{'; '.join(said[:3])}{more}"
    found = {"code": CODE, "severity": rule.severity, "count": len(said), "message": message}
    return [{**found, "advice": rule.advice}]


def _impossible(metrics: Mapping[str, Any], drift: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield what cannot be, a phrase for each metric."""
    for name, value in _numbers(metrics):
        base = name.removesuffix("_finite")
        metric = METRICS.get(base)
        if metric is not None and metric.unit == "fraction" and not -ROUNDING <= value <= 1.0 + ROUNDING:
            yield f"{name} is {value:g}, not within 0 and 1"
        elif (base in NOT_NEGATIVE or base.endswith(("_std", "_se"))) and value < 0.0:
            yield f"{name} is {value:g}, below 0"
        elif metric is not None and metric.unit == "count" and (value < 0 or value != int(value)):
            yield f"{name} is {value:g}, not a count"
        elif base in AT_MOST_ONE and value > 1.0 + ROUNDING:
            yield f"{name} is {value:g}, above 1"
    for names in ORDERED:
        low, middle, high = (metrics.get(name) for name in names)
        if low is not None and middle is not None and high is not None:
            slack = ROUNDING * max(abs(low), abs(high))
            if not low - slack <= middle <= high + slack:
                yield f"{names[1]} is {middle:g}, not within {names[0]} {low:g} and {names[2]} {high:g}"
    if drift is not None:
        for name in AT_LEAST_ONE:
            value = drift["metrics"].get(name.removeprefix("drift."))
            if value is not None and value < 1.0 - ROUNDING:
                yield f"{name} is {value:g}, below 1"


def _numbers(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the metrics that are numbers."""
    for name, value in metrics.items():
        if isinstance(value, (int, float)):
            yield name, value
