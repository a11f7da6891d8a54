"""`ppocli merge`: read documents of partials, merge, show."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from typing import Annotated

import typer

from ppocli.cli.declare import DATA, flag
from ppocli.cli.eval import check_rows, empty_line, in_order
from ppocli.cli.failures import notice
from ppocli.cli.options import SayingOptions, SortedOutput  # noqa: TC001 (read at run time, by `flatten`)
from ppocli.cli.output import plan
from ppocli.core.spec import choose
from ppocli.errors import EmptyInput
from ppocli.render.formats import eval_text

HELP = """\
Merge what runs of 'eval --partials' found, on this machine or on others.

The report is the one that a single run over all their inputs, in this order,
would have given, to the bit. Documents made with other settings or by another
version are refused, and so are inputs that stand in two of them.

  ppocli eval 'runs/week1/*.parquet' --partials week1.json
  ppocli eval 'runs/week2/*.parquet' --partials week2.json
  ppocli merge week1.json week2.json --export report.json"""


@dataclass(frozen=True, slots=True)
class Documents:
    """What is merged."""

    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATHS...",
            help="Files that 'ppocli eval --partials FILE' wrote, or quoted patterns, in the order of their "
            "inputs.",
        ),
    ]
    allow_empty: Annotated[
        bool, flag(DATA, "--allow-empty", text="Exit with 0, not 5, when there is no valid token.")
    ] = False


def run(documents: Documents, output: SortedOutput, saying: SayingOptions) -> int:
    """Merge the documents, write the result, return the exit code."""
    saying.check()
    choose("--by", output.by, ("file", "total"))
    check_rows(output)
    destination = plan(output, documents.paths, silent=saying.is_silent)

    from ppocli.engine.merge_reports import merge

    report = merge(matches(documents.paths), by=output.by, allow_empty=documents.allow_empty)
    report = in_order(report, output.sort)
    for line in empty_line(report, quiet=saying.is_quiet):
        notice(line)
    destination.deliver(
        lambda form, look, encoding: eval_text(
            report,
            form,
            look,
            digits=output.digits,
            sort=output.sort,
            hist=output.hist,
            encoding=encoding,
        )
    )
    return report.exit_code


def matches(paths: list[str]) -> list[str]:
    """Return the files that paths and patterns stand for; a path that exists is taken literally."""
    from ppocli.io.source import natural_key

    out: list[str] = []
    for path in paths:
        if os.path.lexists(path) or not glob.has_magic(path):
            out.append(path)
            continue
        found = sorted(glob.glob(path, recursive=True), key=natural_key)  # noqa: PTH207 (names as given)
        if not found:
            raise EmptyInput(f"no file matches '{path}'", where=path)
        out += found
    return out
