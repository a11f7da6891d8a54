"""Flag over environment over file over default, for every command; and what is said about mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import reports

from ppocli.cli.app import COMMANDS
from ppocli.cli.settings import ONLY_FLAGS, kinds_of, kinds_of_all, variable_of
from ppocli.core.spec import LossSpec


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, text: str, name: str = "ppocli.toml") -> None:
    (folder / name).write_text(text)


def test_flag_environment_file_default(engine: Any, run: Any, folder: Path, monkeypatch: Any) -> None:
    def clip() -> float:
        assert run("eval", "x")[0] == 0
        return engine.calls[-1]["spec"].clip_low

    assert clip() == 0.2
    write(folder, "clip-eps = 0.3")
    assert clip() == 0.3
    monkeypatch.setenv("PPOCLI_CLIP_EPS", "0.4")
    assert clip() == 0.4
    assert run("eval", "x", "--clip-eps", "0.5")[0] == 0
    assert engine.calls[-1]["spec"].clip_low == 0.5
    monkeypatch.delenv("PPOCLI_CLIP_EPS")
    assert run("eval", "x", "--isolated")[0] == 0
    assert engine.calls[-1]["spec"].clip_low == 0.2
    monkeypatch.setenv("PPOCLI_ISOLATED", "1")
    assert clip() == 0.2


def test_every_kind_of_option_comes_from_a_file(engine: Any, run: Any, folder: Path) -> None:
    write(
        folder,
        'agg = "token-sum"\nthreads = 3\nallow-empty = true\nby = "total"\ndigits = 3\n'
        'bits = ["log_probs"]\nadv-norm-eps = 1\n[columns]\nmask = "m"\n[check]\nby = "file"',
    )
    assert run("eval", "x")[0] == 0
    call = engine.calls[-1]
    assert (call["spec"].agg, call["threads"], call["allow_empty"], call["by"]) == (
        "token-sum",
        3,
        True,
        "total",
    )
    assert (call["options"].columns, call["options"].bits) == ({"mask": "m"}, frozenset({"log_probs"}))
    assert call["spec"].adv_norm_eps == 1.0
    assert run("check", "x")[0] == 0
    assert (engine.calls[-1]["by"], engine.calls[-1]["spec"].agg) == ("file", "token-sum")


def test_config_names_a_file(engine: Any, run: Any, folder: Path, monkeypatch: Any) -> None:
    write(folder, "clip-eps = 0.3")
    write(folder, "clip-eps = 0.1", "other.toml")
    run("eval", "x", "--config", "other.toml")
    assert engine.calls[-1]["spec"].clip_low == 0.1
    monkeypatch.setenv("PPOCLI_CONFIG", "other.toml")
    run("eval", "x")
    assert engine.calls[-1]["spec"].clip_low == 0.1
    run("eval", "x", "--isolated")
    assert engine.calls[-1]["spec"].clip_low == 0.2
    code, _, err = run("eval", "x", "--isolated", "--config", "other.toml")
    assert (code, "--isolated reads no file" in err) == (2, True)
    monkeypatch.delenv("PPOCLI_CONFIG")
    code, _, err = run("eval", "x", "--config", "none.toml")
    assert (code, err) == (3, "error: cannot be read: No such file or directory\n  --> none.toml\n")


@pytest.mark.parametrize(
    ("text", "variables", "said"),
    [
        ('\nagg = "tokn-mean"', {}, ["--agg 'tokn-mean' is not known", "ppocli.toml:2", "did you mean"]),
        ("clip-eps = 7", {}, ["--clip-eps is a number between 0 and 1, not 7", "ppocli.toml:1"]),
        ("threads = 0", {}, ["--threads is a whole number of at least 1, not 0", "ppocli.toml:1"]),
        ("clip-eps = 'x'", {}, ["clip-eps: a number, not the text 'x'", "ppocli.toml:1"]),
        ("clip-epp = 1", {}, ["clip-epp: no such setting", "ppocli.toml:1", "did you mean 'clip-eps'?"]),
        ("format = 'jsn'", {}, ["--format 'jsn' is not known", "ppocli.toml:1"]),
        ("output = 'x'", {}, ["output: no such setting", "ppocli.toml:1"]),
        ("", {"CLIP_EPS": "7"}, ["--clip-eps is a number", "environment variable PPOCLI_CLIP_EPS"]),
        ("", {"AGG": "x"}, ["--agg 'x' is not known", "environment variable PPOCLI_AGG"]),
        ("", {"CLIP_EPS": "x"}, ["'x' is not a number", "environment variable PPOCLI_CLIP_EPS"]),
        ("", {"THREADS": "1.5"}, ["'1.5' is not a whole number", "environment variable PPOCLI_THREADS"]),
        ("", {"ASCII": "maybe"}, ["'maybe' is not true or false", "environment variable PPOCLI_ASCII"]),
        ("", {"ISOLATED": "2"}, ["'2' is not true or false", "environment variable PPOCLI_ISOLATED"]),
    ],
)
def test_wrong_values_name_their_place(
    engine: Any,
    run: Any,
    folder: Path,
    monkeypatch: Any,
    text: str,
    variables: dict[str, str],
    said: list[str],
) -> None:
    write(folder, text)
    for name, value in variables.items():
        monkeypatch.setenv(f"PPOCLI_{name}", value)
    for command in ("eval", "check"):
        code, out, err = run(command, "x")
        assert (code, out, engine.calls) == (2, "", [])
        lines = err.splitlines()
        assert lines[0].startswith(f"error: {said[0]}")
        if len(said) > 1:
            assert lines[1] == f"  --> {said[1]}"
        assert all(one in lines[2] for one in said[2:])


def test_a_flag_that_is_wrong_is_not_blamed_on_the_file(run: Any, folder: Path) -> None:
    write(folder, "clip-eps = 0.3")
    assert "ppocli.toml" not in run("eval", "x", "--clip-eps", "7")[2]


def limits(run: Any, *arguments: str) -> dict[str, str]:
    """Name and source of the limits that were judged."""
    _, out, err = run("check", "x", "-f", "json", *arguments)
    assert err == ""
    return {one["name"]: one["source"] for one in json.loads(out)["checks"] if one["kind"] != "findings"}


def test_limits_are_put_together_by_metric(run: Any, folder: Path, monkeypatch: Any) -> None:
    write(
        folder,
        "[check]\nmin-tokens = 3\n[check.max]\nclip_frac = 0.3\napprox_kl_k3 = 0.1\n"
        '[check.expect]\nclip_frac = "0.12~0.1"\n',
    )
    assert limits(run) == {
        "clip_frac <= 0.3": "ppocli.toml:4",
        "approx_kl_k3 <= 0.1": "ppocli.toml:5",
        "clip_frac = 0.12 +- 0.1": "ppocli.toml:7",
        "n_tokens >= 3": "ppocli.toml:2",
    }
    monkeypatch.setenv("PPOCLI_MAX", "approx_kl_k3=0.2 ess_frac=1")
    assert limits(run, "--max", "ess_frac=0.5", "--min-tokens", "4") == {
        "clip_frac <= 0.3": "ppocli.toml:4",
        "approx_kl_k3 <= 0.2": "environment variable PPOCLI_MAX",
        "ess_frac <= 0.5": "--max",
        "clip_frac = 0.12 +- 0.1": "ppocli.toml:7",
        "n_tokens >= 4": "--min-tokens",
    }
    assert limits(run, "--isolated", "--min-tokens", "4") == {
        "approx_kl_k3 <= 0.2": "environment variable PPOCLI_MAX",
        "ess_frac <= 1": "environment variable PPOCLI_MAX",
        "n_tokens >= 4": "--min-tokens",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[check.max]\naprox_kl_k3 = 1", "--max: metric 'aprox_kl_k3' is not known"),
        ("[check.max]\nclip_frac = nan", "--max clip_frac=nan: a limit must be finite, not nan"),
        ("[check.max]\nclip_frac = inf", "--max clip_frac=inf: a limit must be finite, not inf"),
        ("[check.expect]\nclip_frac = 1", "--expect takes METRIC=VALUE~TOLERANCE, not 'clip_frac=1'"),
        ("[check]\nselect = 'PPO9'", "--select: no finding has the code 'PPO9'"),
        ("[check]\nprofile = 'verk'", "--profile 'verk' is not known"),
        ("[check]\nskip-bad = true", "a gate judges every file, so it takes no --skip-bad"),
    ],
)
def test_wrong_limits_name_file_and_line(run: Any, folder: Path, text: str, said: str) -> None:
    write(folder, text)
    code, out, err = run("check", "x")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {said}\n  --> ppocli.toml:2\n")


def test_a_baseline_is_found_beside_its_file(engine: Any, run: Any, folder: Path, monkeypatch: Any) -> None:
    (folder / "deep").mkdir()
    write(folder, "[check]\nbaseline = 'base.json'\ntolerance = {clip_frac = '5%'}")
    (folder / "base.json").write_text(json.dumps(reports.report().to_dict()))
    monkeypatch.chdir(folder / "deep")
    assert run("check", "x")[0] == 0
    engine.answer = reports.report({"clip_frac": 0.2})
    assert run("check", "x")[0] == 1


def test_unknown_variables_are_said(run: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("PPOCLI_MAXX", "clip_frac=0")
    monkeypatch.setenv("PPOCLI_CACHE_DIR", "/x")
    monkeypatch.setenv("PPOCLI_SCAN", "1")  # of inspect: known, though not here
    code, _, err = run("check", "x")
    assert (code, err) == (
        0,
        "warning: environment variable PPOCLI_MAXX is not known; did you mean PPOCLI_MAX?\n",
    )


def shown(run: Any, *arguments: str) -> dict[str, tuple[Any, str]]:
    code, out, err = run("config", "show", "-f", "json", *arguments)
    assert (code, err) == (0, "")
    return {one["name"]: (one["value"], one["origin"]) for one in json.loads(out)["settings"]}


def test_config_show_gives_each_value_with_its_origin(run: Any, folder: Path, monkeypatch: Any) -> None:
    write(
        folder,
        '[project]\n[tool.ppocli]\nclip-eps = 0.1\n[tool.ppocli.columns]\nmask = "m"\n'
        '[tool.ppocli.check]\nmax.clip_frac = 0.3\nformat = "junit"\n',
        "pyproject.toml",
    )
    monkeypatch.setenv("PPOCLI_AGG", "token-sum")
    monkeypatch.setenv("PPOCLI_MIN", "ess_frac=0.3")
    got = shown(run)
    assert got["clip-eps"] == (0.1, "pyproject.toml:3")
    assert got["columns.mask"] == ("m", "pyproject.toml:5")
    assert got["agg"] == ("token-sum", "environment variable PPOCLI_AGG")
    assert got["clip-low"] == (None, "default")
    assert got["format"] == ("table", "default")
    assert got["check.format"] == ("junit", "pyproject.toml:8")
    assert got["check.max.clip_frac"] == ("0.3", "pyproject.toml:7")
    assert got["check.min.ess_frac"] == ("0.3", "environment variable PPOCLI_MIN")
    assert got["check.fail-on"] == ("error", "default")
    assert "check.clip-eps" not in got, "said once where commands agree"
    assert shown(run, "--isolated")["clip-eps"] == (None, "default")
    code, out, _ = run("config", "show")
    assert code == 0
    assert out.startswith("file: pyproject.toml\n\n")
    assert any(line.split() == ["clip-eps", "0.1", "pyproject.toml:3"] for line in out.splitlines())


def test_config_show_finds_the_mistakes_that_commands_would(run: Any, folder: Path) -> None:
    for text, line in (
        ("agg = 'x'", 1),
        ("[check]\nfail-on = 'x'", 2),
        ("[check.max]\nx = 1", 2),
        ("[inspect]\nscann = true", 2),
        ("format = 'x'", 1),
        ("\nworst = 1.5", 2),
    ):
        write(folder, text)
        code, out, err = run("config", "show")
        assert (code, out) == (2, "")
        assert f"--> ppocli.toml:{line}\n" in err
    # With the flags that may follow this is a gate.
    write(folder, "[check]\nfail-on = 'never'")
    assert shown(run)["check.fail-on"] == ("never", "ppocli.toml:2")


def test_every_option_can_be_set_and_is_shown(run: Any) -> None:
    names = set()
    for name in shown(run):
        command, _, option = name.partition(".")
        names.add(option if command in COMMANDS and option else name)
    for command, kinds in kinds_of_all().items():
        assert command in COMMANDS
        plain = {name for name, kind in kinds.items() if kind not in ("limits", "columns")}
        assert plain <= names
        assert not ONLY_FLAGS & kinds.keys()
    assert {"eval", "check", "drift", "inspect", "parity"} <= kinds_of_all().keys()
    assert kinds_of("explain") == kinds_of("config") == {}


def test_every_variable_reaches_typer(run: Any, engine: Any, monkeypatch: Any) -> None:
    for option, value in {
        "threads": "2",
        "format": "json",
        "by": "total",
        "quiet": "1",
        "ascii": "true",
    }.items():
        monkeypatch.setenv(variable_of(option), value)
    code, out, _ = run("eval", "x")
    assert (code, json.loads(out)["kind"]) == (0, "eval")
    assert (engine.calls[-1]["threads"], engine.calls[-1]["by"]) == (2, "total")


def test_a_setting_of_the_loss_may_come_from_a_variable(run: Any, engine: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("PPOCLI_SET", "dro_beta=0.5")
    monkeypatch.setenv("PPOCLI_OBJECTIVE", "dro")
    assert run("eval", "x")[0] == 0
    assert engine.calls[-1]["spec"] == LossSpec("dro", dro_beta=0.5)


def test_lists_in_variables_are_separated_by_blanks(run: Any, engine: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("PPOCLI_BITS", "log_probs old_log_probs")
    monkeypatch.setenv("PPOCLI_COL", "mask=m values=v")
    monkeypatch.setenv("PPOCLI_SELECT", "")
    assert run("check", "x")[0] == 0
    options = engine.calls[-1]["options"]
    assert (options.bits, options.columns) == ({"log_probs", "old_log_probs"}, {"mask": "m", "values": "v"})


@pytest.mark.parametrize("arguments", [["config"], ["config", "edit"], ["config", "show", "-f", "xml"]])
def test_config_takes_one_action(run: Any, arguments: list[str]) -> None:
    assert run(*arguments)[0] == 2
