"""Audits made by hand: what the engine would return for data whose numbers are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import reports

from ppocli.core.audit_metrics import metrics_of
from ppocli.core.audit_report import Answer, AuditReport, AuditResult, Flip, FormatAudit, Reduction
from ppocli.core.audit_spec import AuditOptions
from ppocli.core.report import NullNote, Place
from ppocli.core.verdicts import Candidate, Verdict


def answer(question: str, start: float, **changes: Any) -> Answer:
    """Metrics that count up from a number, so that each is told from every other."""
    metrics = {
        metric.name: int(start) + k if metric.unit == "count" else start + k / 64
        for k, metric in enumerate(metrics_of(question))
    }
    return replace(Answer(metrics, {}, Verdict("ok")), **changes)


def null(question: str, name: str, note: NullNote, **changes: Any) -> Answer:
    """The same with one null."""
    made = answer(question, 7.0)
    return replace(made, metrics={**made.metrics, name: None}, nulls={name: note}, **changes)


def result(**changes: Any) -> AuditResult:
    """Two floating-point formats and int8."""
    flip = Flip(Place("rollouts.parquet", 7, 3), "on", 1.25, 1.1875)
    warned = Verdict("warning", ("clip decision flips: 1 token (0.14 of all)",))
    failed = Verdict("error", ("policy_loss is not finite",))
    overflow = null("arithmetic", "policy_loss", NullNote("not finite in this format", "inf"), verdict=failed)
    made = AuditResult(
        formats={
            "bfloat16": FormatAudit(
                answer("storage", 1.0, verdict=warned, worst_flip=flip), answer("arithmetic", 2.0)
            ),
            "float16": FormatAudit(answer("storage", 3.0), overflow),
            "int8": FormatAudit(answer("storage", 4.0)),
        },
        recommendation=Candidate("float16", "float32", 0, 0.000125),
        candidates=(
            Candidate("bfloat16", "float32", None, None),
            Candidate("bfloat16", "float64", 3, 0.5),
            Candidate("float16", "float32", 0, 0.000125),
            Candidate("float16", "float64", 0, 0.0625),
        ),
        sizes={
            "log_prob_abs_p50": 1.5,
            "log_prob_abs_p99": 24.0,
            "log_ratio_abs_p50": 0.03125,
            "log_ratio_abs_p99": 0.25,
        },
        histogram=((2.0**-6, 1), (2.0**-5, 2), (2.0**-4, 0), (2.0**-3, 4)),
        holds={"log_probs": ("bfloat16",)},
        reduction=Reduction(
            exact=7.0,
            sums={"naive": 6.5, "blocked": 7.0, "pairwise": 7.0, "compensated": 7.0, "bfloat16": 8.0},
            stops={"naive": 5, "bfloat16": None},
            idle={"naive": 2, "bfloat16": 1},
        ),
        n_tokens=7,
    )
    return replace(made, **changes)


def report(**changes: Any) -> AuditReport:
    """An audit of 7 tokens."""
    audit = result(**changes)
    options = AuditOptions(formats=tuple(audit.formats))
    evaluation = reports.report()
    return AuditReport(
        replace(evaluation, audit=audit, groups=(), settings={**evaluation.settings, **options.to_dict()}),
        audit,
    )
