"""`drift` with every file compared by itself, in tasks elsewhere, and entered in order."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ppocli.core.progress import NoProgress, Progress
from ppocli.engine.drift_inputs import DriftRun, OneSide, TwoSides
from ppocli.errors import InputError, InternalError, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppocli.core.chunk import ReadOptions
    from ppocli.core.drift_options import DriftOptions
    from ppocli.engine.drift_passes import PairPasses
    from ppocli.engine.pair_totals import PairPlan
    from ppocli.engine.where import Where

STDIN = "-"


@dataclass(frozen=True, slots=True)
class DriftUnitPlan:
    """What is done with every input.

    Attributes
    ----------
    options, reading, chunk_tokens, full : as of `DriftRun`
    folder : str
        Where paths begin that are not absolute.
    """

    options: DriftOptions
    reading: ReadOptions
    chunk_tokens: int | None
    full: bool
    folder: str = field(default_factory=os.getcwd)

    def unit(self, path: str, progress: Progress | None = None, given: Any = None) -> DriftUnit:
        """Return one input of the run; `given`: how many blocks of the sample there are already."""
        return DriftUnit(self, path, progress, given or 0)


class DriftUnit:
    """One input of a run, with the task `pairs`."""

    def __init__(
        self, plan: DriftUnitPlan, path: str, progress: Progress | None = None, n_sampled: int = 0
    ) -> None:
        self.plan, self.n_sampled = plan, n_sampled
        self.run = DriftRun(
            plan.options,
            plan.reading,
            progress or NoProgress(),
            plan.chunk_tokens,
            skip_bad=False,
            full=plan.full,
        )
        self.pair = OneSide(self.run, [path])

    def total_bytes(self) -> int:
        """Return the size of the input."""
        return self.pair.total_bytes()

    def pairs(self) -> dict[str, Any]:
        """Return what is found in the input.

        Raises
        ------
        InputError
        """
        from ppocli.engine.drift_passes import PairPasses
        from ppocli.engine.pair_source import Inside
        from ppocli.engine.pair_state import pair_part_to_json
        from ppocli.engine.recode import texts_of
        from ppocli.kernels import _jit

        passes = PairPasses(self.run, self.pair, _jit.thread_count())
        passes.sampler.n_blocks = self.n_sampled
        reader = self.pair.open(self.pair.paths[0])
        try:
            source = Inside(reader, self.pair.names(reader.report))
            passes.plan(self.pair.sides(source.names))
            try:
                part = passes.read_one(source)
            except InputError as problem:
                raise passes.of_the_sides(source, problem) from None
        finally:
            reader.close()
        part.texts = texts_of(self.run.coders)
        return pair_part_to_json(part)


def check_drift(pair: OneSide, name: str) -> None:
    """Refuse inputs that cannot be compared file by file.

    Raises
    ------
    UsageProblem
    """
    if isinstance(pair, TwoSides):
        raise UsageProblem(
            f"{name} compares two columns of each file; two paths are read side by side, in one process",
            hint=f"leave {name} out",
        )
    if STDIN in pair.paths:
        raise UsageProblem(f"{name} needs files, and - is standard input", hint="name a file")


def take_all(passes: PairPasses, where: Where) -> None:
    """Have every input compared elsewhere, and enter the parts in order."""
    from ppocli.engine.pair_state import pair_part_from_json
    from ppocli.engine.recode import recode_pairs

    run, pair = passes.run, passes.pair
    plan = DriftUnitPlan(run.options, run.reading, run.chunk_tokens, run.full)

    def plans(names: Mapping[str, str]) -> dict[str, PairPlan]:
        passes.plan(pair.sides(names))
        return {one.name: one for one in passes.plans}

    def n_sampled(_: int) -> int:
        return passes.sampler.n_blocks

    for index, found in where.results("pairs", plan, list(enumerate(pair.paths)), n_sampled):
        if isinstance(found, InputError):
            pair.skip(pair.paths[index], found)
            continue
        try:
            part = pair_part_from_json(found, plans)
        except ValueError as problem:
            raise InternalError(f"a part that cannot be read back: {problem}") from problem
        recode_pairs(part, run.coders)
        passes.enter(index, part)
    passes.finish()
