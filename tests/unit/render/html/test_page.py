"""Pages of every kind of report: sound markup, nothing loaded, every number there, nothing broken out of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import audited
import checked
import pages
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import reports
from pages import HOSTILE, parsed

import ppocli
from ppocli.core.audit_metrics import AUDIT_METRICS
from ppocli.core.audit_spec import AuditOptions
from ppocli.core.check_report import CheckReport
from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.core.metrics import METRICS
from ppocli.errors import InputError
from ppocli.render.html import html_page

PAGES = {name: html_page(make()) for name, make in pages.BY_NAME.items()}
every = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


@every
def test_elements_are_closed_and_ids_are_unique_and_found(page: str) -> None:
    root = parsed(page)
    ids = [one["id"] for one in root.walk() if one["id"] is not None]
    assert len(set(ids)) == len(ids)
    for one in root.walk():
        for name in ("aria-labelledby", "aria-describedby"):
            assert set((one[name] or "").split()) <= set(ids)
        if one.name == "a":
            assert (one["href"] or "")[0] == "#"
            assert (one["href"] or "")[1:] in ids
        for target in re.findall(r"url\(#([^)]*)\)", one["style"] or ""):
            assert target in ids


@every
def test_nothing_is_loaded_and_nothing_runs(page: str) -> None:
    root = parsed(page)
    assert not {one.name for one in root.walk()} & {
        "script",
        "img",
        "link",
        "iframe",
        "object",
        "embed",
        "base",
    }
    names = {name for one in root.walk() for name in one.attributes}
    assert not [
        name for name in names if name.startswith("on") or name in ("src", "srcset", "data", "action")
    ]
    (style,) = root.all("style")
    css = "".join(child for child in style.children if isinstance(child, str))
    assert "url(" not in css
    assert "@import" not in css
    head = root.all("head")[0].children
    assert isinstance(head[0], pages.Element)
    assert isinstance(head[1], pages.Element)
    assert head[0]["charset"] == "utf-8"
    assert head[1]["http-equiv"] == "Content-Security-Policy"
    assert (head[1]["content"] or "").startswith("default-src 'none';")


@every
def test_it_is_ascii_and_the_same_every_time(page: str) -> None:
    assert page.isascii()
    name = next(name for name, one in PAGES.items() if one is page)
    assert html_page(pages.BY_NAME[name]()) == page


@every
def test_charts_say_what_they_show_and_have_a_table(page: str) -> None:
    root = parsed(page)
    charts = [one for one in root.all("svg") if one["role"] == "img"]
    for chart in charts:
        first, second = chart.children[:2]
        assert isinstance(first, pages.Element)
        assert isinstance(second, pages.Element)
        assert (first.name, second.name) == ("title", "desc")
        assert chart["aria-labelledby"] == first["id"]
        assert chart["aria-describedby"] == second["id"]
        assert first.text()
        assert second.text()
    for other in root.all("svg"):
        inside = any(other in chart.walk() for chart in charts)
        assert other["role"] == "img" or other["aria-hidden"] == "true" or inside
    # Series have one table together.
    groups = [one for one in root.all("section") if one["id"] == "groups"]
    shared = [head.text() for one in groups for head in one.all("th")]
    for figure in root.all("figure"):
        assert figure.all("table") or figure.all("h3")[0].all("dfn")[0].text() in shared


@every
def test_no_number_is_left_over_from_the_code(page: str) -> None:
    root = parsed(page)
    for one in root.walk():
        if one.name in ("rect", "line", "circle", "text", "svg"):
            for name in ("x", "y", "width", "height", "x1", "x2", "y1", "y2", "cx", "cy"):
                value = one[name]
                assert value is None or re.fullmatch(r"-?\d+(\.\d+)?%?", value), (name, value)
                assert value is None or name not in ("width", "height") or not value.startswith("-")


# ------------------------------------------------------------------------------------------- numbers


def flat(prefix: str, metrics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from ((f"{prefix}{name}.{key}", one) for key, one in value.items())
        else:
            yield f"{prefix}{name}", value


def numbers_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Every number of a document by its name."""
    found = dict(flat("", document.get("metrics", {})))
    if document.get("drift"):
        found |= flat("drift.", document["drift"]["metrics"])
    for name, questions in (document.get("audit") or {}).items():
        for question, answer in questions.items():
            values = {key: one for key, one in answer.items() if key.removesuffix("_finite") in AUDIT_METRICS}
            found |= flat(f"audit.{name}.{question}.", values)
    return found


WITH_METRICS = [name for name in PAGES if not name.startswith(("parity", "inspect", "hostile parity"))]


@pytest.mark.parametrize("name", WITH_METRICS)
def test_every_number_is_there_in_full(name: str) -> None:
    document = json.loads(json.dumps(pages.BY_NAME[name]().to_dict()))
    body = parsed(PAGES[name]).by_id("numbers").all("tbody")[0]
    rows = {row.all("td")[0].text(): row for row in body.all("tr")}
    expected = numbers_of(document)
    assert expected
    for metric, value in expected.items():
        cells = rows[metric].all("td")
        shown = cells[1].text()
        if value is None:
            assert shown.startswith("null")
            note = document["nulls"].get(metric)
            if note is not None:
                assert pages.shown(note["reason"]) in cells[2].text()
                assert (note.get("nonfinite") or "") in shown
        else:
            assert json.loads(shown) == value


def test_definitions_are_those_of_the_catalogue() -> None:
    root = parsed(PAGES["eval full"])
    tips = {one["id"]: one.text() for one in root.all("span", "tip")}
    terms = root.all("dfn")
    for term in terms:
        assert term["tabindex"] == "0"
        assert METRICS[term.text()].text in tips[term["aria-describedby"]]
    assert {term.text() for term in terms} >= set(METRICS) - {"policy_loss_by_agg"} - NOT_IN_TABLES
    root = parsed(PAGES["drift"])
    tips = {one["id"]: one.text() for one in root.all("span", "tip")}
    for term in root.all("dfn"):
        assert DRIFT_METRICS[term.text()].text in tips[term["aria-describedby"]]


NOT_IN_TABLES = {"n_rows", "n_tokens", "n_masked", "n_sequences", "n_groups", "n_files"}
"""Counts that stand in the first lines instead."""


def test_a_null_says_why_and_what_the_finite_tokens_give() -> None:
    text = parsed(html_page(reports.with_nulls())).text()
    assert "2 NaN in advantages" in text
    assert "-0.5 over finite tokens" in text
    assert "all returns are equal" in text


# ------------------------------------------------------------------------------------------- verdicts


def verdict(report: object) -> tuple[str, str]:
    one = parsed(html_page(report)).by_id("verdict")
    return (one["class"] or "").removeprefix("verdict "), one.text()


@pytest.mark.parametrize(
    ("report", "kind", "words"),
    [
        pytest.param(reports.report(), "good", "No errors, no warnings", id="nothing found"),
        pytest.param(
            reports.report(findings=(reports.overflow(),)), "warn", "1 warning PPO102", id="warning"
        ),
        pytest.param(reports.with_nulls(), "bad", "1 error PPO101: 2 NaN at valid tokens", id="error"),
        pytest.param(reports.empty(), "bad", "Nothing evaluated", id="no token"),
        pytest.param(checked.mixed(), "bad", "Failed", id="gate failed"),
        pytest.param(checked.BY_NAME["passed"](), "good", "Passed", id="gate passed"),
        pytest.param(
            audited.report(), "bad", "Errors 3 formats, 5 verdicts: 3 ok, 1 warning, 1 error", id="audit"
        ),
        pytest.param(replace(audited.report(), exit_code=1), "bad", "Failed 3 formats", id="audit failed"),
        pytest.param(pages.drift(findings=()), "good", "No errors, no warnings", id="drift"),
        pytest.param(pages.parity(), "info", "Frameworks differ on loss, clip fraction", id="parity"),
    ],
)
def test_the_verdict(report: object, kind: str, words: str) -> None:
    got, text = verdict(report)
    assert got == kind
    assert text.startswith(words)


def test_the_gravest_finding_is_the_verdict_wherever_it_stands() -> None:
    error = replace(reports.overflow(), severity="error", code="PPO101", message="a NaN")
    both = reports.report(findings=(reports.overflow(), error))
    assert verdict(both) == ("bad", "1 error, 1 warning PPO101: a NaN")


def test_findings_have_evidence_place_and_advice() -> None:
    section = parsed(PAGES["eval full"]).by_id("findings").text()
    for words in (
        "PPO102",
        "12 ratios overflow float16",
        "rollouts.parquet, row 812,044, position 3, token 1555",
        "train this batch in float32 or bfloat16",
        "ppocli explain PPO102",
    ):
        assert words in section


def test_checks_stand_with_their_status() -> None:
    made = checked.mixed()
    rows = parsed(html_page(made)).by_id("checks").all("tbody")[0].all("tr")
    assert len(rows) == len(made.checks)
    words = {"pass": "ok", "fail": "FAIL", "skip": "skip", "error": "ERROR"}
    shown = [(row.all("td")[0].text(), row.all("td")[1].text()) for row in rows]
    assert sorted(shown) == sorted((words[one.status], one.name) for one in made.checks)


# ------------------------------------------------------------------------------------------- hostile names


@pytest.mark.parametrize("name", pages.hostile())
def test_names_cannot_break_out(name: str) -> None:
    page = PAGES[f"hostile {name}"]
    root = parsed(page)
    assert HOSTILE in root.text()
    lower = page.lower()
    assert "<script" not in lower
    assert "<img" not in lower
    assert lower.count("</style") == lower.count("</title>") - len(root.all("title")) + 1
    assert (
        root.all("title")[0].text()
        == f"ppocli {'eval' if name == 'groups' else name}: " + root.all("h1")[0].text()
    )


def test_a_name_that_does_not_show_is_escaped() -> None:
    text = parsed(html_page(reports.odd_names())).text()
    assert "\x1b" not in text
    assert r"[red]x[/red] \x1b[31m|ü\x0a.parquet" in text


# ------------------------------------------------------------------------------------------- not a report


@pytest.mark.parametrize("other", [None, "text", {}, 1])
def test_only_reports_have_a_page(other: object) -> None:
    with pytest.raises(TypeError, match="not a report"):
        html_page(other)


def test_a_damaged_saved_report_is_refused() -> None:
    document = dict(reports.full().to_dict())
    document["worst"] = [{"by": "loss"}]
    damaged = CheckReport(document, (), {"notes": []}, 0)
    with pytest.raises(InputError, match="'worst' is not what this version of ppocli writes"):
        html_page(damaged)


@pytest.mark.parametrize("name", reports.BY_NAME)
def test_a_saved_report_comes_back(name: str) -> None:
    from ppocli.core.saved_report import report_from

    document = json.loads(json.dumps(reports.BY_NAME[name]().to_dict()))
    assert json.loads(json.dumps(report_from(document).to_dict())) == document


@pytest.mark.parametrize("by", ["file", "step"])
def test_the_short_audit_has_a_section_of_its_own_beside_groups_too(by: str, tmp_path: Path) -> None:
    columns = {
        "log_probs": [-0.9, -1.2],
        "old_log_probs": [-1.0, -1.1],
        "advantages": [1.0, -1.0],
        "step": [0, 1],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    report = ppocli.evaluate(tmp_path / "a.parquet", by=by, audit=AuditOptions(("float32",)))
    (section,) = (one for one in parsed(html_page(report)).all("section") if one["id"] == "precision")
    assert "float32 arithmetic" in section.text()
