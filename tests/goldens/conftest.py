"""The rows of a goldens folder as parameters, and the summary of what was compared with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from goldens.rows import Tally, read

HERE = Path(__file__).parent / "data"
TALLY = pytest.StashKey[Tally]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that takes `folder` and `row` the rows that its module covers."""
    if "row" not in metafunc.fixturenames:
        return
    folder = metafunc.config.getoption("--goldens") or HERE
    rows = [row for row in read(folder) if metafunc.module.covers(row)]
    metafunc.parametrize(("folder", "row"), [pytest.param(folder, row, id=row["id"]) for row in rows])


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Where a test counts what it has compared."""
    return request.config.stash.setdefault(TALLY, Tally())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the counts of the array formulas."""
    lines = config.stash.get(TALLY, Tally()).lines()
    if lines:
        terminalreporter.section("goldens: formulas on arrays")
        for line in lines:
            terminalreporter.write_line(line)
