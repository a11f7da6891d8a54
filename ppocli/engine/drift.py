"""`drift`: two columns of log-probs, of one file or of two, to a `DriftReport`."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppocli.core.chunk import IdCoder, Reader, ReadOptions
from ppocli.core.progress import NoProgress, Progress
from ppocli.core.report import ColumnReport, Group, InputReport, Skipped
from ppocli.core.roles import ROLES
from ppocli.core.spec import LossSpec, choose
from ppocli.engine.reading import ID_ROLES, chunk_tokens_for, reading_settings
from ppocli.errors import ExitCode, InputError, UsageProblem

if TYPE_CHECKING:
    from ppocli.core.drift_report import DriftReport
    from ppocli.engine.pair_source import Beside, Inside
    from ppocli.engine.pair_totals import PairPlan, PairTotals

DEFAULT_A, DEFAULT_B = "old_log_probs", "rollout_log_probs"
LOG_PROBS = tuple(name for name, role in ROLES.items() if role.kind == "log_prob")
COMPARABLE = tuple(name for name, role in ROLES.items() if role.kind in ("log_prob", "real"))
BY = ("file", "total", "step")


@dataclass(frozen=True, slots=True)
class DriftOptions:
    """What is compared, and how.

    Attributes
    ----------
    a, b : str, optional
        Roles. None: the trainer's and the sampler's log-probs, or the only ones that two files have.
    key : tuple of str
        What tokens of two files are matched by; empty: their position.
    roles : tuple of str
        Of two files: more roles to compare, each with itself.
    tis_cap, mask_low, mask_high : float, optional
        Bounds of truncated and of masked weights.
    loss : bool
        Also say what corrections do to the policy loss, where the columns for it are there.
    clip_low, clip_high : float
        The clip interval of that loss.
    floor : str, optional
        A saved report, or a file, of the trainer against itself.
    by : {"file", "total", "step"}
    worst : int

    Raises
    ------
    UsageProblem
    """

    a: str | None = None
    b: str | None = None
    key: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    tis_cap: float | None = None
    mask_low: float | None = None
    mask_high: float | None = None
    loss: bool = True
    clip_low: float = 0.2
    clip_high: float = 0.2
    floor: str | None = None
    by: str = "file"
    worst: int = 0

    def __post_init__(self) -> None:
        from ppocli.engine.pair_source import KEYS

        for flag, role in (("--a", self.a), ("--b", self.b)):
            if role is not None:
                choose(f"{flag}: role", role, LOG_PROBS)
        for key in self.key:
            choose("--key", key, KEYS)
        if {"position", "token_id"} <= set(self.key):
            raise UsageProblem("--key takes position or token_id, not both")
        for role in self.roles:
            choose("--roles: role", role, COMPARABLE)
        choose("--by", self.by, BY)
        if not isinstance(self.worst, int) or self.worst < 0:
            raise UsageProblem(f"--worst is a whole number of at least 0, not {self.worst!r}")
        self.given_rules()
        LossSpec(clip_low=self.clip_low, clip_high=self.clip_high)

    def given_rules(self) -> tuple[Any, ...]:
        """Return the rules of the caps that were given."""
        from ppocli.core.rollout_rules import WeightRule

        rules = []
        if self.tis_cap is not None:
            rules.append(WeightRule("token", cap=self.tis_cap))
        if self.mask_low is not None or self.mask_high is not None:
            rules.append(WeightRule("token", low=self.mask_low, cap=self.mask_high, mode="mask"))
        return tuple(rules)

    def settings(self) -> dict[str, Any]:
        """Return what changes a number, as it is echoed."""
        said: dict[str, Any] = {"tis_cap": self.tis_cap, "mask_low": self.mask_low, "mask_high": self.mask_high}
        if self.loss:
            said |= {"clip_low": self.clip_low, "clip_high": self.clip_high}
        if self.key:
            said["key"] = list(self.key)
        return said


@dataclass(slots=True)
class _Run:
    """One comparison of inputs: what was asked for, and what has been found so far."""

    options: DriftOptions
    reading: ReadOptions
    progress: Progress
    chunk_tokens: int | None
    skip_bad: bool
    inputs: list[InputReport] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    coders: dict[str, IdCoder] = field(default_factory=lambda: {role: IdCoder() for role in ID_ROLES})

    def tokens_for(self, report: InputReport, roles: Sequence[str]) -> int:
        """Return how many tokens to read at a time."""
        types = [report.columns[role].dtype for role in roles if role in report.columns]
        return self.chunk_tokens or chunk_tokens_for(types)


def drift_files(
    paths: Sequence[str],
    others: Sequence[str] | None = None,
    options: DriftOptions | None = None,
    reading: ReadOptions | None = None,
    *,
    threads: int | None = None,
    chunk_rows: int | None = None,
    allow_empty: bool = False,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> DriftReport:
    """Compare two columns of log-probs, token by token.

    Parameters
    ----------
    paths : sequence of str
        Files, patterns and directories that hold both sides, or side a.
    others : sequence of str, optional
        Those of side b; tokens are paired in stored order over all files of a side.
    options : DriftOptions, optional
    reading : ReadOptions, optional
    threads, chunk_rows, allow_empty, skip_bad, progress : as in `evaluate_files`

    Returns
    -------
    DriftReport

    Raises
    ------
    InputError
        Two files whose lengths or keys differ: the first of them is named.
    EmptyInput, UsageProblem
    """
    from ppocli.io.source import expand

    files, skipped = expand(paths)
    run = _Run(
        options or DriftOptions(),
        reading or ReadOptions(),
        progress or NoProgress(),
        chunk_rows,
        skip_bad,
        skipped=list(skipped),
    )
    if others is None:
        if run.options.key:
            raise UsageProblem("--key is for two files", hint="ppocli drift A B --key sequence_id")
        pair = _OneSide(run, list(files))
    else:
        other_files, skipped = expand(others)
        run.skipped += skipped
        pair = _TwoSides(run, list(files), list(other_files))
    return _drift(run, pair, threads, allow_empty)


def drift(source: Any = None, other: Any = None, /, **settings: Any) -> DriftReport:
    """Compare two columns of log-probs: of a file, of two files, or arrays by role.

    Parameters
    ----------
    source, other : str, path or sequence of them, optional
        Files, patterns or directories. None: arrays by role.
    old_log_probs, rollout_log_probs, mask, ... : array-like
        Arrays by role, as for `evaluate`.
    columns : mapping of role to column name
    threads, chunk_rows, allow_empty, skip_bad, progress : as in `evaluate_files`
    **settings
        The fields of `DriftOptions` and `ReadOptions`.

    Returns
    -------
    DriftReport

    Raises
    ------
    InputError
        A file, column, shape or type that cannot be used.
    UsageProblem
        A setting outside its range, or not known.
    """
    from dataclasses import fields

    arrays = {role: settings.pop(role) for role in ROLES if settings.get(role) is not None}
    names = {one.name for one in fields(DriftOptions)}
    chosen = {name: settings.pop(name) for name in list(settings) if name in names}
    for name in ("key", "roles"):
        if isinstance(chosen.get(name), str):
            chosen[name] = (chosen[name],)
        elif name in chosen:
            chosen[name] = tuple(chosen[name])
    options = DriftOptions(**chosen)
    reading_names = {one.name for one in fields(ReadOptions)}
    reading = ReadOptions(**{name: settings.pop(name) for name in list(settings) if name in reading_names})
    known = {"threads", "chunk_rows", "allow_empty", "skip_bad", "progress"}
    if unknown := set(settings) - known:
        choose("setting", min(unknown), sorted(names | reading_names | known | set(ROLES)))
    if source is not None:
        if arrays:
            raise UsageProblem("give files or arrays, not both", hint=f"arrays given: {', '.join(arrays)}")
        both = [_paths(one) for one in (source, other) if one is not None]
        return drift_files(both[0], both[1] if len(both) > 1 else None, options, reading, **settings)
    run = _Run(
        options, reading, settings.get("progress") or NoProgress(), settings.get("chunk_rows"), skip_bad=False
    )
    return _drift(run, _Arrays(run, arrays), settings.get("threads"), settings.get("allow_empty", False))


def _paths(source: Any) -> list[str]:
    """Return paths as a list of text."""
    one = isinstance(source, (str, bytes)) or hasattr(source, "__fspath__")
    return [os.fsdecode(path) for path in ([source] if one else list(source))]


# ------------------------------------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class Sides:
    """What is compared: labels, array names and, per comparison, whether it is of log-probs."""

    name: str
    a: str
    b: str
    key_a: str
    key_b: str
    real: bool = False


class _OneSide:
    """Both sides in each file."""

    def __init__(self, run: _Run, paths: list[str]) -> None:
        self.run, self.paths = run, paths
        options = run.options
        self.a, self.b = options.a or DEFAULT_A, options.b or DEFAULT_B
        if self.a == self.b:
            raise UsageProblem(f"--a and --b are both '{self.a}'")
        if options.roles:
            raise UsageProblem("--roles is for two files: ppocli drift A B --roles values")

    def open(self, path: str, reading: ReadOptions | None = None) -> Reader:
        """Open a file that must have both columns."""
        from ppocli.io.source import open_input

        return open_input(path, reading or self.run.reading, self.run.coders, (self.a, self.b))

    def sources(self) -> Iterator[tuple[int, Inside | Beside]]:
        """Open one file after the other."""
        from ppocli.engine.pair_source import Inside

        for index, path in enumerate(self.paths):
            try:
                reader = self.open(path)
            except InputError as problem:
                self.skip(path, problem)
                continue
            try:
                yield index, Inside(reader, self.names(reader.report))
            finally:
                reader.close()

    def skip(self, path: str, problem: InputError) -> None:
        """Note an unreadable input, or raise."""
        if not self.run.skip_bad:
            raise _explained(problem, self.a, self.b)
        self.run.skipped.append(Skipped(path, f"unreadable: {problem.message}"))

    def names(self, report: InputReport) -> dict[str, str]:
        """Return which columns are read, by the name of their array."""
        wanted = {self.a, self.b}
        if self.a == DEFAULT_A and self.b == DEFAULT_B and "log_probs" in report.columns:
            wanted.add("log_probs")
            if self.run.options.loss and "advantages" in report.columns:
                wanted.add("advantages")
        return {role: role for role in ROLES if role in wanted}

    def sides(self, names: Mapping[str, str]) -> tuple[Sides, ...]:
        """Return the comparisons that these columns allow, the main one first."""
        out = [Sides("mismatch", self.a, self.b, self.a, self.b)]
        if {"log_probs", DEFAULT_A, DEFAULT_B} <= set(names):
            out.append(Sides("update", "log_probs", DEFAULT_A, "log_probs", DEFAULT_A))
            out.append(Sides("total", "log_probs", DEFAULT_B, "log_probs", DEFAULT_B))
        return tuple(out)

    def finish(self) -> list[InputReport]:
        """Return the reports of inputs that stand beside those read."""
        return []

    def openers(self) -> dict[str, Callable[[], Reader]]:
        """Return how each input is opened again."""
        return {path: self._opener(path) for path in self.paths}

    def _opener(self, path: str) -> Callable[[], Reader]:
        return lambda: self.open(path)

    def total_bytes(self) -> int:
        """Return the size of all inputs."""
        return sum(Path(path).stat().st_size for path in self.paths if Path(path).is_file())


class _Arrays(_OneSide):
    """Arrays in memory."""

    def __init__(self, run: _Run, arrays: Mapping[str, Any]) -> None:
        super().__init__(run, ["<arrays>"])
        self.arrays = arrays

    def open(self, path: str, reading: ReadOptions | None = None) -> Reader:
        """Take the arrays as a file."""
        from ppocli.io.arrays import ArrayReader

        return ArrayReader(self.arrays, reading or self.run.reading, self.run.coders, (self.a, self.b))


class _TwoSides(_OneSide):
    """Side a in some files, side b in others, paired in stored order."""

    def __init__(self, run: _Run, paths: list[str], others: list[str]) -> None:
        self.run, self.paths, self.others = run, paths, others
        self.a, self.b = self._roles()
        self.stream: Any = None

    def _roles(self) -> tuple[str, str]:
        """Choose the role of each side: as given, the usual one, or the only one there is."""
        given = self.run.options.a, self.run.options.b
        found = []
        for paths, role, usual in zip((self.paths, self.others), given, (DEFAULT_A, DEFAULT_B), strict=True):
            found.append(role or self._only(paths[0], usual))
        a, b = found
        if a is None:
            a = b if b is not None else DEFAULT_A
        if b is None:
            b = a
        return a, b

    def _only(self, path: str, usual: str) -> str | None:
        """Return the usual role where a file has it, else its only log-probs, else None."""
        from ppocli.io.source import open_input

        reader = open_input(path, self._reading(None), self.run.coders, ())
        try:
            have = [role for role in LOG_PROBS if role in reader.report.columns]
        finally:
            reader.close()
        if usual in have:
            return usual
        return have[0] if len(have) == 1 else None

    def _reading(self, side: int | None) -> ReadOptions:
        """Return the reading options of a side: without the column that only the other side has."""
        reading = self.run.reading
        if side is None:
            return replace(reading, columns={})
        mine, other = (self.a, self.b) if side == 0 else (self.b, self.a)
        left_out = {other} - {mine}
        return replace(
            reading, columns={role: name for role, name in reading.columns.items() if role not in left_out}
        )

    def _open_side(self, path: str, side: int, required: Sequence[str]) -> tuple[Reader, dict[str, str]]:
        """Open a file of one side, and say where its keys are."""
        from ppocli.io.source import open_input

        reading = self._reading(side)
        roles = _key_roles(path, self.run.options.key, reading)
        if roles.get("position"):
            reading = replace(reading, columns={**reading.columns, "token_id": "position"})
        try:
            reader = open_input(path, reading, self.run.coders, required)
        except InputError as problem:
            # Named on the command line, a role means the column of that name, whatever stands beside it.
            named = {role: role for role in required if role not in reading.columns}
            try:
                reader = open_input(
                    path, replace(reading, columns={**reading.columns, **named}), self.run.coders, required
                )
            except InputError:
                raise _explained(problem, self.a, self.b) from None
        return reader, {key: role for key, role in roles.items() if role}

    def sources(self) -> Iterator[tuple[int, Inside | Beside]]:
        """Open the files of side a one after the other, side b running along."""
        from ppocli.engine.pair_source import Beside, RowLengths, Side

        roles = self.run.options.roles
        names_a = {"a": self.a, **{f"a:{role}": role for role in roles}}
        names_b = {"b": self.b, **{f"b:{role}": role for role in roles}}
        rows = RowLengths((self.a, self.b))
        openers, key_roles = [], []
        for path in self.others:
            found: dict[str, str] = {}
            key_roles.append(found)
            openers.append(self._opener_of_b(path, names_b, found))
        tokens = self.run.chunk_tokens or chunk_tokens_for(["float32"] * (1 + len(roles)))
        self.stream = Side(openers, names_b, self.run.options.key, key_roles, tokens, rows)
        for index, path in enumerate(self.paths):
            reader, keys = self._open_side(path, 0, tuple(names_a.values()))
            try:
                if index == 0 and self.run.options.loss:
                    names_a |= {
                        role: role for role in ("log_probs", "advantages") if role in reader.report.columns
                    }
                beside = Beside(
                    reader, names_a, self.stream, self.run.options.key, keys, self.run.coders
                )
                yield index, beside
                if beside.n_mask_differs:
                    self.run.notes.append(
                        f"the masks differ at {beside.n_mask_differs:,} tokens: only tokens that count on both "
                        f"sides are compared"
                    )
            finally:
                reader.close()

    def _opener_of_b(
        self, path: str, names: Mapping[str, str], found: dict[str, str]
    ) -> Callable[[], Reader]:
        def opener() -> Reader:
            reader, roles = self._open_side(path, 1, tuple(names.values()))
            found.update(roles)
            return reader

        return opener

    def names(self, report: InputReport) -> dict[str, str]:
        """Return the arrays of side a."""
        return {"a": self.a}

    def sides(self, names: Mapping[str, str]) -> tuple[Sides, ...]:
        """Return the comparison of log-probs, then that of each further role."""
        a, b = ("a", "b") if self.a != self.b else (f"{self.a} of a", f"{self.b} of b")
        out = [Sides("mismatch", a if self.a == self.b else self.a, b if self.a == self.b else self.b, "a", "b")]
        for role in self.run.options.roles:
            real = ROLES[role].kind != "log_prob"
            out.append(Sides(role, f"{role} of a", f"{role} of b", f"a:{role}", f"b:{role}", real))
        return tuple(out)

    def finish(self) -> list[InputReport]:
        """Refuse what is left of side b, and return its reports."""
        left = self.stream.take(1) if self.stream is not None else None
        if left is not None:
            raise InputError(
                f"side a ends, and side b goes on at token {left.first_token:,} of '{left.path}'",
                where=f"{self.paths[-1]}, its end\n{left.path}, token {left.first_token}",
                hint="both sides must hold the same tokens in the same order",
            )
        reports: list[InputReport] = self.stream.reports if self.stream is not None else []
        return reports

    def openers(self) -> dict[str, Callable[[], Reader]]:
        """Return how files of side a are opened again."""
        return {path: self._again(path) for path in self.paths}

    def _again(self, path: str) -> Callable[[], Reader]:
        return lambda: self._open_side(path, 0, (self.a,))[0]

    def total_bytes(self) -> int:
        """Return the size of side a, by which progress is measured."""
        return sum(Path(path).stat().st_size for path in self.paths if Path(path).is_file())


def _key_roles(path: str, keys: Sequence[str], reading: ReadOptions) -> dict[str, str | None]:
    """Return which role each key is read by; positions without a column are counted."""
    if not keys:
        return {}
    out: dict[str, str | None] = {key: key for key in keys}
    if "position" in out:
        from ppocli.io.describe import describe

        seen = describe(path, reading, lambda _: frozenset(), 1)
        stored = any(column.name == "position" for column in seen.columns)
        out["position"] = "token_id" if stored else None
    return out


def _explained(problem: InputError, a: str, b: str) -> InputError:
    """Add to an input error how other columns are compared."""
    if "no column for role" not in problem.message and "no clear column" not in problem.message:
        return problem
    hint = f"{problem.hint}\n" if problem.hint else ""
    more = f"compared are {a} and {b}; --a ROLE and --b ROLE choose others"
    return InputError(problem.message, where=problem.where, hint=hint + more)


# ------------------------------------------------------------------------------------------- the run


def _drift(run: _Run, pair: _OneSide, threads: int | None, allow_empty: bool) -> DriftReport:
    """Read every input once, and report."""
    for name, value in (("threads", threads), ("chunk_rows", run.chunk_tokens)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UsageProblem(f"{name} is a whole number of at least 1, not {value!r}")
    from ppocli.kernels import _jit

    began = time.perf_counter()
    notice = _jit.set_threads(threads)
    if notice:
        run.progress.notice(f"warning: {notice}")
    _jit.on_first_compile(run.progress.notice)

    from ppocli.core.drift_report import DriftReport, Versus
    from ppocli.engine.drift_findings import find
    from ppocli.engine.pair_metrics import summarise_pair
    from ppocli.engine.pair_tables import (
        by_position,
        by_probability,
        by_step,
        corrections,
        histogram,
        top_sequences,
    )
    from ppocli.engine.token_ids import with_token_ids

    options = run.options
    floor = read_floor(options.floor, options, run) if options.floor is not None else {}
    passes = _Passes(run, pair, _jit.thread_count())
    run.progress.start(pair.total_bytes())
    passes.read()
    caps = options.tis_cap, options.mask_low, options.mask_high
    main_plan, main = passes.plans[0], passes.totals[0]
    whole = summarise_pair(main, main_plan, caps)
    others = []
    for plan, totals in zip(passes.plans[1:], passes.totals[1:], strict=True):
        one = summarise_pair(totals, plan, (None, None, None))
        others.append(Versus(plan.name, plan.a, plan.b, one.metrics, one.nulls))
    code = ExitCode.OK if main.n_tokens or allow_empty else ExitCode.EMPTY
    findings, told = find(main, main_plan, whole, passes.sample, run.inputs, floor)
    texts = {code: text for text, code in run.coders["step"].codes.items()}
    report = DriftReport(
        settings={**options.settings(), **reading_settings(run.reading)},
        a=main_plan.a,
        b=main_plan.b,
        inputs=tuple(run.inputs),
        skipped=tuple(run.skipped),
        metrics=whole.metrics,
        nulls=whole.nulls,
        by_position=by_position(main),
        by_probability=by_probability(main),
        by_step=by_step(main, texts),
        sequences=top_sequences(main),
        histogram=histogram(main),
        corrections=corrections(whole),
        comparisons=tuple(others),
        floor=told,
        findings=findings,
        groups=tuple(passes.groups),
        worst=passes.worst.found(),
        places=whole.places,
        exit_code=int(code),
        run={
            "seconds": time.perf_counter() - began,
            "threads": _jit.thread_count(),
            "python": platform.python_version(),
            "machine": platform.machine(),
        },
    )
    found: DriftReport = with_token_ids(report, pair.openers())
    return found


class _Passes:
    """Runs inputs through the comparisons and adds up their totals."""

    def __init__(self, run: _Run, pair: _OneSide, n_threads: int) -> None:
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

    @property
    def sample(self) -> Any:
        """What was kept for the question why the sides differ."""
        return self.sampler.sample()

    def read(self) -> None:
        """Read every input."""
        for index, source in self.pair.sources():
            kept = self.worst.copy()
            try:
                self._one(index, source)
            except InputError as problem:
                if isinstance(self.pair, _TwoSides):
                    raise
                self.pair.skip(source.report.path, problem)
                self.worst = kept
        if not self.plans:
            self._plan(self.pair.sides({}), loss=False)
        self.run.inputs += self.pair.finish()
        if self.run.notes and self.run.inputs:
            first = self.run.inputs[0]
            self.run.inputs[0] = replace(first, notes=(*first.notes, *self.run.notes))
        main = self.totals[0]
        if main.has_sequences and self.without_sequences and main.no_sequences is None:
            main.no_sequences = f"{self.without_sequences[0]} has no sequences"

    def _plan(self, sides: Sequence[Sides], *, loss: bool) -> None:
        """Settle the comparisons; further files may add some."""
        from ppocli.core.drift_metrics import CORRECTIONS
        from ppocli.engine.pair_totals import PairPlan, PairTotals

        options = self.run.options
        spec = LossSpec(clip_low=options.clip_low, clip_high=options.clip_high)
        for one in sides:
            if any(plan.name == one.name for plan in self.plans):
                continue
            rules = (*options.given_rules(), *CORRECTIONS) if not self.plans else ()
            plan = PairPlan(
                one.name, one.a, one.b, one.key_a, one.key_b, spec, one.real, rules, loss and not self.plans
            )
            self.plans.append(plan)
            self.totals.append(PairTotals.of(plan))

    def _one(self, index: int, source: Inside | Beside) -> None:
        """Read one input."""
        from ppocli.engine.pairs import LOSS_ARRAYS, FileComparison

        run = self.run
        report = source.report
        names = dict(source.names)
        has_loss = run.options.loss and set(LOSS_ARRAYS) <= set(names)
        self._plan(self.pair.sides(names), loss=has_loss)
        files = []
        for k, plan in enumerate(self.plans):
            if k and not _is_there(plan, source):
                continue
            own = replace(plan, loss=plan.loss and has_loss)
            first = k == 0
            files.append(
                (k, FileComparison(
                    report.path, own, self.work, worst=self.worst if first else None,
                    sample=self.sampler if first else None, steps=first and run.options.by == "step",
                ))
            )  # fmt: skip
        for span in self._spans(source):
            for _, one in files:
                one.add(span)
        report = source.report
        for k, one in files:
            totals = one.finish()
            totals.n_rows = report.rows
            if k == 0:
                self._enter(index, report, totals, source)
            self.totals[k].merge(totals)
        self.totals[0].file_order[report.path] = index

    def _enter(self, index: int, report: InputReport, totals: PairTotals, source: Inside | Beside) -> None:
        """Note what the main comparison found in one input."""
        from ppocli.engine.pair_metrics import summarise_pair

        main = self.totals[0]
        if totals.n_tokens:
            if not totals.has_sequences:
                self.without_sequences.append(report.path)
            elif main.no_sequences is None:
                main.no_sequences = totals.no_sequences
            main.has_sequences |= totals.has_sequences
        options = self.run.options
        self.run.inputs.append(_with_counts(report, totals, self.pair.a, self.pair.b))
        if options.by == "file" and len(self.pair.paths) > 1:
            caps = options.tis_cap, options.mask_low, options.mask_high
            one = summarise_pair(totals, self.plans[0], caps)
            self.groups.append(Group({"file": report.path}, one.metrics, one.nulls))

    def _spans(self, source: Inside | Beside) -> Iterator[Any]:
        """Read an input ahead, in spans of whole blocks."""
        from ppocli.engine.pipeline import read_ahead
        from ppocli.engine.span import Assembler
        from ppocli.kernels import layout

        assembler = Assembler(layout.BLOCK)
        report = source.report
        per_row = report.bytes / max(report.rows, 1)
        tokens = self.run.tokens_for(report, tuple(source.names.values()))
        for chunk in read_ahead(source.chunks(tokens)):
            self.run.progress.advance(chunk.n_rows * per_row, chunk.n_tokens)
            yield from assembler.push(chunk)
        yield from assembler.finish()


def _is_there(plan: PairPlan, source: Inside | Beside) -> bool:
    """Tell whether an input has both columns of a comparison."""
    from ppocli.engine.pair_source import Inside

    return not isinstance(source, Inside) or {plan.key_a, plan.key_b} <= set(source.names)


def _with_counts(report: InputReport, totals: PairTotals, a: str, b: str) -> InputReport:
    """Enter what was counted into an input's report."""
    columns: dict[str, ColumnReport] = {}
    for role, column in report.columns.items():
        columns[role] = column
        if role in (a, b):
            null, nan, posinf, neginf = (int(n) for n in totals.counts[(a, b).index(role)])
            columns[role] = replace(column, n_null=null, n_nan=nan, n_posinf=posinf, n_neginf=neginf)
    return replace(report, tokens=totals.n_tokens, masked=totals.n_masked, columns=columns)


def read_floor(path: str, options: DriftOptions, run: _Run) -> dict[str, Any]:
    """Return the path and the metrics of a noise floor: of a saved report, or of a file compared now.

    Raises
    ------
    InputError
        Neither.
    """
    if not Path(path).is_file():
        raise InputError("no such file", where=path)
    with Path(path).open("rb") as file:
        head = file.read(1)
    if head == b"{":
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
            kind, metrics = document["kind"], document["metrics"]
        except (ValueError, KeyError, UnicodeDecodeError):
            raise InputError("not a report of ppocli", where=path) from None
        if kind != "drift":
            raise InputError(f"a report of kind '{kind}', not 'drift'", where=path)
        return {"path": path, "metrics": metrics}
    plain = replace(options, floor=None, worst=0, by="total", loss=False, key=(), roles=())
    report = drift_files([path], None, plain, run.reading, chunk_rows=run.chunk_tokens)
    return {"path": path, "metrics": dict(report.metrics)}
