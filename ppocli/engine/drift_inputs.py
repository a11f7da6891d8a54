"""The inputs of `drift`: both sides in each file, each side in files of its own, or arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ppocli.core.chunk import IdCoder, Reader, ReadOptions
from ppocli.core.drift_options import DEFAULT_A, DEFAULT_B, LOG_PROBS, DriftOptions
from ppocli.core.report import InputReport, Skipped
from ppocli.core.roles import ROLES
from ppocli.engine.reading import ID_ROLES, chunk_tokens_for, total_bytes
from ppocli.errors import InputError, UsageProblem

if TYPE_CHECKING:
    from ppocli.core.progress import Progress
    from ppocli.engine.pair_beside import Beside
    from ppocli.engine.pair_source import Inside


@dataclass(slots=True)
class DriftRun:
    """One comparison of inputs: what was asked for, and what has been found so far."""

    options: DriftOptions
    reading: ReadOptions
    progress: Progress
    chunk_tokens: int | None
    skip_bad: bool
    inputs: list[InputReport] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    full: bool = True
    coders: dict[str, IdCoder] = field(default_factory=lambda: {role: IdCoder() for role in ID_ROLES})


@dataclass(frozen=True, slots=True)
class Sides:
    """What is compared: labels, array names and, per comparison, whether it is of log-probs."""

    name: str
    a: str
    b: str
    key_a: str
    key_b: str
    real: bool = False


class OneSide:
    """Both sides in each file."""

    def __init__(self, run: DriftRun, paths: list[str]) -> None:
        self.run, self.paths = run, paths
        options = run.options
        self.a, self.b = options.a or DEFAULT_A, options.b or DEFAULT_B
        if self.a == self.b:
            raise UsageProblem(f"--a and --b are both '{self.a}'")
        if options.roles:
            raise UsageProblem("--roles is for two files: ppocli drift A B --roles values")

    def open(self, path: str, reading: ReadOptions | None = None) -> Reader:
        """Open a file that must have both columns."""
        options = self.run.options
        named = [role for role in (options.a, options.b) if role is not None]
        return _opened(path, reading or self.run.reading, self.run.coders, (self.a, self.b), named)

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
        if self.run.full and self.a == DEFAULT_A and self.b == DEFAULT_B:
            wanted |= {"log_probs", "advantages"} & set(report.columns)
        return {role: role for role in ROLES if role in wanted}

    def sides(self, names: Mapping[str, str]) -> tuple[Sides, ...]:
        """Return the comparisons that these columns allow, the main one first."""
        out = [Sides("mismatch", self.a, self.b, self.a, self.b)]
        if {"log_probs", DEFAULT_A, DEFAULT_B} <= set(names):
            out.append(Sides("update", "log_probs", DEFAULT_A, "log_probs", DEFAULT_A))
            out.append(Sides("staleness", "log_probs", DEFAULT_B, "log_probs", DEFAULT_B))
        return tuple(out)

    def finish(self) -> list[InputReport]:
        """Return the reports of inputs that stand beside those read."""
        return []

    def first_bad(self) -> str:
        """Return where the first value of side b that is no finite number stands, if in a file of its own."""
        return ""

    def openers(self) -> dict[str, Callable[[], Reader]]:
        """Return how each input is opened again."""
        return {path: self._opener(path) for path in self.paths}

    def _opener(self, path: str) -> Callable[[], Reader]:
        return lambda: self.open(path)

    def total_bytes(self) -> int:
        """Return the size of all inputs."""
        return total_bytes(self.paths)


class InMemory(OneSide):
    """Arrays in memory."""

    def __init__(self, run: DriftRun, arrays: Mapping[str, Any]) -> None:
        super().__init__(run, ["<arrays>"])
        self.arrays = arrays

    def open(self, path: str, reading: ReadOptions | None = None) -> Reader:
        """Take the arrays as a file."""
        from ppocli.io.arrays import ArrayReader

        return ArrayReader(self.arrays, reading or self.run.reading, self.run.coders, (self.a, self.b))


class TwoSides(OneSide):
    """Side a in some files, side b in others, paired in stored order."""

    def __init__(self, run: DriftRun, paths: list[str], others: list[str]) -> None:
        self.run, self.paths, self.others = run, paths, others
        self.a, self.b = self._roles()
        self.stream: Any = None
        self.n_mask_differs = 0

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
        reading = self._reading(side)
        roles = _key_roles(path, self.run.options.key, reading)
        if roles.get("position"):
            reading = replace(reading, columns={**reading.columns, "token_id": "position"})
        try:
            reader = _opened(path, reading, self.run.coders, required, required)
        except InputError as problem:
            raise _explained(problem, self.a, self.b) from None
        return reader, {key: role for key, role in roles.items() if role}

    def sources(self) -> Iterator[tuple[int, Inside | Beside]]:
        """Open the files of side a one after the other, side b running along."""
        from ppocli.engine.pair_beside import Beside
        from ppocli.engine.pair_source import RowLengths, Side

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
                names = dict(names_a)
                if self.run.full and self.a == DEFAULT_A:
                    more = {"log_probs", "advantages"} & set(reader.report.columns)
                    names |= {role: role for role in sorted(more)}
                beside = Beside(reader, names, self.stream, self.run.options.key, keys, self.run.coders)
                yield index, beside
                self.n_mask_differs += beside.n_mask_differs
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
        """Return the comparison of log-probs, those with a third policy, then that of each further role."""
        same = self.a == self.b
        a, b = (f"{self.a} of a", f"{self.b} of b") if same else (self.a, self.b)
        out = [Sides("mismatch", a, b, "a", "b")]
        if (self.a, self.b) == (DEFAULT_A, DEFAULT_B) and "log_probs" in names:
            out.append(Sides("update", "log_probs", a, "log_probs", "a"))
            out.append(Sides("staleness", "log_probs", b, "log_probs", "b"))
        for role in self.run.options.roles:
            real = ROLES[role].kind != "log_prob"
            out.append(Sides(role, f"{role} of a", f"{role} of b", f"a:{role}", f"b:{role}", real))
        return tuple(out)

    def finish(self) -> list[InputReport]:
        """Refuse what is left of side b, and return its reports."""
        from ppocli.engine.pair_source import two_places

        left = self.stream.take(1) if self.stream is not None else None
        if left is not None:
            raise InputError(
                f"side a ends, and side b goes on at token {left.first_token:,} of '{left.path}'",
                where=two_places(f"{self.paths[-1]}, its end", f"{left.path}, token {left.first_token}"),
                hint="both sides must hold the same tokens in the same order",
            )
        if self.n_mask_differs:
            self.run.notes.append(
                f"the masks differ at {self.n_mask_differs:,} token{'s' * (self.n_mask_differs > 1)}: only "
                f"tokens that count on both sides are compared"
            )
        if self.stream is None:
            return []
        both = zip(self.stream.reports, self.stream.tallies, strict=True)
        return [without_positions(tally.entered(one, self.stream.names)) for one, tally in both]

    def first_bad(self) -> str:
        """Return where the first value of side b that is no finite number stands."""
        both = zip(self.stream.reports, self.stream.tallies, strict=True) if self.stream is not None else ()
        found = ((one.path, tally.first_bad) for one, tally in both if tally.first_bad is not None)
        return next((f"token {token:,} of '{path}'" for path, token in found), "")

    def openers(self) -> dict[str, Callable[[], Reader]]:
        """Return how files of side a are opened again."""
        return {path: self._again(path) for path in self.paths}

    def _again(self, path: str) -> Callable[[], Reader]:
        from ppocli.io.source import open_input

        return lambda: open_input(path, self._reading(0), self.run.coders, ())

    def total_bytes(self) -> int:
        """Return the size of side a, by which progress is measured."""
        return total_bytes(self.paths)


def _opened(
    path: str,
    reading: ReadOptions,
    coders: Mapping[str, IdCoder],
    required: Sequence[str],
    named: Sequence[str],
) -> Reader:
    """Open a file. A role that was named means the column of that name, whatever stands beside it."""
    from ppocli.io.source import open_input

    try:
        return open_input(path, reading, coders, required)
    except InputError as problem:
        columns = {role: role for role in named} | dict(reading.columns)
        if columns == dict(reading.columns):
            raise
        try:
            return open_input(path, replace(reading, columns=columns), coders, required)
        except InputError:
            raise problem from None


def without_positions(report: InputReport) -> InputReport:
    """Return a report without the column of positions, which were read in the place of token ids."""
    columns = {
        role: one for role, one in report.columns.items() if role != "token_id" or one.column != "position"
    }
    return replace(report, columns=columns)


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
