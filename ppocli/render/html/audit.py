"""The page of `audit`: what each format costs, against the sizes that are in the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ppocli.core.audit_metrics import AUDIT_METRICS
from ppocli.render.audit import audit_screen, recommendation_text
from ppocli.render.html.evaluation import distribution, headline
from ppocli.render.html.markup import Markup, tag
from ppocli.render.html.page import (
    Page,
    Section,
    findings_section,
    heading_of,
    metrics_section,
    provenance_section,
)
from ppocli.render.html.sizes import sizes_figure
from ppocli.render.html.tables import Terms, block_card, card, scroll, stacked
from ppocli.render.numbers import number_text, plural

if TYPE_CHECKING:
    from ppocli.core.audit_report import AuditReport, AuditResult
    from ppocli.render.blocks import Block

GRADES = {"ok": "good", "warning": "warn", "error": "bad"}
HEADLINE = ("policy_loss", "clip_frac", "clip_frac_active", "approx_kl_k3", "ratio_max", "ess_frac")
SMALLEST = 2.0**-24
"""Sizes of the log-ratio below this stand together."""


def audit_page(report: AuditReport, digits: int) -> Page:
    """Arrange an audit for a browser."""
    evaluation, audit = report.evaluation, report.audit
    screen, terms, document = audit_screen(report, digits), Terms(), report.to_dict()
    heading, lede = heading_of(screen.header[0])
    blocks = [
        one for one in screen.blocks if one.rows and one.columns[0].header not in ("finding", "|log_ratio|")
    ]
    said = [one.text for one in screen.blocks if not one.rows and not one.text.startswith("findings:")]
    verdicts, questions = blocks[0], [one for one in blocks[1:] if one.columns[0].kind == "metric"]
    others = [one for one in blocks[1:] if one.columns[0].kind != "metric"]
    sizes = _sizes(audit, evaluation.metrics)
    charts = [*distribution(evaluation)[:1], *([sizes] if sizes is not None else [])]
    return Page(
        kind="audit",
        heading=heading,
        lede=lede,
        verdict=_verdict(report),
        terms=terms,
        lines=screen.header[1:],
        figures=headline(evaluation.metrics, HEADLINE, digits),
        sections=(
            Section("formats", "Formats", [card(_verdicts(verdicts))]),
            findings_section(evaluation.findings),
            Section("distribution", "Distribution", [tag("div", *charts, class_="two")] if charts else []),
            Section("metrics", "Each format against float64", [
                block_card(one, terms, _define) for one in questions
            ]),
            Section("choice", "What the recommendation was chosen from", [
                *(block_card(one, terms) for one in others),
                card(*(tag("p", *_broken(text), class_="soft small") for text in said if text)),
            ]),
            metrics_section(document, terms),
            provenance_section(document),
        ),
    )  # fmt: skip


def _define(name: str) -> str | None:
    metric = AUDIT_METRICS.get(name)
    return None if metric is None else metric.text


def _broken(text: str) -> list[Markup]:
    """Return lines of text with breaks between them."""
    first, *more = text.split("\n")
    out = [tag("span", first)]
    for line in more:
        out += [tag("br"), tag("span", line)]
    return out


def _verdict(report: AuditReport) -> tuple[str, str, str]:
    """Return the gravest verdict and the recommendation."""
    audit = report.audit
    if not audit.formats or not audit.n_tokens:
        return "bad", "Nothing audited", "there is no valid token"
    counts = dict.fromkeys(GRADES, 0)
    for one in audit.formats.values():
        for _, answer in one.answers():
            counts[answer.verdict.level] += 1
    failed = "Failed" if report.status == "failed" else ""
    word = failed or {"ok": "Within all limits", "warning": "Warnings", "error": "Errors"}[audit.verdict]
    grade = "bad" if failed else GRADES[audit.verdict]
    said = ", ".join(f"{n} {level}" for level, n in counts.items() if n)
    formats = f"{plural(len(audit.formats), 'format')}, {plural(sum(counts.values()), 'verdict')}"
    return grade, word, f"{formats}: {said}; {recommendation_text(audit)}"


def _verdicts(block: Block) -> Markup:
    """Return the table of verdicts, each as a coloured word."""
    kinds = ("name", "keep", None, "text")
    body = [
        (tag("span", name), question, tag("span", level, class_=f"chip {GRADES.get(level, 'info')}"), why)
        for name, question, level, why in block.rows
    ]
    heads = [(one.header, kind) for one, kind in zip(block.columns, kinds, strict=True)]
    return scroll(stacked(heads, body), "Verdicts")


def _sizes(audit: AuditResult, metrics: Mapping[str, Any]) -> Markup | None:
    """Return |log_ratio| by octave with the step of each format at the median |log_prob|."""
    bars: list[tuple[float, float | None, int]] = []
    small = 0
    for start, count in audit.histogram:
        if 2.0 * start <= SMALLEST:
            small += count
        else:
            bars.append((start, 2.0 * start, count))
    if not bars and not small:
        return None
    first = bars[0][0] if bars else SMALLEST
    bars.insert(0, (0.0, first, small))
    bars = _without_gaps(bars)
    steps = [
        (name, float(step))
        for name, one in audit.formats.items()
        if (step := one.storage.metrics.get("step_p50", one.storage.metrics.get("step_p50_finite")))
    ]
    median = audit.sizes.get("log_prob_abs_p50")
    at = "the median |log_prob|" + (f", {number_text(median, 3)}" if median is not None else "")
    return sizes_figure(bars, metrics, steps, at)


def _without_gaps(bars: list[tuple[float, float | None, int]]) -> list[tuple[float, float | None, int]]:
    """Return the same bars with empty ones where an octave is left out."""
    out = bars[:1]
    for low, high, count in bars[1:]:
        while (end := out[-1][1]) is not None and end < low:
            out.append((end, 2.0 * end, 0))
        out.append((low, high, count))
    return out
