"""The content of the `check` screen: what was judged, every check, the findings, the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppocli.core.check_report import count, failed, place_from
from ppocli.core.report import ColumnReport, EvalReport, Finding, InputReport, Skipped
from ppocli.core.spec import LossSpec
from ppocli.core.trend import label_of as key_text
from ppocli.render.blocks import Block, Column, Screen
from ppocli.render.console import printable
from ppocli.render.header import header_lines, place_text
from ppocli.render.numbers import cell_text, plural
from ppocli.render.screen import findings_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ppocli.core.check_report import Check, CheckReport, Judged, Status

WORDS: dict[Status, str] = {"pass": "ok", "fail": "FAIL", "skip": "skip", "error": "ERROR"}
ORDER: tuple[Status, ...] = ("error", "fail", "skip", "pass")
MOST_PASSED = 50
"""Passed checks that are listed; beyond it they are only counted."""
MOST_FAILED = 50
"""The same for failed checks of single groups: thousands of steps may break a limit."""


def check_screen(report: CheckReport, digits: int = 6) -> Screen:
    """Arrange the result of a gate for reading."""
    document = report.document
    header = [
        *header_lines(_report_of(document)),
        *(f"note: {printable(one)}" for one in report.gate["notes"]),
    ]
    findings = tuple(_finding_of(one) for one in document["findings"])
    blocks = (
        *_first_failed(report, digits),
        checks_block(report, digits),
        findings_block(findings),
        Block(text=verdict(report)),
    )
    return Screen(tuple(header), blocks)


def verdict(report: Judged) -> str:
    """Return the last line: `FAIL  2 of 5 checks failed, 1 skipped`."""
    broken, errors, skipped = (count(report.checks, one) for one in ("fail", "error", "skip"))
    judged = len(report.checks) - skipped
    parts = []
    if errors:
        parts.append(f"{plural(errors, 'check')} had nothing to judge")
    if broken:
        parts.append(f"{broken:,} of {plural(judged, 'check')} failed")
    if not parts:
        parts.append(f"{plural(judged, 'check')} passed")
    if skipped:
        parts.append(f"{skipped:,} skipped")
    bad = failed(report.checks)
    said = f"{'FAIL' if bad else 'ok'}  {', '.join(parts)}"
    if bad and report.exit_code == 0:
        said += " (exit code 0: --exit-zero)"
    return said


def label_of(check: Check) -> str:
    """Return the value of the group that a check was judged on, or nothing for the whole input."""
    return printable(key_text(check.key))


def group_of(check: Check) -> str:
    """Return the group with what it is a value of: `step 12`."""
    return ", ".join(f"{printable(name)} {label_of(check)}" for name in check.key)


def _first_failed(report: CheckReport, digits: int) -> Iterator[Block]:
    """Yield the table of the first group that breaks each limit, where limits are judged by group."""
    first = report.gate.get("first_failed")
    if not first:
        return
    by = next(iter(first[0]["key"]))
    columns = (
        Column("limit"),
        Column(f"first {'value of ' * (by not in ('step', 'file'))}{printable(by)} that breaks it"),
        Column("value", "number"),
        Column("broken in", "note"),
    )
    rows = (
        (
            one["check"],
            printable(key_text(one["key"])),
            cell_text(one["value"], digits),
            f"{one['n_failed']:,} of {one['n_groups']:,}",
        )
        for one in first
    )
    yield Block(columns, tuple(rows))


def checks_block(report: Judged, digits: int) -> Block:
    """Return the table of checks, the gravest first."""
    several = any(one.key for one in report.checks)
    chosen = sorted(report.checks, key=lambda one: ORDER.index(one.status))
    hidden = max(count(report.checks, "pass") - MOST_PASSED, 0)
    shown = chosen[: len(chosen) - hidden]
    broken = [one for one in shown if one.key and one.status in ("fail", "error")]
    unseen = broken[MOST_FAILED:]
    if unseen:
        left_out = set(map(id, unseen))
        shown = [one for one in shown if id(one) not in left_out]
    columns = [Column("check"), Column("value", "number"), Column("status"), Column("note", "note")]
    rows = [(one.name, _value(one, digits), WORDS[one.status], _note(one)) for one in shown]
    if unseen:
        rows.append((f"{len(unseen):,} more", "", "FAIL", "-f json lists all"))
    if hidden:
        rows.append((f"{hidden:,} more", "", "ok", "-f json lists all"))
    if several:
        name = next(name for one in report.checks for name in one.key)
        columns.insert(0, Column(printable(name), "path" if name == "file" else "name"))
        labels = [label_of(one) or "total" for one in shown] + [""] * (len(rows) - len(shown))
        return Block(tuple(columns), tuple((label, *row) for label, row in zip(labels, rows, strict=True)))
    return Block(tuple(columns), tuple(rows), text="checks: none")


def _value(check: Check, digits: int) -> str:
    """Return what was found; a check that failed has it in full in its reason."""
    return "" if check.metric is None and check.value is None else cell_text(check.value, digits)


def _note(check: Check) -> str:
    """Return why a check did not pass, and where."""
    if check.status == "pass":
        return ""
    place = f"\n--> {place_text(check.where)}" if check.where is not None and check.kind != "finding" else ""
    source = "" if check.source.startswith("--") else f" ({printable(check.source)})"
    return f"{printable(check.reason)}{source}{place}"


def _report_of(document: Mapping[str, Any]) -> EvalReport:
    """Return what the header needs of a document as a report."""
    inputs = tuple(map(_input_of, document["inputs"]))
    skipped = tuple(Skipped(str(one.get("path")), str(one.get("reason"))) for one in document["skipped"])
    settings = {**LossSpec().to_dict(), **document["settings"]}
    return EvalReport(settings, inputs, skipped, document["metrics"], {})


def _input_of(one: Mapping[str, Any]) -> InputReport:
    """Return an input from its entry."""
    columns = {
        role: ColumnReport(str(column["column"]), str(column["dtype"]))
        for role, column in one["columns"].items()
    }
    notes = tuple(map(str, one.get("notes", ())))
    return InputReport(str(one["path"]), "", "", rows=0, bytes=0, columns=columns, notes=notes)


def _finding_of(one: Mapping[str, Any]) -> Finding:
    """Return a finding from its entry."""
    return Finding(
        one["code"],
        one["severity"],
        one["count"],
        one["message"],
        one["advice"],
        place_from(one.get("where")),
    )


def help_of(check: Check) -> str:
    """Return the line to type for a check, or nothing."""
    name = (check.metric or "").partition(".")[0] if check.kind != "finding" else check.name
    return f"help: ppocli explain {name}" if name and name != "drift" else ""


def failed_checks(report: CheckReport) -> Iterator[Check]:
    """Yield the checks that failed or had nothing to judge, the gravest first."""
    for status in ("error", "fail"):
        yield from (one for one in report.checks if one.status == status)
