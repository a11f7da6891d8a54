"""The pre-commit hook, the GitHub Action and the snippets of the README, without the services."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from contract.command import environment
from junitparser import JUnitXml

from ppocli.cli.app import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ACTION = ROOT / ".github" / "actions" / "check" / "action.yml"
HEALTHY = ROOT / "sample_data" / "healthy.parquet"
BROKEN = ROOT / "sample_data" / "overflow.npz"


def test_the_hook_has_what_pre_commit_requires_and_its_entry_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {"id", "name", "entry", "language", "files"} <= hook.keys()
    assert hook["language"] == "python"
    names = [path.name for path in (ROOT / "sample_data").iterdir()]
    matched = {name for name in names if re.search(hook["files"], name)}
    assert matched == {name for name in names if name.endswith((".parquet", ".npz"))}
    program, *arguments = shlex.split(hook["entry"])
    assert program == "ppocli"
    assert main([*arguments, str(HEALTHY)]) == 0
    assert main([*arguments, str(HEALTHY), str(BROKEN)]) == 1
    capsys.readouterr()


def action() -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    return made


def test_the_action_is_one() -> None:
    made = action()
    assert {"name", "description", "inputs", "outputs", "runs"} <= made.keys()
    assert made["runs"]["using"] == "composite"
    for one in made["inputs"].values():
        assert one["description"]
        assert one.get("required") or "default" in one
    used = set(re.findall(r"inputs\.([a-z-]+)", ACTION.read_text(encoding="utf-8")))
    assert used == set(made["inputs"])
    for step in made["runs"]["steps"]:
        assert ("uses" in step) != ("run" in step)
        if "run" in step:
            assert step["shell"] == "bash"
            assert "${{" not in step["run"], "text of an input would be read as part of the script"


def test_the_action_installs_this_repository() -> None:
    [install] = [one["run"] for one in action()["runs"]["steps"] if "pip install" in one.get("run", "")]
    found = re.search(r'"\$GITHUB_ACTION_PATH/(.*)"', install)
    assert found is not None
    assert (ACTION.parent / found[1] / "pyproject.toml").resolve() == ROOT / "pyproject.toml"


def run_action(folder: Path, **inputs: str) -> tuple[int, str]:
    """Run the last step as the runner does; return exit code and standard output."""
    made = action()
    step = made["runs"]["steps"][-1]
    given = {name: one.get("default", "") for name, one in made["inputs"].items()} | inputs
    variables = {
        name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: given[found[1]], text)
        for name, text in step["env"].items()
    }
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    program = programs / "ppocli"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ppocli "$@"\n')
    program.chmod(0o755)
    settings = environment(
        **variables,
        GITHUB_OUTPUT=str(folder / "output"),
        GITHUB_STEP_SUMMARY=str(folder / "summary"),
        GITHUB_ACTIONS="true",
        PATH=f"{programs}{os.pathsep}{os.environ['PATH']}",
    )
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env=settings,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def test_the_action_judges_annotates_and_reports(tmp_path: Path) -> None:
    shutil.copy(HEALTHY, tmp_path / "a b.parquet")
    shutil.copy(BROKEN, tmp_path / "-x.npz")
    passed = run_action(tmp_path, paths="a b.parquet\n")
    assert passed == (0, "::notice title=ppocli check::ok  1 check passed\n")
    code, out = run_action(
        tmp_path,
        paths="a b.parquet\n\n-x.npz",
        args="--max clip_frac=0.9\n  --min ess_frac=0.1",
        junit="junit.xml",
    )
    assert code == 1
    assert [line.split("::")[1].split()[0] for line in out.splitlines()] == [
        *["error"] * 3,
        *["warning"] * 3,
        "notice",
    ]
    suites = JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    assert [suite.name for suite in suites] == ["total", "a b.parquet", "-x.npz"]
    assert suites.failures == 3
    assert (tmp_path / "output").read_text() == "exit-code=0\nexit-code=1\n"
    assert (tmp_path / "summary").read_text().count("### ppocli check") == 2
    assert run_action(tmp_path, paths="a b.parquet", junit="junit.xml")[0] == 0, "the file is written again"


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"paths": "none.parquet"}, 3),
        ({"paths": "*.parquet"}, 5),
        ({"paths": str(HEALTHY), "args": "--max clip_fraq=1"}, 2),
        ({"paths": str(HEALTHY), "fail-on": "$(touch hacked)"}, 2),
        ({"paths": '"; touch hacked; "', "args": "`touch hacked`"}, 3),
    ],
)
def test_the_action_passes_codes_on_and_reads_no_input_as_script(
    tmp_path: Path, inputs: dict[str, str], code: int
) -> None:
    assert run_action(tmp_path, **inputs)[0] == code
    assert not (tmp_path / "hacked").exists()


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_settings_of_the_readme_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [text] = snippets("toml")
    (tmp_path / "pyproject.toml").write_text(text)
    assert main(["config", "show", "--config", str(tmp_path / "pyproject.toml")]) == 0
    shown = capsys.readouterr().out
    assert shown.count("pyproject.toml:") > 5
    assert main(["check", str(HEALTHY), "--config", str(tmp_path / "pyproject.toml")]) == 0
    capsys.readouterr()


def test_ci_snippets_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    documents = [one for text in snippets("yaml") for one in yaml.safe_load_all(text)]
    [github] = [one for one in documents if isinstance(one, list)]
    [uses] = [one for one in github if ".github/actions/check" in one.get("uses", "")]
    assert set(uses["with"]) <= set(action()["inputs"])
    [gitlab] = [one for one in documents if isinstance(one, dict) and "rollouts" in one]
    job = gitlab["rollouts"]
    assert job["artifacts"]["when"] == "always"
    [pre_commit] = [one for one in documents if isinstance(one, dict) and "repos" in one]
    assert [hook["id"] for hook in pre_commit["repos"][0]["hooks"]] == ["ppocli-check"]
    [jenkins] = snippets("groovy")
    commands = [line for line in job["script"] if line.startswith("ppocli ")]
    commands += re.findall(r"sh '(ppocli [^']*)'", jenkins)
    assert len(commands) == 2
    (tmp_path / "rollouts").mkdir()
    shutil.copy(HEALTHY, tmp_path / "rollouts")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
        assert JUnitXml.fromfile("ppocli.xml").failures == 0
    assert job["artifacts"]["reports"]["junit"] == "ppocli.xml"
    assert "junit 'ppocli.xml'" in jenkins
    capsys.readouterr()
