"""The exit codes are public: one case for each, as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from contract.command import FAKE_ENGINE, environment, ppocli

from ppocli.errors import ExitCode


def test_the_numbers_never_change() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "GATE_FAILED": 1,
        "USAGE": 2,
        "INPUT": 3,
        "INTERNAL": 4,
        "EMPTY": 5,
        "INTERRUPTED": 130,
        "CLOSED_PIPE": 141,
    }


@pytest.mark.parametrize(
    ("arguments", "code", "begins"),
    [
        (["--version"], 0, ""),
        (["eval", "small"], 0, ""),
        (["eval", "odd"], 0, ""),
        (["eval", "nulls"], 0, ""),
        (["eval", "empty"], 5, "error: no valid token in "),
        (["eval", "empty", "--allow-empty"], 0, "warning: no valid token in "),
        ([], 2, "Usage: "),
        (["eval"], 2, "Usage: "),
        (["evl"], 2, "error: "),
        (["eval", "small", "--bad"], 2, "error: "),
        (["eval", "InputError", "--clip-eps", "9"], 2, "error: "),
        (["eval", "UsageProblem"], 2, "error: what is wrong\n"),
        (
            ["eval", "InputError"],
            3,
            "error: what is wrong\n  --> file.parquet\n      columns: a, b\nhelp: what to do\n",
        ),
        (["eval", "EmptyInput"], 5, "error: what is wrong\n"),
        (["eval", "InternalError"], 4, "error: what is wrong\n"),
        (["eval", "ZeroDivisionError"], 4, "error: internal error (ZeroDivisionError: x); this is a bug\n"),
        (["eval", "MemoryError"], 4, "error: internal error (MemoryError: x); this is a bug\n"),
        (["eval", "KeyboardInterrupt"], 130, ""),
        (["eval", "BrokenPipeError"], 141, ""),
        (["check", "small"], 0, ""),
        (["check", "small", "--max", "clip_frac=0.1234"], 0, ""),
        (["check", "small", "--max", "clip_frac=0.1"], 1, ""),
        (["check", "small", "--max", "clip_frac=0.1", "--exit-zero"], 0, ""),
        (["check", "nulls"], 1, ""),
        (["check", "empty", "--max", "clip_frac=0.1"], 5, "error: no valid token in "),
        (["check"], 2, "Usage: "),
        (["check", "InputError", "--max", "clip_frac=nan"], 2, "error: "),
        (["check", "InputError", "--max", "clip_frac=0.1"], 3, "error: what is wrong\n"),
        (["check", "EmptyInput", "--exit-zero"], 5, "error: what is wrong\n"),
        (["check", "ZeroDivisionError"], 4, "error: internal error (ZeroDivisionError: x); this is a bug\n"),
        (["check", "BrokenPipeError"], 141, ""),
        (["schema"], 0, ""),
        (["explain", "clip_frac"], 0, ""),
        (["explain", "nothing"], 2, "error: "),
    ],
)
def test_exit_code_and_message(arguments: list[str], code: int, begins: str) -> None:
    done = ppocli(*arguments)
    assert done.returncode == code
    error = done.stderr.decode()
    assert error.startswith(begins)
    assert "Traceback" not in error
    assert bool(error) == bool(begins)
    assert bool(done.stdout) == (code in (0, 1, 5) and "EmptyInput" not in arguments)


@pytest.mark.parametrize(
    ("name", "code"),
    [("small", 0), ("empty", 5), ("InputError", 3), ("KeyError", 4), ("BrokenPipeError", 141)],
)
def test_debugging_changes_no_exit_code(name: str, code: int) -> None:
    done = ppocli("eval", name, PPOCLI_DEBUG="1")
    assert done.returncode == code
    assert (b"Traceback" in done.stderr) == (code in (3, 4))


# A shell that starts the tests in the background has them ignore SIGINT, and a child would inherit that.
INTERRUPTED = """
import os, signal, sys, time, types
signal.signal(signal.SIGINT, signal.default_int_handler)

def ready():
    print("ready", file=sys.stderr, flush=True)
    time.sleep(60)

class ClosedSlowly:
    def __del__(self):
        ready()

def evaluate_files(*_, **__):
    waits = ClosedSlowly() if os.environ["TIMES"] == "2" else None
    ready()

m = types.ModuleType("ppocli.engine.evaluate")
m.evaluate_files = evaluate_files
sys.modules["ppocli.engine.evaluate"] = m
from ppocli.cli.app import console_main
console_main()
"""


@pytest.mark.parametrize("times", [1, 2])
def test_real_interrupts_are_130(times: int) -> None:
    command = [sys.executable, "-c", INTERRUPTED, "eval", "x"]
    with subprocess.Popen(command, stdout=-1, stderr=-1, env=environment(TIMES=str(times))) as child:
        assert child.stderr is not None
        assert child.stdout is not None
        for _ in range(times):
            assert child.stderr.readline() == b"ready\n"
            child.send_signal(signal.SIGINT)
        assert child.wait(timeout=20) == 130
        assert (child.stdout.read(), child.stderr.read()) == (b"", b"")


def test_python_m_ppocli_is_the_same_command() -> None:
    assert ppocli("--version", engine=False).stdout == ppocli("--version").stdout
    assert FAKE_ENGINE.exists()


def test_without_the_compiler_nothing_can_be_evaluated() -> None:
    sample = Path(__file__).parents[2] / "sample_data" / "healthy.parquet"
    done = ppocli("eval", str(sample), engine=False, NUMBA_DISABLE_JIT="1")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().splitlines() == [
        "error: NUMBA_DISABLE_JIT is set, and the kernels cannot run without the compiler",
        "help: unset NUMBA_DISABLE_JIT",
    ]
    assert ppocli("inspect", str(sample), engine=False, NUMBA_DISABLE_JIT="1").returncode == 0
    assert ppocli("env", engine=False, NUMBA_DISABLE_JIT="1").returncode == 0
