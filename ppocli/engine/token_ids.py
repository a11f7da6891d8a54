"""Token ids of the places a report names: looked up afterwards, so that no pass reads them in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ppocli.engine.reading import chunk_tokens_for
from ppocli.errors import InputError

if TYPE_CHECKING:
    from ppocli.core.audit_report import AuditResult
    from ppocli.core.chunk import Chunk, Reader
    from ppocli.core.drift_report import DriftReport
    from ppocli.core.report import EvalReport, InputReport, NullNote, Place

Report = TypeVar("Report", "EvalReport", "DriftReport")

OF_ROWS = frozenset({"PPO405"})
"""Findings whose place is a sequence, not a token of it."""


def with_token_ids(report: Report, openers: Mapping[str, Callable[[], Reader]]) -> Report:
    """Return the report with the token id at every place whose input has a column for it.

    An input whose ids do not line up with its log-probs keeps its places without ids.
    """
    found = find(_places(report), report.inputs, openers)
    return _replaced(report, found) if found else report


def find(
    places_named: Iterable[Place], inputs: Iterable[InputReport], openers: Mapping[str, Callable[[], Reader]]
) -> dict[Place, Place]:
    """Return the places whose input has a column of token ids, each with the same place and its id."""
    # In packed rows positions count inside a sequence, not a row, and do not lead back to a token.
    with_ids = {one.path for one in inputs if "token_id" in one.columns and one.layout != "packed"}
    wanted = {place for place in places_named if place.path in with_ids}
    found: dict[Place, Place] = {}
    for path in sorted({place.path for place in wanted}):
        places = sorted((p for p in wanted if p.path == path), key=lambda p: p.row)
        reader = openers[path]()
        try:
            for place, token_id in _look_up(reader, places):
                found[place] = replace(place, token_id=token_id)
        except InputError:
            continue
        finally:
            reader.close()
    return found


def _places(report: Report) -> Iterator[Place]:
    """Yield every place that the report names."""
    audit: AuditResult | None = getattr(report, "audit", None)
    if audit is not None:
        yield from audit.places()
    for nulls in (report.nulls, *(group.nulls for group in report.groups)):
        for note in nulls.values():
            if note.where is not None:
                yield note.where
    for finding in report.findings:
        if finding.where is not None and finding.code not in OF_ROWS:
            yield finding.where
    for token in report.worst:
        yield token.where
    yield from report.places.values()


def _look_up(reader: Reader, places: list[Place]) -> Iterator[tuple[Place, int]]:
    """Read ids, with the log-probs that they must line up with, up to the last place."""
    for chunk in reader.chunks({"token_id", "log_probs"}, chunk_tokens_for(("int64", "float64"))):
        if "token_id" not in chunk.columns:
            return
        for place in places:
            token_id = _id_at(chunk, place)
            if token_id is not None:
                yield place, token_id
        if chunk.first_row + chunk.n_rows > places[-1].row:
            return


def _id_at(chunk: Chunk, place: Place) -> int | None:
    """Return the id at a place, or None where it is null, in another chunk or of a whole row."""
    row = place.row - chunk.first_row
    if not 0 <= row < chunk.n_rows:
        return None
    token = row
    if chunk.offsets is not None:
        if place.position is None:
            return None
        token = int(chunk.offsets[row]) + place.position
    column = chunk.columns["token_id"]
    if column.present is not None and not column.present[token]:
        return None
    return int(np.asarray(column.values)[token])


def _replaced(report: Report, found: Mapping[Place, Place]) -> Report:
    """Return the report with its places replaced."""

    def swap(place: Place | None) -> Place | None:
        return None if place is None else found.get(place, place)

    def notes(nulls: Mapping[str, NullNote]) -> dict[str, NullNote]:
        return {name: replace(note, where=swap(note.where)) for name, note in nulls.items()}

    audit: AuditResult | None = getattr(report, "audit", None)
    changes: dict[str, Any] = {} if audit is None else {"audit": audit.with_places(found)}
    return replace(
        report,
        nulls=notes(report.nulls),
        groups=tuple(replace(group, nulls=notes(group.nulls)) for group in report.groups),
        findings=tuple(
            one if one.code in OF_ROWS else replace(one, where=swap(one.where)) for one in report.findings
        ),
        worst=tuple(replace(one, where=found.get(one.where, one.where)) for one in report.worst),
        places={name: found.get(place, place) for name, place in report.places.items()},
        **changes,
    )
