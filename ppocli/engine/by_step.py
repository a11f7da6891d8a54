"""The metrics of each training step, over all files, in one pass of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.chunk import Chunk, Column, IdCoder, Ids, ReadOptions
from ppocli.core.drift_options import DEFAULT_A, DEFAULT_B, NO_CAPS, DriftCaps
from ppocli.core.partials import COLUMNS
from ppocli.core.progress import NoProgress, Progress
from ppocli.core.report import Group
from ppocli.engine.accumulate import FileAccumulator
from ppocli.engine.drift_passes import ShortForm
from ppocli.engine.metrics import summarise
from ppocli.engine.pairs import Workspaces
from ppocli.engine.passes import IDS, Passes
from ppocli.engine.pipeline import read_ahead
from ppocli.engine.reading import ID_ROLES, chunk_tokens_for
from ppocli.engine.sequences import GROUP_LIMIT
from ppocli.engine.span import Assembler
from ppocli.engine.totals import Totals, make_plan
from ppocli.engine.windows import Interleaved, Windows
from ppocli.engine.worst import WorstTokens
from ppocli.errors import InputError, UsageProblem
from ppocli.kernels import layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ppocli.core.chunk import Reader
    from ppocli.core.report import InputReport, NullNote
    from ppocli.core.spec import LossSpec
    from ppocli.engine.pairs import FileComparison
    from ppocli.engine.policy import PolicyStage
    from ppocli.engine.span import Span
    from ppocli.engine.totals import Plan

Key = int | None
"""The code of a step; None where it is null."""

STEP_LIMIT = 1_000
"""Steps over the whole input: each takes up to 0.3 MB."""

DRIFT_ROLES = (DEFAULT_A, DEFAULT_B)

NO_BINS = np.zeros(layout.HISTOGRAM_BINS, dtype=np.int64)


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


@dataclass(slots=True, eq=False)
class _Step:
    """One step within one file."""

    accumulator: FileAccumulator
    assembler: Assembler
    stage: PolicyStage | None = None
    windows: Windows | None = None
    drift: FileComparison | None = None
    n_rows: int = 0
    bins: NDArray[np.int64] = field(default_factory=lambda: NO_BINS)


def groups_by_step(
    paths: Sequence[str],
    spec: LossSpec,
    options: ReadOptions,
    *,
    threads: int | None = None,
    chunk_rows: int | None = None,
    progress: Progress | None = None,
    caps: DriftCaps = NO_CAPS,
) -> tuple[Group, ...]:
    """Evaluate every step by itself.

    Parameters
    ----------
    paths, spec, options, threads, chunk_rows, progress, caps : as in `evaluate_files`
        The column of the role `step` tells steps apart.

    Returns
    -------
    tuple of Group
        In ascending order, text after numbers, the tokens without a step last. Metrics are those of a run
        over the step's tokens alone, but that advantages are normalised over the whole input; nulls have no
        place.

    Raises
    ------
    InputError
        A file without the column, or more than 1,000 steps.
    """
    from ppocli.io.source import expand
    from ppocli.kernels import _jit

    inputs = _Inputs(expand(paths)[0], options, {role: IdCoder() for role in ID_ROLES})
    _jit.set_threads(threads)
    passes = Passes(spec, _jit.thread_count(), 0, chunk_rows, progress or NoProgress())
    if spec.scoped:
        raise UsageProblem(
            f"--by step normalises advantages over the whole input, not by {spec.adv_norm}",
            hint="leave out one of the two",
        )
    passes.prepare(inputs)
    run = _Run(passes, chunk_rows, caps)
    for _, reader in inputs.readers():
        run.add(reader)
    totals = run.finish()
    names = {code: text for text, code in inputs.coders["step"].codes.items()}
    keys = sorted(totals, key=lambda key: (key is None, key in names, names.get(key or 0, ""), key or 0))
    return tuple(
        _group(None if key is None else names.get(key, key), totals[key], spec, run.drift.get(key))
        for key in keys
    )


def _group(name: str | int | None, totals: Totals, spec: LossSpec, short: ShortForm | None) -> Group:
    """Return the metrics of a step."""
    made, drift = summarise(totals, spec), short.finish() if short is not None else {}
    if drift:
        drift = {**drift, "nulls": _without_places(drift["nulls"])}
    return Group({"step": name}, made.metrics, _without_places(made.nulls), drift)


def _without_places(nulls: Mapping[str, NullNote]) -> dict[str, NullNote]:
    """Return notes without the places, which would be counted within a step."""
    return {metric: replace(note, where=None) for metric, note in nulls.items()}


class _Run:
    """Adds files to the totals of the steps."""

    def __init__(self, passes: Passes, chunk_rows: int | None, caps: DriftCaps) -> None:
        self.passes, self.chunk_rows, self.caps = passes, chunk_rows, caps
        self.totals: dict[Key, Totals] = {}
        self.drift: dict[Key, ShortForm] = {}
        self._n_read, self._work = 0, Workspaces(passes.workspace.n_workers)
        self._without: dict[tuple[Key, str], str] = {}

    def add(self, reader: Reader) -> None:
        """Read one file."""
        report = reader.report
        if "step" not in report.columns:
            raise InputError(
                "no column for step, which --by step needs",
                where=report.path,
                hint="--col step=COLUMN takes any column of whole numbers or text",
            )
        job = self.passes.job
        plan = make_plan(
            self.passes.spec, report.columns, shift=job.shift, scale=job.scale, computed=job.loss
        )
        ids = set(IDS) - (set() if report.layout in ("flat", "packed") else {"sequence_id"})
        wanted = (plan.roles | ids | set(DRIFT_ROLES)) & set(report.columns)
        tokens = self.chunk_rows or chunk_tokens_for(report.columns[role].dtype for role in wanted)
        steps: dict[Key, _Step] = {}
        for chunk in read_ahead(reader.chunks(wanted, tokens)):
            for key, part in split(chunk):
                step = steps.get(key) or self._begin(steps, key, plan, report)
                part = replace(part, first_row=step.n_rows)
                step.n_rows += part.n_rows
                for span in step.assembler.push(part):
                    self._add(step, span, report.path)
        for key, step in steps.items():
            for span in step.assembler.finish():
                self._add(step, span, report.path)
            if step.windows is not None:
                for span in step.windows.finish():
                    self._evaluate(step, span)
            self._merge(key, step, report.path)
            if step.drift is not None:
                self.drift[key].merge(step.drift, self._n_read, step.n_rows)
        self._n_read += 1

    def _begin(self, steps: dict[Key, _Step], key: Key, plan: Plan, report: InputReport) -> _Step:
        """Start a step."""
        path = report.path
        if len(steps.keys() | self.totals.keys() | {key}) > STEP_LIMIT:
            raise InputError(f"more than {STEP_LIMIT:,} steps, which is all that --by step keeps", where=path)
        accumulator = FileAccumulator(path, plan, self.passes.workspace, WorstTokens(0))
        accumulator.totals.bins = NO_BINS
        stage = self.passes.stage(report)
        windows = None
        if stage is not None and stage.job.by_sequence and stage.sequences:
            by_id = report.layout in ("flat", "packed")
            windows = Windows(path, by_id=by_id, hold=False, evaluate=stage.of_window)
        drift = None
        if set(DRIFT_ROLES) <= set(report.columns):
            drift = self.drift.setdefault(key, ShortForm(self._work, self.caps)).start(path)
        steps[key] = _Step(accumulator, Assembler(layout.BLOCK), stage, windows, drift)
        return steps[key]

    def _add(self, step: _Step, span: Span, path: str) -> None:
        """Let a span pass what computes beside the kernels, then evaluate it."""
        if step.drift is not None:
            step.drift.add(span)
        spans: Iterator[Span] = iter((span,))
        if step.windows is not None:
            spans = step.windows.push(span)
        elif step.stage is not None:
            spans = step.stage.through(spans)
        try:
            for one in spans:
                self._evaluate(step, one)
        except Interleaved:
            raise InputError(
                "the tokens of a sequence do not stand together, as --by step needs with this loss",
                where=path,
                hint="sort the file by step and sequence_id",
            ) from None

    def _evaluate(self, step: _Step, span: Span) -> None:
        """Add a span; the histogram of the workspace belongs to one span at a time here."""
        workspace = self.passes.workspace
        workspace.bins[:] = 0
        step.accumulator.add(span)
        step.bins = step.bins + workspace.histogram()

    def _merge(self, key: Key, step: _Step, path: str) -> None:
        """Close a step of a file and add it to the step's totals."""
        step.accumulator.totals.bins = np.zeros(layout.HISTOGRAM_BINS, dtype=np.int64)
        totals = step.accumulator.finish()
        if step.stage is not None:
            step.stage.finish(totals)
        totals.bins, totals.n_rows = step.bins, step.n_rows
        whole = self.totals.setdefault(key, Totals(roles=frozenset(COLUMNS)))
        if totals.n_tokens:
            whole.roles &= totals.roles
            whole.has_sequences |= totals.has_sequences
            whole.no_sequences = whole.no_sequences or totals.no_sequences
            if not totals.has_sequences:
                self._without.setdefault((key, "sequences"), path)
            if totals.groups is None:
                self._without.setdefault((key, "group_id"), path)
        whole.merge(totals, GROUP_LIMIT)

    def finish(self) -> dict[Key, Totals]:
        """Return the totals by step; what only some of its files have is null, with the reason."""
        for (key, what), path in self._without.items():
            whole = self.totals[key]
            if what == "sequences" and whole.has_sequences:
                whole.no_sequences = whole.no_sequences or f"{path} has no sequences"
            if what == "group_id" and whole.groups is not None:
                whole.no_groups = f"{path} has no group_id"
        return self.totals


def split(chunk: Chunk) -> Iterator[tuple[Key, Chunk]]:
    """Yield the part of a chunk that belongs to each step, in order of first sight.

    A row with tokens of several steps is divided; rows without a token are dropped.
    """
    assert chunk.step is not None
    codes, present = (_per_token(chunk, values) for values in (chunk.step.codes, chunk.step.present))
    assert codes is not None
    if codes.size == 0:
        return
    null = np.zeros(codes.size, dtype=bool) if present is None else present == 0
    known = codes[~null]
    keys, first = np.unique(known, return_index=True)
    found: list[tuple[int, Key]] = [
        (int(np.flatnonzero(~null)[at]), int(key)) for key, at in zip(keys, first, strict=True)
    ]
    if null.any():
        found.append((int(null.argmax()), None))
    if len(found) == 1 and (chunk.offsets is None or (np.diff(chunk.offsets) > 0).all()):
        yield found[0][1], chunk
        return
    for _, key in sorted(found, key=lambda one: one[0]):
        yield key, _selected(chunk, null if key is None else (codes == key) & ~null)


def _per_token(chunk: Chunk, values: NDArray[Any] | None) -> NDArray[Any] | None:
    """Repeat values per row over the tokens of their rows."""
    if values is None or chunk.offsets is None or values.size == chunk.n_tokens:
        return values
    return np.repeat(values, np.diff(chunk.offsets))


def _selected(chunk: Chunk, chosen: NDArray[np.bool_]) -> Chunk:
    """Return the chosen tokens of a chunk as a chunk."""
    n_tokens = int(chosen.sum())
    offsets, rows = None, chosen
    if chunk.offsets is not None:
        counts = np.diff(np.concatenate([[0], np.cumsum(chosen)])[chunk.offsets])
        rows = counts > 0
        offsets = np.concatenate([[0], np.cumsum(counts[rows])])
    return Chunk(
        first_row=0,
        n_rows=int(rows.sum()),
        n_tokens=n_tokens,
        columns={
            role: Column(one.values[chosen], None if one.present is None else one.present[chosen])
            for role, one in chunk.columns.items()
        },
        mask=None if chunk.mask is None else chunk.mask[chosen],
        offsets=offsets,
        sequence_id=_selected_ids(chunk, chunk.sequence_id, chosen, rows),
        group_id=_selected_ids(chunk, chunk.group_id, chosen, rows),
        step=_selected_ids(chunk, chunk.step, chosen, rows),
    )


def _selected_ids(
    chunk: Chunk, ids: Ids | None, chosen: NDArray[np.bool_], rows: NDArray[np.bool_]
) -> Ids | None:
    """Return the ids of the chosen tokens, or of the rows that have some."""
    if ids is None:
        return None
    pick = chosen if chunk.offsets is None or ids.codes.size == chunk.n_tokens else rows
    return Ids(ids.codes[pick], None if ids.present is None else ids.present[pick])
