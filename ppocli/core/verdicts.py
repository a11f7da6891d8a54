"""Verdicts about a format by stated limits, and the cheapest format that does no harm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ppocli.core.audit_spec import VERDICTS, AuditOptions
from ppocli.core.precision import PRECISIONS

FLOAT64_BYTES = 8

MOST_FLIPS = 0.01
"""Share of tokens whose clip decision flips, beyond which that is an error."""
TO_ZERO = (0.1, 0.5)
"""Share of tokens whose drift is rounded away: warning, error."""
GRADIENT = (0.01, 0.1)
"""Error of the gradients over their size: warning, error."""
KL = (0.1, 1.0)
"""Error of approx_kl_k3 over approx_kl_k3 in float64: warning, error."""
FAR_BEYOND = 10.0
"""Times the tolerance of the loss: error."""

LIMIT_TEXTS = {
    "error": (
        "a loss or ratio that is not finite; loss error above 10 x the tolerance; clip flips on more than "
        f"{MOST_FLIPS:.0%} of the tokens; more than {TO_ZERO[1]:.0%} of the log-ratios rounded to 0; "
        f"gradient error above {GRADIENT[1]:.0%}; error of approx_kl_k3 above {KL[1]:.0%}"
    ),
    "warning": (
        "loss error above the tolerance, also of sum and count each rounded to the format; a clip flip; a "
        f"ratio that becomes 0; a gradient of changed sign; more than {TO_ZERO[0]:.0%} of the log-ratios "
        f"rounded to 0; gradient error above {GRADIENT[0]:.0%}; error of approx_kl_k3 above {KL[0]:.0%}"
    ),
}
"""The limits in words."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said about a format under a question.

    Attributes
    ----------
    level : {"ok", "warning", "error"}
    reasons : tuple of str
        What went beyond a limit, the gravest first.
    """

    level: str
    reasons: tuple[str, ...] = ()


def judge(metrics: Mapping[str, Any], n_tokens: int, n_left_out: int, tolerance: float) -> Verdict:
    """Judge a format by its metrics.

    Parameters
    ----------
    metrics : mapping of name to number or None
        Of `AUDIT_METRICS`, over the tokens that count. None is not finite, or cannot be had.
    n_tokens, n_left_out : int
        Tokens that count, and those that hold a value that is not finite.
    tolerance : float
        `AuditOptions.loss_tolerance`.
    """
    found = [*_errors(metrics, n_tokens, n_left_out), *_graded(metrics, n_tokens, tolerance)]
    found.sort(key=lambda one: -VERDICTS.index(one[0]))  # stable
    return Verdict(found[0][0], tuple(text for _, text in found)) if found else Verdict("ok")


def _errors(metrics: Mapping[str, Any], n_tokens: int, n_left_out: int) -> Iterable[tuple[str, str]]:
    """Yield what is an error whenever it occurs."""
    if not n_tokens:
        yield "error", "no token was audited"
        return
    if n_left_out:
        yield "error", f"{_tokens(n_left_out)} with a value that is not finite"
    if metrics["policy_loss"] is None:
        yield "error", "policy_loss is not finite"
    if metrics["ratio_overflow"]:
        yield "error", f"ratio overflows: {_tokens(metrics['ratio_overflow'])}"


def _graded(metrics: Mapping[str, Any], n_tokens: int, tolerance: float) -> Iterable[tuple[str, str]]:
    """Yield what is a warning or an error by its size."""
    if not n_tokens:
        return
    loss = metrics["policy_loss_scaled_error"]
    if loss is not None and not loss <= tolerance:
        level = "warning" if loss <= FAR_BEYOND * tolerance else "error"
        yield level, f"loss error {loss:.2g} of the mean |token loss|, tolerance {tolerance:g}"
    flips = metrics["clip_flips"]
    if flips:
        share = flips / n_tokens
        level = "warning" if share <= MOST_FLIPS else "error"
        yield level, f"clip decision flips: {_tokens(flips)} ({share:.2g} of all)"
    for name, limits, text in (
        ("rounded_to_zero_frac", TO_ZERO, "log-ratios rounded to 0"),
        ("grad_error", GRADIENT, "gradient error"),
    ):
        value = metrics[name]
        if value is not None and not value <= limits[0]:
            yield "warning" if value <= limits[1] else "error", f"{text}: {value:.2%}"
    yield from _kl(metrics)
    sums = metrics.get("rounded_sums_scaled_error", 0.0)
    if metrics["policy_loss"] is not None and (sums is None or not sums <= tolerance):
        size = "not finite" if sums is None else f"off by {sums:.2g} of the mean |token loss|"
        yield "warning", f"sum and number of tokens, each rounded to the format, give a loss that is {size}"
    for name, text in (("ratio_underflow", "ratio becomes 0"), ("grad_reversed", "gradient changes sign")):
        if metrics[name]:
            yield "warning", f"{text}: {_tokens(metrics[name])}"


def _kl(metrics: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield what there is to say about the KL; nothing where it is 0 in float64."""
    value, error = metrics["approx_kl_k3"], metrics["approx_kl_k3_error"]
    if value is None or error is None or not value - error > 0.0:
        return
    off = abs(error) / (value - error)
    if not off <= KL[0]:
        yield "warning" if off <= KL[1] else "error", f"approx_kl_k3 off by {off:.2%}"


def _tokens(n: int) -> str:
    return f"{n:,} token{'' if n == 1 else 's'}"


def worst_of(levels: Iterable[str]) -> str:
    """Return the gravest of some verdicts."""
    return max(levels, key=VERDICTS.index, default="ok")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way of storing log-probs and computing the loss.

    Attributes
    ----------
    storage, arithmetic : str
        Formats; arithmetic is float32 or float64.
    clip_flips : int, optional
        None: not evaluated, because float64 arithmetic already flips decisions.
    policy_loss_scaled_error : float, optional
        None: not finite, or not evaluated.
    """

    storage: str
    arithmetic: str
    clip_flips: int | None
    policy_loss_scaled_error: float | None

    @property
    def n_bytes(self) -> int:
        """Return the bytes of a stored log-prob."""
        return PRECISIONS[self.storage].n_bytes if self.storage in PRECISIONS else FLOAT64_BYTES

    def is_good(self, options: AuditOptions) -> bool:
        """Whether it flips no decision and keeps the loss."""
        error = self.policy_loss_scaled_error
        return self.clip_flips == 0 and error is not None and error <= options.loss_tolerance


REFERENCE = Candidate("float64", "float64", 0, 0.0)
"""What all else is compared with: always good."""


def recommend(candidates: Sequence[Candidate], options: AuditOptions) -> Candidate:
    """Return the cheapest good candidate: fewest bytes, then float32 arithmetic, then the smallest error."""
    good = [one for one in (*candidates, REFERENCE) if one.is_good(options)]
    return min(
        good, key=lambda one: (one.n_bytes, one.arithmetic == "float64", one.policy_loss_scaled_error or 0.0)
    )
