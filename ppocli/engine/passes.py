"""The passes over the data: statistics of the advantages where they are normalised, then everything else."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from ppocli.core.partials import COLUMNS
from ppocli.engine.accumulate import FileAccumulator
from ppocli.engine.advantages import AdvantageScopes
from ppocli.engine.aggregates import horizon_of, stored_sequences
from ppocli.engine.correction import uncorrected, wanted_of
from ppocli.engine.file_part import FilePart
from ppocli.engine.measures import MeasureSet, Wanted
from ppocli.engine.norm_fault import NormFault
from ppocli.engine.pipeline import read_ahead
from ppocli.engine.policy import Job, PolicyStage, check_loss
from ppocli.engine.reading import ReadAgain, chunk_tokens_for
from ppocli.engine.repeats import RepeatedIds, RowIds
from ppocli.engine.sequences import GROUP_LIMIT, MicroBatches
from ppocli.engine.span import Assembler, Span
from ppocli.engine.summary import Summary
from ppocli.engine.totals import Plan, Totals, make_plan
from ppocli.engine.windows import Interleaved, NotTogether, Windows
from ppocli.engine.worst import WorstTokens
from ppocli.errors import InputError
from ppocli.kernels import layout
from ppocli.kernels.blocks import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from ppocli.core.chunk import Reader
    from ppocli.core.progress import Progress
    from ppocli.core.report import ColumnReport, InputReport, Nonfinite
    from ppocli.core.spec import LossSpec
    from ppocli.engine.audit_pass import Audit

COMPUTED_TOKENS = 1 << 18
"""Tokens read at a time where terms are computed beside the kernels, with about 30 float64 arrays of each."""

IDS = ("mask", "sequence_id", "group_id", "step")


class Inputs(Protocol):
    """What a pass needs of a run."""

    def readers(self) -> Iterator[tuple[int, Reader]]:
        """Open one input after the other."""

    def skip(self, path: str, problem: InputError) -> None:
        """Note an unreadable input, or raise."""


@dataclass(slots=True)
class Passes:
    """Runs readers through accumulators and adds up their totals."""

    spec: LossSpec
    threads: int
    n_worst: int
    chunk_tokens: int | None
    progress: Progress
    workspace: Workspace = field(init=False)
    worst: WorstTokens = field(init=False)
    total: Totals = field(init=False)
    micro: MicroBatches = field(init=False)
    repeats: RepeatedIds = field(default_factory=RepeatedIds)
    without_sequences: list[str] = field(default_factory=list)
    without_groups: list[str] = field(default_factory=list)
    job: Job = field(init=False)
    scopes: AdvantageScopes | None = None
    audit: Audit | None = None
    only: Collection[str] | None = None
    reads_ahead: bool = False
    statistics_of: Callable[[], Totals] | None = None
    """Returns the statistics of the advantages where they are collected elsewhere."""
    scopes_of: Callable[[AdvantageScopes], dict[str, Any]] | None = None
    """Fills the scopes of the advantages, where they are collected elsewhere; returns what to echo."""
    several: bool = False
    """There are other inputs, whose ids may be the same."""

    def __post_init__(self) -> None:
        self.workspace = Workspace(self.threads)
        self.worst = WorstTokens(self.n_worst)
        self.total = Totals(roles=frozenset(COLUMNS))
        self.micro = MicroBatches(self.spec.micro_batch or 0)
        self.job = Job(self.spec, loss=not self.spec.in_kernels)

    def prepare(self, run: Inputs, wanted: Iterable[Wanted] = ()) -> dict[str, Any]:
        """Decide what is computed beside the kernels; return what to echo of the advantages."""
        wanted = tuple(wanted)
        self.reads_ahead = any(one.adv_norm != "none" for one in (self.spec, *(one.spec for one in wanted)))
        shift, scale = 0.0, 1.0
        if self.spec.scoped:
            settings = self._collect_scopes(run)
            self.total.normal_scopes = None if self.scopes is None else self.scopes.normal
        else:
            shift, scale, settings = self.normalisation(run)
        scales = {} if (shift, scale) == (0.0, 1.0) else {self.spec: (shift, scale)}
        others = {one.spec for one in wanted} - {self.spec}
        scales |= self._scales_of([spec for spec in others if spec.adv_norm == "batch"], run)
        plain = uncorrected(self.spec)
        scoped = (self.spec, plain) if self.spec.scoped else ()
        # Where rules leave tokens out, some measures are over all of them; otherwise there is one set.
        early = tuple(one for one in wanted if self.spec.drops and one.measure.option("before"))
        of_all = scales | ({plain: (shift, scale)} if self.spec in scales else {})
        before = MeasureSet((*wanted_of(self.spec), *early), of_all, scoped)
        after = MeasureSet([one for one in wanted if one not in early], scales, scoped)
        self.job = Job(
            self.spec,
            # The kernels take it that finite columns give finite advantages.
            loss=not self.spec.in_kernels or math.isnan(scale),
            shift=shift,
            scale=scale,
            scale_of=None if self.scopes is None else self.scopes.scale_of,
            before=before if before.wanted else None,
            after=after if after.wanted else None,
        )
        if self.audit is not None:
            fault = self.total.norm_fault
            if math.isnan(scale) or (fault is not None and not fault.has_twin):
                raise InputError(
                    f"no loss to audit: {settings['adv_norm_note']}",
                    hint="--adv-norm none audits the advantages as stored",
                )
            self.find_scales(run)
        return settings

    def find_scales(self, run: Inputs) -> None:
        """Make the first pass of an audit, if it needs one."""
        if self.audit is not None:
            self.audit.prepare(run, self._spans)

    def _collect_scopes(self, run: Inputs) -> dict[str, Any]:
        """Read the advantages once for the statistics of every scope; return what to echo."""
        self.scopes = scopes = AdvantageScopes(self.spec)
        if self.scopes_of is not None:
            return self.scopes_of(scopes)
        base_row = 0
        for _, reader in run.readers():
            path = reader.report.path
            try:
                scopes.merge(*self.read_scopes(reader, base_row).moments(), path)
            except InputError as problem:
                run.skip(path, problem)
                raise ReadAgain from problem
            base_row += reader.report.rows
        return scopes.finish()

    def read_scopes(self, reader: Reader, base_row: int) -> AdvantageScopes:
        """Return the scopes of one input, before which there are so many rows."""
        scopes, report = AdvantageScopes(self.spec, base_row), reader.report
        wanted = frozenset(("advantages", *IDS)) - _ids_without_use(report)
        if self.spec.adv_norm_unit == "token":
            for _ in scopes.through(self._spans(reader, wanted), report.path, collect=True):
                pass
        else:
            self._collect_sequences(reader, scopes, wanted, by_row=report.layout not in ("flat", "packed"))
        return scopes

    def _collect_sequences(
        self, reader: Reader, scopes: AdvantageScopes, wanted: frozenset[str], *, by_row: bool
    ) -> None:
        """Add the sequences of one file to the scopes."""
        report = reader.report
        if not by_row and "sequence_id" not in report.columns:
            raise InputError(
                "no sequences, which --adv-norm-unit sequence needs",
                where=report.path,
                hint="--col sequence_id=COLUMN says which tokens belong together; or --adv-norm-unit token",
            )
        for hold in (False, True):
            windows = Windows(report.path, not by_row, hold, scopes.of_window)
            try:
                spans = scopes.through(self._spans(reader, wanted), report.path, collect=True)
                for _ in windows.through(spans):
                    pass
            except Interleaved:
                scopes.table = AdvantageScopes(self.spec).table
                continue
            return

    @property
    def n_readings(self) -> int:
        """How often every input is read."""
        scales = self.audit is not None and self.audit.scales is not None
        return 1 + (self.spec.adv_norm != "none") + scales

    def normalisation(self, run: Inputs) -> tuple[float, float, dict[str, Any]]:
        """Return shift and scale of the advantages, and what to echo of them."""
        if self.spec.adv_norm == "none":
            return 0.0, 1.0, {}
        shift, scale, settings, self.total.norm_fault = scale_of(self.spec, self._statistics(run))
        return shift, scale, settings

    def _scales_of(self, specs: Iterable[LossSpec], run: Inputs) -> dict[LossSpec, tuple[float, float]]:
        """Return shift and scale of the advantages under other losses."""
        specs = tuple(specs)
        if not specs:
            return {}
        statistics = self._statistics(run)
        return {spec: scale_of(spec, statistics)[:2] for spec in specs}

    def _statistics(self, run: Inputs) -> Totals:
        """Return the totals of the valid advantages of the whole input."""
        if self.statistics_of is not None:
            return self.statistics_of()
        statistics = no_statistics()
        for _, reader in run.readers():
            try:
                one = self.read_statistics(reader)
            except InputError as problem:
                run.skip(reader.report.path, problem)
                continue
            statistics.merge(one, GROUP_LIMIT)
        return statistics

    def read_statistics(self, reader: Reader) -> Totals:
        """Return the totals of the valid advantages of one input."""
        plan = make_plan(self.spec, {"advantages"} & set(reader.report.columns), only=("adv",))
        accumulator = FileAccumulator(reader.report.path, plan, self.workspace, WorstTokens(0))
        for span in self._spans(reader, frozenset(("advantages", "mask"))):
            accumulator.add(span)
        return accumulator.finish()

    def evaluate(self, reader: Reader, index: int) -> FilePart:
        """Read one input and add it to the run."""
        part = self.read(reader)
        self.enter(part, index)
        return part

    def read(self, reader: Reader) -> FilePart:
        """Read one input through the kernels; nothing but micro-batches and audits reach beyond it.

        A file whose sequences turn out to be interleaved is read again and held back whole, where the loss or
        a measure needs them together; a measure alone is given up where that does not fit into memory.
        """
        kept = self.micro.copy()
        together, hold = True, False
        while True:
            try:
                return self._read(reader, together=together, hold=hold)
            except Interleaved:
                hold = True
            except NotTogether:
                if self.job.loss and self.spec.needs_sequences:
                    raise
                together = False
            self.micro = kept.copy()
            if self.audit is not None:
                self.audit.drop()

    def _read(self, reader: Reader, *, together: bool, hold: bool) -> FilePart:
        """Read one input; see `read`."""
        report = reader.report
        job = self.job
        plan = make_plan(
            self.spec, report.columns, self.only, shift=job.shift, scale=job.scale, computed=job.loss
        )
        worst = WorstTokens(self.n_worst)
        accumulator = FileAccumulator(
            report.path, plan, self.workspace, worst, self.micro, self.total.n_rows, self.audit
        )
        if self.audit is not None:
            self.audit.begin(report, plan)
        by_row = report.layout not in ("flat", "packed")
        ids = frozenset(IDS) - _ids_without_use(report)
        stage = self.stage(report, together=together)
        measured = frozenset().union(*(one.roles for one in job.sets))
        row_ids = RowIds() if self.several and by_row and "sequence_id" in report.columns else None
        spans = self._spans(reader, plan.roles | ids | measured, row_ids)
        if self.scopes is not None:
            self.scopes.base_row = self.total.n_rows
            spans = self.scopes.through(spans, report.path, collect=False)
        for span in spans if stage is None else self._through(stage, spans, report, by_row=by_row, hold=hold):
            accumulator.add(span)
        totals = accumulator.finish()
        if self.audit is not None:
            self.audit.finish()
        found = totals.n_stored_sequences = stored_sequences(totals)
        if by_row:  # rows without a token are there too
            totals.n_stored_sequences = report.rows
        if stage is not None:
            stage.finish(totals, totals.n_stored_sequences - found)
        sequence_ids = rows = None
        if self.several and accumulator.sequences is not None and accumulator.sequences.by_id:
            sequence_ids, rows = accumulator.sequences.ids(), accumulator.sequences.first_rows()
        elif row_ids is not None:
            sequence_ids, rows = row_ids.found()
        report = reader.report  # readers add notes while they read
        totals.n_rows = report.rows
        totals.file_order = {report.path: 0}
        return FilePart(
            _with_counts(report, plan, totals),
            totals,
            tuple(stage.totals) if stage is not None else (),
            sequence_ids,
            rows,
            worst,
        )

    def enter(self, part: FilePart, index: int) -> None:
        """Add the next input, in order, to the run."""
        totals, path = part.totals, part.report.path
        totals.norm_fault = self.total.norm_fault
        for one, mine in zip(self.job.sets, part.measures, strict=False):
            one.total.merge(mine)
        if part.ids is not None and part.id_rows is not None:
            self.repeats.add(path, part.ids, part.id_rows)
        self.worst.merge(part.worst)
        if totals.n_tokens:
            self.total.roles &= totals.roles
            if not totals.has_sequences:
                self.without_sequences.append(path)
            elif self.total.no_sequences is None:
                self.total.no_sequences = totals.no_sequences
            self.total.has_sequences |= totals.has_sequences
            if totals.groups is None:
                self.without_groups.append(path)
        self.total.file_order[path] = index
        self.total.merge(totals, GROUP_LIMIT)

    def skip(self, run: Inputs, path: str, problem: InputError) -> None:
        """Leave an input out, or raise; begin again where its tokens count elsewhere already.

        That is in statistics of the advantages, in micro-batches, and in the scales of int8.

        Raises
        ------
        InputError
            Unless the run skips what it cannot read.
        ReadAgain
        """
        run.skip(path, problem)
        scaled = self.audit is not None and self.audit.scales is not None
        if self.reads_ahead or self.spec.micro_batch or scaled:
            raise ReadAgain from problem

    def stage(self, report: InputReport, *, together: bool = True) -> PolicyStage | None:
        """Return what computes beside the kernels for this file, or None where nothing does."""
        job = self.job
        if not (job.loss or job.sets):
            return None
        has_sequences = report.layout not in ("flat", "packed") or "sequence_id" in report.columns
        if job.loss:
            check_loss(self.spec, report, has_sequences=has_sequences)
        return PolicyStage(job, frozenset(report.columns), self.threads, has_sequences and together)

    def _through(
        self, stage: PolicyStage, spans: Iterator[Span], report: InputReport, *, by_row: bool, hold: bool
    ) -> Iterator[Span]:
        """Let spans pass the stage: what needs sequences in windows of them, the rest in blocks."""
        if not (self.job.by_sequence and stage.sequences):
            return stage.through(spans)
        windows = Windows(report.path, not by_row, hold, stage.of_window)
        if self.job.loss and self.spec.needs_sequences:
            return stage.through(windows.through(spans))
        return windows.through(stage.through(spans))

    def finish(self, inputs: Sequence[InputReport]) -> Totals:
        """Return the totals of the run."""
        total = self.total
        total.micro_batches = self.micro.finish() if self.micro.n_rows else None
        if not total.n_tokens:
            total.roles = frozenset(COLUMNS) & {role for report in inputs for role in report.columns}
        if total.has_sequences and self.without_sequences and total.no_sequences is None:
            total.no_sequences = f"{self.without_sequences[0]} has no sequences"
        if total.groups is not None and self.without_groups:
            total.no_groups = f"{self.without_groups[0]} has no group_id"
        return total

    def settings(self, total: Totals) -> dict[str, Any]:
        """Return what was settled by the data: the horizon, where it is the longest sequence."""
        if self.spec.horizon is None and total.has_sequences:
            return {"horizon": horizon_of(Summary(total, self.spec)) or None}
        return {}

    def _spans(self, reader: Reader, roles: frozenset[str], row_ids: RowIds | None = None) -> Iterator[Span]:
        """Read an input ahead, in spans of whole blocks; ids of rows are remembered apart."""
        assembler = Assembler(layout.BLOCK)
        report = reader.report
        per_row = report.bytes / max(report.rows, 1)
        wanted = (roles if row_ids is None else roles | {"sequence_id"}) & frozenset(report.columns)
        tokens = self.chunk_tokens or chunk_tokens_for(report.columns[role].dtype for role in wanted)
        if self.job.loss or self.job.sets:
            tokens = min(tokens, COMPUTED_TOKENS)
        for chunk in read_ahead(reader.chunks(wanted, tokens)):
            self.progress.advance(chunk.n_rows * per_row, chunk.n_tokens, chunk.n_rows)
            yield from assembler.push(chunk if row_ids is None else row_ids.take(chunk))
        yield from assembler.finish()


def no_statistics() -> Totals:
    """Return the totals of no advantages."""
    return Totals(roles=frozenset(("advantages",)))


def scale_of(spec: LossSpec, statistics: Totals) -> tuple[float, float, dict[str, Any], NormFault | None]:
    """Return shift and scale of advantages normalised over the whole input, what to echo, and what is wrong.

    (A - mean) / (std + eps) in the form asked for, over the valid, finite advantages; one advantage alone is
    left as it is, unless `adv_norm_degenerate` says "formula".
    """
    s = Summary(statistics, spec)
    n = s.count("adv")
    fault = _missing_advantages(s, n)
    keep = spec.adv_norm_degenerate == "keep" or n == 0
    if n < 2 and keep:
        return 0.0, 1.0, {"adv_norm_note": "fewer than two advantages: not normalised"}, fault
    mean = s.mean("adv", "adv", "adv")
    deviation = math.sqrt(s.variance("adv", "adv", spec.adv_norm_ddof, "adv"))
    eps = spec.adv_norm_eps
    scale = {
        "add": deviation + eps,
        "max": max(deviation, eps),
        "var": math.sqrt(deviation * deviation + eps),
    }[spec.adv_norm_form]
    if not keep and not scale > 0.0:
        return mean, math.nan, {"adv_norm_note": "the formula divides by 0 or by no deviation: NaN"}, fault
    if not math.isfinite(mean) or not math.isfinite(scale):
        kind: Nonfinite | None = "nan" if math.isnan(scale) or not math.isfinite(mean) else None
        reason = (
            "the mean or the deviation of the advantages, by which they are normalised, overflows float64"
        )
        return 0.0, 1.0, {"adv_norm_note": reason}, NormFault(reason, kind, has_twin=False)
    if scale == 0.0:
        note = "the advantages do not vary and eps is 0: only centred"
        return mean, 1.0, {"adv_norm_note": note}, fault
    return mean, scale, {"adv_norm_mean": mean, "adv_norm_std": deviation}, fault


def _ids_without_use(report: InputReport) -> frozenset[str]:
    """Return the ids that do not tell sequences apart: in lists and padded arrays a row is a sequence."""
    return frozenset() if report.layout in ("flat", "packed") else frozenset(("sequence_id",))


def _missing_advantages(s: Summary, n: int) -> NormFault | None:
    """Return what advantages that are null or not finite make of all others, n of which are finite."""
    n_null, *odd = (int(count) for count in s.totals.column_counts[COLUMNS.index("advantages")])
    if n + n_null + sum(odd) < 2 or not n_null + sum(odd):
        return None
    # The mean is not finite then, or the deviation is not: A - mean over the deviation is NaN, whatever A.
    kind: Nonfinite | None = "nan" if sum(odd) and n + sum(odd) > 1 else None
    reason = f"advantages are normalised over the whole input, which has {s.bad_values(('advantages',))}"
    return NormFault(reason, kind, has_twin=True)


def _with_counts(report: InputReport, plan: Plan, totals: Totals) -> InputReport:
    """Enter what was counted into an input's report."""
    columns: dict[str, ColumnReport] = {}
    for role, column in report.columns.items():
        columns[role] = column
        if role in plan.roles:
            null, nan, posinf, neginf = (int(n) for n in totals.column_counts[COLUMNS.index(role)])
            columns[role] = replace(column, n_null=null, n_nan=nan, n_posinf=posinf, n_neginf=neginf)
    notes = report.notes
    if totals.n_null_ids:
        notes = (
            *notes,
            f"sequence_id is null for {totals.n_null_ids:,} tokens: they count in no sequence metric",
        )
    if totals.n_null_groups:
        n = f"{totals.n_null_groups:,}"
        notes = (*notes, f"group_id or step is null for {n} tokens: they count in no group metric")
    return replace(report, tokens=totals.n_tokens, masked=totals.n_masked, columns=columns, notes=notes)
