"""`ppocli convert`: parse, convert, say what was written."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ppocli.cli.completion import convert_formats
from ppocli.cli.declare import OUTPUT, RUN, flag, word_option
from ppocli.cli.failures import emit

# The classes are read at run time, by `flatten`.
from ppocli.cli.options import ReadingOptions, SayingOptions, Sources  # noqa: TC001
from ppocli.cli.output import STANDARD_OUTPUT, check_target
from ppocli.core.spec import choose
from ppocli.errors import UsageProblem
from ppocli.render.console import look_at
from ppocli.render.convert import CONVERT_FORMATS, convert_text
from ppocli.render.progress import progress_for

HELP = """\
Write whatever can be read as one Parquet file: columns named by role, one row per
sequence (flat data stay flat), float32, or float64 where the source is. No value
changes. The file appears under its name when it is whole.

  ppocli convert train_data_step7.jsonl -o step7.parquet --verify
  ppocli convert 'dumps/*.npz' -o all.parquet --col old_log_probs=logp
  ppocli convert --recover .rollouts.parquet.81-4f20aa.arrows -o rollouts.parquet"""


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """Where the file goes, and what is done beside writing it."""

    output: Annotated[
        str,
        typer.Option("-o", "--output", metavar="FILE", help="The Parquet file.", rich_help_panel=OUTPUT),
    ]
    force: Annotated[bool, flag(OUTPUT, "--force", text="Overwrite FILE if it exists.")] = False
    format: Annotated[
        str,
        word_option(
            OUTPUT,
            "-f",
            "--format",
            metavar="FORMAT",
            text="How to say what was written: table (default), json, jsonl, csv, tsv or md.",
            words=convert_formats,
        ),
    ] = "table"
    verify: Annotated[
        bool,
        flag(RUN, "--verify", text="Read the file again and compare it bit for bit before it gets its name."),
    ] = False
    recover: Annotated[
        bool,
        flag(
            RUN,
            "--recover",
            text="Take what is whole of a recording, an Arrow file or JSON Lines that were cut.",
        ),
    ] = False

    def check(self) -> None:
        """Refuse an unknown format.

        Raises
        ------
        UsageProblem
        """
        choose("--format", self.format, CONVERT_FORMATS)

    def check_output(self, inputs: list[str]) -> None:
        """Refuse a file that cannot or must not be written.

        Raises
        ------
        UsageProblem
        """
        if self.output == STANDARD_OUTPUT:
            raise UsageProblem("convert writes a file, not standard output", hint="-o OUT.parquet")
        check_target(Path(self.output), force=self.force)
        if os.path.realpath(self.output) in {os.path.realpath(path) for path in inputs}:
            raise UsageProblem(f"'{self.output}' is an input", hint="choose another name for the output")


def run(sources: Sources, data: ReadingOptions, writing: ConvertOptions, saying: SayingOptions) -> int:
    """Convert the files, say what was written, return the exit code."""
    reading = data.read_options()
    saying.check()
    writing.check()
    writing.check_output(sources.paths)

    from ppocli.engine.convert import convert_files

    progress = progress_for(saying.progress, look_at(sys.stderr), quiet=saying.is_quiet)
    try:
        report = convert_files(
            sources.paths,
            writing.output,
            reading,
            overwrite=writing.force,
            verify=writing.verify,
            recover=writing.recover,
            progress=progress,
        )
    finally:
        progress.finish()
    if not saying.is_silent:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        emit(convert_text(report, writing.format, look_at(sys.stdout), encoding=encoding))
    return report.exit_code
