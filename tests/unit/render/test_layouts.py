"""The layout of every screen; the numbers in them are asserted where they are made.

`--snapshot-update` writes the layouts anew: look at the difference before it is committed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import audited
import checked
import compared
import inspected
import pytest
import reports

from ppocli.core.report import LikeReport, NullNote
from ppocli.render.check_formats import check_text
from ppocli.render.console import Look
from ppocli.render.convert import convert_text
from ppocli.render.formats import audit_text, drift_text, eval_text, inspect_text, parity_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from syrupy.assertion import SnapshotAssertion

ESCAPE = re.compile("\x1b\\[[0-9;]*m")


LIKE = LikeReport(
    "trl",
    "TRL",
    "1.0",
    {"loss": -0.375, "sampling/importance_sampling_ratio/mean": None},
    {"sampling/importance_sampling_ratio/mean": NullNote("no column for rollout_log_probs")},
    {
        "loss": "objective + beta * k3 against the reference; chosen aggregation",
        "sampling/importance_sampling_ratio/mean": "weight old / rollout after truncation; mean over tokens",
    },
    ("a note on the preset",),
)
"""A framework's own names, one of them longer than any of ours."""

SCREENS: dict[str, Callable[[Look], str]] = {
    "eval": lambda look: eval_text(reports.full(), "table", look),
    "eval hist": lambda look: eval_text(
        reports.report(histograms=reports.histograms()), "table", look, hist=True
    ),
    "eval nulls": lambda look: eval_text(reports.with_nulls(), "table", look),
    "eval files": lambda look: eval_text(reports.several(), "table", look),
    "eval steps": lambda look: eval_text(reports.steps(), "table", look),
    "eval like": lambda look: eval_text(reports.report(like=LIKE), "table", look),
    "check": lambda look: check_text(checked.mixed(), "table", look),
    "check steps": lambda look: check_text(checked.BY_NAME["steps"](), "table", look),
    "audit": lambda look: audit_text(audited.report(), "table", look),
    "drift": lambda look: drift_text(compared.drift(), "table", look),
    "parity": lambda look: parity_text(compared.parity(), "table", look),
    "inspect": lambda look: inspect_text(inspected.BY_NAME["scanned"](), "table", look),
    "inspect files": lambda look: inspect_text(inspected.BY_NAME["several"](), "table", look),
    "convert": lambda look: convert_text(compared.converted(), "table", look),
}
HEADS_OF_NOTES = {
    "note",
    "definition",
    "why",
    "there",
    "is",
    "no",
    "number",
    "broken",
    "in",
    "branch",
    "how",
    "what",
    "a",
    "-",
    "b",
}
"""Words that are left out where notes stand below their rows."""

every = pytest.mark.parametrize("name", SCREENS)


@pytest.mark.parametrize("width", [80, 120, 200])
@every
def test_layout(name: str, width: int, snapshot: SnapshotAssertion) -> None:
    assert SCREENS[name](Look(width=width)) == snapshot


@every
def test_layout_in_ascii(name: str, snapshot: SnapshotAssertion) -> None:
    text = SCREENS[name](Look(width=80, ascii=True))
    assert text.isascii()
    assert text == snapshot


@pytest.mark.parametrize("name", ["eval", "parity", "drift"])
def test_layout_of_narrow_screens(name: str, snapshot: SnapshotAssertion) -> None:
    assert SCREENS[name](Look(width=40)) == snapshot


@pytest.mark.parametrize("ascii_only", [False, True])
# A table with a row for each file is as wide as the paths and the numbers are, here 87 columns.
@pytest.mark.parametrize("name", [name for name in SCREENS if name != "inspect files"])
def test_eighty_columns_are_enough(name: str, ascii_only: bool) -> None:
    lines = SCREENS[name](Look(width=80, ascii=ascii_only)).splitlines()
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("width", [1, 40, 60, 80, 200, None])
@every
def test_no_word_is_lost_at_any_width(name: str, width: int | None) -> None:
    """Wrapped, below its row or beside it: the words are the same, as often."""
    rule = re.compile("[─-]{3,}")

    def words(text: str) -> list[str]:
        return sorted(word for word in text.split() if not rule.fullmatch(word))

    whole = words(SCREENS[name](Look(width=1000)))
    got = words(SCREENS[name](Look(width=width)))
    for word in got:
        whole.remove(word)
    assert set(whole) <= HEADS_OF_NOTES


@every
def test_color_adds_nothing_but_escapes(name: str) -> None:
    plain = SCREENS[name](Look(width=80))
    colored = ESCAPE.sub("", SCREENS[name](Look(width=80, color=True)))
    assert "\x1b" not in plain
    assert [line.rstrip() for line in colored.splitlines()] == plain.splitlines()


@every
def test_a_pipe_gets_each_row_on_a_line(name: str) -> None:
    piped = SCREENS[name](Look()).splitlines()
    wide = SCREENS[name](Look(width=1000)).splitlines()
    assert [line for line in piped if "──" not in line] == [line for line in wide if "──" not in line]
