from __future__ import annotations

from typing import Any

import pytest

from ppocli.cli.app import COMMANDS, build
from ppocli.cli.help import WIDEST

PANELS = ["Data", "Objective", "Audit", "Output", "Run"]


def parameters(name: str) -> list[Any]:
    application = build([name])
    return list(application.commands[name].params)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text_that_ends_with_a_full_stop(name: str) -> None:
    for parameter in parameters(name):
        assert parameter.help, parameter.name
        assert parameter.help.endswith("."), parameter.help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_help(run: Any, name: str) -> None:
    text = run(name, "--help")[1]
    for parameter in parameters(name):
        for word in parameter.opts if parameter.param_type_name == "option" else [parameter.metavar]:
            assert f" {word}" in text


def test_options_stand_under_their_panels_in_order(run: Any) -> None:
    text = run("eval", "--help")[1]
    places = [text.index(f"\n{panel}:\n") for panel in PANELS]
    assert places == sorted(places)
    for parameter in parameters("eval"):
        if parameter.param_type_name == "option":
            panel = PANELS.index(parameter.rich_help_panel)
            end = places[panel + 1] if panel + 1 < len(PANELS) else len(text)
            assert parameter.opts[-1] in text[places[panel] : end]


@pytest.mark.parametrize("columns", ["40", "80", "100", "300"])
def test_help_fits_the_width_and_breaks_no_option(
    run: Any, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = run("eval", "--help")[1]
    least = 2 + 28 + 2 + 24  # the names and the longest word of a text
    described = text.partition("Arguments:")[2]
    assert max(map(len, described.splitlines())) <= max(min(int(columns), WIDEST), least)
    assert "seq-mean-token-sum-norm" in text


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_is_plain_ascii(run: Any, monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    for key in ("GITHUB_ACTIONS", "FORCE_COLOR"):
        monkeypatch.setenv(key, "true")
    text = run(*([name] if name else []), "--help")[1]
    assert text.isascii()
    assert "\x1b" not in text


def test_stubs_have_no_options() -> None:
    application = build(["eval"])
    assert list(application.commands) == list(COMMANDS)
    assert [one.name for one in application.commands["schema"].params] == []
    assert len(application.commands["eval"].params) > 30
    assert set(build([]).commands) == set(COMMANDS)
