"""Runs the command line as a process of its own, with a clean environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")

# Whatever the terminal of the person who runs the tests has set must not decide.
_DROPPED = (
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "COLUMNS",
    "GITHUB_ACTIONS",
    "CI",
    "PPOCLI_DEBUG",
    "LC_ALL",
    "LC_CTYPE",
    "LANG",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
)


def environment(**changes: str) -> dict[str, str]:
    """The environment of this process without what changes output, with `changes`."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return {**kept, "LANG": "C.UTF-8", **changes}


def ppocli(*arguments: str, engine: bool = True, **changes: str) -> subprocess.CompletedProcess[bytes]:
    """Run `ppocli ARGUMENTS` with the stand-in for the engine, or the real one."""
    start = ["-m", "ppocli"] if engine is False else [str(FAKE_ENGINE)]
    command = [sys.executable, *start, *arguments]
    return subprocess.run(command, capture_output=True, env=environment(**changes), timeout=60, check=False)
