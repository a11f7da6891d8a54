"""What element types each kind of role accepts, and how values become columns, masks and ids."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core.chunk import Column, IdCoder, Ids
from ppocli.core.roles import ROLES
from ppocli.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.chunk import ReadOptions

BFLOAT16 = "bfloat16"
FLOATS = frozenset({"float16", "float32", "float64", BFLOAT16})
INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
TEXTS = frozenset({"string", "large_string", "string_view"})

_ACCEPTED: dict[str, tuple[frozenset[str], str]] = {
    "log_prob": (FLOATS | {"null"}, "log-probs are floating point"),
    "real": (FLOATS | INTEGERS | {"bool", "null"}, "numbers are wanted here"),
    "mask": (FLOATS | INTEGERS | {"bool", "null"}, "a mask holds 0 and 1"),
    "id": (INTEGERS | TEXTS | {"bool", "null"}, "ids are integers or text"),
}

# The kernels reduce blocks of this many tokens.
_BLOCK = 2048

# Above this a float64 does not hold every integer.
_EXACT = 2**53


def is_id(role: str) -> bool:
    """Return whether a role tells sequences, groups or steps apart."""
    return ROLES[role].kind == "id" and role != "token_id"


def is_value(role: str) -> bool:
    """Return whether a role's values go into `Chunk.columns`."""
    return ROLES[role].kind in ("log_prob", "real") or role == "token_id"


def flat_rows(chunk_tokens: int) -> int:
    """Return the rows of a chunk in which each row is one token: whole blocks of the kernels."""
    return chunk_tokens - chunk_tokens % _BLOCK if chunk_tokens > _BLOCK else chunk_tokens


def type_name(dtype: np.dtype[Any]) -> str:
    """Return a NumPy type's name in reports; two raw bytes are how NumPy stores bfloat16."""
    if dtype.kind == "V" and dtype.names is None and dtype.name != BFLOAT16:
        return BFLOAT16 if dtype.itemsize == 2 else f"raw bytes ({dtype.itemsize} per value)"
    return "string" if dtype.kind == "U" else dtype.name


def read_as(role: str, column: str, dtype: str, bits: Collection[str], where: str) -> str:
    """Return the type by which a column's values are read, or refuse it.

    Parameters
    ----------
    role, column : str
    dtype : str
        Element type as stored: "float32", "uint16", "string", ...
    bits : collection of str
        Roles whose uint16 column holds bfloat16 bits.
    where : str
        The file, for the message.

    Returns
    -------
    str
        `dtype`, or "bfloat16" for bits.

    Raises
    ------
    InputError
        A type that the role does not take.
    """
    if role in bits:
        if dtype not in ("uint16", BFLOAT16):
            raise InputError(
                f"column '{column}' ({role}) is {dtype}; bfloat16 bits are stored as uint16", where=where
            )
        return BFLOAT16
    accepted, why = _ACCEPTED[ROLES[role].kind]
    if role == "token_id":
        accepted = accepted - TEXTS
    if dtype in accepted:
        return dtype
    raise InputError(
        f"column '{column}' ({role}) is {dtype}: {why}", where=where, hint=_other_type(role, dtype)
    )


def _other_type(role: str, dtype: str) -> str:
    """Return what to do about a type that was refused."""
    kind = ROLES[role].kind
    if kind == "log_prob" and dtype == "uint16":
        return f"if these are the bits of bfloat16 values, say so: --bits {role}"
    if kind == "log_prob" and dtype in INTEGERS:
        return "integers hold no log-probs; were they rounded, or are they token ids?"
    if kind == "id" and dtype in FLOATS:
        return "floating point loses digits of ids: store integers, or rename a column that is none"
    store = "integers or text" if kind == "id" else "float32 or float64"
    return f"store it as {store}, or name another column: --col {role}=NAME"


def frozen(values: NDArray[Any]) -> NDArray[Any]:
    """Return a contiguous read-only view in native byte order; a copy only where that needs one.

    All arrays of all readers are read-only, so that a kernel meets one array type per element type.
    """
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if not values.flags.aligned:  # buffers of a file may begin anywhere
        values = values.copy()
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view


def widened(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the float32 values of bfloat16 bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def as_log_probs(values: NDArray[Any], role: str, options: ReadOptions) -> NDArray[Any]:
    """Return the log-probs that a role's values stand for: minus the values, their logarithms, or the values.

    The sign of a number changes exactly in every format; logarithms are float64, -inf at 0 and NaN below.
    """
    if role in options.neglogp:
        return values ^ np.uint16(0x8000) if values.dtype == np.uint16 else -values
    if role in options.probs:
        wide = widened(values) if values.dtype == np.uint16 else values
        with np.errstate(divide="ignore", invalid="ignore"):
            logs: NDArray[np.float64] = np.log(wide.astype(np.float64))
        return logs
    return values


def form_notes(roles: Collection[str], options: ReadOptions) -> list[str]:
    """Say of which of these roles the column does not hold log-probs."""
    negated = [f"{role}: minus the stored values (--neglogp)" for role in roles if role in options.neglogp]
    return [
        *negated,
        *(f"{role}: logarithms of the stored values (--probs)" for role in roles if role in options.probs),
    ]


def to_column(values: NDArray[Any], present: NDArray[np.uint8] | None, dtype: str) -> Column:
    """Make a column of values read as `dtype`; integers and bools become float64.

    Raises
    ------
    ValueError
        An integer that float64 does not hold.
    """
    if dtype not in FLOATS:
        if values.dtype.itemsize == 8:
            shown = values if present is None else values[present != 0]
            if shown.size and (int(shown.min()) < -_EXACT or int(shown.max()) > _EXACT):
                raise ValueError("an integer beyond 2^53 cannot be held exactly")
        values = values.astype(np.float64)
    return Column(frozen(values), None if present is None else frozen(present))


def to_mask(values: NDArray[Any], present: NDArray[np.uint8] | None, dtype: str) -> NDArray[np.uint8]:
    """Return the mask as 0 and 1.

    Raises
    ------
    BadMaskValue
        A null, or a value other than 0 and 1.
    """
    if present is not None and not present.all():
        raise BadMaskValue(int(np.argmin(present)), "null")
    if values.dtype == np.bool_:
        return frozen(values.view(np.uint8))
    if dtype == BFLOAT16:
        values = widened(values)
    if values.dtype.kind in "iu":
        fine = not values.size or (int(values.min()) >= 0 and int(values.max()) <= 1)
    else:
        fine = bool(((values == 0) | (values == 1)).all())
    if not fine:
        first = int(np.argmin((values == 0) | (values == 1)))
        raise BadMaskValue(first, f"{values[first].item()!r}")
    return frozen(values.astype(np.uint8, copy=False))


class BadMaskValue(Exception):
    """A mask value that is neither 0 nor 1: where in the chunk, and what it is."""

    def __init__(self, index: int, shown: str) -> None:
        super().__init__(shown)
        self.index = index
        self.shown = shown

    def located(
        self, path: str, column: str, first_row: int, offsets: NDArray[np.int64] | None
    ) -> InputError:
        """Return the error with the file's row and the position in it."""
        place = f"row {first_row + self.index}"
        if offsets is not None:
            row = int(np.searchsorted(offsets, self.index, side="right")) - 1
            place = f"row {first_row + row}, position {self.index - int(offsets[row])}"
        return InputError(
            f"mask column '{column}' holds {self.shown}; a mask is 0 or 1",
            where=f"{path}, {place}",
            hint="store bool or 0/1; a weight per token is not a mask",
        )


def to_ids(values: NDArray[Any], present: NDArray[np.uint8] | None) -> Ids:
    """Make ids of integers, exactly; uint64 keeps its bits."""
    codes = values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64, copy=False)
    return Ids(frozen(codes), None if present is None else frozen(present))


def to_token_ids(values: NDArray[Any], present: NDArray[np.uint8] | None) -> Column:
    """Make a column of integers, exactly: int64, or uint64 where that is stored."""
    if values.dtype != np.uint64:
        values = values.astype(np.int64, copy=False)
    return Column(frozen(values), None if present is None else frozen(present))


def text_codes(texts: list[str | None], coder: IdCoder) -> NDArray[np.int64]:
    """Return the code of each text; that of None is not defined."""
    return np.array([0 if text is None else coder.code(text) for text in texts], np.int64)
