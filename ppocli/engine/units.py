"""One input evaluated by itself, in this process or another: what partial documents and clusters need."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ppocli.core.chunk import IdCoder, ReadOptions
from ppocli.core.drift_options import NO_CAPS, DriftCaps
from ppocli.core.progress import NoProgress, Progress
from ppocli.engine.reading import ID_ROLES
from ppocli.errors import InputError

if TYPE_CHECKING:
    from ppocli.core.audit_spec import AuditOptions
    from ppocli.core.spec import LossSpec
    from ppocli.engine.advantages import AdvantageScopes
    from ppocli.engine.audit_pass import Audit
    from ppocli.engine.evaluate import Run
    from ppocli.engine.file_part import FilePart
    from ppocli.engine.passes import Passes
    from ppocli.engine.scales import Scales


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """What is done with every input of a run.

    Attributes
    ----------
    spec, reading, required_roles, worst, chunk_tokens : as of the run
    like : str, optional
    only : frozenset of str, optional
    caps : DriftCaps
    audit : AuditOptions, optional
    keep : bool
        What is found will be kept: with the ids of the tokens at all places, and what the file is known by.
    folder : str
        Where paths begin that are not absolute.
    """

    spec: LossSpec
    reading: ReadOptions
    required_roles: tuple[str, ...]
    worst: int
    chunk_tokens: int | None
    like: str | None = None
    only: frozenset[str] | None = None
    caps: DriftCaps = NO_CAPS
    audit: AuditOptions | None = None
    keep: bool = False
    folder: str = field(default_factory=os.getcwd)

    @classmethod
    def of(cls, run: Run, worst: int, *, keep: bool) -> UnitPlan:
        """Return the plan of a run over files."""
        assert run.options is not None
        return cls(
            run.spec,
            run.options,
            tuple(run.required_roles),
            worst,
            run.chunk_tokens,
            None if run.like is None else run.like.name,
            None if run.only is None else frozenset(run.only),
            run.caps,
            run.audit,
            keep,
        )

    def unit(self, path: str, progress: Progress | None = None, given: Any = None) -> Unit:
        """Return one input of the run; see `Unit`."""
        return Unit(self, path, progress, given)


@dataclass(frozen=True, slots=True)
class Given:
    """What a run knows, as JSON values, when an input is begun.

    Attributes
    ----------
    statistics : optional
        Of the advantages of all inputs, where they are normalised.
    scopes : optional
        In which they are normalised, with shift and scale.
    base_row : int
        Rows of the inputs before this one, where scopes are counted in rows.
    scales : optional
        Of an audit, of all inputs.
    ordered : optional
        The sums of an audit over the inputs before this one.
    """

    statistics: Any = None
    scopes: Any = None
    base_row: int = 0
    scales: Any = None
    ordered: Any = None


class Unit:
    """One input of a run, with the tasks `entry`, `advantages`, `scopes` and `scales`.

    Parameters
    ----------
    plan : UnitPlan
    path : str
    progress : Progress, optional
    given : Given, optional
        What the run knows that the input has to know.
    """

    def __init__(
        self,
        plan: UnitPlan,
        path: str,
        progress: Progress | None = None,
        given: Given | None = None,
    ) -> None:
        self.plan, self.path, self.given = plan, path, given or Given()
        self.coders = {role: IdCoder() for role in ID_ROLES}
        self.run = self._run(progress or NoProgress())

    def total_bytes(self) -> int:
        """Return the size of the input."""
        return self.run.total_bytes()

    def advantages(self) -> dict[str, Any]:
        """Return the totals of the valid advantages.

        Raises
        ------
        InputError
        """
        from ppocli.engine.part_state import Writing

        passes = self._passes()
        found = {}
        for _, reader in self.run.readers():
            found = Writing().fields(passes.read_statistics(reader))
        return found

    def scopes(self) -> dict[str, Any]:
        """Return the scopes of the input in which its advantages are normalised.

        Raises
        ------
        InputError
        """
        from ppocli.engine.scope_state import scopes_to_json

        passes, found = self._passes(), {}
        for _, reader in self.run.readers():
            scopes = passes.read_scopes(reader, self.given.base_row)
            found = scopes_to_json(scopes, reader.report.rows, self.coders)
        return found

    def entry(self) -> dict[str, Any]:
        """Return what is found in the input, as it stands in a document of partials.

        Raises
        ------
        InputError
        """
        from ppocli.io.fingerprint import fingerprint

        known_by = {}
        if self.plan.keep:
            size, identity = fingerprint(self.path)
            known_by = {"bytes": size, "fingerprint": identity}
        part = self.part()
        audited = {}
        if part.audit is not None:
            from ppocli.engine.audit_state import audit_to_json

            audited = {"audit": audit_to_json(part.audit)}
        return {**known_by, **audited, "state": self._state(part)}

    def scales(self) -> dict[str, Any]:
        """Return the scales of an audit of this input alone.

        Raises
        ------
        InputError
        """
        from ppocli.engine.audit_state import scales_to_json

        passes = self._passes()
        passes.audit = audit = self._audit(passes)
        passes.find_scales(self.run)
        assert audit.scales is not None
        return scales_to_json(audit.scales)

    def _state(self, part: FilePart) -> dict[str, Any]:
        """Return the part of the input as JSON."""
        from ppocli.engine.part_state import Writing
        from ppocli.engine.token_ids import find

        writing = Writing()
        out: dict[str, Any] = writing.part(part)
        if self.plan.keep and "token_id" in part.report.columns:
            found = find(writing.places, [part.report], self.run.openers_by_path())
            out = Writing(found).part(part)
        return out

    def part(self) -> FilePart:
        """Evaluate the input."""
        from ppocli.engine.drift_passes import ShortForm, read_pair
        from ppocli.engine.like import wanted
        from ppocli.engine.pairs import Workspaces
        from ppocli.engine.recode import texts_of

        run, passes = self.run, self._passes()
        shown = run.like if run.only is None else None
        if self.plan.audit is not None:
            passes.audit = self._audit(passes)
        passes.prepare(run, () if shown is None else wanted(shown, run.spec))
        for _, reader in run.readers():
            part = passes.read(reader)
            if passes.audit is not None:
                part.audit = passes.audit.part()
            if run.only is None:
                try:
                    short = ShortForm(Workspaces(passes.threads), self.plan.caps)
                    part.drift = read_pair(short, reader, run.chunk_tokens)
                except InputError as problem:
                    part.drift_problem = problem.message
            if part.drift is not None:
                part.drift.top.clear()  # the short form does not name sequences
        part.texts = texts_of(self.coders)
        return part

    def _audit(self, passes: Passes) -> Audit:
        """Return the audit as the inputs before this one have left it."""
        from ppocli.engine.audit_pass import Audit
        from ppocli.engine.audit_state import ordered_from_json, put_columns

        assert self.plan.audit is not None
        audit, given = Audit(self.plan.audit, passes.threads), self.given
        if given.ordered is not None:
            audit.ordered = ordered_from_json(given.ordered, audit)

        def fill(scales: Scales) -> None:
            audit.scales_of = None
            if scales.by_sequence and given.scales["reason"] is None:
                passes.find_scales(self.run)
            put_columns(scales, given.scales)

        if given.scales is not None:
            audit.scales_of = fill
        return audit

    def _passes(self) -> Passes:
        from ppocli.engine.passes import Passes
        from ppocli.kernels import _jit

        run = self.run
        passes = Passes(run.spec, _jit.thread_count(), self.plan.worst, run.chunk_tokens, run.progress)
        passes.only, passes.several = run.only, True
        if self.given.statistics is not None:
            from ppocli.engine.part_state import statistics_from_json

            statistics = statistics_from_json(self.given.statistics)
            passes.statistics_of = lambda: statistics
        passes.scopes_of, passes.total.n_rows = self._fill_scopes, self.given.base_row
        return passes

    def _fill_scopes(self, scopes: AdvantageScopes) -> dict[str, Any]:
        """Take the scopes of the run."""
        from ppocli.engine.scope_state import put_finished

        put_finished(scopes, self.given.scopes, self.coders)
        return {}

    def _run(self, progress: Progress) -> Run:
        from ppocli.core.presets import preset
        from ppocli.engine.evaluate import Run
        from ppocli.engine.reading import reading_settings
        from ppocli.io.source import open_input

        plan, path, coders = self.plan, self.path, self.coders
        return Run(
            spec=plan.spec,
            open_readers=[lambda: open_input(path, plan.reading, coders, plan.required_roles)],
            chunk_tokens=plan.chunk_tokens,
            progress=progress,
            skip_bad=False,
            paths=[path],
            reading=reading_settings(plan.reading),
            like=None if plan.like is None else preset(plan.like),
            only=plan.only,
        )
