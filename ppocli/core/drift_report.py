"""What `drift` found, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ppocli.core.check_report import Check, failed
from ppocli.core.report import (
    SCHEMA_VERSION,
    Finding,
    Group,
    InputReport,
    NullNote,
    Number,
    Place,
    Skipped,
    pruned,
)
from ppocli.core.shown import Shown


@dataclass(frozen=True, slots=True)
class WorstPair:
    """One of the tokens with the largest |a - b|. An infinite weight is None."""

    where: Place
    a: float
    b: float
    diff: float
    weight: Number


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens that share something: a class of positions or of probabilities, a step.

    Attributes
    ----------
    low, high : number, optional
        Bounds of the class: positions `low` to `high` inclusive, or `low` <= exp(b) < `high`. None: open.
    step : int or str, optional
        In `by_step` None stands for the tokens without a step.
    n : int
        Tokens.
    diff_mean, diff_abs_mean, drift_kl_k3 : float, optional
        None where there is no token, or where it is not kept.
    """

    n: int
    diff_mean: float | None
    diff_abs_mean: float | None
    low: Number = None
    high: Number = None
    drift_kl_k3: float | None = None
    step: int | str | None = None


@dataclass(frozen=True, slots=True)
class SequencePart:
    """One of the sequences with the largest sum of |a - b|; `share` is its part of the whole sum."""

    where: Place
    n: int
    diff_mean: float
    diff_abs_mean: float
    drift_kl_k3: float
    share: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of the histogram: tokens with low < |a - b| <= high; where low is 0, those of exactly 0 too."""

    low: float
    high: Number
    n: int


@dataclass(frozen=True, slots=True)
class Correction:
    """What one rule of importance weights would do.

    Attributes
    ----------
    level, mode : str
    low, cap : float, optional
    touched_frac : float, optional
        Tokens whose weight the rule changes.
    seq_touched_frac : float, optional
        The same of sequences, at the levels of sequences.
    weight_mean, ess_frac : float, optional
        Of the weights it leaves, over tokens; what is masked counts with 0.
    loss, loss_change : float, optional
        Mean over all tokens of the clipped surrogate times the weight, and less that without weights.
    """

    level: str
    mode: str
    low: float | None
    cap: float | None
    touched_frac: float | None
    seq_touched_frac: float | None
    weight_mean: float | None
    ess_frac: float | None
    loss: float | None = None
    loss_change: float | None = None


@dataclass(frozen=True, slots=True)
class Versus:
    """Another comparison of the same report: two of three policies, or a role of two files."""

    name: str
    a: str
    b: str
    metrics: Mapping[str, Any]
    nulls: Mapping[str, NullNote]


@dataclass(frozen=True, slots=True, repr=False)
class DriftReport(Shown):
    """The result of `ppocli drift`.

    Attributes
    ----------
    settings : mapping
        Every option that changes a number.
    a, b : str
        What is compared: roles, or roles of two sides.
    inputs, skipped : tuple
        Side a first.
    metrics : mapping of name to number or None
        Names are those of `ppocli.core.drift_metrics`.
    nulls : mapping of name to NullNote
    by_position, by_probability, by_step : tuple of Part
    sequences : tuple of SequencePart
    histogram : tuple of Bar
    corrections : tuple of Correction
    comparisons : tuple of Versus
    checks : tuple of Check
        The limits that were given, judged over all inputs.
    floor : mapping, optional
        The noise floor: `path`, its metrics, and how many times it this is.
    notes : tuple of str
        What is to be known of the comparison as a whole: masks that differ, a loss over a part of the tokens.
    findings, groups, worst : tuple
    places : mapping of name to Place
    run : mapping
        All that is not deterministic.
    """

    settings: Mapping[str, Any]
    a: str
    b: str
    inputs: tuple[InputReport, ...]
    skipped: tuple[Skipped, ...]
    metrics: Mapping[str, Any]
    nulls: Mapping[str, NullNote]
    by_position: tuple[Part, ...] = ()
    by_probability: tuple[Part, ...] = ()
    by_step: tuple[Part, ...] = ()
    sequences: tuple[SequencePart, ...] = ()
    histogram: tuple[Bar, ...] = ()
    corrections: tuple[Correction, ...] = ()
    comparisons: tuple[Versus, ...] = ()
    checks: tuple[Check, ...] = ()
    floor: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    groups: tuple[Group, ...] = ()
    worst: tuple[WorstPair, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    exit_code: int = 0
    run: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def status(self) -> str:
        """`failed` where a check did, else `findings` when a rule of level warning or error was hit."""
        if failed(self.checks):
            return "failed"
        return "findings" if any(one.severity != "info" for one in self.findings) else "ok"

    def with_exit_code(self, code: int) -> DriftReport:
        """Return the same report with another exit code."""
        return replace(self, exit_code=int(code))

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `-f json` prints; keys without content are left out."""
        from ppocli import __version__

        body = {**asdict(self), "checks": [one.to_dict() for one in self.checks]}
        run = body.pop("run")
        exit_code = body.pop("exit_code")
        head = {
            "schema_version": SCHEMA_VERSION,
            "tool": "ppocli",
            "version": __version__,
            "kind": "drift",
            "status": self.status,
            "exit_code": exit_code,
        }
        always = ("settings", "a", "b", "inputs", "skipped", "metrics", "nulls", "findings")
        kept = {key: value for key, value in body.items() if value or key in always}
        return {**head, **{key: _part(key, value) for key, value in kept.items()}, "run": run}

    def short(self) -> dict[str, Any]:
        """Return what `eval` shows of it: the sides, the metrics and their notes."""
        document = self.to_dict()
        return {key: document[key] for key in ("a", "b", "metrics", "nulls")}


def _part(key: str, value: Any) -> Any:
    """Leave out fields that have no value; a None in `metrics` or `settings` is one."""
    if key in ("metrics", "settings", "floor", "checks", "notes"):
        return value
    if key in ("by_position", "by_probability", "by_step", "corrections"):
        kept = {"step"} if key == "by_step" else set()
        return [
            {name: one for name, one in part.items() if one is not None or name in kept} for part in value
        ]
    return pruned(value)
