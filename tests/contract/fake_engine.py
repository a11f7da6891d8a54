"""The command line with an engine that returns reports made by hand: `fake_engine.py eval NAME ...`.

NAME picks the report of `tests/reports.py`; `KeyError`, `KeyboardInterrupt` and the like are raised.
"""

from __future__ import annotations

import builtins
import sys
import types
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import reports

from ppocli import errors


def evaluate_files(paths: list[str], spec: Any, options: Any, **keywords: Any) -> Any:
    """Return the report, or raise the exception, that the first path names."""
    name = paths[0]
    if name in reports.BY_NAME:
        made = reports.BY_NAME[name]()
        return made.with_exit_code(0) if keywords["allow_empty"] else made
    if hasattr(errors, name):
        raise getattr(errors, name)(
            "what is wrong", where=errors.Lines("file.parquet\ncolumns: a, b"), hint="what to do"
        )
    raise getattr(builtins, name)("x")


if __name__ == "__main__":
    engine = types.ModuleType("ppocli.engine.evaluate")
    engine.evaluate_files = evaluate_files  # type: ignore[attr-defined]
    sys.modules["ppocli.engine.evaluate"] = engine
    from ppocli.cli.app import console_main

    console_main()
