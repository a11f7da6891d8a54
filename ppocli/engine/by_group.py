"""The metrics of each training step, file or other group, over all files, in one pass of its own.

Groups may be interleaved in the data. Tokens are taken in windows of fixed size from the start of each file
and sorted by group there; the tokens that a group has in a window make its blocks. So what is kept of a group
are its sums alone, and no result depends on how a file was read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ppocli.core.chunk import IdCoder, ReadOptions
from ppocli.core.drift_options import DEFAULT_A, DEFAULT_B, NO_CAPS, DriftCaps
from ppocli.core.progress import NoProgress, Progress
from ppocli.core.report import Group
from ppocli.engine.drift_passes import ShortForm
from ppocli.engine.group_state import GroupTotals
from ppocli.engine.group_table import GroupTable
from ppocli.engine.group_windows import FileGroups, Target
from ppocli.engine.metrics import summarise
from ppocli.engine.pairs import Workspaces
from ppocli.engine.passes import IDS, Passes
from ppocli.engine.pipeline import read_ahead
from ppocli.engine.reading import ID_ROLES, chunk_tokens_for
from ppocli.engine.span import Assembler
from ppocli.engine.totals import make_plan
from ppocli.errors import InputError, UsageProblem
from ppocli.kernels import layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ppocli.core.chunk import Reader
    from ppocli.core.report import NullNote
    from ppocli.core.spec import LossSpec
    from ppocli.engine.pairs import FileComparison
    from ppocli.engine.span import Span

GROUP_LIMIT = 10_000
"""Groups over the whole input: each takes 8 KB while it is read, and 20 KB as the metrics of a report."""

DRIFT_LIMIT = 1_000
"""Groups for which the trainer is compared with the sampler: each takes up to 0.3 MB."""

BY_TAKES = "--by takes file, total, step or the name of a column"

CHUNK_TOKENS = 1 << 17
"""Tokens read at a time: a window is held beside about eight of these."""

DRIFT_ROLES = (DEFAULT_A, DEFAULT_B)


@dataclass(slots=True)
class _Inputs:
    """The files, as `Passes` wants them; nothing is skipped."""

    files: Sequence[str]
    options: ReadOptions
    coders: dict[str, IdCoder]

    def readers(self) -> Iterator[tuple[int, Reader]]:
        """Open one file after the other."""
        from ppocli.io.source import open_input

        for index, path in enumerate(self.files):
            reader = open_input(path, self.options, self.coders)
            try:
                yield index, reader
            finally:
                reader.close()

    def skip(self, path: str, problem: InputError) -> None:
        """Skip nothing."""
        raise problem


def groups_by(
    by: str,
    paths: Sequence[str],
    spec: LossSpec,
    options: ReadOptions,
    *,
    threads: int | None = None,
    chunk_rows: int | None = None,
    progress: Progress | None = None,
    caps: DriftCaps = NO_CAPS,
) -> tuple[Group, ...]:
    """Evaluate every step, or every value of another column, by itself.

    Parameters
    ----------
    by : str
        "step": the column of the role `step`; else the name of a column of whole numbers or text.
    paths, spec, options, threads, chunk_rows, progress, caps : as in `evaluate_files`

    Returns
    -------
    tuple of Group
        In ascending order, text after numbers, the tokens without a value last. Metrics are those of a run
        over the group's tokens alone, means within 2^-47 of the mean of |term|; but advantages are normalised
        over the whole input. Nulls have no place.

    Raises
    ------
    InputError
        A file without the column, or more than 10,000 groups.
    UsageProblem
        Advantages are normalised within scopes.
    """
    from ppocli.io.source import expand
    from ppocli.kernels import _jit

    files = expand(paths)[0]
    own = own_role(by, files[0], options) if files else None
    inputs = _Inputs(files, with_column(by, options, own), {role: IdCoder() for role in ID_ROLES})
    _jit.set_threads(threads)
    passes = Passes(spec, _jit.thread_count(), 0, chunk_rows, progress or NoProgress())
    if spec.scoped:
        raise UsageProblem(
            f"--by {by} normalises advantages over the whole input, not by {spec.adv_norm}",
            hint="leave out one of the two",
        )
    passes.prepare(inputs)
    run = _Run(by, passes, caps)
    for path in inputs.files:
        check_column(by, path, options)
    for index, reader in inputs.readers():
        run.add(index, reader)
    names = {code: text for text, code in inputs.coders["step"].codes.items()}
    return tuple(run.groups(names))


def with_column(by: str, options: ReadOptions, own: str | None = None) -> ReadOptions:
    """Return the options under which the column that tells groups apart is `step`, beside its own role."""
    if by == "step":
        return options
    return replace(options, columns={**options.columns, "step": by, **({own: by} if own else {})})


def own_role(by: str, path: str, options: ReadOptions) -> str | None:
    """Return the role that the column plays without `--by`: a mask goes on to mask, groups stay groups."""
    from ppocli.io.source import open_input

    if by == "step":
        return None
    try:
        reader = open_input(path, options, {role: IdCoder() for role in ID_ROLES}, ())
    except InputError:
        return None  # the run itself says what is wrong with the file
    reader.close()
    roles = (role for role, one in reader.report.columns.items() if one.column == by)
    return next((role for role in roles if role != "step"), None)


def check_column(by: str, path: str, options: ReadOptions) -> None:
    """Refuse a file without the column that tells groups apart, before its data are read.

    Raises
    ------
    InputError
    """
    from ppocli.io.source import open_input

    try:
        reader = open_input(path, with_column(by, options), {role: IdCoder() for role in ID_ROLES}, ())
    except InputError as problem:
        if by != "step" and problem.message.startswith(f"column '{by}' for role 'step'"):
            meant = (problem.hint or "").partition("  ")[0]
            hint = f"{meant}  {BY_TAKES}" if meant.startswith("did you mean") else BY_TAKES
            raise InputError(f"no column '{by}', which --by {by} needs", where=path, hint=hint) from None
        return  # the run itself says what is wrong with the file
    reader.close()
    if "step" not in reader.report.columns:
        raise InputError(
            "no column for step, which --by step needs",
            where=path,
            hint="--by COLUMN, or --col step=COLUMN, takes any column of whole numbers or text",
        )


class _Run:
    """Adds files to the totals of the groups."""

    def __init__(self, by: str, passes: Passes, caps: DriftCaps) -> None:
        self.by, self.passes, self.caps = by, passes, caps
        self.table = GroupTable(GROUP_LIMIT)
        self.totals = GroupTotals()
        self.drift: dict[int, ShortForm] | None = {}
        self._work = Workspaces(passes.workspace.n_workers)

    def add(self, index: int, reader: Reader) -> None:
        """Read one file."""
        report, passes = reader.report, self.passes
        job = replace(passes.job, before=None, after=None)
        plan = make_plan(passes.spec, report.columns, shift=job.shift, scale=job.scale, computed=job.loss)
        has_drift = set(DRIFT_ROLES) <= set(report.columns)
        by_row = report.layout not in ("flat", "packed")
        ids = set(IDS) - ({"sequence_id"} if by_row else set())
        wanted = (plan.roles | ids | (set(DRIFT_ROLES) if has_drift else set())) & set(report.columns)
        passes.job = job
        target = Target(
            report.path, self.by, plan, passes.stage(report), passes.workspace, self.totals, self.table,
            by_row,
            self._drift_of if has_drift and self.drift is not None else None,
        )  # fmt: skip
        file = FileGroups(target)
        for span in self._spans(reader, wanted):
            file.add(span)
        file.finish()
        if self.drift is not None:
            for g, one in file.drift.items():
                pair = one.finish()
                pair.n_rows = file.drift_rows[g]
                self.drift[g].merge(report.path, pair, index)

    def _spans(self, reader: Reader, wanted: frozenset[str]) -> Iterator[Span]:
        """Read a file ahead, in spans of whole blocks."""
        passes, report = self.passes, reader.report
        types = [report.columns[role].dtype for role in wanted]
        tokens = passes.chunk_tokens or min(chunk_tokens_for(types), CHUNK_TOKENS)
        assembler, per_row = Assembler(layout.BLOCK), report.bytes / max(report.rows, 1)
        for chunk in read_ahead(reader.chunks(wanted, tokens)):
            passes.progress.advance(chunk.n_rows * per_row, chunk.n_tokens, chunk.n_rows)
            yield from assembler.push(chunk)
        yield from assembler.finish()

    def _drift_of(self, g: int, path: str) -> FileComparison | None:
        """Return what compares trainer and sampler in a group of a file; None once there are too many."""
        if self.drift is None:
            return None
        if g not in self.drift and len(self.drift) >= DRIFT_LIMIT:
            self.drift = None
            self.passes.progress.notice(
                f"warning: more than {DRIFT_LIMIT:,} groups: no drift metrics of single groups"
            )
            return None
        return self.drift.setdefault(g, ShortForm(self._work, self.caps)).start(path)

    def groups(self, names: Mapping[int, str]) -> Iterator[Group]:
        """Yield the metrics of each group, in order."""
        keys = [self.table.key(g) for g in range(self.totals.n)]
        order = sorted(
            range(self.totals.n),
            key=lambda g: (keys[g] is None, keys[g] in names, names.get(keys[g] or 0, ""), keys[g] or 0),
        )
        made = self.totals.totals(self.passes.total.norm_fault)
        for g in order:
            key = keys[g]
            one = summarise(made.of(g), self.passes.spec)
            short = self.drift.get(g) if self.drift is not None else None
            drift = short.finish() if short is not None else {}
            if drift:
                drift = {**drift, "nulls": _without_places(drift["nulls"])}
            name = None if key is None else names.get(key, key)
            yield Group({self.by: name}, one.metrics, _without_places(one.nulls), drift)


def _without_places(nulls: Mapping[str, NullNote]) -> dict[str, NullNote]:
    """Return notes without the places, which would be counted within a group."""
    return {metric: replace(note, where=None) for metric, note in nulls.items()}
