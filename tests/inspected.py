"""What `inspect` would have found, made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import reports

from ppocli.core.inspect_report import (
    ColumnScan,
    FileScan,
    InspectedFile,
    InspectReport,
    ReadPlan,
    StoredColumn,
)
from ppocli.core.report import Skipped


def parquet_file(**changes: Any) -> InspectedFile:
    """A Parquet file that is ready."""
    columns = (
        StoredColumn("log_probs", "list<float32>", "zstd", 400, 99, 0, -38.125, -0.0, {},
                     "log_probs", "name"),
        StoredColumn("old_logp", "list<float32>", "zstd", 410, 99, 0, None, -0.5, {"min": "-inf"},
                     "old_log_probs", "alias"),
        StoredColumn("a", "list<float32>", "zstd", 420, 99, None, None, None, {}, "advantages", "option"),
        StoredColumn("keep", "list<bool>", "zstd", 30, 99, 0, False, True, {}, "mask", "alias"),
        StoredColumn("seq", "int64", "snappy", 40, 12, 12, 0, 4095),
        StoredColumn("text", "string", "zstd", 50, 12, 1),
    )  # fmt: skip
    plan = ReadPlan(("log_probs", "old_logp", "a", "keep"), 1260, 3, (2, 8), 1 << 20, 1000, 312_000_000)
    made = InspectedFile(
        path="rollouts.parquet",
        format="parquet",
        bytes=48_200_000,
        rows=12,
        parts=8,
        layout="list",
        columns=columns,
        version="2.6",
        writer="somebody",
        footer_bytes=1234,
        advice="ppocli eval rollouts.parquet --col advantages=a",
        plan=plan,
        notes=("old_log_probs: column 'old_logp'",),
    )
    return replace(made, **changes)


def npz_file(**changes: Any) -> InspectedFile:
    """An NPZ file that `eval` would refuse."""
    columns = (
        StoredColumn("log_probs", "float32", "stored", 128, 6, role="log_probs", found_by="name",
                     shape=(2, 3), order="F", mappable=True),
        StoredColumn("meta", "object", "deflated", 99, 1, shape=(), order="C", mappable=False),
        StoredColumn("bad", "unreadable", "stored", 12, None, mappable=False),
    )  # fmt: skip
    made = InspectedFile(
        path="dump.npz",
        format="npz",
        bytes=999,
        rows=2,
        parts=3,
        layout="padded",
        columns=columns,
        missing=("old_log_probs", "advantages"),
        problem="no column for roles 'old_log_probs', 'advantages'",
        advice="name the columns:  --col old_log_probs=NAME --col advantages=NAME\nor others",
        plan=ReadPlan(("log_probs",), 128, 1, (2, 2), 1 << 20, 24, 170_000_000, 2_000_000),
    )
    return replace(made, **changes)


def a_scan() -> FileScan:
    """A scan of `parquet_file`."""
    plain = ColumnScan(0, 0, 0, 0, 0, 0.0, -38.125, -0.25, False, (), 0)
    odd = ColumnScan(1, 2, 3, 4, 5, 0.0625, -9.5, 0.0, False, ("bfloat16", "float16"), 7)
    empty = ColumnScan(9, 0, 0, 0, 0, None, None, None, False, (), 0)
    same = ColumnScan(0, 0, 0, 0, 0, 0.0, 2, 2, True, ("bfloat16",), 0)
    columns = {"log_probs": plain, "old_log_probs": odd, "advantages": empty, "group_id": same}
    return FileScan(90, 9, 17, 11, 1, columns)


def report(*files: InspectedFile, **changes: Any) -> InspectReport:
    """A report about these files, or about `parquet_file`."""
    made = InspectReport({"scan": False}, files or (parquet_file(),), run={"seconds": 0.5})
    return replace(made, **changes)


def odd_names() -> InspectReport:
    """Names with markup, an escape sequence and a newline."""
    column = StoredColumn(reports.ODD_NAME, "string", None, 0, 0)
    return report(
        parquet_file(
            path=reports.ODD_NAME,
            columns=(column,),
            notes=(f"column '{reports.ODD_NAME}' is odd",),
            problem=f"no '{reports.ODD_NAME}'",
            plan=None,
            layout=None,
        ),
        skipped=(Skipped(reports.ODD_NAME, "unreadable: \x1b[31m"),),
    )


BY_NAME = {
    "one": report,
    "scanned": lambda: report(parquet_file(scan=a_scan())),
    "npz": lambda: report(npz_file()),
    "several": lambda: report(
        parquet_file(), npz_file(schema=2), parquet_file(path="more.parquet", scan=a_scan())
    ),
    "odd": odd_names,
    "none": lambda: report(skipped=(Skipped("a.parquet", "unreadable: cut"),), files=()),
}
"""Reports by name."""
