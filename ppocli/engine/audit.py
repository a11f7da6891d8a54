"""`audit`: files or arrays to an `AuditReport`: the loss in other precisions beside that in float64."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ppocli.core.audit_report import AuditReport
from ppocli.core.audit_spec import VERDICTS, AuditOptions, check_audited, formats_of
from ppocli.core.spec import LossSpec
from ppocli.errors import ExitCode, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ppocli.core.chunk import ReadOptions
    from ppocli.core.progress import Progress
    from ppocli.core.report import EvalReport
    from ppocli.engine.assembly import Engine
    from ppocli.engine.evaluate import Run

SELECTIONS = ("ratio", "policy", "adv", "log_prob")
"""What is evaluated in float64 beside it: everything that the three main columns allow."""


def audit_files(
    paths: Sequence[str],
    spec: LossSpec | None = None,
    options: ReadOptions | None = None,
    audit: AuditOptions | None = None,
    *,
    threads: int | None = None,
    chunk_rows: int | None = None,
    allow_empty: bool = False,
    skip_bad: bool = False,
    progress: Progress | None = None,
    like: str | None = None,
    engine: Callable[[Run, int], Engine] | None = None,
) -> AuditReport:
    """Audit files, patterns and directories.

    Parameters
    ----------
    paths : sequence of str
    spec : LossSpec, optional
        The loss: objective ppo, without corrections; its aggregation is the token mean.
    options : ReadOptions, optional
    audit : AuditOptions, optional
    threads, chunk_rows, allow_empty, skip_bad, progress, engine
        As in `ppocli.engine.evaluate.evaluate_files`.
    like : str, optional
        A framework under whose names columns are looked for. `spec` is the loss in any case.

    Returns
    -------
    AuditReport
        Its exit code is 1 where a verdict reaches `fail_on`.

    Raises
    ------
    InputError, EmptyInput, UsageProblem
    """
    from ppocli.engine.evaluate import evaluate_files

    wanted = audit or AuditOptions()
    spec = spec or LossSpec()
    check_audited(spec, token_mean=True)
    report = evaluate_files(
        paths,
        spec,
        options,
        by="total",
        threads=threads,
        chunk_rows=chunk_rows,
        allow_empty=allow_empty,
        skip_bad=skip_bad,
        progress=progress,
        like=like,
        audit=wanted,
        only=SELECTIONS,
        engine=engine,
    )
    return report_of(report, wanted)


def report_of(report: EvalReport, options: AuditOptions) -> AuditReport:
    """Return the report of an evaluation that was audited, with its exit code."""
    result = report.audit
    assert result is not None
    code = ExitCode(report.exit_code)
    if code == ExitCode.OK and fails(result.verdict, options.fail_on):
        code = ExitCode.GATE_FAILED
    return AuditReport(report, result, int(code))


def fails(verdict: str, fail_on: str) -> bool:
    """Whether a verdict reaches what the gate fails on."""
    return fail_on != "never" and VERDICTS.index(verdict) >= VERDICTS.index(fail_on)


def audit(source: Any = None, /, **settings: Any) -> AuditReport:
    """Recompute the PPO loss as lower precision would have given it, from files or from arrays.

    Parameters
    ----------
    source : str, path or sequence of them, optional
        Files, patterns or directories. None: arrays by role, as in `ppocli.evaluate`.
    formats : str or sequence of str
        Names of `ppocli.core.precision.PRECISIONS`. Default float32, bfloat16, float16.
    accumulate, loss_tolerance, fail_on, with_advantages
        The fields of `AuditOptions`.
    **settings
        As in `ppocli.evaluate`: roles, columns, like, the fields of `LossSpec`, threads, chunk_rows,
        allow_empty, skip_bad. A framework gives its loss and its names of columns.

    Returns
    -------
    AuditReport

    Raises
    ------
    InputError, UsageProblem
    """
    from ppocli.engine.evaluate import evaluate, split_settings

    for name in ("by", "worst", "horizon", "micro_batch"):
        if name in settings:
            raise UsageProblem(f"{name} is not a setting of an audit")
    names = {one.name for one in fields(AuditOptions)}
    chosen = {name: settings.pop(name) for name in list(settings) if name in names}
    if "formats" in chosen:
        chosen["formats"] = formats_of(chosen["formats"])
    options = AuditOptions(**chosen)
    check_audited(split_settings(dict(settings))[0], token_mean=True)
    if source is not None:
        source = [source] if isinstance(source, (str, bytes)) or hasattr(source, "__fspath__") else source
        source = [os.fsdecode(path) for path in source]
    report = evaluate(source, **settings, by="total", audit=options, only=SELECTIONS)
    return report_of(report, options)
