"""Files with settings: which one is found, what may stand in it, and which line is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ppocli.config import ConfigFile, environment_name, find, read, settings_of
from ppocli.errors import InputError, UsageProblem

EVAL = {
    "clip-eps": "number",
    "agg": "text",
    "threads": "whole",
    "ascii": "flag",
    "col": "columns",
    "bits": "words",
}
CHECK = {**EVAL, "max": "limits", "baseline": "file", "select": "words", "min-tokens": "whole"}
COMMANDS: Any = {"eval": EVAL, "check": CHECK, "drift": {"tis-cap": "number"}}


def parsed(text: str, path: Path, name: str = "ppocli.toml") -> ConfigFile:
    file = path / name
    file.write_text(text, encoding="utf-8")
    made = read(file)
    assert made is not None
    return made


def values(text: str, path: Path, command: str = "check", **more: Any) -> dict[str, Any]:
    made = settings_of(parsed(text, path, **more), command, COMMANDS[command], lambda: COMMANDS)
    return {name: value for name, (value, _) in made.items()}


def test_the_nearest_file_is_taken_and_the_repository_is_the_end(tmp_path: Path) -> None:
    deep = tmp_path / "outer" / "repository" / "a" / "b"
    deep.mkdir(parents=True)
    outer, repository = tmp_path / "outer", tmp_path / "outer" / "repository"
    (outer / "ppocli.toml").write_text("clip-eps = 0.1")
    found = find(deep)
    assert found is not None
    assert found.path == outer / "ppocli.toml"
    (repository / ".git").mkdir()
    assert find(deep) is None
    (repository / "pyproject.toml").write_text("[tool.ppocli]\nclip-eps = 0.2")
    made = find(deep)
    assert made is not None
    assert (made.path, made.prefix, made.values) == (
        repository / "pyproject.toml",
        ("tool", "ppocli"),
        {"clip-eps": 0.2},
    )
    (repository / "ppocli.toml").write_text("")
    made = find(deep)
    assert made is not None
    assert made.path.name == "ppocli.toml", "beside a pyproject.toml, ppocli's own file wins"


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("[project]\nname = 'ppocli'", False),
        ("[tool.ppocli2]\nx = 1", False),
        ("# [tool.ppocli]\n[tool.ruff]\nline-length = 1", False),
        ("[tool]\nruff.x = 1", False),
        ("[tool.ppocli]", True),
        ("[ tool . 'ppocli' ]", True),
        ("[tool.ppocli.check]\nmin-tokens = 1", True),
        ("[tool]\nppocli.clip-eps = 0.1", True),
        ("tool.ppocli.clip-eps = 0.1", True),
    ],
)
def test_a_project_file_counts_where_it_has_the_table(tmp_path: Path, text: str, has: bool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text(text)
    assert (find(tmp_path) is not None) == has


def test_a_broken_project_file_of_others_is_none_of_our_business(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text("[project\n")
    assert find(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text("[tool.ppocli]\nclip-eps = \n")
    with pytest.raises(UsageProblem, match="line 2") as caught:
        find(tmp_path)
    assert caught.value.where == str(tmp_path / "pyproject.toml")


def test_a_file_that_was_asked_for_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff")
    with pytest.raises(UsageProblem, match="not UTF-8"):
        read(tmp_path / "binary.toml")
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]")
    with pytest.raises(UsageProblem, match=r"there is no table \[tool.ppocli\]"):
        read(tmp_path / "pyproject.toml")
    (tmp_path / "pyproject.toml").write_text("[tool]\nppocli = 3")
    with pytest.raises(UsageProblem, match=r"there is no table \[tool.ppocli\]"):
        read(tmp_path / "pyproject.toml")


TEXT = """\
# comment = 1
clip-eps = 1
bits = "old_log_probs"
agg = 'token-sum'

[columns]
"old_log_probs" = "logp.old"
mask = "m"

[check]
threads = 2
baseline = "base/base.json"
select = [
  "PPO1",
  "PPO3",
]
max.clip_frac = 0.3
max . "policy_loss_by_agg.token-mean" = 1
max.drift.diff_mean = "1e-3"

[ drift ]
tis-cap = 2
"""


def test_values_come_as_options_take_them(tmp_path: Path) -> None:
    got = values(TEXT, tmp_path)
    limits = got.pop("max")
    assert got == {
        "clip-eps": 1.0,
        "bits": ["old_log_probs"],
        "agg": "token-sum",
        "col": ["old_log_probs=logp.old", "mask=m"],
        "threads": 2,
        "baseline": str(tmp_path / "base" / "base.json"),
        "select": ["PPO1", "PPO3"],
    }
    assert isinstance(got["clip-eps"], float)
    assert [(pair, place.rpartition(":")[2]) for pair, place in limits] == [
        ("clip_frac=0.3", "17"),
        ("policy_loss_by_agg.token-mean=1", "18"),
        ("drift.diff_mean=1e-3", "19"),
    ]
    assert values(TEXT, tmp_path, "eval") == {
        "clip-eps": 1.0,
        "bits": ["old_log_probs"],
        "agg": "token-sum",
        "col": ["old_log_probs=logp.old", "mask=m"],
    }
    assert values(TEXT, tmp_path, "drift") == {"tis-cap": 2.0}


def test_a_command_s_table_wins_over_the_top(tmp_path: Path) -> None:
    text = 'agg = "token-sum"\nascii = true\n[check]\nagg = "group-mean"'
    assert values(text, tmp_path) == {"agg": "group-mean", "ascii": True}
    assert values(text, tmp_path, "eval") == {"agg": "token-sum", "ascii": True}


@pytest.mark.parametrize(
    ("text", "line", "said", "hint"),
    [
        ("\nclip-epp = 1", 2, "clip-epp: no such setting", "did you mean 'clip-eps'?"),
        ("clip_eps = 1", 1, "clip_eps: no such setting", "did you mean 'clip-eps'?"),
        ("xyzzy = 1", 1, "xyzzy: no such setting", "'ppocli config show' lists all settings"),
        ("[chekc]\nmin-tokens = 1", 1, "chekc: no such setting", "did you mean 'check'?"),
        (
            "agg = 'x'\n[check]\n\nmin-token = 1",
            4,
            "[check] min-token: no such setting",
            "did you mean 'min-tokens'?",
        ),
        ("[check]\ncol = 'x'", 2, "[check] col: no such setting", None),
        ("check = 3", 1, "check: a table, not 3", None),
        (
            "[columns]\nold_log_prob = 'x'",
            2,
            "[columns] old_log_prob: no such role",
            "did you mean 'old_log_probs'?",
        ),
        ("[columns]\nmask = 1", 2, "[columns] mask: the name of a column, not 1", None),
        ("columns = 'x'", 1, "columns: a table, not the text 'x'", None),
        ("clip-eps = '0.2'", 1, "clip-eps: a number, not the text '0.2'", None),
        ("clip-eps = true", 1, "clip-eps: a number, not true", None),
        ("threads = 1.5", 1, "threads: a whole number, not 1.5", None),
        ("threads = true", 1, "threads: a whole number, not true", None),
        ("ascii = 1", 1, "ascii: true or false, not 1", None),
        ("agg = ['x']", 1, "agg: text, not a list", None),
        ("agg = 2020-01-01", 1, "agg: text, not a date or time", None),
        ("bits = [1]", 1, "bits: a list of words, not a list with something else", None),
        ("[check]\nbaseline = 1", 2, "[check] baseline: the path of a file, not 1", None),
        (
            "[check]\nmax = 0.3",
            2,
            "[check] max: a table of metrics, not 0.3",
            "for example: {approx_kl_k3 = 0.05}",
        ),
        ("[check.max]\n\nclip_frac = [1]", 3, "[check.max] clip_frac: a number or text, not a list", None),
        ("[check]\nmax = {clip_frac = true}", 2, "[check.max] clip_frac: a number or text, not true", None),
    ],
)
def test_mistakes_name_key_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int, said: str, hint: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageProblem) as caught:
        values(text, tmp_path)
    assert (caught.value.message, caught.value.where) == (said, f"ppocli.toml:{line}")
    if hint is not None:
        assert caught.value.hint == hint


def test_in_a_project_file_the_whole_name_of_the_table_is_shown(tmp_path: Path) -> None:
    text = "[project]\nname = 'x'\n\n[tool.ppocli]\nagg = 'x'\n[tool.ppocli.check]\nmin-token = 4\n"
    with pytest.raises(UsageProblem) as caught:
        values(text, tmp_path, name="pyproject.toml")
    assert caught.value.message == "[tool.ppocli.check] min-token: no such setting"
    assert caught.value.where == f"{tmp_path / 'pyproject.toml'}:7"


def test_lines_are_those_of_the_keys_and_not_of_look_alikes(tmp_path: Path) -> None:
    text = 'agg = """\nthreads = 9\n"""\n"threads" = 2\n[other."a.b"]\n[[list]]\nx=1\n'
    file = parsed(text, tmp_path)
    assert file.where("agg").endswith("ppocli.toml:1")
    assert file.where("other", "a.b").endswith("ppocli.toml:5")
    assert file.where("other", "a.b", "inside").endswith("ppocli.toml:5"), "else the table around it"
    assert file.where("nowhere").endswith("ppocli.toml")


def test_other_tables_are_only_looked_up_where_a_key_is_not_known(tmp_path: Path) -> None:
    def never() -> Any:
        raise AssertionError

    file = parsed("agg = 'x'\n[columns]\nmask = 'm'\n[check]\nmin-tokens = 1", tmp_path)
    assert settings_of(file, "check", CHECK, never)["min-tokens"][0] == 1  # type: ignore[arg-type]


def test_names_of_variables() -> None:
    assert environment_name("clip-eps") == "PPOCLI_CLIP_EPS"
