"""The command line: which command lives where, how it is called, and how the process ends."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, NoReturn

from ppocli.errors import ExitCode


class Command(NamedTuple):
    """Where a command lives, its line in the list, and whether it is of no use without an argument."""

    module: str
    line: str
    needs_argument: bool = False


COMMANDS: dict[str, Command] = {
    "eval": Command("ppocli.cli.eval", "the PPO loss and its diagnostics, recomputed from rollouts", True),
    "check": Command("ppocli.cli.check", "judge rollouts in CI: limits, findings, a baseline", True),
    "parity": Command(
        "ppocli.cli.parity", "every framework's loss, clip fraction and KL on the same rollouts", True
    ),
    "drift": Command("ppocli.cli.drift", "two columns of log-probs compared: trainer and sampler", True),
    "audit": Command("ppocli.cli.audit", "what lower precision would have done to the loss", True),
    "inspect": Command("ppocli.cli.inspect", "what is in files, and how eval would read them", True),
    "convert": Command("ppocli.cli.convert", "whatever can be read, as one Parquet file by role", True),
    "merge": Command(
        "ppocli.cli.merge", "files that eval --partials wrote, as one run over all inputs", True
    ),
    "synth": Command("ppocli.cli.synth", "made-up rollouts that show one pathology, or none", True),
    "schema": Command("ppocli.cli.schema", "the JSON Schema of the output of -f json"),
    "explain": Command(
        "ppocli.cli.explain", "what a metric, a framework, a setting, a role or a finding means", True
    ),
    "config": Command("ppocli.cli.config", "settings from files and variables, with their origin", True),
    "env": Command("ppocli.cli.env", "versions, processors and cache directory, for a bug report"),
}
"""A new command is one line here and one module with `HELP` and `run`."""

HELP = """\
ppocli recomputes the PPO clipped-surrogate loss and its diagnostics from logged
rollouts, exactly, and says in plain words what is wrong with them.

  ppocli eval rollouts.parquet
  ppocli eval 'runs/*/rank*.parquet' -f json

Exit codes: 0 ok, 1 a gate failed, 2 usage, 3 input, 4 internal error, 5 nothing
evaluated, 130 interrupted, 141 the reader closed the pipe. The JSON and the exit
codes are stable; tables are for people and may change."""


def console_main() -> NoReturn:
    """Run `main` and leave the process at once.

    Interpreter teardown with LLVM loaded takes 0.17 s, so the streams are flushed and the process ends by
    `os._exit`. With PPOCLI_DEBUG=1 it ends in the ordinary way. Three more things are for a process that is
    ours alone. Looking for unreachable objects after every 700 new ones takes a tenth of a short run, most of
    which is imports, whose objects stay. NumPy's BLAS, which nothing here uses, starts a thread for each
    processor, 25 ms on two. Threads of OpenMP that wait for work spin, which takes the processor from those
    that have some: on two processors with others at work, 50 M tokens by step took 69 s, and 26 s without.
    """
    _leave_at_second_interrupt()
    gc.set_threshold(50_000)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    code = main()
    if os.environ.get("PPOCLI_DEBUG") == "1":
        sys.exit(code)
    os._exit(code)


def _leave_at_second_interrupt() -> None:
    """Let the first Ctrl-C end the work in good order, and the next one the process, at once and in silence.

    What is done in between, such as waiting for the thread that reads, may be in a place where an exception
    cannot be caught and would be shown with a traceback. A signal that is ignored stays so.
    """
    import signal

    def leave(*_: Any) -> None:
        os._exit(int(ExitCode.INTERRUPTED))

    def interrupt(*_: Any) -> None:
        signal.signal(signal.SIGINT, leave)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; nothing is raised.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name. None: those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    code = int(ExitCode.CLOSED_PIPE)
    try:
        code = _guarded(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as problem:  # a closed pipe, or a full disk that was reported already
        from ppocli.cli.failures import abandon_streams

        abandon_streams()
        return int(ExitCode.CLOSED_PIPE) if isinstance(problem, BrokenPipeError) else code
    except KeyboardInterrupt:  # outside of the work itself: while a failure is told, or at the flush
        return int(ExitCode.INTERRUPTED)
    return code


def _guarded(arguments: list[str]) -> int:
    """Run the command line; turn every failure but a closed pipe into a message and a code."""
    try:
        return _dispatch(arguments)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except SystemExit as leaving:  # shell completion
        return leaving.code if isinstance(leaving.code, int) else 0
    except Exception as problem:
        from ppocli.cli.failures import report_failure

        command = _named(arguments)
        debug = "--debug" in arguments or os.environ.get("PPOCLI_DEBUG") == "1"
        return report_failure(
            problem, command=f"ppocli {command}" if command in COMMANDS else "ppocli", debug=debug
        )


def _named(arguments: Sequence[str]) -> str | None:
    """Return the command that the arguments name, known or not: the first that is not an option."""
    return next((word for word in arguments if not word.startswith("-")), None)


def _dispatch(arguments: list[str]) -> int:
    """Answer `--version`, or let Typer read the rest."""
    if arguments in (["--version"], ["-V"]):
        from ppocli import __version__
        from ppocli.cli.failures import emit

        emit(f"ppocli {__version__}\n")
        return int(ExitCode.OK)
    from ppocli.render.console import prepare_streams

    prepare_streams()
    if "_PPOCLI_COMPLETE" in os.environ:  # a shell asks for completions; its words are in the environment
        from ppocli.cli.completion import typed_words

        word = _named(typed_words(os.environ))
        return _run(arguments, [word] if word in COMMANDS else [])
    name = _named(arguments)
    if name is not None and name not in COMMANDS:
        from ppocli.core.spec import choose

        choose("command", name, COMMANDS)
    if not arguments or (name is not None and arguments == [name] and COMMANDS[name].needs_argument):
        return _run([*arguments, "--help"], arguments, asked=False)
    return _run(arguments, [name] if name else [])


def _run(arguments: list[str], full: Collection[str], *, asked: bool = True) -> int:
    """Let Typer read the arguments, then do what they say; help that was not asked for goes to stderr."""
    from ppocli.cli.failures import emit, notice
    from ppocli.cli.help import Answer

    try:
        work = build(full).main(args=arguments, prog_name="ppocli", standalone_mode=False)
    except Answer as answer:
        if not asked:
            notice(answer.text.rstrip())
            return int(ExitCode.USAGE)
        emit(answer.text)
        return int(ExitCode.OK)
    if work is None:  # no command
        return _run(["--help"], [], asked=False)
    # Typer makes a number of an interrupt while it reads the arguments.
    return work if isinstance(work, int) else int(work())


def build(full: Collection[str]) -> Any:
    """Return the command line as Typer reads it.

    Parameters
    ----------
    full : collection of str
        The commands to be registered with their options; Typer takes 0.2 ms for each option, so the others
        are only named.
    """
    from importlib import import_module

    import typer
    from typer.main import get_command

    from ppocli.cli.declare import flatten, take_as_typed
    from ppocli.cli.root import root

    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_help_option=False,
        # Reading the two options of shell completion imports pydantic, 85 ms: not when a command was called.
        add_completion=len(full) != 1 or "_PPOCLI_COMPLETE" in os.environ,
    )
    app.callback(help="\n" + HELP, invoke_without_command=True)(root)
    for name, command in COMMANDS.items():
        if name in full:
            module = import_module(command.module)
            app.command(name, help="\n" + module.HELP, add_help_option=False)(flatten(module.run))
        else:
            app.command(name, help=command.line, add_help_option=False)(_named_only)
    command_line: Any = get_command(app)  # its class has no public name
    for name in full:
        take_as_typed(command_line.commands[name])
    return command_line


def _named_only() -> int:
    """Stand for a command that was not called."""
    raise AssertionError("a command that was not called has no options")
