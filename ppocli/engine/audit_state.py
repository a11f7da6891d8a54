"""What an audit finds in a file as JSON and back, and the sums in stored order that go from file to file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.audit_report import Flip
from ppocli.core.partial_document import packed, unpacked
from ppocli.engine.audit_totals import AuditPart, AuditTotals, OrderedSums
from ppocli.engine.part_state import Reading, Writing

if TYPE_CHECKING:
    from ppocli.engine.audit_pass import Audit
    from ppocli.engine.scales import Scales

Json = Any

ARRAYS = ("hi", "lo", "nonfinite", "extremes", "bins", "inexact", "low", "high")
IN_ORDER = ("running", "blocked", "tree", "same")


def audit_to_json(part: AuditPart) -> dict[str, Json]:
    """Return a part; places without their path."""
    totals, place = part.totals, Writing().place
    flips = [
        [variant, place(one.where), one.direction, one.ratio, one.reference_ratio]
        for variant, one in totals.flips.items()
    ]
    return {
        **{name: packed(getattr(totals, name)) for name in ARRAYS},
        "flips": flips,
        "n_tokens": totals.n_tokens,
        "n_valid": totals.n_valid,
        "ordered": ordered_to_json(part.ordered),
    }


def audit_from_json(raw: Json, path: str, audit: Audit) -> AuditPart:
    """Return the part of an input.

    Raises
    ------
    ValueError
        Its arrays do not belong to this audit.
    """
    totals, place = AuditTotals(audit.totals.n_variants, audit.totals.n_checks), Reading(path).place
    for name in ARRAYS:
        _set(totals, name, raw[name])
    for variant, where, *one in raw["flips"]:
        totals.flips[variant] = Flip(place(where), *one)
    totals.n_tokens, totals.n_valid = raw["n_tokens"], raw["n_valid"]
    return AuditPart(totals, ordered_from_json(raw["ordered"], audit))


def ordered_to_json(ordered: OrderedSums) -> dict[str, Json]:
    """Return sums in stored order."""
    return {**{name: packed(getattr(ordered, name)) for name in IN_ORDER}, "n_runs": ordered.n_runs}


def ordered_from_json(raw: Json, audit: Audit) -> OrderedSums:
    """Return sums in stored order.

    Raises
    ------
    ValueError
        They are of another audit.
    """
    ordered = audit.ordered.copy()
    for name in IN_ORDER:
        _set(ordered, name, raw[name])
    ordered.n_runs = int(raw["n_runs"])
    return ordered


def scales_to_json(scales: Scales) -> dict[str, Json]:
    """Return the largest |x| of each column over all inputs, and what there is to say of sequences."""
    largest = [[float(x) for x in one] for one in scales.largest.values()]
    n_sequences = sum(one.largest.shape[1] for one in scales.files.values())
    return {"largest": largest, "n_sequences": n_sequences, "reason": scales.reason}


def put_columns(scales: Scales, raw: Json) -> None:
    """Take the largest |x| of all inputs, and whether there are scales for sequences, from elsewhere."""
    rows = enumerate(raw["largest"])
    scales.largest = {str(k): np.array(one, dtype=np.float32) for k, one in rows}
    scales.reason = raw["reason"]


def _set(target: Any, name: str, raw: Json) -> None:
    """Set an array to one of its own shape and type."""
    values, new = unpacked(raw), getattr(target, name)
    if values.shape != new.shape or values.dtype != new.dtype:
        raise ValueError(f"{name} of another shape or type")
    setattr(target, name, values)
