"""Gates from end to end: the data or a saved report, the baseline, the judgement."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.gate import Gate
from ppocli.core.limits import Limit, limits_from, profile_limits, tolerances_from
from ppocli.core.report import EvalReport
from ppocli.engine import saved
from ppocli.engine.check import judge
from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ppocli.core.check_report import CheckReport


def check(
    source: Any = None,
    /,
    *,
    max: Mapping[str, float] | None = None,
    min: Mapping[str, float] | None = None,
    expect: Mapping[str, tuple[float, float]] | None = None,
    baseline: str | os.PathLike[str] | None = None,
    tolerance: Mapping[str, float | str] | None = None,
    profiles: Sequence[str] = (),
    allow_empty: bool = False,
    by: str = "total",
    **settings: Any,
) -> CheckReport:
    """Judge files, arrays, a report, or a saved report.

    Parameters
    ----------
    source : EvalReport, str, path or sequence of them, optional
        A report of `evaluate`; a report saved as JSON; files, patterns or folders. None: arrays by role, in
        `settings`.
    max, min : mapping of metric to number
        The metric may be at most, or at least, that; equality passes. Metrics of a framework (`like`) go by
        its own names.
    expect : mapping of metric to (value, tolerance)
    baseline : path, optional
        A saved report; needs `tolerance`.
    tolerance : mapping of metric to number or text
        How far from the baseline: 1e-4, or "5%".
    profiles : sequence of str
        Published limits, by name.
    allow_empty, by : as in `Gate`
    **settings
        The other fields of `Gate` (fail_on, select, ignore, expect_on_policy, on_policy_tol, exit_zero), and
        what `evaluate` takes.

    Returns
    -------
    CheckReport
        `failed` says whether it failed, `exit_code` what `ppocli check` would exit with. Nothing is raised
        for a failed check.

    Raises
    ------
    UsageProblem
        An unknown metric, setting or word, a limit that is not finite, a gate that could never fail.
    InputError, EmptyInput
        As `evaluate`; a saved report or baseline that cannot be used.
    """
    extra = _framework_names(settings)
    gating = {name: settings.pop(name) for name in Gate.OPTIONS if name in settings}
    gate = Gate(
        limits=(
            *_limits("max", max or {}, extra),
            *_limits("min", min or {}, extra),
            *(
                one
                for metric, (value, allowed) in (expect or {}).items()
                for one in limits_from("expect", "expect", [f"{metric}={value!r}~{allowed!r}"], extra)
            ),
            *profile_limits(profiles),
        ),
        tolerances=tuple(
            tolerances_from(
                "tolerance", [f"{name}={amount}" for name, amount in (tolerance or {}).items()], extra
            )
        ),
        profiles=tuple(profiles),
        allow_empty=allow_empty,
        by=by,
        **gating,
    )
    base = None if baseline is None else os.fspath(baseline)
    if isinstance(source, EvalReport):
        return judge_source(gate, source.to_dict, None, base)
    path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else None
    if path is not None and saved.is_saved_report(path):
        if settings:
            raise UsageProblem(
                f"'{path}' is a report: {', '.join(settings)} would need the data", hint="judge the data"
            )
        return judge_source(gate, None, path, base)

    return judge_source(gate, lambda: _evaluated(source, by, allow_empty, settings), None, base)


def _evaluated(source: Any, by: str, allow_empty: bool, settings: dict[str, Any]) -> dict[str, Any]:
    """Evaluate files or arrays."""
    from ppocli.engine.evaluate import evaluate

    return evaluate(source, allow_empty=allow_empty, by=by, **settings).to_dict()


def _limits(kind: Any, values: Mapping[str, float], extra: Collection[str]) -> list[Limit]:
    """Return limits given as numbers."""
    return limits_from(kind, kind, [f"{metric}={float(value)!r}" for metric, value in values.items()], extra)


def _framework_names(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the metrics of the framework that is asked for, if one is."""
    if settings.get("like") is None:
        return ()
    from ppocli.core.presets import preset
    from ppocli.engine.evaluate import split_settings

    loss = {name: value for name, value in settings.items() if name not in Gate.OPTIONS}
    return preset(settings["like"]).names_under(split_settings(loss)[0])


def judge_source(
    gate: Gate,
    evaluated: Callable[[], dict[str, Any]] | None,
    report_path: str | None,
    baseline_path: str | None,
    settings: Mapping[str, Any] | None = None,
) -> CheckReport:
    """Read the baseline, then the data or the saved report, and judge.

    Parameters
    ----------
    evaluated : callable, optional
        Returns the document of the data. Needed where `report_path` is None.
    report_path, baseline_path : str, optional
    settings : mapping, optional
        What was asked for, as documents have it: compared with the baseline before the data are read, and
        with the saved report.

    Raises
    ------
    UsageProblem
        Settings that a saved report was not made with; a baseline without tolerances, or the other way round.
    InputError
        A report or baseline that cannot be used.
    """
    if bool(gate.tolerances) != (baseline_path is not None):
        raise UsageProblem(
            "a baseline and tolerances need each other",
            hint="for example: --baseline base.json --tolerance clip_frac=5%",
        )
    baseline = None
    if baseline_path is not None:
        baseline = saved.load(baseline_path)
        if settings is not None:
            saved.refuse_other_settings(settings, baseline, (), baseline_path)
    if report_path is not None:
        document = saved.load(report_path)
        if settings is not None:
            saved.refuse_other_options(document, settings, report_path)
    else:
        assert evaluated is not None
        document = evaluated()
    if baseline is not None and baseline_path is not None:
        compared = [one.metric for one in gate.tolerances]
        saved.refuse_other_definitions(document, baseline, compared, baseline_path)
    report = judge(document, gate, baseline)
    notes = [*saved.notes_on(document, report_path), *report.gate["notes"]]
    return replace(
        report, gate={**report.gate, "report": report_path, "baseline": baseline_path, "notes": notes}
    )
