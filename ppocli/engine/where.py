"""Where the inputs of a run are worked on, each by itself: in this process, or elsewhere."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from ppocli.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ppocli.core.progress import Progress

Json = Any


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
        self,
        task: str,
        plan: Plan,
        inputs: Sequence[tuple[int, str]],
        given: Callable[[int], Json],
        *,
        one_by_one: bool = False,
    ) -> Iterator[tuple[int, Json | InputError]]:
        """Yield what a task, a method of units, gives for each of some inputs, in their order.

        `given`: called with the number of a unit when it is begun; what the run knows by then that the unit
        has to know.
        `one_by_one`: no unit is begun before what the one before it gave has been taken.
        """


class Here:
    """Works in the process itself, on one input after the other."""

    name = "--partials"
    said: Mapping[str, Json] = MappingProxyType({})

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def results(
        self,
        task: str,
        plan: Plan,
        inputs: Sequence[tuple[int, str]],
        given: Callable[[int], Json],
        *,
        one_by_one: bool = True,
    ) -> Iterator[tuple[int, Json | InputError]]:
        """Work on each input when its result is asked for."""
        for index, path in inputs:
            try:
                yield index, getattr(plan.unit(path, self.progress, given(index)), task)()
            except InputError as problem:
                yield index, problem
