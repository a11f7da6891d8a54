"""Where a metric stands in a document, and why it is not a number where it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppocli.core.check_report import place_from
from ppocli.core.metrics import METRICS

if TYPE_CHECKING:
    from ppocli.core.report import Number, Place


@dataclass(frozen=True, slots=True)
class Reading:
    """A metric as a document has it.

    Attributes
    ----------
    number : int, float or None
    reason : str
        Why there is no number.
    is_missing : bool
        There is none because the input lacks what it is computed from, not because of a value.
    where : Place, optional
        Of the extreme, or of the first value that spoilt it.
    """

    number: Number
    reason: str = ""
    is_missing: bool = False
    where: Place | None = None


def read(document: Mapping[str, Any], part: Mapping[str, Any], name: str) -> Reading:
    """Find a metric.

    Parameters
    ----------
    document : mapping
        The whole document.
    part : mapping
        The document itself or one of its groups: has `metrics` and `nulls`.
    name : str
        A metric, NAME_finite, policy_loss_by_agg.AGGREGATION, drift.NAME, or a framework's own name.
        NAME_finite is NAME itself where every value is finite, because then it is not reported.
    """
    if name.startswith("drift."):
        return _in_table(part.get("drift"), name.removeprefix("drift."), "rollout_log_probs", document)
    metrics, nulls = part["metrics"], part["nulls"]
    table, dot, key = name.partition(".")
    holder = (metrics.get(table) or {}) if dot else metrics
    found = holder.get(key if dot else name)
    if found is not None:
        return Reading(found, where=place_from(part.get("places", {}).get(name)))
    if name in nulls:
        note = nulls[name]
        word = {"nan": ", not a number", "inf": ", infinite", "-inf": ", minus infinity"}
        kind = f"{note['nonfinite']}{word[note['nonfinite']]}" if "nonfinite" in note else "null"
        return Reading(None, f"{kind}: {note['reason']}", where=place_from(note.get("where")))
    twin = name.replace("_finite", "", 1)
    if "_finite" in name and twin not in nulls:
        return read(document, part, twin)
    framework = document.get("like")
    if framework is not None and name in framework.get("metrics", {}):
        number = framework["metrics"][name]
        return Reading(number, "" if number is not None else "null")
    return Reading(None, _why_missing(document, table), is_missing=True)


def _in_table(table: Mapping[str, Any] | None, name: str, role: str, document: Mapping[str, Any]) -> Reading:
    """Find a metric in a table that exists only with a certain column."""
    if table is None:
        has = all(role in one["columns"] for one in document["inputs"])
        why = f"the report has no drift metrics, though there is {role}" if has else f"no column for {role}"
        return Reading(None, why, is_missing=True)
    number = table["metrics"].get(name)
    if number is not None:
        return Reading(number)
    note = table.get("nulls", {}).get(name)
    if note is None:
        return Reading(None, "not reported for this input", is_missing=True)
    return Reading(None, f"null: {note['reason']}", where=place_from(note.get("where")))


def _why_missing(document: Mapping[str, Any], name: str) -> str:
    """Say why a metric is not in the document."""
    metric = METRICS.get(name.removesuffix("_finite"))
    if metric is None:
        return "not in the report"
    columns = [set(one["columns"]) for one in document["inputs"]]
    missing = [role for role in metric.needs if not all(role in one for one in columns)]
    if missing:
        return f"no column for {' and '.join(missing)}"
    if metric.sequences:
        return "the input has no sequences"
    return "not reported for this input"
