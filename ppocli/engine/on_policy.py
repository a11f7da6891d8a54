"""Data that should be on policy: is every ratio 1, and if not, what is the likely cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppocli.core.gate import ON_POLICY_METRIC
from ppocli.core.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Mapping

CODE = "PPO302"
ROUNDING = 1e-5
"""Mean |log_ratio| up to which float32 arithmetic in another order explains it."""
NOISE = 0.03
"""Mean |log_ratio| up to which bfloat16 forward passes explain it."""
ONE_SIDED = 0.8
"""Share of the mean |log_ratio| that is left when signs are kept: above it, the shift has one direction."""


def on_policy_finding(document: Mapping[str, Any], tolerance: float) -> list[dict[str, Any]]:
    """Return finding PPO302 as an entry of `findings`, or nothing.

    Parameters
    ----------
    document : mapping
        Of `eval`; the metrics |log_ratio| max and mean, k1 and the share of zeros are read.
    tolerance : float
        The largest |log_ratio| that counts as 1, in nats.
    """
    metrics = document["metrics"]
    largest = metrics.get(ON_POLICY_METRIC)
    if largest is None or largest <= tolerance:
        return []
    mean = metrics["log_ratio_abs_mean"]
    moved = round((1.0 - metrics["zero_log_ratio_frac"]) * metrics["n_tokens"])
    message = (
        f"not on policy: |log_ratio| is {largest:.6g} at most and {mean:.6g} on average, "
        f"{moved:,} of {metrics['n_tokens']:,} tokens moved; {likely_cause(metrics)}"
    )
    found: dict[str, Any] = {
        "code": CODE,
        "severity": RULES[CODE].severity,
        "count": moved,
        "message": message,
        "advice": RULES[CODE].advice,
    }
    where = document.get("places", {}).get(ON_POLICY_METRIC)
    return [{**found, "where": where} if where else found]


def likely_cause(metrics: Mapping[str, Any]) -> str:
    """Return what a deviation of this size and direction usually comes from."""
    mean, k1 = metrics["log_ratio_abs_mean"], metrics["approx_kl_k1"]
    if mean <= ROUNDING:
        return "the size of float32 rounding: another batch shape, kernel or order of summation"
    if k1 is not None and abs(k1) > ONE_SIDED * mean:
        return "nearly all in one direction: another temperature, other weights, or log-probs of other tokens"
    if mean <= NOISE:
        return "the size of bfloat16 noise: another dtype or batch shape, or a little dropout (train mode)"
    return "in both directions: dropout active (train mode), other weights, or log-probs of other tokens"
