"""`evaluate`: files or arrays to an `EvalReport`."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ppocli.core.audit_spec import check_audited
from ppocli.core.chunk import IdCoder, Reader, ReadOptions
from ppocli.core.presets import Preset, preset
from ppocli.core.progress import NoProgress, Progress
from ppocli.core.reference import ppo_clip_loss as ppo_clip_loss
from ppocli.core.report import EvalReport, Group, InputReport, LikeReport, Skipped
from ppocli.core.roles import MAIN_ROLES, ROLES
from ppocli.core.spec import LossSpec, check_without_preset, choose
from ppocli.engine.reading import ID_ROLES, ReadAgain, reading_settings
from ppocli.errors import ExitCode, InputError, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ppocli.core.audit_spec import AuditOptions
    from ppocli.engine.passes import Passes
    from ppocli.engine.summary import Summary


Report = TypeVar("Report")


@dataclass(slots=True)
class Run:
    """One evaluation: what was asked for, and what has been found so far."""

    spec: LossSpec
    open_readers: Sequence[Callable[[], Reader]]
    chunk_tokens: int | None
    progress: Progress
    skip_bad: bool
    paths: Sequence[str]
    reading: Mapping[str, Any]
    audit: AuditOptions | None = None
    only: Collection[str] | None = None
    inputs: list[InputReport] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    like: Preset | None = None

    def readers(self) -> Iterator[tuple[int, Reader]]:
        """Open one input after the other; unreadable ones are skipped only on request."""
        for index, (path, open_reader) in enumerate(zip(self.paths, self.open_readers, strict=True)):
            if any(one.path == path and one.reason.startswith("unreadable") for one in self.skipped):
                continue
            try:
                reader = open_reader()
            except InputError as problem:
                self.skip(path, problem)
                continue
            try:
                yield index, reader
            finally:
                reader.close()

    def total_bytes(self) -> int:
        """Return the size of all inputs, as far as they are files."""
        return sum(file.stat().st_size for file in map(Path, self.paths) if file.is_file())

    def openers_by_path(self) -> dict[str, Callable[[], Reader]]:
        """Return how each input is opened again."""
        return dict(zip(self.paths, self.open_readers, strict=True))

    def skip(self, path: str, problem: InputError) -> None:
        """Note an unreadable input, or raise."""
        if not self.skip_bad:
            raise problem
        self.skipped.append(Skipped(path, f"unreadable: {problem.message}"))


def evaluate_files(
    paths: Sequence[str],
    spec: LossSpec | None = None,
    options: ReadOptions | None = None,
    *,
    by: str = "file",
    worst: int = 0,
    threads: int | None = None,
    chunk_rows: int | None = None,
    allow_empty: bool = False,
    skip_bad: bool = False,
    progress: Progress | None = None,
    required_roles: Sequence[str] = MAIN_ROLES,
    like: str | None = None,
    audit: AuditOptions | None = None,
    only: Collection[str] | None = None,
) -> EvalReport:
    """Evaluate files, patterns and directories.

    Parameters
    ----------
    paths : sequence of str
    spec : LossSpec, optional
    options : ReadOptions, optional
    by : {"file", "total"}
        Also report each file's metrics in `groups`, when there is more than one file.
    worst : int
        How many of the worst tokens to list by |log_ratio| and by |loss|.
    threads : int, optional
        None: what affinity and cgroup allow.
    chunk_rows : int, optional
        Tokens read at a time. Changes no result.
    allow_empty : bool
        Exit code 0 instead of 5 when there is no valid token.
    skip_bad : bool
        Leave unreadable files out, and list them in `skipped`.
    progress : Progress, optional
    required_roles : sequence of str
    like : str, optional
        A preset (`ppocli.core.presets`): its metrics are reported under its own names. `spec` is the loss in
        any case.
    audit : AuditOptions, optional
        Also recompute the loss in other precisions.
    only : collection of str, optional
        Selections of `ppocli.core.partials` to evaluate; None: all that there are columns for.

    Returns
    -------
    EvalReport

    Raises
    ------
    InputError, EmptyInput, UsageProblem
    """
    spec = spec or LossSpec()
    if audit is not None:
        check_audited(spec)
    run = files_run(
        paths,
        spec,
        options,
        chunk_rows,
        skip_bad=skip_bad,
        progress=progress,
        required_roles=required_roles,
        like=None if like is None else preset(like),
    )
    run.audit, run.only = audit, only
    return _evaluate(run, by, worst, threads, allow_empty)


def files_run(
    paths: Sequence[str],
    spec: LossSpec,
    options: ReadOptions | None,
    chunk_rows: int | None,
    *,
    skip_bad: bool,
    progress: Progress | None,
    required_roles: Sequence[str] = MAIN_ROLES,
    like: Preset | None = None,
) -> Run:
    """Return a run over files, patterns and directories; arguments as in `evaluate_files`."""
    from ppocli.engine.files_ahead import in_flight
    from ppocli.io.source import expand, open_input

    files, skipped = expand(paths)
    coders = {role: IdCoder() for role in ID_ROLES}
    wanted = options or ReadOptions()
    if like is not None:
        wanted = replace(wanted, aliases=like.aliases)

    def opener(path: str) -> Callable[[], Reader]:
        return lambda: open_input(path, wanted, coders, required_roles)

    return Run(
        spec=spec,
        open_readers=in_flight(files, [opener(path) for path in files]),
        chunk_tokens=chunk_rows,
        progress=progress or NoProgress(),
        skip_bad=skip_bad,
        paths=files,
        reading=reading_settings(wanted),
        skipped=list(skipped),
        like=like,
    )


def evaluate(source: Any = None, /, **settings: Any) -> EvalReport:
    """Recompute the PPO loss and its diagnostics from files or from arrays.

    Parameters
    ----------
    source : str, path or sequence of them, optional
        Files, patterns or directories. None: arrays by role.
    log_probs, old_log_probs, advantages, mask, ... : array-like
        Arrays by role (`ppocli.core.roles.ROLES`): (N,), padded (B, T) with `mask`, or lists of 1-D arrays;
        NumPy arrays, PyTorch tensors (detached; bfloat16 through its bits), lists. (N, 1) is squeezed.
    clip_eps : float
        Sets `clip_low` and `clip_high`.
    columns : mapping of role to column name
    like : str
        A framework whose loss and metrics are wanted (`ppocli.core.presets`); other settings override its.
    by, worst, threads, chunk_rows, allow_empty, skip_bad : as in `evaluate_files`
    **settings
        The fields of `LossSpec`.

    Returns
    -------
    EvalReport
        Values that are null have a note in `nulls`; nothing is imputed.

    Raises
    ------
    InputError
        A file, column, shape or type that cannot be used.
    UsageProblem
        A setting outside its range, or not known.
    """
    arrays = {role: settings.pop(role) for role in ROLES if settings.get(role) is not None}
    spec, options, others = split_settings(settings)
    if source is not None:
        if arrays:
            raise UsageProblem("give files or arrays, not both", hint=f"arrays given: {', '.join(arrays)}")
        paths = (
            [source] if isinstance(source, (str, bytes)) or hasattr(source, "__fspath__") else list(source)
        )
        return evaluate_files([os.fsdecode(path) for path in paths], spec, options, **others)
    return _evaluate_arrays(arrays, spec, options, others)


def split_settings(settings: dict[str, Any]) -> tuple[LossSpec, ReadOptions, dict[str, Any]]:
    """Sort keyword settings into those of the loss, of reading and of the run."""
    eps = settings.pop("clip_eps", None)
    if eps is not None:
        settings.setdefault("clip_low", eps)
        settings.setdefault("clip_high", eps)
    names = {one.name for one in fields(LossSpec)}
    given = {name: settings.pop(name) for name in list(settings) if name in names}
    like = settings.get("like")
    spec = LossSpec(**given) if like is None else preset(like).loss_spec(given)
    reading = {one.name for one in fields(ReadOptions)}
    options = ReadOptions(**{name: settings.pop(name) for name in list(settings) if name in reading})
    known = {"by", "worst", "threads", "chunk_rows", "allow_empty", "skip_bad", "progress"}
    known |= {"like", "audit", "only"}
    unknown = set(settings) - known - set(ROLES)
    if unknown:
        choose("setting", min(unknown), sorted(names | reading | known | set(ROLES) | {"clip_eps"}))
    return spec, options, {name: value for name, value in settings.items() if name in known}


def _evaluate_arrays(
    arrays: Mapping[str, Any], spec: LossSpec, options: ReadOptions, others: dict[str, Any]
) -> EvalReport:
    """Evaluate arrays in memory."""
    from ppocli.io.arrays import ArrayReader

    missing = [role for role in MAIN_ROLES if role not in arrays]
    if missing:
        raise UsageProblem(
            f"no array for {', '.join(missing)}",
            hint="evaluate(path) reads a file; arrays go by role: evaluate(log_probs=..., ...)",
        )
    if others.get("audit") is not None:
        check_audited(spec)
    run = Run(
        spec=spec,
        open_readers=[lambda: ArrayReader(arrays, options)],
        chunk_tokens=others.get("chunk_rows"),
        progress=others.get("progress") or NoProgress(),
        skip_bad=False,
        paths=["<arrays>"],
        reading=reading_settings(options),
        like=None if others.get("like") is None else preset(others["like"]),
        audit=others.get("audit"),
        only=others.get("only"),
    )
    return _evaluate(
        run,
        others.get("by", "file"),
        others.get("worst", 0),
        others.get("threads"),
        others.get("allow_empty", False),
    )


def _audit_settings(run: Run) -> dict[str, Any]:
    """Return the settings of the audit, if there is one."""
    return run.audit.to_dict() if run.audit is not None else {}


def _evaluate(run: Run, by: str, worst: int, threads: int | None, allow_empty: bool) -> EvalReport:
    """Check what was asked for, and report."""
    choose("by", by, ("file", "total"))
    if run.like is None:
        check_without_preset(run.spec)
    numbers: tuple[tuple[str, Any, int], ...] = (
        ("worst", worst, 0),
        ("threads", threads, 1),
        ("chunk_rows", run.chunk_tokens, 1),
    )
    for name, value, least in numbers:
        if value is not None and (not isinstance(value, int) or value < least):
            raise UsageProblem(f"{name} is a whole number of at least {least}, not {value!r}")
    return until_read(run, lambda: _evaluate_once(run, by, worst, threads, allow_empty))


def until_read(run: Run, once: Callable[[], Report]) -> Report:
    """Return what one evaluation reports; begin again without an input that had to be left out too late."""
    while True:
        try:
            return once()
        except ReadAgain:
            run.inputs.clear()


def _evaluate_once(run: Run, by: str, worst: int, threads: int | None, allow_empty: bool) -> EvalReport:
    """Read every input once, or twice where advantages are normalised, and report."""
    from ppocli.kernels import _jit

    began = time.perf_counter()
    start_kernels(run, threads)

    from ppocli.engine.aggregates import over_horizon
    from ppocli.engine.correction import put_correction
    from ppocli.engine.drift_passes import known_kl
    from ppocli.engine.findings import find
    from ppocli.engine.like import wanted
    from ppocli.engine.metrics import summarise
    from ppocli.engine.passes import Passes
    from ppocli.engine.token_ids import with_token_ids

    passes = Passes(run.spec, _jit.thread_count(), worst, run.chunk_tokens, run.progress)
    passes.only = run.only
    if run.audit is not None:
        from ppocli.engine.audit_pass import Audit

        passes.audit = Audit(run.audit, _jit.thread_count())
    groups = []
    run.progress.start(run.total_bytes() * passes.n_readings)
    # `only` names selections of our own; a framework then gives its loss and its columns, not its metrics.
    shown = run.like if run.only is None else None
    settings = passes.prepare(run, () if shown is None else wanted(shown, run.spec))
    for index, reader in run.readers():
        kept = passes.worst.copy()
        try:
            report, totals = passes.evaluate(reader, index)
        except InputError as problem:
            passes.skip(run, reader.report.path, problem)
            passes.worst = kept
            if passes.audit is not None:
                passes.audit.drop()
            continue
        run.inputs.append(report)
        if by == "file" and len(run.paths) > 1:
            one = summarise(totals, replace(run.spec, horizon=run.spec.horizon or 1))
            groups.append(Group({"file": report.path}, one.metrics, one.nulls))
    total = passes.finish(run.inputs)
    whole = summarise(total, run.spec)
    if passes.job.before is not None:
        put_correction(whole, passes.job.before)
    horizon = passes.settings(total).get("horizon")
    if horizon:
        groups = [replace(one, metrics=over_horizon(one.metrics, run.spec.agg, horizon)) for one in groups]
    drift, groups = _drift(run, groups)
    code = ExitCode.OK if total.n_tokens or allow_empty else ExitCode.EMPTY
    whole_report = EvalReport(
        settings={
            **run.spec.to_dict(),
            **_audit_settings(run),
            **run.reading,
            **settings,
            **passes.settings(total),
        },
        inputs=tuple(run.inputs),
        skipped=tuple(run.skipped),
        metrics=whole.metrics,
        nulls=whole.nulls,
        places=whole.places,
        findings=find(total, run.spec, run.inputs, passes.repeats, known_kl(drift)),
        groups=tuple(groups),
        worst=passes.worst.found(),
        like=_like(run, passes, whole),
        exit_code=int(code),
        run={
            "seconds": time.perf_counter() - began,
            "threads": _jit.thread_count(),
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
        drift=drift,
        audit=passes.audit.result() if passes.audit is not None else None,
    )
    return with_token_ids(whole_report, run.openers_by_path())


def start_kernels(run: Run, threads: int | None) -> None:
    """Set the number of threads, and say so where kernels have to be compiled first."""
    from ppocli.kernels import _jit

    notice = _jit.set_threads(threads)
    if notice:
        run.progress.notice(f"warning: {notice}")
    _jit.on_first_compile(run.progress.notice)


def _drift(run: Run, groups: list[Group]) -> tuple[dict[str, Any], list[Group]]:
    """Return the trainer against the sampler, where a rollout column is, and the groups with theirs."""
    from ppocli.engine.drift_passes import short_forms
    from ppocli.kernels import _jit

    if run.only is not None or not any("rollout_log_probs" in report.columns for report in run.inputs):
        return {}, groups
    drift, by_path, problems = short_forms(run.readers(), run.chunk_tokens, _jit.thread_count())
    for k, report in enumerate(run.inputs):
        if report.path in problems:
            note = f"rollout_log_probs left out of drift: {problems[report.path]}"
            run.inputs[k] = replace(report, notes=(*report.notes, note))
    return drift, [replace(one, drift=by_path.get(one.key["file"], {})) for one in groups]


def _like(run: Run, passes: Passes, s: Summary) -> LikeReport | None:
    """Return the metrics of the framework that was asked for."""
    if run.like is None or run.only is not None or not passes.job.sets:
        return None
    from ppocli.engine.like import like_report

    return like_report(run.like, run.spec, passes.job.sets, s)


__all__ = ["evaluate", "evaluate_files", "ppo_clip_loss"]
