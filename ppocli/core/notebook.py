"""A report in a Python session: a few lines as text, a compact table of HTML for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from ppocli.core.rows import Row, rows_of

HEADLINE = (
    "policy_loss",
    "clip_frac",
    "clip_frac_active",
    "approx_kl_k1",
    "approx_kl_k3",
    "ratio_max",
    "ess_frac",
    "diff_mean",
    "diff_abs_mean",
    "drift_kl_k3",
    "total_loss",
)
"""Metrics of the short forms, where a report has them."""

MOST_LINES = 5
"""Findings, checks, files or frameworks that the text names; of more, how many there are."""
MOST_GROUPS = 20
"""Groups that the table shows."""


def summary_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a few lines: what it is, the headline metrics, what was found."""
    counts = []
    metrics = document.get("metrics", {})
    n_tokens = metrics.get("n_tokens", document.get("n_tokens"))
    if n_tokens is not None:
        counts.append(f"{n_tokens:,} tokens")
    files = document.get("inputs", document.get("files", ()))
    counts.append(_plain(files[0]["path"]) if len(files) == 1 else f"{len(files):,} files")
    if document.get("groups"):
        counts.append(f"{len(document['groups']):,} groups")
    yield f"ppocli {document['kind']}: {document['status']}  {', '.join(counts)}"
    nulls = document.get("nulls", {})
    said = [f"{name} {_value(metrics[name], nulls.get(name))}" for name in HEADLINE if name in metrics]
    if said:
        yield "  ".join(said)
    yield from _some(list(_lines(document)))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what each kind of report has to say beside its metrics."""
    for one in document.get("checks", ()):
        if one["status"] in ("fail", "error"):
            key = "".join(f"{name} {_plain(str(value))}: " for name, value in one.get("key", {}).items())
            yield f"FAIL {key}{_plain(one['name'])}: {_plain(one['reason'])}"
    if "verdict" in document:
        best = document["recommendation"]
        advice = f", store log-probs as {best['storage']}, compute in {best['arithmetic']}" if best else ""
        yield f"verdict: {document['verdict']}{advice}"
    for kind, one in document.get("spread", {}).items():
        yield f"{kind} {_text(one['min'])} to {_text(one['max'])}, {one['n']} frameworks"
    if document["kind"] == "inspect":
        for one in document["files"]:
            yield f"{_plain(one['path'])}: {one['format']}, {one['rows']:,} rows"
    if document["kind"] == "convert":
        out = document["output"]
        yield f"wrote {_plain(out['path'])}: {out['rows']:,} rows, {out['tokens']:,} tokens"
    for one in document.get("findings", ()):
        said = f"{_plain(one['message'])}{_at(one.get('where'))}"
        yield f"{one['severity']} {one['code']} ({one['count']:,}): {said}"


def _at(where: Mapping[str, Any] | None) -> str:
    """Return the place of a finding, as the tables of the command line give it."""
    if where is None:
        return ""
    parts = [_plain(where["path"]), f"row {where['row']:,}"]
    if where.get("position") is not None:
        parts.append(f"position {where['position']:,}")
    if where.get("token_id") is not None:
        parts.append(f"token {where['token_id']}")
    return f", first at {', '.join(parts)}"


def _some(lines: list[str]) -> Iterator[str]:
    """Yield the first lines, and how many more there are."""
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"and {len(lines) - MOST_LINES:,} more"


def table_html(document: Mapping[str, Any]) -> str:
    """Return a compact table: the lines of the text, the headline metrics, and all others folded away."""
    lines = list(summary_lines(document))
    parts = [f"<p><b>{escape(lines[0])}</b></p>"]
    rows = list(rows_of(document))
    whole = [one for one in rows if one.group is None]
    heads = [one for one in whole if one.name in HEADLINE]
    if heads:
        parts.append(_metrics(heads))
    first = 2 if any(name in document.get("metrics", {}) for name in HEADLINE) else 1
    if lines[first:]:
        items = "".join(f"<li>{escape(line)}</li>" for line in lines[first:])
        parts.append(f"<ul>{items}</ul>")
    groups = document.get("groups", ())
    if groups:
        parts.append(_groups(groups))
    others = [one for one in (whole or rows) if one not in heads]
    if others:
        parts.append(f"<details><summary>{len(others)} more numbers</summary>{_metrics(others)}</details>")
    return f"<div>{''.join(parts)}</div>"


def _metrics(rows: Iterable[Row]) -> str:
    """Return a table of metrics with their definitions."""
    body = []
    for one in rows:
        why = one.reason if one.value is None and one.reason else one.definition
        value = _value(one.value, {"nonfinite": one.nonfinite})
        name = one.name if one.group is None else f"{one.group}: {one.name}"
        body.append(
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f"<td>{escape(value)}</td>"
            f'<td style="text-align:left">{escape(why)}</td></tr>'
        )
    return _table(("metric", "value", "definition"), body)


def _groups(groups: list[Mapping[str, Any]]) -> str:
    """Return a table with one row for each of the first groups."""
    by = next(iter(groups[0]["key"]))
    names = [name for name in HEADLINE if name in groups[0]["metrics"]]
    body = []
    for one in groups[:MOST_GROUPS]:
        label = one["key"].get(by)
        values = (_value(one["metrics"].get(name), one["nulls"].get(name)) for name in names)
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        body.append(f'<tr><th scope="row">{escape("null" if label is None else str(label))}</th>{cells}</tr>')
    more = len(groups) - MOST_GROUPS
    return _table((by, *names), body) + (f"<p>and {more:,} more groups</p>" if more > 0 else "")


def _table(heads: Iterable[str], body: list[str]) -> str:
    """Return a table."""
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _value(value: float | int | None, null: Mapping[str, Any] | None) -> str:
    """Return a number, or that there is none and what float64 arithmetic would have given."""
    word = null.get("nonfinite") if null else None
    return _text(value) + (f" ({word})" if value is None and word else "")


def _text(value: float | int | None) -> str:
    """Return a number in six digits, a count in full."""
    if value is None:
        return "null"
    return f"{value:,}" if isinstance(value, int) else f"{value + 0.0:.6g}"


def _plain(text: str) -> str:
    r"""Return text on one line, with control characters as `\xNN`."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode() for one in text
    )
