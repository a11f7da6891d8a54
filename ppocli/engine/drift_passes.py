"""The pass of `drift` over its inputs: every comparison of every file, added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ppocli.core.report import Group, InputReport
from ppocli.core.roles import ROLES
from ppocli.core.spec import LossSpec
from ppocli.engine.drift_inputs import DriftRun, OneSide, Sides, TwoSides, without_positions
from ppocli.engine.reading import chunk_tokens_for
from ppocli.errors import InputError

if TYPE_CHECKING:
    from ppocli.core.chunk import Reader
    from ppocli.core.drift_options import DriftCaps
    from ppocli.engine.pair_beside import Beside
    from ppocli.engine.pair_sample import Sampler
    from ppocli.engine.pair_source import Inside
    from ppocli.engine.pair_totals import PairPlan, PairTotals
    from ppocli.engine.pair_worst import WorstPairs
    from ppocli.engine.pairs import FileComparison, Workspaces
    from ppocli.engine.span import Span


@dataclass(slots=True, eq=False)
class PairPart:
    """What the comparisons find in one input.

    Attributes
    ----------
    report : InputReport
    names : mapping of array name to role
        What was read.
    totals : mapping of the name of a comparison to PairTotals
    worst : WorstPairs; sampler : Sampler
    texts : mapping of role to texts
        As of `FilePart`.
    """

    report: InputReport
    names: Mapping[str, str]
    totals: Mapping[str, PairTotals]
    worst: WorstPairs
    sampler: Sampler
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class PairPasses:
    """Runs inputs through the comparisons and adds up their totals."""

    def __init__(self, run: DriftRun, pair: OneSide, n_threads: int) -> None:
        from ppocli.engine.pair_sample import Sampler
        from ppocli.engine.pair_worst import WorstPairs
        from ppocli.engine.pairs import Workspaces

        self.run, self.pair = run, pair
        self.work = Workspaces(n_threads)
        self.worst = WorstPairs(run.options.worst)
        self.sampler = Sampler()
        self.plans: list[PairPlan] = []
        self.totals: list[PairTotals] = []
        self.groups: list[Group] = []
        self.without_sequences: list[str] = []
        self.n_read = self.n_with_loss = 0

    @property
    def sample(self) -> Any:
        """What was kept for the question why the sides differ."""
        return self.sampler.sample()

    def read(self) -> None:
        """Read every input."""
        for index, source in self.pair.sources():
            try:
                part = self.read_one(source)
            except InputError as problem:
                if isinstance(self.pair, TwoSides):
                    raise
                self.pair.skip(source.report.path, self.of_the_sides(source, problem))
            else:
                self.enter(index, part)
        self.finish()

    def finish(self) -> None:
        """Settle what all inputs decide."""
        if not self.plans:
            self.plan(self.pair.sides({}))
        self._note_loss()
        self.run.inputs += self.pair.finish()
        main = self.totals[0]
        if main.has_sequences and self.without_sequences and main.no_sequences is None:
            main.no_sequences = f"{self.without_sequences[0]} has no sequences"

    def _note_loss(self) -> None:
        """Say where the change of the loss is that of a part of the tokens."""
        from ppocli.core.drift_partials import SUM

        main = self.totals[0]
        n, n_loss = int(main.sums.hi[SUM["n"]]), int(main.losses.hi[0])
        if self.n_with_loss and n_loss < n:
            where = f", in {self.n_with_loss:,} of {self.n_read:,} files" * (self.n_with_loss < self.n_read)
            self.run.notes.append(
                f"the change of the loss is over {n_loss:,} of {n:,} tokens: those with log_probs and "
                f"advantages that are numbers{where}"
            )

    def of_the_sides(self, source: Inside | Beside, problem: InputError) -> InputError:
        """Return the problem of the two sides alone, if they have one; else what was met."""
        try:
            for _ in source.reader.chunks({self.pair.a, self.pair.b, "mask"}, 1 << 16):
                pass
        except InputError as own:
            return own
        return problem

    def plan(self, sides: Sequence[Sides]) -> None:
        """Settle the comparisons; further files may add some."""
        from ppocli.core.drift_metrics import CORRECTIONS
        from ppocli.engine.pair_totals import PairPlan, PairTotals

        options = self.run.options
        spec = LossSpec(clip_low=options.clip_low, clip_high=options.clip_high)
        for one in sides:
            if any(plan.name == one.name for plan in self.plans):
                continue
            main = not self.plans
            rules = (*options.caps.rules(), *CORRECTIONS) if main else ()
            plan = PairPlan(one.name, one.a, one.b, one.key_a, one.key_b, spec, one.real, rules, loss=main)
            self.plans.append(plan)
            self.totals.append(PairTotals.of(plan))

    def read_one(self, source: Inside | Beside) -> PairPart:
        """Read one input."""
        from ppocli.engine.pair_sample import Sampler
        from ppocli.engine.pair_worst import WorstPairs
        from ppocli.engine.pairs import FileComparison

        run = self.run
        report = source.report
        by_step = run.options.by == "step"
        if by_step and not isinstance(self.pair, TwoSides) and "step" not in report.columns:
            raise _no_step(report.path)
        names = dict(source.names)
        self.plan(self.pair.sides(names))
        worst, sampler = WorstPairs(run.options.worst), Sampler(self.sampler.n_blocks)
        files = []
        for k, plan in enumerate(self.plans):
            if k and not _is_there(plan, source):
                continue
            own = replace(plan, loss=plan.loss and has_loss(names))
            first = k == 0
            files.append(
                (plan.name, FileComparison(
                    report.path, own, self.work, worst=worst if first else None,
                    sample=sampler if first else None, steps=first and by_step,
                ))
            )  # fmt: skip
        for span in spans_of(source, run.chunk_tokens, run.progress.advance):
            if by_step and "step" not in span.arrays:
                raise _no_step(report.path)
            for _, one in files:
                one.add(span)
        report = source.report
        totals = {name: one.finish() for name, one in files}
        for each in totals.values():
            each.n_rows = report.rows
        return PairPart(report, names, totals, worst, sampler)

    def enter(self, index: int, part: PairPart) -> None:
        """Add the next input, in order."""
        self.plan(self.pair.sides(part.names))
        self.worst.merge(part.worst)
        self.sampler.merge(part.sampler)
        for plan, mine in zip(self.plans, self.totals, strict=True):
            totals = part.totals.get(plan.name)
            if totals is None:
                continue
            if mine is self.totals[0]:
                self._enter(part, totals)
            mine.merge(totals)
        self.totals[0].file_order[part.report.path] = index
        self.n_read, self.n_with_loss = self.n_read + 1, self.n_with_loss + has_loss(part.names)

    def _enter(self, part: PairPart, totals: PairTotals) -> None:
        """Note what the main comparison found in one input."""
        from ppocli.engine.pair_metrics import summarise_pair

        main, report = self.totals[0], part.report
        if totals.n_tokens:
            if not totals.has_sequences:
                self.without_sequences.append(report.path)
            elif main.no_sequences is None:
                main.no_sequences = totals.no_sequences
            main.has_sequences |= totals.has_sequences
        options = self.run.options
        counted = replace(_with_counts(part, self.plans), tokens=totals.n_tokens, masked=totals.n_masked)
        self.run.inputs.append(without_positions(counted))
        if options.by == "file" and len(self.pair.paths) > 1:
            one = summarise_pair(totals, self.plans[0], options.caps)
            self.groups.append(Group({"file": report.path}, one.metrics, one.nulls))


class ShortForm:
    """What `eval` says of the trainer against the sampler, over inputs or parts of them."""

    def __init__(self, work: Workspaces, caps: DriftCaps) -> None:
        from ppocli.engine.pair_totals import PairTotals

        self.plan, self._caps = short_plan(caps), caps
        self._total, self._work, self._without = PairTotals.of(self.plan), work, ""

    def is_in(self, report: InputReport) -> bool:
        """Tell whether an input has both sides."""
        return {self.plan.a, self.plan.b} <= set(report.columns)

    def start(self, path: str) -> FileComparison:
        """Return what takes the spans of one input."""
        from ppocli.engine.pairs import FileComparison

        return FileComparison(path, self.plan, self._work)

    def merge(self, path: str, totals: PairTotals, index: int) -> dict[str, Any]:
        """Add an input, in order; return its own short form."""
        whole = self._total
        made = self._made(totals)
        whole.file_order[path] = index
        if totals.n_tokens and not totals.has_sequences:
            self._without = self._without or path
        whole.has_sequences |= totals.has_sequences
        whole.no_sequences = whole.no_sequences or totals.no_sequences
        whole.merge(totals)
        return made

    def finish(self) -> dict[str, Any]:
        """Return `a`, `b`, `metrics`, `nulls` over all inputs; empty without any."""
        whole = self._total
        if not whole.n_files:
            return {}
        if whole.has_sequences and self._without:
            whole.no_sequences = whole.no_sequences or f"{self._without} has no sequences"
        return self._made(whole)

    def _made(self, totals: PairTotals) -> dict[str, Any]:
        from ppocli.engine.pair_metrics import summarise_pair

        s = summarise_pair(totals, self.plan, self._caps)
        return {"a": self.plan.a, "b": self.plan.b, "metrics": s.metrics, "nulls": s.nulls}


def short_plan(caps: DriftCaps) -> PairPlan:
    """Return what the short form compares."""
    from ppocli.core.drift_options import DEFAULT_A, DEFAULT_B
    from ppocli.engine.pair_totals import PairPlan

    return PairPlan("mismatch", DEFAULT_A, DEFAULT_B, DEFAULT_A, DEFAULT_B, LossSpec(), rules=caps.rules())


def read_pair(short: ShortForm, reader: Reader, chunk_tokens: int | None) -> PairTotals | None:
    """Return the totals of one input that has both sides, or None.

    Raises
    ------
    InputError
        Its rollout column cannot be read, which `eval` does without.
    """
    from ppocli.engine.pair_source import Inside

    if not short.is_in(reader.report):
        return None
    one = short.start(reader.report.path)
    sides = {role: role for role in (short.plan.a, short.plan.b)}
    for span in spans_of(Inside(reader, sides), chunk_tokens):
        one.add(span)
    totals = one.finish()
    totals.n_rows = reader.report.rows
    return totals


def spans_of(
    source: Inside | Beside, chunk_tokens: int | None, advance: Callable[[float, int], None] | None = None
) -> Iterator[Span]:
    """Read an input ahead, in spans of whole blocks."""
    from ppocli.engine.pipeline import read_ahead
    from ppocli.engine.span import Assembler
    from ppocli.kernels import layout

    assembler = Assembler(layout.BLOCK)
    report = source.report
    per_row = report.bytes / max(report.rows, 1)
    types = [report.columns[role].dtype for role in source.names.values() if role in report.columns]
    for chunk in read_ahead(source.chunks(chunk_tokens or chunk_tokens_for(types))):
        if advance is not None:
            advance(chunk.n_rows * per_row, chunk.n_tokens)
        yield from assembler.push(chunk)
    yield from assembler.finish()


def _no_step(path: str) -> InputError:
    """Build the error for an input without steps."""
    return InputError(
        "no column for step, which --by step needs",
        where=path,
        hint="--col step=COLUMN takes any column of whole numbers or text",
    )


def has_loss(names: Mapping[str, str]) -> bool:
    """Tell whether an input has the columns of the loss that corrections are tried on."""
    from ppocli.engine.pairs import LOSS_ARRAYS

    return set(LOSS_ARRAYS) <= set(names)


def _is_there(plan: PairPlan, source: Inside | Beside) -> bool:
    """Tell whether an input has both columns of a comparison; what side b is asked for it must have."""
    return {plan.key_a, plan.key_b} <= {*source.names, "b", *(f"b:{name}" for name in ROLES)}


def _with_counts(part: PairPart, plans: Sequence[PairPlan]) -> InputReport:
    """Return the report of an input with what was counted in each of its columns that is compared."""
    report, columns = part.report, dict(part.report.columns)
    for plan in plans:
        totals = part.totals.get(plan.name)
        for side, key in enumerate((plan.key_a, plan.key_b) if totals is not None else ()):
            role = part.names.get(key)
            if totals is not None and role in columns:
                null, nan, posinf, neginf = (int(n) for n in totals.counts[side])
                columns[role] = replace(
                    columns[role], n_null=null, n_nan=nan, n_posinf=posinf, n_neginf=neginf
                )
    return replace(report, columns=columns)
