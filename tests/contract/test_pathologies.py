"""What a gate owes its users: healthy data pass, and each pathology raises its own finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import healthy
import numpy as np
import pytest

import ppocli
from ppocli.cli.app import main
from ppocli.core.rules import RULES
from ppocli.engine.synth import HEALTHY, PATHOLOGIES, columns_of

ROOT = Path(__file__).parents[2]
GOLDENS = ROOT / "tests" / "goldens" / "data" / "inputs"
SAMPLES = ("healthy.parquet", "classic_rl.parquet", "padded.npz", "trainer_and_rollout.parquet")
TYPICAL = ("typical", "on_policy", "nan_pad")
FAULTS = [name for name in PATHOLOGIES if name != HEALTHY]

NOT_MADE = {"PPO106", "PPO405", "PPO510"}
"""About edited reports, about two files, and about a comparison with a second file."""

ALSO = {"placeholder": {"PPO104"}}
"""Other warnings that a pathology cannot but raise: -100 is more than 20 nats away."""

SETTINGS: dict[str, dict[str, Any]] = {
    "clamped": {"log_ratio_clamp": 0.2},
    "off-policy": {"expect_on_policy": True},
    "twice": {"adv_norm": "group", "adv_norm_unit": "sequence"},
}


def severities(findings: Any) -> dict[str, str]:
    return {one.code: one.severity for one in findings}


def judged(name: str, **size: int) -> dict[str, str]:
    """The findings of a gate, by code."""
    report = ppocli.check(**columns_of(name, **size), fail_on="warning", **SETTINGS.get(name, {}))
    found = {one["code"]: one["severity"] for one in report.document["findings"]}
    grave = {code for code, severity in found.items() if severity != "info"}
    assert report.failed == bool(grave)
    assert report.exit_code == int(bool(grave))
    return found


def compared(name: str, **size: int) -> dict[str, str]:
    columns = columns_of(name, **size)
    names = ("old_log_probs", "rollout_log_probs", "mask")
    return severities(ppocli.drift(**{role: columns[role] for role in names}).findings)


# ------------------------------------------------------------------------------------------ healthy data


@pytest.mark.parametrize("name", SAMPLES)
def test_healthy_samples_pass_the_strictest_gate(name: str) -> None:
    report = ppocli.check(ROOT / "sample_data" / name, fail_on="warning")
    assert (report.exit_code, report.status) == (0, "ok")


@pytest.mark.parametrize("name", TYPICAL)
def test_typical_batches_of_other_projects_pass(name: str) -> None:
    roles = ("log_probs", "old_log_probs", "advantages", "mask")
    with np.load(GOLDENS / f"{name}.npz", allow_pickle=False) as stored:
        report = ppocli.check(**{role: stored[role] for role in roles}, fail_on="warning")
    assert (report.exit_code, report.status) == (0, "ok")


@pytest.mark.parametrize("tens", range(20))
def test_200_healthy_batches_pass(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        columns = healthy.batch(seed)
        report = ppocli.check(**columns, fail_on="warning")
        assert report.exit_code == 0, (seed, report.document["findings"])
        allowed = set() if seed % 2 == 0 else {"PPO403"}  # densities of continuous actions
        assert {one["code"] for one in report.document["findings"]} <= allowed, seed


def test_healthy_batches_are_not_all_alike() -> None:
    reports = [ppocli.evaluate(**healthy.batch(seed)).metrics for seed in range(40)]
    fractions = [one["clip_frac"] for one in reports]
    assert min(fractions) == 0.0
    assert max(fractions) > 0.25
    assert {"explained_variance", "n_groups"} <= set().union(*reports)


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_file_has_no_finding_anywhere(seed: int) -> None:
    assert judged(HEALTHY, seed=seed) == {}
    assert compared(HEALTHY, seed=seed) == {}


# ----------------------------------------------------------------------------------------------- faults


def test_every_finding_that_can_be_made_has_its_pathology() -> None:
    codes = [one.code for one in PATHOLOGIES.values() if one.code is not None]
    assert len(set(codes)) == len(codes)
    assert set(codes) == set(RULES) - NOT_MADE
    assert PATHOLOGIES[HEALTHY].code is None


@pytest.mark.parametrize("size", [{}, {"sequences": 32, "tokens": 32, "seed": 1}], ids=["usual", "smallest"])
@pytest.mark.parametrize("name", FAULTS)
def test_each_pathology_raises_its_own_finding_and_no_other(name: str, size: dict[str, int]) -> None:
    one = PATHOLOGIES[name]
    assert one.code is not None
    found = judged(name, **size)
    if one.command[0] == "drift":
        assert compared(name, **size) == {one.code: "warning"}
    elif one.command[0] == "audit":
        audited = severities(ppocli.audit(**columns_of(name, **size)).evaluation.findings)
        assert audited[one.code] == "info"
        assert set(audited) <= {"PPO202", "PPO203"}
    else:
        assert found.pop(one.code) in (RULES[one.code].severity, RULES[one.code].worst)
    # What the other commands show leaves the gate as it is.
    assert {code for code, severity in found.items() if severity != "info"} == ALSO.get(name, set())
    if one.code != "PPO101":
        assert "PPO101" not in found


@pytest.mark.parametrize("name", ["nan", "idle-clip", "off-policy", "bfloat16", "temperature", HEALTHY])
def test_the_command_that_is_named_shows_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["synth", "--pathology", name, "-o", "made.parquet"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    wrote, shows = shown.err.splitlines()
    assert wrote.startswith("wrote made.parquet: 64 sequences, ")
    command = shows.rpartition(": ppocli ")[2].split()
    code = main([*command, "-f", "json"])
    out = capsys.readouterr().out
    own = PATHOLOGIES[name].code
    assert code == int(name == "off-policy")
    assert shows.startswith(f"shows {own}, " if own else "shows no finding: ")
    assert f'"code": "{own}"' in out if own else '"findings": []' in out
    assert main(["check", "made.parquet", "-qq"]) == int(name == "nan")
