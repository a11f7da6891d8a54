"""`ppocli synth`: parse, make, say what was written and which command shows it."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppocli.cli.declare import DATA, OUTPUT, RUN, flag, whole_option, word_option
from ppocli.cli.failures import emit, notice
from ppocli.cli.output import STANDARD_OUTPUT, check_target
from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppocli.engine.synth import Synthesised

HELP = """\
Write a small file of made-up rollouts that show one pathology, or none. For
trying out a gate, and for seeing what a finding looks like.

  ppocli synth --list
  ppocli synth --pathology idle-clip -o idle.parquet
  ppocli synth --pathology PPO502 --sequences 256 --seed 7 -o temperature.parquet
  ppocli synth --pathology nan -o - | ppocli check -"""


@dataclass(frozen=True, slots=True)
class SynthOptions:
    """What is made, and where it goes."""

    pathology: Annotated[
        str,
        word_option(
            DATA,
            "--pathology",
            metavar="NAME",
            text="What is wrong: a name that --list gives, or the code of a finding. Default healthy.",
        ),
    ] = "healthy"
    list_: Annotated[bool, flag(DATA, "--list", text="List all pathologies with a line each.")] = False
    sequences: Annotated[
        int, whole_option(DATA, "--sequences", "Sequences, one row each, at least 32. Default 64.")
    ] = 64
    tokens: Annotated[
        int, whole_option(DATA, "--tokens", "Tokens of the longest sequence, at least 32. Default 64.")
    ] = 64
    seed: Annotated[int, whole_option(DATA, "--seed", "The same seed gives the same file. Default 0.")] = 0
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The Parquet file; - for a pipe.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    force: Annotated[bool, flag(OUTPUT, "--force", text="Overwrite FILE if it exists.")] = False
    quiet: Annotated[bool, flag(RUN, "-q", "--quiet", text="Do not say what was written.")] = False
    debug: Annotated[bool, flag(RUN, "--debug", text="Show the traceback of an error.")] = False

    def target(self) -> str:
        """Return the file to write.

        Raises
        ------
        UsageProblem
            None is given, or it cannot or must not be written.
        """
        if self.output is None:
            raise UsageProblem("synth needs a file to write", hint="-o FILE.parquet, or --list")
        if self.output != STANDARD_OUTPUT:
            check_target(Path(self.output), force=self.force)
        elif sys.stdout.isatty():
            raise UsageProblem(
                "a Parquet file is not written to a terminal", hint="-o FILE.parquet, or a pipe"
            )
        return self.output


def run(options: SynthOptions) -> int:
    """Write the file, or list what there is; return the exit code."""
    if options.list_:
        emit("".join(f"{line}\n" for line in listing()))
        return 0
    path = options.target()

    from ppocli.core.rules import RULES
    from ppocli.engine.synth import PATHOLOGIES
    from ppocli.render.console import printable

    made = _piped(options) if path == STANDARD_OUTPUT else _written(options, path)
    if not options.quiet:
        one = PATHOLOGIES[made.name]
        what = "no finding" if one.code is None else f"{one.code}, {RULES[one.code].title}"
        where = "to standard output" if path == STANDARD_OUTPUT else printable(path)
        notice(f"wrote {where}: {made.sequences:,} sequences, {made.tokens:,} valid tokens")
        notice(f"shows {what}: {one.command_line(path)}")
    return 0


def _written(options: SynthOptions, path: str) -> Synthesised:
    """Write the file."""
    from ppocli.engine.synth import synth

    return synth(
        path,
        options.pathology,
        sequences=options.sequences,
        tokens=options.tokens,
        seed=options.seed,
        overwrite=options.force,
    )


def _piped(options: SynthOptions) -> Synthesised:
    """Write the bytes of the file to standard output."""
    with tempfile.TemporaryDirectory(prefix="ppocli-") as folder:
        path = Path(folder, "rollouts.parquet")
        made = _written(options, str(path))
        sys.stdout.buffer.write(path.read_bytes())
        sys.stdout.flush()
    return made


def listing() -> Iterator[str]:
    """Yield a line for each pathology: its name, the code of its finding, what was done."""
    from ppocli.engine.synth import PATHOLOGIES

    width = max(map(len, PATHOLOGIES))
    for name, one in PATHOLOGIES.items():
        yield f"{name:{width}}  {one.code or '':6}  {one.shows}"
