"""`ppocli audit`: what reaches the engine, what comes out, and the exit codes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.cli.app import main

STEPS = {
    "log_probs": [-20.07, -12.03, -5.02, -1.004, -0.3, -23.93],
    "old_log_probs": [-20.0, -12.0, -5.0, -1.0, -0.3, -24.07],
    "advantages": [1.0] * 6,
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file whose log-probs bfloat16 cannot tell apart."""
    pq.write_table(pa.table(STEPS), tmp_path / "a.parquet")
    return str(tmp_path / "a.parquet")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("NO_COLOR", "FORCE_COLOR", "PPOCLI_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["audit", *arguments])
        captured = capsys.readouterr()
        err = "".join(line for line in captured.err.splitlines(True) if "compiling" not in line)
        return code, captured.out, err

    return run


def test_the_document(call: Any, path: str) -> None:
    code, out, err = call(path, "-f", "json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["kind"], document["status"], document["exit_code"]) == ("audit", "ok", 0)
    assert list(document["audit"]) == ["float32", "bfloat16", "float16"]
    assert {key: document["settings"][key] for key in ("formats", "accumulate", "loss_tolerance")} == {
        "formats": ["float32", "bfloat16", "float16"],
        "accumulate": "float32",
        "loss_tolerance": 1e-3,
    }
    narrow = document["audit"]["bfloat16"]["storage"]
    assert narrow["clip_flips"] == 1
    # exp(0.14) is within the interval, exp(0.25) is not.
    assert narrow["worst_flip"] == {
        "where": {"path": path, "row": 5},
        "direction": "on",
        "ratio": pytest.approx(math.exp(0.25)),
        "reference_ratio": pytest.approx(math.exp(0.14)),
    }
    assert document["metrics"]["policy_loss"] == pytest.approx(-1.004886635827072, rel=1e-9)


def test_the_options_reach_the_engine(call: Any, path: str) -> None:
    options = ["--formats", "tf32, int8", "--accumulate", "pairwise", "--loss-tolerance", "0.5"]
    options += ["--with-advantages", "--clip-high", "0.28", "--dual-clip", "3", "--fail-on", "never"]
    document = json.loads(call(path, "-f", "json", *options)[1])
    settings = document["settings"]
    assert settings["formats"] == list(document["audit"]) == ["tf32", "int8"]
    assert (settings["accumulate"], settings["loss_tolerance"]) == ("pairwise", 0.5)
    assert (settings["with_advantages"], settings["clip_high"], settings["dual_clip"]) == (True, 0.28, 3.0)


@pytest.mark.parametrize(("fail_on", "code"), [("never", 0), ("warning", 1), ("error", 1)])
def test_the_gate(call: Any, path: str, fail_on: str, code: int) -> None:
    got, out, err = call(path, "--fail-on", fail_on, "-f", "json")
    assert got == code
    document = json.loads(out)
    assert (document["exit_code"], document["status"]) == (code, "failed" if code else "ok")
    assert document["verdict"] == "error"
    assert err == (f"failed: the verdict is error, and --fail-on is {fail_on}\n" if code else "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--formats", "bf16"], "--formats: format 'bf16' is not known\nhelp: did you mean 'bfloat16'?"),
        (["--accumulate", "fp32"], "--accumulate 'fp32' is not known"),
        (["--fail-on", "warn"], "did you mean 'warning'?"),
        (["--loss-tolerance", "-1"], "--loss-tolerance is a positive number, not -1"),
        (["--agg", "token-sum"], "--agg token-sum: an audit compares the token mean of the loss"),
        (["--value-clip", "0.2"], "--value-clip is about terms that are not audited"),
        (["--micro-batch", "4"], "--micro-batch is about terms that are not audited"),
        (["--worst", "3"], "no such option: --worst"),
        (["--objective", "gspo"], "--objective gspo cannot be audited"),
        (["--rollout-is", "token"], "--rollout-is token cannot be audited"),
        (["--adv-norm", "group"], "--adv-norm group cannot be audited"),
        (["--like", "verl:gspo"], "--objective gspo cannot be audited"),
        (["--like", "trl:grpo"], "--agg seq-mean-token-mean: an audit compares the token mean of the loss"),
        (["--set", "value_clip=0.2"], "--value-clip is about terms that are not audited"),
    ],
)
def test_wrong_usage_is_found_before_anything_is_read(call: Any, options: list[str], words: str) -> None:
    code, out, err = call("/nowhere/a.parquet", *options)
    assert (code, out) == (2, "")
    assert words in err


def test_inputs_that_are_not_there(call: Any, tmp_path: Path) -> None:
    assert call(str(tmp_path / "a.parquet"))[0] == 3
    assert call(str(tmp_path / "*.parquet"))[0] == 5


def test_an_input_without_a_valid_token(call: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({**STEPS, "mask": [0] * 6}), tmp_path / "a.parquet")
    code, out, err = call(str(tmp_path / "a.parquet"), "--fail-on", "error", "-f", "json")
    assert code == 5  # rather than the gate
    assert json.loads(out)["exit_code"] == 5
    assert "no valid token" in err


def test_the_same_numbers_in_every_format(call: Any, path: str, tmp_path: Path) -> None:
    exports = [
        word
        for suffix in ("json", "csv", "md", "jsonl")
        for word in ("--export", str(tmp_path / f"x.{suffix}"))
    ]
    code, screen, _ = call(path, *exports, "--digits", "17")
    assert code == 0
    value = json.loads((tmp_path / "x.json").read_text())["audit"]["bfloat16"]["storage"]["approx_kl_k3"]
    for text in (screen, *(tmp_path.joinpath(f"x.{suffix}").read_text() for suffix in ("csv", "jsonl"))):
        assert repr(value) in text
    assert (
        repr(value).replace("-", "\\-") in (tmp_path / "x.md").read_text()
        or repr(value) in (tmp_path / "x.md").read_text()
    )


def test_eval_makes_the_same_audit_in_passing(
    path: str, call: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def evaluate(*options: str) -> tuple[int, str]:
        code = main(["eval", path, *options])
        return code, capsys.readouterr().out

    document = json.loads(evaluate("--audit", "-f", "json")[1])
    assert document["kind"] == "eval"
    assert document["audit"] == json.loads(call(path, "-f", "json")[1])["audit"]
    assert document["settings"]["formats"] == ["float32", "bfloat16", "float16"]
    chosen = json.loads(evaluate("--audit-formats", "int8,tf32", "-f", "json")[1])
    assert list(chosen["audit"]) == ["int8", "tf32"]
    plain = json.loads(evaluate("-f", "json")[1])
    assert "audit" not in plain
    assert plain["metrics"] == document["metrics"]
    screen = evaluate("--audit")[1]
    assert "bfloat16 storage" in screen
    assert "recommendation: store log-probs as" in screen
    assert evaluate("--audit-formats", "x")[0] == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--objective", "cispo"], "--objective cispo cannot be audited"),
        (["--rollout-is", "geometric"], "--rollout-is geometric cannot be audited"),
        (["--rollout-rs", "token_k1:0.5_2"], "--rollout-rs token_k1:0.5_2 cannot be audited"),
        (["--adv-norm", "minibatch:2"], "--adv-norm minibatch:2 cannot be audited"),
        (
            ["--adv-norm", "batch", "--adv-norm-unit", "sequence"],
            "--adv-norm-unit sequence cannot be audited",
        ),
        (["--set", "adv_level=sequence"], "--set adv_level=sequence cannot be audited"),
        (["--set", "off_policy_threshold=0.1"], "--set off_policy_threshold=0.1 cannot be audited"),
        (["--like", "openrlhf:gspo"], "--objective gspo cannot be audited"),
    ],
)
def test_eval_refuses_to_audit_what_the_kernels_do_not_compute(
    capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["eval", "/nowhere/a.parquet", "--audit", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {words}: an audit recomputes the objective ppo")
    assert main(["eval", "/nowhere/a.parquet", *options]) == 3


def test_a_framework_gives_its_loss_and_its_columns(call: Any, tmp_path: Path) -> None:
    renamed = {"old_log_probs": STEPS["old_log_probs"], "advantages": STEPS["advantages"]}
    pq.write_table(pa.table({**renamed, "log_prob": STEPS["log_probs"]}), tmp_path / "a.parquet")
    code, out, _ = call(str(tmp_path / "a.parquet"), "--like", "verl", "--clip-low", "0.1", "-f", "json")
    assert code == 0
    document = json.loads(out)
    settings = document["settings"]
    assert (settings["dual_clip"], settings["clip_low"], settings["clip_high"]) == (3.0, 0.1, 0.2)
    assert settings["value_clip"] is None
    assert "like" not in document


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_settings_from_a_file_and_from_variables(
    call: Any, path: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ppocli.toml").write_text(
        "clip-high = 0.28\nvf-coef = 0.5\nmicro-batch = 2\n[audit]\nformats = 'bfloat16, int8'\n"
        "accumulate = 'same'\nloss-tolerance = 0.5\nwith-advantages = true\nfail-on = 'error'\n"
        "[eval]\naudit = true\naudit-formats = 'tf32'\n"
    )
    code, out, _ = call(path, "-f", "json")
    settings = json.loads(out)["settings"]
    assert code == 1
    assert (settings["formats"], settings["accumulate"]) == (["bfloat16", "int8"], "same")
    assert (settings["loss_tolerance"], settings["with_advantages"]) == (0.5, True)
    assert (settings["fail_on"], settings["clip_high"]) == ("error", 0.28)
    # Terms that an audit does not have are for other commands.
    assert (settings["vf_coef"], settings["micro_batch"]) == (None, None)
    monkeypatch.setenv("PPOCLI_FORMATS", "tf32")
    monkeypatch.setenv("PPOCLI_KL_COEF", "0.1")
    code, out, _ = call(path, "-f", "json", "--accumulate", "pairwise")
    settings = json.loads(out)["settings"]
    assert (code, settings["formats"], settings["accumulate"]) == (0, ["tf32"], "pairwise")
    assert call(path, "--kl-coef", "0.1")[0] == 2
    assert main(["eval", path, "-f", "json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["audit"]) == ["tf32"]


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("[audit]\nformats = 'bf16'", "--formats: format 'bf16' is not known", 2),
        ("[audit]\naccumulate = 'x'", "--accumulate 'x' is not known", 2),
        ("[audit]\nloss-tolerance = 0", "--loss-tolerance is a positive number, not 0", 2),
        ("[audit]\nfail-on = 'x'", "--fail-on 'x' is not known", 2),
        ("[audit]\nformat = 'x'", "--format 'x' is not known", 2),
        ("[audit]\nformatz = 'x'", "[audit] formatz: no such setting", 2),
        ("\nobjective = 'gspo'", "--objective gspo cannot be audited", 2),
        ("agg = 'token-sum'", "--agg token-sum: an audit compares the token mean", 1),
    ],
)
def test_wrong_settings_name_their_place(
    call: Any, path: str, folder: Path, text: str, said: str, line: int
) -> None:
    (folder / "ppocli.toml").write_text(text)
    code, out, err = call(path)
    assert (code, out) == (2, "")
    assert said.removeprefix("[audit] ") in err
    assert f"--> ppocli.toml:{line}\n" in err


def test_config_show_checks_the_options_of_audits(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ppocli.toml").write_text("[audit]\nformats = 'bf16'")
    assert main(["config", "show"]) == 2
    assert "--> ppocli.toml:2\n" in capsys.readouterr().err
    (folder / "ppocli.toml").write_text("objective = 'gspo'\n[audit]\nformats = 'int8'\n[eval]\naudit = true")
    assert main(["config", "show", "-f", "json"]) == 0
    shown = {one["name"]: one for one in json.loads(capsys.readouterr().out)["settings"]}
    assert (shown["audit.formats"]["value"], shown["audit.formats"]["origin"]) == ("int8", "ppocli.toml:3")
    assert (shown["audit"]["value"], shown["audit"]["origin"]) == (True, "ppocli.toml:5")


def test_audit_is_an_option_and_a_table(
    call: Any, path: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ppocli.toml").write_text("audit = true")
    assert call(path, "-f", "json")[0] == 0
    assert main(["eval", path, "-f", "json"]) == 0
    assert "audit" in json.loads(capsys.readouterr().out)
    (folder / "ppocli.toml").write_text("[audit]\nformats = 'int8'")
    assert main(["eval", path, "-f", "json"]) == 0
    assert "audit" not in json.loads(capsys.readouterr().out)


def test_check_judges_a_report_with_an_audit_and_takes_it_for_a_baseline(
    call: Any, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, audited = str(tmp_path / "eval.json"), str(tmp_path / "audit.json")
    assert main(["eval", path, "--audit", "--export", saved]) == 0
    assert call(path, "--export", audited)[0] == 0
    limits = ["--max", "clip_frac=0.5", "-f", "json"]
    assert main(["check", saved, *limits]) == 0
    capsys.readouterr()
    baseline = ["--baseline", saved, "--tolerance", "clip_frac=0"]
    assert main(["check", path, *limits, *baseline]) == 0
    assert "audit" not in json.loads(capsys.readouterr().out)
    assert main(["check", audited, *limits]) == 3
    assert "a document of kind 'audit' cannot be judged" in capsys.readouterr().err


def test_what_storage_could_not_be_audited_for_is_not_called_a_flip(call: Any, path: str) -> None:
    code, out, _ = call(path, "--formats", "int8_per_sequence")
    assert code == 0
    notes = [line for line in out.splitlines() if line.startswith("int8_per_sequence  float")]
    assert len(notes) == 2
    assert all(line.endswith("not evaluated: storage is not audited") for line in notes)
