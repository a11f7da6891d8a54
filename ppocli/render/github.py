"""Annotations of GitHub Actions: workflow commands on standard output, the gravest first.

Source of the form and of the escapes: GitHub's documentation "Workflow commands for GitHub Actions" and the
toolkit's `command.ts`. GitHub shows 10 errors, 10 warnings and 10 notices of a step, and 50 of a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.core.check_report import place_from
from ppocli.render.check_screen import failed_checks, group_of, help_of, verdict
from ppocli.render.console import printable
from ppocli.render.header import place_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppocli.core.check_report import Check, CheckReport
    from ppocli.errors import PpoCliError

MOST = 10
"""Annotations of one level that GitHub shows for a step."""
SUMMARY_BYTES = 1_000_000
"""What is written into the summary of a step, which may hold 1 MiB; GitHub drops a longer one whole."""


def to_annotations(report: CheckReport) -> str:
    """Return errors for failed checks, warnings for findings that did not fail, and the verdict as a notice.

    Of more than 10 of a level the first 9 are shown, and a tenth says how many more there are.
    """
    errors = [_command("error", f"ppocli {one.name}", _said(one)) for one in failed_checks(report)]
    judged = {one.name for one in report.checks if one.kind == "finding" and one.status == "fail"}
    warnings = [
        _command("warning", f"ppocli {one['code']}", _finding_text(one))
        for one in report.document["findings"]
        if one["severity"] != "info" and one["code"] not in judged
    ]
    notice = _command("notice", "ppocli check", verdict(report))
    return "".join([*_most(errors, "error"), *_most(warnings, "warning"), notice])


def failure_annotation(problem: PpoCliError) -> str:
    """Return the error that an input could not be judged."""
    return _command("error", "ppocli check", printable_lines(str(problem)))


def within_summary(text: str) -> str:
    """Return Markdown that fits into a step's summary, cut at a line's end where it is longer."""
    if len(text.encode()) <= SUMMARY_BYTES:
        return text
    kept = text.encode()[:SUMMARY_BYTES].decode(errors="ignore").rpartition("\n")[0]
    return f"{kept}\n\nThe rest is left out: a summary holds 1 MiB.\n"


def _most(commands: list[str], level: str) -> Iterator[str]:
    """Yield at most 10 commands of a level."""
    if len(commands) <= MOST:
        yield from commands
        return
    yield from commands[: MOST - 1]
    rest = len(commands) - MOST + 1
    yield _command(level, "ppocli check", f"{rest:,} more of this level; the log and -f json list all")


def _command(level: str, title: str, message: str) -> str:
    """Return one workflow command."""
    return f"::{level} title={escape_property(printable(title))}::{escape_data(message)}\n"


def escape_data(text: str) -> str:
    """Return text as the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """Return text as the value of a property of a workflow command."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def printable_lines(text: str) -> str:
    """Return text with its lines kept and everything else that does not show escaped."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _said(check: Check) -> str:
    """Return the message of a failed check: its value, the place, what to type."""
    label = f"{group_of(check)}: " if check.key else ""
    name = f"{check.metric}: " if check.metric else ""
    lines = [f"{label}{name}{check.reason}"]
    if check.where is not None:
        lines.append(f"--> {place_text(check.where)}")
    lines += filter(None, [help_of(check)])
    return printable_lines("\n".join(lines))


def _finding_text(one: dict[str, object]) -> str:
    """Return the message of a finding."""
    lines = [str(one["message"])]
    where = place_from(one.get("where"))  # type: ignore[arg-type]
    if where is not None:
        lines.append(f"--> {place_text(where)}")
    return printable_lines("\n".join([*lines, f"help: {one['advice']}"]))
