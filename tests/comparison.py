"""Compares a report with what the loops of `naive` give, each metric to the accuracy it promises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import naive

MEAN_BOUND = 2.0**-47
"""The promised error of a mean, as a share of mean |term|."""

QUANTILE_BOUND = math.exp(1 / 256) - 1.0
"""Half a bin of the histogram, 1/128 nat wide."""

HUGE = 1e300
"""Above this a block's sum may overflow where the exact mean would not."""


def differences(
    metrics: Mapping[str, Any], nulls: Mapping[str, Any], want: naive.Result, *, loose: float = 1.0
) -> list[str]:
    """Every metric that is missing, unknown, null without need, or off by more than its bound.

    `loose` multiplies the bounds where advantages are normalised: division by a small deviation magnifies
    the rounding of their mean.
    """
    got, wanted = flat(metrics), flat(want.metrics)
    out = [f"{name} is not reported" for name in sorted(wanted.keys() - got.keys())]
    out += [f"{name} is not known" for name in sorted(got.keys() - wanted.keys())]
    for name in sorted(wanted.keys() & got.keys()):
        if not matches(name, got[name], wanted[name], want, loose):
            out.append(f"{name} = {got[name]!r}, expected {wanted[name]!r}")
    for name, value in got.items():
        if value is None and not name.endswith("_finite"):
            note = nulls.get(name)
            kind = None if note is None else note.nonfinite
            if note is None or not note.reason:
                out.append(f"{name} is null without a reason")
            elif kind != want.nonfinite.get(name) and not uncertain(name):
                out.append(f"{name} would have been {kind}, expected {want.nonfinite.get(name)}")
    return out


def flat(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Nested names dotted."""
    out: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            out.update({f"{name}.{key}": one for key, one in value.items()})
        else:
            out[name] = value
    return out


def uncertain(name: str) -> bool:
    """Quantiles among NaN, deviations whose squares overflow, the largest of -inf only: no agreed kind."""
    return name.startswith(("ratio_p", "seq_log_ratio_m")) or name.endswith(("_std", "_se"))


def matches(name: str, got: Any, value: Any, want: naive.Result, loose: float) -> bool:
    if name.startswith("ratio_p"):
        return quantile_matches(got, value, want.settings.log_ratio_clamp)
    scale = want.scale.get(name)
    if scale is not None and scale > HUGE:
        return got is None or close(got, value, MEAN_BOUND * scale)
    if value is None or got is None:
        return value is got
    if isinstance(value, int):
        return bool(got == value)
    if scale is not None:
        return close(got, value, loose * MEAN_BOUND * scale)
    return close(got, value, loose * 1e-12 * abs(value) + spread_error(name, want))


def close(got: float, value: float | None, bound: float) -> bool:
    return value is not None and abs(got - value) <= bound + 5e-324


def spread_error(name: str, want: naive.Result) -> float:
    """The error of a deviation that is small beside the values it is taken of.

    A rounding of the values; for the losses, which are centred on the advantages, of their squares.
    """
    if name.startswith("policy_loss_se"):
        return (
            4.0 * math.sqrt(2.0**-52) * want.scale.get(name.replace("policy_loss_se", "unclipped_loss"), 0.0)
        )
    if not name.endswith(("_std", "_se")):
        return 0.0
    stem = name.removesuffix("_std").removesuffix("_se")
    return 1e-14 * want.scale.get(f"{stem}_mean", want.scale.get(stem, 0.0))


def quantile_matches(got: float | None, value: float | None, clamp: float | None) -> bool:
    """Within half a bin; null where the exact quantile lies in an end bin, beyond +-32 nats.

    A clamp moves what lies in an end bin to its own value.
    """
    if value is None or value == 0.0 or abs(math.log(value)) > 32.0:
        return got is None
    if got is None:
        return clamp is not None and math.isclose(abs(math.log(value)), clamp)
    return abs(got / value - 1.0) <= QUANTILE_BOUND * (1 + 1e-9)
