"""What an audit found, as frozen values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ppocli.core.audit_metrics import ARITHMETIC, STORAGE
from ppocli.core.shown import Shown
from ppocli.core.verdicts import Candidate, Verdict, worst_of
from ppocli.errors import ExitCode

if TYPE_CHECKING:
    from ppocli.core.report import EvalReport, NullNote, Number, Place


@dataclass(frozen=True, slots=True)
class Flip:
    """The token with the largest change of the ratio among those whose clip decision flipped.

    Attributes
    ----------
    where : Place
    direction : {"on", "off"}
        Clipped in the format only, or in float64 only.
    ratio, reference_ratio : float
        In the format and in float64; None where infinite or NaN.
    """

    where: Place
    direction: Literal["on", "off"]
    ratio: Number
    reference_ratio: Number


@dataclass(frozen=True, slots=True)
class Answer:
    """One format under one question.

    Attributes
    ----------
    metrics : mapping of name to number or None
        Of `AUDIT_METRICS`; with `_finite` twins where tokens were left out.
    nulls : mapping of name to NullNote
    verdict : Verdict
    worst_flip : Flip, optional
    """

    metrics: Mapping[str, Number]
    nulls: Mapping[str, NullNote]
    verdict: Verdict
    worst_flip: Flip | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return metrics, verdict and worst flip as one mapping."""
        body: dict[str, Any] = dict(self.metrics)
        body["verdict"], body["reasons"] = self.verdict.level, list(self.verdict.reasons)
        if self.worst_flip is not None:
            flip = asdict(self.worst_flip)
            flip["where"] = {key: one for key, one in flip["where"].items() if one is not None}
            body["worst_flip"] = flip
        return body


@dataclass(frozen=True, slots=True)
class FormatAudit:
    """One format: what storage in it costs, and arithmetic, where there is any in it."""

    storage: Answer
    arithmetic: Answer | None = None

    def answers(self) -> Iterator[tuple[str, Answer]]:
        """Yield each question with its answer."""
        yield STORAGE, self.storage
        if self.arithmetic is not None:
            yield ARITHMETIC, self.arithmetic


@dataclass(frozen=True, slots=True)
class Reduction:
    """Sums of the token losses, rounded to float32, in several orders.

    Attributes
    ----------
    exact : float
        To within 2^-50 of the sum of their sizes.
    sums : mapping of order to number or None
        "naive", "blocked", "pairwise", "compensated": in float32; "bfloat16": a naive sum in bfloat16.
    stops : mapping of "naive", "bfloat16" to int or None
        After how many tokens the sum stood still for good, None where it moved to the end.
    idle : mapping of "naive", "bfloat16" to int
        Terms but 0 that did not move the sum.
    """

    exact: Number
    sums: Mapping[str, Number]
    stops: Mapping[str, int | None]
    idle: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Everything an audit adds to an evaluation.

    Attributes
    ----------
    formats : mapping of name to FormatAudit
    recommendation : Candidate, optional
        None where a token was left out, or there is none.
    candidates : tuple of Candidate
        What was compared for it.
    sizes : mapping of name to number or None
        "log_prob_abs_p50", "log_prob_abs_p99", "log_ratio_abs_p50", "log_ratio_abs_p99", right to 3 %.
    histogram : tuple of (lower end, count)
        |log_ratio| by powers of two, ascending, ends without tokens left out; 0.0: below 2^-40.
    holds : mapping of role to tuple of str
        Narrow formats that hold every value of a log-prob column.
    reduction : Reduction, optional
    n_tokens, n_left_out : int
        Tokens audited; valid tokens with a value that is not finite.
    """

    formats: Mapping[str, FormatAudit]
    recommendation: Candidate | None
    candidates: tuple[Candidate, ...]
    sizes: Mapping[str, Number]
    histogram: tuple[tuple[float, int], ...] = ()
    holds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reduction: Reduction | None = None
    n_tokens: int = 0
    n_left_out: int = 0

    @property
    def verdict(self) -> str:
        """The gravest verdict."""
        return worst_of(one.verdict.level for each in self.formats.values() for _, one in each.answers())

    def places(self) -> Iterator[Place]:
        """Yield every place that is named."""
        for one in self.formats.values():
            for _, answer in one.answers():
                if answer.worst_flip is not None:
                    yield answer.worst_flip.where

    def with_places(self, found: Mapping[Place, Place]) -> AuditResult:
        """Return the same with places replaced."""

        def swap(answer: Answer) -> Answer:
            flip = answer.worst_flip
            if flip is None:
                return answer
            return replace(answer, worst_flip=replace(flip, where=found.get(flip.where, flip.where)))

        formats = {
            name: FormatAudit(swap(one.storage), None if one.arithmetic is None else swap(one.arithmetic))
            for name, one in self.formats.items()
        }
        return replace(self, formats=formats)

    def nulls(self) -> dict[str, NullNote]:
        """Return a note for every null, under `audit.FORMAT.QUESTION.NAME`."""
        return {
            f"audit.{name}.{question}.{metric}": note
            for name, one in self.formats.items()
            for question, answer in one.answers()
            for metric, note in answer.nulls.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the mapping from format to questions."""
        return {
            name: {question: answer.to_dict() for question, answer in one.answers()}
            for name, one in self.formats.items()
        }


@dataclass(frozen=True, slots=True, repr=False)
class AuditReport(Shown):
    """The result of `ppocli audit`.

    Attributes
    ----------
    evaluation : EvalReport
        The reference: every metric of the three columns in float64. Its settings hold those of the audit.
    audit : AuditResult
    exit_code : int
    """

    evaluation: EvalReport
    audit: AuditResult
    exit_code: int = 0

    @property
    def status(self) -> str:
        """`failed` where the gate failed, else that of the evaluation."""
        return "failed" if self.exit_code == ExitCode.GATE_FAILED else self.evaluation.status

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `-f json` prints."""
        audit = self.audit
        base = replace(self.evaluation, groups=(), audit=audit).to_dict()
        run = base.pop("run")
        body = {
            **base,
            "kind": "audit",
            "status": self.status,
            "exit_code": int(self.exit_code),
            "verdict": audit.verdict,
            "recommendation": asdict(audit.recommendation) if audit.recommendation else None,
            "candidates": [asdict(one) for one in audit.candidates],
            "sizes": dict(audit.sizes),
            "log_ratio_histogram": [{"from": start, "count": count} for start, count in audit.histogram],
            "holds": {role: list(names) for role, names in audit.holds.items()},
        }
        if audit.reduction is not None:
            body["reduction"] = asdict(audit.reduction)
        return {**body, "run": run}
