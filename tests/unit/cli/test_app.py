from __future__ import annotations

import importlib
import io
import sys
from typing import Any

import pytest

from ppocli import __version__
from ppocli.cli.app import COMMANDS, HELP, main
from ppocli.errors import EmptyInput, ExitCode, InputError, InternalError, Lines


@pytest.mark.parametrize("arguments", [["--version"], ["-V"], ["-V", "eval"], ["--version", "--help"]])
def test_version_is_one_line(run: Any, arguments: list[str]) -> None:
    assert run(*arguments) == (0, f"ppocli {__version__}\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_exactly_the_commands_of_the_table(run: Any, flag: str) -> None:
    code, out, err = run(flag)
    assert (code, err) == (0, "")
    assert HELP in out
    listed = out.partition("Commands:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines() if line[2] != " "] == list(COMMANDS)
    for name, command in COMMANDS.items():
        assert " ".join(f"{name} {command.line}".split()) in " ".join(listed.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_module_and_help(run: Any, name: str) -> None:
    module = importlib.import_module(COMMANDS[name].module)
    for flag in ("--help", "-h"):
        code, out, err = run(name, flag)
        assert (code, err) == (0, "")
        assert out.startswith(f"Usage: ppocli {name} ")
        assert module.HELP in out


@pytest.mark.parametrize("arguments", [[], ["eval"], ["explain"]])
def test_nothing_to_do_is_help_on_standard_error_and_code_2(run: Any, arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: ppocli ")
    assert err == run(*arguments, "--help")[1]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["evl", "x"],
            [
                "error: command 'evl' is not known",
                "help: did you mean 'eval'? one of: eval, schema, explain, env",
            ],
        ),
        (["--bad"], ["error: no such option: --bad", "help: ppocli --help lists all options"]),
        (
            ["eval", "-f", "json"],
            ["error: missing argument 'PATHS...'", "help: ppocli eval --help lists all options"],
        ),
        (
            ["schema", "x"],
            ["error: got unexpected extra argument(s) (x)", "help: ppocli schema --help lists all options"],
        ),
    ],
)
def test_usage_errors(run: Any, arguments: list[str], lines: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    if arguments[0] == "evl":  # the list grows with the table
        lines[1] = f"help: did you mean 'eval'? one of: {', '.join(COMMANDS)}"
    assert err.splitlines() == lines


@pytest.mark.parametrize(("kind", "code"), [(InputError, 3), (EmptyInput, 5), (InternalError, 4)])
def test_expected_failures_have_three_parts(engine: Any, run: Any, kind: type, code: int) -> None:
    where = Lines("a.parquet\ncolumns: b, c")
    engine.answer = kind("column 'x' not found", where=where, hint="--col log_probs=b")
    assert run("eval", "a.parquet") == (
        code,
        "",
        "error: column 'x' not found\n  --> a.parquet\n      columns: b, c\nhelp: --col log_probs=b\n",
    )


def test_parts_that_are_absent_are_left_out(engine: Any, run: Any) -> None:
    engine.answer = InputError("no such file 'a.parquet'")
    assert run("eval", "a.parquet") == (3, "", "error: no such file 'a.parquet'\n")


def test_names_in_failures_are_escaped(engine: Any, run: Any) -> None:
    engine.answer = InputError("no such file 'a\n\x1b[31m.parquet'", where="a\n\x1b", hint="x\x07")
    _, _, err = run("eval", "a.parquet")
    assert err == "error: no such file 'a\\x0a\\x1b[31m.parquet'\n  --> a\\x0a\\x1b\nhelp: x\\x07\n"


def test_a_bug_is_code_4_and_asks_for_a_report(engine: Any, run: Any) -> None:
    engine.answer = KeyError("x")
    code, out, err = run("eval", "a.parquet")
    assert (code, out) == (4, "")
    assert err.splitlines() == [
        "error: internal error (KeyError: 'x'); this is a bug",
        "help: run it again with --debug and report the traceback together with the output of 'ppocli env'",
    ]


@pytest.mark.parametrize("by_option", [True, False])
def test_the_traceback_is_for_debugging(
    engine: Any, run: Any, monkeypatch: pytest.MonkeyPatch, by_option: bool
) -> None:
    engine.answer = KeyError("x")
    if not by_option:
        monkeypatch.setenv("PPOCLI_DEBUG", "1")
    code, _, err = run("eval", "a.parquet", *(["--debug"] if by_option else []))
    assert code == 4
    assert err.startswith("Traceback (most recent call last):")
    assert "error: internal error (KeyError: 'x')" in err


def test_an_interrupt_is_130_and_shows_no_result(engine: Any, run: Any) -> None:
    engine.answer = KeyboardInterrupt()
    assert run("eval", "a.parquet") == (130, "", "")


def test_an_interrupt_while_the_arguments_are_read(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ppocli.cli.declare._take", interrupted)
    assert run("eval", "a.parquet") == (130, "", "")


def test_an_interrupt_while_a_failure_is_told(engine: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    engine.answer = InputError("x")
    monkeypatch.setattr("ppocli.cli.failures.report_failure", interrupted)
    assert run("eval", "a.parquet") == (130, "", "")


def test_a_closed_pipe_is_141_and_silent(engine: Any, run: Any) -> None:
    engine.answer = BrokenPipeError()
    assert run("eval", "a.parquet") == (141, "", "")


class ClosedPipe(io.StringIO):
    """A stream whose reader has gone, which shows only at the flush."""

    def flush(self) -> None:
        raise BrokenPipeError


def test_a_pipe_that_closes_at_the_last_flush(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", ClosedPipe())
    assert main(["eval", "a.parquet"]) == 141


def test_main_raises_nothing_and_takes_the_process_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ppocli", "--version"])
    assert main() == ExitCode.OK
    assert capsys.readouterr().out == f"ppocli {__version__}\n"


def test_exceptions_of_typer_leave_no_hook_behind(run: Any) -> None:
    before = sys.excepthook
    run("eval", "a.parquet", "--bad")
    assert sys.excepthook is before
