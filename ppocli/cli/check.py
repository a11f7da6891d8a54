"""`ppocli check`: evaluate or load, judge, show."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

# The classes are read at run time, by `flatten`.
from ppocli.cli.caps import CapOptions  # noqa: TC001
from ppocli.cli.completion import check_formats
from ppocli.cli.declare import DATA, OUTPUT, flag, word_option
from ppocli.cli.engine_options import EngineOptions, engine_settings
from ppocli.cli.eval import notices
from ppocli.cli.failures import notice
from ppocli.cli.gate_options import GateOptions  # noqa: TC001
from ppocli.cli.objective import ObjectiveOptions  # noqa: TC001
from ppocli.cli.options import DataOptions, RunOptions, Sources, WritingOptions
from ppocli.cli.output import plan
from ppocli.cli.settings import Configuration
from ppocli.errors import EmptyInput, InputError, StorageError, UsageProblem
from ppocli.render.check_formats import (
    CHECK_FORMATS,
    CHECK_SUFFIXES,
    CI_FORMATS,
    check_text,
    failure_text,
    step_summary,
)
from ppocli.render.console import look_at, printable
from ppocli.render.progress import progress_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppocli.cli.output import Destination
    from ppocli.core.check_report import CheckReport
    from ppocli.core.spec import LossSpec
    from ppocli.errors import PpoCliError

HELP = """\
Judge rollouts in CI: exit 1 where a limit is broken or a finding is an error.

Passes only if something was measured, every value is a number and every limit
holds; a value equal to its limit passes. Without limits the findings of
severity error are judged. Instead of data, a report that 'ppocli eval' or
'ppocli check' wrote with --export FILE.json can be judged again.

  ppocli check rollouts.parquet --max approx_kl_k3=0.05 --min ess_frac=0.3
  ppocli check 'runs/*/rank*.parquet' -f junit -o ppocli.xml
  ppocli check rollouts.parquet --baseline base.json --tolerance clip_frac=5%
  ppocli check report.json --max clip_frac=0.3"""


@dataclass(frozen=True, slots=True)
class CheckData(DataOptions):
    """How the data are read; nothing is passed over."""

    skip_bad: Annotated[
        bool, flag(DATA, "--skip-bad", text="Refused: a gate judges every file, or exits with 3.")
    ] = False


@dataclass(frozen=True, slots=True)
class CheckOutput(WritingOptions):
    """What is written where; the formats of CI are added."""

    format: Annotated[
        str,
        word_option(
            OUTPUT,
            "-f",
            "--format",
            metavar="FORMAT",
            text="table (default), json, jsonl, csv, tsv, md, html, junit, or github: annotations, and "
            "Markdown appended to the file that GITHUB_STEP_SUMMARY names.",
            words=check_formats,
        ),
    ] = "table"
    export: Annotated[
        list[str] | None,
        word_option(
            OUTPUT,
            "--export",
            metavar="FILE",
            text="Also write FILE; its suffix says the format: .json .jsonl .csv .tsv .md .html, and .xml "
            "for JUnit. Repeatable.",
        ),
    ] = None


def run(
    sources: Sources,
    data: CheckData,
    objective: ObjectiveOptions,
    weights: CapOptions,
    gating: GateOptions,
    output: CheckOutput,
    execution: RunOptions,
    engine: EngineOptions,
) -> int:
    """Judge the files, write the result, return the exit code."""
    if data.skip_bad:
        raise UsageProblem(
            "a gate judges every file, so it takes no --skip-bad", hint="ppocli eval can pass over files"
        )
    asked = _Asked(sources.paths, objective, weights, data, gating, execution, engine)
    read = [*sources.paths, *([gating.baseline] if gating.baseline is not None else [])]
    destination = plan(
        output, read, silent=execution.is_silent, formats=CHECK_FORMATS, suffixes=CHECK_SUFFIXES
    )
    try:
        report = asked.judged(output)
    except (InputError, StorageError, EmptyInput) as problem:
        _deliver_failure(destination, problem, sources.paths)
        raise
    destination.deliver(
        lambda form, look, encoding: check_text(report, form, look, digits=output.digits, encoding=encoding)
    )
    if output.format == "github":
        append_summary(step_summary(report, digits=output.digits))
    return report.exit_code


class _Asked:
    """What the command line asks for; checked when it is made, before anything is read."""

    def __init__(
        self,
        paths: Sequence[str],
        objective: ObjectiveOptions,
        weights: CapOptions,
        data: DataOptions,
        gating: GateOptions,
        execution: RunOptions,
        engine: EngineOptions,
    ) -> None:
        self.paths, self.data, self.execution, self.engine = paths, data, execution, engine
        self.spec, self.reading = objective.loss_spec(), data.read_options()
        self.caps = weights.caps()
        settings = execution.config or Configuration()
        self.like = objective.like
        extra = _names_under(self.like, self.spec)
        self.gate = gating.gate(settings, allow_empty=data.allow_empty, extra=extra)
        self.baseline = gating.baseline
        execution.check()
        engine.check()
        engine.check_rows(self.gate.by)

    def judged(self, output: CheckOutput) -> CheckReport:
        """Read and judge."""
        from ppocli.engine.gate import judge_source
        from ppocli.engine.reading import reading_settings

        path = self._saved_report()
        settings = {**self.spec.to_dict(), **reading_settings(self.reading), **self.caps.given()}
        report = judge_source(self.gate, lambda: self._evaluate(output), path, self.baseline, settings)
        if path is not None and not report.document["metrics"]["n_tokens"]:
            notice(f"{'error' if report.exit_code else 'warning'}: no valid token in '{printable(path)}'")
        return report

    def _saved_report(self) -> str | None:
        """Return the saved report that is to be judged, or None where there are data."""
        from ppocli.engine.saved import is_saved_report

        reports = [path for path in self.paths if is_saved_report(path)]
        if reports and len(self.paths) > 1:
            raise UsageProblem(
                f"a saved report is judged alone, and '{reports[0]}' is one of {len(self.paths)} paths"
            )
        return reports[0] if reports else None

    def _evaluate(self, output: CheckOutput) -> dict[str, Any]:
        """Evaluate the data."""
        from ppocli.engine.evaluate import evaluate_files

        look = look_at(sys.stderr, color=output.color)
        progress = progress_for(self.execution.progress, look, quiet=self.execution.is_quiet)
        try:
            with self.engine.cluster(self.execution.threads, progress) as cluster:
                report = evaluate_files(
                    self.paths,
                    self.spec,
                    self.reading,
                    by=self.gate.by,
                    threads=self.execution.threads,
                    chunk_rows=self.execution.chunk_rows,
                    allow_empty=self.data.allow_empty,
                    progress=progress,
                    like=self.like,
                    caps=self.caps,
                    **engine_settings(cluster),
                )
        finally:
            progress.finish()
        for line in notices(report, self.data, self.execution):
            notice(line)
        return report.to_dict()


def _names_under(like: str | None, spec: LossSpec) -> tuple[str, ...]:
    """Return the names of a framework's metrics, if there is one."""
    if like is None:
        return ()
    from ppocli.core.presets import preset

    return preset(like).names_under(spec)


def _deliver_failure(destination: Destination, problem: PpoCliError, paths: Sequence[str]) -> None:
    """Write what CI reads even where there is no result: JUnit files, annotations."""
    exports = [(path, form) for path, form in destination.exports if form in CI_FORMATS]
    reads = destination.format in CI_FORMATS
    told = replace(
        destination,
        exports=exports,
        file=destination.file if reads else None,
        silent=destination.silent or not reads,
    )
    told.deliver(lambda form, look, encoding: failure_text(problem, paths, form))


def append_summary(text: str, environment: Mapping[str, str] = os.environ) -> None:
    """Append Markdown to the summary of a job of GitHub Actions, if this is one.

    A summary that cannot be written is a warning: the exit code speaks of the data.
    """
    path = environment.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8", newline="\n") as stream:  # noqa: PTH123 (one call, appending)
            stream.write(text)
    except OSError as problem:
        notice(f"warning: cannot write the job summary '{printable(path)}': {problem.strerror or problem}")
