"""`drift`: two columns of log-probs, of one file or of two, to a `DriftReport`."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.chunk import ReadOptions
from ppocli.core.drift_options import FLOOR_METRICS, FULL_BYTES, NO_CAPS, DriftOptions, drift_limits, words
from ppocli.core.progress import NoProgress, Progress
from ppocli.core.roles import ROLES
from ppocli.core.spec import choose
from ppocli.engine import saved
from ppocli.engine.drift_inputs import DriftRun, InMemory, OneSide, TwoSides
from ppocli.engine.reading import reading_settings
from ppocli.errors import ExitCode, InputError, UsageProblem

if TYPE_CHECKING:
    from ppocli.core.drift_report import DriftReport
    from ppocli.core.limits import LimitKind
    from ppocli.engine.where import Where


def drift_files(
    paths: Sequence[str],
    others: Sequence[str] | None = None,
    options: DriftOptions | None = None,
    reading: ReadOptions | None = None,
    *,
    threads: int | None = None,
    chunk_rows: int | None = None,
    allow_empty: bool = False,
    skip_bad: bool = False,
    progress: Progress | None = None,
    where: Where | None = None,
) -> DriftReport:
    """Compare two columns of log-probs, token by token.

    Parameters
    ----------
    paths : sequence of str
        Files, patterns and directories that hold both sides, or side a.
    others : sequence of str, optional
        Those of side b; tokens are paired in stored order over all files of a side.
    options : DriftOptions, optional
    reading : ReadOptions, optional
    threads, chunk_rows, allow_empty, skip_bad, progress : as in `evaluate_files`
    where : Where, optional
        Where files are compared instead of here; not for two sides.

    Returns
    -------
    DriftReport

    Raises
    ------
    InputError
        Two files whose lengths or keys differ: the first of them is named.
    EmptyInput, UsageProblem
    """
    from ppocli.io.source import expand

    if options is not None and options.limits and skip_bad:
        raise UsageProblem("a gate judges every file, so limits take no --skip-bad")
    files, skipped = expand(paths)
    run = DriftRun(
        options or DriftOptions(),
        reading or ReadOptions(),
        progress or NoProgress(),
        chunk_rows,
        skip_bad,
        skipped=list(skipped),
    )
    if others is None:
        if run.options.key:
            raise UsageProblem("--key is for two files", hint="ppocli drift A B --key sequence_id")
        pair = OneSide(run, list(files))
    else:
        other_files, skipped = expand(others)
        run.skipped += skipped
        pair = TwoSides(run, list(files), list(other_files))
    if where is not None:
        from ppocli.engine.drift_units import check_drift

        check_drift(pair, where.name)
    return _drift(run, pair, threads, allow_empty, where)


def drift(source: Any = None, other: Any = None, /, **settings: Any) -> DriftReport:
    """Compare two columns of log-probs: of a file, of two files, or arrays by role.

    Parameters
    ----------
    source, other : str, path or sequence of them, optional
        Files, patterns or directories. None: arrays by role.
    old_log_probs, rollout_log_probs, mask, ... : array-like
        Arrays by role, as for `evaluate`.
    columns : mapping of role to column name
    max, min : mapping of metric to number
        Limits, such as `max={"diff_abs_p99": 0.2}`; `checks` of the report says how each ended.
    threads, chunk_rows, allow_empty, skip_bad, progress : as in `evaluate_files`
    **settings
        The fields of `DriftOptions` and `ReadOptions`.

    Returns
    -------
    DriftReport

    Raises
    ------
    InputError
        A file, column, shape or type that cannot be used.
    UsageProblem
        A setting outside its range, or not known.
    """
    from dataclasses import fields

    arrays = {role: settings.pop(role) for role in ROLES if settings.get(role) is not None}
    names = {one.name for one in fields(DriftOptions)}
    chosen = {name: settings.pop(name) for name in list(settings) if name in names}
    for name in ("key", "roles"):
        given = chosen.get(name)
        chosen[name] = words(given) if given is None or isinstance(given, str) else tuple(given)
    bounds: tuple[LimitKind, ...] = ("max", "min")
    for kind in bounds:
        pairs = [f"{name}={float(value)!r}" for name, value in (settings.pop(kind, None) or {}).items()]
        chosen["limits"] = (*chosen.get("limits", ()), *drift_limits(kind, kind, pairs))
    options = DriftOptions(**chosen)
    reading_names = {one.name for one in fields(ReadOptions)}
    reading = ReadOptions(**{name: settings.pop(name) for name in list(settings) if name in reading_names})
    known = {"threads", "chunk_rows", "allow_empty", "skip_bad", "progress", *bounds}
    if unknown := set(settings) - known:
        choose("setting", min(unknown), sorted(names | reading_names | known | set(ROLES)))
    if source is not None:
        if arrays:
            raise UsageProblem("give files or arrays, not both", hint=f"arrays given: {', '.join(arrays)}")
        both = [_paths(one) for one in (source, other) if one is not None]
        return drift_files(both[0], both[1] if len(both) > 1 else None, options, reading, **settings)
    run = DriftRun(
        options, reading, settings.get("progress") or NoProgress(), settings.get("chunk_rows"), skip_bad=False
    )
    return _drift(run, InMemory(run, arrays), settings.get("threads"), settings.get("allow_empty", False))


def _paths(source: Any) -> list[str]:
    """Return paths as a list of text."""
    one = isinstance(source, (str, bytes)) or hasattr(source, "__fspath__")
    return [os.fsdecode(path) for path in ([source] if one else list(source))]


def _drift(
    run: DriftRun, pair: OneSide, threads: int | None, allow_empty: bool, where: Where | None = None
) -> DriftReport:
    """Read every input once, and report."""
    for name, value in (("threads", threads), ("chunk_rows", run.chunk_tokens)):
        if value is not None and value < 1:
            raise UsageProblem(f"{name} is a whole number of at least 1, not {value}")
    from ppocli.kernels import _jit

    began = time.perf_counter()
    notice = _jit.set_threads(threads)
    if notice:
        run.progress.notice(f"warning: {notice}")
    _jit.on_first_compile(run.progress.notice)

    from ppocli.core.drift_report import DriftReport, Versus
    from ppocli.engine.drift_findings import find
    from ppocli.engine.drift_passes import PairPasses
    from ppocli.engine.pair_metrics import summarise_pair
    from ppocli.engine.pair_tables import (
        by_position,
        by_probability,
        by_step,
        corrections,
        histogram,
        top_sequences,
    )
    from ppocli.engine.token_ids import with_token_ids

    options = run.options
    size = pair.total_bytes()
    run.full = options.detail == "full" or (options.detail == "auto" and size <= FULL_BYTES)
    floor = read_floor(options.floor, options, run) if options.floor is not None else {}
    passes = PairPasses(run, pair, _jit.thread_count())
    run.progress.start(size)
    if where is None:
        passes.read()
    else:
        from ppocli.engine.drift_units import take_all

        take_all(passes, where)
    main_plan, main = passes.plans[0], passes.totals[0]
    whole = summarise_pair(main, main_plan, options.caps)
    others = []
    for plan, totals in zip(passes.plans[1:], passes.totals[1:], strict=True):
        if not totals.n_files:  # of an input that was skipped
            continue
        one = summarise_pair(totals, plan, NO_CAPS)
        others.append(Versus(plan.name, plan.a, plan.b, one.metrics, one.nulls))
    code = ExitCode.OK if main.n_tokens or allow_empty else ExitCode.EMPTY
    findings, told = find(main, main_plan, whole, passes.sample, run.inputs, floor, pair.first_bad())
    texts = {code: text for text, code in run.coders["step"].codes.items()}
    report = DriftReport(
        settings={**options.settings(full=run.full), **reading_settings(run.reading)},
        a=main_plan.a,
        b=main_plan.b,
        inputs=tuple(run.inputs),
        skipped=tuple(run.skipped),
        metrics=whole.metrics,
        nulls=whole.nulls,
        by_position=by_position(main),
        by_probability=by_probability(main),
        by_step=by_step(main, texts),
        sequences=top_sequences(main),
        histogram=histogram(main),
        corrections=corrections(whole),
        comparisons=tuple(others),
        floor=told,
        notes=tuple(run.notes),
        findings=findings,
        groups=tuple(passes.groups),
        worst=passes.worst.found(),
        places=whole.places,
        exit_code=int(code),
        run={
            "seconds": time.perf_counter() - began,
            "threads": _jit.thread_count(),
            "python": platform.python_version(),
            "machine": platform.machine(),
            **(where.said if where is not None else {}),
        },
    )
    found: DriftReport = with_token_ids(report, pair.openers())
    if options.limits:
        from ppocli.engine.drift_gate import judged

        return judged(found, options.limits, allow_empty=allow_empty)
    return found


def read_floor(path: str, options: DriftOptions, run: DriftRun) -> dict[str, Any]:
    """Return the path and the metrics of a noise floor: of a saved report (.json), or of data compared now.

    Raises
    ------
    InputError
        Neither.
    UsageProblem
        Data, which hold each role once, where both sides are the same role.
    """
    if not saved.is_saved_report(path):
        if options.a is not None and options.a == options.b:
            raise UsageProblem(
                f"--floor needs a saved report where both sides are {options.a}",
                hint=f"ppocli drift A AGAIN --a {options.a} --b {options.a} -f json -o floor.json",
            )
        plain = replace(options, floor=None, worst=0, by="total", detail="main", key=(), roles=(), limits=())
        report = drift_files([path], None, plain, run.reading, chunk_rows=run.chunk_tokens)
        return {"path": path, "metrics": dict(report.metrics)}
    document = saved.parse(path)
    kind, metrics = document.get("kind"), document.get("metrics")
    if document.get("tool") != "ppocli" or not isinstance(metrics, dict):
        raise InputError("not a report of ppocli", where=path)
    if kind != "drift":
        raise InputError(f"a report of kind '{kind}', not 'drift'", where=path)
    for name in FLOOR_METRICS:
        value = metrics.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise InputError(f"damaged report: {name} is {value!r}", where=path)
    return {"path": path, "metrics": metrics}
