"""Limits and tolerances as people write them, and which metrics they may name."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.core.glossary import nearest
from ppocli.core.metrics import METRICS
from ppocli.core.profiles import PROFILES
from ppocli.core.spec import AGGREGATIONS, choose
from ppocli.errors import UsageProblem

LimitKind = Literal["max", "min", "expect"]


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on one metric.

    Attributes
    ----------
    metric : str
        A name that `is_metric` accepts.
    kind : {"max", "min", "expect"}
        The metric may be at most `value`, at least `value`, or within `tolerance` of `value`.
    value, tolerance : float
        Finite; `tolerance` not negative.
    source : str
        Where the limit comes from: an option, a line of a file, a profile.
    profile : str, optional
        The published set it belongs to. Such a limit is skipped where its column is missing.
    """

    metric: str
    kind: LimitKind
    value: float
    tolerance: float = 0.0
    source: str = "limit"
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a metric may be from its value in the baseline.

    Attributes
    ----------
    amount : float
        Absolute, or where `relative` a share of the baseline's |value|; not negative.
    text : str
        The amount as it was written: "5%" or "1e-4".
    """

    metric: str
    amount: float
    relative: bool
    text: str
    source: str = "tolerance"

    def around(self, value: float) -> float:
        """Return the tolerance around a value of the baseline."""
        return self.amount * abs(value) if self.relative else self.amount


def plain(value: float) -> str:
    """Return the shortest text that reads back as the same number, without a trailing .0."""
    return repr(float(value)).removesuffix(".0")


def limits_from(
    option: str, kind: LimitKind, pairs: Iterable[str], extra: Collection[str] = ()
) -> list[Limit]:
    """Read `METRIC=VALUE` (for "expect" `METRIC=VALUE~TOLERANCE`) as often as given.

    Parameters
    ----------
    option : str
        What the user wrote, for messages and as the limit's source.
    extra : collection of str
        Further names of metrics, such as those of a framework.

    Raises
    ------
    UsageProblem
        No such metric, a limit that is not finite, a metric given twice, or another form.
    """
    out: dict[str, Limit] = {}
    for pair in pairs:
        metric, text = _split(option, pair, "VALUE~TOLERANCE" if kind == "expect" else "VALUE", extra)
        if metric in out:
            raise UsageProblem(f"{option} is given twice for {metric}")
        number, tilde, tolerance = text.partition("~")
        if bool(tilde) != (kind == "expect"):
            form = "METRIC=VALUE~TOLERANCE" if kind == "expect" else "METRIC=VALUE"
            raise UsageProblem(f"{option} takes {form}, not '{pair}'", hint=_example(option, kind))
        value = _finite(option, pair, number)
        allowed = _amount(option, pair, tolerance, value) if tilde else 0.0
        out[metric] = Limit(metric, kind, value, allowed, option)
    return list(out.values())


def tolerances_from(option: str, pairs: Iterable[str], extra: Collection[str] = ()) -> list[Tolerance]:
    """Read `METRIC=1e-4` or `METRIC=5%` as often as given; arguments and errors as for `limits_from`."""
    out: dict[str, Tolerance] = {}
    for pair in pairs:
        metric, text = _split(option, pair, "TOLERANCE", extra)
        if metric in out:
            raise UsageProblem(f"{option} is given twice for {metric}")
        amount = _amount(option, pair, text, 1.0)
        out[metric] = Tolerance(metric, amount, text.endswith("%"), text, option)
    return list(out.values())


def _split(option: str, pair: str, form: str, extra: Collection[str]) -> tuple[str, str]:
    """Return metric and text of `METRIC=TEXT`."""
    metric, equals, text = pair.partition("=")
    if not equals or not metric or not text:
        raise UsageProblem(f"{option} takes METRIC={form}, not '{pair}'", hint=_example(option, "max"))
    if not is_metric(metric) and metric not in extra:
        raise unknown_metric(option, metric, extra)
    return metric, text


def _example(option: str, kind: str) -> str:
    """Return a line to type."""
    return f"for example: {option} {'policy_loss=-0.0125~1e-4' if kind == 'expect' else 'approx_kl_k3=0.05'}"


def _finite(option: str, pair: str, text: str) -> float:
    """Read a finite number."""
    try:
        value = float(text)
    except ValueError:
        raise UsageProblem(f"{option} {pair}: '{text}' is not a number") from None
    if not math.isfinite(value):
        raise UsageProblem(
            f"{option} {pair}: a limit must be finite, not {text}",
            hint="a limit of nan or inf would never fail",
        )
    return value


def _amount(option: str, pair: str, text: str, value: float) -> float:
    """Read a tolerance, which a % makes a share of |value|."""
    share = text.endswith("%")
    amount = _finite(option, pair, text.removesuffix("%"))
    if amount < 0.0:
        raise UsageProblem(f"{option} {pair}: a tolerance is not negative")
    return amount / 100 * abs(value) if share else amount


def unknown_metric(option: str, name: str, extra: Collection[str] = ()) -> UsageProblem:
    """Return the failure of naming a metric that does not exist, with the nearest that does."""
    if name in ("policy_loss_by_agg", "policy_loss_by_agg_finite"):
        hint = f"it has one value for each aggregation: {name}.{AGGREGATIONS[0]}"
        return UsageProblem(f"{option}: '{name}' is a table, not a number", hint=hint)
    return UsageProblem(f"{option}: metric '{name}' is not known", hint=nearest(name, [*_metrics(), *extra]))


def is_metric(name: str) -> bool:
    """Whether a limit may name this metric: a number of `metrics`, or drift.NAME."""
    return name in _metrics()


@cache
def _metrics() -> dict[str, None]:
    """Return every name a limit may use, in the order of the catalogue."""
    tables = ("policy_loss_by_agg", "policy_loss_by_agg_finite")
    names = [name for name in METRICS if name not in tables]
    names += [f"{one.name}_finite" for one in METRICS.values() if one.needs and one.name not in tables]
    names += [f"{table}.{aggregation}" for table in tables for aggregation in AGGREGATIONS]
    drift = [*DRIFT_METRICS, *(f"{one.name}_finite" for one in DRIFT_METRICS.values() if one.needs)]
    return dict.fromkeys((*names, *(f"drift.{name}" for name in drift)))


def profile_limits(names: Iterable[str]) -> list[Limit]:
    """Return the limits of profiles.

    Raises
    ------
    UsageProblem
        A name that is no profile.
    """
    out = []
    for name in dict.fromkeys(names):
        choose("--profile", name, PROFILES)
        for metric, kind, value in PROFILES[name].limits:
            bound: LimitKind = "max" if kind == "max" else "min"
            out.append(Limit(metric, bound, value, source=f"profile {name}", profile=name))
    return out
