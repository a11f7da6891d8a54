"""The passes over the data: statistics of the advantages where they are normalised, then everything else."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from ppocli.core.partials import COLUMNS
from ppocli.engine.accumulate import FileAccumulator
from ppocli.engine.aggregates import horizon_of
from ppocli.engine.pipeline import read_ahead
from ppocli.engine.reading import chunk_tokens_for
from ppocli.engine.repeats import RepeatedIds
from ppocli.engine.sequences import GROUP_LIMIT, MicroBatches
from ppocli.engine.span import Assembler, Span
from ppocli.engine.summary import Summary
from ppocli.engine.totals import Plan, Totals, make_plan
from ppocli.engine.worst import WorstTokens
from ppocli.errors import InputError
from ppocli.kernels import layout
from ppocli.kernels.blocks import Workspace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ppocli.core.chunk import Reader
    from ppocli.core.progress import Progress
    from ppocli.core.report import ColumnReport, InputReport
    from ppocli.core.spec import LossSpec
    from ppocli.engine.audit_pass import Audit

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
    audit: Audit | None = None
    only: Collection[str] | None = None

    def __post_init__(self) -> None:
        self.workspace = Workspace(self.threads)
        self.worst = WorstTokens(self.n_worst)
        self.total = Totals(roles=frozenset(COLUMNS))
        self.micro = MicroBatches(self.spec.micro_batch or 0)

    @property
    def n_readings(self) -> int:
        """How often every input is read."""
        scales = self.audit is not None and self.audit.scales is not None
        return 1 + (self.spec.adv_norm == "batch") + scales

    def normalisation(self, run: Inputs) -> tuple[float, float, dict[str, Any]]:
        """Return shift and scale of the advantages, and what to echo of them.

        (A - mean) / (std + eps) in the form asked for, over the valid, finite advantages of the whole input;
        one advantage alone is left as it is.
        """
        if self.spec.adv_norm == "none":
            return 0.0, 1.0, {}
        statistics = Totals(roles=frozenset(("advantages",)))
        for _, reader in run.readers():
            plan = make_plan(self.spec, {"advantages"} & set(reader.report.columns), only=("adv",))
            accumulator = FileAccumulator(reader.report.path, plan, self.workspace, WorstTokens(0))
            try:
                for span in self._spans(reader, frozenset(("advantages", "mask"))):
                    accumulator.add(span)
            except InputError as problem:
                run.skip(reader.report.path, problem)
                continue
            statistics.merge(accumulator.finish(), GROUP_LIMIT)
        s = Summary(statistics, self.spec)
        n = s.count("adv")
        if n < 2:
            return 0.0, 1.0, {"adv_norm_note": "fewer than two advantages: not normalised"}
        mean = s.mean("adv", "adv", "adv")
        deviation = math.sqrt(s.variance("adv", "adv", self.spec.adv_norm_ddof, "adv"))
        eps = self.spec.adv_norm_eps
        scale = {
            "add": deviation + eps,
            "max": max(deviation, eps),
            "var": math.sqrt(deviation * deviation + eps),
        }[self.spec.adv_norm_form]
        if scale == 0.0:
            return mean, 1.0, {"adv_norm_note": "the advantages do not vary and eps is 0: only centred"}
        return mean, scale, {"adv_norm_mean": mean, "adv_norm_std": deviation}

    def prepare(self, run: Inputs) -> None:
        """Make the first pass that some audits need."""
        if self.audit is not None:
            self.audit.prepare(run, self._spans)

    def evaluate(self, reader: Reader, index: int, shift: float, scale: float) -> tuple[InputReport, Totals]:
        """Read one input through the kernels and add its totals to the run's."""
        report = reader.report
        plan = make_plan(self.spec, report.columns, self.only, shift=shift, scale=scale)
        accumulator = FileAccumulator(
            report.path, plan, self.workspace, self.worst, self.micro, self.total.n_rows, self.audit
        )
        if self.audit is not None:
            self.audit.begin(report, plan)
        # In lists and padded arrays a row is a sequence, whatever ids stand beside it.
        ids = frozenset(IDS) - (frozenset() if report.layout in ("flat", "packed") else {"sequence_id"})
        for span in self._spans(reader, plan.roles | ids):
            accumulator.add(span)
        totals = accumulator.finish()
        if self.audit is not None:
            self.audit.finish()
        if accumulator.sequences is not None and accumulator.sequences.by_id:
            self.repeats.add(report.path, accumulator.sequences.ids())
        report = reader.report  # readers add notes while they read
        totals.n_rows = report.rows
        totals.file_order = {report.path: 0}
        if totals.n_tokens:
            self.total.roles &= totals.roles
            if not totals.has_sequences:
                self.without_sequences.append(report.path)
            elif self.total.no_sequences is None:
                self.total.no_sequences = totals.no_sequences
            self.total.has_sequences |= totals.has_sequences
            if totals.groups is None:
                self.without_groups.append(report.path)
        self.total.file_order[report.path] = index
        self.total.merge(totals, GROUP_LIMIT)
        return _with_counts(report, plan, totals), totals

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

    def _spans(self, reader: Reader, roles: frozenset[str]) -> Iterator[Span]:
        """Read an input ahead, in spans of whole blocks."""
        assembler = Assembler(layout.BLOCK)
        report = reader.report
        per_row = report.bytes / max(report.rows, 1)
        wanted = roles & frozenset(report.columns)
        tokens = self.chunk_tokens or chunk_tokens_for(report.columns[role].dtype for role in wanted)
        for chunk in read_ahead(reader.chunks(wanted, tokens)):
            self.progress.advance(chunk.n_rows * per_row, chunk.n_tokens)
            yield from assembler.push(chunk)
        yield from assembler.finish()


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
