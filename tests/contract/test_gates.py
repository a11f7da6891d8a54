"""Every gate against every way in which data can be no good: none of them passes, and equality does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.errors import ExitCode, InputError
from ppocli.render.json import to_json

LOG_RATIO = [0.25, -0.5, 0.0, 0.0]
DIFF = [0.5, 0.0, 0.0, 0.5]
OLD = [-1.0, -2.0, -1.5, -3.0]
GOOD: dict[str, list[Any]] = {
    "log_probs": [old + x for old, x in zip(OLD, LOG_RATIO, strict=True)],
    "old_log_probs": OLD,
    "rollout_log_probs": [old - d for old, d in zip(OLD, DIFF, strict=True)],
    "advantages": [1.0, -1.0, 2.0, 0.5],
    "step": [1, 1, 2, 2],
}

# Worked out by hand: k1 = (-0.25 + 0.5) / 4; two ratios of four are outside [0.8, 1.2]; |diff| is 0.25 on
# average; exp(0.5) = 1.65 is above a cap of 1.5 at two tokens of four, and outside [0.5, 1.5].
GATES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "max": ({"max": {"approx_kl_k1": 0.0625}}, {"max": {"approx_kl_k1": math.nextafter(0.0625, 0)}}),
    "min": ({"min": {"clip_frac": 0.5}}, {"min": {"clip_frac": math.nextafter(0.5, 1)}}),
    "expect": ({"expect": {"clip_frac": (0.75, 0.25)}}, {"expect": {"clip_frac": (0.75, 0.2499999)}}),
    "expect, framework": (
        {"like": "verl", "expect": {"actor/ppo_kl": (0.0625, 1e-9)}},
        {"like": "verl", "expect": {"actor/ppo_kl": (0.0626, 1e-9)}},
    ),
    "on policy": (
        {"expect_on_policy": True, "on_policy_tol": 0.5},
        {"expect_on_policy": True, "on_policy_tol": math.nextafter(0.5, 0)},
    ),
    "drift": ({"max": {"drift.diff_abs_mean": 0.25}}, {"max": {"drift.diff_abs_mean": 0.2499999}}),
    "drift, capped": (
        {"tis_cap": 1.5, "max": {"drift.tis_frac_capped": 0.5}},
        {"tis_cap": 1.5, "max": {"drift.tis_frac_capped": 0.4999999}},
    ),
    "drift, masked": (
        {"mask_low": 0.5, "mask_high": 1.5, "max": {"drift.masked_weight_mean": 0.5}},
        {"mask_low": 0.5, "mask_high": 1.5, "min": {"drift.masked_weight_mean": 0.5000001}},
    ),
    "profile": ({"profiles": ["verl"]}, {"profiles": ["mlperf"]}),
    "by file": (
        {"by": "file", "max": {"clip_frac": 0.5}},
        {"by": "file", "max": {"clip_frac": math.nextafter(0.5, 0)}},
    ),
    # Two of two ratios are outside at step 1, none at step 2.
    "by step": ({"by": "step", "max": {"clip_frac": 1.0}}, {"by": "step", "max": {"clip_frac": 0.9999999}}),
    "baseline": (
        {"baseline": "base.json", "tolerance": {"approx_kl_k1": "100%"}},
        {"baseline": "other.json", "tolerance": {"approx_kl_k1": 0.0624}},
    ),
}
BAD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "null": None}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the good file and two baselines, the second of data that are on policy."""
    monkeypatch.chdir(tmp_path)
    write("good.parquet")
    Path("base.json").write_text(to_json(ppocli.evaluate("good.parquet").to_dict()))
    write("other.parquet", log_probs=OLD)
    Path("other.json").write_text(to_json(ppocli.evaluate("other.parquet").to_dict()))


def write(path: str, **changes: Any) -> None:
    types = {name: pa.int64() if name in ("step", "mask") else pa.float64() for name in (*GOOD, "mask")}
    columns = {name: pa.array(values, types[name]) for name, values in {**GOOD, **changes}.items()}
    pq.write_table(pa.table(columns), path, write_page_checksum=True)


def code(paths: str | list[str], gate: str, *, broken: bool = False, **more: Any) -> int:
    """The exit code of a gate without the findings, so that nothing else can fail it."""
    return ppocli.check(paths, **GATES[gate][broken], **{"fail_on": "never", **more}).exit_code


@pytest.mark.parametrize("gate", GATES)
def test_a_value_at_its_limit_passes_and_one_beyond_it_does_not(gate: str) -> None:
    assert code("good.parquet", gate) == ExitCode.OK
    assert code("good.parquet", gate, broken=True) == ExitCode.GATE_FAILED


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("kind", BAD)
def test_one_value_that_is_no_number_fails_the_gate(gate: str, kind: str) -> None:
    write("bad.parquet", old_log_probs=[OLD[0], BAD[kind], *OLD[2:]])
    assert code("bad.parquet", gate) == ExitCode.GATE_FAILED
    if gate != "baseline":  # other files, other inputs: the same roles
        assert code(["good.parquet", "bad.parquet"], gate) == ExitCode.GATE_FAILED
    # What is masked never counts.
    longer = {name: [*values, values[-1]] for name, values in GOOD.items()}
    write("masked.parquet", **{**longer, "old_log_probs": [*OLD, BAD[kind]], "mask": [1, 1, 1, 1, 0]})
    if gate != "baseline":
        assert code("masked.parquet", gate) == ExitCode.OK


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("allow_empty", [False, True])
def test_nothing_is_neither_a_pass_nor_a_failure(gate: str, allow_empty: bool) -> None:
    write("empty.parquet", **{name: [] for name in GOOD})
    write("masked.parquet", mask=[0, 0, 0, 0])
    for path in ("empty.parquet", "masked.parquet"):
        if gate == "baseline" and path == "masked.parquet":
            continue  # another column than the baseline's
        got = code(path, gate, allow_empty=allow_empty)
        if gate == "profile" or not allow_empty:
            assert got == (ExitCode.OK if allow_empty else ExitCode.EMPTY), path
        else:
            assert got == ExitCode.OK, path
        assert code(path, gate, exit_zero=True) == ExitCode.EMPTY


@pytest.mark.parametrize("gate", GATES)
def test_a_shard_that_cannot_be_read_is_3(gate: str) -> None:
    whole = Path("good.parquet").read_bytes()
    Path("cut.parquet").write_bytes(whole[:-9])
    for broken in (False, True):
        with pytest.raises(InputError, match=r".") as caught:
            code(["good.parquet", "cut.parquet"], gate, broken=broken, exit_zero=True)
        assert caught.value.exit_code == ExitCode.INPUT
        assert "cut.parquet" in str(caught.value.where)


@pytest.mark.parametrize("gate", ["drift", "drift, capped", "drift, masked", "profile"])
def test_a_gate_without_its_column_fails(gate: str) -> None:
    columns = {name: values for name, values in GOOD.items() if name != "rollout_log_probs"}
    pq.write_table(pa.table(columns), "without.parquet")
    report = ppocli.check("without.parquet", **GATES[gate][0], fail_on="never")
    assert report.exit_code == ExitCode.GATE_FAILED
    assert any("no column for rollout_log_probs" in one.reason for one in report.checks)


def test_a_limit_on_weights_whose_cap_is_not_given_fails_and_says_so() -> None:
    report = ppocli.check(
        "good.parquet", max={"drift.tis_frac_capped": 1.0, "drift.masked_frac": 1.0}, fail_on="never"
    )
    assert [(one.status, one.reason) for one in report.checks] == [
        ("fail", "null: tis_cap is not given"),
        ("fail", "null: mask_low and mask_high are not given"),
    ]


def test_findings_fail_for_each_value_that_is_no_number() -> None:
    for value in BAD.values():
        write("bad.parquet", old_log_probs=[OLD[0], value, *OLD[2:]])
        report = ppocli.check("bad.parquet")
        assert [(one.name, one.status) for one in report.checks] == [("PPO101", "fail")]
        assert report.exit_code == ExitCode.GATE_FAILED


def test_the_least_number_of_tokens_counts_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    from ppocli.cli.app import main

    write("masked.parquet", mask=[1, 0, 1, 1])
    for path, least, want in (("good", 4, 0), ("good", 5, 1), ("masked", 3, 0), ("masked", 4, 1)):
        assert main(["check", f"{path}.parquet", "--min-tokens", str(least), "-qq"]) == want
    capsys.readouterr()


@pytest.mark.parametrize("how", ["data", "saved", "step", "file"])
def test_caps_of_the_command_line(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    from ppocli.cli.app import main

    caps = ["--tis-cap", "1.5", "--mask-high", "1.5"]
    # min(w, 1.5) is 1.5, 1, 1, 1.5; a mask of the same bound drops two tokens of four.
    limits = [f"--{kind}={name}" for name in ("drift.tis_weight_mean=1.25", "drift.masked_frac=0.5")
              for kind in ("min", "max")]  # fmt: skip
    target, more = "good.parquet", [] if how in ("data", "saved") else ["--by", how]
    if how == "saved":
        assert main(["eval", target, *caps, "--export", "saved.json", "-qq"]) == 0
        target = "saved.json"
    assert main(["check", target, *caps, *limits, *more, "-qq"]) == 0
    assert main(
        ["check", target, "--tis-cap", "1.25", "--max", "drift.tis_weight_mean=1.1", *more, "-qq"]
    ) == (2 if how == "saved" else 1)
    if how == "saved":
        assert "tis_cap is 1.5 there, 1.25 is asked for" in capsys.readouterr().err
        assert main(["check", target, *limits, "-qq"]) == 0
    assert main(["check", "good.parquet", "--tis-cap", "0"]) == 2
    assert "--tis-cap is a finite number above 0, not 0" in capsys.readouterr().err
