"""Arrays in memory as one input: NumPy, torch (if the caller has it), lists of sequences."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ppocli.core.report import ColumnReport, InputReport
from ppocli.core.roles import MAIN_ROLES, ROLES
from ppocli.errors import InputError, UsageProblem
from ppocli.io import convert
from ppocli.io.columns import check_roles
from ppocli.io.placed import ArrayElements, PlacedArrays, Source
from ppocli.io.shapes import Placement, Plan, plan_layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.chunk import Chunk, IdCoder, ReadOptions

PATH = "<arrays>"


class ArrayReader:
    """Arrays by role, with the layouts of NPZ files and lists of one-dimensional arrays as ragged sequences.

    Parameters
    ----------
    arrays : mapping of role to array_like
        NumPy arrays of float16, float32, float64 or bfloat16 (by name, as ml_dtypes calls it), torch tensors
        (detached; never imported here), numbers, sequences of these. None counts as absent. Nothing is
        copied that is contiguous already.
    options : ReadOptions
        `columns` plays no part: the roles are named by the caller.
    coders : mapping of role to IdCoder, optional
    required : collection of str
        Roles that must be there.

    Raises
    ------
    UsageProblem
        A role that does not exist, or a required one that is missing.
    InputError
        Types or shapes that do not fit.
    """

    def __init__(
        self,
        arrays: Mapping[str, Any],
        options: ReadOptions,
        coders: Mapping[str, IdCoder] | None = None,
        required: Collection[str] = MAIN_ROLES,
    ) -> None:
        check_roles(arrays)
        given = {role: value for role in ROLES if (value := arrays.get(role)) is not None}
        missing = [role for role in required if role not in given]
        if missing:
            raise UsageProblem(
                f"no array for {', '.join(missing)}", hint=f"given: {', '.join(given) or 'none'}"
            )
        stacked = options.sum_dims or options.layout != "auto"
        lists = {} if stacked else {role: value for role, value in given.items() if _is_ragged(value)}
        rows = {role: [_to_numpy(role, row) for row in value] for role, value in lists.items()}
        whole = {role: _to_numpy(role, value) for role, value in given.items() if role not in lists}
        plan, offsets, flat = _place_rows(rows, whole) if rows else _place(whole, options)
        sources = {}
        for role, placed in plan.placements.items():
            array = flat[role]
            dtype = convert.read_as(role, role, convert.type_name(array.dtype), options.bits, PATH)
            bits = dtype == convert.BFLOAT16
            opener = partial(ArrayElements, array.view(np.uint16) if bits else array)
            sources[role] = Source(role, dtype, placed.spread, placed.dims, opener)
        self._arrays = PlacedArrays(
            PATH, plan.n_rows, plan.row_tokens, offsets, sources, dict(coders or {}), options
        )
        self._report = InputReport(
            path=PATH,
            format="arrays",
            layout=plan.layout,
            rows=plan.n_rows,
            bytes=sum(array.nbytes for array in flat.values()),
            columns={role: ColumnReport(one.column, one.dtype) for role, one in sources.items()},
            notes=(*plan.notes, *convert.form_notes(sources, options)),
        )

    @property
    def report(self) -> InputReport:
        """What was given."""
        return self._report

    @property
    def per_row(self) -> frozenset[str]:
        """Roles that are stored once per row; see `ppocli.core.chunk.Reader`."""
        return self._arrays.per_row

    def chunks(self, roles: Collection[str], chunk_tokens: int, *, repeat: bool = True) -> Iterator[Chunk]:
        """Yield the rows in order; see `ppocli.core.chunk.Reader`."""
        return self._arrays.chunks(roles, chunk_tokens, repeat=repeat)

    def close(self) -> None:
        """Do nothing."""


def _is_ragged(value: Any) -> bool:
    """Return whether a value is a list of sequences."""
    return isinstance(value, (list, tuple)) and len(value) > 0 and _axes(value[0]) > 0


def _axes(value: Any) -> int:
    """Return the number of axes without converting the value."""
    return 1 if isinstance(value, (list, tuple)) else int(getattr(value, "ndim", 0))


def _are_numbers_of(torch: ModuleType, values: Sequence[Any]) -> bool:
    """Return whether all are tensors without axes, as one number per sequence may come."""
    return bool(values) and all(isinstance(one, torch.Tensor) and one.ndim == 0 for one in values)


def _to_numpy(role: str, value: Any) -> NDArray[Any]:
    """Return a value as a NumPy array without changing any element."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        tensor = value.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            bits: NDArray[Any] = tensor.contiguous().view(torch.int16).numpy()
            # Two raw bytes per value is how NumPy itself hands bfloat16 around.
            return bits.view("V2")
        try:
            return np.asarray(tensor.numpy())
        except (TypeError, RuntimeError):  # float8, sparse, quantised
            raise InputError(
                f"'{role}' is a tensor of type {tensor.dtype}, which NumPy does not have",
                where=PATH,
                hint="convert it first: tensor.float()",
            ) from None
    if torch is not None and isinstance(value, (list, tuple)) and _are_numbers_of(torch, value):
        return np.stack([_to_numpy(role, one) for one in value])
    if isinstance(value, np.ma.MaskedArray) or type(value).__module__.partition(".")[0] == "pyarrow":
        raise InputError(
            f"'{role}' is a {type(value).__name__}, whose missing values a plain array cannot hold",
            where=PATH,
            hint="give a plain NumPy array, with mask= for the tokens that count",
        )
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.asarray(np.from_dlpack(value))
        return np.asarray(value)
    except ValueError:
        raise InputError(
            f"'{role}' has rows of different lengths",
            where=PATH,
            hint="give a list of one-dimensional arrays",
        ) from None
    except (TypeError, RuntimeError) as failure:  # a list of tensors that require a gradient, and the like
        said = (str(failure).strip() or type(failure).__name__).splitlines()[0]
        raise InputError(f"'{role}' cannot be made a NumPy array: {said}", where=PATH) from None


def _place(
    arrays: Mapping[str, NDArray[Any]], options: ReadOptions
) -> tuple[Plan, None, dict[str, NDArray[Any]]]:
    """Place whole arrays by their shapes."""
    names = {role: role for role in arrays}
    plan = plan_layout(PATH, {role: array.shape for role, array in arrays.items()}, names, options)
    swapped = {role for role, one in plan.placements.items() if one.swapped}
    return plan, None, {role: one.swapaxes(0, 1) if role in swapped else one for role, one in arrays.items()}


def _place_rows(
    rows: Mapping[str, list[NDArray[Any]]], whole: Mapping[str, NDArray[Any]]
) -> tuple[Plan, NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Place lists of sequences, and whole arrays beside them."""
    first = next((role for role in rows if ROLES[role].kind == "log_prob"), next(iter(rows)))
    lengths = _row_lengths(first, rows[first])
    flat: dict[str, NDArray[Any]] = {}
    placements: dict[str, Placement] = {}
    for role, sequences in rows.items():
        _same_lengths(first, lengths, role, _row_lengths(role, sequences))
        # An empty list has no type of its own and must not widen the others.
        filled = [one.reshape(-1) for one in sequences if one.size] or [sequences[0].reshape(-1)]
        flat[role] = np.concatenate(filled)
        placements[role] = Placement("token")
    notes = []
    for role, array in whole.items():
        spread = _spread(first, lengths, role, array)
        flat[role], placements[role] = array.reshape(-1), Placement(spread)
        if spread != "token" and ROLES[role].kind != "id":
            per = "one value per row, repeated over its tokens"
            notes.append(f"{role}: {per if spread == 'row' else 'one value, repeated over all tokens'}")
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    ids = placements.get("sequence_id")
    layout = "packed" if ids is not None and ids.spread == "token" else "list"
    ordered = {role: placements[role] for role in ROLES if role in placements}
    return Plan(layout, len(lengths), None, ordered, tuple(notes)), offsets, flat


def _row_lengths(role: str, sequences: list[NDArray[Any]]) -> NDArray[np.int64]:
    """Return the length of each sequence; each has one axis, or a second one of 1."""
    for row, one in enumerate(sequences):
        if one.ndim != 1 and one.shape[1:] != (1,):
            raise InputError(
                f"'{role}' has shape {one.shape} in row {row}; a row of a list has one axis",
                where=f"{PATH}, row {row}",
            )
    return np.array([len(one) for one in sequences], np.int64)


def _same_lengths(first: str, lengths: NDArray[np.int64], role: str, others: NDArray[np.int64]) -> None:
    """Refuse lists whose rows have different numbers of tokens."""
    if len(lengths) != len(others):
        raise InputError(f"'{first}' has {len(lengths)} rows and '{role}' has {len(others)}", where=PATH)
    if not np.array_equal(lengths, others):
        row = int(np.argmax(lengths != others))
        raise InputError(
            f"'{first}' has {lengths[row]} values and '{role}' has {others[row]} in row {row}",
            where=f"{PATH}, row {row}",
            hint="give lists of one length; nothing is cut or padded",
        )


def _spread(
    first: str, lengths: NDArray[np.int64], role: str, array: NDArray[Any]
) -> Literal["token", "row", "all"]:
    """Return how a whole array meets lists of sequences."""
    n_rows = len(lengths)
    if array.ndim == 2 and len(array) == n_rows and (lengths == array.shape[1]).all():
        return "token"
    if ROLES[role].kind != "log_prob":
        if array.shape in ((n_rows,), (n_rows, 1)):
            return "row"
        if array.shape == ():
            return "all"
    raise InputError(
        f"'{first}' is a list of {n_rows} sequences and '{role}' has shape {array.shape}",
        where=PATH,
        hint="give a list like it, or one value per row or for all; log-probs one per token",
    )
