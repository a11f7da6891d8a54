"""Metrics from group to group: their values in the order of the groups, and the limits judged on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ppocli.core.trend import TREND, label_of
from ppocli.render.console import printable

if TYPE_CHECKING:
    from ppocli.core.check_report import Check
    from ppocli.core.report import Group, Number

FOLLOWED_DRIFT = ("diff_abs_mean", "drift_kl_k3")
"""Metrics of the trainer against the sampler that get a chart; of the others it is those of `TREND`."""

MOST_COLUMNS = 300
"""Places across at which a line through thousands of values has its smallest and its largest one."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound of a gate on one metric of each group.

    `name` is how it was asked for; `broken` are the groups that break it, by their number in the series.
    """

    name: str
    bound: float
    broken: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One metric over groups that have an order.

    `key` is what the groups are values of; `labels` and `values` have one entry for each, `reasons` one for
    each null; `limits` are judged on each group.
    """

    name: str
    key: str
    labels: Sequence[str]
    values: Sequence[Number]
    reasons: Mapping[int, str]
    limits: Sequence[Limit] = ()

    @property
    def known(self) -> list[tuple[int, float]]:
        """The values that are not null, each with the number of its group."""
        return [(k, float(value)) for k, value in enumerate(self.values) if value is not None]

    def at(self, k: int) -> str:
        """Return which group that is: step 12."""
        return f"{self.key} {self.labels[k]}"


def series_of(
    groups: Sequence[Group], by: str, checks: Iterable[Check], followed: Sequence[str] = TREND
) -> list[Series]:
    """Return the metrics, of those followed and those with a limit, that some group has a value of."""
    labels = [printable(label_of(one.key)) for one in groups]
    limits = _limits(groups, checks)
    others = [name for name in limits if name not in followed and "." not in name]
    wanted = [(name, "metrics", name) for name in (*followed, *others)]
    judged = [name.removeprefix("drift.") for name in limits if name.startswith("drift.")]
    wanted += [(f"drift.{name}", "drift", name) for name in dict.fromkeys((*FOLLOWED_DRIFT, *judged))]
    made = []
    for full, part, name in wanted:
        values: list[Number] = []
        reasons: dict[int, str] = {}
        for k, one in enumerate(groups):
            where = one.metrics if part == "metrics" else one.drift.get("metrics", {})
            notes = one.nulls if part == "metrics" else one.drift.get("nulls", {})
            value = where.get(name)
            values.append(value)
            if value is None and name in notes:
                note = notes[name]
                reasons[k] = f"{note.nonfinite}: {note.reason}" if note.nonfinite else note.reason
        if any(value is not None for value in values) or limits.get(full):
            made.append(Series(full, printable(by), labels, values, reasons, limits.get(full, ())))
    return [one for one in made if one.name != "total_loss" or one.limits or _is_new(one, made)]


def _is_new(series: Series, others: Sequence[Series]) -> bool:
    """Return whether the total loss is something else than the policy loss, which is drawn anyway."""
    return all(list(one.values) != list(series.values) for one in others if one.name == "policy_loss")


def _limits(groups: Sequence[Group], checks: Iterable[Check]) -> dict[str, list[Limit]]:
    """Return the limits that were judged for each group, by metric."""
    number = {tuple(one.key.items()): k for k, one in enumerate(groups)}
    found: dict[tuple[str, str, float], list[int]] = {}
    for one in checks:
        k = number.get(tuple(one.key.items()))
        if one.kind not in ("max", "min") or one.metric is None or one.limit is None or k is None:
            continue
        broken = found.setdefault((one.metric, one.name, float(one.limit)), [])
        if one.status in ("fail", "error"):
            broken.append(k)
    out: dict[str, list[Limit]] = {}
    for (metric, name, bound), broken in found.items():
        out.setdefault(metric, []).append(Limit(name, bound, tuple(sorted(broken))))
    return out


def pieces(values: Sequence[Number], *, every: bool) -> list[list[tuple[int, float]]]:
    """Return what a line goes through, each value with its number, apart where values are null.

    Parameters
    ----------
    every : bool
        Through every value. Otherwise through the smallest and the largest of each of at most
        `MOST_COLUMNS` stretches, in the order in which they come, so that no spike is lost; the line ends
        only where a stretch has no value at all.
    """
    width = 1 if every else math.ceil(len(values) / MOST_COLUMNS)
    out: list[list[tuple[int, float]]] = [[]]
    for start in range(0, len(values), width):
        known = [
            (k, float(value))
            for k, value in enumerate(values[start : start + width], start)
            if value is not None
        ]
        if not known:
            out.append([])
            continue
        ends = {min(known, key=lambda one: one[1]), max(known, key=lambda one: one[1])}
        out[-1] += sorted(ends)
    return [one for one in out if one]


def lost(values: Sequence[Number], *, every: bool) -> list[int]:
    """Return which values are null; of a stretch with several the first."""
    width = 1 if every else math.ceil(len(values) / MOST_COLUMNS)
    found = {k // width: k for k in reversed(range(len(values))) if values[k] is None}
    return sorted(found.values())


def largest_change(series: Series) -> tuple[float, int | None]:
    """Return the largest change against the group before, and where it is; null on either side is none."""
    best, at = 0.0, None
    for k in range(1, len(series.values)):
        before, now = series.values[k - 1], series.values[k]
        if before is None or now is None:
            continue
        change = float(now) - float(before)
        if abs(change) > abs(best):
            best, at = change, k
    return best, at
