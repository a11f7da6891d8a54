"""A report as an Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppocli.core.rows import rows_of
from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    import pyarrow as pa

    from ppocli.core.shown import Shown

_TEXT = ("by", "group", "name", "unit", "definition", "reason", "nonfinite")


def to_arrow(report: Shown) -> pa.Table:
    """Return the numbers of a report as a table, one row for each, those of groups before those of all.

    Parameters
    ----------
    report : EvalReport, CheckReport, AuditReport, DriftReport or ParityReport

    Returns
    -------
    pyarrow.Table
        `by` and `group` (text, null for the whole input): what groups are told apart by ("file", "step", a
        column, "framework"), and which one this is. `name`: as a gate addresses it, nested names dotted.
        `value` (float64, null where there is no number; counts are exact to 2^53). `unit`, `definition`.
        `reason` and `nonfinite` ("nan", "inf", "-inf"): why a value is null, and what float64 arithmetic
        would have given.

    Raises
    ------
    UsageProblem
        The report has no metrics: those of `inspect` and `convert`.
    """
    import pyarrow as pa

    document = report.to_dict()
    rows = list(rows_of(document))
    if not rows:
        raise UsageProblem(f"a report of {document['kind']} has no metrics to make a table of")
    columns = {name: pa.array([getattr(one, name) for one in rows], pa.string()) for name in _TEXT}
    values = pa.array([None if one.value is None else float(one.value) for one in rows], pa.float64())
    order = ("by", "group", "name", "value", "unit", "definition", "reason", "nonfinite")
    return pa.table({name: values if name == "value" else columns[name] for name in order})
