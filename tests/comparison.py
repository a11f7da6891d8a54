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
        if value is None and "_finite" not in name:
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
    """What has no agreed kind of null.

    Quantiles among NaN, deviations whose squares overflow, the explained variance of returns that do not
    vary.
    """
    vague = ("ratio_p", "explained_variance", "ess_frac")
    return name.startswith(vague) or name.endswith(("_std", "_se"))


def matches(name: str, got: Any, value: Any, want: naive.Result, loose: float) -> bool:
    if name.startswith("ratio_p"):
        return quantile_matches(got, value)
    scale = want.scale.get(name)
    if scale is not None and scale > HUGE and got is None:
        return True
    if name.startswith(("ess_frac", "ratio_max")) and mean_ratio(want, name) > HUGE:
        return True
    if value is None or got is None:
        return value is got
    if isinstance(value, int):
        return bool(got == value)
    if scale is not None:
        return close(got, value, loose * MEAN_BOUND * scale + sequence_error(name, want) * scale)
    bound = loose * 1e-12 * abs(value) + spread_error(name, want)
    if name.startswith("seq_log_ratio"):
        bound += sequence_error(name, want)
    elif name.startswith("seq_ratio"):
        bound += sequence_error(name, want) * abs(value)
    elif name.startswith("explained_variance"):
        bound += 1e-12  # of the quotient that is taken from 1
    return close(got, value, bound)


def mean_ratio(want: naive.Result, name: str) -> float:
    """The mean of exp(log_ratio), whatever the clamp."""
    return want.scale.get("approx_kl_k3_finite" if name.endswith("_finite") else "approx_kl_k3", 0.0)


def close(got: float, value: float | None, bound: float) -> bool:
    return value is not None and abs(got - value) <= bound + 5e-324


def sequence_error(name: str, want: naive.Result) -> float:
    """The error of the sum of a sequence's log-ratios, and with it the relative one of its ratio."""
    if not name.startswith("seq_"):
        return 0.0
    suffix = "_finite" if name.endswith("_finite") else ""
    return 2.0**-51 * want.metrics["n_tokens"] * want.scale.get(f"approx_kl_k1{suffix}", 0.0)


def spread_error(name: str, want: naive.Result) -> float:
    """The error of a deviation that is small beside the values it is taken of.

    A rounding of the values; for the losses, which are centred on the advantages, of their squares.
    """
    if not name.removesuffix("_finite").endswith(("_std", "_se")):
        return 0.0
    suffix = "_finite" if name.endswith("_finite") else ""
    stem = name.removesuffix("_finite").removesuffix("_std").removesuffix("_se")
    if stem == "policy_loss":
        size = 1.0 if want.settings.adv_norm == "batch" else want.scale.get(f"adv_mean{suffix}", 0.0)
        return 2.0**-24 * max(size, want.scale.get("adv_mean", 0.0))
    scale = want.scale.get(f"{stem}_mean{suffix}", want.scale.get(f"{stem}{suffix}", 0.0))
    return 1e-14 * scale


def quantile_matches(got: float | None, value: float | None) -> bool:
    """Within half a bin; null where the exact quantile lies in an end bin, beyond +-32 nats."""
    if value is None or value == 0.0 or abs(math.log(value)) > 32.0:
        return got is None
    return got is not None and abs(got / value - 1.0) <= QUANTILE_BOUND * (1 + 1e-9)
