"""The options of the gate of `drift`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from ppocli.cli.declare import word_option
from ppocli.core.drift_options import PREFIX, drift_limits
from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppocli.cli.settings import Configuration
    from ppocli.core.limits import Limit, LimitKind

GATE = "Gate"


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Limits on what was found."""

    max: Annotated[
        list[str] | None,
        word_option(
            GATE,
            "--max",
            metavar="METRIC=VALUE",
            text="Exit with 1 where the metric is above VALUE, or null: diff_abs_p99=0.2. Repeatable.",
        ),
    ] = None
    min: Annotated[
        list[str] | None,
        word_option(GATE, "--min", metavar="METRIC=VALUE", text="The same for below VALUE. Repeatable."),
    ] = None

    def limits(self, settings: Configuration) -> tuple[Limit, ...]:
        """Return the limits, with those that `settings` adds.

        Raises
        ------
        UsageProblem
            A flag that names no metric of `drift`, or a limit that is not finite.
        """
        return (*self._read(settings, "max"), *self._read(settings, "min"))

    def _read(self, settings: Configuration, kind: LimitKind) -> Iterator[Limit]:
        """Yield the limits of one option; a wrong one is named with its place."""
        from ppocli.core.limits import is_metric

        for pair, source in settings.limits(kind, getattr(self, kind)):
            given = source.startswith("--")
            name = pair.partition("=")[0]
            # Variables and tables are shared with `check`, which has these metrics.
            if not given and not name.startswith(PREFIX) and is_metric(name) and not is_metric(PREFIX + name):
                continue
            try:
                yield from (replace(one, source=source) for one in drift_limits(f"--{kind}", kind, [pair]))
            except UsageProblem as problem:
                where = None if given else source
                raise UsageProblem(problem.message, where=where, hint=problem.hint) from problem
