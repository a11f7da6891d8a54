"""Settings shared by all tests: the Hypothesis profile and the command-line options of the suite."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# One profile everywhere: a failure seen by CI is the failure seen at the desk.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--goldens",
        type=Path,
        metavar="DIR",
        help="a folder with goldens.jsonl, inputs/ and arrays/, instead of tests/goldens/data",
    )
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption("--fuzz", type=int, default=60, metavar="N", help="damaged files of each format to read")
    parser.addoption("--fuzz-command", type=int, default=1, metavar="N", help="the same through the command")
    parser.addoption("--fuzz-keep", metavar="DIR", help="where files that failed, or ended PyArrow, are kept")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "ray" not in (config.getoption("-m") or ""):
        for item in items:
            if item.get_closest_marker("ray"):
                item.add_marker(pytest.mark.skip(reason="starts a Ray cluster: run with -m ray"))
    if config.getoption("--slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))
