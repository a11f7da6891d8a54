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
        return _in_drift(part, name.removeprefix("drift."), document)
    metrics, nulls = part["metrics"], part["nulls"]
    table, dot, key = name.partition(".")
    holder = (metrics.get(table) or {}) if dot else metrics
    found = holder.get(key if dot else name)
    if found is not None:
        return Reading(found, where=place_from(part.get("places", {}).get(name)))
    if name in nulls:
        return _null(nulls[name])
    twin = name.replace("_finite", "", 1)
    if "_finite" in name and twin not in nulls:
        return read(document, part, twin)
    framework = document.get("like")
    if framework is not None and name in framework.get("metrics", {}):
        number = framework["metrics"][name]
        return Reading(number, "" if number is not None else "null")
    return Reading(None, _why_missing(document, table), is_missing=True)


def _null(note: Mapping[str, Any]) -> Reading:
    """Return a metric that is null, with its reason."""
    word = {"nan": ", not a number", "inf": ", infinite", "-inf": ", minus infinity"}
    kind = f"{note['nonfinite']}{word[note['nonfinite']]}" if "nonfinite" in note else "null"
    return Reading(None, f"{kind}: {note['reason']}", where=place_from(note.get("where")))


def _in_drift(part: Mapping[str, Any], name: str, document: Mapping[str, Any]) -> Reading:
    """Find a metric of the trainer against the sampler; one over some of the files only is missing."""
    table = part.get("drift")
    if table is None:
        has = all("rollout_log_probs" in one["columns"] for one in document["inputs"])
        why = "the report has no drift metrics, though there is " if has else "no column for "
        return Reading(None, f"{why}rollout_log_probs", is_missing=True)
    metrics, nulls = table["metrics"], table.get("nulls", {})
    n_files, n_all = metrics.get("n_files"), part["metrics"].get("n_files")
    if n_files is not None and n_all is not None and n_files != n_all:
        why = f"rollout_log_probs in {n_files:,} of {n_all:,} files only"
        return Reading(None, why, is_missing=True)
    if metrics.get(name) is not None:
        return Reading(metrics[name])
    if name in nulls:
        return _null(nulls[name])
    twin = name.removesuffix("_finite")
    if twin != name and twin in metrics and twin not in nulls:
        return Reading(metrics[twin])
    return Reading(None, "not reported for this input", is_missing=True)


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
