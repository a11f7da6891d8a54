"""A run whose files are evaluated each by itself, here or elsewhere, and entered in order."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from ppocli.core.chunk import IdCoder
from ppocli.core.partial_document import digest, document
from ppocli.engine.reading import ID_ROLES
from ppocli.engine.units import UnitPlan
from ppocli.errors import InputError, InternalError, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ppocli.core.drift_options import DriftCaps
    from ppocli.core.progress import Progress
    from ppocli.core.report import EvalReport
    from ppocli.core.spec import LossSpec
    from ppocli.engine.evaluate import Run
    from ppocli.engine.file_part import FilePart
    from ppocli.engine.measures import MeasureSet
    from ppocli.engine.totals import Totals

Json = Any
STDIN = "-"


class Plan(Protocol):
    """What is done with every input of a run; every worker gets it once."""

    @property
    def folder(self) -> str:
        """Where paths begin that are not absolute."""

    def unit(self, path: str, progress: Progress | None = None, given: Json = None) -> Any:
        """Return one input: its `total_bytes`, and a method for each task."""


class Where(Protocol):
    """Where units are worked on."""

    @property
    def name(self) -> str:
        """How messages call it."""

    @property
    def said(self) -> Mapping[str, Json]:
        """What a report says of the run."""

    def results(
        self, task: str, plan: Plan, inputs: Sequence[tuple[int, str]], given: Callable[[], Json]
    ) -> Iterator[tuple[int, Json | InputError]]:
        """Yield what a task, a method of units, gives for each of some inputs, in their order.

        `given`: called when a unit is begun; what the run knows by then that the unit has to know.
        """


class Here:
    """Works in the process itself, on one input after the other."""

    name = "--partials"
    said: Mapping[str, Json] = MappingProxyType({})

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def results(
        self, task: str, plan: Plan, inputs: Sequence[tuple[int, str]], given: Callable[[], Json]
    ) -> Iterator[tuple[int, Json | InputError]]:
        """Work on each input when its result is asked for."""
        for index, path in inputs:
            try:
                yield index, getattr(plan.unit(path, self.progress, given()), task)()
            except InputError as problem:
                yield index, problem


class ByFile:
    """Evaluates every file of a run by itself.

    Parameters
    ----------
    run : Run
    worst : int
    where : Where
    keep : bool
        Keep the entries of a document of partials.

    Raises
    ------
    UsageProblem
        What cannot be put together from files evaluated by themselves; before anything is read.
    """

    def __init__(self, run: Run, worst: int, where: Where, *, keep: bool) -> None:
        for one in ("--partials", where.name) if keep else (where.name,):
            check_by_file(run.spec, one, normalised=not keep)
            if run.audit is not None:
                raise UsageProblem(
                    f"{one} cannot have an audit: its sums take the tokens of all files in one order",
                    hint="leave out one of the two",
                )
            if STDIN in run.paths:
                raise UsageProblem(f"{one} needs files, and - is standard input", hint="name a file")
        self.run, self.worst, self.where, self.keep = run, worst, where, keep
        self.plan = UnitPlan.of(run, worst, keep=keep)
        self.files: list[Json] = []
        self._statistics: Json = None

    @property
    def finds_token_ids(self) -> bool:
        """Whether places come with their token ids."""
        return self.keep

    @property
    def said(self) -> dict[str, Json]:
        """What a report says of the run."""
        return dict(self.where.said)

    def statistics(self) -> Totals:
        """Return the totals of the valid advantages of all files."""
        from ppocli.engine.part_state import Writing, statistics_from_json
        from ppocli.engine.passes import no_statistics
        from ppocli.engine.sequences import GROUP_LIMIT

        total = no_statistics()
        for index, found in self.where.results(
            "advantages", self.plan, list(self.run.unread()), lambda: None
        ):
            if isinstance(found, InputError):
                self.run.skip(self.run.paths[index], found)
                continue
            total.merge(statistics_from_json(found), GROUP_LIMIT)
        self._statistics = Writing().fields(total)
        return total

    def parts(self, sets: Sequence[MeasureSet]) -> Iterator[tuple[int, FilePart | InputError]]:
        """Yield what was found in each file, as a merge of documents would read it."""
        entering = Entering(sets, self.run.caps)
        self.files.clear()
        for index, found in self.where.results(
            "entry", self.plan, list(self.run.unread()), lambda: self._statistics
        ):
            if isinstance(found, InputError):
                yield index, found
                continue
            if self.keep:
                self.files.append({**found, "sha256": digest(found)})
            try:
                part = entering.part(found["state"])
            except ValueError as problem:
                raise InternalError(f"a part that cannot be read back: {problem}") from problem
            yield index, part

    def document(self, report: EvalReport) -> dict[str, Json]:
        """Return the document of partials."""
        from dataclasses import asdict

        run = self.run
        how = {"like": self.plan.like, "worst": self.worst, "n_paths": len(run.paths)}
        settings = {**run.spec.to_dict(), **run.caps.given(), **run.reading}
        return document(settings, how, self.files, [asdict(one) for one in run.skipped], report.run)


class Entering:
    """Makes parts of states, with the codes of one run for their text ids.

    Parameters
    ----------
    sets : sequence of MeasureSet
        The measures of the run.
    caps : DriftCaps
        The bounds of its weights in `drift`.
    """

    def __init__(self, sets: Sequence[MeasureSet], caps: DriftCaps) -> None:
        from ppocli.engine.drift_passes import short_plan

        self.sets, self.pair = sets, short_plan(caps)
        self.coders = {role: IdCoder() for role in ID_ROLES}

    def part(self, state: Json) -> FilePart:
        """Return the part of a state.

        Raises
        ------
        ValueError
            It is damaged.
        """
        from ppocli.engine.part_state import part_from_json
        from ppocli.engine.recode import recode

        part = part_from_json(state, self.sets, self.pair)
        recode(part, self.coders)
        return part


def check_by_file(spec: LossSpec, what: str, *, normalised: bool = False) -> None:
    """Refuse a loss that cannot be put together from files evaluated by themselves.

    Parameters
    ----------
    what : str
        What is asked for, to be named.
    normalised : bool
        Advantages may be normalised over the whole input: it is read twice.

    Raises
    ------
    UsageProblem
    """
    if spec.micro_batch:
        raise UsageProblem(
            f"{what} cannot have --micro-batch: micro-batches go on from one file into the next",
            hint="leave out one of the two",
        )
    if spec.adv_norm != "none" and not (normalised and not spec.scoped):
        over = "rows or groups of all files" if spec.scoped else "the whole input"
        raise UsageProblem(
            f"{what} cannot have --adv-norm {spec.adv_norm}: its mean and deviation are those of {over}",
            hint="--adv-norm none takes the advantages as stored",
        )


def evaluate_with_partials(
    paths: Sequence[str], *arguments: Any, **settings: Any
) -> tuple[EvalReport, dict[str, Json]]:
    """Evaluate files, and return the report with the document that `merge` takes.

    Parameters
    ----------
    paths, *arguments, **settings : as for `evaluate_files`
        `where`: a `Where`; this process unless given.

    Returns
    -------
    report : EvalReport
        As `evaluate_files` returns it.
    document : dict
        Of kind "partials", for `json.dumps`.

    Raises
    ------
    InputError, EmptyInput
    UsageProblem
        Also for advantages that are normalised, micro-batches, audits and standard input.
    """
    from ppocli.engine.evaluate import evaluate_files

    made: list[ByFile] = []
    where = settings.pop("where", None)

    def engine(run: Run, worst: int) -> ByFile:
        made.append(ByFile(run, worst, where or Here(run.progress), keep=True))
        return made[0]

    report = evaluate_files(paths, *arguments, **settings, engine=engine)
    return report, made[0].document(report)


def partials(source: Any, /, **settings: Any) -> dict[str, Json]:
    """Evaluate files, and return what was found in each: the document that `merge` takes.

    Parameters
    ----------
    source : str, path or sequence of them
        Files, patterns or directories.
    **settings
        As for `evaluate`, without `audit`; `by` and `allow_empty` change nothing.

    Returns
    -------
    dict
        Of kind "partials", for `json.dump`: what `ppocli eval --partials FILE` writes.

    Raises
    ------
    InputError, EmptyInput
    UsageProblem
        Also for advantages that are normalised, and for micro-batches: they go over several files.
    """
    from ppocli.engine.evaluate import split_settings

    one = isinstance(source, (str, bytes)) or hasattr(source, "__fspath__")
    spec, options, others = split_settings(dict(settings))
    paths = [os.fsdecode(path) for path in ([source] if one else source)]
    return evaluate_with_partials(paths, spec, options, **others)[1]
