"""A document as rows: one for each number, with its group, its definition, and why it is null where it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppocli.core.audit_metrics import AUDIT_METRICS
from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.core.metrics import METRICS
from ppocli.core.trend import label_of

if TYPE_CHECKING:
    from ppocli.core.report import Number

_TWIN = "_finite"


@dataclass(frozen=True, slots=True)
class Row:
    """One number of a report.

    Attributes
    ----------
    by, group : str, optional
        What groups are told apart by ("file", "step", a column, "framework"), and this one's value. None: of
        the whole input.
    name : str
        As a gate addresses it: `clip_frac`, `policy_loss_by_agg.token-sum`, `drift.diff_mean`,
        `audit.float16.storage.clip_flips`, or a framework's own name; `change.policy_loss` is what a metric
        changed by against the group before.
    value : number or None
    unit, definition : str
    reason, nonfinite : str, optional
        Why there is no number, and what float64 arithmetic would have given.
    """

    by: str | None
    group: str | None
    name: str
    value: Number
    unit: str
    definition: str
    reason: str | None = None
    nonfinite: str | None = None


def rows_of(document: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of a document: those of each group, then those of the whole input.

    Documents without metrics, those of `inspect` and `convert`, have none.
    """
    if document["kind"] == "parity":
        yield from _of_frameworks(document)
        return
    catalogue = DRIFT_METRICS if document["kind"] == "drift" else METRICS
    for group in document.get("groups", ()):
        by = next(iter(group["key"]))
        yield from _of_part(group, catalogue, by, label_of(group["key"]))
    if "metrics" in document:
        yield from _of_part(document, catalogue, None, None)
    like = document.get("like")
    if like is not None:
        for name, value in like["metrics"].items():
            yield _row(
                None, None, name, value, "", like["definitions"][name], like.get("nulls", {}).get(name)
            )


def _of_part(
    part: Mapping[str, Any], catalogue: Mapping[str, Any], by: str | None, group: str | None
) -> Iterator[Row]:
    """Yield the rows of the whole input or of a group."""
    nulls = part["nulls"]
    for name, value in flat(part["metrics"]):
        yield _row(by, group, name, value, *_known(catalogue, name), nulls.get(name))
    drift = part.get("drift")
    if drift:
        for name, value in drift["metrics"].items():
            known = _known(DRIFT_METRICS, name)
            yield _row(by, group, f"drift.{name}", value, *known, drift["nulls"].get(name))
    for form, questions in (part.get("audit") or {}).items():
        for question, answer in questions.items():
            for name, one in AUDIT_METRICS.items():
                if name in answer:
                    full = f"audit.{form}.{question}.{name}"
                    yield _row(by, group, full, answer[name], one.unit, one.text, nulls.get(full))
    for name, value in part.get("change", {}).items():
        unit, text = _known(catalogue, name)
        yield _row(by, group, f"change.{name}", value, unit, f"against the group before: {text}", None)


def _of_frameworks(document: Mapping[str, Any]) -> Iterator[Row]:
    """Yield what every framework makes of the batch."""
    for one in document["frameworks"]:
        for kind, cell in one["metrics"].items():
            null = (
                {"reason": cell["reason"], "nonfinite": cell.get("nonfinite")} if "reason" in cell else None
            )
            yield _row(
                "framework",
                f"{one['name']} {one['version']}",
                kind,
                cell["value"],
                "",
                cell["definition"],
                null,
            )


def _row(
    by: str | None, group: str | None, name: str, value: Number, unit: str, text: str,
    null: Mapping[str, Any] | None,
) -> Row:  # fmt: skip
    null = null or {}
    return Row(by, group, name, value, unit, text, null.get("reason"), null.get("nonfinite"))


def flat(metrics: Mapping[str, Any]) -> Iterator[tuple[str, Number]]:
    """Yield every number under its dotted name."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", one) for key, one in value.items())
        else:
            yield name, value


def _known(catalogue: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return unit and definition of a metric."""
    base, _, key = name.partition(".")
    is_twin = base.endswith(_TWIN)
    one = catalogue.get(base.removesuffix(_TWIN))
    if one is None:
        return "", ""
    text = f"{one.text}: {key}" if key else one.text
    return one.unit, f"the same over the tokens whose columns are finite: {text}" if is_twin else text
