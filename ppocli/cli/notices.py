"""Lines for standard error that several commands write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppocli.render.console import printable
from ppocli.render.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ppocli.core.report import Skipped


def skipped_line(skipped: Sequence[Skipped]) -> Iterator[str]:
    """Yield the line that says that files were passed over, if any were."""
    if skipped:
        first = skipped[0]
        yield (
            f"warning: {plural(len(skipped), 'file')} skipped; the first: "
            f"{printable(first.path)}: {printable(first.reason)}"
        )


def run_line(run: Mapping[str, Any]) -> str:
    """Return the line that `--verbose` adds: time, threads, versions."""
    return f"run: {', '.join(f'{key} {value}' for key, value in run.items())}"
