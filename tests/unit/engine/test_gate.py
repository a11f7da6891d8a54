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
    with pytest.raises(UsageProblem, match="not of arrays"):
        ppocli.check(**ARRAYS, by="step", **EVERY)
    masked = parquet(tmp_path / "b.parquet", mask=[0, 0], step=[0, 1])
    assert ppocli.check(masked, by="step", **EVERY).exit_code == ExitCode.EMPTY


def drifted(d: list[float], **changes: Any) -> dict[str, Any]:
    """Flat columns whose trainer is d above the sampler."""
    rollout = np.full(len(d), -2.0)
    old = rollout + np.array(d)
    columns = {"log_probs": old, "old_log_probs": old, "rollout_log_probs": rollout}
    return {**columns, "advantages": np.ones(len(d)), **changes}


def judged(source: Any, by: str, **limits: float) -> list[tuple[Any, str, float | None]]:
    report = ppocli.check(source, by=by, max={f"drift.{name}": value for name, value in limits.items()})
    return [(one.key, one.status, one.value) for one in report.checks if one.kind == "max"]


def test_the_trainer_against_the_sampler_is_judged_by_total_file_and_step(tmp_path: Path) -> None:
    tables = {
        "a": drifted([0.25, 0.5, -0.25], step=np.array([1, 1, 2])),
        "b": drifted([1.0], step=np.array([2])),
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    a, b = (str(tmp_path / f"{name}.parquet") for name in tables)
    assert judged([a, b], "total", diff_abs_mean=0.5) == [({}, "pass", 0.5)]
    assert judged([a, b], "total", diff_abs_mean=0.49) == [({}, "fail", 0.5)]
    # (0.25 + 0.5 + 0.25) / 3 and 1; by step (0.25 + 0.5) / 2 and (0.25 + 1) / 2.
    assert judged([a, b], "file", diff_abs_mean=0.5) == [
        ({"file": a}, "pass", pytest.approx(1 / 3)),
        ({"file": b}, "fail", 1.0),
    ]
    assert judged([a, b], "step", diff_abs_mean=0.5) == [
        ({"step": 1}, "pass", 0.375),
        ({"step": 2}, "fail", 0.625),
    ]


def test_drift_over_some_of_the_files_only_is_not_judged(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **drifted([0.0, 0.0], step=np.array([1, 2])))
    without = drifted([9.0], step=np.array([2]))
    del without["rollout_log_probs"]
    np.savez(tmp_path / "b.npz", **without)
    report = ppocli.check(tmp_path, max={"drift.diff_abs_mean": 1.0})
    assert [one.status for one in report.checks] == ["fail", "pass"]
    assert report.checks[0].reason == "rollout_log_probs in 1 of 2 files only"
    assert [status for _, status, _ in judged(tmp_path, "file", diff_abs_mean=1.0)] == ["pass", "fail"]
    assert [status for _, status, _ in judged(tmp_path, "step", diff_abs_mean=1.0)] == ["pass", "fail"]
    assert "in 1 of 2 files only" in ppocli.check(tmp_path, profiles=["verl"]).checks[0].reason


def test_nulls_of_drift_are_said_and_the_finite_twin_is_judged() -> None:
    columns = drifted([0.25, math.nan, 0.75])
    report = ppocli.check(
        **columns, max={"drift.diff_mean": 1.0, "drift.diff_mean_finite": 0.5}, fail_on="never"
    )
    assert [(one.status, one.value) for one in report.checks] == [("fail", None), ("pass", 0.5)]
    assert report.checks[0].reason.startswith("nan, not a number: 1 NaN in old_log_probs")
    clean = ppocli.check(**drifted([0.25, 0.75]), max={"drift.diff_mean_finite": 0.5})
    assert clean.checks[0].value == 0.5


def test_profiles_judge_drift(tmp_path: Path) -> None:
    # exp 0.5 is 1.65, so the mean weight is inside 0.5 to 2, and outside the band up to 1.002.
    columns = drifted([0.5, 0.5])
    assert not ppocli.check(**columns, profiles=["verl"]).failed
    assert [
        one.metric for one in ppocli.check(**columns, profiles=["mlperf"]).checks if one.status == "fail"
    ] == ["drift.weight_max"]
    failed = ppocli.check(**columns, profiles=["nemo-rl", "slime"]).checks
    assert [one.metric for one in failed if one.status == "fail" and one.kind != "finding"] == [
        "drift.mult_prob_error", "drift.drift_kl_k3", "drift.diff_abs_mean", "entropy_estimate",
    ]  # fmt: skip


def test_a_saved_report_keeps_the_drift_of_each_file(tmp_path: Path) -> None:
    for name, d in (("a", 0.25), ("b", 1.0)):
        np.savez(tmp_path / f"{name}.npz", **drifted([d]))
    path = tmp_path / "saved.json"
    path.write_text(to_json(ppocli.evaluate(sorted(tmp_path.glob("*.npz"))).to_dict()))
    assert [(status, value) for _, status, value in judged(path, "file", diff_mean=0.5)] == [
        ("pass", 0.25),
        ("fail", 1.0),
    ]
    for damaged in ('"drift": 3,', '"drift": {"metrics": {"diff_mean": "x"}, "nulls": {}},'):
        broken = tmp_path / "broken.json"
        text = to_json(ppocli.evaluate(**drifted([1.0])).to_dict())
        document = text.replace('"kind": "eval",', f'"kind": "eval", {damaged}').rsplit('"drift": {', 1)
        broken.write_text(document[0] + '"other": {' + document[1])
        with pytest.raises(InputError, match="damaged report"):
            ppocli.check(broken, max={"drift.diff_mean": 1.0})
