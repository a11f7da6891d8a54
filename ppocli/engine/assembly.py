"""From the parts of a run, one for each input and in their order, to its report."""

from __future__ import annotations

import math
import platform
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ppocli.core.report import EvalReport, Group, LikeReport
from ppocli.engine.aggregates import over_horizon
from ppocli.engine.audit_findings import find_audited
from ppocli.engine.findings import find
from ppocli.engine.histogram import histograms
from ppocli.engine.like import like_report, wanted
from ppocli.engine.metrics import summarise
from ppocli.engine.passes import Passes
from ppocli.errors import ExitCode, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ppocli.engine.advantages import AdvantageScopes
    from ppocli.engine.audit_pass import Audit
    from ppocli.engine.drift_passes import ShortForm
    from ppocli.engine.evaluate import Run
    from ppocli.engine.file_part import FilePart
    from ppocli.engine.measures import MeasureSet
    from ppocli.engine.pair_totals import PairTotals
    from ppocli.engine.scales import Scales
    from ppocli.engine.summary import Summary
    from ppocli.engine.totals import Totals


class Engine(Protocol):
    """Where inputs are evaluated, if not here: elsewhere, or already."""

    @property
    def finds_token_ids(self) -> bool:
        """Whether places come with their token ids."""

    @property
    def said(self) -> dict[str, Any]:
        """What the report says of the run."""

    def statistics(self) -> Totals:
        """Return the totals of the valid advantages of all inputs, merged in order."""

    def scopes(self, scopes: AdvantageScopes) -> dict[str, Any]:
        """Fill the scopes in which the advantages of all inputs are normalised; return what to echo."""

    def scales(self, scales: Scales) -> None:
        """Fill the scales of an audit with those of all inputs."""

    def parts(
        self, sets: Sequence[MeasureSet], audit: Audit | None
    ) -> Iterator[tuple[int, FilePart | InputError]]:
        """Yield what was found in each input, or why it cannot be read, in order.

        `sets`: the measures of the run; `audit`: its audit.
        """


class Assembly:
    """Adds up the parts of a run."""

    def __init__(self, run: Run, by: str, worst: int, threads: int) -> None:
        self.run, self.by = run, by
        self.began, self.threads = time.perf_counter(), threads
        self.engine = run.engine
        # The horizon of the run is known at its end; that of one input is left out until then.
        self.spec_of_one = replace(run.spec, horizon=run.spec.horizon or 1)
        self.passes = passes = Passes(run.spec, threads, worst, run.chunk_tokens, run.progress)
        passes.only, passes.several = run.only, len(run.paths) > 1
        if run.audit is not None:
            from ppocli.engine.audit_pass import Audit

            passes.audit = Audit(run.audit, threads)
        if self.engine is not None:
            passes.statistics_of, passes.scopes_of = self.engine.statistics, self.engine.scopes
            if passes.audit is not None:
                passes.audit.scales_of = self.engine.scales
        self._short: ShortForm | None = None
        self.drift_by_path: dict[str, dict[str, Any]] = {}
        self._entered: dict[str, int] = {}
        self.groups: list[Group] = []

    @property
    def needs_token_ids(self) -> bool:
        """Whether places have yet to get their token ids."""
        return self.engine is None or not self.engine.finds_token_ids

    @property
    def short(self) -> ShortForm:
        """What compares trainer and sampler; made when it is needed first."""
        if self._short is None:
            from ppocli.engine.drift_passes import ShortForm
            from ppocli.engine.pairs import Workspaces

            self._short = ShortForm(Workspaces(self.threads), self.run.caps)
        return self._short

    def report(self, *, allow_empty: bool) -> EvalReport:
        """Read all inputs, or take their parts, and report."""
        run, passes = self.run, self.passes
        run.progress.start(run.total_bytes() * (passes.n_readings + run.by_group))
        # `only` names selections of our own; a framework then gives its loss and columns, not its metrics.
        shown = run.like if run.only is None else None
        settings = passes.prepare(run, () if shown is None else wanted(shown, run.spec))
        if self.engine is None:
            self._read()
        else:
            self._take(self.engine)
        total = passes.finish(run.inputs)
        whole = summarise(total, run.spec)
        if passes.job.before is not None:
            from ppocli.engine.correction import put_correction

            put_correction(whole, passes.job.before)
        drift = {} if self._short is None else self._short.finish()
        audit = passes.audit.result() if passes.audit is not None else None
        findings = find(total, run.spec, run.inputs, passes.repeats, _known_kl(drift))
        if audit is not None:  # which sees every value of a column; without it narrow ones are from a sample
            findings = (*(one for one in findings if one.code != "PPO201"), *find_audited(audit))
        code = ExitCode.OK if total.n_tokens or allow_empty else ExitCode.EMPTY
        return EvalReport(
            settings={
                **run.spec.to_dict(),
                **(run.audit.to_dict() if run.audit is not None else {}),
                **run.caps.given(),
                **run.reading,
                **settings,
                **passes.settings(total),
            },
            inputs=tuple(run.inputs),
            skipped=tuple(run.skipped),
            metrics=whole.metrics,
            nulls=whole.nulls,
            places=whole.places,
            findings=findings,
            groups=self._groups(total),
            worst=passes.worst.found(),
            like=self._like(whole),
            exit_code=int(code),
            run={
                "seconds": time.perf_counter() - self.began,
                "threads": self.threads,
                "python": platform.python_version(),
                "machine": platform.machine(),
                **(self.engine.said if self.engine is not None else {}),
            },
            drift=drift,
            audit=audit,
            histograms=histograms(total, run.spec),
        )

    def _read(self) -> None:
        """Evaluate the inputs one after the other, then compare trainer and sampler where both are there."""
        run, passes = self.run, self.passes
        for index, reader in run.readers():
            try:
                part = passes.read(reader)
            except InputError as problem:
                passes.skip(run, reader.report.path, problem)
                if passes.audit is not None:
                    passes.audit.drop()
                continue
            self._enter(index, part)
        if run.only is not None or not any("rollout_log_probs" in report.columns for report in run.inputs):
            return
        from ppocli.engine.drift_passes import read_pair

        for index, reader in run.readers():
            path = reader.report.path
            try:
                pair = read_pair(self.short, reader, run.chunk_tokens)
            except InputError as problem:
                self._leave_out(path, problem.message)
            else:
                if pair is not None:
                    self._compare(path, pair, index)

    def _take(self, engine: Engine) -> None:
        """Take the parts that were found elsewhere."""
        for index, part in engine.parts(self.passes.job.sets, self.passes.audit):
            if isinstance(part, InputError):
                self.passes.skip(self.run, self.run.paths[index], part)
                continue
            path = part.report.path
            self._enter(index, part)
            if self.passes.audit is not None and part.audit is not None:
                self.passes.audit.enter(part.audit)
            if part.drift is not None:
                self._compare(path, part.drift, index)
            elif part.drift_problem is not None:
                self._leave_out(path, part.drift_problem)

    def _enter(self, index: int, part: FilePart) -> None:
        """Add one input, and keep its own metrics where they are wanted."""
        run = self.run
        self.passes.enter(part, index)
        self._entered[part.report.path] = len(run.inputs)
        run.inputs.append(part.report)
        if self.by == "file" and len(run.paths) > 1:
            one = summarise(part.totals, self.spec_of_one)
            self.groups.append(Group({"file": part.report.path}, one.metrics, one.nulls))

    def _compare(self, path: str, pair: PairTotals, index: int) -> None:
        """Add the comparison of trainer and sampler in one input, and what was counted of the sampler's."""
        self.drift_by_path[path] = self.short.merge(path, pair, index)
        at, role = self._entered[path], self.short.plan.b
        report = self.run.inputs[at]
        null, nan, posinf, neginf = (int(n) for n in pair.counts[1])
        column = replace(report.columns[role], n_null=null, n_nan=nan, n_posinf=posinf, n_neginf=neginf)
        self.run.inputs[at] = replace(report, columns={**report.columns, role: column})

    def _leave_out(self, path: str, why: str) -> None:
        """Note that an input counts everywhere but in the comparison of trainer and sampler."""
        note = f"rollout_log_probs left out of drift: {why}"
        inputs, at = self.run.inputs, self._entered[path]
        inputs[at] = replace(inputs[at], notes=(*inputs[at].notes, note))

    def _groups(self, total: Totals) -> tuple[Group, ...]:
        """Return the metrics of each input, with the horizon of the run."""
        horizon = self.passes.settings(total).get("horizon")
        groups = self.groups
        if horizon:
            agg = self.run.spec.agg
            groups = [replace(one, metrics=over_horizon(one.metrics, agg, horizon)) for one in groups]
        return tuple(replace(one, drift=self.drift_by_path.get(one.key["file"], {})) for one in groups)

    def _like(self, s: Summary) -> LikeReport | None:
        """Return the metrics of the framework that was asked for."""
        run, job = self.run, self.passes.job
        if run.like is None or run.only is not None or not job.sets:
            return None
        return like_report(run.like, run.spec, job.sets, s)


def _known_kl(short: Mapping[str, Any]) -> float | None:
    """Return KL(b || a) by k3 of a short form, over the tokens with finite values; None where unknown."""
    if not short:
        return None
    metrics, name = short["metrics"], "drift_kl_k3"
    name = f"{name}_finite" if f"{name}_finite" in metrics else name
    note = short["nulls"].get(name)
    value = metrics[name]
    if value is None:
        return math.inf if note is not None and note.nonfinite == "inf" else None
    return float(value)
