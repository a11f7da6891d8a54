"""What a correction against the rollout policy does: weights before and after bounds, tokens dropped."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ppocli.core.measures import AGG, Measure, measure
from ppocli.engine.aggregates import horizon_of
from ppocli.engine.measures import Wanted
from ppocli.engine.summary import roles_of

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec
    from ppocli.engine.measures import MeasureSet
    from ppocli.engine.summary import Summary, Tally

WEIGHTS: dict[str, Measure] = {
    "rollout_weight_raw_mean": measure("weight", kind="raw"),
    "rollout_weight_raw_min": measure("weight", "token-min", kind="raw"),
    "rollout_weight_raw_max": measure("weight", "token-max", kind="raw"),
    "rollout_weight_mean": measure("weight"),
    "rollout_weight_min": measure("weight", "token-min"),
    "rollout_weight_max": measure("weight", "token-max"),
    "rollout_weight_capped_frac": measure("weight", kind="high"),
    "rollout_weight_low_frac": measure("weight", kind="low"),
}
"""Metrics of the weights, over the tokens before rejection."""

SUM, SUM_OF_SQUARES = measure("weight", "token-sum"), measure("weight", "token-sum", power=2)
LOSS = measure("loss", AGG)


def uncorrected(spec: LossSpec) -> LossSpec:
    """Return the same loss without the correction."""
    plain = "ppo" if spec.objective == "decoupled" else spec.objective
    return replace(
        spec,
        objective=plain,
        rollout_is="none",
        rollout_is_cap=None,
        rollout_is_low=None,
        rollout_is_clamp=None,
        rollout_rs=(),
    )


def wanted_of(spec: LossSpec) -> tuple[Wanted, ...]:
    """Return the measures that the metrics of a correction are made of."""
    if not spec.needs_rollout:
        return ()
    weights = (*WEIGHTS.values(), SUM, SUM_OF_SQUARES) if spec.weight_rule is not None else ()
    agg = spec if spec.agg != "group-mean" else replace(spec, agg="token-mean")
    return (*(Wanted(spec, one) for one in weights), Wanted(uncorrected(agg), LOSS))


def put_correction(s: Summary, measures: MeasureSet) -> None:
    """Enter the metrics of the correction."""
    spec, n = s.spec, s.totals.n_tokens + s.totals.n_rejected
    roles = spec.correction_pair
    if spec.drops and n:
        s.put_share("rollout_rejected_frac", s.totals.n_rejected / n, roles)
    if spec.weight_rule is not None:
        for name, one in WEIGHTS.items():
            value, tally = _value(s, measures, Wanted(spec, one))
            s.put(name, value, roles, tally)
        total, tally = _value(s, measures, Wanted(spec, SUM))
        squares, more = _value(s, measures, Wanted(spec, SUM_OF_SQUARES))
        bad = sum(tally) + sum(more)
        share = total * total / (n * squares) if n and 0.0 < squares < math.inf else math.nan
        s.put("rollout_weight_ess_frac", min(share, 1.0), roles, (bad, 0, 0), why="the weights are all 0")
    if spec.agg != "group-mean":
        value, tally = _value(s, measures, Wanted(uncorrected(spec), LOSS))
        s.put("policy_loss_uncorrected", value, roles_of("policy", spec), tally)


def _value(s: Summary, measures: MeasureSet, one: Wanted) -> tuple[float, Tally]:
    """Return a measure over its finite summands, and how the others would have spoilt it."""
    value, nonfinite = measures.value(one, measures.total, float(horizon_of(s)) or None)
    tally = {None: (0, 0, 0), "nan": (1, 0, 0), "inf": (0, 1, 0), "-inf": (0, 0, 1)}[nonfinite]
    return value, tally
