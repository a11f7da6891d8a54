from __future__ import annotations

import io
import time

import pytest

from ppocli.core.progress import NoProgress
from ppocli.render.console import Look
from ppocli.render.progress import TerminalProgress, progress_for

TERMINAL = Look(width=80, terminal=True)


@pytest.mark.parametrize(
    ("choice", "look", "quiet", "environment", "shown"),
    [
        ("auto", TERMINAL, False, {}, True),
        ("auto", Look(), False, {}, False),
        ("auto", TERMINAL, False, {"CI": "true"}, False),
        ("auto", TERMINAL, True, {}, False),
        ("always", TERMINAL, False, {"CI": "true"}, True),
        ("always", Look(), False, {}, False),
        ("never", TERMINAL, False, {}, False),
    ],
)
def test_who_gets_a_bar(
    choice: str, look: Look, quiet: bool, environment: dict[str, str], shown: bool
) -> None:
    made = progress_for(choice, look, quiet=quiet, environment=environment)
    assert isinstance(made, TerminalProgress) is shown
    assert isinstance(made, NoProgress)


def test_notices_are_lines_on_the_stream_unless_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    progress_for("auto", Look(), environment={}).notice("compiling")
    progress_for("auto", Look(), quiet=True, environment={}).notice("compiling")
    assert capsys.readouterr().err == "compiling\n"


def test_a_short_run_shows_nothing() -> None:
    stream = io.StringIO()
    bar = TerminalProgress(stream, TERMINAL)
    bar.start(1000)
    bar.advance(50, 500)
    bar.finish()
    assert stream.getvalue() == ""


def test_a_long_run_shows_the_share_and_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock, 102.0))
    stream = io.StringIO()
    bar = TerminalProgress(stream, TERMINAL)
    bar.start(200_000_000)
    bar.advance(50_000_000, 9_000_000, 300_000)
    bar.finish()
    bar.finish()
    text = stream.getvalue()
    assert "25%" in text
    assert "300 k rows" in text
    assert "25.0 MB/s" in text
    assert "4.5 M tokens/s" in text
    assert text.endswith("\x1b[2K"), "the line is taken away at the end"
