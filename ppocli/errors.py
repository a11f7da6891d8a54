"""Exit codes and the errors that carry them. Everything may import this; it imports nothing of ppocli."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The public exit codes of the `ppocli` command.

    Where several apply, the first of 4 > 3 > 5 > 1 > 0 is used. Only a failed gate gives 1.
    """

    OK = 0
    GATE_FAILED = 1
    USAGE = 2
    INPUT = 3
    INTERNAL = 4
    EMPTY = 5
    INTERRUPTED = 130
    CLOSED_PIPE = 141


class Lines(str):
    """A place that takes several lines. Any other text is one line, and a line break in it part of a name."""


def one_line(name: str) -> str:
    r"""Return a name from outside with its line breaks as `\x0a`, for text of several lines.

    All else that does not show is escaped where the text is printed.
    """
    return name.replace("\n", r"\x0a")


class PpoCliError(Exception):
    """Base of all expected failures: one sentence, a place, a next step and an exit code.

    Parameters
    ----------
    message : str
        What is wrong: one sentence, lower-case start, names in quotes, values included.
    where : str, optional
        The file (and place in it) that the message is about. Several lines are `Lines`.
    hint : str, optional
        What to do next; a command that can be pasted where there is one. May have several lines; names in it
        go through `one_line`.
    """

    exit_code = ExitCode.INTERNAL

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        if self.where:
            lines.append(f"  --> {self.where}")
        if self.hint:
            lines.append(f"help: {self.hint}")
        return "\n".join(lines)


class UsageProblem(PpoCliError):
    """A flag, a configuration value, a metric name or a limit that cannot be used. Exit code 2."""

    exit_code = ExitCode.USAGE


class InputError(PpoCliError):
    """A file that is missing, damaged or not of the expected form. Exit code 3."""

    exit_code = ExitCode.INPUT


class StorageError(PpoCliError):
    """A store of objects that refuses the credentials or has no such bucket. Exit code 3, never skipped."""

    exit_code = ExitCode.INPUT


class EmptyInput(PpoCliError):
    """Nothing to evaluate: no file matched, or no valid token. Exit code 5."""

    exit_code = ExitCode.EMPTY


class InternalError(PpoCliError):
    """A fault of ppocli itself. Exit code 4."""

    exit_code = ExitCode.INTERNAL
