"""The content of the `audit` screen, apart from how it is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ppocli.core.audit_metrics import QUESTIONS, metrics_of
from ppocli.core.audit_spec import ACCUMULATIONS
from ppocli.core.verdicts import LIMIT_TEXTS
from ppocli.render.bars import bar
from ppocli.render.blocks import Block, Column, Screen
from ppocli.render.header import header_lines, place_text
from ppocli.render.numbers import cell_text, count_text, number_text, plural
from ppocli.render.screen import findings_block

if TYPE_CHECKING:
    from ppocli.core.audit_report import Answer, AuditReport, AuditResult, Reduction
    from ppocli.core.report import EvalReport, Number

TABLE_FORMATS = 3
"""Formats beside each other in a table of 80 columns."""

BAR_WIDTH = 24
LEAST_SHARE = 1e-3
"""Octaves with fewer tokens at the small end of the chart become one row."""

SHORT_METRICS = {
    "policy_loss_error": "loss error",
    "clip_flips": "clip flips",
    "rounded_to_zero_frac": "log-ratios\nmade 0",
    "grad_error": "gradient\nerror",
}
"""What the short form has, with the heads of its columns."""


def audit_screen(report: AuditReport, digits: int = 6, *, ascii_only: bool = False) -> Screen:
    """Arrange an audit for reading.

    Parameters
    ----------
    digits : int
        Significant digits of real numbers.
    ascii_only : bool
        Draw bars with ASCII.
    """
    audit, settings = report.audit, report.evaluation.settings
    tolerance = number_text(settings["loss_tolerance"])
    header = [
        *header_lines(report.evaluation),
        f"token losses add up in {ACCUMULATIONS[settings['accumulate']]}",
        f"loss tolerance {tolerance} of the mean |token loss|; advantages "
        + ("stored in the format too" if settings["with_advantages"] else "as they are"),
    ]
    if audit.n_left_out:
        header.append(f"{plural(audit.n_left_out, 'token')} left out: a value is not finite")
    blocks = [_verdicts(audit)]
    for question in QUESTIONS:
        blocks += _question(report.evaluation, audit, question, digits)
    blocks += _chart(audit, digits, ascii_only)
    blocks += [*_reduction(audit.reduction, audit.n_tokens, digits), *_candidates(audit, digits)]
    blocks += [findings_block(report.evaluation.findings), _limits()]
    return Screen(tuple(header), tuple(blocks))


def short_blocks(audit: AuditResult, digits: int) -> list[Block]:
    """Return the short form: one table of both questions, and the recommendation."""
    heads = (Column(head, "number") for head in SHORT_METRICS.values())
    columns = (Column("precision"), Column("verdict"), *heads)
    rows = [
        (
            f"{name} {question}",
            answer.verdict.level,
            *(_cell(answer, metric, digits) for metric in SHORT_METRICS),
        )
        for name, one in audit.formats.items()
        for question, answer in one.answers()
    ]
    return [Block(columns, tuple(rows)), Block(text=recommendation_text(audit))]


def _verdicts(audit: AuditResult) -> Block:
    """Return the verdict on each format under each question, with what led to it."""
    columns = (Column("format"), Column("question"), Column("verdict"), Column("why", "note"))
    rows = []
    for name, one in audit.formats.items():
        for question, answer in one.answers():
            lines = list(answer.verdict.reasons) or ["within all limits"]
            if answer.worst_flip is not None:
                flip = answer.worst_flip
                lines.append(
                    f"--> worst flip: {place_text(flip.where)}, ratio {_ratio(flip.reference_ratio)} "
                    f"becomes {_ratio(flip.ratio)}"
                )
            rows.append((name, question, answer.verdict.level, "\n".join(lines)))
    return Block(columns, tuple(rows))


def _ratio(value: Number) -> str:
    return "inf" if value is None else number_text(value)


def _question(evaluation: EvalReport, audit: AuditResult, question: str, digits: int) -> Iterator[Block]:
    """Yield the tables of one question, some formats each; the first column is float64."""
    answers = [(name, dict(one.answers())) for name, one in audit.formats.items()]
    asked = [(name, every[question]) for name, every in answers if question in every]
    for start in range(0, len(asked), TABLE_FORMATS):
        part = asked[start : start + TABLE_FORMATS]
        columns = (Column(question, "metric"), *(Column(name, "number") for name in ("float64", *dict(part))))
        rows = [
            (
                metric.name,
                _reference_cell(evaluation, metric.name, digits),
                *(_cell(answer, metric.name, digits) for _, answer in part),
            )
            for metric in metrics_of(question)
        ]
        yield Block(columns, tuple(rows), title=f"{question}: {QUESTIONS[question]}" if start == 0 else "")


def _reference_cell(evaluation: EvalReport, name: str, digits: int) -> str:
    """Return the value of a metric in float64, where `eval` has it."""
    metrics = evaluation.metrics
    if name not in metrics:
        return ""
    value = metrics[name] if metrics[name] is not None else metrics.get(f"{name}_finite")
    return cell_text(value, digits)


def _cell(answer: Answer, name: str, digits: int) -> str:
    """Return a value; where tokens were left out, the one over those that remain."""
    twin = f"{name}_finite"
    key = twin if twin in answer.metrics else name
    value, note = answer.metrics[key], answer.nulls.get(key)
    kind = f" ({note.nonfinite})" if note is not None and note.nonfinite else ""
    # Four columns of small signed numbers: one digit less and they fit into 80 columns.
    return cell_text(value, max(digits - name.endswith("_error"), 1)) + kind


def _chart(audit: AuditResult, digits: int, ascii_only: bool) -> list[Block]:
    """Return |log_ratio| by powers of two, with each format's step where it falls."""
    octaves = _merged(audit.histogram, audit.n_tokens)
    if not octaves:
        return []
    steps = [
        (step, name)
        for name, one in audit.formats.items()
        if (step := one.storage.metrics.get("step_p50", one.storage.metrics.get("step_p50_finite")))
    ]
    most = max(count for _, _, count in octaves)
    rows = []
    for start, end, count in octaves:
        here = [f"{name} step {number_text(step, 3)}" for step, name in steps if start <= step < end]
        rows.append(
            (
                f"{number_text(start, 3)} to {number_text(end, 3)}",
                f"{count / audit.n_tokens:.2%}",
                bar(count / most, BAR_WIDTH, ascii_only=ascii_only),
                ", ".join(here),
            )
        )
    columns = (Column("|log_ratio|"), Column("tokens", "number"), Column(""), Column("", "note"))
    sizes = {
        name: number_text(value, 3) if value is not None else "null" for name, value in audit.sizes.items()
    }
    outside = [
        f"{name} {number_text(step, 3)}" for step, name in steps if not octaves[0][0] <= step < octaves[-1][1]
    ]
    note = (
        f"|log_probs|: median {sizes['log_prob_abs_p50']}, 99 % quantile {sizes['log_prob_abs_p99']}; "
        f"|log_ratio|: median {sizes['log_ratio_abs_p50']}, 99 % quantile {sizes['log_ratio_abs_p99']}; "
        "a step can hide drift of up to half its size"
    )
    if outside:
        note += f"; steps outside the chart: {', '.join(outside)}"
    title = "drift against the formats' steps at the median |log_prob|"
    return [Block(columns, tuple(rows), title), Block(text=note)]


def _merged(histogram: Sequence[tuple[float, int]], n_tokens: int) -> list[tuple[float, float, int]]:
    """Return (start, end, count) of the octaves, the rare ones at the small end taken together."""
    octaves = [(start, 2.0 * start if start else 2.0**-40, count) for start, count in histogram]
    while len(octaves) > 1 and octaves[0][2] + octaves[1][2] < LEAST_SHARE * n_tokens:
        (_, _, first), (_, end, second) = octaves[:2]
        octaves[:2] = [(0.0, end, first + second)]
    return octaves


REDUCTION_NOTES = {
    "naive": "one after the other",
    "blocked": "eight lanes, runs of 256 in order",
    "pairwise": "eight lanes, runs of 256 in a tree",
    "compensated": "one after the other, errors carried along",
    "bfloat16": "bfloat16, one after the other",
}


def _reduction(reduction: Reduction | None, n_tokens: int, digits: int) -> list[Block]:
    """Return the sums of the same losses in several orders."""
    if reduction is None:
        return []
    columns = (
        Column("float32 sum of the losses", "name"),
        Column("mean", "number"),
        Column("error", "number"),
        Column("how", "note"),
    )
    exact = reduction.exact
    rows = [
        ("exact", cell_text(None if exact is None else exact / n_tokens, digits), "", "of the same terms")
    ]
    for name, total in reduction.sums.items():
        mean = None if total is None else total / n_tokens
        error = None if total is None or exact is None else (total - exact) / n_tokens
        notes = [REDUCTION_NOTES[name]]
        if reduction.stops.get(name) is not None:
            notes.append(f"stands still after {count_text(int(reduction.stops[name] or 0))} tokens")
        elif reduction.idle.get(name):
            notes.append(f"{plural(reduction.idle[name], 'term')} did not move it")
        rows.append((name, cell_text(mean, digits), cell_text(error, digits), "; ".join(notes)))
    return [Block(columns, tuple(rows), title="order of the sum: the losses rounded to float32")]


def _candidates(audit: AuditResult, digits: int) -> list[Block]:
    """Return what the recommendation was chosen from."""
    columns = (
        *(Column(h) for h in ("storage", "arithmetic")),
        *(Column(h, "number") for h in ("bytes", "clip flips", "loss error")),
        Column("", "note"),
    )
    rows = []
    for one in audit.candidates:
        chosen = one == audit.recommendation
        known = one.clip_flips is not None
        rows.append(
            (
                one.storage,
                one.arithmetic,
                count_text(one.n_bytes),
                count_text(one.clip_flips) if one.clip_flips is not None else "-",
                cell_text(one.policy_loss_scaled_error, digits) if known else "-",
                "recommended" if chosen else "" if known else _not_evaluated(audit, one.storage),
            )
        )
    return [Block(text=recommendation_text(audit)), Block(columns, tuple(rows))]


def _not_evaluated(audit: AuditResult, storage: str) -> str:
    """Return why a way of storing and computing was not evaluated."""
    if audit.n_left_out:
        return "not evaluated: a token holds a value that is not finite"
    if audit.formats[storage].storage.metrics["clip_flips"] is None:
        return "not evaluated: storage is not audited"
    return "not evaluated: storage alone flips decisions"


def recommendation_text(audit: AuditResult) -> str:
    """Return the recommendation in one line."""
    one = audit.recommendation
    if one is None:
        return "recommendation: none, as not every token could be audited"
    if not audit.candidates:
        return f"recommendation: none, as columns are not stored in {', '.join(audit.formats)}"
    if one.storage == "float64":
        return "recommendation: float64; none of these formats flips no clip decision and keeps the loss"
    text = f"recommendation: store log-probs as {one.storage}, compute in {one.arithmetic}"
    return f"{text}: the cheapest that flips no clip decision and keeps the loss within the tolerance"


def _limits() -> Block:
    """Return the limits of the verdicts in words."""
    lines = (f"{level}: {text}" for level, text in LIMIT_TEXTS.items())
    return Block(text="\n".join(("limits of the verdicts", *lines)))
