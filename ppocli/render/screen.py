"""The content of the `eval` screen, apart from how it is drawn: header lines and small tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.core.metrics import METRICS
from ppocli.render.blocks import Block, Column, Screen
from ppocli.render.console import printable
from ppocli.render.groups import group_blocks, value_cell
from ppocli.render.header import header_lines, place_text, words_of
from ppocli.render.histogram import histogram_block
from ppocli.render.notes import AGGREGATION_NOTES, note_of
from ppocli.render.nulls import Nulls
from ppocli.render.numbers import cell_text, count_text, number_text

if TYPE_CHECKING:
    from ppocli.core.report import EvalReport, Finding, WorstToken

BLOCKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "objective",
        (
            "policy_loss",
            "policy_loss_se",
            "policy_loss_micro_batch_mean",
            "unclipped_loss",
            "clip_frac",
            "clip_frac_active",
            "clip_frac_low",
            "clip_frac_active_low",
            "clip_frac_high",
            "clip_frac_active_high",
            "dual_clip_frac",
            "delta_clip_frac",
            "grad_abs_mean",
            "grad_zero_frac",
        ),
    ),
    ("correction", tuple(one.name for one in METRICS.values() if one.section == "correction")),
    ("ratio and KL", tuple(one.name for one in METRICS.values() if one.section == "ratio")),
    ("sequences", tuple(one.name for one in METRICS.values() if one.section == "sequence")),
    (
        "value, entropy, total",
        (
            *(one.name for one in METRICS.values() if one.section in ("value", "reference")),
            "total_loss",
        ),
    ),
    (
        "advantages, returns",
        tuple(one.name for one in METRICS.values() if one.section == "data"),
    ),
)
"""The tables of metrics and their rows; each is shown when one of its metrics was reported."""

NONZERO_BLOCKS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "overflow, underflow",
        "overflow, underflow of the ratio: none in any format",
        tuple(one.name for one in METRICS.values() if one.section == "format"),
    ),
    (
        "missing, not finite",
        "null, nan or inf at valid tokens, positive log-probs: none",
        ("n_null", "n_nan", "n_posinf", "n_neginf", "n_positive_log_probs"),
    ),
)
"""Tables of counts that are not zero: title, the line that says there is none, the counts."""


def eval_screen(
    report: EvalReport,
    digits: int = 6,
    sort: str | None = None,
    *,
    hist: bool = False,
    ascii_only: bool = False,
) -> Screen:
    """Arrange a report for reading.

    Parameters
    ----------
    digits : int
        Significant digits of real numbers.
    sort : str, optional
        The metric by which the files were ordered: gets a column beside the usual ones.
    hist : bool
        Also draw the histogram of log_ratio.
    ascii_only : bool
        Draw bars and lines with ASCII.
    """
    made = _Tables(report, digits)
    blocks = list(group_blocks(report, digits, sort, ascii_only=ascii_only))
    for title, names in BLOCKS:
        blocks += made.metrics(title, names)
        if title == "objective":
            blocks += made.aggregations()
            blocks += made.like()
        if title == "ratio and KL" and hist:
            blocks += histogram_block(report, digits, ascii_only=ascii_only)
    blocks += _drift(report, digits)
    for title, none, names in NONZERO_BLOCKS:
        blocks += made.nonzero(title, none, names)
    if report.audit is not None:
        from ppocli.render.audit import short_blocks

        blocks += short_blocks(report.audit, digits)
    blocks.append(findings_block(report.findings))
    blocks += _worst(report.worst, len(report.inputs) > 1, digits)
    return Screen((*header_lines(report), *made.nulls.legend()), tuple(blocks))


class _Tables:
    """Makes the tables of metrics of one report."""

    def __init__(self, report: EvalReport, digits: int) -> None:
        self.report = report
        self.nulls = Nulls(report, digits)
        self._words = words_of(report.settings)

    def metrics(self, title: str, names: tuple[str, ...]) -> list[Block]:
        """Return the table of those of `names` that were reported, or nothing."""
        rows = tuple(self._row(name) for name in names if name in self.report.metrics)
        return [Block(_metric_columns(title), rows)] if rows else []

    def nonzero(self, title: str, none: str, names: tuple[str, ...]) -> list[Block]:
        """Return the counts that are not zero, or one line that says there are none."""
        metrics = self.report.metrics
        reported = [name for name in names if name in metrics]
        if not reported:
            return []
        # Where the count itself is null, the one over finite tokens decides.
        decided = [name for name in reported if metrics.get(f"{name}_finite", metrics[name]) != 0]
        rows = [self._row(name) for name in decided]
        hidden = [name for name in reported if name not in decided and metrics[name] is None]
        if hidden:
            _, value, note = self._row(hidden[0])
            rows.append(("all others" if rows else "all", value, note))
        return [Block(_metric_columns(title), tuple(rows), text=none)]

    def aggregations(self) -> list[Block]:
        """Return the table of the policy loss with each aggregation."""
        horizon = self.report.settings.get("horizon")
        rows = []
        for name, value in (self.report.metrics.get("policy_loss_by_agg") or {}).items():
            note = AGGREGATION_NOTES[name]
            if name.endswith("-norm") and horizon is not None:
                note = f"{note} {count_text(horizon)}"
            dotted = f"policy_loss_by_agg.{name}"
            if value is None:
                note = self.nulls.note(dotted, note, {})
            rows.append((name, self.nulls.cell(dotted, value), note))
        columns = (Column("aggregation", "metric"), Column("policy_loss", "number"), Column("note", "note"))
        return [Block(columns, tuple(rows))] if rows else []

    def like(self) -> list[Block]:
        """Return the table of a framework's metrics under its own names, if one was asked for."""
        like = self.report.like
        if like is None:
            return []
        rows = []
        for name, value in like.metrics.items():
            note = like.nulls.get(name)
            text = like.definitions[name] if note is None else f"{note.reason}; {like.definitions[name]}"
            rows.append((name, value_cell(value, note, self.nulls.digits), text))
        title = f"as {like.title} {like.version} logs it"
        lines = [Block(text=f"note: {note}") for note in like.notes]
        return [
            Block((Column(title, "metric"), Column("value", "number"), Column("note", "note")), tuple(rows)),
            *lines,
        ]

    def _row(self, name: str) -> tuple[str, str, str]:
        """Return name, value and note of one metric."""
        value = self.report.metrics[name]
        note = note_of(name, self._words)
        if value is None:
            note = self.nulls.note(name, note, self.report.metrics)
        elif name in self.report.places:
            place = self.report.places[name]
            note = f"{note}, {place_text(place, with_path=len(self.report.inputs) > 1)}"
        return name, self.nulls.cell(name, value), note


def _drift(report: EvalReport, digits: int) -> list[Block]:
    """Return the short table of the trainer against the sampler, where there is a rollout column."""
    if not report.drift:
        return []
    from ppocli.render.drift_notes import NOTES, SHORT

    metrics, nulls = report.drift["metrics"], report.drift["nulls"]
    rows = []
    for name in SHORT:
        note = nulls[name].reason if metrics[name] is None else NOTES[name]
        rows.append((name, value_cell(metrics[name], nulls.get(name), digits), printable(note)))
    n_files, n_all = metrics["n_files"], len(report.inputs)
    title = "trainer - sampler" + (f", {n_files} of {n_all} files" if n_files < n_all else "")
    return [Block(_metric_columns(title), tuple(rows))]


def _metric_columns(title: str) -> tuple[Column, ...]:
    """Return the three columns of a table of metrics."""
    return Column(title, "metric"), Column("value", "number"), Column("note", "note")


def findings_block(findings: tuple[Finding, ...]) -> Block:
    """Return the findings with evidence, place and advice."""
    columns = (Column("finding"), Column("count", "number"), Column("what", "note"))
    rows = []
    for one in findings:
        lines = [printable(one.message)]
        if one.where is not None:
            lines.append(f"--> {place_text(one.where)}")
        lines.append(f"help: {printable(one.advice)}")
        rows.append((f"{one.severity} {one.code}", count_text(one.count), "\n".join(lines)))
    return Block(columns, tuple(rows), text="findings: none")


def _worst(tokens: tuple[WorstToken, ...], several: bool, digits: int) -> list[Block]:
    """Return the tokens with the largest |log_ratio| and those with the largest |loss|."""
    blocks = []
    for by, title in (
        ("log_ratio", "tokens with the largest |log_ratio|"),
        ("loss", "tokens with the largest |loss|"),
    ):
        chosen = [one for one in tokens if one.by == by]
        if chosen:
            blocks.append(_worst_block(title, chosen, several, digits))
    return blocks


def _worst_block(title: str, tokens: list[WorstToken], several: bool, digits: int) -> Block:
    """Return one table of tokens; columns that no token fills are left out."""
    filled = {
        "file": several,
        "pos": any(one.where.position is not None for one in tokens),
        "token": any(one.where.token_id is not None for one in tokens),
    }
    columns = [
        Column("file", "path"),
        *(Column(h, "number") for h in ("row", "pos", "token", "log_probs", "old\nlog_probs", "ratio")),
        *(Column(h, "number") for h in ("advantage", "loss")),
        Column("branch", "note"),
    ]
    keep = [filled.get(one.header, True) for one in columns]
    rows = (tuple(c for c, kept in zip(_worst_cells(t, digits), keep, strict=True) if kept) for t in tokens)
    return Block(tuple(c for c, kept in zip(columns, keep, strict=True) if kept), tuple(rows), title)


def _worst_cells(token: WorstToken, digits: int) -> tuple[str, ...]:
    """Return all cells of one token."""
    where = token.where
    ratio = "inf" if token.ratio is None else cell_text(token.ratio, digits)
    return (
        printable(where.path),
        count_text(where.row),
        "" if where.position is None else count_text(where.position),
        "" if where.token_id is None else str(where.token_id),
        number_text(token.log_probs, digits),
        number_text(token.old_log_probs, digits),
        ratio,
        cell_text(token.advantage, digits),
        cell_text(token.loss, digits),
        token.branch,
    )
