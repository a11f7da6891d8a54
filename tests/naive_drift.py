"""What `drift` should report, by loops and `math.fsum`; shares no code with the package."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

Number = float | None


@dataclass
class Pair:
    """One stored token; a side that is None is a null of the file."""

    a: Number
    b: Number
    sequence: Any = None
    valid: bool = True
    position: int | None = None


@dataclass
class Result:
    """Metrics over valid tokens whose values are finite, and the mean absolute term of each mean."""

    metrics: dict[str, Any] = field(default_factory=dict)
    scale: dict[str, float] = field(default_factory=dict)
    diffs: list[float] = field(default_factory=list)


def exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def k3(x: float) -> float:
    """exp(x) - 1 - x; by its series near 0."""
    if abs(x) < 2.0:
        return math.fsum(x**k / math.factorial(k) for k in range(2, 40))
    return exp(x) - 1.0 - x


def mean(values: list[float]) -> float:
    if any(math.isinf(x) for x in values):
        return sum(values)
    return math.fsum(values) / len(values)


def square(x: float) -> float:
    return x * x if abs(x) < 1e154 else math.inf


def quantile(values: list[float], share: float) -> float:
    """The smallest value whose cumulative share reaches it."""
    return sorted(values)[max(math.ceil(round(share * len(values), 9)), 1) - 1]


def is_finite(pair: Pair) -> bool:
    return pair.a is not None and pair.b is not None and math.isfinite(pair.a) and math.isfinite(pair.b)


def drift(pairs: list[Pair], tis_cap: float | None = None, mask: tuple[float, float] | None = None) -> Result:
    """Every metric over the tokens that are valid and finite on both sides."""
    kept = [pair for pair in pairs if pair.valid and is_finite(pair)]
    out = Result(diffs=[pair.a - pair.b for pair in kept])
    d, n = out.diffs, len(kept)
    if not n:
        return out
    w = [exp(x) for x in d]
    out.metrics = {
        "diff_p50": quantile(d, 0.5),
        "diff_abs_p50": quantile([abs(x) for x in d], 0.5),
        "diff_abs_p90": quantile([abs(x) for x in d], 0.9),
        "diff_abs_p99": quantile([abs(x) for x in d], 0.99),
        "diff_abs_max": max(abs(x) for x in d),
        "diff_min": min(d),
        "diff_max": max(d),
        "frac_abs_gt_0_5": sum(abs(x) > 0.5 for x in d) / n,
        "frac_abs_gt_1": sum(abs(x) > 1.0 for x in d) / n,
        "bit_equal_frac": sum(x == 0.0 for x in d) / n,
        "weight_min": min(w),
        "weight_max": max(w),
        "ess_frac": effective(d),
        "band_0_999_1_002": sum(0.999 <= x <= 1.002 for x in w) / n,
        "band_1pct": sum(0.99 <= x <= 1.01 for x in w) / n,
        "band_5pct": sum(0.95 <= x <= 1.05 for x in w) / n,
        "band_10pct": sum(0.9 <= x <= 1.1 for x in w) / n,
        "prob_diff_max": max(exp(max(p.a, p.b)) * -math.expm1(-abs(x)) for p, x in zip(kept, d, strict=True)),
        "frac_confident_gap": sum(abs(exp(p.a) - exp(p.b)) > 0.5 for p in kept) / n,
        "prob_pearson": pearson([exp(p.a) for p in kept], [exp(p.b) for p in kept]),
    }
    means = {
        "diff_mean": d,
        "diff_abs_mean": [abs(x) for x in d],
        "drift_kl_k1": [-x for x in d],
        "drift_kl_k2": [square(x) / 2.0 for x in d],
        "drift_kl_k3": [k3(x) for x in d],
        "weight_mean": w,
        "mult_prob_error": [exp(abs(x)) for x in d],
        "chi2_token": [square(x) for x in w],
    }
    if tis_cap is not None:
        means["tis_weight_mean"] = [min(x, tis_cap) for x in w]
        out.metrics["tis_frac_capped"] = sum(x > tis_cap for x in w) / n
    if mask is not None:
        means["masked_weight_mean"] = [x if mask[0] <= x <= mask[1] else 0.0 for x in w]
        out.metrics["masked_frac"] = sum(not mask[0] <= x <= mask[1] for x in w) / n
    for name, terms in means.items():
        out.metrics[name] = mean(terms)
        out.scale[name] = mean([abs(x) for x in terms])
    out.metrics["chi2_token"] -= 1.0
    out.scale["chi2_token"] += 1.0
    sequences(kept, out)
    return out


def effective(d: list[float]) -> float | None:
    """(sum w)^2 / (n sum w^2), the largest difference taken out first; None where a weight is infinite."""
    top = max(d)
    if top > 709.0 and len(set(d)) > 1:
        return None
    w = [exp(x - top) for x in d]
    return math.fsum(w) ** 2 / (len(w) * math.fsum(x * x for x in w))


def pearson(p: list[float], q: list[float]) -> float | None:
    if len(set(p)) < 2 or len(set(q)) < 2 or max(*p, *q) > 1e3:
        return None  # constant; or densities, of which nobody asks for it
    mp, mq = math.fsum(p) / len(p), math.fsum(q) / len(q)
    pp, qq = math.fsum((x - mp) ** 2 for x in p), math.fsum((x - mq) ** 2 for x in q)
    if math.sqrt(min(pp, qq) / len(p)) <= 1e-9 * max(mp, mq):
        return None  # too near to constant to say
    return math.fsum((x - mp) * (y - mq) for x, y in zip(p, q, strict=True)) / math.sqrt(pp) / math.sqrt(qq)


def sequences(kept: list[Pair], out: Result) -> None:
    """What is taken over sequences."""
    by: dict[Any, list[float]] = {}
    for pair, x in zip(kept, out.diffs, strict=True):
        if pair.sequence is not None:
            by.setdefault(pair.sequence, []).append(x)
    if not by:
        return
    sums = [math.fsum(one) for one in by.values()]
    means = [total / len(one) for total, one in zip(sums, by.values(), strict=True)]
    out.metrics["chi2_seq"] = mean([exp(2.0 * total) for total in sums]) - 1.0
    out.metrics["log_ppl_diff"] = mean([-x for x in means])
    out.metrics["ppl_ratio"] = mean([exp(-x) for x in means])
    out.metrics["ppl_ratio_of_means"] = exp(out.metrics["log_ppl_diff"])
    out.metrics["seq_diff_sum_min"], out.metrics["seq_diff_sum_max"] = min(sums), max(sums)
    out.scale["log_ppl_diff"] = mean([abs(x) for x in means])
