"""`ppocli check` with a stand-in for the engine: options, exit codes, files for CI."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import reports

from ppocli.cli.check import append_summary
from ppocli.core.report import Finding
from ppocli.errors import EmptyInput, InputError
from ppocli.render.json import to_json

NAN = Finding("PPO101", "error", 2, "2 NaN", "look")


def document(out: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(out)
    return made


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 0),
        (["--max", "clip_frac=0.1234"], 0),
        (["--max", "clip_frac=0.1"], 1),
        (["--max", "clip_frac=0.1", "--exit-zero"], 0),
        (["--min", "clip_frac=0.2"], 1),
        (["--expect", "policy_loss=-0.0125~1e-4"], 0),
        (["--expect", "policy_loss=-0.0125~1e-6"], 1),
        (["--expect", "policy_loss=-0.0125~1%"], 0),
        (["--max", "entropy_mean=9"], 1),
        (["--min-tokens", "7"], 0),
        (["--min-tokens", "8"], 1),
        (["--max", "clip_frac=1", "--fail-on", "never"], 0),
        (["--by", "file", "--max", "clip_frac=0.1"], 1),
        (["--profile", "slime"], 1),
        (["--max", "clip_fraq=1"], 2),
        (["--max", "clip_frac=nan"], 2),
        (["--min", "clip_frac=-inf"], 2),
        (["--expect", "clip_frac=1"], 2),
        (["--min-tokens", "0"], 2),
        (["--min-tokens", "many"], 2),
        (["--on-policy-tol", "nan", "--expect-on-policy"], 2),
        (["--fail-on", "info"], 2),
        (["--fail-on", "never"], 2),
        (["--select", "PPO303"], 2),
        (["--ignore", "PPO9"], 2),
        (["--by", ""], 2),
        (["--profile", "verk"], 2),
        (["--tolerance", "clip_frac=5%"], 2),
        (["--baseline", "base.json"], 2),
        (["--skip-bad"], 2),
        (["-f", "xml"], 2),
        (["--export", "x.pdf"], 2),
    ],
)
def test_exit_codes(engine: Any, run: Any, arguments: list[str], code: int) -> None:
    got, out, err = run("check", "x", *arguments)
    assert got == code, err
    assert bool(out) == (code != 2)
    assert err.startswith("error: ") == (code == 2)
    assert len(engine.calls) == (code != 2), "a usage error is found before anything is read"


def test_findings_fail_by_severity(engine: Any, run: Any) -> None:
    engine.answer = reports.report(findings=(reports.overflow(),))
    assert run("check", "x")[0] == 0
    assert run("check", "x", "--fail-on", "warning")[0] == 1
    assert run("check", "x", "--fail-on", "warning", "--ignore", "PPO1")[0] == 0
    assert run("check", "x", "--fail-on", "warning", "--select", "PPO102")[0] == 1
    engine.answer = reports.report(findings=(NAN,))
    assert run("check", "x")[0] == 1
    assert run("check", "x", "--max", "clip_frac=1")[0] == 1
    assert run("check", "x", "--max", "clip_frac=1", "--fail-on", "never")[0] == 0


def test_nothing_valid_is_5_whatever_else(engine: Any, run: Any) -> None:
    engine.answer = reports.empty()
    code, out, err = run("check", "x", "--max", "clip_frac=0", "--min-tokens", "5", "-f", "json")
    assert (code, document(out)["exit_code"], document(out)["status"]) == (5, 5, "failed")
    assert err.startswith("error: no valid token in ")
    assert run("check", "x", "--exit-zero")[0] == 5
    engine.answer = reports.empty().with_exit_code(0)
    assert run("check", "x", "--max", "clip_frac=0", "--allow-empty")[0] == 0


@pytest.mark.parametrize(
    ("problem", "code"), [(InputError("cut", where="b.parquet"), 3), (EmptyInput("none"), 5)]
)
def test_what_cannot_be_read_is_never_0_or_1(
    engine: Any, run: Any, tmp_path: Path, problem: Any, code: int
) -> None:
    engine.answer = problem
    for arguments in ([], ["--exit-zero"], ["--max", "clip_frac=0"], ["--allow-empty"]):
        got, out, err = run("check", "x", *arguments)
        assert (got, out) == (code, "")
        assert err.startswith(f"error: {problem.message}")
    # CI is told all the same, in its own formats only.
    exports = [tmp_path / "a.xml", tmp_path / "a.json"]
    got, out, _ = run("check", "x", "-f", "github", *(f"--export={path}" for path in exports))
    assert (got, out.startswith("::error title=ppocli check::")) == (code, True)
    assert [path.exists() for path in exports] == [True, False]
    assert "<error " in exports[0].read_text()
    got, out, _ = run("check", "x", "-f", "json", "-o", str(tmp_path / "b.json"))
    assert (got, out, (tmp_path / "b.json").exists()) == (code, "", False)


def test_all_formats_from_one_pass(engine: Any, run: Any, tmp_path: Path) -> None:
    names = ["a.json", "a.jsonl", "a.csv", "a.tsv", "a.md", "a.xml"]
    exports = [word for name in names for word in ("--export", str(tmp_path / name))]
    code, out, err = run("check", "x", "--max", "clip_frac=0.1", *exports)
    assert (code, err, len(engine.calls)) == (1, "", 1)
    assert out.endswith("FAIL  1 of 2 checks failed\n")
    for name in names:
        assert "0.1234" in (tmp_path / name).read_text()
    document_ = document((tmp_path / "a.json").read_text())
    assert (document_["kind"], document_["exit_code"], document_["checks"][0]["status"]) == (
        "check",
        1,
        "fail",
    )


def test_the_engine_is_asked_for_files_only_where_they_are_judged(engine: Any, run: Any) -> None:
    run("check", "x", "--clip-eps", "0.1", "--threads", "1", "--chunk-rows", "9", "--col", "mask=m")
    run("check", "x", "--by", "file", "--allow-empty")
    first, second = engine.calls
    assert (first["by"], first["threads"], first["chunk_rows"]) == ("total", 1, 9)
    assert (first["spec"].clip_low, first["options"].columns, first["allow_empty"]) == (
        0.1,
        {"mask": "m"},
        False,
    )
    assert (second["by"], second["allow_empty"]) == ("file", True)
    assert not first.get("skip_bad")


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "report.json"
    path.write_text(to_json(reports.report().to_dict()))
    return str(path)


def test_a_saved_report_is_judged_without_the_data(engine: Any, run: Any, saved: str) -> None:
    code, out, err = run("check", saved, "--max", "clip_frac=0.1", "-f", "json")
    assert (code, err, engine.calls) == (1, "", [])
    gate = document(out)["gate"]
    assert gate["report"] == saved
    assert gate["notes"] == [
        "judged again from a report of ppocli 0.1.0: the data were not read, "
        "the findings are those of that run"
    ]
    assert run("check", saved, "--max", "clip_frac=0.2")[0] == 0
    assert run("check", saved, "--max", "clip_frac=0.2", "--clip-eps", "0.2")[0] == 0


def test_what_cannot_be_judged_again_is_said(run: Any, saved: str, tmp_path: Path) -> None:
    code, _, err = run("check", saved, "--clip-eps", "0.3", "--layout", "time")
    assert code == 2
    for said in ("clip_low is 0.2 there, 0.3 is asked for", "layout is None there, 'time' is asked for"):
        assert said in err
    code, _, err = run("check", saved, "x.parquet")
    assert (code, "is judged alone" in err) == (2, True)
    total = tmp_path / "total.json"
    several = replace(reports.several(), groups=())
    total.write_text(to_json(several.to_dict()))
    code, _, err = run("check", str(total), "--by", "file")
    assert (code, "does not have the metrics of each file" in err) == (3, True)


def test_a_saved_report_without_valid_tokens(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text(to_json(reports.empty().to_dict()))
    code, _, err = run("check", str(path))
    assert (code, err) == (5, f"error: no valid token in '{path}'\n")
    code, _, err = run("check", str(path), "--allow-empty")
    assert (code, err) == (0, f"warning: no valid token in '{path}'\n")


def test_a_baseline(engine: Any, run: Any, saved: str) -> None:
    engine.answer = reports.report({"clip_frac": 0.13})
    base = ["--baseline", saved]
    assert run("check", "x", *base, "--tolerance", "clip_frac=6%")[0] == 0
    code, out, _ = run("check", "x", *base, "--tolerance", "clip_frac=5%")
    assert (code, "clip_frac within 5% of the baseline" in out) == (1, True)
    calls = len(engine.calls)
    code, _, err = run("check", "x", *base, "--tolerance", "clip_frac=5%", "--clip-high", "0.28")
    assert (code, len(engine.calls) - calls) == (3, 0)
    assert "clip_high is 0.28, in the baseline 0.2" in err
    code, _, err = run("check", "x", "--baseline", saved + "x", "--tolerance", "clip_frac=5%")
    assert (code, "No such file" in err) == (3, True)
    code, _, err = run("check", "x", *base, "--tolerance", "clip_frac=5%", "--export", saved, "--force")
    assert (code, "already in use" in err) == (2, True)


def test_quiet_and_silent(run: Any) -> None:
    assert run("check", "x", "--max", "clip_frac=0.1", "-qq") == (1, "", "")
    assert run("check", "x", "--max", "clip_frac=0.1", "-q")[1:] == (
        run("check", "x", "--max", "clip_frac=0.1")[1],
        "",
    )


def test_the_job_summary_is_appended_to(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    run("check", "x", "--max", "clip_frac=0.1")
    assert summary.read_text() == "before\n", "only -f github writes it"
    code, out, err = run("check", "x", "--max", "clip_frac=0.1", "-f", "github")
    assert (code, err, out.startswith("::error title=ppocli clip_frac <= 0.1::")) == (1, "", True)
    assert summary.read_text().startswith("before\n### ppocli check\n")
    assert "FAIL  1 of 2 checks failed" in summary.read_text().replace("\\", "")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "none" / "summary"))
    code, _, err = run("check", "x", "-f", "github")
    assert (code, err.startswith("warning: cannot write the job summary")) == (0, True)


def test_without_a_summary_file_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    append_summary("text", {})
    append_summary("text", {"GITHUB_STEP_SUMMARY": ""})
    assert list(tmp_path.iterdir()) == []
