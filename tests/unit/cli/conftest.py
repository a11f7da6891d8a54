from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import reports

if TYPE_CHECKING:
    from ppocli.core.report import EvalReport


class Engine:
    """Stands for the engine: remembers how it was called, returns a report or raises."""

    def __init__(self) -> None:
        self.answer: EvalReport | BaseException = reports.report()
        self.notices: tuple[str, ...] = ()
        self.calls: list[dict[str, Any]] = []

    def evaluate_files(self, paths: list[str], spec: Any, options: Any, **keywords: Any) -> EvalReport:
        self.calls.append({"paths": paths, "spec": spec, "options": options, **keywords})
        for text in self.notices:
            keywords["progress"].notice(text)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Put a stand-in where `ppocli eval` looks for the engine."""
    made = Engine()
    module = types.ModuleType("ppocli.engine.evaluate")
    module.evaluate_files = made.evaluate_files  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ppocli.engine.evaluate", module)
    for name in ("NO_COLOR", "FORCE_COLOR", "PPOCLI_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture
def run(engine: Engine, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process: exit code, standard output, standard error."""
    from ppocli.cli.app import main

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
