"""What readers hand to the engine: a bounded piece of one input, as flat arrays of tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppocli.core.report import InputReport


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One role's values for the tokens of a chunk.

    Attributes
    ----------
    values : (n_tokens,) float64, float32 or float16, or uint16 holding bfloat16 bits
        Token ids are int64 or uint64. Contiguous, in native byte order. What stands at an absent value is
        not defined.
    present : (n_tokens,) uint8, optional
        0 where the file holds a null. None when no value is null.
    """

    values: NDArray[Any]
    present: NDArray[np.uint8] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Ids:
    """Integer codes that tell sequences, groups or steps apart.

    Attributes
    ----------
    codes : (n_tokens,) or (n_rows,) int64
        One code per token, or one per row of a chunk that has `offsets`; where a chunk has as many rows as
        tokens, one per token. Text is coded by an `IdCoder`.
    present : same shape, uint8, optional
        0 where the id is null. None when no id is null.
    """

    codes: NDArray[np.int64]
    present: NDArray[np.uint8] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A run of whole rows of one input.

    Attributes
    ----------
    first_row : int
        Rows of the input before this chunk.
    n_rows, n_tokens : int
        Rows and stored tokens (masked ones included, children of null rows not) in this chunk.
    columns : mapping of role to Column
        Only roles that were asked for and exist.
    mask : (n_tokens,) uint8, optional
        1 where a token counts. None: all count. Values other than 0 and 1 never get here.
    offsets : (n_rows + 1,) int64, optional
        Where each row's tokens start, beginning with 0. None: each row is one token.
    sequence_id, group_id, step : Ids, optional
    n_null_rows : int
        Rows that are null in every column; they hold no token.
    """

    first_row: int
    n_rows: int
    n_tokens: int
    columns: Mapping[str, Column]
    mask: NDArray[np.uint8] | None = None
    offsets: NDArray[np.int64] | None = None
    sequence_id: Ids | None = None
    group_id: Ids | None = None
    step: Ids | None = None
    n_null_rows: int = 0


@dataclass(slots=True)
class IdCoder:
    """Gives text ids stable int64 codes for the length of a run; one coder per role, shared by all inputs."""

    codes: dict[str, int] = field(default_factory=dict)

    # Far below any id that a trainer counts up, so that text and numbers do not meet.
    FIRST = -(2**62)

    def code(self, text: str) -> int:
        """Return the code of `text`, a new one at its first sight."""
        return self.codes.setdefault(text, self.FIRST + len(self.codes))


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How columns and axes are to be understood. The same for every input of a run.

    Attributes
    ----------
    columns : mapping of role to column name
        What `--col ROLE=COLUMN` says. Wins over every alias.
    layout : {"auto", "time", "env"}
        "time": two-dimensional arrays are (time, environment). "env": the same, and flat arrays beside them
        go environment by environment.
    sum_dims : bool
        Sum log-probs over the last axis (action dimensions).
    bits : frozenset of str
        Roles whose uint16 column holds bfloat16 bits.
    neglogp, probs : frozenset of str
        Log-prob roles whose column holds minus the log-prob, or the probability.
    settled : bool
        Refuse names of several meanings that nothing settles, even where no role is required: what is written
        once under a role's name is never asked again.
    aliases : mapping of role to column names
        Names of the framework that `--like` names, best first; they go before a role's own name.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    layout: str = "auto"
    sum_dims: bool = False
    bits: frozenset[str] = frozenset()
    neglogp: frozenset[str] = frozenset()
    probs: frozenset[str] = frozenset()
    settled: bool = False
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Reader(Protocol):
    """One opened input. Nothing but headers has been read when it is made."""

    @property
    def report(self) -> InputReport:
        """Path, format, layout, rows, bytes and the column found for each role; counts are still zero."""

    @property
    def per_row(self) -> frozenset[str]:
        """Roles that are stored once per row and repeated over its tokens; none where rows are tokens."""

    def chunks(self, roles: Collection[str], chunk_tokens: int, *, repeat: bool = True) -> Iterator[Chunk]:
        """Yield the rows in stored order, about `chunk_tokens` tokens at a time and at least one row.

        With `repeat=False` columns and ids of `per_row` roles keep one value per row, for those who write
        them again. May be called more than once; each call reads from the start. Raises InputError.
        """

    def close(self) -> None:
        """Release the file."""
