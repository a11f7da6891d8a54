"""What `ppocli inspect` found: files as their footers and headers describe them, and what a scan counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ppocli.core.shown import Shown

if TYPE_CHECKING:
    from ppocli.core.report import Nonfinite, Number, Skipped

FoundBy = Literal["name", "alias", "option"]


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """One column of a file, or one array of an NPZ file.

    Attributes
    ----------
    name, type : str
        The name is dotted below structures; the type such as "list<float32>" or "float32".
    compression : str, optional
        Codec in the first row group, None without row groups; "stored" or "deflated" in NPZ.
    bytes : int, optional
        As stored, compressed. None where the headers do not say it: Arrow, JSON Lines.
    values : int, optional
        Parquet: values over all row groups, a null or empty list counted as one. NPZ: elements. None: the
        header cannot be read, or does not say it.
    n_null : int, optional
        Parquet: the sum of the statistics' null counts, which count null and empty lists too. None where a
        row group has no such statistic, and in NPZ.
    min, max : number or bool, optional
        Parquet: over the statistics of all row groups, masked tokens included, NaN left out. None where a row
        group with values has none, for columns of other types, and in NPZ.
    nonfinite : mapping of "min" or "max" to "inf" or "-inf"
        Which of the two is infinite, and so None.
    role : str, optional
        The role it plays.
    found_by : {"name", "alias", "option"}, optional
        The column is named like the role; its name is an alias of it; `--col` says so.
    shape : tuple of int, optional
        NPZ and NPY only, like the next two.
    order : {"C", "F"}, optional
        Row-major or column-major.
    mappable : bool, optional
        Its bytes could be mapped: neither deflated nor encrypted, and no objects.
    """

    name: str
    type: str
    compression: str | None
    bytes: int | None
    values: int | None
    n_null: int | None = None
    min: Number | bool = None
    max: Number | bool = None
    nonfinite: Mapping[str, Nonfinite] = field(default_factory=dict)
    role: str | None = None
    found_by: FoundBy | None = None
    shape: tuple[int, ...] | None = None
    order: Literal["C", "F"] | None = None
    mappable: bool | None = None


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How `ppocli eval` would read a file.

    Attributes
    ----------
    columns : tuple of str
        Columns that are read.
    bytes : int
        What they take in the file.
    n_batches : int
        Pieces in which the rows are read; an estimate where row groups are read together.
    batch_rows : (int, int)
        Rows of a batch, at the least and at the most: they depend on the row group's mean length of rows.
    batch_tokens : int
        Tokens that are read at a time. A row of more is read whole.
    batch_bytes : int
        What a batch of mean rows takes in memory, decoded. A row longer than a batch makes it larger.
    memory : int
        Estimated peak of the process, bytes.
    temporary : int
        Bytes of temporary files, for arrays that are not stored in the order in which they are read.
    """

    columns: tuple[str, ...]
    bytes: int
    n_batches: int
    batch_rows: tuple[int, int]
    batch_tokens: int
    batch_bytes: int
    memory: int = 0
    temporary: int = 0


@dataclass(frozen=True, slots=True)
class ColumnScan:
    """What the data of a role's column hold at valid tokens.

    Attributes
    ----------
    n_null, n_nan, n_posinf, n_neginf, n_zero : int
    zero_frac : float, optional
        n_zero over all values that are not null; None without any.
    min, max : number, optional
        Over finite values, exact. None without any, and for ids that are text.
    constant : bool
        All values are finite and equal, and there is one.
    exact_in : tuple of str
        Narrower formats that hold every finite value exactly: float32, bfloat16, float16.
    n_masked_odd : int
        Nulls, NaN and infinities at masked tokens.
    """

    n_null: int
    n_nan: int
    n_posinf: int
    n_neginf: int
    n_zero: int
    zero_frac: float | None
    min: Number
    max: Number
    constant: bool
    exact_in: tuple[str, ...]
    n_masked_odd: int


@dataclass(frozen=True, slots=True)
class FileScan:
    """What reading a file's data found.

    Attributes
    ----------
    tokens, masked : int
        Valid and masked tokens.
    longest_row : int, optional
        Stored tokens of the longest row. None where each row is one token.
    n_sequences, n_empty_sequences : int, optional
        Sequences with and without a valid token. None without sequences, or with too many to tell apart.
    columns : mapping of role to ColumnScan
    """

    tokens: int
    masked: int
    longest_row: int | None
    n_sequences: int | None
    n_empty_sequences: int | None
    columns: Mapping[str, ColumnScan]


@dataclass(frozen=True, slots=True)
class InspectedFile:
    """One file.

    Attributes
    ----------
    path, format : str
    bytes : int
        Size of the file.
    rows : int, optional
        None where no role says what a row is, and in JSON Lines that were not scanned.
    parts : int
        Row groups, members of the archive, record batches, or fields of NPY records; 1 in JSON Lines.
    layout : str, optional
        As in `InputReport`; None where roles are missing or do not fit together.
    columns : tuple of StoredColumn
        In stored order.
    version, writer : str, optional
        Of the format, and the library that wrote the file. Parquet only, like the next; of Arrow the
        version says whether it is a file or a stream.
    footer_bytes : int, optional
        Size of the footer.
    schema : int
        Files with the same number have the same columns, types, numbers of axes and roles; from 1.
    missing : tuple of str
        Roles that `eval` needs and that no column plays.
    problem : str, optional
        Why `eval` would refuse the file. None: it is ready.
    advice : str
        What to do next: a line to type where there is one.
    plan : ReadPlan, optional
    notes : tuple of str
    scan : FileScan, optional
    """

    path: str
    format: str
    bytes: int
    rows: int | None
    parts: int
    layout: str | None
    columns: tuple[StoredColumn, ...]
    version: str | None = None
    writer: str | None = None
    footer_bytes: int | None = None
    schema: int = 1
    missing: tuple[str, ...] = ()
    problem: str | None = None
    advice: str = ""
    plan: ReadPlan | None = None
    notes: tuple[str, ...] = ()
    scan: FileScan | None = None

    @property
    def ready(self) -> bool:
        """Whether `eval` would read it."""
        return self.problem is None

    def to_dict(self) -> dict[str, Any]:
        """Return the file's entry of the document; what does not exist in its format is left out."""
        body = {key: one for key, one in asdict(self).items() if one is not None or key in _NULLABLE}
        body["ready"] = self.ready
        body["columns"] = [
            {key: one for key, one in column.items() if one not in (None, {}) or key in _NULLABLE}
            for column in body["columns"]
        ]
        return body


_NULLABLE = ("rows", "layout", "compression", "bytes", "values", "n_null", "min", "max")


@dataclass(frozen=True, slots=True, repr=False)
class InspectReport(Shown):
    """The result of `ppocli inspect`.

    Attributes
    ----------
    settings : mapping
        How columns and axes were to be understood, and whether the data were read.
    files : tuple of InspectedFile
    skipped : tuple of Skipped
    run : mapping
        All that is not deterministic.
    """

    settings: Mapping[str, Any]
    files: tuple[InspectedFile, ...]
    skipped: tuple[Skipped, ...] = ()
    exit_code: int = 0
    run: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def n_schemas(self) -> int:
        """How many different schemas the files have."""
        return len({one.schema for one in self.files})

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `-f json` prints."""
        from ppocli import __version__
        from ppocli.core.report import SCHEMA_VERSION

        return {
            "schema_version": SCHEMA_VERSION,
            "tool": "ppocli",
            "version": __version__,
            "kind": "inspect",
            "status": "ok",
            "exit_code": self.exit_code,
            "settings": dict(self.settings),
            "files": [one.to_dict() for one in self.files],
            "n_schemas": self.n_schemas,
            "skipped": [asdict(one) for one in self.skipped],
            "run": dict(self.run),
        }
