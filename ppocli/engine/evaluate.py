"""`evaluate`: files or arrays to an `EvalReport`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ppocli.core.audit_spec import check_audited
from ppocli.core.chunk import IdCoder, Reader, ReadOptions
from ppocli.core.drift_options import CAPS, NO_CAPS, DriftCaps
from ppocli.core.own_settings import check_given
from ppocli.core.presets import Preset, preset
from ppocli.core.progress import NoProgress, Progress
from ppocli.core.reference import ppo_clip_loss as ppo_clip_loss
from ppocli.core.report import EvalReport, InputReport, Skipped
from ppocli.core.roles import MAIN_ROLES, ROLES
from ppocli.core.spec import LossSpec, check_by, check_without_preset, choose
from ppocli.engine.reading import ID_ROLES, ReadAgain, reading_settings, total_bytes
from ppocli.errors import InputError, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ppocli.core.audit_spec import AuditOptions
    from ppocli.engine.assembly import Engine


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
    by_group: bool = False  # all is read once more
    inputs: list[InputReport] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    like: Preset | None = None
    engine: Engine | None = None
    options: ReadOptions | None = None
    required_roles: Sequence[str] = MAIN_ROLES
    caps: DriftCaps = NO_CAPS

    def readers(self) -> Iterator[tuple[int, Reader]]:
        """Open one input after the other; unreadable ones are skipped only on request."""
        for index, path in self.unread():
            open_reader = self.open_readers[index]
            try:
                reader = open_reader()
            except InputError as problem:
                self.skip(path, problem)
                continue
            try:
                yield index, reader
            finally:
                reader.close()

    def unread(self) -> Iterator[tuple[int, str]]:
        """Yield the inputs that were not found to be unreadable, with their places in the order."""
        for index, path in enumerate(self.paths):
            if not any(one.path == path and one.reason.startswith("unreadable") for one in self.skipped):
                yield index, path

    def total_bytes(self) -> int:
        """Return the size of all inputs, as far as they are files."""
        return total_bytes(self.paths)

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
    engine: Callable[[Run, int], Engine] | None = None,
    caps: DriftCaps = NO_CAPS,
) -> EvalReport:
    """Evaluate files, patterns and directories.

    Parameters
    ----------
    paths : sequence of str
    spec : LossSpec, optional
    options : ReadOptions, optional
    by : str
        "file": also report each file's metrics in `groups`, when there is more than one file; "total": do
        not. "step", or the name of a column of whole numbers or text: report each of its values instead, in a
        pass of its own.
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
    engine : callable, optional
        Takes the run and `worst`, and returns where inputs are evaluated instead of here.
    caps : DriftCaps
        Bounds of the weights in `drift`.

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
    run.audit, run.only, run.caps = audit, only, caps
    check_by(by)
    if by not in ("file", "total"):
        if engine is not None:
            raise UsageProblem(f"by {by!r} takes the tokens of all files in one order, in this process")
        return _by_group(run, by, worst, threads, allow_empty)
    if engine is not None:
        run.engine = engine(run, worst)
    return _evaluate(run, by, worst, threads, allow_empty)


def _by_group(run: Run, by: str, worst: int, threads: int | None, allow_empty: bool) -> EvalReport:
    """Evaluate all files, then every group of their tokens in a pass of its own."""
    from ppocli.core.trend import with_changes
    from ppocli.engine.by_group import check_column, groups_by

    reading = run.options or ReadOptions()
    for path in run.paths[:1]:
        check_column(by, path, reading)
    run.by_group = True
    report = _evaluate(run, "total", worst, threads, allow_empty)
    if not report.metrics["n_tokens"]:
        return report
    groups = groups_by(
        by,
        [path for _, path in run.unread()],
        run.spec,
        reading,
        threads=threads,
        chunk_rows=run.chunk_tokens,
        progress=run.progress,
        caps=run.caps,
    )
    return replace(report, groups=with_changes(groups))


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
        options=wanted,
        required_roles=required_roles,
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
    tis_cap, mask_low, mask_high : float
        Bounds of the weights in `drift` (`ppocli.core.drift_options.DriftCaps`).
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
    check_given(given, spec, like=like is not None)
    reading = {one.name for one in fields(ReadOptions)}
    options = ReadOptions(**{name: settings.pop(name) for name in list(settings) if name in reading})
    known = {"by", "worst", "threads", "chunk_rows", "allow_empty", "skip_bad", "progress"}
    known |= {"like", "audit", "only", "caps"}
    caps = {name: settings.pop(name) for name in CAPS if name in settings}
    if caps:
        settings["caps"] = DriftCaps(**caps)
    unknown = set(settings) - known - set(ROLES)
    if unknown:
        choose("setting", min(unknown), sorted(names | reading | known | {*ROLES, *CAPS, "clip_eps"}))
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
    if others.get("by", "file") not in ("file", "total"):
        raise UsageProblem("metrics by group are those of files, not of arrays", hint="by='total'")
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
        caps=others.get("caps", NO_CAPS),
    )
    return _evaluate(
        run,
        others.get("by", "file"),
        others.get("worst", 0),
        others.get("threads"),
        others.get("allow_empty", False),
    )


def _evaluate(run: Run, by: str, worst: int, threads: int | None, allow_empty: bool) -> EvalReport:
    """Check what was asked for, and report."""
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

    start_kernels(run, threads)

    from ppocli.engine.assembly import Assembly
    from ppocli.engine.token_ids import with_token_ids

    made = Assembly(run, by, worst, _jit.thread_count())
    report = made.report(allow_empty=allow_empty)
    return with_token_ids(report, run.openers_by_path()) if made.needs_token_ids else report


def start_kernels(run: Run, threads: int | None) -> None:
    """Set the number of threads, and say so where kernels have to be compiled first."""
    from ppocli.kernels import _jit

    notice = _jit.set_threads(threads)
    if notice:
        run.progress.notice(f"warning: {notice}")
    _jit.on_first_compile(run.progress.notice)


__all__ = ["evaluate", "evaluate_files", "ppo_clip_loss"]
