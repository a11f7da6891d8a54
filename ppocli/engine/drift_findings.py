"""Which rules a comparison hits: what is missing, what was filled in, and why the sides may differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppocli.core.drift_causes import TOP_SHARE, causes, read_floor
from ppocli.core.rules import RULES
from ppocli.engine.pair_tables import heavy_sequences
from ppocli.engine.summary import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ppocli.core.drift_causes import Sample
    from ppocli.core.report import Finding, InputReport
    from ppocli.engine.pair_metrics import PairSummary
    from ppocli.engine.pair_totals import PairPlan, PairTotals

AT_FLOOR = 1.5
"""Up to so many times the noise floor a difference is taken for noise."""


def find(
    totals: PairTotals,
    plan: PairPlan,
    summary: PairSummary,
    sample: Sample,
    inputs: Sequence[InputReport],
    floor: Mapping[str, Any],
    bad_b: str = "",
) -> tuple[tuple[Finding, ...], dict[str, Any]]:
    """Return the findings, errors first, and what is told about the noise floor.

    `bad_b`: where side b stands in files of its own, the place of its first value that is no finite number.
    """
    found = [*_missing_values(totals, plan, bad_b), *_filled(totals), *_empty_files(inputs)]
    told: dict[str, Any] = {}
    at_floor = False
    if floor:
        times = read_floor(summary.metrics, floor["metrics"])
        told = {"path": floor["path"], "times": times, "metrics": _known(floor["metrics"], times)}
        at_floor = bool(times) and max(times.values()) <= AT_FLOOR
        found += _floor(times, at_floor)
        if floor["metrics"].get("diff_abs_max") == 0.0:
            size = summary.metrics["diff_abs_max"]
            what = "and so is the difference" if size == 0.0 else "the difference is not"
            found.append(RULES["PPO510"].found(1, f"the noise floor is exactly 0, {what}"))
    if not at_floor and not plan.real and totals.n_tokens:
        heavy = heavy_sequences(totals, sample.paths, TOP_SHARE)
        placeholders = {float(name.partition("=")[2]) for name in totals.suspects}
        for cause in causes(sample, plan.a, plan.b, placeholders, heavy):
            found.append(RULES[cause.code].found(cause.count, cause.message))
    rank = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda one: (rank[one.severity], one.code))), told


def _plural(n: int, what: str) -> str:
    """Return `1 token` or `2,000 tokens`."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _missing_values(totals: PairTotals, plan: PairPlan, bad_b: str) -> Iterator[Finding]:
    """PPO101, one finding for each side."""
    for side, label in enumerate((plan.a, plan.b)):
        counts = totals.counts[side]
        if counts.any():
            what = ", ".join(f"{int(n):,} {kind}" for n, kind in zip(counts, KINDS, strict=True) if n)
            if side == 1 and bad_b:
                what += f", the first at {bad_b}"
            message = f"{label} at valid tokens: {what}; metrics that need them are null"
            yield RULES["PPO101"].found(int(counts.sum()), message, totals.first_bad.get(side))


def _filled(totals: PairTotals) -> Iterator[Finding]:
    """PPO504 and PPO505."""
    for name, (count, where) in totals.suspects.items():
        label, _, value = name.partition("=")
        tokens = _plural(count, "valid token")
        if value == "0":
            message = f"{tokens} with {label} exactly 0 opposite a log-prob below -2: zero-filled?"
            yield RULES["PPO504"].found(count, message, where)
        else:
            message = f"{tokens} with {label} exactly {value}: a sentinel, a placeholder for a missing value?"
            yield RULES["PPO505"].found(count, message, where)


def _empty_files(inputs: Sequence[InputReport]) -> Iterator[Finding]:
    """PPO401."""
    empty = [one for one in inputs if one.tokens == 0 and one.masked + one.rows == 0]
    if empty:
        more = f" and {len(empty) - 1:,} more" if len(empty) > 1 else ""
        yield RULES["PPO401"].found(len(empty), f"no valid token in {empty[0].path}{more} (no rows)")


def _known(metrics: Mapping[str, Any], times: Mapping[str, float]) -> dict[str, Any]:
    """Return the metrics of the floor that were compared."""
    return {name: metrics[name] for name in times}


def _floor(times: Mapping[str, float], at_floor: bool) -> Iterator[Finding]:
    """PPO510."""
    if not times:
        return
    name = max(times, key=lambda one: times[one])
    said = ", ".join(f"{key} {value:.3g}" for key, value in times.items())
    what = "within the noise floor" if at_floor else f"above the noise floor, {name} the most"
    yield RULES["PPO510"].found(1, f"the difference is {what}; times the floor: {said}")
