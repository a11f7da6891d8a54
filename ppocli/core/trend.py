"""Metrics from group to group: what changed against the one before, and where most."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ppocli.core.report import Group, Number

TREND = (
    "policy_loss",
    "clip_frac",
    "clip_frac_active",
    "approx_kl_k1",
    "approx_kl_k3",
    "log_ratio_abs_max",
    "ess_frac",
    "entropy_mean",
    "entropy_estimate",
    "ref_kl_k3",
    "value_loss",
    "explained_variance",
    "total_loss",
    "reward_mean",
    "adv_mean",
    "adv_std",
)
"""Metrics that are followed from group to group, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Trend:
    """One metric over all groups.

    Attributes
    ----------
    name : str
    values : tuple of number or None
        In the order of the groups.
    largest : float, optional
        The change of largest size, signed.
    at : mapping, optional
        The key of the group at which it happened.
    """

    name: str
    values: tuple[Number, ...]
    largest: float | None
    at: Mapping[str, Any] | None

    @property
    def ends(self) -> tuple[Number, Number]:
        """The first and the last value that is not null; None where all are."""
        known = [one for one in self.values if one is not None]
        return (known[0], known[-1]) if known else (None, None)


def with_changes(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return groups with `change`: each metric of `TREND` minus its value in the group before.

    None where one of the two is null; empty in the first group.
    """
    out: list[Group] = []
    for before, one in zip((None, *groups), groups, strict=False):
        change: dict[str, Number] = {}
        if before is not None:
            for name in TREND:
                if name in one.metrics and name in before.metrics:
                    new, old = one.metrics[name], before.metrics[name]
                    change[name] = None if new is None or old is None else new - old + 0.0
        out.append(replace(one, change=change))
    return tuple(out)


def trends(groups: Sequence[Group]) -> Iterator[Trend]:
    """Yield the metrics of `TREND` that some group has; groups in the order of their keys."""
    for name in TREND:
        if not any(name in one.metrics for one in groups):
            continue
        changed = [(abs(one.change[name] or 0.0), one) for one in groups if one.change.get(name) is not None]
        most = max(changed, key=lambda pair: pair[0], default=None)
        largest = None if most is None else most[1].change[name]
        yield Trend(
            name,
            tuple(one.metrics.get(name) for one in groups),
            largest,
            None if most is None else most[1].key,
        )


def label_of(key: Mapping[str, Any]) -> str:
    """Return the value of a group's key; `null` for the tokens that have none."""
    return ", ".join("null" if value is None else str(value) for value in key.values())
