"""`ppocli audit`: parse, audit, show."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

# The classes are read at run time, by `flatten`.
from ppocli.cli.audit_options import AuditChoices  # noqa: TC001
from ppocli.cli.engine_options import EngineOptions, engine_settings
from ppocli.cli.failures import notice
from ppocli.cli.objective import ObjectiveOptions  # noqa: TC001
from ppocli.cli.options import DataOptions, RunOptions, Sources, WritingOptions  # noqa: TC001
from ppocli.cli.output import plan
from ppocli.cli.settings import Configuration
from ppocli.core.audit_spec import check_audited
from ppocli.errors import ExitCode, UsageProblem
from ppocli.render.console import look_at
from ppocli.render.formats import audit_text
from ppocli.render.progress import progress_for

if TYPE_CHECKING:
    from ppocli.core.audit_report import AuditReport
    from ppocli.core.spec import LossSpec

HELP = """\
What lower precision would have done to the PPO loss of these rollouts.

For each format two questions, kept apart. Storage: the log-probs rounded to the
format, everything else in float64. Arithmetic: every step of the loss rounded to
it. The answer is what changes against float64: the loss, KL, clip decisions that
flip, ratios that overflow, drift that rounds to 0, gradients.

  ppocli audit rollouts.parquet
  ppocli audit rollouts.parquet --formats bfloat16,float8_e4m3fn,int8
  ppocli audit 'runs/*.parquet' --formats float16 --fail-on error -f json"""


NOT_AUDITED = ("horizon", "micro_batch", "value_clip", "vf_coef", "ent_coef", "kl_coef")
"""Settings of terms and means that an audit does not have; none of them is set by default."""


def run(
    sources: Sources,
    choices: AuditChoices,
    data: DataOptions,
    objective: ObjectiveOptions,
    output: WritingOptions,
    execution: RunOptions,
    engine: EngineOptions,
) -> int:
    """Audit the files, write the result, return the exit code."""
    options, reading = choices.audit_options(), data.read_options()
    spec = audited_loss(objective, execution.config or Configuration())
    execution.check()
    engine.check()
    destination = plan(output, sources.paths, silent=execution.is_silent)

    from ppocli.engine.audit import audit_files

    look = look_at(sys.stderr, color=output.color)
    progress = progress_for(execution.progress, look, quiet=execution.is_quiet)
    try:
        with engine.cluster(execution.threads, progress) as cluster:
            report = audit_files(
                sources.paths,
                spec,
                reading,
                options,
                threads=execution.threads,
                chunk_rows=execution.chunk_rows,
                allow_empty=data.allow_empty,
                skip_bad=data.skip_bad,
                progress=progress,
                like=objective.like,
                **engine_settings(cluster),
            )
    finally:
        progress.finish()
    say(report, data, execution)
    destination.deliver(
        lambda form, look, encoding: audit_text(report, form, look, digits=output.digits, encoding=encoding)
    )
    return report.exit_code


def audited_loss(objective: ObjectiveOptions, settings: Configuration) -> LossSpec:
    """Return the loss, without the terms and means that an audit does not have.

    A file, a variable or a framework may set those for other commands; on the command line they are refused.

    Raises
    ------
    UsageProblem
        Also for a loss that cannot be audited.
    """
    spec, given = objective.loss_spec(), objective.settings()
    check_audited(spec, token_mean=True)
    for name in NOT_AUDITED:
        option = name.replace("_", "-")
        if name in given and settings.origins.get(option) not in ("file", "environment"):
            raise UsageProblem(
                f"--{option} is about terms that are not audited", hint=f"leave --{option} out"
            )
    unset: dict[str, Any] = dict.fromkeys(NOT_AUDITED)
    return replace(spec, **unset)


def say(report: AuditReport, data: DataOptions, execution: RunOptions) -> None:
    """Write the lines for standard error; what made the exit code other than 0 also when quiet."""
    from ppocli.cli.eval import notices

    for line in notices(report.evaluation, data, execution):
        notice(line)
    if report.exit_code == ExitCode.GATE_FAILED:
        fail_on = report.evaluation.settings["fail_on"]
        notice(f"failed: the verdict is {report.audit.verdict}, and --fail-on is {fail_on}")
