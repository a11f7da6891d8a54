"""`Measure`: one number over a batch, as a term of each token and the way it is reduced.

What frameworks call "clip fraction" or "approx KL" differs in three things: the term (`core.terms`), the
tokens or sequences that it is averaged over, and the divisor. A measure names all three; this module imports
no NumPy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

_TOKENS = re.compile(r"(token|stored)-(mean|sum|min|max|std|var)")
_SEQUENCES = re.compile(r"(seq|row)-(mean|sum|min|max|std|var)-token-(mean|sum|min|max)")
_OF_REDUCTION = ("ddof", "about", "by", "mean_eps", "before")
AGG = "agg"
"""The reduction that a `LossSpec` chooses with `agg`."""

VOTES = {"vote-mean": "mean", "vote-min": "min", "vote-max": "max"}
"""Over tokens, or over stored sequences where the tokens of each share one ratio, one vote each.

With the option by="weight": where they share one weight against the rollout policy."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """How a term becomes one number.

    Attributes
    ----------
    over : {"token", "stored", "seq", "row"}
        Valid tokens; all stored tokens, padding included; sequences with a valid token; all stored sequences,
        where one without a valid token counts as 0.
    statistic : {"mean", "sum", "min", "max", "std", "var"}
        Over these. Deviations have ddof 0 unless the measure says `ddof`.
    within : {"mean", "sum", "min", "max"}, optional
        What a sequence makes of its tokens' terms.
    """

    over: str
    statistic: str
    within: str | None = None


def reduction(name: str) -> Reduction:
    """Return the reduction of a name, such as "token-mean", "stored-mean" or "seq-mean-token-sum"."""
    if found := _TOKENS.fullmatch(name):
        return Reduction(found[1], found[2])
    if found := _SEQUENCES.fullmatch(name):
        return Reduction(found[1], found[2], found[3])
    raise UsageProblem(f"the reduction '{name}' is not known")


@dataclass(frozen=True, slots=True)
class Measure:
    """A term, reduced.

    Attributes
    ----------
    term : str
        A name of `core.terms.TERMS`.
    reduce : str
        As `reduction` reads it, "agg": the one that the `LossSpec` chooses, or one of `VOTES`.
    factor : float
        Multiplies the result.
    options : tuple of (name, value)
        Of the term; these are of the reduction: `ddof`, `by`, `mean_eps` (instead of the spec's), `before`
        (over the tokens before rules drop some).
    """

    term: str
    reduce: str = "token-mean"
    factor: float = 1.0
    options: tuple[tuple[str, Any], ...] = ()

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option, or the default."""
        return dict(self.options).get(name, default)

    @property
    def term_options(self) -> dict[str, Any]:
        """The options of the term."""
        return {name: value for name, value in self.options if name not in _OF_REDUCTION}


METRIC = "metric"
"""A term that is a metric of ppocli's own catalogue, named by the option `name`."""


STORED_SEQUENCES = "stored sequences"
"""A name for `own_metric`: how many sequences are stored, those without a valid token included."""


def own_metric(name: str, factor: float = 1.0) -> Measure:
    """Return the measure that is one of ppocli's own metrics, under the same loss."""
    return Measure(METRIC, "token-mean", factor, (("name", name),))


def measure(term: str, reduce: str = "token-mean", factor: float = 1.0, **options: Any) -> Measure:
    """Return a measure; `options` are those of its term."""
    if reduce != AGG and reduce not in VOTES:
        reduction(reduce)
    return Measure(term, reduce, factor, tuple(sorted(options.items())))


@dataclass(frozen=True, slots=True)
class PresetMetric:
    """A number under a framework's own name.

    Attributes
    ----------
    name : str
    text : str
        The definition, in a few words.
    measures : tuple of Measure
    combine : callable, optional
        (spec, *values of the measures) to the number. None: there is one measure, and it is the number.
    kind : {"loss", "clip fraction", "approx KL", "value loss", ""}
        The column of `parity` that it belongs to.
    optional : bool
        Left out where a column that it needs is missing; any other metric is null then.
    """

    name: str
    text: str
    measures: tuple[Measure, ...]
    combine: Callable[..., float] | None = None
    kind: str = ""
    optional: bool = False

    def value(self, spec: LossSpec, values: tuple[float, ...]) -> float:
        """Return the number, from the values of the measures."""
        return values[0] if self.combine is None else self.combine(spec, *values)


@dataclass(frozen=True, slots=True)
class Sums:
    """What is known of a measure's summands over a whole run.

    Attributes
    ----------
    n, n_stored : int
        Tokens or sequences that were added; stored ones of the same kind.
    total, square : float
        Sum, and sum of squares about the mean.
    low, high : float
        Smallest and largest; infinite the wrong way round without one.
    """

    n: int
    n_stored: int
    total: float
    square: float
    low: float
    high: float


def resolve(one: Measure, spec: LossSpec) -> Reduction:
    """Return the reduction of a measure under a spec."""
    if one.reduce in VOTES:
        weights = one.option("by") == "weight"
        shared = spec.rollout_is in ("sequence", "geometric") if weights else spec.shares_ratio
        return Reduction("row" if shared else "token", VOTES[one.reduce], "mean" if shared else None)
    if one.reduce != AGG:
        return reduction(one.reduce)
    # The mean over groups is the engine's own metric: only its columns are asked for here.
    over = "row" if spec.count_empty else "seq"
    return {
        "token-mean": Reduction("token", "mean"),
        "token-sum": Reduction("token", "sum"),
        "seq-mean-token-mean": Reduction(over, "mean", "mean"),
        "seq-mean-token-sum": Reduction(over, "mean", "sum"),
        "seq-mean-token-sum-norm": Reduction(over, "mean", "sum"),
        "group-mean": Reduction("token", "mean"),
    }[spec.agg]


def finish(one: Measure, sums: Sums, spec: LossSpec, horizon: float | None = None) -> float:
    """Return the value of a measure.

    A mean divides by the number of summands plus `spec.mean_eps`; under `agg` by `spec.denominator` where
    that is given, and is multiplied by `spec.loss_scale`; "seq-mean-token-sum-norm" also divides by the
    horizon. NaN where there is nothing to take a mean of.
    """
    how = resolve(one, spec)
    if how.statistic in ("min", "max"):
        edge = sums.low if how.statistic == "min" else sums.high
        if how.over == "row" and sums.n < sums.n_stored:
            edge = min(edge, 0.0) if how.statistic == "min" else max(edge, 0.0)
        return one.factor * edge if math.isfinite(edge) else math.nan
    if how.statistic in ("std", "var"):
        return one.factor * _deviation(one, sums, spec, how.statistic)
    n: float = sums.n_stored if how.over in ("stored", "row") else sums.n
    value = sums.total
    if one.reduce == AGG:
        value *= spec.loss_scale
        n = n if spec.denominator is None else spec.denominator
        if spec.agg == "seq-mean-token-sum-norm":
            value /= horizon or math.nan
        if spec.agg == "token-sum" and spec.denominator is None:
            return one.factor * value
    elif how.statistic == "sum":
        return one.factor * value
    if n == 0:
        return math.nan
    eps = one.option("mean_eps", spec.mean_eps) if how.over == "token" else 0.0
    return one.factor * value / (n + eps)


def _deviation(one: Measure, sums: Sums, spec: LossSpec, statistic: str) -> float:
    """Return the standard deviation or the variance of the summands."""
    ddof, n, square = one.option("ddof", 0), sums.n, sums.square
    if resolve(one, spec).over == "row":  # those without a token are 0
        n = sums.n_stored
        if sums.n:
            square += sums.total**2 / sums.n - sums.total**2 / n
    if n <= ddof:
        return math.nan
    # Equal values vary by nothing, whatever their mean is rounded to.
    variance = 0.0 if sums.low == sums.high and n == sums.n else max(square, 0.0) / (n - ddof)
    return variance if statistic == "var" else math.sqrt(variance)
