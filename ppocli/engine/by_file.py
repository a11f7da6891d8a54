"""A run whose files are evaluated each by itself, here or elsewhere, and entered in order."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppocli.core.chunk import IdCoder
from ppocli.core.partial_document import digest, document
from ppocli.engine.reading import ID_ROLES, ReadAgain
from ppocli.engine.units import Given, UnitPlan
from ppocli.engine.where import Here
from ppocli.errors import InputError, InternalError, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ppocli.core.drift_options import DriftCaps
    from ppocli.core.report import EvalReport
    from ppocli.core.spec import LossSpec
    from ppocli.engine.advantages import AdvantageScopes
    from ppocli.engine.audit_pass import Audit
    from ppocli.engine.evaluate import Run
    from ppocli.engine.file_part import FilePart
    from ppocli.engine.measures import MeasureSet
    from ppocli.engine.scales import Scales
    from ppocli.engine.totals import Totals
    from ppocli.engine.where import Where

Json = Any
STDIN = "-"


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
            if run.audit is not None and keep:
                raise UsageProblem(
                    f"{one} cannot have an audit: its sums take the tokens of all files in one order",
                    hint="leave out one of the two",
                )
            if STDIN in run.paths:
                raise UsageProblem(f"{one} needs files, and - is standard input", hint="name a file")
        self.run, self.worst, self.where, self.keep = run, worst, where, keep
        self.plan = UnitPlan.of(run, worst, keep=keep)
        self.files: list[Json] = []
        self._given = Given()
        self._rows_before: dict[int, int] = {}

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
            "advantages", self.plan, list(self.run.unread()), lambda _: self._given
        ):
            if isinstance(found, InputError):
                self.run.skip(self.run.paths[index], found)
                continue
            total.merge(statistics_from_json(found), GROUP_LIMIT)
        self._given = replace(self._given, statistics=Writing().fields(total))
        return total

    def scopes(self, scopes: AdvantageScopes) -> dict[str, Any]:
        """Fill the scopes in which the advantages of all files are normalised; return what to echo.

        Where they are counted in rows, a file is begun when the one before it is done.
        """
        from ppocli.engine.scope_state import finished_to_json, merge_scopes

        coders = {role: IdCoder() for role in ID_ROLES}
        self._given, self._rows_before = Given(), {}
        rows: list[int] = []
        by_rows = bool(self.run.spec.adv_norm_rows)
        for index, found in self.where.results(
            "scopes",
            self.plan,
            list(self.run.unread()),
            (lambda _: Given(base_row=sum(rows))) if by_rows else self._given_to,
            one_by_one=by_rows,
        ):
            path = self.run.paths[index]
            try:
                if isinstance(found, InputError):
                    raise found
                merge_scopes(scopes, found, coders, path)
            except InputError as problem:
                self.run.skip(path, problem)
                raise ReadAgain from problem
            if by_rows:
                self._rows_before[index] = sum(rows)
            rows.append(found["rows"])
        settings = scopes.finish()
        self._given = Given(scopes=finished_to_json(scopes, coders))
        return settings

    def _given_to(self, index: int) -> Given:
        """Return what a file has to know."""
        before = self._rows_before.get(index)
        return self._given if before is None else replace(self._given, base_row=before)

    def scales(self, scales: Scales) -> None:
        """Fill the scales of an audit with those of all files."""
        from ppocli.engine.audit_state import put_columns
        from ppocli.engine.scales import too_many

        largest, n_sequences, reason = [], 0, None
        for index, found in self.where.results(
            "scales", self.plan, list(self.run.unread()), lambda _: self._given
        ):
            if isinstance(found, InputError):
                self.run.skip(self.run.paths[index], found)
                continue
            largest += found["largest"]
            n_sequences += found["n_sequences"]
            reason = reason or found["reason"] or too_many(n_sequences)
        raw = {"largest": largest, "reason": reason}
        put_columns(scales, raw)
        self._given = replace(self._given, scales=raw)

    def parts(
        self, sets: Sequence[MeasureSet], audit: Audit | None
    ) -> Iterator[tuple[int, FilePart | InputError]]:
        """Yield what was found in each file, as a merge of documents would read it.

        Under an audit a file is begun when the one before it is done: some sums are of all tokens in order.
        """
        from ppocli.engine.audit_state import audit_from_json

        entering = Entering(sets, self.run.caps)
        self.files.clear()
        self._given = replace(self._given, ordered=None)
        for index, found in self.where.results(
            "entry",
            self.plan,
            list(self.run.unread()),
            self._given_to,
            one_by_one=audit is not None,
        ):
            if isinstance(found, InputError):
                yield index, found
                continue
            if self.keep:
                self.files.append({**found, "sha256": digest(found)})
            try:
                part = entering.part(found["state"])
                if audit is not None:
                    part.audit = audit_from_json(found["audit"], part.report.path, audit)
                    self._given = replace(self._given, ordered=found["audit"]["ordered"])
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
        Advantages may be normalised: the input is read twice.

    Raises
    ------
    UsageProblem
    """
    if spec.micro_batch:
        raise UsageProblem(
            f"{what} cannot have --micro-batch: micro-batches go on from one file into the next",
            hint="leave out one of the two",
        )
    if spec.adv_norm != "none" and not normalised:
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
