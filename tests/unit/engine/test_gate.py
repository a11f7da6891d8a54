"""Gates from Python: sources, baselines, saved reports."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.errors import ExitCode, InputError, UsageProblem
from ppocli.render.json import to_json

# Ratios 1.25 and 1: one of two tokens outside [0.8, 1.2].
ARRAYS: dict[str, Any] = {
    "log_probs": np.array([math.log(1.25), -1.0]),
    "old_log_probs": np.array([0.0, -1.0]),
    "advantages": np.array([1.0, 2.0]),
}


def test_arrays_are_judged() -> None:
    report = ppocli.check(**ARRAYS, max={"clip_frac": 0.5}, min={"clip_frac": 0.5})
    assert (report.exit_code, report.failed) == (0, False)
    report = ppocli.check(**ARRAYS, max={"clip_frac": 0.4}, expect={"unclipped_loss": (-1.625, 1e-12)})
    assert [one.status for one in report.checks] == ["fail", "pass", "pass"]
    assert report.exit_code == ExitCode.GATE_FAILED
    # Settings of the loss go through: [0.7, 1.3] holds both ratios.
    assert ppocli.check(**ARRAYS, clip_eps=0.3, max={"clip_frac": 0.0}).exit_code == 0


def test_reports_files_and_saved_reports_are_judged_alike(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **ARRAYS)
    report = ppocli.evaluate(tmp_path / "a.npz")
    (tmp_path / "a.json").write_text(to_json(report.to_dict()))
    for source in (report, tmp_path / "a.npz", str(tmp_path / "a.json"), [str(tmp_path / "a.npz")]):
        judged = ppocli.check(source, max={"clip_frac": 0.4})
        assert [(one.status, one.value) for one in judged.checks] == [("fail", 0.5), ("pass", 0)]


def test_a_saved_report_says_what_was_not_judged_and_takes_no_settings(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(to_json(ppocli.evaluate(**ARRAYS).to_dict()))
    report = ppocli.check(path, max={"clip_frac": 1.0})
    assert "the data were not read" in report.gate["notes"][0]
    assert report.gate["report"] == str(path)
    with pytest.raises(UsageProblem, match="clip_eps would need the data"):
        ppocli.check(path, clip_eps=0.1)


def test_a_baseline(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    path.write_text(to_json(ppocli.evaluate(**ARRAYS).to_dict()))
    moved = {**ARRAYS, "log_probs": np.array([math.log(1.25), -0.5])}  # both outside
    assert ppocli.check(**ARRAYS, baseline=path, tolerance={"clip_frac": 0}).exit_code == 0
    report = ppocli.check(**moved, baseline=path, tolerance={"clip_frac": "50%", "unclipped_loss": 100.0})
    assert [one.status for one in report.checks] == ["fail", "pass", "pass"]
    assert report.gate["baseline"] == str(path)
    assert ppocli.check(**moved, baseline=path, tolerance={"clip_frac": "100%"}).exit_code == 0
    with pytest.raises(InputError, match=r"clip_low is 0\.1"):
        ppocli.check(**ARRAYS, clip_low=0.1, baseline=path, tolerance={"clip_frac": "5%"})
    for half in ({"baseline": path}, {"tolerance": {"clip_frac": "5%"}}):
        with pytest.raises(UsageProblem, match="need each other"):
            ppocli.check(**ARRAYS, **half)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max": {"clip_fraq": 1.0}},
        {"max": {"clip_frac": math.nan}},
        {"expect": {"clip_frac": (1.0, math.inf)}},
        {"fail_on": "often"},
        {"profiles": ["x"]},
        {"clip_fraq": 3},
    ],
)
def test_mistakes_are_usage_problems(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem):
        ppocli.check(**ARRAYS, **wrong)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("role", ["log_probs", "old_log_probs", "advantages"])
@pytest.mark.parametrize("bound", [{"max": {"policy_loss": 1e300}}, {"min": {"policy_loss": -1e300}}])
def test_a_value_that_is_not_finite_fails_every_gate_on_it(bound: Any, role: str, value: float) -> None:
    spoilt = {**ARRAYS, role: np.array([value, -1.0])}
    report = ppocli.check(**spoilt, **bound, fail_on="never")
    assert (report.checks[0].status, report.exit_code) == ("fail", 1)


def test_nothing_valid(tmp_path: Path) -> None:
    masked = {**ARRAYS, "mask": np.array([0, 0])}
    assert ppocli.check(**masked, max={"clip_frac": 1.0}).exit_code == ExitCode.EMPTY
    assert ppocli.check(**masked, max={"clip_frac": 1.0}, allow_empty=True).exit_code == 0
    nothing = {role: values[:0] for role, values in ARRAYS.items()}
    assert ppocli.check(**nothing).exit_code == ExitCode.EMPTY


def parquet(path: Path, **changes: Any) -> str:
    columns = {"log_probs": [-1.0, -2.0], "old_log_probs": [-1.0, -2.0], "advantages": [1.0, 2.0], **changes}
    pq.write_table(pa.table(columns), path)
    return str(path)


EVERY = {"max": {"policy_loss": 1e300}, "min": {"policy_loss": -1e300}}


def test_files_with_nulls_nothing_or_only_masked_tokens(tmp_path: Path) -> None:
    good = parquet(tmp_path / "good.parquet")
    null = parquet(tmp_path / "null.parquet", log_probs=pa.array([None, -2.0]))
    masked = parquet(tmp_path / "masked.parquet", mask=[False, False])
    none = pa.array([], pa.float64())
    empty = parquet(tmp_path / "empty.parquet", log_probs=none, old_log_probs=none, advantages=none)
    codes = {
        name: ppocli.check(paths, **EVERY, fail_on="never").exit_code
        for name, paths in {
            "good": good,
            "null": null,
            "masked": masked,
            "empty": empty,
            "both": [masked, empty],
            "null beside": [good, null],
            "masked beside": [good, masked],
            "empty beside": [good, empty],
        }.items()
    }
    assert codes == {
        "good": 0,
        "null": 1,
        "masked": 5,
        "empty": 5,
        "both": 5,
        "null beside": 1,
        "masked beside": 0,
        "empty beside": 0,
    }
    # Where each file is judged, one without a valid token has nothing that could pass.
    assert ppocli.check([good, masked], **EVERY, by="file").exit_code == 1
    assert ppocli.check([good, masked], **EVERY, by="file", allow_empty=True).exit_code == 0


def test_a_damaged_shard_is_an_input_error_whatever_the_limits(tmp_path: Path) -> None:
    good, bad = parquet(tmp_path / "good.parquet"), tmp_path / "bad.parquet"
    bad.write_bytes(Path(good).read_bytes()[:-9])
    for gate in (EVERY, {"max": {"policy_loss": -1e300}}, {"exit_zero": True}):
        with pytest.raises(InputError) as caught:
            ppocli.check([good, str(bad)], **gate)
        assert caught.value.exit_code == ExitCode.INPUT


def test_limits_by_step(tmp_path: Path) -> None:
    log_probs = [-1.0, -2.0 + math.log(1.5)]
    path = parquet(tmp_path / "a.parquet", log_probs=log_probs, round=["a", "b"])
    report = ppocli.check(path, by="step", columns={"step": "round"}, max={"clip_frac": 0.5})
    assert [(one.key, one.status) for one in report.checks[:2]] == [
        ({"step": "a"}, "pass"),
        ({"step": "b"}, "fail"),
    ]
    wider = ppocli.check(path, by="step", columns={"step": "round"}, max={"clip_frac": 0.5}, clip_eps=0.6)
    assert wider.exit_code == 0
    with pytest.raises(UsageProblem, match="not for arrays"):
        ppocli.check(**ARRAYS, by="step", **EVERY)
    masked = parquet(tmp_path / "b.parquet", mask=[0, 0])
    assert ppocli.check(masked, by="step", **EVERY).exit_code == ExitCode.EMPTY
