"""`--engine`: refused before anything is read, in words, where it cannot be had."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from ppocli.cli.app import main
from ppocli.engine.ray_engine import INSTALL, Cluster
from ppocli.errors import UsageProblem

COMMANDS = ("eval", "check", "audit", "drift")


@pytest.mark.parametrize("command", COMMANDS)
def test_without_the_extra_the_install_line_is_given(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else found(name, *rest)
    )
    # The path does not exist: a usage error is found first.
    assert main([command, "no-such.parquet", "--engine", "ray"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "--engine ray needs the package ray" in err
    assert INSTALL in err


def test_a_cluster_says_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageProblem) as caught, Cluster() as cluster:
        list(cluster.results("entry", None, [], lambda: None))
    assert caught.value.hint == "pip install 'ppocli[ray]'"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "spark"], "spark"),
        (["--ray-address", "auto"], "--ray-address is for --engine ray"),
    ],
    ids=["unknown", "address"],
)
def test_what_makes_no_sense_is_refused(
    command: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "no-such.parquet", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "-"], "standard input"),
        (["audit", "-"], "standard input"),
        (["drift", "sample_data", "sample_data"], "side by side"),
        (["check", "sample_data", "--by", "step"], "--by step"),
        (["eval", "sample_data", "--micro-batch", "4"], "--micro-batch"),
    ],
    ids=lambda one: " ".join(one[:1]) if isinstance(one, list) else "",
)
def test_what_needs_one_process_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: found("json") if name == "ray" else found(name, *rest),
    )
    assert main([*arguments, "--engine", "ray"]) == 2
    assert message in capsys.readouterr().err
