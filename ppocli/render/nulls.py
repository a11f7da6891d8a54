"""How a null is shown: why, what arithmetic would have given, the value over finite tokens beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from ppocli.render.console import printable
from ppocli.render.header import place_text
from ppocli.render.numbers import cell_text

if TYPE_CHECKING:
    from ppocli.core.drift_report import DriftReport
    from ppocli.core.report import EvalReport, NullNote


class Nulls:
    """The nulls of a report. A reason that several metrics share has a number and stands in the header."""

    def __init__(self, report: EvalReport | DriftReport, digits: int, unasked: Collection[str] = ()) -> None:
        self._report = report
        self._unasked = unasked
        self.digits = digits
        shared = Counter(
            self._reason(note) for name, note in report.nulls.items() if not self.is_unasked(name)
        )
        reasons = [reason for reason, times in shared.items() if times > 1]
        self._numbers = {reason: number for number, reason in enumerate(reasons, 1)}

    def legend(self) -> Iterator[str]:
        """Yield the reasons that have a number."""
        for reason, number in self._numbers.items():
            yield f"null [{number}]: {reason}"

    def is_unasked(self, name: str) -> bool:
        """Tell whether a metric is null only because an option for it was not given."""
        note = self._report.nulls.get(name)
        return name in self._unasked and note is not None and note.reason.endswith("not given")

    def cell(self, name: str, value: float | int | None) -> str:
        """Return a value, or `null`, `null (nan)`, `null (nan) [1]`."""
        if value is not None:
            return cell_text(value, self.digits)
        note = self._report.nulls[name]
        number = self._numbers.get(self._reason(note))
        return (
            "null" + (f" ({note.nonfinite})" if note.nonfinite else "") + (f" [{number}]" if number else "")
        )

    def note(self, name: str, definition: str, twins: Any) -> str:
        """Return what stands beside a null.

        Parameters
        ----------
        definition : str
            Stands there if there is nothing else to say.
        twins : mapping of name to value
            Where `NAME_finite` is looked up, if it was reported.
        """
        parts = [self._own_reason(name)]
        twin = f"{name}_finite"
        if twin in twins:
            text = self.cell(twin, twins[twin])
            parts.append(f"finite tokens: {text}")
            if twins[twin] is None:
                parts.append(self._own_reason(twin))
        return "; ".join(filter(None, parts)) or definition

    def _own_reason(self, name: str) -> str:
        """Return the reason of a null, unless it stands in the header."""
        reason = self._reason(self._report.nulls[name])
        return "" if reason in self._numbers else reason

    def _reason(self, note: NullNote) -> str:
        """Return the reason and where its first cause stands."""
        if note.where is None:
            return printable(note.reason)
        place = place_text(note.where, with_path=len(self._report.inputs) > 1)
        return f"{printable(note.reason)} (first: {place})"
