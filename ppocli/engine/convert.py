"""`convert_files`: whatever can be read, written in the canonical layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppocli.core.chunk import IdCoder, ReadOptions
from ppocli.core.convert_report import ConvertReport, WrittenColumn
from ppocli.core.progress import NoProgress
from ppocli.core.roles import ROLES
from ppocli.engine.reading import ID_ROLES, reading_settings, total_bytes
from ppocli.errors import InputError, Lines, one_line

if TYPE_CHECKING:
    from ppocli.core.chunk import Chunk, Reader
    from ppocli.core.progress import Progress
    from ppocli.core.report import InputReport
    from ppocli.io.canonical import Canonical

ROLE_NAMES = frozenset(ROLES)

READ_TOKENS = 1 << 18
"""Tokens that are read at a time: a row group is gathered besides, and two files are open to be compared."""


def convert_files(
    paths: Sequence[str],
    output: str,
    options: ReadOptions | None = None,
    *,
    overwrite: bool = False,
    verify: bool = False,
    recover: bool = False,
    progress: Progress | None = None,
) -> ConvertReport:
    """Write files, patterns and directories into one Parquet file in the canonical layout.

    Columns are named by role, one row per sequence (flat data stay flat); floats are float32, or float64
    where a source is; no value changes. The file appears under its name when it is whole.

    Parameters
    ----------
    paths : sequence of str
    output : str
    options : ReadOptions, optional
        As for `evaluate_files`.
    overwrite : bool
        Replace a file that exists.
    verify : bool
        Read the written file again and compare it with the sources, bit for bit, before it gets its name.
    recover : bool
        Of Arrow and JSON Lines files that are cut, take what is whole.
    progress : Progress, optional

    Returns
    -------
    ConvertReport

    Raises
    ------
    InputError
        A source that cannot be read, or has other columns than the first; a column of several meanings that
        nothing settles; a file that cannot be written.
    EmptyInput, UsageProblem
    """
    from ppocli.io.source import expand

    files, skipped = expand(paths)
    read = replace(options or ReadOptions(), settled=True)
    run = _Run(files, read, recover, progress or NoProgress())
    layout = run.plan()
    report = run.write(layout, output, overwrite=overwrite, verify=verify)
    return replace(report, settings=reading_settings(read), skipped=skipped)


@dataclass(slots=True)
class _Run:
    """The sources of one conversion."""

    files: Sequence[str]
    options: ReadOptions
    recover: bool
    progress: Progress
    inputs: list[InputReport] = field(default_factory=list)
    left_out: dict[str, None] = field(default_factory=dict)

    def open(self, path: str, coders: dict[str, IdCoder]) -> Reader:
        """Open a source."""
        from ppocli.io.source import open_input

        return open_input(path, self.options, coders, (), recover=self.recover)

    def plan(self) -> Canonical:
        """Look at the headers of all sources and return the layout that holds them."""
        from ppocli.io.canonical import canonical_of

        merged: Canonical | None = None
        for path in self.files:
            reader = self.open(path, {})
            try:
                report = reader.report
                self._note_columns(path, report)
                origins = getattr(reader, "origins", {})  # of formats that can tell
                layout = canonical_of(report, reader.per_row, self.options, origins)
            finally:
                reader.close()
            merged = layout if merged is None else _merged(merged, layout, self.files[0], path)
        assert merged is not None  # `expand` returns at least one file
        if not merged.nested and "sequence_id" in merged.roles and len(self.files) > 1:
            raise InputError(
                "sequence ids mean nothing across files, and flat rows in one file would mix them up",
                where=f"{self.files[1]}",
                hint="convert these files one by one",
            )
        return merged

    def _note_columns(self, path: str, report: InputReport) -> None:
        """Refuse a source without roles; remember columns that play none."""
        from ppocli.io.describe import column_names

        names = column_names(path, self.options, recover=self.recover)
        if not report.columns:
            raise InputError(
                "no column plays a role, so there is nothing to convert",
                where=Lines(f"{one_line(path)}\ncolumns: {one_line(', '.join(names)) or 'none'}"),
                hint="say which column is which: --col log_probs=NAME --col old_log_probs=NAME ...",
            )
        used = {one.column for one in report.columns.values()}
        masks = " ".join(note for note in report.notes if note.startswith("mask: "))  # names a second one
        self.left_out.update({name: None for name in names if name not in used and f"'{name}'" not in masks})

    def write(self, layout: Canonical, output: str, *, overwrite: bool, verify: bool) -> ConvertReport:
        """Write the file and return what was done."""
        from ppocli.io.sink import ParquetSink

        schema = layout.schema({})
        total = total_bytes(self.files)
        self.progress.start(total * (2 if verify else 1))
        sink = ParquetSink(Path(output), schema, overwrite=overwrite)
        try:
            coders = {role: IdCoder() for role in ID_ROLES}
            for chunk, per_row in self.chunks(coders, repeat=False):
                sink.write(layout.batch(chunk, schema, coders, per_row))
                for coder in coders.values():
                    coder.codes.clear()  # the texts are written; codes need not last
            temporary = sink.finish()
            if verify:
                self.verify(temporary, output)
            sink.commit()
        except BaseException:
            sink.abort()
            raise
        return ConvertReport(
            settings={},
            path=output,
            bytes=Path(output).stat().st_size,
            rows=sink.rows,
            tokens=sink.tokens,
            layout="list" if layout.nested else "flat",
            columns={
                role: WrittenColumn(one.type, one.origin, one.per) for role, one in layout.roles.items()
            },
            left_out=tuple(self.left_out),
            verified=verify,
            inputs=tuple(self.inputs),
        )

    def chunks(self, coders: dict[str, IdCoder], *, repeat: bool) -> Iterator[tuple[Chunk, frozenset[str]]]:
        """Yield the chunks of all sources, each with the roles it has one value per row of."""
        self.inputs.clear()
        for path in self.files:
            reader = self.open(path, coders)
            try:
                report = reader.report
                per_row = report.bytes / max(report.rows, 1)
                for chunk in reader.chunks(ROLE_NAMES, READ_TOKENS, repeat=repeat):
                    self.progress.advance(chunk.n_rows * per_row, chunk.n_tokens)
                    yield chunk, frozenset() if repeat else reader.per_row
                self.inputs.append(reader.report)
            finally:
                reader.close()

    def verify(self, temporary: str, output: str) -> None:
        """Compare the written file with the sources.

        Raises
        ------
        InputError
            They differ.
        """
        from ppocli.engine.same import difference
        from ppocli.io.source import open_input

        coders = {role: IdCoder() for role in ID_ROLES}
        reader = open_input(temporary, ReadOptions(), coders, ())
        try:
            source = (chunk for chunk, _ in self.chunks(coders, repeat=True))
            found = difference(source, reader.chunks(ROLE_NAMES, READ_TOKENS))
        finally:
            reader.close()
        if found is not None:
            raise InputError(
                f"what was written is not what was read: {found}",
                where=output,
                hint="did a source change meanwhile? Nothing was left under this name",
            )


def _merged(first: Canonical, now: Canonical, first_path: str, path: str) -> Canonical:
    """Return the layout that holds two sources, or refuse the second."""
    from ppocli.io.canonical import Canonical

    def refuse(what: str) -> InputError:
        return InputError(
            f"{what} than '{first_path}'", where=path, hint="convert files of different kinds one by one"
        )

    if first.nested != now.nested:
        raise refuse("rows are " + ("sequences" if now.nested else "tokens") + ", in another layout")
    # A mask may be missing: then every token counts.
    if (first.roles.keys() ^ now.roles.keys()) - {"mask"}:
        raise refuse(f"has other columns ({', '.join(now.roles)})")
    roles: dict[str, Any] = {}
    for role in dict.fromkeys([*first.roles, *now.roles]):
        one, other = first.roles.get(role), now.roles.get(role)
        both = one.merged(other) if one is not None and other is not None else one or other
        if both is None:
            raise refuse(f"'{role}' has another type")
        roles[role] = both
    return Canonical(first.nested, {role: roles[role] for role in ROLES if role in roles})


__all__ = ["convert_files"]
