"""The arrays of an NPZ archive: headers before data, and elements in blocks. Nothing is ever unpickled."""

from __future__ import annotations

import contextlib
import math
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ppocli.errors import InputError
from ppocli.io.buffers import Buffers
from ppocli.io.checksum import Checksum
from ppocli.io.convert import BFLOAT16, type_name
from ppocli.io.npy_header import read_header
from ppocli.io.places import place_of
from ppocli.io.reorder import reordered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.io.placed import Elements

_LOCAL_HEADER = struct.Struct("<4s5H3L2H")

# Of a member's local header with its names, so many bytes lie before the data in any usual archive.
_HEADERS_AT_MOST = 1 << 10

# Deflate cannot shrink data further than this: 258 bytes per two bits.
_DEFLATE_LIMIT = 1032

_FAILURES = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    MemoryError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Member:
    """One array of an archive, as its header describes it.

    Attributes
    ----------
    name : str
        Without ".npy".
    dtype : numpy dtype
        As stored, byte order included.
    shape : tuple of int
    fortran : bool
        Column-major.
    info : ZipInfo
    start : int
        Where the data begin inside the member.
    problem : str, optional
        Why it cannot be read. None where it can.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    info: zipfile.ZipInfo
    start: int
    problem: str | None = None

    @property
    def dtype_name(self) -> str:
        """Element type in the names of reports."""
        return type_name(self.dtype)

    @property
    def stored_type(self) -> str:
        """Element type with its byte order where that is not the machine's."""
        return self.dtype_name + ("" if self.dtype.isnative else ", other byte order")

    @property
    def read_dtype(self) -> np.dtype[Any]:
        """The type under which the bytes are read: unsigned integers for bfloat16."""
        return np.dtype("<u2") if self.dtype_name == BFLOAT16 else self.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype_name}"


def read_headers(archive: zipfile.ZipFile, path: str) -> tuple[Member, ...]:
    """Return the arrays of an archive in stored order, without reading their data."""
    archive_size = place_of(path).size
    members = (
        _read_header(archive, info, info.filename.removesuffix(".npy"))
        for info in archive.infolist()
        if info.filename.endswith(".npy")
    )
    return tuple(replace(one, problem=one.problem or _defect(one, archive_size)) for one in members)


def by_name(members: Iterable[Member], path: str) -> dict[str, Member]:
    """Return the arrays by name.

    Raises
    ------
    InputError
        Two members of one name.
    """
    out: dict[str, Member] = {}
    for one in members:
        if one.name in out:
            raise InputError(
                f"duplicate array '{one.name}': the archive holds two members of this name",
                where=path,
                hint="write the file again with np.savez; which of the two was meant is not known",
            )
        out[one.name] = one
    return out


def _read_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> Member:
    """Return what one member's header says, or why it cannot be read."""
    nothing = Member(name, np.dtype("V"), (), False, info, 0)
    if info.flag_bits & 0x1:
        return replace(nothing, problem="encrypted")
    try:
        with archive.open(info) as file:
            shape, fortran, dtype = read_header(file)
            return Member(name, dtype, shape, fortran, info, file.tell())
    except _FAILURES as failure:
        return replace(nothing, problem=f"unreadable: {one_line(failure)}")


def _defect(member: Member, archive_size: int) -> str | None:
    """Return why the data behind a header cannot be what it says."""
    info = member.info
    if member.dtype.hasobject:
        return "object"
    if any(axis < 0 for axis in member.shape):
        return f"shape {member.shape}"
    declared = member.size * member.dtype.itemsize
    holds = info.file_size - member.start
    if declared != holds:
        return f"its header declares {declared:,} bytes, the member holds {holds:,} bytes"
    most = min(info.compress_size, archive_size)
    if info.compress_type != zipfile.ZIP_STORED:
        most *= _DEFLATE_LIMIT
    if info.file_size > most:
        return (
            f"its entry declares {info.file_size:,} bytes, the archive cannot hold more than {most:,} of it"
        )
    return None


def one_line(failure: Exception) -> str:
    """Return the first line of another library's message, or the kind of failure if it has none."""
    return (str(failure).strip() or type(failure).__name__).splitlines()[0]


def elements(member: Member, path: str, axes: tuple[int, ...] | None) -> Elements:
    """Open a member's elements.

    Parameters
    ----------
    member : Member
    path : str
    axes : tuple of int, optional
        The order in which its axes are wanted. None: as they are.
    """
    source = MemberElements(member, path)
    if stands_in_order(member, axes):
        return source
    memory, order = _in_file(member, axes)
    try:
        with contextlib.closing(source):
            return reordered(source, memory, order, member.read_dtype.newbyteorder("="))
    except OSError as failure:
        raise InputError(
            f"array '{member.name}' is not stored in row order and needs a temporary file of "
            f"{member.info.file_size:,} bytes: {failure.strerror}",
            where=path,
            hint="set TMPDIR to a folder with room, or store the array with np.ascontiguousarray",
        ) from None


def stands_in_order(member: Member, axes: tuple[int, ...] | None) -> bool:
    """Return whether the elements are stored in the order in which they are wanted; see `elements`."""
    memory, order = _in_file(member, axes)
    long_axes = [axis for axis in order if memory[axis] > 1]
    return long_axes == sorted(long_axes)


def _in_file(member: Member, axes: tuple[int, ...] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape as the file has it, row-major, and which of its axes each wanted one is."""
    order = axes or tuple(range(len(member.shape)))
    if not member.fortran:
        return member.shape, order
    # A column-major array is a row-major one with its axes the other way round.
    return tuple(reversed(member.shape)), tuple(len(member.shape) - 1 - axis for axis in order)


class MemberElements:
    """The elements of one member in the order in which they are stored.

    Stored members are read straight from the file, others inflated in blocks; the checksum of either is
    compared at the end. The memory needed is that of one read.
    """

    slow = True
    _file: IO[bytes]

    def __init__(self, member: Member, path: str) -> None:
        self._member, self._path = member, path
        self._buffers, self._sum = Buffers(), Checksum()
        self._inflated = member.info.compress_type != zipfile.ZIP_STORED
        with contextlib.ExitStack() as opened, self._failures():
            file = opened.enter_context(self._open())
            if self._inflated:
                archive = opened.enter_context(zipfile.ZipFile(file))
                self._file = opened.enter_context(archive.open(member.info))
                self._file.read(member.start)
            else:
                self._file = file
                self._file.seek(_data_offset(self._file, member))
                self._sum.add(self._file.read(member.start))
            self._opened = opened.pop_all()

    def _open(self) -> IO[bytes]:
        """Open the archive; what is read ahead ends about where the member does."""
        info = self._member.info
        until = info.header_offset + info.compress_size + _HEADERS_AT_MOST
        return place_of(self._path).open(buffering=-1 if self._inflated else 0, until=until)

    def read(self, count: int) -> NDArray[Any]:
        """Return the next `count` elements."""
        raw = self._buffers.take(count * self._member.read_dtype.itemsize)
        with self._failures():
            done = 0
            while done < len(raw):
                got = self._file.readinto(raw.data[done:])  # type: ignore[attr-defined]
                if not got:
                    raise EOFError(f"the data end {len(raw) - done:,} bytes early")
                done += got
        if not self._inflated:
            self._sum.add(raw.data)
        out = raw.view(self._member.read_dtype)
        return out if out.dtype.isnative else out.astype(out.dtype.newbyteorder("="))

    def finish(self) -> None:
        """Compare the checksum; of a deflated member zipfile does it at its end."""
        with self._failures():
            if self._inflated:
                self._file.read(1)
            elif self._sum.value() != self._member.info.CRC:
                raise zipfile.BadZipFile(f"Bad CRC-32 for file {self._member.info.filename!r}")

    def close(self) -> None:
        """Close the file."""
        self._opened.close()
        self._sum.close()

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn failures of reading into the error that names the member."""
        try:
            yield
        except _FAILURES as failure:
            raise InputError(
                f"array '{self._member.name}' is damaged: {one_line(failure)}",
                where=f"{self._path}, member '{self._member.info.filename}'",
                hint="write or copy the file again",
            ) from None


def _data_offset(file: IO[bytes], member: Member) -> int:
    """Return where in the file a stored member begins.

    The central directory does not say it: the local header in front of the member has lengths of its own.
    """
    file.seek(member.info.header_offset)
    raw = file.read(_LOCAL_HEADER.size)
    if len(raw) < _LOCAL_HEADER.size or raw[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile("no local header where the directory says")
    *_, name_length, extra_length = _LOCAL_HEADER.unpack(raw)
    return int(member.info.header_offset + len(raw) + name_length + extra_length)
