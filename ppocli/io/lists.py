"""Arrow arrays to flat tokens: types, list columns aligned row by row, leaf values to NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ppocli.core.roles import ROLES
from ppocli.errors import InputError
from ppocli.io.convert import text_codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.chunk import IdCoder

_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64"}


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is one of the list types."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def plain(kind: Any) -> Any:
    """Return the storage type of an extension type, the value type of a dictionary, else the type itself."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain(kind.storage_type)
    return plain(kind.value_type) if pa.types.is_dictionary(kind) else kind


def depth_and_leaf(kind: Any) -> tuple[int, str]:
    """Return how many lists deep a column's values lie, and the name of their element type."""
    depth = 0
    kind = plain(kind)
    while is_list(kind):
        depth, kind = depth + 1, plain(kind.value_type)
    text = str(kind)
    return depth, _NAMES.get(text, text)


def describe(kind: Any) -> str:
    """Return a column's type as messages show it, such as "list<float32>"."""
    depth, leaf = depth_and_leaf(kind)
    return "list<" * depth + leaf + ">" * depth


def bare(array: Any) -> Any:
    """Return the array without extension types and dictionaries, text in one piece."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        return bare(array.dictionary_decode())
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array


def leaf_ends(array: Any) -> NDArray[np.int64]:
    """Return (n_rows + 1,) offsets of the rows' leaf values, counted in the child arrays.

    Values behind null rows are counted too: this says where to cut, not what counts.
    """
    ends = np.arange(len(array) + 1, dtype=np.int64)
    while is_list(array.type):
        if pa.types.is_fixed_size_list(array.type):
            ends = (ends + array.offset) * array.type.list_size
        else:
            ends = array.offsets.to_numpy()[ends].astype(np.int64, copy=False)
        array = bare(array.values)
    return ends


@dataclass(slots=True)
class Aligned:
    """Columns of one run of rows, one element per token.

    Attributes
    ----------
    arrays : dict of role to Arrow array
        Leaf values, all of one length.
    offsets : (n_rows + 1,) int64
    n_null_rows : int
    """

    arrays: dict[str, Any]
    offsets: NDArray[np.int64]
    n_null_rows: int = 0


@dataclass(slots=True)
class RowAligner:
    """Brings list columns of one file to tokens.

    Parameters
    ----------
    path : str
    names : mapping of role to column name
        Both for messages.
    """

    path: str
    names: Mapping[str, str]
    _first_row: int = field(default=0, init=False)
    _offsets: NDArray[np.int64] | None = field(default=None, init=False)

    def align(self, arrays: Mapping[str, Any], first_row: int) -> Aligned:
        """Flatten rows level by level: rows to steps to tokens, or rows to tokens.

        At each level the lists of a row must have one length. Columns that are not lists there are repeated
        over it. A null list stands for missing values where another column gives the length; a row that is
        null in every column holds no token.

        Parameters
        ----------
        arrays : mapping of role to Arrow array
            One element per row. At least one is a list.
        first_row : int
            Rows of the file before these.

        Raises
        ------
        InputError
            Lengths differ inside a row, or nothing gives a row's length.
        """
        self._first_row, self._offsets = first_row, None
        out = Aligned(dict(arrays), np.empty(0, np.int64))
        while any(is_list(array.type) for array in out.arrays.values()):
            lengths = self._level(out)
            ends = np.zeros(len(lengths) + 1, np.int64)
            np.cumsum(lengths, out=ends[1:])
            self._offsets = out.offsets = ends if self._offsets is None else ends[self._offsets]
        return out

    def _level(self, out: Aligned) -> NDArray[np.int64]:
        """Replace each array by its elements one level down; return the lengths of the lists."""
        lists = {role: array for role, array in out.arrays.items() if is_list(array.type)}
        own = {role: _lengths(array) for role, array in lists.items()}
        valid = {role: _valid(array) for role, array in lists.items() if array.null_count}
        lengths = self._common(own, valid)
        if valid:
            self._null_rows(out, valid)
        repeat: NDArray[np.int64] | None = None
        for role, array in out.arrays.items():
            if role in lists:
                flat = bare(_elements(array))
                out.arrays[role] = _with_gaps(flat, valid[role], lengths) if role in valid else flat
            else:
                if repeat is None:
                    repeat = np.repeat(np.arange(len(lengths)), lengths)
                out.arrays[role] = _taken(array, repeat)
        return lengths

    def _common(
        self, own: Mapping[str, NDArray[np.int64]], valid: Mapping[str, NDArray[np.bool_]]
    ) -> NDArray[np.int64]:
        """Return the length of each row; null lists have no say."""
        lengths: NDArray[np.int64] = np.maximum.reduce(list(own.values()))
        for role, mine in own.items():
            wrong = mine != lengths
            if role in valid:
                wrong &= valid[role]
            if wrong.any():
                raise self._disagree(own, valid, int(np.argmax(wrong)))
        return lengths

    def _null_rows(self, out: Aligned, valid: Mapping[str, NDArray[np.bool_]]) -> None:
        """Count the rows that are null in every column; refuse those whose length nothing tells."""
        lists = [role for role, array in out.arrays.items() if is_list(array.type)]
        if len(valid) < len(lists):
            return
        gone = ~np.logical_or.reduce(list(valid.values()))
        for role, array in out.arrays.items():
            if role in lists or role not in ROLES or ROLES[role].kind not in ("log_prob", "real"):
                continue
            alone = gone & _valid(array)
            if alone.any():
                row = int(np.argmax(alone))
                raise InputError(
                    f"{' and '.join(repr(self.names[one]) for one in lists)} are null where "
                    f"'{self.names[role]}' has a value, so the number of tokens is not known",
                    where=f"{self.path}, {self._place(row)}",
                    hint="write null in every column of a row that holds nothing, or drop the row",
                )
        if self._offsets is None:
            out.n_null_rows = int(np.count_nonzero(gone))

    def _disagree(
        self, own: Mapping[str, NDArray[np.int64]], valid: Mapping[str, NDArray[np.bool_]], index: int
    ) -> InputError:
        """Build the error for two lists of one row that have different lengths."""
        have = {role: int(own[role][index]) for role in own if role not in valid or valid[role][index]}
        first = next(iter(have))
        other = next(role for role in have if have[role] != have[first])
        hint = "write lists of one length; nothing is cut or padded"
        if 1 in (have[first], have[other]):
            hint += ". A column with one value per row is repeated if it is stored as a number, not as a list"
        return InputError(
            f"'{self.names[first]}' has {have[first]} values and '{self.names[other]}' has {have[other]} "
            f"in {self._place(index)}",
            where=f"{self.path}, {self._place(index)}",
            hint=hint,
        )

    def _place(self, index: int) -> str:
        """Name a row of the file, or a step of a row."""
        if self._offsets is None:
            return f"row {self._first_row + index}"
        row = int(np.searchsorted(self._offsets, index, side="right")) - 1
        return f"row {self._first_row + row}, step {index - int(self._offsets[row])}"


def _valid(array: Any) -> NDArray[np.bool_]:
    """Return which elements are not null."""
    present = present_of(array)
    return np.ones(len(array), np.bool_) if present is None else present.view(np.bool_)


def _lengths(array: Any) -> NDArray[np.int64]:
    """Return the length of each list, 0 where it is null."""
    # Not by `pyarrow.compute`, which takes 30 ms to import.
    lengths: NDArray[np.int64]
    if pa.types.is_fixed_size_list(array.type):
        lengths = np.full(len(array), array.type.list_size, np.int64)
    else:
        lengths = np.diff(array.offsets.to_numpy()).astype(np.int64, copy=False)
    if array.null_count:
        lengths[~_valid(array)] = 0
    return lengths


def _elements(array: Any) -> Any:
    """Return the elements of the lists that are not null, one after the other."""
    if array.null_count:
        return array.flatten()
    # Which is what `flatten` does, but that imports `pyarrow.compute`.
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        return array.values.slice(array.offset * size, len(array) * size)
    first, last = (array.offsets[k].as_py() for k in (0, len(array))) if len(array) else (0, 0)
    return array.values.slice(first, last - first)


def _taken(array: Any, index: NDArray[np.int64]) -> Any:
    """Return elements by their index; numbers by NumPy, for `take` imports `pyarrow.compute`."""
    kind = array.type
    if array.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return array.take(pa.array(index))
    return pa.array(values_of(array)[index], type=kind)


def _with_gaps(flat: Any, valid: NDArray[np.bool_], lengths: NDArray[np.int64]) -> Any:
    """Return `flat` with nulls put in for the elements of null lists that other columns know to exist."""
    there = np.repeat(valid, lengths)
    index = np.cumsum(there) - 1
    return flat.take(pa.array(index, mask=~there))


def present_of(array: Any) -> NDArray[np.uint8] | None:
    """Return 1 for each value and 0 for each null, or None without nulls."""
    if not array.null_count:
        return None
    bitmap = array.buffers()[0]
    if bitmap is None:  # type null
        return np.zeros(len(array), np.uint8)
    return _unpacked(bitmap, array.offset, len(array))


def values_of(array: Any) -> NDArray[Any]:
    """Return the values of a primitive array without a copy; what stands at nulls is not defined."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.float32)
    buffer = array.buffers()[1]
    if pa.types.is_boolean(array.type):
        return _unpacked(buffer, array.offset, len(array)).view(np.bool_)
    # Not by `to_pandas_dtype`, which wants pandas in older versions of PyArrow.
    dtype: np.dtype[Any] = np.dtype(depth_and_leaf(array.type)[1])
    if not len(array):
        return np.empty(0, dtype)
    values: NDArray[Any] = np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)
    return values


def _unpacked(bitmap: Any, offset: int, count: int) -> NDArray[np.uint8]:
    """Return `count` bits from bit `offset` on as bytes."""
    start = offset // 8
    raw = np.frombuffer(bitmap, np.uint8)[start : (offset + count + 7) // 8]
    return np.unpackbits(raw, bitorder="little")[offset - 8 * start : offset - 8 * start + count]


def codes_of(array: Any, coder: IdCoder) -> NDArray[Any]:
    """Return ids as integers: stored integers as they are, text by `coder`."""
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return values_of(array)
    coded = array.dictionary_encode()
    codes = text_codes(coded.dictionary.to_pylist(), coder)
    if not len(codes):
        return np.zeros(len(array), np.int64)
    spread: NDArray[np.int64] = codes[values_of(coded.indices.fill_null(0))]
    return spread


def sum_innermost(array: Any, values_in: Callable[[Any], NDArray[Any]]) -> Any:
    """Sum the innermost lists in float64: one value per action from its dimensions.

    `values_in` gives the numbers of a flat array. A list that is null, empty or holds a null gives null.
    """
    lengths = _lengths(array)
    flat = bare(_elements(array))
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    if is_list(flat.type):
        mask = pa.array(~_valid(array)) if array.null_count else None
        return pa.LargeListArray.from_arrays(pa.array(ends), sum_innermost(flat, values_in), mask=mask)
    known = lengths > 0
    sums = np.zeros(len(lengths))
    if known.any():
        starts = ends[:-1][known]
        present = present_of(flat)
        sums[known] = np.add.reduceat(values_in(flat).astype(np.float64), starts)
        if present is not None:
            known[known] = np.minimum.reduceat(present, starts) > 0
    return pa.array(sums, mask=~known)
