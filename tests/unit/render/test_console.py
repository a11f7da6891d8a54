from __future__ import annotations

import io
import os
import pty
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppocli.render.console import Look, look_at, look_for_file, prepare_streams, printable, shorten


class Stream(io.TextIOWrapper):
    """A text stream that claims to be a terminal or not."""

    def __init__(self, terminal: bool = False, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("choice", "terminal", "environment", "expected"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", False, {"GITHUB_ACTIONS": "true"}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", False, {"FORCE_COLOR": "1"}, True),
        ("auto", False, {"FORCE_COLOR": "0"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("auto", False, {"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        ("auto", True, {"CLICOLOR": "0"}, False),
        ("never", True, {"FORCE_COLOR": "1"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
    ],
)
def test_color(choice: str, terminal: bool, environment: dict[str, str], expected: bool) -> None:
    assert look_at(Stream(terminal), color=choice, environment=environment).color is expected


@pytest.mark.parametrize(
    ("encoding", "environment", "expected"),
    [
        ("utf-8", {}, False),
        ("ascii", {}, True),
        ("cp1252", {}, True),
        ("latin-1", {}, True),
        ("utf-8", {"LC_ALL": "C"}, True),
        ("utf-8", {"LC_ALL": "POSIX"}, True),
        ("utf-8", {"LC_ALL": "C.UTF-8", "LANG": "C"}, False),
        ("utf-8", {"LANG": "C"}, True),
    ],
)
def test_ascii_is_chosen_from_encoding_and_locale(
    encoding: str, environment: dict[str, str], expected: bool
) -> None:
    assert look_at(Stream(encoding=encoding), environment=environment).ascii is expected
    assert look_at(Stream(encoding=encoding), ascii_only=True, environment=environment).ascii


def test_width_of_a_terminal_then_columns_then_none() -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 91, 0, 0))
        assert look_at(terminal, environment={"COLUMNS": "20"}).width == 91
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        assert look_at(terminal, environment={"COLUMNS": "20"}).width == 20
    os.close(leader)
    assert look_at(Stream(), environment={"COLUMNS": "20"}).width == 20
    for useless in ({}, {"COLUMNS": "0"}, {"COLUMNS": "wide"}, {"COLUMNS": "-5"}):
        assert look_at(Stream(), environment=useless).width is None


def test_a_missing_stream_and_a_file_are_plain() -> None:
    assert look_at(None, environment={}) == Look()
    assert look_for_file(environment={"COLUMNS": "70", "FORCE_COLOR": "1"}) == Look(width=70)
    assert look_for_file(ascii_only=True, environment={}) == Look(ascii=True)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain [red]x[/red].parquet", "plain [red]x[/red].parquet"),
        ("ü π 面", "ü π 面"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\tc\rd\x00", r"a\x0ab\x09c\x0dd\x00"),
        ("\x7f\x85\x9b", r"\x7f\x85\x9b"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\u2028", r"\u2028"),
        (os.fsdecode(b"caf\xe9"), r"caf\xe9"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_printable(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    assert printable(text).isprintable()


def test_shorten_cuts_the_middle() -> None:
    path = "runs/step_000120/rank3.parquet"
    assert shorten(path, 30, "…") == path
    cut = shorten(path, 20, "…")
    assert len(cut) == 20
    assert cut.startswith("runs/s")
    assert cut.endswith("rank3.parquet"[-13:])
    assert shorten(path, 20, "...") == "runs/" + "..." + path[-12:]


def test_streams_replace_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = Stream(encoding="ascii"), Stream(encoding="UTF-8")
    monkeypatch.setattr(sys, "stdout", narrow)
    monkeypatch.setattr(sys, "stderr", wide)
    prepare_streams()
    assert (narrow.errors, wide.errors) == ("replace", "strict")
    monkeypatch.setattr(sys, "stdout", None)
    prepare_streams()
