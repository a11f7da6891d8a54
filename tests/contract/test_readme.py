"""The README says what is true: its Python runs, its tables list what exists, its screen is the real one."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ppocli
from ppocli.cli.app import COMMANDS, main
from ppocli.core.metrics import METRICS
from ppocli.core.parity_report import KINDS
from ppocli.core.presets import FAMILIES, all_presets, preset
from ppocli.core.roles import ROLES
from ppocli.core.spec import AGGREGATIONS
from ppocli.errors import ExitCode

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON_BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", [one for one in PYTHON_BLOCKS if "import torch" not in one])
def test_python_of_the_readme_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    for written in tmp_path.glob("rollouts.*"):
        assert main(["eval", str(written), "-qq"]) == ExitCode.OK


def test_the_values_that_the_readme_gives_for_its_python_are_right() -> None:
    import numpy as np

    import ppocli

    assert ppocli.ppo_clip_loss(np.log(0.4), np.log(0.2), 2.0, eps_clip=0.2) == pytest.approx(-2.4, abs=1e-15)


def test_the_example_files_have_the_loss_worked_out_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ppocli

    monkeypatch.chdir(tmp_path)
    for code in PYTHON_BLOCKS:
        if "rollouts." in code:
            exec(compile(code, "README.md", "exec"), {})
    # Ratios e^0.1, e^-0.1, e^0.1, all inside [0.8, 1.2]; advantages 0.5, 0.5, -1.
    by_hand = -(0.5 * 1.1051709180756477 + 0.5 * 0.9048374180359595 - 1.1051709180756477) / 3
    assert ppocli.evaluate("rollouts.parquet").metrics["policy_loss"] == pytest.approx(by_hand, abs=1e-15)
    # The same numbers as float32, which moves them by up to 1e-7.
    assert ppocli.evaluate("rollouts.npz").metrics["policy_loss"] == pytest.approx(by_hand, abs=1e-7)


def test_every_command_is_in_the_table_and_no_other() -> None:
    listed = re.findall(r"^\| `ppocli ([a-z]+)[^`]*` \|", README, re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


def test_every_framework_is_in_the_table_with_its_version_and_variants() -> None:
    section = README.split("## Frameworks")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z][a-z0-9-]*)` \| ([^|]+) \| ([^|]+) \|([^|]*)\|$", section, re.MULTILINE)
    assert [row[0] for row in rows] == list(FAMILIES)
    for name, title, version, variants in rows:
        one = preset(name)
        assert (title, version) == (one.title, one.version)
        known = [other.name for other in all_presets() if other.name.startswith(f"{name}:")]
        assert [f"{name}{variant}" for variant in re.findall(r"`([^`]+)`", variants)] == known


def test_every_exit_code_is_in_the_table() -> None:
    section = README.split("## Exit codes")[1].split("\n## ")[0]
    listed = {
        int(n) for row in re.findall(r"^\| ([\d, ]+) \|", section, re.MULTILINE) for n in row.split(",")
    }
    assert listed == {int(code) for code in ExitCode}


def test_names_in_the_readme_exist() -> None:
    metrics = README.split("## The definitions in short")[1].split("Aggregations:")[0]
    for name in re.findall(r"^\| `([a-z_0-9]+)`", metrics, re.MULTILINE):
        assert name in METRICS
    for name in AGGREGATIONS:
        assert f"`{name}`" in README
    for name in ROLES:
        assert f"`{name}`" in README or name == "rollout_log_probs"


def test_options_in_the_readme_exist(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        main([name, "--help"])
    help_text = capsys.readouterr().out
    for option in set(re.findall(r"`(--[a-z-]+)", README)):
        assert option in help_text or option == "--list", option


def test_the_screen_is_the_real_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.search(r"^```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert shown is not None
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["eval", "sample_data/healthy.parquet"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith(shown[1].rstrip("\n") + "\n")


def test_the_two_lines_to_paste_stand_alone() -> None:
    fenced = re.findall(r"^```([a-z]*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    blocks = [text for language, text in fenced if not language]
    runs = [one for one in blocks if "sample_data" in one]
    tests = [one for one in blocks if "pytest" in one]
    assert [len(one.strip().splitlines()) for one in (*runs, *tests)] == [1, 1]
    assert "pytest" not in README.split(tests[0])[0], "no line above mentions the tests' command"
    assert sys.version_info >= (3, 11)


def test_the_names_of_the_frameworks_are_those_of_the_presets_and_equal_what_the_table_says() -> None:
    section = README.split("## Frameworks")[1].split("\n## ")[0].split("| framework | policy loss |")[1]
    rows = re.findall(r"^\| ([a-z][a-z0-9-]*) \|(.*)\|$", section, re.MULTILINE)
    assert [name for name, _ in rows] == list(FAMILIES)
    sample = str(ROOT / "sample_data" / "healthy.parquet")
    own = ppocli.evaluate(sample).metrics
    for one, (name, cells) in zip(ppocli.parity_files([sample]).frameworks, rows, strict=True):
        assert one.name == name
        for kind, cell in zip(KINDS, cells.split("|"), strict=True):
            found = re.fullmatch(r" `([^`]+)`(?: = (-?)([a-z_0-9]+)(/2)?)? ", cell)
            if found is None:
                assert (cell.strip(), kind in one.metrics) == ("", False), (name, kind)
                continue
            metric = one.metrics[kind]
            assert metric.name == found[1]
            if found[3] is not None:
                expected = own[found[3]]
                assert expected is not None
                factor = (-1 if found[2] else 1) * (0.5 if found[4] else 1)
                assert metric.value == pytest.approx(factor * expected, rel=1e-9)


def test_links_inside_the_page_have_a_target() -> None:
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    targets = {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings}
    targets |= set(re.findall(r'<a id="([^"]+)">', README))
    links = set(re.findall(r"\]\(#([^)]+)\)", README))
    assert links
    assert links <= targets


def test_what_frameworks_make_of_one_batch_is_as_far_apart_as_it_says() -> None:
    said = re.search(
        r'`(sample_data/\S+)` has a "clip fraction" of (\S+) or (\S+) and an "approx KL" of (\S+) or (\S+),',
        README,
    )
    assert said is not None
    frameworks = ppocli.parity_files([str(ROOT / said[1])]).frameworks
    for kind, low, high in (("clip fraction", said[2], said[3]), ("approx KL", said[4], said[5])):
        values = [one.metrics[kind].value for one in frameworks if kind in one.metrics]
        known = [value for value in values if value is not None]
        assert (f"{min(known):.2f}", f"{max(known):.2f}") == (low, high.removeprefix("+"))


def test_the_picture_shows_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = ElementTree.parse(ROOT / ".github" / "screenshot.svg").getroot()
    lines = ["".join(one.itertext()) for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    shown = " ".join(" ".join(lines).split())
    command = re.search(r"\$ (ppocli check .*?) sample_data/overflow.npz 1,000", shown)
    assert command is not None
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    assert main(command[1].split()[1:]) == ExitCode.GATE_FAILED
    printed = " ".join(capsys.readouterr().out.split())
    assert shown.endswith(printed)
    assert "(.github/screenshot.svg)" in README
