"""`inspect_files`: what is in files, and how `eval` would read them. No kernels; data only if asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ppocli.core import shell
from ppocli.core.chunk import ReadOptions
from ppocli.core.inspect_report import InspectedFile, InspectReport, ReadPlan
from ppocli.core.partials import SELECTIONS
from ppocli.core.progress import NoProgress
from ppocli.core.roles import ROLES
from ppocli.engine.reading import CHUNK_BYTES, ID_ROLES, chunk_tokens_for, reading_settings, total_bytes
from ppocli.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ppocli.core.inspect_report import FileScan
    from ppocli.core.progress import Progress
    from ppocli.core.report import Skipped

SCAN_ROLES = frozenset(ROLES) - {"token_id"}
"""Roles that a scan reads: token ids only locate tokens and need not line up with them."""

SCAN_TOKENS = 1 << 18
"""Tokens that a scan reads at a time."""

# Peak memory of `eval`, measured on Linux with PyArrow 26 for 3 to 10 columns: within 15 % of the estimate.
_IMPORTS = {"npz": 165_000_000, "npy": 165_000_000}
_WITH_PYARROW = 225_000_000
# Batches that exist at a time: decoded, waiting, computed on, joined; lists are also flattened and aligned.
_WAITING = 5
_COPIES = {("npz", False): 1, ("npy", False): 1}
_OF_TABLES = {False: 2, True: 5}
# An opened footer against its size in the file: 1 kB for each column chunk.
_FOOTER = 10


def inspect_files(
    paths: Sequence[str],
    options: ReadOptions | None = None,
    *,
    scan: bool = False,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> InspectReport:
    """Describe files, patterns and directories.

    Parameters
    ----------
    paths : sequence of str
    options : ReadOptions, optional
        As for `evaluate_files`.
    scan : bool
        Also read the data of the columns that play roles, in batches: exact counts and ranges.
    skip_bad : bool
        Leave unreadable files out, and list them in `skipped`.
    progress : Progress, optional
        Of the scan.

    Returns
    -------
    InspectReport
        A file that `eval` would refuse for its columns is described, with the reason in `problem`.

    Raises
    ------
    InputError
        A file that is missing, damaged or of another format; with `scan` also one whose rows do not fit
        together, or whose mask holds other values than 0 and 1.
    EmptyInput, UsageProblem
    """
    from ppocli.io.source import expand

    files, skipped = expand(paths)
    run = _Run(options or ReadOptions(), scan, skip_bad, progress or NoProgress(), list(skipped))
    if scan:
        run.progress.start(total_bytes(files))
    found = numbered(list(run.inspect(files)))
    return InspectReport(
        settings={**reading_settings(run.options), "scan": scan},
        files=tuple(found),
        skipped=tuple(run.skipped),
    )


@dataclass(slots=True)
class _Run:
    """What was asked for, and the files left out so far."""

    options: ReadOptions
    scan: bool
    skip_bad: bool
    progress: Progress
    skipped: list[Skipped] = field(default_factory=list)

    def inspect(self, paths: Sequence[str]) -> Iterator[InspectedFile]:
        """Describe one file after the other; unreadable ones are left out only on request."""
        for path in paths:
            try:
                yield self._one(path)
            except InputError as problem:
                if not self.skip_bad:
                    raise
                from ppocli.core.report import Skipped

                self.skipped.append(Skipped(path, f"unreadable: {problem.message}"))

    def _one(self, path: str) -> InspectedFile:
        """Describe one file, and scan it where its roles fit together."""
        from ppocli.io.describe import describe

        most = CHUNK_BYTES // 12
        found = describe(path, self.options, roles_read, most)
        types = {column.role: column.type for column in found.columns if column.role is not None}
        tokens = chunk_tokens_for(types[role] for role in roles_read(types))
        if found.plan is not None and tokens != most:
            found = describe(path, self.options, roles_read, tokens)
        if found.plan is not None:
            found = replace(found, plan=replace(found.plan, memory=memory_of(found, found.plan)))
        if found.ready:
            found = replace(found, advice=command_line(path, self.options))
        if self.scan and found.layout is not None:
            from ppocli.engine.scan import scan_file

            result, notes = scan_file(path, self.options, SCAN_ROLES, SCAN_TOKENS, self.progress)
            found = replace(found, scan=result, notes=(*found.notes, *notes))
            if found.rows is None:  # only the data tell
                found = replace(found, rows=_rows_of(result))
        return found


def _rows_of(scan: FileScan) -> int | None:
    """Return how many rows a scan has seen; None where its sequences are not its rows."""
    if scan.longest_row is None:
        return scan.tokens + scan.masked
    if scan.n_sequences is None or scan.n_empty_sequences is None:
        return None
    return scan.n_sequences + scan.n_empty_sequences


def roles_read(found: Collection[str]) -> frozenset[str]:
    """Return which of these roles `eval` reads: those of metrics that have all their columns, and ids."""
    have = frozenset(found)
    used = (selected for selected in map(frozenset, SELECTIONS.values()) if selected <= have)
    return frozenset().union(*used) | (have & {"mask", *ID_ROLES})


def memory_of(file: InspectedFile, plan: ReadPlan) -> int:
    """Estimate the peak memory of `eval` on a file, in bytes."""
    nested = file.format not in _IMPORTS and file.layout != "flat"
    batches = min(plan.n_batches, _WAITING) + _COPIES.get((file.format, nested), _OF_TABLES[nested])
    imports = _IMPORTS.get(file.format, _WITH_PYARROW)
    return imports + batches * plan.batch_bytes + _FOOTER * (file.footer_bytes or 0)


def command_line(path: str, options: ReadOptions) -> str:
    """Return the line that evaluates a file with the same options, ready for a shell."""
    words = ["ppocli", "eval", path]
    for role, column in options.columns.items():
        words += ["--col", f"{role}={column}"]
    if options.layout != "auto":
        words += ["--layout", options.layout]
    if options.sum_dims:
        words.append("--sum-dims")
    for name in ("bits", "neglogp", "probs"):
        for role in sorted(getattr(options, name)):
            words += [f"--{name}", role]
    return shell.join(words)


def numbered(files: Sequence[InspectedFile]) -> Iterator[InspectedFile]:
    """Give files with the same schema the same number, counted from 1 in order of first sight.

    A schema is the format, the names, types, numbers of axes and roles of the columns in any order, and
    whether `eval` would read them.
    """
    numbers: dict[Any, int] = {}
    for one in files:
        columns = frozenset(
            (column.name, column.type, column.role, None if column.shape is None else len(column.shape))
            for column in one.columns
        )
        key = (one.format, columns, one.ready)
        yield replace(one, schema=numbers.setdefault(key, len(numbers) + 1))
