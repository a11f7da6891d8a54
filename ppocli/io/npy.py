"""NPY: one structured array, whose fields are the columns. A plain array is one column and not enough."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.report import ColumnReport, InputReport
from ppocli.core.roles import MAIN_ROLES
from ppocli.errors import InputError
from ppocli.io import convert
from ppocli.io.columns import chosen_columns, resolve
from ppocli.io.npy_header import read_header
from ppocli.io.placed import PlacedArrays, Source
from ppocli.io.places import place_of
from ppocli.io.shapes import Plan, plan_layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.chunk import Chunk, IdCoder, ReadOptions

MAGIC = b"\x93NUMPY"

_SAVE = "save all columns in one file: np.savez(path, log_probs=..., old_log_probs=..., advantages=...)"


@dataclass(frozen=True, slots=True)
class Records:
    """A structured array, as its header describes it.

    Attributes
    ----------
    path : str
    dtype : numpy dtype
        Of a record.
    n_rows : int
    start : int
        Where the records begin.
    """

    path: str
    dtype: np.dtype[Any]
    n_rows: int
    start: int

    @property
    def columns(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The element type and the shape of each field, records first."""
        kinds = {name: self.dtype[name] for name in self.dtype.names or ()}
        return {name: (kind.base, (self.n_rows, *kind.shape)) for name, kind in kinds.items()}

    def described(self) -> dict[str, str]:
        """Return the columns as messages list them."""
        return {name: f"{shape} {_type_name(kind)}" for name, (kind, shape) in self.columns.items()}


def read_records(path: str) -> Records:
    """Read the header of a file that begins with `MAGIC`.

    Raises
    ------
    InputError
        A plain array, an object array (never unpickled), a header that cannot be read, a size that is not
        that of the data.
    """
    try:
        with place_of(path).open() as file:
            shape, _, dtype = read_header(file)
            start = file.tell()
            holds = file.seek(0, 2) - start
    except (OSError, ValueError, EOFError) as failure:
        said = (str(failure).strip() or type(failure).__name__).splitlines()[0]
        raise InputError(
            f"the NPY header cannot be read: {said}", where=path, hint="write or copy the file again"
        ) from None
    if dtype.hasobject:
        raise InputError(
            "holds Python objects, which only pickle could read; nothing is unpickled", where=path
        )
    if dtype.names is None:
        raise InputError(
            f"a .npy file of one plain array, {shape} {dtype}: the loss needs several columns",
            where=path,
            hint=_SAVE,
        )
    if len(shape) != 1:
        raise InputError(
            f"records of shape {shape}; a column of records has one axis", where=path, hint=_SAVE
        )
    declared = shape[0] * dtype.itemsize
    if shape[0] < 0 or declared != holds:
        raise InputError(
            f"the header declares {declared:,} bytes, the file holds {holds:,}",
            where=path,
            hint="the writer was stopped or the copy is incomplete; write or copy the file again",
        )
    return Records(path, dtype, shape[0], start)


def place(
    records: Records, options: ReadOptions, required: Collection[str]
) -> tuple[dict[str, str], Plan, tuple[str, ...]]:
    """Find the roles, check their types and place their fields.

    Returns
    -------
    columns : dict of role to column name
    plan : Plan
    notes : tuple of str

    Raises
    ------
    InputError
        See `NpyReader`.
    """
    described = records.described()
    chosen = chosen_columns(described, options)
    found = resolve(
        records.path, described, chosen, required, aliases=options.aliases, settled=options.settled
    )
    columns = dict(found.columns)
    if not columns:
        return {}, Plan("flat", 0, None, {}, ()), found.notes
    shapes = {role: records.columns[name][1] for role, name in columns.items()}
    plan = plan_layout(records.path, shapes, columns, options)
    notes = (*found.notes, *convert.form_notes(columns, options), *plan.notes)
    return columns, plan, notes


def type_of(records: Records, role: str, column: str, options: ReadOptions) -> str:
    """Return the type by which a field is read, or refuse it."""
    return convert.read_as(role, column, _type_name(records.columns[column][0]), options.bits, records.path)


def _type_name(kind: np.dtype[Any]) -> str:
    """Return the name of an element type."""
    return "a structure" if kind.names is not None else convert.type_name(kind)


class NpyReader:
    """One NPY file with a structured array: a record per row, its fields the columns.

    Fields of one value give flat data, fields of T values (`("log_probs", "f4", (T,))`) padded rows. Read in
    blocks; each role reads the file for itself.

    Parameters
    ----------
    path : str
    options : ReadOptions
    coders : mapping of role to IdCoder
    required : collection of str
        Roles that must be found; see `columns.resolve`.

    Raises
    ------
    InputError
        See `read_records`; a missing or ambiguous role, a type or shape that does not fit.
    """

    def __init__(
        self,
        path: str,
        options: ReadOptions,
        coders: Mapping[str, IdCoder],
        required: Collection[str] = MAIN_ROLES,
    ) -> None:
        records = read_records(path)
        columns, plan, notes = place(records, options, required)
        sources = {}
        for role, placed in plan.placements.items():
            column = columns[role]
            dtype = type_of(records, role, column, options)
            opener = partial(FieldElements, records, column, swapped=placed.swapped)
            sources[role] = Source(column, dtype, placed.spread, placed.dims, opener)
        self._arrays = PlacedArrays(path, plan.n_rows, plan.row_tokens, None, sources, dict(coders), options)
        self._report = InputReport(
            path=path,
            format="npy",
            layout=plan.layout,
            rows=plan.n_rows,
            bytes=place_of(path).size,
            columns={role: ColumnReport(one.column, one.dtype) for role, one in sources.items()},
            notes=notes,
        )

    @property
    def report(self) -> InputReport:
        """What was found."""
        return replace(self._report, notes=(*self._report.notes, *place_of(self._report.path).notes))

    @property
    def per_row(self) -> frozenset[str]:
        """Roles that are stored once per row; see `ppocli.core.chunk.Reader`."""
        return self._arrays.per_row

    def chunks(self, roles: Collection[str], chunk_tokens: int, *, repeat: bool = True) -> Iterator[Chunk]:
        """Yield the rows in stored order; see `ppocli.core.chunk.Reader`.

        Raises
        ------
        InputError
            The file ends early; a mask value other than 0 and 1.
        """
        return self._arrays.chunks(roles, chunk_tokens, repeat=repeat)

    def close(self) -> None:
        """Do nothing: files are open only while chunks are read."""


class FieldElements:
    """The elements of one field of the records."""

    slow = False

    def __init__(self, records: Records, column: str, *, swapped: bool) -> None:
        if swapped:
            raise InputError(
                "the records of an NPY file are rows; (time, environment) is not read from them",
                where=records.path,
                hint=_SAVE,
            )
        self._records, self._column = records, column
        kind, shape = records.columns[column]
        self._per_row = int(np.prod(shape[1:]))
        self._read_as = np.dtype("<u2") if convert.type_name(kind) == convert.BFLOAT16 else kind
        self._file = Path(place_of(records.path).whole()).open("rb")  # noqa: SIM115 (closed by close)
        self._file.seek(records.start)

    def read(self, count: int) -> NDArray[Any]:
        """Return the next `count` elements: those of whole records."""
        n_rows = count // self._per_row if self._per_row else 0
        raw = self._file.read(n_rows * self._records.dtype.itemsize)
        if len(raw) < n_rows * self._records.dtype.itemsize:
            raise InputError("the file has become shorter while it was read", where=self._records.path)
        rows: NDArray[Any] = np.frombuffer(raw, self._records.dtype)
        values = np.ascontiguousarray(rows[self._column]).reshape(-1).view(self._read_as)
        return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))

    def finish(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()
