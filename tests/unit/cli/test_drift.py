"""`ppocli drift` as it is typed."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.cli.app import main
from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.core.glossary import explain, listing

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process: exit code, standard output, standard error."""
    for name in ("NO_COLOR", "FORCE_COLOR", "PPOCLI_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("ppocli.kernels._jit.on_first_compile", lambda callback: None)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(one) for one in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    """Three policies, ids, steps and masks; two files of it make a folder."""
    rng = np.random.default_rng(4)
    b = -rng.exponential(1.0, (6, 20))
    a = b + rng.normal(0.0, 0.05, b.shape)
    table = pa.table(
        {
            "log_probs": (a + rng.normal(0.0, 0.1, b.shape)).tolist(),
            "old_log_probs": a.tolist(),
            "rollout_log_probs": b.tolist(),
            "advantages": rng.normal(0.0, 1.0, 6),
            "mask": (rng.random(b.shape) < 0.9).tolist(),
            "token_id": rng.integers(0, 1000, b.shape).tolist(),
            "step": [0, 0, 0, 1, 1, 1],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def document(text: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(text)
    return made


def test_every_format_tells_the_same_numbers(run: Run, rollouts: Path) -> None:
    code, out, err = run("drift", rollouts, "-f", "json", "--tis-cap", "1.1")
    assert (code, err) == (0, "")
    metrics = document(out)["metrics"]
    lines = [
        json.loads(line) for line in run("drift", rollouts, "-f", "jsonl", "--tis-cap", "1.1")[1].splitlines()
    ]
    assert [line["kind"] for line in lines] == ["total"]
    assert lines[0]["metrics"] == metrics
    for form, delimiter in (("csv", ","), ("tsv", "\t")):
        rows = list(
            csv.DictReader(
                run("drift", rollouts, "-f", form, "--tis-cap", "1.1")[1].splitlines(), delimiter=delimiter
            )
        )
        assert [row["kind"] for row in rows] == ["comparison", "comparison", "total"]
        assert [row["a"] for row in rows] == ["log_probs", "log_probs", "old_log_probs"]
        for name in ("diff_mean", "diff_abs_p99", "drift_kl_k3", "tis_weight_mean", "chi2_seq"):
            assert float(rows[-1][name]) == metrics[name]
    table = run("drift", rollouts, "--digits", "17", "--tis-cap", "1.1")[1]
    markdown = run("drift", rollouts, "-f", "md", "--digits", "17", "--tis-cap", "1.1")[1]
    for name in ("diff_mean", "diff_abs_max", "weight_mean", "ess_frac", "ppl_ratio"):
        [row] = [line for line in table.splitlines() if line.startswith(f"{name} ")]
        assert float(row.split()[1]) == metrics[name]
        escaped = name.replace("_", r"\_")
        [row] = [line for line in markdown.splitlines() if line.startswith(f"| {escaped} |")]
        assert float(row.split("|")[2]) == metrics[name]


def test_the_screen_fits_into_eighty_columns(run: Run, rollouts: Path) -> None:
    for arguments in ((), ("--by", "step"), ("--tis-cap", "2", "--mask-low", "0.5")):
        out = run("drift", rollouts, *arguments)[1]
        assert max(map(len, out.splitlines())) <= 80
        assert not any(line.endswith(" ") for line in out.splitlines())


def test_the_screen_names_sides_tables_and_tokens(run: Run, rollouts: Path) -> None:
    out = run("drift", rollouts, "--by", "step", "--worst", "1")[1]
    assert "a = old_log_probs, b = rollout_log_probs  diff = a - b, w = exp(diff)" in out
    for title in ("difference", "weights", "divergence", "sequences", "comparison", "|a - b| up to",
                  "position in the sequence", "probability exp(b)", "step", "correction", "findings: none",
                  "tokens with the largest |a - b|"):  # fmt: skip
        assert f"\n{title}" in out or title in out, title
    assert "tis_weight_mean" not in out
    assert run("drift", rollouts, "--ascii")[1].isascii()


def test_three_policies_are_told_apart(run: Run, rollouts: Path) -> None:
    made = document(run("drift", rollouts, "-f", "json")[1])
    update, staleness = made["comparisons"]
    table = pq.read_table(rollouts).to_pydict()
    new, old, rollout, mask = (
        np.concatenate([np.array(row) for row in table[name]])
        for name in ("log_probs", "old_log_probs", "rollout_log_probs", "mask")
    )
    for one, a, b in ((made, old, rollout), (update, new, old), (staleness, new, rollout)):
        assert one["metrics"]["diff_abs_mean"] == pytest.approx(np.abs(a - b)[mask].mean(), rel=1e-13)
    assert [one["name"] for one in (update, staleness)] == ["update", "staleness"]


def test_corrections_say_what_the_formulas_say(run: Run, rollouts: Path) -> None:
    from ppocli.core import reference, rollout_correction
    from ppocli.core.rollout_rules import WeightRule
    from ppocli.core.sequence_objectives import Sequences
    from ppocli.core.spec import LossSpec

    made = document(run("drift", rollouts, "-f", "json", "--tis-cap", "1.01", "--clip-high", "0.05")[1])
    table = pq.read_table(rollouts).to_pydict()
    mask = np.concatenate([np.array(row) for row in table["mask"]])
    new, old, rollout = (
        np.concatenate([np.array(row) for row in table[name]])[mask]
        for name in ("log_probs", "old_log_probs", "rollout_log_probs")
    )
    adv = np.repeat(table["advantages"], 20)[mask]
    sequences = Sequences.from_ids(np.repeat(np.arange(6), 20)[mask])
    loss = reference.ppo_loss(new - old, adv, LossSpec(clip_high=0.05))
    assert made["corrections"][0] | {"cap": 1.01, "level": "token"} == made["corrections"][0]
    assert len(made["corrections"]) == 8
    for one in made["corrections"]:
        rule = WeightRule(one["level"], one.get("cap"), one.get("low"), one["mode"])
        weights = rollout_correction.importance_weights(old - rollout, sequences, rule)
        assert one["touched_frac"] == pytest.approx(weights.touched.mean(), rel=1e-12)
        assert one["weight_mean"] == pytest.approx(weights.applied.mean(), rel=1e-12)
        if weights.applied.any():
            assert one["ess_frac"] == pytest.approx(rollout_correction.ess_frac(weights.applied), rel=1e-12)
        corrected = np.mean(weights.applied * loss)
        assert one["loss"] == pytest.approx(corrected, rel=1e-11, abs=1e-15)
        assert one["loss_change"] == pytest.approx(corrected - loss.mean(), rel=1e-10, abs=1e-15)


def test_detail_main_leaves_the_other_columns_unread(run: Run, rollouts: Path) -> None:
    made = document(run("drift", rollouts, "-f", "json", "--detail", "main")[1])
    assert "comparisons" not in made
    assert all("loss" not in one for one in made["corrections"])
    full = document(run("drift", rollouts, "-f", "json", "--detail", "full")[1])
    assert made["metrics"] == full["metrics"]


def test_several_files_have_a_row_each_and_by_total_none(run: Run, rollouts: Path) -> None:
    pq.write_table(pq.read_table(rollouts).slice(0, 2), rollouts.with_name("b.parquet"))
    made = document(run("drift", rollouts.parent, "-f", "json")[1])
    assert [Path(one["key"]["file"]).name for one in made["groups"]] == ["a.parquet", "b.parquet"]
    assert "groups" not in document(run("drift", rollouts.parent, "-f", "json", "--by", "total")[1])
    rows = list(csv.DictReader(run("drift", rollouts.parent, "-f", "csv")[1].splitlines()))
    assert [row["kind"] for row in rows] == ["file", "file", "comparison", "comparison", "total"]
    assert "b.parquet" in run("drift", rollouts.parent)[1]


def test_the_noise_floor_is_read_not_subtracted(run: Run, rollouts: Path, tmp_path: Path) -> None:
    saved = tmp_path / "floor.json"
    plain = document(run("drift", rollouts, "-f", "json", "-o", saved, "--force")[1] or saved.read_text())
    made = document(run("drift", rollouts, "-f", "json", "--floor", saved)[1])
    assert made["metrics"] == plain["metrics"]
    assert set(made["floor"]["times"].values()) == {1.0}
    [finding] = [one for one in made["findings"] if one["code"] == "PPO510"]
    assert "within the noise floor" in finding["message"]
    again = document(run("drift", rollouts, "-f", "json", "--floor", rollouts)[1])
    assert again["floor"]["times"] == made["floor"]["times"]
    assert "noise floor" in run("drift", rollouts, "--floor", saved)[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not a JSON document"),
        ("[]", "no report of ppocli"),
        ('{"kind": "drift", "metrics": {}}', "not a report of ppocli"),
        ('{"tool": "ppocli", "kind": "drift"}', "not a report of ppocli"),
        ('{"tool": "ppocli", "kind": "eval", "metrics": {}}', "a report of kind 'eval', not 'drift'"),
        ('{"tool": "ppocli", "kind": "drift", "metrics": {"diff_abs_p99": NaN}}', "NaN is not JSON"),
        (
            '{"tool": "ppocli", "kind": "drift", "metrics": {"diff_abs_p99": true}}',
            "damaged report: diff_abs_p99 is True",
        ),
        (
            '{"tool": "ppocli", "kind": "drift", "metrics": {"diff_abs_max": "1"}}',
            "damaged report: diff_abs_max is '1'",
        ),
    ],
)
def test_a_floor_that_is_no_report_is_refused(
    run: Run, rollouts: Path, tmp_path: Path, text: str, says: str
) -> None:
    floor = tmp_path / "floor.json"
    floor.write_text(text)
    code, out, err = run("drift", rollouts, "--floor", floor)
    assert (code, out) == (3, "")
    assert says in err
    assert "floor.json" in err


def test_a_floor_may_be_data_of_any_form(run: Run, rollouts: Path, tmp_path: Path) -> None:
    table = pq.read_table(rollouts).to_pydict()
    lines = tmp_path / "floor.jsonl"
    names = ("old_log_probs", "rollout_log_probs", "mask")
    rows = [{name: table[name][row] for name in names} for row in range(6)]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = tmp_path / "floors"
    folder.mkdir()
    for name, part in (("a", slice(0, 2)), ("b", slice(2, 6))):
        pq.write_table(pq.read_table(rollouts)[part], folder / f"{name}.parquet")
    for floor in (lines, folder):
        code, out, err = run("drift", rollouts, "-f", "json", "--floor", floor)
        assert (code, err) == (0, "")
        assert document(out)["floor"]["times"] == pytest.approx(
            dict.fromkeys(("diff_abs_mean", "diff_abs_p99", "diff_abs_max", "drift_kl_k3"), 1.0), rel=1e-13
        )
    code, _, err = run("drift", rollouts, "--floor", tmp_path / "missing.parquet")
    assert code == 3
    assert "missing.parquet" in err


@pytest.mark.parametrize(
    ("sampler", "says"),
    [
        ([-1.0, -2.0], "the noise floor is exactly 0, and so is the difference"),
        ([-1.0, -2.1], "the noise floor is exactly 0, the difference is not"),
    ],
)
def test_a_floor_of_exactly_zero(run: Run, tmp_path: Path, sampler: list[float], says: str) -> None:
    for name, rollout in (("floor", [-1.0, -2.0]), ("data", sampler)):
        table = pa.table({"old_log_probs": [-1.0, -2.0], "rollout_log_probs": rollout})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    made = document(
        run("drift", tmp_path / "data.parquet", "--floor", tmp_path / "floor.parquet", "-f", "json")[1]
    )
    assert [one["message"] for one in made["findings"] if one["code"] == "PPO510"] == [says]
    assert made["floor"]["times"] == {}


def test_steps_that_are_text_are_shown(run: Run, rollouts: Path, tmp_path: Path) -> None:
    path = tmp_path / "steps.parquet"
    steps = pa.array(["warm-up", "warm-up", None, "late", "late", "late"])
    pq.write_table(pq.read_table(rollouts).drop_columns("step").append_column("step", steps), path)
    out = run("drift", path, "--by", "step")[1]
    lines = out[out.index("\nstep ") :].splitlines()
    assert [line.split()[0] for line in lines[3:6]] == ["late", "warm-up", "none"]
    without = tmp_path / "without.parquet"
    pq.write_table(pq.read_table(rollouts).drop_columns("step"), without)
    code, out, err = run("drift", without, "--by", "step")
    assert (code, out) == (3, "")
    assert "no column for step" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--a", "values"), "--a: role 'values' is not known"),
        (("--key", "sequence_id"), "ppocli drift A B --key sequence_id"),
        (("--roles", "values"), "--roles is for two files"),
        (("--by", "row"), "--by 'row' is not known"),
        (("--tis-cap", "0"), "--tis-cap is a finite number above 0, not 0"),
        (("--mask-low", "2", "--mask-high", "1"), "--mask-low 2 is above --mask-high 1"),
        (("--tis-cap", "nan"), "is a finite number"),
        (("--detail", "all"), "--detail 'all' is not known"),
        (("--worst", "-1"), "--worst is a whole number"),
        (("--threads", "0"), "--threads is a whole number"),
    ],
)
def test_usage_is_checked_before_anything_is_read(run: Run, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = run("drift", "missing.parquet", *arguments)
    assert (code, out) == (2, "")
    assert says in err


def test_exit_codes_of_inputs(run: Run, rollouts: Path, tmp_path: Path) -> None:
    assert run("drift", tmp_path / "no.parquet")[0] == 3
    assert run("drift", tmp_path / "*.arrow")[0] == 5
    pq.write_table(
        pa.table({"old_log_probs": [[-1.0]], "rollout_log_probs": [[-1.0]], "mask": [[False]]}),
        tmp_path / "m.parquet",
    )
    code, out, err = run("drift", tmp_path / "m.parquet", "-f", "json")
    assert code == 5
    assert document(out)["nulls"]["diff_mean"]["reason"] == "no valid token"
    assert "no valid token in" in err
    assert run("drift", tmp_path / "m.parquet", "--allow-empty")[0] == 0
    assert run("drift", tmp_path / "m.parquet", "-qq", "--allow-empty")[1:] == ("", "")


def test_unreadable_files_are_passed_over_on_request(run: Run, rollouts: Path) -> None:
    rollouts.with_name("bad.parquet").write_bytes(rollouts.read_bytes()[:-30])
    assert run("drift", rollouts.parent)[0] == 3
    code, out, err = run("drift", rollouts.parent, "--skip-bad", "-f", "json")
    assert code == 0
    assert [Path(one["path"]).name for one in document(out)["skipped"]] == ["bad.parquet"]
    assert "1 file skipped" in err


def test_token_ids_of_located_tokens(run: Run, rollouts: Path) -> None:
    made = document(run("drift", rollouts, "-f", "json", "--worst", "3")[1])
    table = pq.read_table(rollouts).to_pydict()
    for one in made["worst"]:
        where = one["where"]
        assert where["token_id"] == table["token_id"][where["row"]][where["position"]]
        assert one["a"] == table["old_log_probs"][where["row"]][where["position"]]
    assert made["places"]["diff_abs_max"] == made["worst"][0]["where"]


@pytest.mark.parametrize("name", DRIFT_METRICS)
def test_every_metric_is_explained_and_has_a_note(name: str) -> None:
    from ppocli.render.drift import NOTES

    metric = DRIFT_METRICS[name]
    assert metric.text in "\n".join(explain(f"drift.{name}"))
    if metric.section == "drift":
        assert len(NOTES[name]) <= 40
    assert ("Metrics of drift", (f"drift.{name}", metric.text)) in [
        (title, entry) for title, entries in listing() for entry in entries
    ]


def test_options_come_from_a_file_and_from_variables(
    run: Run, rollouts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    (folder / "deep").mkdir(parents=True)
    floor = folder / "floor.json"
    floor.write_text(run("drift", rollouts, "-f", "json")[1])
    (folder / "ppocli.toml").write_text(
        'clip-high = 0.05\nformat = "json"\n[columns]\nrollout_log_probs = "log_probs"\n'
        '[drift]\ntis-cap = 1.5\nworst = 2\nby = "step"\nfloor = "floor.json"\n'
    )
    monkeypatch.chdir(folder / "deep")
    made = document(run("drift", rollouts, "--isolated", "-f", "json")[1])
    assert (made["settings"]["clip_high"], made["settings"]["tis_cap"], len(made["worst"])) == (0.2, None, 5)
    made = document(run("drift", rollouts, "--col", "rollout_log_probs=rollout_log_probs")[1])
    assert (made["settings"]["clip_high"], made["settings"]["tis_cap"], len(made["worst"])) == (0.05, 1.5, 2)
    assert len(made["by_step"]) == 2
    assert made["floor"]["path"].endswith("floor.json")
    monkeypatch.setenv("PPOCLI_TIS_CAP", "1.25")
    code, out, err = run("drift", rollouts, "--worst", "1", "--by", "total", "--isolated", "-f", "json")
    made = document(out)
    assert (code, err, made["settings"]["tis_cap"], len(made["worst"])) == (0, "", 1.25, 1)
    monkeypatch.delenv("PPOCLI_TIS_CAP")
    (folder / "ppocli.toml").write_text("[drift]\ntis-cap = 2\n\nkey = 'x'\n")
    code, out, err = run("drift", rollouts, rollouts)
    assert (code, out) == (2, "")
    assert "--key 'x' is not known" in err
    assert "--> ppocli.toml:4" in err or "ppocli.toml:4" in err
    (folder / "ppocli.toml").write_text("[drift]\ntis-kap = 2\n")
    code, _, err = run("drift", rollouts)
    assert code == 2
    assert "tis-cap" in err
    assert "ppocli.toml:2" in err


def test_limits_make_it_a_gate(run: Run, rollouts: Path) -> None:
    table = pq.read_table(rollouts).to_pydict()
    old, rollout, mask = (
        np.concatenate([np.array(row) for row in table[name]])
        for name in ("old_log_probs", "rollout_log_probs", "mask")
    )
    size = float(np.abs(old - rollout)[mask].max())
    code, out, _ = run("drift", rollouts, "--max", f"diff_abs_max={size!r}", "-f", "json")
    [check] = document(out)["checks"]
    assert (code, check["status"], check["value"], check["name"]) == (
        0, "pass", size, f"diff_abs_max <= {size!r}",
    )  # fmt: skip
    below = float(np.nextafter(size, 0.0))
    code, out, _ = run(
        "drift", rollouts, "--max", f"drift.diff_abs_max={below!r}", "--min", "n_tokens=1", "-f", "json"
    )
    made = document(out)
    assert (code, made["exit_code"], made["status"]) == (1, 1, "failed")
    assert [(one["metric"], one["status"]) for one in made["checks"]] == [
        ("diff_abs_max", "fail"), ("n_tokens", "pass"),
    ]  # fmt: skip
    assert made["checks"][0]["where"] == made["places"]["diff_abs_max"]
    screen = run("drift", rollouts, "--max", f"diff_abs_max={below!r}")[1]
    assert screen.rstrip().endswith("FAIL  1 of 1 check failed")
    assert "FAIL  1 of 1 check failed" in run("drift", rollouts, "--max", "diff_abs_max=0", "-f", "md")[1]
    page = run("drift", rollouts, "--max", "diff_abs_max=0", "-f", "html")[1]
    assert "1 of 1 check failed" in page
    assert "checks" not in document(run("drift", rollouts, "-f", "json")[1])


def test_a_limit_on_what_is_null_fails(run: Run, rollouts: Path, tmp_path: Path) -> None:
    code, out, _ = run("drift", rollouts, "--max", "tis_weight_mean=9", "-f", "json")
    assert code == 1
    assert document(out)["checks"][0]["reason"] == "null: tis_cap is not given"
    bad = tmp_path / "nan.parquet"
    columns = {"old_log_probs": [-1.0, float("nan")], "rollout_log_probs": [-1.0, -1.0]}
    pq.write_table(pa.table(columns), bad)
    code, out, _ = run(
        "drift", bad, "--max", "diff_abs_mean=9", "--max", "diff_abs_mean_finite=0", "-f", "json"
    )
    assert code == 1
    strict, finite = document(out)["checks"]
    assert (strict["status"], strict["where"]["row"]) == ("fail", 1)
    assert (finite["status"], finite["value"]) == ("pass", 0.0)
    empty = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"old_log_probs": [-1.0], "rollout_log_probs": [-1.0], "mask": [False]}), empty)
    assert run("drift", empty, "--max", "diff_abs_mean=9")[0] == 5
    assert run("drift", empty, "--max", "diff_abs_mean=9", "--allow-empty")[0] == 0


def test_two_files_are_judged_too(run: Run, rollouts: Path, tmp_path: Path) -> None:
    table = pq.read_table(rollouts)
    for name, role in (("a", "old_log_probs"), ("b", "rollout_log_probs")):
        pq.write_table(table.select([role]), tmp_path / f"side_{name}.parquet")
    sides = tmp_path / "side_a.parquet", tmp_path / "side_b.parquet"
    assert run("drift", *sides, "--max", "diff_abs_p99=0.001", "-qq")[0] == 1
    assert run("drift", *sides, "--max", "diff_abs_p99=1000", "-qq")[0] == 0
    # The floor is compared in the same way, and not judged.
    code, out, _ = run("drift", *sides, "--max", "diff_abs_p99=1000", "--floor", rollouts, "-f", "json")
    assert code == 0
    assert document(out)["floor"]["times"]["diff_abs_max"] < 2.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--max", "clip_frac=1"), "metric 'drift.clip_frac' is not known"),
        (("--max", "diff_abs_p99=nan"), "a limit must be finite"),
        (("--min", "diff_abs_p99"), "--min takes METRIC=VALUE"),
        (("--max", "=1"), "--max takes METRIC=VALUE"),
        (("--max", "diff_mean=1", "--skip-bad"), "limits take no --skip-bad"),
    ],
)
def test_limits_are_checked_before_anything_is_read(run: Run, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = run("drift", "missing.parquet", *arguments)
    assert (code, out) == (2, "")
    assert says in err


def test_limits_of_files_and_variables(
    run: Run, rollouts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ppocli.toml").write_text("[drift.max]\ndiff_abs_max = 0\n")
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("drift", rollouts, "-f", "json")
    assert (code, document(out)["checks"][0]["source"]) == (1, "ppocli.toml:2")
    assert run("drift", rollouts, "--max", "diff_abs_max=99", "-qq")[0] == 0
    (tmp_path / "ppocli.toml").write_text("[drift.max]\nclip_fraction = 0\n")
    code, _, err = run("drift", rollouts)
    assert code == 2
    assert "ppocli.toml:2" in err
    # A variable speaks to `check` too, which has metrics that drift does not have.
    (tmp_path / "ppocli.toml").unlink()
    monkeypatch.setenv("PPOCLI_MAX", "clip_frac=0.1 drift.diff_abs_max=0 diff_abs_mean=0")
    code, out, _ = run("drift", rollouts, "-f", "json")
    assert code == 1
    assert [one["metric"] for one in document(out)["checks"]] == ["diff_abs_max", "diff_abs_mean"]


def test_both_places_of_two_sides_have_a_line(run: Run, tmp_path: Path) -> None:
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for values, says in (
        ([[-1.0], [-2.0, -3.0]], ("row 0, old_log_probs", "row 0, rollout_log_probs")),
        ([[-1.0, -2.0]], ("token 2", "its end")),
        ([[-1.0, -2.0], [-3.0], [-4.0]], ("its end", "token 3")),
    ):
        pq.write_table(pa.table({"old_log_probs": [[-1.0, -2.0], [-3.0]]}), a)
        pq.write_table(pa.table({"rollout_log_probs": values}), b)
        code, _, err = run("drift", a, b)
        assert code == 3
        assert f"\n  --> {a}, {says[0]}\n      {b}, {says[1]}\n" in err


def test_of_thousands_of_steps_the_screen_shows_the_first_and_the_last(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "steps.npz"
    np.savez(
        path, old_log_probs=np.full(2000, -1.0), rollout_log_probs=np.full(2000, -1.5), step=np.arange(2000)
    )
    out = run("drift", path, "--by", "step")[1]
    assert "the first and the last of 2,000 steps; -f json has all" in out
    lines = out[out.index("\nstep ") :].splitlines()[3:]
    shown = [int(line.split()[0]) for line in lines[: lines.index("")]]
    assert shown == [*range(25), *range(1975, 2000)]
    assert len(document(run("drift", path, "--by", "step", "-f", "json")[1])["by_step"]) == 2000
