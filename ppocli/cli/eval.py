"""`ppocli eval`: parse, evaluate, show."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

# The classes are read at run time, by `flatten`.
from ppocli.cli.audit_options import AuditInPassing  # noqa: TC001
from ppocli.cli.failures import notice
from ppocli.cli.objective import ObjectiveOptions  # noqa: TC001
from ppocli.cli.options import DataOptions, OutputOptions, RunOptions, Sources  # noqa: TC001
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
    from ppocli.core.report import EvalReport, Group, InputReport

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


def run(
    sources: Sources,
    data: DataOptions,
    objective: ObjectiveOptions,
    auditing: AuditInPassing,
    output: OutputOptions,
    execution: RunOptions,
) -> int:
    """Evaluate the files, write the result, return the exit code."""
    spec, reading, audit = objective.loss_spec(), data.read_options(), auditing.audit_options()
    execution.check()
    check_rows(output)
    destination = plan(output, sources.paths, silent=execution.is_silent)

    from ppocli.engine.evaluate import evaluate_files

    look = look_at(sys.stderr, color=output.color)
    progress = progress_for(execution.progress, look, quiet=execution.is_quiet)
    try:
        report = evaluate_files(
            sources.paths,
            spec,
            reading,
            by=output.by,
            worst=output.worst,
            threads=execution.threads,
            chunk_rows=execution.chunk_rows,
            allow_empty=data.allow_empty,
            skip_bad=data.skip_bad,
            progress=progress,
            like=objective.like,
            audit=audit,
        )
    finally:
        progress.finish()
    report = in_order(report, output.sort)
    for line in notices(report, data, execution):
        notice(line)
    destination.deliver(
        lambda form, look, encoding: eval_text(
            report,
            form,
            look,
            digits=output.digits,
            sort=output.sort,
            hist=output.hist,
            encoding=encoding,
        )
    )
    return report.exit_code


def check_rows(output: OutputOptions) -> None:
    """Refuse a way of ordering that does not exist.

    Raises
    ------
    UsageProblem
    """
    check_by(output.by)
    if output.worst < 0:
        raise UsageProblem(f"--worst is a whole number of at least 0, not {output.worst}")
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
    if report.metrics.get("n_tokens", 0) == 0:
        level = "error" if report.exit_code else "warning"
        if report.exit_code or not execution.is_quiet:
            yield f"{level}: no valid token in {_empty_files(report.inputs)}"
    if execution.is_quiet:
        return
    if data.skip_bad and report.skipped:
        first = report.skipped[0]
        yield (
            f"warning: {plural(len(report.skipped), 'file')} skipped; the first: "
            f"{printable(first.path)}: {printable(first.reason)}"
        )
    if execution.verbose:
        said = (f"{key} {value}" for key, value in report.run.items())
        yield f"run: {', '.join(said)}"


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
