"""`ppocli eval`: parse, evaluate, show."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

# The classes are read at run time, by `flatten`.
from ppocli.cli.audit_options import AuditInPassing  # noqa: TC001
from ppocli.cli.caps import CapOptions  # noqa: TC001
from ppocli.cli.declare import OUTPUT, word_option
from ppocli.cli.engine_options import EngineOptions, engine_settings
from ppocli.cli.failures import notice
from ppocli.cli.notices import run_line, skipped_line
from ppocli.cli.objective import ObjectiveOptions  # noqa: TC001
from ppocli.cli.options import DataOptions, OutputOptions, RunOptions, SortedOutput, Sources
from ppocli.cli.output import plan
from ppocli.core.glossary import nearest
from ppocli.core.metrics import METRICS
from ppocli.core.spec import check_by
from ppocli.errors import UsageProblem
from ppocli.render.console import look_at, printable
from ppocli.render.formats import eval_text
from ppocli.render.numbers import count_text, plural
from ppocli.render.progress import progress_for

if TYPE_CHECKING:
    from ppocli.core.chunk import ReadOptions
    from ppocli.core.report import EvalReport, Group, InputReport
    from ppocli.core.spec import LossSpec
    from ppocli.engine.ray_engine import Cluster

HELP = """\
Recompute the PPO loss and its diagnostics from logged rollouts.

Needs the columns log_probs, old_log_probs and advantages, under these or their
usual other names; mask, values, returns, entropy, ref_log_probs and others are
used where they exist. Nothing is filled in: a metric whose columns hold a NaN
is null, with the reason.

  ppocli eval rollouts.parquet
  ppocli eval 'runs/*/rank*.parquet' --clip-low 0.2 --clip-high 0.28
  ppocli eval dump.npz --col old_log_probs=logp_rollout -f json"""

SMALL_IS_BAD = frozenset({"ess_frac", "explained_variance", "explained_variance_old"})
"""Metrics by which files are sorted from the smallest."""

PARTIALS = "partials"
"""The format of the file of `--partials`."""


@dataclass(frozen=True, slots=True)
class EvalOutput(OutputOptions):
    """The same, and what is kept for a merge."""

    partials: Annotated[
        str | None,
        word_option(
            OUTPUT,
            "--partials",
            metavar="FILE",
            text="Also write FILE for ppocli merge: what was found in each input, as JSON.",
        ),
    ] = None


def run(
    sources: Sources,
    data: DataOptions,
    objective: ObjectiveOptions,
    weights: CapOptions,
    auditing: AuditInPassing,
    output: EvalOutput,
    execution: RunOptions,
    engine: EngineOptions,
) -> int:
    """Evaluate the files, write the result, return the exit code."""
    spec, reading, audit = objective.loss_spec(), data.read_options(), auditing.audit_options()
    caps = weights.caps()
    execution.check()
    engine.check()
    engine.check_rows(output.by, is_merged=output.partials is not None)
    check_by(output.by)
    check_rows(output)
    if output.worst < 0:
        raise UsageProblem(f"--worst is a whole number of at least 0, not {output.worst}")
    more = [(output.partials, PARTIALS)] if output.partials is not None else []
    destination = plan(output, sources.paths, silent=execution.is_silent, more=more)

    look = look_at(sys.stderr, color=output.color)
    progress = progress_for(execution.progress, look, quiet=execution.is_quiet)
    try:
        with engine.cluster(execution.threads, progress) as cluster:
            report, document = evaluated(
                sources.paths,
                spec,
                reading,
                cluster=cluster,
                keep=output.partials is not None,
                by=output.by,
                worst=output.worst,
                threads=execution.threads,
                chunk_rows=execution.chunk_rows,
                allow_empty=data.allow_empty,
                skip_bad=data.skip_bad,
                progress=progress,
                like=objective.like,
                audit=audit,
                caps=caps,
            )
    finally:
        progress.finish()
    report = in_order(report, output.sort)
    for line in notices(report, data, execution):
        notice(line)
    destination.deliver(
        lambda form, look, encoding: (
            json.dumps(document, allow_nan=False) + "\n"
            if form == PARTIALS
            else eval_text(
                report,
                form,
                look,
                digits=output.digits,
                sort=output.sort,
                hist=output.hist,
                encoding=encoding,
            )
        )
    )
    return report.exit_code


def evaluated(
    paths: list[str],
    spec: LossSpec,
    reading: ReadOptions,
    *,
    cluster: Cluster | None,
    keep: bool,
    **settings: Any,
) -> tuple[EvalReport, dict[str, Any] | None]:
    """Return the report, and the document of partials where it is kept."""
    if keep:
        from ppocli.engine.by_file import evaluate_with_partials

        return evaluate_with_partials(paths, spec, reading, where=cluster, **settings)
    from ppocli.engine.evaluate import evaluate_files

    return evaluate_files(paths, spec, reading, **settings, **engine_settings(cluster)), None


def check_rows(output: SortedOutput) -> None:
    """Refuse a way of ordering that does not exist.

    Raises
    ------
    UsageProblem
    """
    if output.sort == "policy_loss_by_agg":
        raise UsageProblem(
            "--sort: policy_loss_by_agg is one number for each aggregation",
            hint="--agg chooses which of them is policy_loss: --agg seq-mean-token-mean --sort policy_loss",
        )
    if output.sort is not None and output.sort not in METRICS:
        raise UsageProblem(f"--sort: metric '{output.sort}' is not known", hint=nearest(output.sort, METRICS))
    if output.sort is not None and output.by == "total":
        raise UsageProblem("--sort orders files, and --by total shows none", hint="leave out one of the two")


def in_order(report: EvalReport, metric: str | None) -> EvalReport:
    """Return the report with its files ordered by a metric: nulls, then the worst; ties keep their order."""
    if metric is None:
        return report
    sign = 1.0 if metric in SMALL_IS_BAD else -1.0

    def key(group: Group) -> tuple[bool, float]:
        value = group.metrics.get(metric)
        return value is not None, sign * (value or 0.0)

    return replace(report, groups=tuple(sorted(report.groups, key=key)))


def notices(report: EvalReport, data: DataOptions, execution: RunOptions) -> Iterator[str]:
    """Yield the lines for standard error. What made the exit code 5 is said even when quiet."""
    yield from empty_line(report, quiet=execution.is_quiet)
    if execution.is_quiet:
        return
    if data.skip_bad:
        yield from skipped_line(report.skipped)
    if execution.verbose:
        yield run_line(report.run)


def empty_line(report: EvalReport, *, quiet: bool) -> Iterator[str]:
    """Yield the line that says that nothing was evaluated, if nothing was."""
    if report.metrics.get("n_tokens", 0) == 0 and (report.exit_code or not quiet):
        level = "error" if report.exit_code else "warning"
        yield f"{level}: no valid token in {_empty_files(report.inputs)}"


def _empty_files(inputs: tuple[InputReport, ...]) -> str:
    """Name the inputs without a valid token, at most three of them."""
    if not inputs:
        return "any input: no file was read"
    named = [
        f"'{printable(one.path)}' ({'no rows' if one.rows == 0 else f'{count_text(one.masked)} masked'})"
        for one in inputs[:3]
    ]
    rest = len(inputs) - 3
    return ", ".join(named) + (f" and {plural(rest, 'more file')}" if rest > 0 else "")
