"""The gate of `drift`: limits on its metrics, judged as `check` judges them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ppocli.core.check_report import failed
from ppocli.core.drift_options import PREFIX
from ppocli.core.gate import Gate
from ppocli.engine.check import limited
from ppocli.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ppocli.core.check_report import Check
    from ppocli.core.drift_report import DriftReport
    from ppocli.core.limits import Limit


def judged(report: DriftReport, limits: Sequence[Limit], *, allow_empty: bool) -> DriftReport:
    """Return the report with a check of each limit; a failed one makes the exit code 1.

    A value equal to its limit passes; a metric that is null fails.
    """
    checks = tuple(_checks(report, limits, allow_empty=allow_empty))
    code = report.exit_code
    if code == ExitCode.OK and failed(checks):
        code = ExitCode.GATE_FAILED
    return replace(report, checks=checks).with_exit_code(code)


def _checks(report: DriftReport, limits: Sequence[Limit], *, allow_empty: bool) -> Iterator[Check]:
    """Yield the checks, under the names that the report has."""
    asked = [replace(one, metric=PREFIX + one.metric) for one in limits]
    gate = Gate(limits=tuple(asked), allow_empty=allow_empty)
    document = {"metrics": {"n_tokens": report.metrics["n_tokens"]}, "drift": report.short()}
    for one in limited(document, gate):
        metric = (one.metric or "").removeprefix(PREFIX)
        yield replace(
            one,
            name=one.name.removeprefix(PREFIX),
            metric=metric,
            where=one.where or report.places.get(metric.removesuffix("_finite")),
        )
