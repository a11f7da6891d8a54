"""Every failure as `error:`, `  --> where`, `help:` on standard error, and its exit code."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

from ppocli.errors import ExitCode, InputError, InternalError, Lines, PpoCliError, UsageProblem


def report_failure(problem: Exception, *, command: str, debug: bool) -> int:
    """Say what went wrong and return the exit code.

    Parameters
    ----------
    problem : Exception
        An expected failure, a usage error of Typer, or a fault of ppocli.
    command : str
        What to type before `--help`: `ppocli eval`.
    debug : bool
        Print the traceback first.
    """
    if debug:
        import traceback

        notice("".join(traceback.format_exception(problem)).rstrip())
    known = as_known(problem, command)
    say(known)
    return int(known.exit_code)


def as_known(problem: Exception, command: str) -> PpoCliError:
    """Return any exception as one with a message, a hint and an exit code."""
    if isinstance(problem, PpoCliError):
        return problem
    # Typer's usage errors have these; their classes are not public.
    if getattr(problem, "exit_code", None) == ExitCode.USAGE and hasattr(problem, "format_message"):
        return _usage(problem, command)
    return InternalError(
        f"internal error ({type(problem).__name__}: {problem}); this is a bug",
        hint="run it again with --debug and report the traceback together with the output of 'ppocli env'",
    )


def _usage(problem: Any, command: str) -> UsageProblem:
    """Return a usage error of Typer in our words."""
    help_line = f"{command} --help lists all options"
    option = getattr(problem, "param", None)
    if option is not None and problem.message:
        return UsageProblem(f"{option.opts[-1]}: {problem.message}", hint=help_line)
    near = getattr(problem, "possibilities", None)
    if near:
        help_line = f"did you mean {' or '.join(near)}? {help_line}"
        return UsageProblem(f"no such option: {problem.option_name}", hint=help_line)
    words = problem.format_message().strip().rstrip(".")
    return UsageProblem(words[:1].lower() + words[1:], hint=help_line)


def say(problem: PpoCliError) -> None:
    """Print a failure in its three parts."""
    from ppocli.render.console import printable

    lines = [f"error: {printable(problem.message)}"]
    if problem.where:
        where = problem.where
        first, *rest = where.split("\n") if isinstance(where, Lines) else [where]
        lines += [f"  --> {printable(first)}", *(f"      {printable(line)}" for line in rest)]
    if problem.hint:
        first, *rest = problem.hint.split("\n")
        lines += [f"help: {printable(first)}", *(f"      {printable(line)}" for line in rest)]
    notice("\n".join(lines))


def notice(text: str) -> None:
    """Print lines on standard error; if nobody reads it, the result still goes where it should."""
    if sys.stderr is None:  # closed: `print` would take standard output instead
        return
    from ppocli.core.url import without_secrets

    with suppress(OSError):
        print(without_secrets(text), file=sys.stderr, flush=True)


_PIECE = 1024
"""Characters written at a time: in UTF-8 at most the 4,096 bytes that a pipe takes whole or not at all.

With PYTHONUNBUFFERED a longer write may end early, where the reader leaves or the process is stopped for a
while, and Python drops the rest without a word.
"""


def emit(text: str) -> None:
    """Print the result on standard output.

    Raises
    ------
    InputError
        It cannot be written, or is closed.
    BrokenPipeError
        Its reader has gone.
    """
    if sys.stdout is None:
        raise cannot_write("standard output")
    try:
        for start in range(0, len(text), _PIECE):
            sys.stdout.write(text[start : start + _PIECE])
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise cannot_write("standard output", problem) from problem


def cannot_write(path: str, problem: OSError | None = None, hint: str | None = None) -> InputError:
    """Return the failure of writing a result; without an `OSError` the stream is closed."""
    why = "it is closed" if problem is None else problem.strerror or problem
    return InputError(f"cannot write '{path}': {why}", hint=hint)


def abandon_streams() -> None:
    """Point both streams at nothing, so that the interpreter's last flush does not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nowhere, stream.fileno())
        except (AttributeError, OSError, ValueError):  # no such stream, or one without a file behind it
            continue
    os.close(nowhere)
