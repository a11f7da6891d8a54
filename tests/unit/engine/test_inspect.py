from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.core.chunk import ReadOptions
from ppocli.core.inspect_report import InspectedFile, InspectReport, ReadPlan, StoredColumn
from ppocli.core.progress import NoProgress
from ppocli.core.report import Skipped
from ppocli.engine.inspect import command_line, inspect_files, memory_of, numbered, roles_read
from ppocli.errors import EmptyInput, InputError

F32 = pa.float32()


def write(path: Path, values: Any = (-1.0, -2.0), **more: Any) -> str:
    column = values if isinstance(values, pa.Array) else pa.array(values, F32)
    columns = {"log_probs": column, "old_log_probs": column, "advantages": column, **more}
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_a_ready_file_has_the_line_to_type_and_a_plan(tmp_path: Path) -> None:
    path = write(tmp_path / "two words.parquet")
    report = inspect_files([path])
    (one,) = report.files
    assert one.ready
    assert shlex.split(one.advice) == ["ppocli", "eval", path]
    assert one.plan is not None
    assert one.plan.memory == memory_of(one, one.plan) > 200_000_000
    assert one.scan is None
    assert report.settings == {"scan": False}
    assert (report.skipped, report.exit_code, report.n_schemas) == ((), 0, 1)


def test_the_line_to_type_keeps_the_options() -> None:
    options = ReadOptions({"log_probs": "my col"}, "time", True, frozenset({"values", "log_probs"}))
    words = shlex.split(command_line("f.npz", options))
    assert words == [
        *("ppocli", "eval", "f.npz", "--col", "log_probs=my col", "--layout", "time", "--sum-dims"),
        *("--bits", "log_probs", "--bits", "values"),
    ]


def test_settings_echo_the_options(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", x=pa.array([1.0, 2.0]))
    report = inspect_files([path], ReadOptions({"returns": "x"}, sum_dims=True), scan=True)
    assert report.settings == {"columns": {"returns": "x"}, "sum_dims": True, "scan": True}


def test_eval_reads_the_roles_of_metrics_that_have_all_their_columns() -> None:
    main = {"log_probs", "old_log_probs", "advantages"}
    assert roles_read(main | {"mask", "step", "values", "token_id"}) == main | {"mask", "step"}
    assert roles_read(main | {"values", "returns"}) == main | {"values", "returns"}
    assert roles_read({"ref_log_probs", "entropy"}) == {"entropy"}
    assert roles_read(()) == set()


def plan(**changes: Any) -> ReadPlan:
    usual = {"columns": (), "bytes": 0, "n_batches": 100, "batch_rows": (1, 1), "batch_tokens": 1}
    return ReadPlan(**{**usual, "batch_bytes": 10_000_000, **changes})


@pytest.mark.parametrize(
    ("format_", "layout", "batches", "footer", "expected"),
    [
        ("npz", "padded", 100, None, 165_000_000 + 6 * 10_000_000),
        ("npz", "flat", 1, None, 165_000_000 + 2 * 10_000_000),
        ("parquet", "flat", 100, 1_000, 225_000_000 + 7 * 10_000_000 + 10_000),
        ("parquet", "list", 100, 12_000_000, 225_000_000 + 10 * 10_000_000 + 120_000_000),
        ("parquet", "list", 0, 0, 225_000_000 + 5 * 10_000_000),
    ],
)
def test_memory_grows_with_batches_and_footer(
    format_: str, layout: str, batches: int, footer: int | None, expected: int
) -> None:
    one = InspectedFile("f", format_, 1, 1, 1, layout, (), footer_bytes=footer)
    assert memory_of(one, plan(n_batches=batches)) == expected


def test_files_with_the_same_columns_have_one_schema(tmp_path: Path) -> None:
    numbers = pa.array([1.0, 2.0])
    paths = [
        write(tmp_path / "a.parquet"),
        write(tmp_path / "b.parquet", (-1.0, -2.0, -3.0)),
        write(tmp_path / "c.parquet", values=pa.array([-1.0, -2.0])),
        write(tmp_path / "d.parquet", x=numbers),
    ]
    turned = pq.read_table(paths[0]).select(["advantages", "old_log_probs", "log_probs"])
    pq.write_table(turned, tmp_path / "e.parquet")
    report = inspect_files([*paths, str(tmp_path / "e.parquet")])
    assert [one.schema for one in report.files] == [1, 1, 2, 3, 1]
    assert report.n_schemas == 3


def test_arrays_of_other_lengths_have_the_same_schema_and_of_other_axes_another() -> None:
    def one(shape: tuple[int, ...], **changes: Any) -> InspectedFile:
        column = StoredColumn("log_probs", "float32", "stored", 8, 2, role="log_probs", shape=shape)
        return InspectedFile("f", "npz", 1, 1, 1, "flat", (column,), **changes)

    files = [one((2,)), one((3,)), one((2, 3)), one((4, 3)), one((2,), problem="no")]
    assert [found.schema for found in numbered(files)] == [1, 1, 2, 2, 3]


def test_a_damaged_file_is_an_error_and_left_out_only_on_request(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "a.parquet"), tmp_path / "b.parquet"
    bad.write_bytes(Path(good).read_bytes()[:-9])
    with pytest.raises(InputError) as caught:
        inspect_files([good, str(bad)])
    assert caught.value.where == str(bad)
    report = inspect_files([good, str(bad)], skip_bad=True)
    assert [one.path for one in report.files] == [good]
    (skipped,) = report.skipped
    assert skipped == Skipped(str(bad), f"unreadable: {caught.value.message}")


def test_a_folder_without_files_is_empty(tmp_path: Path) -> None:
    with pytest.raises(EmptyInput):
        inspect_files([str(tmp_path)])


def test_a_file_that_is_not_ready_keeps_what_eval_says(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros(3))
    (one,) = inspect_files([str(path)], scan=True).files
    assert not one.ready
    assert one.advice.startswith("name the columns:")
    assert one.scan is None


def test_a_scan_reads_what_is_clear_without_the_missing_roles(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, old_log_probs=np.array([-1.0, -3.0]), advantages=np.zeros(2))
    (one,) = inspect_files([str(path)], scan=True).files
    assert not one.ready
    assert one.scan is not None
    assert set(one.scan.columns) == {"old_log_probs", "advantages"}


def test_a_scan_reports_progress(tmp_path: Path) -> None:
    class Counter(NoProgress):
        total = read = 0.0
        tokens = 0

        def start(self, total_bytes: int) -> None:
            self.total = total_bytes

        def advance(self, n_bytes: float, n_tokens: int, n_rows: int = 0) -> None:
            self.read += n_bytes
            self.tokens += n_tokens

    counter = Counter()
    paths = [write(tmp_path / "a.parquet"), write(tmp_path / "b.parquet", (-1.0,))]
    inspect_files(paths, scan=True, progress=counter)
    assert counter.tokens == 3
    assert counter.total == sum(Path(path).stat().st_size for path in paths)
    assert counter.read == pytest.approx(counter.total)


def test_rows_that_do_not_fit_together_are_found_by_the_scan(tmp_path: Path) -> None:
    rows, other = pa.array([[-1.0, -2.0]]), pa.array([[-1.0]])
    path = write(tmp_path / "a.parquet", values=rows, old_log_probs=other)
    assert inspect_files([path]).files[0].ready
    with pytest.raises(InputError, match="has 2 values and 'old_log_probs' has 1 in row 0"):
        inspect_files([path], scan=True)


def test_the_report_has_the_keys_of_the_document(tmp_path: Path) -> None:
    document = inspect_files([write(tmp_path / "a.parquet")]).to_dict()
    assert document["kind"] == "inspect"
    assert document["files"][0]["ready"] is True
    assert "scan" not in document["files"][0]
    assert document["files"][0]["columns"][0]["n_null"] == 0
    assert "shape" not in document["files"][0]["columns"][0]
    assert InspectReport({}, ()).to_dict()["n_schemas"] == 0
