"""`ppocli drift`: parse, compare, show."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

# The classes are read at run time, by `flatten`.
from ppocli.cli.caps import CapOptions  # noqa: TC001
from ppocli.cli.declare import DATA, OBJECTIVE, OUTPUT, real_option, whole_option, word_option
from ppocli.cli.drift_limits import LimitOptions  # noqa: TC001
from ppocli.cli.engine_options import EngineOptions  # noqa: TC001
from ppocli.cli.failures import notice
from ppocli.cli.notices import run_line, skipped_line
from ppocli.cli.options import DataOptions, RunOptions, WritingOptions  # noqa: TC001
from ppocli.cli.output import plan
from ppocli.cli.settings import Configuration
from ppocli.core.drift_options import DriftOptions, words
from ppocli.core.url import addressed
from ppocli.errors import UsageProblem
from ppocli.render.console import look_at, printable
from ppocli.render.formats import drift_text
from ppocli.render.progress import progress_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppocli.core.drift_options import DriftCaps
    from ppocli.core.drift_report import DriftReport
    from ppocli.core.limits import Limit

HELP = """\
Compare two columns of log-probs token by token: what the trainer computed and
what the sampler reported. Shows the tails, where the difference is, what may
have caused it, and what importance weights would do about it.

With two paths, side a is read from the first and side b from the second; their
tokens are paired in stored order, or by keys that are the same on both sides.

  ppocli drift rollouts.parquet
  ppocli drift rollouts.parquet --a log_probs --b rollout_log_probs --worst 5
  ppocli drift trainer/ sampler/ --key sequence_id,position
  ppocli drift rollouts.parquet --tis-cap 2 --floor trainer_twice.json
  ppocli drift trainer/ sampler/ --max diff_abs_p99=0.2 --min ess_frac=0.9"""


@dataclass(frozen=True, slots=True)
class Compared:
    """The files of one or both sides."""

    path_a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A file, a folder, a quoted pattern or a URL that holds both columns, or side a.",
        ),
    ]
    path_b: Annotated[
        str | None, typer.Argument(metavar="[B]", help="The same for side b, where it stands elsewhere.")
    ] = None


@dataclass(frozen=True, slots=True)
class PairOptions:
    """What is compared with what."""

    a: Annotated[
        str | None,
        word_option(DATA, "--a", metavar="ROLE", text="Side a: the trainer. Default old_log_probs."),
    ] = None
    b: Annotated[
        str | None,
        word_option(DATA, "--b", metavar="ROLE", text="Side b: the sampler. Default rollout_log_probs."),
    ] = None
    key: Annotated[
        str | None,
        word_option(
            DATA,
            "--key",
            metavar="KEY,KEY",
            text="Keys that must be equal token by token in two files: sequence_id, group_id, step, "
            "position, token_id. Without it tokens are paired by position alone.",
        ),
    ] = None
    roles: Annotated[
        str | None,
        word_option(
            DATA,
            "--roles",
            metavar="ROLE,ROLE",
            text="More roles of two files to compare, each with itself: values,ref_log_probs.",
        ),
    ] = None
    floor: Annotated[
        str | None,
        word_option(
            DATA,
            "--floor",
            metavar="FILE",
            text="The trainer against itself: a saved report of drift (.json), or data to compare in the "
            "same way. The result is read against it; nothing is subtracted.",
        ),
    ] = None
    clip_low: Annotated[
        float,
        real_option(OBJECTIVE, "--clip-low", "Clip of the loss that corrections are tried on. Default 0.2."),
    ] = 0.2
    clip_high: Annotated[float, real_option(OBJECTIVE, "--clip-high", "Its upper end. Default 0.2.")] = 0.2
    detail: Annotated[
        str,
        word_option(
            OBJECTIVE,
            "--detail",
            metavar="auto|full|main",
            text="full: also compare with log_probs, and say what corrections do to the loss; takes about "
            "three times as long. auto (default): up to 64 MiB of input.",
        ),
    ] = "auto"
    by: Annotated[
        str,
        word_option(
            OUTPUT,
            "--by",
            metavar="file|total|step",
            text="One row for each file (default), the total only, or also one row for each step.",
        ),
    ] = "file"
    worst: Annotated[
        int, whole_option(OUTPUT, "--worst", "List the N tokens with the largest |a - b|. Default 5.")
    ] = 5

    def drift_options(self, caps: DriftCaps, limits: tuple[Limit, ...], *, two: bool) -> DriftOptions:
        """Return the options of the comparison.

        Raises
        ------
        UsageProblem
            An unknown role, key or word; a bound outside its range; an option for two files with one.
        """
        for flag, value in (("--key", self.key), ("--roles", self.roles)):
            if value is not None and not two:
                raise UsageProblem(f"{flag} is for two files", hint=f"ppocli drift A B {flag} {value}")
        return DriftOptions(
            a=self.a,
            b=self.b,
            key=words(self.key),
            roles=words(self.roles),
            tis_cap=caps.tis_cap,
            mask_low=caps.mask_low,
            mask_high=caps.mask_high,
            detail=self.detail,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            floor=self.floor,
            by=self.by,
            worst=self.worst,
            limits=limits,
        )


def run(
    compared: Compared,
    data: DataOptions,
    pairs: PairOptions,
    weights: CapOptions,
    gating: LimitOptions,
    output: WritingOptions,
    execution: RunOptions,
    engine: EngineOptions,
) -> int:
    """Compare, write the result, return the exit code."""
    limits = gating.limits(execution.config or Configuration())
    options = pairs.drift_options(weights.caps(), limits, two=compared.path_b is not None)
    reading = data.read_options()
    execution.check()
    engine.check()
    paths = [addressed(path) for path in (compared.path_a, compared.path_b) if path is not None]
    destination = plan(output, paths, silent=execution.is_silent)

    from ppocli.engine.drift import drift_files

    look = look_at(sys.stderr, color=output.color)
    progress = progress_for(execution.progress, look, quiet=execution.is_quiet)
    try:
        with engine.cluster(execution.threads, progress) as cluster:
            report = drift_files(
                paths[:1],
                paths[1:] or None,
                options,
                reading,
                threads=execution.threads,
                chunk_rows=execution.chunk_rows,
                allow_empty=data.allow_empty,
                skip_bad=data.skip_bad,
                progress=progress,
                where=cluster,
            )
    finally:
        progress.finish()
    for line in notices(report, data, execution):
        notice(line)
    destination.deliver(
        lambda form, look, encoding: drift_text(report, form, look, digits=output.digits, encoding=encoding)
    )
    return report.exit_code


def notices(report: DriftReport, data: DataOptions, execution: RunOptions) -> Iterator[str]:
    """Yield the lines for standard error. What made the exit code 5 is said even when quiet."""
    if report.metrics.get("n_tokens", 0) == 0 and (report.exit_code or not execution.is_quiet):
        level = "error" if report.exit_code else "warning"
        names = ", ".join(f"'{printable(one.path)}'" for one in report.inputs[:3])
        yield f"{level}: no valid token in {names or 'any input: no file was read'}"
    if execution.is_quiet:
        return
    if data.skip_bad:
        yield from skipped_line(report.skipped)
    if execution.verbose:
        yield run_line(report.run)
