"""What several families of classic libraries share: totals, explained variances, means over padding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ppocli.core.measures import Measure, measure, own_metric

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

ENTROPY = measure("column", role="entropy")
K1 = measure("kl")
K3 = measure("kl", estimator="k3")
PADDING = own_metric("n_tokens"), own_metric("n_masked")
"""Valid and masked steps: together what a mean over padding divides by."""


def total_of(vf_coef: float, ent_coef: float) -> Callable[..., float]:
    """Return policy + vf_coef * value - ent_coef * entropy; these coefficients unless others are given."""

    def total(spec: LossSpec, policy: float, value: float, entropy: float) -> float:
        vf, ent = coefficients(spec, vf_coef, ent_coef)
        return policy + vf * value - ent * entropy

    return total


def coefficients(spec: LossSpec, vf_coef: float, ent_coef: float) -> tuple[float, float]:
    """Return the coefficients of the value loss and of the entropy: those given, else these."""
    vf = vf_coef if spec.vf_coef is None else spec.vf_coef
    return vf, ent_coef if spec.ent_coef is None else spec.ent_coef


def value_scaled(vf_coef: float) -> Callable[[LossSpec, float], float]:
    """Return a number times the coefficient of the value loss."""
    return lambda spec, value: coefficients(spec, vf_coef, 0.0)[0] * value


def entropy_scaled(ent_coef: float) -> Callable[[LossSpec, float], float]:
    """Return minus a number times the coefficient of the entropy."""
    return lambda spec, entropy: -coefficients(spec, 0.0, ent_coef)[1] * entropy


def variances(prediction: str, *, ddof: int = 0, over: str = "token") -> tuple[Measure, Measure]:
    """Return the variances of returns - prediction and of the returns."""
    return (
        measure("residual", f"{over}-var", role=prediction, ddof=ddof),
        measure("column", f"{over}-var", role="returns", ddof=ddof),
    )


def explained(spec: LossSpec, residual: float, returns: float) -> float:
    """Return 1 - var(returns - prediction) / var(returns); NaN where the returns do not vary."""
    return 1.0 - residual / returns if returns > 0.0 else math.nan


def over_padding(spec: LossSpec, total: float, valid: float, masked: float) -> float:
    """Return a sum over valid steps divided by all stored steps."""
    return total / (valid + masked)
