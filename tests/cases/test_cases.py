"""Every case of cases.jsonl whose command exists, through the command line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cases import build, judge

from ppocli.cli.app import COMMANDS, main

HERE = Path(__file__).parent
ROLES = ("log_probs", "old_log_probs", "rollout_log_probs", "ref_log_probs", "advantages", "mask")
SETTINGS_OF_TERMINALS = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "TERM")


BUILDERS = build.builders()
MISSING = {"check", "audit", "drift", "inspect"} - set(COMMANDS)
"""What the cases use, or expect in the list of commands, and does not exist yet."""


def runs() -> list[Any]:
    """(case, run) for every command of every case."""
    out = []
    for line in (HERE / "cases.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        for position, run in enumerate([case, *case["more_runs"]]):
            if run["command"]:
                marks = [pytest.mark.slow] if case["inputs"].get("heavy") else []
                name = f"{case['id']}-{case['fault']}-{run['command'][1]}-{position}"
                out.append(pytest.param(case["id"], run, id=name, marks=marks))
    return out


def spelled(arguments: list[str]) -> list[str]:
    """`--log-probs COLUMN` is written `--col log_probs=COLUMN`."""
    out: list[str] = []
    words = iter(arguments)
    for word in words:
        role = word.removeprefix("--").replace("-", "_")
        out += ["--col", f"{role}={next(words)}"] if word.startswith("--") and role in ROLES else [word]
    return out


def in_this_process(run: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(folder)
    for name in SETTINGS_OF_TERMINALS:
        monkeypatch.delenv(name, raising=False)
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        code = main(spelled(run["command"][1:]))
    out, err = (stream.buffer.getvalue().decode() for stream in streams)
    return judge.Answer(code, out, err, folder)


def in_a_shell(run: dict[str, Any], folder: Path) -> Any:
    """Where a pipe, a wrapper or the environment matters."""
    ppocli = shlex.join([sys.executable, "-m", "ppocli"])
    line = run.get("shell") or shlex.join(["ppocli", *spelled(run["command"][1:])])
    line = re.sub(r"(?<![\w./])ppocli(?=\s)", lambda _: ppocli, line)
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    for name in SETTINGS_OF_TERMINALS:
        environment.pop(name, None)
    for name, value in (run.get("env") or {}).items():
        environment.pop(name, None) if value is None else environment.update({name: value})
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=120,
        check=False,
    )
    out = (folder / "out.txt").read_text() if "> out.txt" in line else done.stdout
    return judge.Answer(141 if done.returncode == -13 else done.returncode, out, done.stderr, folder)


@pytest.mark.parametrize(("case_id", "run"), runs())
def test_case(case_id: str, run: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = run["command"][1]
    listed = run.get("behaviour", {}).get("stdout_contains", [])
    for name in sorted(MISSING):
        if name == command or name in listed:
            pytest.skip(f"there is no command '{name}' yet")
    folder = tmp_path / case_id
    folder.mkdir()
    BUILDERS[case_id](str(folder))
    if run.get("shell") or run.get("env"):
        answer = in_a_shell(run, folder)
    else:
        answer = in_this_process(run, folder, monkeypatch)
    assert judge.faults(run, answer) == []
