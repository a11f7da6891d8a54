"""What stands on standard output and standard error: pipes, encodings, widths, escape bytes, odd names."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
import reports
from contract.command import FAKE_ENGINE, environment, ppocli
from pages import parsed

EVAL = shlex.join([sys.executable, str(FAKE_ENGINE), "eval"])
FORMATS = ("table", "json", "jsonl", "csv", "tsv", "md", "html")


def shell(line: str, **changes: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        env=environment(**changes),
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("format_", ["table", "json"])
@pytest.mark.parametrize("changes", [{}, {"PYTHONUNBUFFERED": "1"}, {"PPOCLI_DEBUG": "1"}])
def test_head_closes_the_pipe(format_: str, changes: dict[str, str]) -> None:
    for reader, lines in (("head -n 1", 1), ("true", 0)):
        done = shell(f"{EVAL} full -f {format_} | {reader}", **changes)
        assert done.returncode in (0, 141)
        assert done.stderr == b""
        assert done.stdout.count(b"\n") == lines


def test_both_streams_into_a_closed_pipe() -> None:
    codes = {"full": 141, "empty": 141, "InputError": 3, "KeyError": 4, "small --bad": 2}
    for what, code in codes.items():
        done = shell(f"{EVAL} {what} 2>&1 | sleep 0")
        assert done.returncode in (code, 0 if code == 141 else code, 5 if what == "empty" else code)
        assert done.stderr == b""


def test_output_into_a_closed_pipe_is_141_and_silent() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    for arguments in (["eval", "full"], ["schema"], ["--version"], ["--help"], ["explain", "--list"]):
        done = subprocess.run(
            [sys.executable, str(FAKE_ENGINE), *arguments],
            stdout=write_end,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (141, b"")
    os.close(write_end)


@pytest.mark.parametrize(
    "what", ["eval full", "eval small", "schema", "explain --list", "--help", "--version"]
)
def test_a_full_disk_is_said(what: str) -> None:
    done = shell(f"{EVAL[: -len(' eval')]} {what} > /dev/full")
    assert done.returncode == 3
    assert done.stderr.startswith(b"error: cannot write 'standard output': No space left on device\n")


def test_messages_that_nobody_can_read_change_nothing() -> None:
    assert shell(f"{EVAL} InputError 2> /dev/full").returncode == 3
    assert shell(f"{EVAL} small -v 2> /dev/full").returncode == 0


def test_a_closed_standard_output_cannot_be_written() -> None:
    for what in ("full", "--help"):
        done = shell(f"{EVAL} {what} >&-")
        assert (done.returncode, done.stdout) == (3, b"")
        assert done.stderr.startswith(b"error: cannot write 'standard output': it is closed\n")
        assert shell(f"{EVAL} {what} >&- 2>&-").returncode == 3
    for quiet in ("-qq", "-o /dev/null"):
        done = shell(f"{EVAL} full {quiet} >&-")
        assert (done.returncode, done.stderr) == (0, b"")
    assert shell(f"{EVAL} full --bad >&-").returncode == 2


def test_a_closed_standard_error_sends_nothing_to_standard_output() -> None:
    done = shell(f"{EVAL} full -v -f json 2>&-")
    assert done.returncode == 0
    assert json.loads(done.stdout)["tool"] == "ppocli"
    assert shell(f"{EVAL} --help 2>&-").returncode == 0
    done = shell(f"{EVAL} InputError 2>&-")
    assert (done.returncode, done.stdout) == (3, b"")


@pytest.mark.parametrize(
    "arguments", [["eval", "full"], ["eval", "nulls"], ["eval", "odd"], ["--help"], ["eval", "-h"]]
)
@pytest.mark.parametrize(
    "changes",
    [
        {"GITHUB_ACTIONS": "true"},
        {"GITHUB_ACTIONS": "true", "NO_COLOR": "1"},
        {"CI": "true", "TERM": "xterm-256color", "COLORTERM": "truecolor"},
        {"NO_COLOR": "1", "FORCE_COLOR": "1"},
        {"TERM": "dumb", "COLUMNS": "200"},
    ],
)
def test_no_escape_byte_in_a_pipe(arguments: list[str], changes: dict[str, str]) -> None:
    done = ppocli(*arguments, **changes)
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout + done.stderr


def test_color_never_wins_over_everything_and_force_color_over_the_pipe() -> None:
    forced = {"TERM": "dumb", "FORCE_COLOR": "1", "COLUMNS": "200"}
    assert b"\x1b[" in ppocli("eval", "nulls", **forced).stdout
    assert b"\x1b" not in ppocli("eval", "nulls", "--color", "never", **forced).stdout
    assert ppocli("eval", "nulls", "--color", "never", **forced).stdout == ppocli("eval", "nulls").stdout


@pytest.mark.parametrize(
    "changes",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "cp1252"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX"},
    ],
)
@pytest.mark.parametrize("name", ["full", "odd"])
def test_streams_that_can_only_do_ascii(changes: dict[str, str], name: str) -> None:
    for format_ in ("table", "json"):
        done = ppocli("eval", name, "-f", format_, **changes)
        assert (done.returncode, done.stderr) == (0, b"")
        if name != "odd":
            assert done.stdout.isascii()
            assert b"?" not in done.stdout.replace(b"a clamp?", b"")
        if format_ == "json":
            assert json.loads(done.stdout)["inputs"][0]["path"] == reports.BY_NAME[name]().inputs[0].path


@pytest.mark.parametrize("columns", ["20", "80"])
@pytest.mark.parametrize("name", ["full", "nulls", "several"])
def test_numbers_and_paths_are_whole_at_any_width(columns: str, name: str) -> None:
    text = ppocli("eval", name, COLUMNS=columns).stdout.decode()
    assert not re.search(r"…|\.\.\.", text)
    for number in re.findall(r"\S*\d\S*", ppocli("eval", name).stdout.decode()):
        assert number in text


def test_without_a_width_a_pipe_gets_long_lines() -> None:
    lines = ppocli("eval", "odd").stdout.decode().splitlines()
    assert max(map(len, lines)) > 100


@pytest.mark.parametrize("format_", FORMATS)
def test_odd_names(format_: str) -> None:
    text = ppocli("eval", "odd", "-f", format_).stdout.decode()
    assert "\x1b" not in text
    shown = r"[red]x[/red] \x1b[31m|ü\x0a.parquet"
    if format_.startswith("json"):
        documents: list[Any] = (
            [json.loads(text)] if format_ == "json" else list(map(json.loads, text.splitlines()))
        )
        assert documents[-1]["inputs"][0]["path"] == reports.ODD_NAME
    elif format_ == "html":
        assert shown in parsed(text).text()
    elif format_ == "md":
        assert r"\[red\]x\[/red\] \\x1b\[31m\|ü\\x0a.parquet" in text
    else:
        assert shown in text


def test_names_that_are_not_utf_8() -> None:
    name = os.fsdecode(b"caf\xe9.parquet")
    code = (
        "import sys, types; import reports; m = types.ModuleType('ppocli.engine.evaluate');"
        "m.evaluate_files = lambda paths, *a, **k: reports.several(*paths);"
        "sys.modules['ppocli.engine.evaluate'] = m;"
        "from ppocli.cli.app import console_main; console_main()"
    )
    for format_ in ("table", "json", "csv"):
        done = subprocess.run(
            [sys.executable, "-c", code, "eval", name, "b", "-f", format_],
            capture_output=True,
            env=environment(PYTHONPATH=str(FAKE_ENGINE.parent.parent)),
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        text = done.stdout.decode()
        assert r"\udce9" in text if format_.startswith("json") else "xe9.parquet" in text


def on_a_terminal(*arguments: str, width: int = 80, **changes: str) -> str:
    """Run with standard output and error on a pseudo-terminal; return what it shows."""
    import fcntl
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    command = [sys.executable, str(FAKE_ENGINE), *arguments]
    settings = environment(**{"TERM": "xterm-256color", **changes})
    with subprocess.Popen(command, stdout=follower, stderr=follower, env=settings) as child:
        os.close(follower)
        shown = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        assert child.wait(timeout=60) == 0
    os.close(leader)
    return shown.decode().replace("\r\n", "\n")


def test_a_terminal_gets_color_and_its_width() -> None:
    text = on_a_terminal("eval", "nulls")
    assert "\x1b[1;31m" in text
    plain = re.sub("\x1b\\[[0-9;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= 80
    assert "\x1b" not in on_a_terminal("eval", "nulls", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal("--help")
    assert on_a_terminal("eval", "full", NO_COLOR="1") == ppocli("eval", "full", COLUMNS="80").stdout.decode()


@pytest.mark.parametrize("name", ["full", "nulls", "steps"])
@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_terminal_without_color_shows_what_a_pipe_of_its_width_gets(name: str, width: int) -> None:
    shown = on_a_terminal("eval", name, width=width, NO_COLOR="1")
    assert shown == ppocli("eval", name, COLUMNS=str(width)).stdout.decode()


def test_a_dumb_terminal_gets_ascii_and_no_escape() -> None:
    for arguments in (["steps"], ["full", "--hist"]):
        shown = on_a_terminal("eval", *arguments, TERM="dumb")
        assert shown.isascii()
        assert "\x1b" not in shown
        assert shown == ppocli("eval", *arguments, "--ascii", COLUMNS="80").stdout.decode()


def test_only_the_document_is_on_standard_output() -> None:
    done = ppocli("eval", "small", "-f", "json", "-v", "--progress", "always")
    assert json.loads(done.stdout)["tool"] == "ppocli"
    assert done.stderr.startswith(b"run: ")
