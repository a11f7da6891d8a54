"""Which objectives there are, and the parameters that only they have.

The formulas are in `core.token_objectives` and `core.sequence_objectives`; this module imports no NumPy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ppocli.core.spec import LossSpec, choose
from ppocli.errors import UsageProblem

# What the formulas cover. What a command accepts is `spec.OBJECTIVES`: a name moves there together with the
# kernels that compute it, for a command must not offer what the engine cannot do yet.
ALL_OBJECTIVES = (
    "ppo",
    "is",
    "reinforce",
    "gspo",
    "cispo",
    "sapo",
    "gmpo",
    "dppo-tv",
    "dppo-kl",
    "dro",
    "vespo",
    "decoupled",
)
SEQUENCE_OBJECTIVES = ("gspo", "gmpo", "vespo")
"""Those in which a token's loss depends on its whole sequence."""

SEQUENCE_RATIOS = ("geometric", "product")


@dataclass(frozen=True, slots=True)
class ObjectiveSpec:
    """An objective and its parameters.

    Attributes
    ----------
    objective : str
        One of `ALL_OBJECTIVES`.
    bounds : LossSpec
        `clip_low`, `clip_high`, `dual_clip`, `delta` and `log_ratio_clamp` are read, nothing else. The two
        clips bound the ratio in ppo, gspo, cispo and decoupled, its logarithm in gmpo, the probability
        difference in dppo-tv and the divergence in dppo-kl; `dual_clip` and `delta` are of ppo, gspo and
        decoupled. `log_ratio_clamp` holds each token's log-ratio within plus or minus a number of nats, in
        gspo the sequence's.
    cispo_low, cispo_high : float, optional
        Absolute bounds of the ratio, 0 <= cispo_low <= cispo_high. None: 1 - clip_low and 1 + clip_high.
        TRL bounds from above only: cispo_low = 0.
    sapo_tau_pos, sapo_tau_neg : float
        Temperatures of the gate for A > 0 and for all others; positive.
    sequence_ratio : {"geometric", "product"}
        gspo: exp(mean log_ratio) or exp(sum log_ratio).
    gspo_token_gradient : bool
        gspo: each token keeps the gradient of its own loss (GSPO-token) instead of the sequence's mean.
    dppo_weight_cap : float, optional
        c > 0: the loss is -min(ratio, c) A log_probs, the weight a constant (verl). None: -ratio A.
    dppo_kl_eps : float
        Added to 1 - p on both sides of the binary KL; at least 0, 1e-8 in verl and SkyRL.
    dro_beta : float
        Weight of the quadratic penalty, at least 0.
    vespo_k_pos, vespo_lambda_pos, vespo_k_neg, vespo_lambda_neg : float
        Exponents of the weight for A >= 0 and for A < 0: k at least 0, lambda positive. The defaults are
        TRL's.
    rollout_is_cap : float, optional
        decoupled: the behaviour weight is at most this; positive. None: no bound.

    Raises
    ------
    UsageProblem
        An unknown name or a number outside its range.
    """

    objective: str = "ppo"
    bounds: LossSpec = field(default_factory=LossSpec)
    cispo_low: float | None = None
    cispo_high: float | None = None
    sapo_tau_pos: float = 1.0
    sapo_tau_neg: float = 1.05
    sequence_ratio: str = "geometric"
    gspo_token_gradient: bool = False
    dppo_weight_cap: float | None = None
    dppo_kl_eps: float = 0.0
    dro_beta: float = 0.05
    vespo_k_pos: float = 2.0
    vespo_lambda_pos: float = 3.0
    vespo_k_neg: float = 3.0
    vespo_lambda_neg: float = 2.0
    rollout_is_cap: float | None = None

    def __post_init__(self) -> None:
        choose("objective", self.objective, ALL_OBJECTIVES)
        choose("sequence_ratio", self.sequence_ratio, SEQUENCE_RATIOS)
        for name in ("cispo_low", "cispo_high", "dppo_kl_eps", "dro_beta", "vespo_k_pos", "vespo_k_neg"):
            _check(name, getattr(self, name))
        for name in ("sapo_tau_pos", "sapo_tau_neg", "vespo_lambda_pos", "vespo_lambda_neg"):
            _check(name, getattr(self, name), above_zero=True)
        for name in ("dppo_weight_cap", "rollout_is_cap"):
            _check(name, getattr(self, name), above_zero=True)
        low, high = self.cispo_bounds
        if low > high:
            raise UsageProblem(f"cispo_low = {low:g} is above cispo_high = {high:g}")

    @property
    def cispo_bounds(self) -> tuple[float, float]:
        """The interval that cispo clips the ratio to."""
        low, high = self.cispo_low, self.cispo_high
        return (
            1.0 - self.bounds.clip_low if low is None else low,
            1.0 + self.bounds.clip_high if high is None else high,
        )


def _check(name: str, value: float | None, *, above_zero: bool = False) -> None:
    """Refuse a number that is negative, not finite or, with `above_zero`, zero; None passes."""
    if value is not None and not (0.0 <= value < math.inf and (value > 0.0 or not above_zero)):
        least = "above 0" if above_zero else "of at least 0"
        raise UsageProblem(f"{name} is a finite number {least}, not {value:g}")
