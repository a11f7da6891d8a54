from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from typing import Any

from ppocli import __version__


def test_versions_and_processors(run: Any) -> None:
    code, out, err = run("env", "-f", "json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert facts["ppocli"] == __version__
    assert facts["python"].startswith(platform.python_version())
    for name in ("numpy", "pyarrow", "numba", "llvmlite", "rich", "typer"):
        assert facts[name] == importlib.metadata.version(name)
    assert facts["processors"] == os.cpu_count()
    assert 1 <= facts["usable"] <= facts["processors"]
    assert facts["threads"] >= 1
    assert set(facts) >= {"system", "cpu", "cache"}


def test_text_has_a_line_for_each_fact(run: Any) -> None:
    text = run("env")[1]
    facts = json.loads(run("env", "-f", "json")[1])
    assert [line.split()[0] for line in text.splitlines()] == list(facts)
    assert f"ppocli      {__version__}\n" in text


def test_other_formats_are_refused(run: Any) -> None:
    assert run("env", "-f", "csv")[0] == 2
