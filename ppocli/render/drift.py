"""The content of the `drift` screen, and its rows of data."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Any

from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.render.bars import bar
from ppocli.render.blocks import Block, Column, Screen
from ppocli.render.check_screen import checks_block, verdict
from ppocli.render.console import printable
from ppocli.render.delimited import cell_of
from ppocli.render.drift_notes import NOTES
from ppocli.render.groups import MOST_ROWS
from ppocli.render.header import inferred_lines, place_text, skipped_line
from ppocli.render.json import to_lines
from ppocli.render.nulls import Nulls
from ppocli.render.numbers import cell_text, count_text, number_text, plural
from ppocli.render.screen import findings_block

if TYPE_CHECKING:
    from ppocli.core.drift_report import Bar, Correction, DriftReport, Part, SequencePart, Versus, WorstPair
    from ppocli.core.report import NullNote

BLOCKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "difference",
        ("diff_mean", "diff_p50", "diff_abs_mean", "diff_abs_p50", "diff_abs_p90", "diff_abs_p99",
         "diff_abs_max", "diff_min", "diff_max", "frac_abs_gt_0_5", "frac_abs_gt_1", "bit_equal_frac"),
    ),
    (
        "weights",
        ("weight_mean", "weight_min", "weight_max", "ess_frac", "chi2_token", "band_0_999_1_002",
         "band_1pct", "band_5pct", "band_10pct", "tis_weight_mean", "tis_frac_capped", "masked_weight_mean",
         "masked_frac"),
    ),
    (
        "divergence",
        ("drift_kl_k1", "drift_kl_k2", "drift_kl_k3", "mult_prob_error", "prob_diff_max", "prob_pearson",
         "frac_confident_gap"),
    ),
    (
        "sequences",
        ("chi2_seq", "log_ppl_diff", "ppl_ratio", "ppl_ratio_of_means", "seq_diff_sum_min",
         "seq_diff_sum_max"),
    ),
)  # fmt: skip
"""The tables of metrics and their rows."""

UNASKED = ("tis_weight_mean", "tis_frac_capped", "masked_weight_mean", "masked_frac")
"""Metrics that the screen leaves out until their cap is given."""

COMPARED = ("diff_abs_mean", "diff_abs_p99", "drift_kl_k3")
FILE_COLUMNS = ("n_tokens", "diff_abs_mean", "diff_abs_p99", "drift_kl_k3")

SMALL_SHARE = 1e-3
"""The lowest bars of the histogram are one until they hold this share of the tokens."""


BAR_WIDTH = 24
"""Characters of the longest bar of the histogram."""


def drift_screen(report: DriftReport, digits: int = 6, *, ascii_only: bool = False) -> Screen:
    """Arrange a report for reading."""
    nulls = Nulls(report, digits, UNASKED)
    blocks = [_files(report, digits)] if len(report.groups) > 1 else []
    for title, names in BLOCKS:
        blocks += metric_rows(title, names, report.metrics, nulls, report)
    blocks += [one for one in _tables(report, digits, ascii_only) if one.rows]
    blocks.append(findings_block(report.findings))
    if report.worst:
        blocks.append(_worst(report.worst, len(report.inputs) > 1, digits))
    if report.checks:
        blocks += [checks_block(report, digits), Block(text=verdict(report))]
    return Screen((*_header(report), *nulls.legend()), tuple(blocks))


def metric_rows(
    title: str,
    names: tuple[str, ...],
    metrics: Mapping[str, Any],
    nulls: Nulls,
    report: DriftReport | None,
) -> list[Block]:
    """Return the table of those of `names` that were reported, or nothing."""
    rows = []
    for name in names:
        if name not in metrics or nulls.is_unasked(name):
            continue
        note = NOTES[name]
        if metrics[name] is None:
            note = nulls.note(name, note, metrics)
        elif report is not None and name in report.places:
            note = f"{note}, {place_text(report.places[name], with_path=len(report.inputs) > 1)}"
        rows.append((name, nulls.cell(name, metrics[name]), note))
    columns = Column(title, "metric"), Column("value", "number"), Column("note", "note")
    return [Block(columns, tuple(rows))] if rows else []


def _header(report: DriftReport) -> Iterator[str]:
    """Say what was read and what is compared."""
    metrics, inputs = report.metrics, report.inputs
    name = printable(inputs[0].path) if len(inputs) == 1 else plural(len(inputs), "file")
    counts = [plural(metrics.get("n_rows", 0), "row"), plural(metrics.get("n_tokens", 0), "token")]
    counts.append(f"{count_text(metrics.get('n_masked', 0))} masked")
    if metrics.get("n_sequences") is not None:
        counts.append(plural(metrics["n_sequences"], "sequence"))
    yield f"{name}  {', '.join(counts)}"
    key = report.settings.get("key")
    paired = f"  paired by {', '.join(key)}" if key else ""
    yield f"a = {printable(report.a)}, b = {printable(report.b)}  diff = a - b, w = exp(diff){paired}"
    yield from inferred_lines(inputs)
    yield from (f"note: {printable(one)}" for one in report.notes)
    if report.floor:
        times = ", ".join(f"{name} {number_text(one, 3)}" for name, one in report.floor["times"].items())
        yield f"noise floor {printable(report.floor['path'])}; times the floor: {times or 'not comparable'}"
    yield from skipped_line(report.skipped)


def _files(report: DriftReport, digits: int) -> Block:
    """Return the table with one row for each file, then the total."""
    columns = (
        Column("file", "path"),
        *(Column("tokens" if n == "n_tokens" else n, "number") for n in FILE_COLUMNS),
    )
    rows = [
        (
            printable(str(group.key.get("file", ""))),
            *_values(group.metrics, group.nulls, FILE_COLUMNS, digits),
        )
        for group in report.groups
    ]
    return Block(columns, (*rows, ("total", *_values(report.metrics, report.nulls, FILE_COLUMNS, digits))))


def _values(
    metrics: Mapping[str, Any], nulls: Mapping[str, NullNote], names: tuple[str, ...], digits: int
) -> tuple[str, ...]:
    """Return some metrics as cells."""
    cells = []
    for name in names:
        note = nulls.get(name)
        word = (
            f" ({note.nonfinite})"
            if metrics.get(name) is None and note is not None and note.nonfinite
            else ""
        )
        cells.append(cell_text(metrics.get(name), digits) + word)
    return tuple(cells)


def _tables(report: DriftReport, digits: int, ascii_only: bool) -> Iterator[Block]:
    """Yield the tables of where the difference is, and of corrections."""
    yield _comparisons(report, digits)
    yield _histogram(report.histogram, report.metrics.get("n_tokens", 0), ascii_only)
    yield _parts(
        "position in the sequence",
        [_positions(one) for one in report.by_position],
        report.by_position,
        digits,
    )
    yield _parts(
        "probability exp(b)", [_range(one) for one in report.by_probability], report.by_probability, digits
    )
    yield _steps(report.by_step, digits)
    yield _sequences(report.sequences, len(report.inputs) > 1, digits)
    yield _corrections(report.corrections, digits)


def shown_steps(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the steps that a screen has room for: of many the first and the last."""
    half = MOST_ROWS // 2
    return parts if len(parts) <= MOST_ROWS else (*parts[:half], *parts[-half:])


def _steps(parts: tuple[Part, ...], digits: int) -> Block:
    """Return the table of steps."""
    shown = shown_steps(parts)
    labels = ["none" if one.step is None else printable(str(one.step)) for one in shown]
    block = _parts("step", labels, shown, digits)
    if len(shown) == len(parts):
        return block
    return replace(block, title=f"the first and the last of {len(parts):,} steps; -f json has all")


def _comparisons(report: DriftReport, digits: int) -> Block:
    """Return the other comparisons beside the main one."""
    columns = (Column("comparison"), *(Column(name, "number") for name in COMPARED), Column("a - b", "note"))
    if not report.comparisons:
        return Block(columns)

    def row(label: str, one: DriftReport | Versus) -> tuple[str, ...]:
        cells = [
            cell if name in one.metrics else "-"
            for name, cell in zip(COMPARED, _values(one.metrics, one.nulls, COMPARED, digits), strict=True)
        ]
        n_main = report.metrics.get("n_tokens", 0)
        n = one.metrics.get("n_tokens", n_main)
        part = "" if n == n_main else f", at {n:,} of {n_main:,} tokens"
        return label, *cells, f"{printable(one.a)} - {printable(one.b)}{part}"

    rows = [row("mismatch", report), *(row(one.name, one) for one in report.comparisons)]
    return Block(columns, tuple(rows))


def _histogram(bars: tuple[Bar, ...], n: int, ascii_only: bool) -> Block:
    """Return |a - b| by octave; the small ones that hold next to nothing stand together."""
    columns = (
        Column("|a - b| up to", "number"),
        Column("tokens", "number"),
        Column("share", "number"),
        Column("", "name"),
    )
    if not bars:
        return Block(columns)
    counts = [one.n for one in bars]
    first = next((k for k in range(len(bars)) if sum(counts[: k + 1]) >= SMALL_SHARE * n), 0)
    counts = [sum(counts[: first + 1]), *counts[first + 1 :]]
    most = max(counts, default=0)
    rows = tuple(
        (
            "more" if one.high is None else number_text(float(one.high), 3),
            count_text(count),
            f"{count / n:.2%}" if n else "",
            bar(count / most if most else 0.0, BAR_WIDTH, ascii_only=ascii_only),
        )
        for one, count in zip(bars[first:], counts, strict=True)
    )
    return Block(columns, rows)


def _positions(one: Part) -> str:
    """Return `0`, `1-7`, `32,768 on`."""
    low = int(one.low or 0)
    if one.high is None:
        return f"{count_text(low)} on"
    return count_text(low) if one.high == low else f"{count_text(low)}-{count_text(int(one.high))}"


def _range(one: Part) -> str:
    """Return `0.99 and more`, `0.9 to 0.99`."""
    low = number_text(float(one.low or 0.0))
    return f"{low} and more" if one.high is None else f"{low} to {number_text(float(one.high))}"


def _parts(title: str, labels: list[str], parts: tuple[Part, ...], digits: int) -> Block:
    """Return a table of classes of tokens."""
    has_k3 = any(one.drift_kl_k3 is not None for one in parts)
    names = ["tokens", "diff_mean", "diff_abs_mean", *(["drift_kl_k3"] if has_k3 else [])]
    rows = []
    for label, one in zip(labels, parts, strict=True):
        cells = [count_text(one.n), cell_text(one.diff_mean, digits), cell_text(one.diff_abs_mean, digits)]
        rows.append((label, *cells, *([cell_text(one.drift_kl_k3, digits)] if has_k3 else [])))
    return Block((Column(title), *(Column(name, "number") for name in names)), tuple(rows))


def _sequences(parts: tuple[SequencePart, ...], several: bool, digits: int) -> Block:
    """Return the sequences that hold most of the difference."""
    columns = (
        Column("largest sum |a - b|", "path"),
        *(Column(name, "number") for name in ("tokens", "share", "diff_mean", "diff_abs_mean")),
    )
    rows = tuple(
        (
            place_text(one.where, with_path=several),
            count_text(one.n),
            f"{one.share:.1%}",
            number_text(one.diff_mean, digits),
            number_text(one.diff_abs_mean, digits),
        )
        for one in parts[:5]
    )
    return Block(columns, rows)


def _corrections(parts: tuple[Correction, ...], digits: int) -> Block:
    """Return what each rule of weights would do."""
    has_loss = any(one.loss is not None for one in parts)
    names = ["touched", "weight_mean", "ess_frac", *(["loss change"] if has_loss else [])]
    rows = []
    for one in parts:
        low = "0" if one.low is None else f"{one.low:g}"
        what = (
            f"cap {one.cap:g}"
            if one.mode == "truncate" and one.low is None
            else f"{one.mode} [{low}, {_cap(one)}]"
        )
        cells = [
            _percent(one.touched_frac),
            cell_text(one.weight_mean, digits),
            cell_text(one.ess_frac, digits),
        ]
        if has_loss:
            cells.append(cell_text(one.loss_change, digits))
        rows.append((f"{one.level}: {what}", *cells))
    return Block((Column("correction"), *(Column(name, "number") for name in names)), tuple(rows))


def _cap(one: Correction) -> str:
    return "inf" if one.cap is None else f"{one.cap:g}"


def _percent(value: float | None) -> str:
    return "null" if value is None else f"{value:.2%}"


def _worst(pairs: tuple[WorstPair, ...], several: bool, digits: int) -> Block:
    """Return the tokens with the largest |a - b|; columns that no token fills are left out."""
    filled = {
        "file": several,
        "pos": any(one.where.position is not None for one in pairs),
        "token": any(one.where.token_id is not None for one in pairs),
    }
    columns = [
        Column("file", "path"),
        *(Column(h, "number") for h in ("row", "pos", "token", "a", "b", "a - b", "w")),
    ]
    keep = [filled.get(one.header, True) for one in columns]
    rows = []
    for pair in pairs:
        where = pair.where
        weight = "inf" if pair.weight is None else number_text(pair.weight, digits)
        cells = (
            printable(where.path),
            count_text(where.row),
            "" if where.position is None else count_text(where.position),
            "" if where.token_id is None else str(where.token_id),
            *(number_text(value, digits) for value in (pair.a, pair.b, pair.diff)),
            weight,
        )
        rows.append(tuple(cell for cell, kept in zip(cells, keep, strict=True) if kept))
    kept_columns = tuple(one for one, kept in zip(columns, keep, strict=True) if kept)
    return Block(kept_columns, tuple(rows), "tokens with the largest |a - b|")


# ------------------------------------------------------------------------------------------- data


def drift_jsonl(report: DriftReport, *, encoding: str = "utf-8") -> str:
    """Return one line for each file, of kind "file", and the rest of the document as a last one, "total"."""
    document = report.to_dict()
    groups = document.pop("groups", [])
    lines = [
        {
            "schema_version": document["schema_version"],
            "kind": "file",
            **group["key"],
            **{key: value for key, value in group.items() if key != "key"},
        }
        for group in groups
    ]
    return to_lines([*lines, {**document, "kind": "total"}], encoding=encoding)


def drift_delimited(report: DriftReport, delimiter: str) -> str:
    """Return the metrics as comma- or tab-separated text: a row for each file, each comparison, the total.

    Columns are `kind` ("file", "comparison" or "total"), `file`, `a`, `b` and the metrics by name.
    """
    rows: list[tuple[str, str, str, str, Mapping[str, Any], Mapping[str, NullNote]]] = [
        ("file", printable(str(one.key.get("file", ""))), report.a, report.b, one.metrics, one.nulls)
        for one in report.groups
    ]
    rows += [("comparison", "", one.a, one.b, one.metrics, one.nulls) for one in report.comparisons]
    rows.append(("total", "", report.a, report.b, report.metrics, report.nulls))
    names = [name for name in DRIFT_METRICS if any(name in row[4] for row in rows)]
    twins = [f"{name}_finite" for name in names if any(f"{name}_finite" in row[4] for row in rows)]
    out = StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["kind", "file", "a", "b", *names, *twins])
    for kind, path, a, b, metrics, nulls in rows:
        writer.writerow(
            [kind, path, printable(a), printable(b), *(cell_of(n, metrics, nulls) for n in (*names, *twins))]
        )
    return out.getvalue()
