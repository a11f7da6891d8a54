"""NPZ: an archive of arrays, placed by their shapes and read in blocks."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ppocli.core.report import ColumnReport, InputReport
from ppocli.core.roles import MAIN_ROLES
from ppocli.errors import InputError
from ppocli.io import convert
from ppocli.io.archive_checks import check_row, overlapping
from ppocli.io.columns import Resolution, chosen_columns, resolve
from ppocli.io.dialects import sample_mask_of
from ppocli.io.members import Member, by_name, elements, read_headers
from ppocli.io.placed import PlacedArrays, Source
from ppocli.io.places import place_of
from ppocli.io.shapes import Plan, plan_layout

if TYPE_CHECKING:
    from ppocli.core.chunk import Chunk, IdCoder, ReadOptions


class NpzReader:
    """One NPZ file.

    Only headers are read when it is made; the arrays are read in blocks, side by side. Layouts are those of
    `shapes.plan_layout`. Two raw bytes per value are bfloat16, as NumPy stores it.

    Parameters
    ----------
    path : str
    options : ReadOptions
    coders : mapping of role to IdCoder
        Give text ids their codes; a role without one gets its own.
    required : collection of str
        Roles that must be found; see `columns.resolve`.

    Raises
    ------
    InputError
        Not a whole archive, two arrays of one name, a missing or ambiguous role, an object array (never
        unpickled), a size that is not that of the data, a type or shape that does not fit.
    """

    def __init__(
        self,
        path: str,
        options: ReadOptions,
        coders: Mapping[str, IdCoder],
        required: Collection[str] = MAIN_ROLES,
    ) -> None:
        arrays = place(path, by_name(open_archive(path), path), options, required)
        used, dtypes, plan = arrays.members, arrays.dtypes, arrays.plan
        sources = {}
        for role, placed in plan.placements.items():
            opener = partial(elements, used[role], path, placed.axes(len(used[role].shape)))
            sources[role] = Source(used[role].name, dtypes[role], placed.spread, placed.dims, opener)
        self._arrays = PlacedArrays(path, plan.n_rows, plan.row_tokens, None, sources, dict(coders), options)
        self._report = InputReport(
            path=path,
            format="npz",
            layout=plan.layout,
            rows=plan.n_rows,
            bytes=place_of(path).size,
            columns={role: ColumnReport(one.column, one.dtype) for role, one in sources.items()},
            notes=arrays.notes,
        )

    @property
    def report(self) -> InputReport:
        """What was found."""
        return self._report

    @property
    def per_row(self) -> frozenset[str]:
        """Roles that are stored once per row; see `ppocli.core.chunk.Reader`."""
        return self._arrays.per_row

    def chunks(self, roles: Collection[str], chunk_tokens: int, *, repeat: bool = True) -> Iterator[Chunk]:
        """Yield the rows in stored order; see `ppocli.core.chunk.Reader`.

        Raises
        ------
        InputError
            Data that cannot be inflated, end early or fail their checksum; a mask value other than 0 and 1.
        """
        return self._arrays.chunks(roles, chunk_tokens, repeat=repeat)

    def close(self) -> None:
        """Do nothing: files are open only while chunks are read."""


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays of an archive that play a role, and how they meet the tokens.

    Attributes
    ----------
    members : mapping of role to Member
    dtypes : mapping of role to str
        Element types by which they are read.
    plan : Plan
    notes : tuple of str
        What was inferred.
    """

    members: Mapping[str, Member]
    dtypes: Mapping[str, str]
    plan: Plan
    notes: tuple[str, ...]


def place(
    path: str, members: Mapping[str, Member], options: ReadOptions, required: Collection[str]
) -> Arrays:
    """Find the roles, check their types and place their arrays.

    Raises
    ------
    InputError
        See `NpzReader`.
    """
    found = _resolve(path, members, options, required)
    notes = [*found.notes, *convert.form_notes(found.columns, options)]
    used: dict[str, Member] = {}
    dtypes: dict[str, str] = {}
    taken = dict(found.columns)
    if (second := sample_mask_of(members, taken, [])) is not None:
        notes.append(f"array '{second}' not applied: multiply it into the mask before it is saved")
    for role, name in taken.items():
        try:
            dtypes[role] = _dtype(path, role, members[name], options, notes)
            used[role] = members[name]
        except InputError as problem:
            if role != "token_id" or role in options.columns:
                raise
            notes.append(f"token_id: not read, {problem.message}")
    if not used:
        return Arrays({}, {}, Plan("flat", 0, None, {}, ()), tuple(notes))
    plan = plan_layout(path, {role: one.shape for role, one in used.items()}, taken, options)
    for role, placed in plan.placements.items():
        check_row(used[role], path, plan.row_tokens, placed.axes(len(used[role].shape)))
    return Arrays(used, dtypes, plan, (*notes, *plan.notes))


def open_archive(path: str) -> tuple[Member, ...]:
    """Return the arrays of an archive whose first bytes are those of one.

    Raises
    ------
    InputError
        Not a whole archive, or one without arrays.
    """
    try:
        with place_of(path).open() as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            members = read_headers(archive, path)
            overlap = overlapping(archive)
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, struct.error):
        raise InputError(
            "the NPZ file is truncated or damaged: it begins as a zip archive, and the directory at its end "
            "is missing or broken",
            where=path,
            hint="the writer was stopped or the copy is incomplete; write or copy the file again",
        ) from None
    if overlap is not None:
        raise InputError(
            f"members '{overlap[0]}' and '{overlap[1]}' lie over each other",
            where=path,
            hint="the archive is damaged, or made to become larger than it is; write it again with np.savez",
        )
    if members:
        return members
    if any(name.endswith("data.pkl") for name in names):
        raise torch_file(path)
    raise InputError(
        "a zip archive without arrays, not an NPZ file",
        where=path,
        hint="write it with np.savez(path, log_probs=..., old_log_probs=..., advantages=...)",
    )


def torch_file(path: str) -> InputError:
    """Return the refusal of a file that only unpickling could read."""
    return InputError(
        "a torch or pickle file; reading it would run code from it, so it is refused",
        where=path,
        hint="convert it with the five lines in the README (section on .pt files), run with your own torch",
    )


def _resolve(
    path: str, members: Mapping[str, Member], options: ReadOptions, required: Collection[str]
) -> Resolution:
    """Find the roles."""
    described = {name: str(member) for name, member in members.items()}
    try:
        chosen = chosen_columns(described, options)
        return resolve(path, described, chosen, required, aliases=options.aliases, settled=options.settled)
    except InputError as error:
        wrapped = [one for one in members.values() if one.problem == "object" and one.shape == ()]
        if not wrapped:
            raise
        raise InputError(
            f"{error.message}; '{wrapped[0].name}' is a Python object (a pickled dict?) and is not unpickled",
            where=error.where,
            hint="save the arrays of a dict by name: np.savez(path, **arrays)",
        ) from None


def _dtype(path: str, role: str, member: Member, options: ReadOptions, notes: list[str]) -> str:
    """Return the type by which an array is read, or refuse it."""
    if member.problem is not None:
        raise unreadable(path, role, member)
    if member.dtype_name == convert.BFLOAT16:
        notes.append(f"{role}: raw 2-byte values (V2) read as bfloat16")
    elif role in options.bits:
        notes.append(f"{role}: uint16 read as the bits of bfloat16 values")
    return convert.read_as(role, member.name, member.dtype_name, options.bits, path)


def unreadable(path: str, role: str, member: Member) -> InputError:
    """Build the error for an array that cannot be read."""
    where = f"{path}, member '{member.info.filename}'"
    if member.problem != "object":
        return InputError(
            f"array '{member.name}' ({role}) cannot be read: {member.problem}",
            where=where,
            hint="the file is damaged; write or copy it again",
        )
    hint = "store rows of different lengths as flat values with a sequence_id array beside them"
    if member.shape == ():
        hint = "save the arrays of a dict by name: np.savez(path, **arrays)"
    return InputError(
        f"array '{member.name}' ({role}) holds Python objects, which only pickle could read; "
        "nothing is unpickled",
        where=where,
        hint=hint,
    )
