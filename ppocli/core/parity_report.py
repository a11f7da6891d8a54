"""What `ppocli parity` found: one batch, every framework's number for four quantities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ppocli.core.report import SCHEMA_VERSION, InputReport, NullNote, Number, Skipped
from ppocli.core.shown import Shown

KINDS = ("loss", "clip fraction", "approx KL", "value loss")
"""The quantities that are compared."""


@dataclass(frozen=True, slots=True)
class ParityCell:
    """One framework's number for one quantity.

    Attributes
    ----------
    name : str
        The framework's own name of it.
    value : number or None
    definition : str
    null : NullNote, optional
        Why there is no number.
    """

    name: str
    value: Number
    definition: str
    null: NullNote | None = None


@dataclass(frozen=True, slots=True)
class Framework:
    """One framework: its cells by kind, and the settings of its loss that are not ppocli's defaults."""

    name: str
    title: str
    version: str
    settings: Mapping[str, Any]
    metrics: Mapping[str, ParityCell]


@dataclass(frozen=True, slots=True, repr=False)
class ParityReport(Shown):
    """The result of `ppocli parity`.

    Attributes
    ----------
    settings : mapping
        What was given by hand for every framework, and how columns are read.
    inputs, skipped, frameworks : tuple
    n_tokens : int
    run : mapping
    """

    settings: Mapping[str, Any]
    inputs: tuple[InputReport, ...]
    skipped: tuple[Skipped, ...]
    frameworks: tuple[Framework, ...]
    n_tokens: int
    exit_code: int = 0
    run: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def spread(self) -> dict[str, dict[str, Any]]:
        """Return for each quantity the smallest and largest number and how many there are."""
        out: dict[str, dict[str, Any]] = {}
        for kind in KINDS:
            cells = (one.metrics[kind].value for one in self.frameworks if kind in one.metrics)
            values = [value for value in cells if value is not None]
            if values:
                out[kind] = {"min": min(values), "max": max(values), "n": len(values)}
        return out

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `-f json` prints."""
        from ppocli import __version__

        return {
            "schema_version": SCHEMA_VERSION,
            "tool": "ppocli",
            "version": __version__,
            "kind": "parity",
            "status": "ok",
            "exit_code": self.exit_code,
            "settings": dict(self.settings),
            "inputs": [asdict(one) for one in self.inputs],
            "skipped": [asdict(one) for one in self.skipped],
            "n_tokens": self.n_tokens,
            "frameworks": [_framework(one) for one in self.frameworks],
            "spread": self.spread(),
            "run": dict(self.run),
        }


def _framework(one: Framework) -> dict[str, Any]:
    """Return one framework as it stands in the document."""
    cells: dict[str, Any] = {}
    for kind, cell in one.metrics.items():
        cells[kind] = {"name": cell.name, "value": cell.value, "definition": cell.definition}
        if cell.null is not None:
            cells[kind]["reason"] = cell.null.reason
            if cell.null.nonfinite is not None:
                cells[kind]["nonfinite"] = cell.null.nonfinite
    return {
        "name": one.name,
        "title": one.title,
        "version": one.version,
        "settings": dict(one.settings),
        "metrics": cells,
    }
