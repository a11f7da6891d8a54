"""Annotations of GitHub Actions, read as its runner reads them."""

from __future__ import annotations

import re
from typing import NamedTuple

import checked
import pytest

from ppocli.errors import InputError
from ppocli.render.check_formats import step_summary
from ppocli.render.github import failure_annotation, to_annotations, within_summary


class Command(NamedTuple):
    level: str
    title: str
    message: str


def commands(text: str) -> list[Command]:
    """Read `::LEVEL title=TITLE::MESSAGE` lines and undo the documented escapes; nothing else may be there.

    The runner takes the first `::` behind the properties as their end, splits them at commas, and replaces
    %0D, %0A, in properties also %3A and %2C, and at last %25.
    """
    assert text.endswith("\n")
    out = []
    for line in text.removesuffix("\n").split("\n"):
        found = re.fullmatch(r"::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)", line)
        assert found is not None, line
        level, title, message = found.groups()
        for escape, meant in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")):
            title = title.replace(escape, meant)
        message = message.replace("%0D", "\r").replace("%0A", "\n")
        assert not re.search("%(?!25)", title + message), line
        out.append(Command(level, title.replace("%25", "%"), message.replace("%25", "%")))
    return out


def test_failures_are_errors_other_findings_warnings_and_the_verdict_a_notice() -> None:
    got = commands(to_annotations(checked.mixed()))
    assert [(one.level, one.title) for one in got] == [
        ("error", "ppocli clip_frac <= 0.1"),
        ("error", "ppocli entropy_mean >= 0.5"),
        ("error", "ppocli PPO101"),
        ("warning", "ppocli PPO102"),
        ("notice", "ppocli check"),
    ]
    assert got[0].message == "clip_frac: 0.1234 is more than 0.1\nhelp: ppocli explain clip_frac"
    assert got[2].message == (
        "2 NaN at valid tokens\n--> rollouts.parquet, row 1, position 2, token 1555\n"
        "help: ppocli explain PPO101"
    )
    assert got[3].message.endswith("help: train this batch in float32 or bfloat16")
    assert got[4].message == "FAIL  3 of 6 checks failed, 3 skipped"


def test_a_gate_that_passes_says_so() -> None:
    assert commands(to_annotations(checked.BY_NAME["passed"]())) == [
        Command("notice", "ppocli check", "ok  2 checks passed")
    ]


@pytest.mark.parametrize(("n", "shown"), [(10, 10), (11, 10), (60, 10)])
def test_no_more_than_github_shows(n: int, shown: int) -> None:
    got = commands(to_annotations(checked.many(n)))
    for level in ("error", "warning"):
        mine = [one for one in got if one.level == level]
        assert len(mine) == shown
        assert ("more of this level" in mine[-1].message) == (n > shown)
        if n > shown:
            assert mine[-1].message.startswith(f"{n - 9} more")
    assert got[-1].level == "notice"


def test_file_names_cannot_end_a_command_or_begin_one() -> None:
    text = to_annotations(checked.BY_NAME["odd"]())
    got = commands(text)
    assert any(r"[red]x[/red] \x1b[31m|ü\x0a.parquet: policy_loss: " in one.message for one in got)
    assert "\x1b" not in text


@pytest.mark.parametrize("message", ["50% of it", "a::error::b", "a,b:c", "%0A is no newline", "two\nlines"])
def test_everything_survives_the_escapes(message: str) -> None:
    [one] = commands(failure_annotation(InputError(message, where="x,y:z%.parquet", hint="do")))
    assert one == Command("error", "ppocli check", f"{message}\n  --> x,y:z%.parquet\nhelp: do")


def test_the_summary_is_markdown_and_not_longer_than_github_takes() -> None:
    text = step_summary(checked.mixed())
    assert text.startswith("### ppocli check\n\n- ")
    assert r"| clip\_frac \<= 0.1 | 0.1234 | FAIL | 0.1234 is more than 0.1 |" in text
    long = within_summary("ä line\n" * 300_000)
    assert len(long.encode()) < 1 << 20
    assert long.endswith("ä line\n\nThe rest is left out: a summary holds 1 MiB.\n")
    assert within_summary("short\n") == "short\n"
