"""Findings about precision and the objective: PPO105, PPO2xx and PPO3xx, from the totals of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ppocli.core.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppocli.core.report import Finding, Severity
    from ppocli.engine.summary import Summary

RATIO = ("log_probs", "old_log_probs")

FLOAT32_RESOLUTION = 2.0**-24
IDLE_KL = 0.05
"""KL(rollout || old) above which ratios of 1 are idle: the tolerance of probe-the-harness."""

ONE_TOKEN_SHARE, ONE_TOKEN_LEAST, ONE_TOKEN_LOG_RATIO = 0.5, 50, 1.0
RESOLVED = 1e-9
"""Share of a sum below which what is left of it is rounding."""
ASYMMETRY, GRAVE_ASYMMETRY = 3.0, 10.0
"""Of the tokens on either side; the first is that of rl-doctor."""
ASYMMETRY_LEAST, ASYMMETRY_SHARE, UNEQUAL_BOUNDS = 100, 0.05, 2.0


def find_objective(s: Summary, rollout_kl: float | None) -> Iterator[Finding]:
    """Yield what these rules find.

    Parameters
    ----------
    s : Summary
        Of the whole run.
    rollout_kl : float, optional
        KL(rollout || old) by k3 over the inputs that have it; inf where it overflows.
    """
    if s.has(RATIO) and s.count("ratio"):
        yield from _clamped(s)
        yield from _cancellation(s)
        yield from _idle_clip(s, rollout_kl)
        yield from _one_token(s)
        yield from _asymmetry(s)
    if s.has(("advantages",)):
        yield from _no_advantage(s)
    yield from _unexplained(s)


def _clamped(s: Summary) -> Iterator[Finding]:
    """PPO105."""
    bound = s.spec.log_ratio_clamp
    n = int(s.total("clamped")) if bound is not None else 0
    if n:
        message = f"{n:,} of {s.count('ratio'):,} log-ratios clamped to +-{bound:g}"
        low, high = s.extreme("log_ratio")
        yield RULES["PPO105"].found(n, message, s.place("log_ratio", 0 if -low > high else 1))


def _cancellation(s: Summary) -> Iterator[Finding]:
    """PPO210."""
    kl, n = s.mean("kl_k3", "ratio"), s.count("ratio")
    if 0.0 < kl < FLOAT32_RESOLUTION:
        message = f"approx_kl_k3 is {kl:.3g}; ratio - 1 - log_ratio in float32 is off by up to 6e-8 a token"
        yield RULES["PPO210"].found(n, message)


def _idle_clip(s: Summary, kl: float | None) -> Iterator[Finding]:
    """PPO301."""
    n = s.count("ratio")
    if int(s.total("log_ratio_zero")) == n and kl is not None and kl > IDLE_KL:
        message = f"all {n:,} ratios are exactly 1, though KL(rollout || old) is {kl:.3g}: nothing can clip"
        yield RULES["PPO301"].found(n, message)


def _one_token(s: Summary) -> Iterator[Finding]:
    """PPO303."""
    n, total = s.count("ratio"), s.total("kl_k3")
    low, high = s.extreme("log_ratio")
    if n < ONE_TOKEN_LEAST or not 0.0 < total < math.inf:
        return
    parts = {side: math.expm1(x) - x for side, x in enumerate((low, high))}
    side = max(parts, key=lambda one: parts[one])
    share, log_ratio = parts[side] / total, (low, high)[side]
    if share > ONE_TOKEN_SHARE and abs(log_ratio) > ONE_TOKEN_LOG_RATIO:
        message = f"one token of {n:,} has {share:.0%} of approx_kl_k3; its log-ratio is {log_ratio:.6g}"
        rest = total - parts[side]
        if rest > RESOLVED * total:
            message += f". Without it the KL is {rest / (n - 1):.3g}, not {total / n:.3g}"
        yield RULES["PPO303"].found(1, message, s.place("log_ratio", side))


def _asymmetry(s: Summary) -> Iterator[Finding]:
    """PPO305."""
    n, below, above = s.count("ratio"), int(s.total("below")), int(s.total("above"))
    clipped = below + above
    if clipped < max(ASYMMETRY_LEAST, ASYMMETRY_SHARE * n) or not 0.0 < s.spec.clip_low < 1.0:
        return
    down, up = -math.log1p(-s.spec.clip_low), math.log1p(s.spec.clip_high)
    if not 1.0 / UNEQUAL_BOUNDS <= down / max(up, 1e-300) <= UNEQUAL_BOUNDS:
        return
    times = max(below, above) / max(min(below, above), 1)
    if times >= ASYMMETRY:
        severity: Severity = "warning" if times >= GRAVE_ASYMMETRY else "info"
        message = f"{below:,} ratios below the interval and {above:,} above it, of {n:,} tokens"
        yield RULES["PPO305"].found(clipped, message, severity=severity)


def _no_advantage(s: Summary) -> Iterator[Finding]:
    """PPO304."""
    n = s.count("adv")
    if n and int(s.total("adv_zero")) == n:
        yield RULES["PPO304"].found(n, f"the advantage is exactly 0 at all {n:,} valid tokens")


def _unexplained(s: Summary) -> Iterator[Finding]:
    """PPO306."""
    predicted = next((one for one in ("values", "old_values") if s.has((one, "returns"))), None)
    if predicted is None:
        return
    selection = "ev" if predicted == "values" else "ev_old"
    n, (low, high) = s.count(selection), s.extreme(f"{selection}_return")
    if n > 1 and low == high:
        yield RULES["PPO306"].found(n, f"the return is {low:.6g} at all {n:,} valid tokens")
