"""From the document of `eval` or `check` back to a report, for what shows reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ppocli.core.check_report import place_from
from ppocli.core.report import (
    Bin,
    ColumnReport,
    EvalReport,
    Finding,
    Group,
    InputReport,
    LikeReport,
    NullNote,
    Place,
    Skipped,
    WorstToken,
)
from ppocli.core.spec import LossSpec
from ppocli.errors import InputError

Part = TypeVar("Part")


def report_from(document: Mapping[str, Any]) -> EvalReport:
    """Return the report that a document was made from, without its audit.

    Raises
    ------
    InputError
        A part of the document is not what `ppocli eval` writes.
    """
    return EvalReport(
        settings={**LossSpec().to_dict(), **document["settings"]},
        inputs=_part(document, "inputs", lambda one: tuple(map(_input, one)), ()),
        skipped=_part(
            document, "skipped", lambda one: tuple(Skipped(str(s["path"]), str(s["reason"])) for s in one), ()
        ),
        metrics=document["metrics"],
        nulls=_part(document, "nulls", _notes, {}),
        findings=_part(document, "findings", lambda one: tuple(map(_finding, one)), ()),
        groups=_part(document, "groups", lambda one: tuple(map(_group, one)), ()),
        worst=_part(document, "worst", lambda one: tuple(map(_token, one)), ()),
        places=_part(document, "places", _places, {}),
        like=_part(document, "like", _like, None),
        exit_code=int(document.get("exit_code", 0)),
        run=document.get("run", {}),
        drift=_part(document, "drift", _drift, {}),
        histograms=_part(document, "histograms", _histograms, {}),
    )


def _part(document: Mapping[str, Any], name: str, made: Callable[[Any], Part], absent: Part) -> Part:
    """Return one part of a report."""
    if not document.get(name):
        return absent
    try:
        return made(document[name])
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise InputError(
            f"damaged report: '{name}' is not what this version of ppocli writes",
            hint="make the report again from the data",
        ) from problem


def _place(where: Mapping[str, Any]) -> Place:
    found = place_from(where)
    if found is None:
        raise ValueError("no place")
    return found


def _places(entries: Mapping[str, Any]) -> dict[str, Place]:
    return {name: _place(one) for name, one in entries.items()}


def _notes(entries: Mapping[str, Any]) -> dict[str, NullNote]:
    return {
        name: NullNote(one["reason"], one.get("nonfinite"), place_from(one.get("where")))
        for name, one in entries.items()
    }


def _input(one: Mapping[str, Any]) -> InputReport:
    columns = {role: ColumnReport(**column) for role, column in one["columns"].items()}
    parts = {
        name: one[name]
        for name in ("path", "format", "layout", "rows", "bytes", "tokens", "masked")
        if name in one
    }
    return InputReport(**parts, columns=columns, notes=tuple(one.get("notes", ())))


def _finding(one: Mapping[str, Any]) -> Finding:
    where = place_from(one.get("where"))
    return Finding(one["code"], one["severity"], one["count"], one["message"], one["advice"], where)


def _group(one: Mapping[str, Any]) -> Group:
    drift = _drift(one["drift"]) if one.get("drift") else {}
    return Group(one["key"], one["metrics"], _notes(one["nulls"]), drift, one.get("change", {}))


def _token(one: Mapping[str, Any]) -> WorstToken:
    return WorstToken(**{**one, "where": _place(one["where"])})


def _drift(one: Mapping[str, Any]) -> dict[str, Any]:
    return {**one, "nulls": _notes(one["nulls"])}


def _like(one: Mapping[str, Any]) -> LikeReport:
    return LikeReport(**{**one, "nulls": _notes(one["nulls"]), "notes": tuple(one.get("notes", ()))})


def _histograms(entries: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, tuple[Bin, ...]]:
    return {name: tuple(Bin(**one) for one in bins) for name, bins in entries.items()}
