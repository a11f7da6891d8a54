"""How whole arrays (members of an NPZ file, arrays in memory) become tokens: layout from shapes alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ppocli.core.roles import ROLES
from ppocli.errors import InputError

if TYPE_CHECKING:
    from ppocli.core.chunk import ReadOptions

Shape = tuple[int, ...]

TIME_NOT_USED = "--layout time: not used, no array has the two axes time and sequence"
ENV_NOT_USED = "--layout env: not used, no array has the two axes time and environment"
SUM_NOT_USED = "--sum-dims: not used, the log-probs have one value per token"


def layout_not_used(layout: str) -> str:
    """Return the note about `--layout time` or `env` where there is nothing for it to do."""
    return ENV_NOT_USED if layout == "env" else TIME_NOT_USED


@dataclass(frozen=True, slots=True)
class Placement:
    """How one array meets the tokens.

    Attributes
    ----------
    spread : {"token", "row", "all"}
        One value per token; one per row, repeated over its tokens; one for all tokens.
    swapped : bool
        The first two axes are (time, row) and have to be exchanged.
    dims : int
        Values of one token, summed; 1 where nothing is summed.
    """

    spread: Literal["token", "row", "all"]
    swapped: bool = False
    dims: int = 1

    def axes(self, count: int) -> tuple[int, ...] | None:
        """Return the order in which an array's `count` axes are wanted; None: as they are."""
        return (1, 0, *range(2, count)) if self.swapped else None


@dataclass(frozen=True, slots=True)
class Plan:
    """The layout of one input.

    Attributes
    ----------
    layout : {"flat", "padded", "packed"}
    n_rows : int
    row_tokens : int, optional
        Tokens of each row. None: flat, each row is one token.
    placements : mapping of role to Placement
        Without token ids that are not one per token: they locate tokens and change no number.
    notes : tuple of str
    """

    layout: str
    n_rows: int
    row_tokens: int | None
    placements: Mapping[str, Placement]
    notes: tuple[str, ...]


def plan_layout(
    path: str, shapes: Mapping[str, Shape], names: Mapping[str, str], options: ReadOptions
) -> Plan:
    """Find the layout that the shapes of all roles agree on.

    Accepted are (N,); (B, T), or (T, N) with `layout="time"`; one trailing 1 on any of these; (B,) and ()
    beside (B, T), repeated over tokens, for all but log-probs; and with `sum_dims` one more axis on
    log-probs. The log-probs decide; without any, the array with most axes. With `layout="env"` the array with
    most axes decides, (T, N), and (N * T,) beside it is taken environment by environment.

    Parameters
    ----------
    path : str
    shapes : mapping of role to shape
    names : mapping of role to column name
        For messages, like `path`.
    options : ReadOptions

    Raises
    ------
    InputError
        Shapes that do not agree, or more axes than these.
    """
    planner = _Planner(path, shapes, names, options)
    base, decided = planner.base()
    if len(base) > 2:
        raise InputError(
            f"'{names[decided]}' has shape {shapes[decided]}: more than two axes",
            where=path,
            hint="flatten it, or use --sum-dims if the last axis holds the dimensions of one action",
        )
    rows = base[:1] if len(base) == 2 else ()
    placements = {
        role: planner.place(role, base, rows, decided)
        for role in shapes
        if role != "token_id" or planner.fits(role, base)
    }
    n_rows = base[0] if base else 1
    ids = placements.get("sequence_id")
    packed = len(base) == 2 and ids is not None and ids.spread == "token"
    planner.say(placements, len(base))
    return Plan(
        layout="packed" if packed else "padded" if len(base) == 2 else "flat",
        n_rows=n_rows,
        row_tokens=base[1] if len(base) == 2 else None,
        placements=placements,
        notes=tuple(planner.notes),
    )


@dataclass(slots=True)
class _Planner:
    """The shapes of one input while its layout is looked for."""

    path: str
    shapes: Mapping[str, Shape]
    names: Mapping[str, str]
    options: ReadOptions
    notes: list[str] = field(default_factory=list)

    @property
    def time_first(self) -> bool:
        """Whether two-dimensional arrays are (time, environment)."""
        return self.options.layout in ("time", "env")

    def logical(self, role: str) -> tuple[Shape, int]:
        """Return a role's shape as (row, token) axes, and how many values each element sums."""
        shape, dims = self.squeezed(role), 1
        if self.options.sum_dims and ROLES[role].kind == "log_prob" and len(shape) > 1:
            other = self._one_per_action()
            if shape != other and shape[-1]:
                shape, dims = shape[:-1], shape[-1]
        if self.time_first and len(shape) > 1:
            shape = (shape[1], shape[0], *shape[2:])
        return shape, dims

    def _one_per_action(self) -> Shape | None:
        """Return the shape of a column that has one value per action, if there is one."""
        for role in ("advantages", "mask", "returns", "values"):
            if role in self.shapes:
                return self.squeezed(role)
        return None

    def squeezed(self, role: str) -> Shape:
        """Return a role's shape without a trailing axis of 1; (T, 1) in time layout is one sequence."""
        shape = self.shapes[role]
        least = 2 if self.options.layout == "time" else 1
        return shape[:-1] if len(shape) > least and shape[-1] == 1 else shape

    def base(self) -> tuple[Shape, str]:
        """Return the shape of the tokens and the role that decides it."""
        log_probs = [role for role in self.shapes if ROLES[role].kind == "log_prob"]
        values = [role for role in self.shapes if ROLES[role].kind != "id"]
        candidates = log_probs or values or list(self.shapes)
        if self.options.layout == "env":
            candidates = values  # rewards may be the only ones that are not flat
        role = max(candidates, key=lambda one: len(self.logical(one)[0]))
        return self.logical(role)[0], role

    def fits(self, role: str, base: Shape) -> bool:
        """Return whether a role has one value per token; say so if not."""
        fits = self.logical(role)[0] == base
        if not fits:
            self.notes.append(f"{role}: not read, '{self.names[role]}' has shape {self.shapes[role]}")
        return fits

    def place(self, role: str, base: Shape, rows: Shape, decided: str) -> Placement:
        """Return how a role's array meets the tokens."""
        shape, dims = self.logical(role)
        if shape == base:
            return Placement("token", self.time_first and len(shape) == 2, dims)
        if self.options.layout == "env" and len(base) == 2 and shape == (math.prod(base),):
            return Placement("token", dims=dims)
        if ROLES[role].kind != "log_prob":
            if shape == rows and rows:
                return Placement("row")
            if shape == ():
                return Placement("all")
        raise self.disagree(role, decided)

    def disagree(self, role: str, decided: str) -> InputError:
        """Build the error for two arrays that do not fit together."""
        one, other = self.shapes[decided], self.shapes[role]
        if len(one) == len(other) == 1:
            what = f"'{self.names[decided]}' has {one[0]} values and '{self.names[role]}' has {other[0]}"
            hint = "the file looks cut, or the arrays come from different batches; nothing is cut or padded"
        else:
            what = f"'{self.names[decided]}' has shape {one} and '{self.names[role]}' has shape {other}"
            hint = "accepted are equal shapes, or one value per row or for all; log-probs one per token"
            if not self.time_first and len(one) == 2 and other == one[1:]:
                hint = "if the first axis is time, say so: --layout time"
            elif math.prod(one) == math.prod(other):
                hint = (
                    "if the flat arrays go environment by environment and the others are (time, "
                    "environment), as SB3's are after training, say so: --layout env"
                )
            elif len(one) > len(other) and not self.options.sum_dims:
                hint += "; --sum-dims if the last axis holds the dimensions of one action"
        return InputError(what, where=self.path, hint=hint)

    def say(self, placements: Mapping[str, Placement], axes: int) -> None:
        """Note what was squeezed, summed, exchanged and repeated."""
        squeezed = [role for role in placements if self.shapes[role] != self.squeezed(role)]
        if squeezed:
            self.notes.append(f"trailing axis of 1 dropped: {', '.join(squeezed)}")
        for role, one in placements.items():
            if one.dims > 1:
                self.notes.append(f"{role}: summed over the last axis ({one.dims} action dimensions)")
            if one.spread == "row" and ROLES[role].kind != "id":
                self.notes.append(f"{role}: one value per row, repeated over its tokens")
            if one.spread == "all" and axes and ROLES[role].kind != "id":
                self.notes.append(f"{role}: one value, repeated over all tokens")
        if axes == 2 and self.time_first:
            flat = ", flat arrays sequence by sequence" if self.options.layout == "env" else ""
            said = f"first axis read as time, second as sequences{flat} (--layout {self.options.layout})"
            self.notes.append(said)
        elif axes == 2 and _could_be_dimensions(placements):
            self.notes.append("second axis read as tokens; --sum-dims if these are action dimensions")
        if axes != 2 and self.time_first:
            self.notes.append(layout_not_used(self.options.layout))
        if self.options.sum_dims and all(one.dims == 1 for one in placements.values()):
            self.notes.append(SUM_NOT_USED)


def _could_be_dimensions(placements: Mapping[str, Placement]) -> bool:
    """Return whether only log-probs have a second axis, as they have for actions of several dimensions."""
    spreads = [one.spread for role, one in placements.items() if ROLES[role].kind in ("real", "mask")]
    return bool(spreads) and "token" not in spreads
