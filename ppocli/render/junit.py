"""JUnit XML: one suite for each input, one case for each check; failures, skips and errors told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from ppocli.render.check_screen import group_of, help_of
from ppocli.render.console import printable
from ppocli.render.header import place_text
from ppocli.render.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppocli.core.check_report import Check, CheckReport
    from ppocli.errors import PpoCliError

CLASS = "ppocli.check"


def to_junit(report: CheckReport) -> str:
    """Return the result of a gate as JUnit XML.

    Each input is a suite whose first case, `read`, says how many tokens it has; one without any is skipped
    there. Checks of a file stand in its suite, those of a step in one called `step N`, those of the whole
    input in the only file's, or in the suite `total`. What XML cannot hold is written as escapes.
    """
    inputs = report.document["inputs"]
    root = ET.Element("testsuites", name="ppocli check")
    only = len(inputs) == 1
    if not only:
        suite = _suite(root, "total")
        for check in report.checks:
            if not check.key:
                _case(suite, check)
    for label in dict.fromkeys(group_of(one) for one in report.checks if one.key and "file" not in one.key):
        suite = _suite(root, label)
        for check in report.checks:
            if group_of(check) == label:
                _case(suite, check)
    for one in inputs:
        suite = _suite(root, printable(one["path"]))
        _read_case(suite, one)
        for check in report.checks:
            if check.key.get("file") == one["path"] or (only and not check.key):
                _case(suite, check)
    return _text(root)


def failure_junit(problem: PpoCliError, paths: Sequence[str]) -> str:
    """Return a suite with one error: an input that could not be read."""
    root = ET.Element("testsuites", name="ppocli check")
    place = (problem.where or "").split("\n")[0] or ", ".join(paths)
    case = _element(_suite(root, printable(place)), "read")
    _told(case, "error", problem.message, type(problem).__name__, str(problem))
    return _text(root)


def _suite(root: ET.Element, name: str) -> ET.Element:
    """Add a suite."""
    return ET.SubElement(root, "testsuite", name=name)


def _element(suite: ET.Element, name: str) -> ET.Element:
    """Add a case."""
    return ET.SubElement(suite, "testcase", classname=CLASS, name=printable(name), time="0")


def _read_case(suite: ET.Element, one: dict[str, Any]) -> None:
    """Add the case that says what was read."""
    case = _element(suite, "read")
    if not one["tokens"]:
        masked = f", {one['masked']:,} masked" if one["masked"] else ""
        _told(case, "skipped", f"no valid token: {plural(one['rows'], 'row')}{masked}")
        return
    out = ET.SubElement(case, "system-out")
    out.text = (
        f"{plural(one['rows'], 'row')}, {plural(one['tokens'], 'valid token')}, {one['masked']:,} masked"
    )


def _case(suite: ET.Element, check: Check) -> None:
    """Add the case of a check."""
    case = _element(suite, check.name)
    if check.status == "pass":
        out = ET.SubElement(case, "system-out")
        out.text = f"{check.metric} = {check.value!r}" if check.metric else check.name
        return
    parts = [f"{group_of(check)}: {check.reason}" if check.key else check.reason]
    if check.where is not None:
        parts.append(f"--> {place_text(check.where)}")
    parts.append(f"from {check.source}")
    parts += filter(None, [help_of(check)])
    tag = {"fail": "failure", "skip": "skipped", "error": "error"}[check.status]
    _told(case, tag, check.reason, check.kind, "\n".join(parts))


def _told(case: ET.Element, tag: str, message: str, kind: str | None = None, text: str | None = None) -> None:
    """Add a failure, a skip or an error."""
    attributes = {"message": printable(message)}
    if kind is not None and tag != "skipped":
        attributes["type"] = kind
    element = ET.SubElement(case, tag, attributes)
    if text is not None:
        element.text = "\n".join(printable(line) for line in text.split("\n"))


def _text(root: ET.Element) -> str:
    """Count the cases, then return the document."""
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for suite in root:
        counts = {
            "tests": len(suite.findall("testcase")),
            "failures": len(suite.findall("testcase/failure")),
            "errors": len(suite.findall("testcase/error")),
            "skipped": len(suite.findall("testcase/skipped")),
        }
        for name, n in counts.items():
            suite.set(name, str(n))
            totals[name] += n
        suite.set("time", "0")
    for name, n in totals.items():
        root.set(name, str(n))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
