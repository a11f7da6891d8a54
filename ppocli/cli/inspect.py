"""`ppocli inspect`: parse, look, show."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from ppocli.cli.declare import DATA, flag
from ppocli.cli.failures import notice

# The classes are read at run time, by `flatten`.
from ppocli.cli.notices import skipped_line
from ppocli.cli.options import FileOptions, SayingOptions, Sources, WritingOptions  # noqa: TC001
from ppocli.cli.output import plan
from ppocli.render.console import look_at
from ppocli.render.formats import inspect_text
from ppocli.render.progress import progress_for

HELP = """\
Show what is in files: columns, types, the roles they play and how 'ppocli eval'
would read them. Only footers and headers are read, unless --scan is given.

Nulls, min and max of Parquet columns are those of the footer's statistics: over
all rows, masked tokens included, NaN left out. A '-' stands for what the footer
does not say.

  ppocli inspect rollouts.parquet
  ppocli inspect 'runs/*/rank*.parquet'
  ppocli inspect dump.npz --scan -f json"""


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Whether the data are read."""

    scan: Annotated[
        bool,
        flag(
            DATA,
            "--scan",
            text="Also read the data: exact counts and ranges at valid tokens, the longest row, float32 "
            "columns that hold bfloat16 values.",
        ),
    ] = False


def run(
    sources: Sources, data: FileOptions, scanning: ScanOptions, output: WritingOptions, saying: SayingOptions
) -> int:
    """Look into the files, write what was found, return the exit code."""
    reading = data.read_options()
    saying.check()
    destination = plan(output, sources.paths, silent=saying.is_silent)

    from ppocli.engine.inspect import inspect_files

    look = look_at(sys.stderr, color=output.color)
    progress = progress_for(saying.progress, look, quiet=saying.is_quiet)
    try:
        report = inspect_files(
            sources.paths, reading, scan=scanning.scan, skip_bad=data.skip_bad, progress=progress
        )
    finally:
        progress.finish()
    if data.skip_bad and not saying.is_quiet:
        for line in skipped_line(report.skipped):
            notice(line)
    destination.deliver(
        lambda form, look, encoding: inspect_text(report, form, look, digits=output.digits, encoding=encoding)
    )
    return report.exit_code
