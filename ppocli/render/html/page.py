"""The frame of a page: what it begins and ends with, and the parts that pages of every kind have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ppocli.core.audit_metrics import AUDIT_METRICS
from ppocli.core.spec import LossSpec
from ppocli.render.header import place_text
from ppocli.render.html.markup import Markup, breakable, lines, raw_style, tag
from ppocli.render.html.style import STYLE
from ppocli.render.html.tables import (
    Terms,
    card,
    definition,
    drift_definition,
    folded,
    listed,
    plain_table,
    scroll,
)
from ppocli.render.numbers import count_text, plural, size_text

if TYPE_CHECKING:
    from ppocli.core.report import Finding

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""What the page may load: nothing. The browser enforces it."""

KINDS = {"error": "bad", "warning": "warn", "info": "info"}
"""Classes of severities."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page under a heading of its own."""

    name: str
    title: str
    content: Sequence[Markup | None]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that a page shows.

    Attributes
    ----------
    kind : str
        The command.
    heading, lede : str
        What was read, and how much of it.
    verdict : (class, word, text)
    lines : sequence of str
        How it was understood.
    figures : sequence of (name, value, note)
        The numbers at the top; the note may be empty.
    """

    kind: str
    heading: str
    lede: str
    verdict: tuple[str, str, str]
    terms: Terms
    lines: Sequence[str] = ()
    figures: Sequence[tuple[str, str, str]] = ()
    sections: Sequence[Section] = field(default_factory=tuple)


def draw(page: Page) -> str:
    """Return the page as one HTML document in ASCII, so that it reads the same in any encoding."""
    from ppocli import __version__

    sections = [one for one in page.sections if any(part is not None for part in one.content)]
    grade, word, said = page.verdict
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"ppocli {page.kind}: {page.heading}"),
        raw_style(STYLE),
    )
    links = [tag("a", one.title, href=f"#{one.name}") for one in sections]
    top = tag(
        "header",
        tag("p", f"ppocli {page.kind}", class_="kind"),
        tag("h1", breakable(page.heading)),
        tag("p", page.lede, class_="soft"),
        tag("p", tag("b", word), " ", tag("span", said), class_=f"verdict {grade}", id="verdict"),
        _figures(page),
        listed(line.replace("  ", " \u00b7 ") for line in page.lines),
        tag("nav", *links, aria_label="Sections") if len(links) > 1 else None,
    )
    body = [
        tag("section", tag("h2", one.title, id=f"{one.name}-title"), *one.content, id=one.name,
            aria_labelledby=f"{one.name}-title")
        for one in sections
    ]  # fmt: skip
    foot = tag(
        "footer", tag("p", f"Made by ppocli {__version__}. This page loads nothing and runs no script.")
    )
    whole = tag("html", head, tag("body", top, tag("main", *body), foot), lang="en")
    return f"<!doctype html>\n{whole}\n".encode("ascii", "xmlcharrefreplace").decode("ascii")


def _figures(page: Page) -> Markup | None:
    """Return the numbers at the top."""
    if not page.figures:
        return None
    made = [
        tag("div", tag("dt", page.terms.term(name)), tag("dd", value, tag("small", note) if note else None))
        for name, value, note in page.figures
    ]
    return tag("dl", *made, class_="figures")


def heading_of(first_line: str) -> tuple[str, str]:
    """Split the first line of a screen into the name of the input and what is said about it."""
    name, _, rest = first_line.partition("  ")
    return name, rest


# ------------------------------------------------------------------------------------------- findings


def graded(findings: Iterable[Finding]) -> tuple[str, str, str]:
    """Return the verdict where findings are all there is to judge."""
    found = sorted(findings, key=lambda one: list(KINDS).index(one.severity))
    counts = {level: sum(one.severity == level for one in found) for level in KINDS}
    said = [
        f"{count_text(counts[level])} for information" if level == "info" else plural(counts[level], level)
        for level in KINDS
        if counts[level]
    ]
    gravest = next((level for level in ("error", "warning") if counts[level]), None)
    if gravest is None:
        return "good", "No errors, no warnings", ", ".join(said)
    return KINDS[gravest], ", ".join(said), f"{found[0].code}: {found[0].message}"


def findings_section(findings: Sequence[Finding]) -> Section:
    """Return the findings with evidence, place and advice."""
    return Section("findings", "Findings", [_finding(one) for one in findings])


def _finding(one: Finding) -> Markup:
    """Return one finding."""
    kind = {"info": "notice"}.get(one.severity, one.severity)
    head = tag(
        "p",
        tag("span", one.severity, class_=f"chip {KINDS.get(one.severity, 'info')}"),
        tag("b", one.code),
        tag("span", f"{count_text(one.count)} times", class_="soft small") if one.count > 1 else None,
        tag("code", f"ppocli explain {one.code}"),
        class_="head",
    )
    where = (
        tag("p", f"First at {place_text(one.where)}", class_="soft small") if one.where is not None else None
    )
    advice = tag("p", tag("b", "Advice: "), lines(one.advice))
    return card(head, tag("p", lines(one.message)), where, advice, class_=f"card finding {kind}")


# ------------------------------------------------------------------------------------------- data


def metrics_section(document: Mapping[str, Any], terms: Terms) -> Section:
    """Return every number of a document as it stands in JSON, with its definition or why it is null."""
    rows = []
    for name, value, note, define in _all_metrics(document):
        shown: str = "null" if value is None else json.dumps(value)
        if note is not None and note.get("nonfinite"):
            shown = f"{shown} ({note['nonfinite']})"
        reason = f"{note['reason']}; " if note is not None else ""
        rows.append((tag("span", name, class_="name"), shown, f"{reason}{define}"))
    body = [
        tag(
            "tr",
            tag("td", name, class_="name"),
            tag("td", value, class_="number"),
            tag("td", text, class_="text"),
        )
        for name, value, text in rows
    ]
    heads = [tag("th", one, scope="col", class_=kind) for one, kind in (("name", None), ("value", "number"),
                                                                         ("definition", None))]  # fmt: skip
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *body))
    shown_table = folded(f"{plural(len(rows), 'number')} with definitions", scroll(table, "Every number"))
    return Section("numbers", "Every number of the report", [card(shown_table)])


Entry = tuple[str, Any, Mapping[str, Any] | None, str]


def _all_metrics(document: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield name, value, note and definition of every metric."""
    define = drift_definition if document["kind"] == "drift" else definition
    yield from _flat("", document.get("metrics", {}), document.get("nulls", {}), define)
    drift = document.get("drift")
    if drift:
        yield from _flat("drift.", drift["metrics"], drift["nulls"], drift_definition)
    like = document.get("like")
    if like:
        yield from _flat(f"{like['name']}: ", like["metrics"], like["nulls"], like["definitions"].get)
    for format_name, questions in (document.get("audit") or {}).items():
        for question, answer in questions.items():
            prefix = f"audit.{format_name}.{question}."
            values = {key: one for key, one in answer.items() if key.removesuffix("_finite") in AUDIT_METRICS}
            nulls = {key: document["nulls"].get(f"{prefix}{key}") for key in values}
            yield from _flat(prefix, values, nulls, _of_audit)


def _of_audit(name: str) -> str | None:
    """Return what a metric of `audit` is."""
    metric = AUDIT_METRICS.get(name.removesuffix("_finite"))
    return None if metric is None else metric.text


def _flat(prefix: str, metrics: Mapping[str, Any], nulls: Mapping[str, Any], define: Any) -> Iterator[Entry]:
    """Yield the entries of one mapping; nested names are dotted."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            for key, one in value.items():
                dotted = f"{name}.{key}"
                yield f"{prefix}{dotted}", one, nulls.get(dotted), define(name) or ""
        else:
            yield f"{prefix}{name}", value, nulls.get(name), define(name) or ""


def provenance_section(document: Mapping[str, Any]) -> Section:
    """Return what was read and with which settings, by which version."""
    facts = [
        (key, str(document[key])) for key in ("version", "kind", "status", "exit_code", "schema_version")
    ]
    facts += [(key, _value(one)) for key, one in document.get("run", {}).items()]
    parts = [
        card(*_inputs(document.get("inputs", ())), *_skipped(document.get("skipped", ())), title="Inputs"),
        tag("div", _settings(document["settings"]), _facts("Run", facts), class_="two"),
    ]
    return Section("provenance", "Settings and provenance", parts)


def _settings(settings: Mapping[str, Any]) -> Markup:
    """Return the settings that differ from the defaults, and all of them when asked for."""
    usual = LossSpec().to_dict()
    rows = {key: (key, _value(value)) for key, value in settings.items()}
    other = [row for key, row in rows.items() if key not in usual or usual[key] != settings[key]]
    every = scroll(plain_table(("setting", "value"), rows.values()), "All settings")
    shown = (
        scroll(plain_table(("setting", "value"), other), "Settings that are not the defaults")
        if other
        else tag("p", "All have their default values.")
    )
    return card(shown, folded(f"All {plural(len(rows), 'setting')}", every), title="Settings")


def _facts(title: str, facts: Sequence[tuple[str, str]]) -> Markup:
    return card(scroll(plain_table(("fact", "value"), facts), title), title=title)


def _value(value: Any) -> str:
    """Return a setting as text."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _inputs(inputs: Sequence[Mapping[str, Any]]) -> Iterator[Markup]:
    """Yield the tables of files and of their columns."""
    files = [(str(one["path"]), str(one["format"]), str(one["layout"]), *_counts(one)) for one in inputs]
    heads = ("path", "format", "layout", "rows", "tokens", "masked", "size")
    yield scroll(plain_table(heads, files, (3, 4, 5, 6)), "Files")
    columns = [
        (
            str(one["path"]) if len(inputs) > 1 else "",
            role,
            str(column["column"]),
            str(column["dtype"]),
            *(count_text(column.get(key, 0)) for key in ("n_null", "n_nan", "n_posinf", "n_neginf")),
        )
        for one in inputs
        for role, column in one["columns"].items()
    ]
    heads_of_columns = ("role", "column", "type", "null", "NaN", "+inf", "-inf")
    several = len(inputs) > 1
    shown = columns if several else [row[1:] for row in columns]
    first = ("file", *heads_of_columns) if several else heads_of_columns
    right = range(len(first) - 4, len(first))
    if shown:
        yield folded(plural(len(shown), "column"), scroll(plain_table(first, shown, right), "Columns"))
    notes = listed(dict.fromkeys(str(note) for one in inputs for note in one.get("notes", ())))
    if notes is not None:
        yield notes


def _counts(one: Mapping[str, Any]) -> tuple[str, str, str, str]:
    rows, tokens, masked = (count_text(one.get(key, 0)) for key in ("rows", "tokens", "masked"))
    return rows, tokens, masked, size_text(one.get("bytes", 0))


def _skipped(skipped: Sequence[Mapping[str, Any]]) -> Iterator[Markup]:
    """Yield the table of files that were not read."""
    if skipped:
        body = [(str(one["path"]), str(one["reason"])) for one in skipped]
        yield tag("h3", "Not read")
        yield scroll(plain_table(("path", "reason"), body), "Files that were not read")
