"""`ppocli parity`: parse, compare, show."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from ppocli.cli.declare import OUTPUT, flag, word_option
from ppocli.cli.failures import notice

# The classes are read at run time, by `flatten`.
from ppocli.cli.objective import ObjectiveOptions  # noqa: TC001
from ppocli.cli.options import DataOptions, RunOptions, Sources, WritingOptions  # noqa: TC001
from ppocli.cli.output import plan
from ppocli.errors import UsageProblem
from ppocli.render.console import look_at
from ppocli.render.formats import parity_text
from ppocli.render.progress import progress_for

HELP = """\
Show what every framework calls loss, clip fraction, approx KL and value loss on
the same rollouts, with the definition that makes the difference.

Each framework's own defaults hold, but for what is given here for all of them.
Where a number needs what the files do not have, the table says so.

  ppocli parity rollouts.parquet
  ppocli parity rollouts.parquet --clip-low 0.2 --clip-high 0.28
  ppocli parity rollouts.parquet --only verl --only trl:dapo -f json"""


@dataclass(frozen=True, slots=True)
class ParityOptions:
    """Which frameworks are compared."""

    only: Annotated[
        list[str] | None,
        word_option(OUTPUT, "--only", metavar="NAME", text="Only this framework. Repeatable."),
    ] = None
    variants: Annotated[
        bool, flag(OUTPUT, "--variants", text="Also the variants of frameworks, such as trl:dapo.")
    ] = False


def run(
    sources: Sources,
    data: DataOptions,
    objective: ObjectiveOptions,
    choice: ParityOptions,
    output: WritingOptions,
    execution: RunOptions,
) -> int:
    """Compare the frameworks, write the result, return the exit code."""
    if objective.like is not None:
        raise UsageProblem("parity compares frameworks; --like chooses one", hint=f"--only {objective.like}")
    overrides, reading = objective.settings(), data.read_options()
    execution.check()
    destination = plan(output, sources.paths, silent=execution.is_silent)

    from ppocli.engine.parity import parity_files

    look = look_at(sys.stderr, color=output.color)
    progress = progress_for(execution.progress, look, quiet=execution.is_quiet)
    try:
        report = parity_files(
            sources.paths,
            overrides,
            reading,
            only=choice.only or (),
            variants=choice.variants,
            threads=execution.threads,
            chunk_rows=execution.chunk_rows,
            allow_empty=data.allow_empty,
            skip_bad=data.skip_bad,
            progress=progress,
        )
    finally:
        progress.finish()
    if report.exit_code:
        notice("error: no valid token in the input")
    destination.deliver(
        lambda form, look, encoding: parity_text(report, form, look, digits=output.digits, encoding=encoding)
    )
    return report.exit_code
