"""How a loss is corrected for tokens that another policy sampled: the rules, and how they are written.

The formulas are in `core.rollout_correction`; this module imports no NumPy. ratio = exp(old - rollout), the
policy the loss takes for the sampler over the policy that sampled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ppocli.core.spec import choose
from ppocli.errors import UsageProblem

WEIGHT_LEVELS = ("token", "sequence", "geometric")
"""Whose ratio is a token's weight: its own, the product over its sequence, or the geometric mean of that."""

WEIGHT_MODES = ("truncate", "mask")
"""What happens to a weight outside the bounds: it is held at the bound, or it is 0."""

REJECTION_LEVELS = ("token", "seq_sum", "seq_mean", "seq_max", "seq_min")
REJECTION_STATISTICS = ("ratio", "k1", "k2", "k3", "tv", "binary_kl")
TWO_SIDED = ("ratio", "k1")
"""Statistics whose bounds are those of a ratio; the others are at least 0 and have an upper bound."""

VETO = "veto"
"""A name for `seq_min_ratio` with a lower bound: one token below it drops the whole sequence."""


@dataclass(frozen=True, slots=True)
class WeightRule:
    """The importance weight of a token's loss.

    Attributes
    ----------
    level : {"token", "sequence", "geometric"}
    cap : float, optional
        Upper bound, positive. None: no bound.
    low : float, optional
        Lower bound, at least 0 and at most `cap`.
    mode : {"truncate", "mask"}
        "truncate" (TIS): min(max(w, low), cap). "mask" (IcePop, MIS): w inside the closed interval, else 0.
    log_ratio_clamp : float, optional
        The level's log-ratio is held within plus or minus this before it is exponentiated; 20 in verl.

    Raises
    ------
    UsageProblem
        An unknown name or a bound that cannot be used.
    """

    level: str = "token"
    cap: float | None = None
    low: float | None = None
    mode: str = "truncate"
    log_ratio_clamp: float | None = None

    def __post_init__(self) -> None:
        choose("rollout_is", self.level, WEIGHT_LEVELS)
        choose("rollout_is_mode", self.mode, WEIGHT_MODES)
        _check("rollout_is_cap", self.cap, above_zero=True)
        _check("rollout_is_low", self.low)
        _check("log_ratio_clamp", self.log_ratio_clamp)
        if self.low is not None and self.cap is not None and self.low > self.cap:
            raise UsageProblem(f"the lower bound {self.low:g} of a weight is above its cap {self.cap:g}")


@dataclass(frozen=True, slots=True)
class RejectionRule:
    """Which tokens are dropped because the two policies differ too much there.

    A token is kept where low <= statistic <= high; both ends are inside, and NaN is not. At a sequence level
    all tokens of a sequence share its sum, mean, largest or smallest value.

    Attributes
    ----------
    level : {"token", "seq_sum", "seq_mean", "seq_max", "seq_min"}
        `seq_sum` of "ratio" is the product of the token ratios, `seq_mean` their geometric mean.
    statistic : {"ratio", "k1", "k2", "k3", "tv", "binary_kl"}
        "ratio": the ratio. "k1": 1 / ratio, for k1 = -log ratio is compared with the logarithms of the
        bounds; verl's "0.6_1.4" keeps ratios in [1 / 1.4, 1 / 0.6]. "k2": (log ratio)^2 / 2. "k3":
        ratio - 1 - log ratio. "tv": |exp(old) - exp(rollout)|. "binary_kl": the KL of (q, 1 - q) from
        (p, 1 - p), q the rollout's and p the old probability, nats.
    low, high : float, optional
        Not negative. Open where None.

    Raises
    ------
    UsageProblem
        An unknown name, no bound at all, or bounds that cannot be used.
    """

    level: str = "token"
    statistic: str = "ratio"
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        choose("the level of rollout_rs", self.level, REJECTION_LEVELS)
        choose("the statistic of rollout_rs", self.statistic, REJECTION_STATISTICS)
        _check(f"the lower bound of {self.name}", self.low)
        _check(f"the upper bound of {self.name}", self.high)
        if self.low is None and self.high is None:
            raise UsageProblem(f"{self.name} needs a bound")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise UsageProblem(f"{self.name}: the lower bound {self.low:g} is above the upper {self.high:g}")

    @property
    def name(self) -> str:
        """The mode as it is written: `token_k1`, `seq_mean_ratio`."""
        return f"{self.level}_{self.statistic}"


def parse_rejection(text: str) -> RejectionRule:
    """Return the rule that MODE:BOUNDS stands for.

    MODE is a level and a statistic (`token_k1`, `seq_mean_ratio`) or `veto`. BOUNDS is LOW_HIGH or one
    number. One number is the upper bound; for `ratio` and `k1` the lower one is then its reciprocal, as verl
    has it. `veto:LOW` is the exception: its number is the lower bound.

    Raises
    ------
    UsageProblem
        Anything else.
    """
    mode, colon, bounds = text.partition(":")
    if not colon or not bounds:
        hint = "for example token_k1:0.5_2, seq_mean_k3:0.01 or veto:1e-4"
        raise UsageProblem(f"'{text}' is not MODE:BOUNDS", hint=hint)
    parts = [_number(part, text) for part in bounds.split("_")]
    if len(parts) > 2:
        raise UsageProblem(f"'{text}' has more than two bounds")
    if mode == VETO:
        if len(parts) == 2:
            raise UsageProblem(f"'{text}': veto has one bound, the smallest ratio that is allowed")
        return RejectionRule("seq_min", "ratio", low=parts[0])
    level, statistic = _split_mode(mode)
    if len(parts) == 2:
        return RejectionRule(level, statistic, parts[0], parts[1])
    low = 1.0 / parts[0] if statistic in TWO_SIDED and parts[0] > 0.0 else None
    return RejectionRule(level, statistic, low, parts[0])


def _split_mode(mode: str) -> tuple[str, str]:
    """Level and statistic of a mode's name."""
    for level in REJECTION_LEVELS:
        if mode.startswith(level + "_"):
            return level, mode.removeprefix(level + "_")
    known = [f"{level}_{statistic}" for level in REJECTION_LEVELS for statistic in REJECTION_STATISTICS]
    choose("rollout_rs", mode, (VETO, *known))
    raise UsageProblem(f"'{mode}' is not a mode of rollout_rs")


def _number(part: str, text: str) -> float:
    """One bound."""
    try:
        return float(part)
    except ValueError:
        raise UsageProblem(f"'{part}' in '{text}' is not a number") from None


def _check(name: str, value: float | None, *, above_zero: bool = False) -> None:
    """Refuse a bound that is negative, not finite or, with `above_zero`, zero; None passes."""
    if value is not None and not (0.0 <= value < math.inf and (value > 0.0 or not above_zero)):
        least = "above 0" if above_zero else "of at least 0"
        raise UsageProblem(f"{name} is a finite number {least}, not {value:g}")
