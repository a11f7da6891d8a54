"""The layout that ppocli writes: one row per sequence, columns named by role, exact types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from ppocli import __version__
from ppocli.core.roles import ROLES
from ppocli.io import convert
from ppocli.io.fields import KEY

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from ppocli.core.chunk import Chunk, Column, IdCoder, Ids, ReadOptions
    from ppocli.core.report import InputReport


@dataclass(frozen=True, slots=True)
class Stored:
    """How one role is written.

    Attributes
    ----------
    type : str
        Element type in the file.
    origin : str
        Element type before, such as "bfloat16".
    per : {"token", "row"}
        A list per row, or a plain column with one value per row.
    """

    type: str
    origin: str
    per: Literal["token", "row"]

    def merged(self, other: Stored) -> Stored | None:
        """Return how both can be written in one column, exactly; None where they cannot."""
        kinds = {self.type, other.type}
        if len(kinds) > 1 and kinds != {"float32", "float64"}:
            return None
        origins = list(dict.fromkeys([*self.origin.split(", "), *other.origin.split(", ")]))
        per: Literal["token", "row"] = "row" if {self.per, other.per} == {"row"} else "token"
        return Stored(max(kinds), ", ".join(origins), per)


@dataclass(frozen=True, slots=True)
class Canonical:
    """The layout of one file that is written.

    Attributes
    ----------
    nested : bool
        One row per sequence. False: rows are tokens, for data without sequences or with a `sequence_id`.
    roles : mapping of role to Stored
    """

    nested: bool
    roles: Mapping[str, Stored]

    def schema(self, metadata: Mapping[str, Any]) -> Any:
        """Return the Arrow schema; `metadata` go into it beside roles, origins and version.

        Floats are float32, or float64 where the source is; masks bool; ids int64, uint64 or text. Tokens of a
        row are a list.
        """
        said = {
            "version": __version__,
            "layout": "list" if self.nested else "flat",
            "roles": {role: asdict(one) for role, one in self.roles.items()},
            **({"metadata": dict(metadata)} if metadata else {}),
        }
        fields = []
        for role, one in self.roles.items():
            kind = pa.bool_() if one.type == "bool" else getattr(pa, one.type)()
            fields.append(pa.field(role, pa.list_(kind) if self._is_list(role) else kind))
        return pa.schema(fields, {KEY: json.dumps(said, ensure_ascii=False)})

    def batch(
        self, chunk: Chunk, schema: Any, coders: Mapping[str, IdCoder], per_row: Collection[str]
    ) -> Any:
        """Return the rows of a chunk that was read with `repeat=False`, as a record batch.

        Parameters
        ----------
        chunk : Chunk
        schema : Schema
            From `schema`.
        coders : mapping of role to IdCoder
            Those by which text ids were coded.
        per_row : collection of str
            Roles of which the chunk has one value per row.
        """
        starts = np.arange(chunk.n_rows + 1) if chunk.offsets is None else chunk.offsets
        offsets, lengths = pa.array(starts, pa.int32()), np.diff(starts)
        arrays = []
        for role, one in self.roles.items():
            values = self._values(role, one, chunk, coders)
            if self._is_list(role):
                if role in per_row:  # here, but another source has one per token
                    values = values.take(pa.array(np.repeat(np.arange(chunk.n_rows), lengths)))
                arrays.append(pa.ListArray.from_arrays(offsets, values))
            else:
                arrays.append(values)
        return pa.record_batch(arrays, schema=schema)

    def _is_list(self, role: str) -> bool:
        """Return whether a role's column holds a list per row."""
        return self.nested and self.roles[role].per == "token"

    def _values(self, role: str, one: Stored, chunk: Chunk, coders: Mapping[str, IdCoder]) -> Any:
        """Return a role's values as a flat Arrow array of its type."""
        if role == "mask":
            mask = np.ones(chunk.n_tokens, np.uint8) if chunk.mask is None else chunk.mask
            return pa.array(mask.view(np.bool_))
        column: Column | Ids = getattr(chunk, role) if convert.is_id(role) else chunk.columns[role]
        absent = None if column.present is None else column.present == 0
        if convert.is_id(role):
            return _ids(column.codes, absent, one.type, coders.get(role))  # type: ignore[union-attr]
        values: NDArray[Any] = column.values  # type: ignore[union-attr]
        if role == "token_id":
            return _ids(values, absent, one.type, None)
        if values.dtype == np.uint16:
            values = convert.widened(values)
        return pa.array(values.astype(one.type, copy=False), mask=absent)


def _ids(codes: NDArray[np.int64], absent: NDArray[np.bool_] | None, kind: str, coder: IdCoder | None) -> Any:
    """Return ids as they were before they became codes."""
    if kind != "string":
        return pa.array(codes.view(kind), mask=absent)
    texts = {} if coder is None else {code: text for text, code in coder.codes.items()}
    distinct, index = np.unique(codes, return_inverse=True)
    words = pa.array([texts.get(code) for code in distinct.tolist()], pa.string())
    return words.take(pa.array(index, mask=absent))


def canonical_of(
    report: InputReport, per_row: Collection[str], options: ReadOptions, origins: Mapping[str, str]
) -> Canonical:
    """Return the layout in which an input is written.

    Parameters
    ----------
    report : InputReport
    per_row : collection of str
        Roles that it stores once per row.
    options : ReadOptions
        Those by which it is read.
    origins : mapping of role to str
        Types that the values had before they came into this input, where that is known.
    """
    roles: dict[str, Stored] = {}
    for role, column in report.columns.items():
        kind = _stored_type(role, column.dtype, options)
        # A column of only nulls has no lists to go by; log-probs are stored one per token nevertheless.
        by_row = role in per_row and ROLES[role].kind != "log_prob"
        roles[role] = Stored(kind, origins.get(role, column.dtype), "row" if by_row else "token")
    return Canonical(report.layout != "flat", roles)


def _stored_type(role: str, dtype: str, options: ReadOptions) -> str:
    """Return the element type by which a role's values are written, without loss."""
    kind = ROLES[role].kind
    if kind == "mask":
        return "bool"
    if kind == "id":
        return "string" if dtype in convert.TEXTS else "uint64" if dtype == "uint64" else "int64"
    if kind == "log_prob" and (options.sum_dims or role in options.probs):
        return "float64"  # sums and logarithms are float64
    return "float32" if dtype in ("float16", "float32", convert.BFLOAT16, "null") else "float64"


def origins_of(schema: Any) -> dict[str, str]:
    """Return the types that values had before they came into a file that ppocli wrote, by role."""
    try:
        said = json.loads((schema.metadata or {})[KEY])
        return {role: str(one["origin"]) for role, one in said["roles"].items() if role in ROLES}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}  # somebody else's metadata, or none
