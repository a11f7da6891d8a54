"""`evaluate` by step or another column, from files to the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.errors import ExitCode, InputError, UsageProblem

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS: dict[str, Any] = {
    # Interleaved: three steps, one token of each after the other.
    "log_probs": [-1.0, -1.0, -1.0, -1.5, -2.0, -1.25],
    "old_log_probs": [-1.0, -1.5, -1.25, -1.0, -1.0, -1.0],
    "advantages": [1.0, -2.0, 0.5, 1.0, 1.0, 0.5],
    "step": [30, 10, 20, 30, 10, 20],
    "run": ["b", "a", "a", "b", "a", None],
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    pq.write_table(pa.table(COLUMNS), tmp_path / "a.parquet")
    return str(tmp_path / "a.parquet")


def values(report: ppocli.EvalReport, metric: str) -> dict[Any, Any]:
    return {next(iter(one.key.values())): one.metrics[metric] for one in report.groups}


def test_each_step_is_a_group_in_order_with_what_changed(path: str) -> None:
    report = ppocli.evaluate(path, by="step")
    assert values(report, "n_tokens") == {10: 2, 20: 2, 30: 2}
    # Means of old - new: (-0.5 + 1) / 2, (-0.25 + 0.25) / 2, (0 + 0.5) / 2.
    assert values(report, "approx_kl_k1") == {10: 0.25, 20: 0.0, 30: 0.25}
    assert [one.change.get("approx_kl_k1") for one in report.groups] == [None, -0.25, 0.25]
    assert report.groups[0].change == {}
    assert report.metrics["n_tokens"] == 6
    assert report.metrics["approx_kl_k1"] == 1 / 6


def test_the_report_as_a_whole_is_that_without_groups(path: str) -> None:
    plain = ppocli.evaluate(path, by="total")
    report = ppocli.evaluate(path, by="step")
    assert (report.metrics, report.nulls, report.findings) == (plain.metrics, plain.nulls, plain.findings)
    assert report.histograms == plain.histograms


def test_any_column_of_text_or_whole_numbers_tells_groups_apart(path: str) -> None:
    report = ppocli.evaluate(path, by="run")
    assert [dict(one.key) for one in report.groups] == [{"run": "a"}, {"run": "b"}, {"run": None}]
    assert values(report, "n_tokens") == {"a": 3, "b": 2, None: 1}


def test_a_column_that_is_not_there_is_named_before_the_data_are_read(path: str) -> None:
    with pytest.raises(InputError, match="no column 'runs', which --by runs needs") as caught:
        ppocli.evaluate(path, by="runs")
    assert caught.value.hint == ("did you mean 'run'?  --by takes file, total, step or the name of a column")


def test_no_step_column_says_what_is_taken_instead(tmp_path: Path) -> None:
    pq.write_table(pa.table(COLUMNS).drop_columns(["step"]), tmp_path / "b.parquet")
    with pytest.raises(InputError, match="no column for step, which --by step needs"):
        ppocli.evaluate(tmp_path / "b.parquet", by="step")


def test_a_column_of_real_numbers_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({**COLUMNS, "loss": [0.5] * 6}), tmp_path / "c.parquet")
    with pytest.raises(InputError, match="loss"):
        ppocli.evaluate(tmp_path / "c.parquet", by="loss")


def test_files_that_were_left_out_are_in_no_group(path: str, tmp_path: Path) -> None:
    (tmp_path / "z.parquet").write_bytes(b"PAR1 cut")
    report = ppocli.evaluate([path, tmp_path / "z.parquet"], by="step", skip_bad=True)
    assert [one.path for one in report.skipped] == [str(tmp_path / "z.parquet")]
    assert values(report, "n_tokens") == {10: 2, 20: 2, 30: 2}


def test_nothing_valid_has_no_groups(tmp_path: Path) -> None:
    masked = pa.table({**COLUMNS, "mask": [False] * 6})
    pq.write_table(masked, tmp_path / "d.parquet")
    report = ppocli.evaluate(tmp_path / "d.parquet", by="step")
    assert (report.exit_code, report.groups) == (ExitCode.EMPTY, ())


@pytest.mark.parametrize("by", ["", None, 3])
def test_what_is_no_name_is_refused(path: str, by: Any) -> None:
    with pytest.raises(UsageProblem, match="--by takes file, total, step or the name of a column"):
        ppocli.evaluate(path, by=by)


def test_arrays_have_no_groups() -> None:
    arrays = {name: COLUMNS[name] for name in ("log_probs", "old_log_probs", "advantages", "step")}
    with pytest.raises(UsageProblem, match="those of files, not of arrays"):
        ppocli.evaluate(**arrays, by="step")


def test_a_gate_by_step_names_the_first_that_breaks_a_limit(path: str) -> None:
    made = ppocli.check(path, by="step", max={"approx_kl_k1": 0.125})
    assert made.exit_code == ExitCode.GATE_FAILED
    assert made.gate["first_failed"] == [
        {"check": "approx_kl_k1 <= 0.125", "key": {"step": 10}, "value": 0.25, "n_failed": 2, "n_groups": 3}
    ]
