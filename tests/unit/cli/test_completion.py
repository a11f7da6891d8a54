"""What is offered to a shell that completes a command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from contract.command import environment

from ppocli.cli.completion import completion_of, typed_words
from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.core.metrics import METRICS
from ppocli.core.precision import PRECISIONS
from ppocli.core.presets import all_presets
from ppocli.core.roles import ROLES
from ppocli.core.rules import RULES

README = Path(__file__).parents[3] / "README.md"


@pytest.fixture
def offered(run: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask as bash does: the words so far, the last of which is being typed."""

    def ask(line: str) -> list[str]:
        monkeypatch.setenv("_PPOCLI_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        code, out, err = run()
        assert (code, err) == (0, "")
        return out.split()

    return ask


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ppocli ev", ["eval"]),
        ("ppocli c", ["check", "convert", "config"]),
        ("ppocli eval --like", ["--like"]),
        ("ppocli eval --like ", [one.name for one in all_presets()]),
        ("ppocli eval --col ", [f"{role}=" for role in ROLES]),
        ("ppocli eval --col old_l", ["old_log_probs="]),
        ("ppocli drift --a rollout", ["rollout_log_probs"]),
        ("ppocli eval --sort ", list(METRICS)),
        ("ppocli check --min ", [f"{m}=" for m in METRICS] + [f"drift.{m}=" for m in DRIFT_METRICS]),
        ("ppocli check --max clip_frac=0.2 --tolerance ess", ["ess_frac="]),
        ("ppocli check --select PPO2", [code for code in RULES if code.startswith("PPO2")]),
        # A gate never sees those of drift.
        ("ppocli check --ignore PPO5", []),
        ("ppocli explain PPO50", [code for code in RULES if code.startswith("PPO50")]),
        ("ppocli audit --formats float32,int8", ["float32,int8", "float32,int8_per_sequence"]),
        ("ppocli audit --formats ", list(PRECISIONS)),
        ("ppocli eval --by ", ["file", "total", "step"]),
        ("ppocli eval --color n", ["never"]),
        ("ppocli eval -f js", ["json", "jsonl"]),
        ("ppocli check --format gi", ["github"]),
        ("ppocli convert --format h", []),
        ("ppocli env -f ", ["table", "json"]),
        ("ppocli config show --format j", ["json"]),
        ("ppocli eval --adv-norm ", ["none", "batch", "group"]),
        ("ppocli eval --set gspo", ["gspo_token_gradient="]),
        ("ppocli parity --only sb", ["sb3"]),
        ("ppocli check --profile sl", ["slime"]),
        ("ppocli drift --key sequence_id,st", ["sequence_id,step"]),
        ("ppocli synth --pathology idle", ["idle-clip"]),
        # The shell itself completes files, and columns are not known.
        ("ppocli eval READ", []),
        ("ppocli eval --output READ", []),
        ("ppocli eval --col mask=m", []),
        ("ppocli eval --clip-eps 0", []),
        ("ppocli nothing --like v", []),
    ],
)  # fmt: skip
def test_words(offered: Any, line: str, words: list[str]) -> None:
    assert offered(line) == words


def test_every_option_of_a_few_words_offers_them() -> None:
    for metavar, words in (("auto|always|never", ["auto", "always", "never"]), ("none|N|a:B", ["none"])):
        complete = completion_of("--x", metavar)
        assert complete is not None
        assert complete("") == words
    for metavar in ("FILE", "X", "A|B", "show", "KEY=VALUE"):
        assert completion_of("--x", metavar) is None


def test_the_line_of_every_shell_is_understood() -> None:
    assert typed_words({"COMP_WORDS": "ppocli eval\n--like v", "COMP_CWORD": "3"}) == ["eval", "--like", "v"]
    assert typed_words({"_TYPER_COMPLETE_ARGS": "ppocli eval "}) == ["eval"]
    assert typed_words({}) == []


def test_a_script_for_the_shell_is_shown() -> None:
    import subprocess

    done = subprocess.run(
        [sys.executable, "-m", "ppocli"],
        capture_output=True,
        env=environment(_PPOCLI_COMPLETE="source_bash"),
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"complete -o default -F _ppocli_completion ppocli" in done.stdout
