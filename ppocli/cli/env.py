"""`ppocli env`: what a bug report needs to know."""

from __future__ import annotations

from typing import Annotated

import typer

from ppocli.cli.completion import completion_of, table_or_json
from ppocli.cli.failures import emit
from ppocli.core.spec import choose

HELP = """\
Print versions, processors, threads and the cache directory, for a bug report.

  ppocli env
  ppocli env -f json"""

LIBRARIES = ("numpy", "pyarrow", "numba", "llvmlite", "rich", "typer")


def run(
    format_: Annotated[
        str,
        typer.Option(
            "-f",
            "--format",
            metavar="FORMAT",
            help="table (default) or json.",
            autocompletion=completion_of("--format", "FORMAT", table_or_json),
        ),
    ] = "table",
) -> int:
    """Print the environment, return the exit code."""
    choose("--format", format_, ("table", "json"))
    facts = environment()
    if format_ == "json":
        from ppocli.render.json import to_json

        emit(to_json(facts))
    else:
        emit("".join(f"{name:10}  {'none' if value is None else value}\n" for name, value in facts.items()))
    return 0


def environment() -> dict[str, str | int | None]:
    """Return versions and what the machine offers, by name."""
    import os
    import platform

    from ppocli import __version__
    from ppocli.kernels._cache import cache_directory
    from ppocli.kernels._jit import available_cpus, thread_count

    cache = cache_directory()
    return {
        "ppocli": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": platform.platform(),
        **{name: _version(name) for name in LIBRARIES},
        "cpu": _processor(),
        "processors": os.cpu_count(),
        "usable": available_cpus(),
        "threads": thread_count(),
        "cache": None if cache is None else str(cache),
    }


def _version(library: str) -> str | None:
    """Return the installed version of a library without importing it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """Return the name of the processor."""
    import platform
    from pathlib import Path

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
