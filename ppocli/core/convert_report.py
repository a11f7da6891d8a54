"""What a conversion did, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ppocli.core.report import SCHEMA_VERSION, InputReport, Skipped
from ppocli.core.shown import Shown


@dataclass(frozen=True, slots=True)
class WrittenColumn:
    """How one role was written.

    Attributes
    ----------
    type, origin : str
        Element type in the file, and in the inputs.
    per : {"token", "row"}
    """

    type: str
    origin: str
    per: Literal["token", "row"]


@dataclass(frozen=True, slots=True, repr=False)
class ConvertReport(Shown):
    """The result of `ppocli convert`.

    Attributes
    ----------
    settings : mapping
        How columns and axes were to be understood.
    path : str
        The file that was written.
    bytes, rows, tokens : int
        Of it; masked tokens are among the tokens.
    layout : {"list", "flat"}
    columns : mapping of role to WrittenColumn
    left_out : tuple of str
        Columns of the inputs that play no role and were not written.
    verified : bool
        The file was read again and is equal to the inputs, bit for bit.
    inputs : tuple of InputReport
    skipped : tuple of Skipped
    """

    settings: Mapping[str, Any]
    path: str
    bytes: int
    rows: int
    tokens: int
    layout: Literal["list", "flat"]
    columns: Mapping[str, WrittenColumn]
    left_out: tuple[str, ...] = ()
    verified: bool = False
    inputs: tuple[InputReport, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    exit_code: int = 0
    run: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `-f json` prints."""
        from ppocli import __version__

        body = asdict(self)
        written = {
            key: body.pop(key)
            for key in ("path", "bytes", "rows", "tokens", "layout", "columns", "left_out", "verified")
        }
        return {
            "schema_version": SCHEMA_VERSION,
            "tool": "ppocli",
            "version": __version__,
            "kind": "convert",
            "status": "ok",
            "exit_code": body.pop("exit_code"),
            "settings": body.pop("settings"),
            "output": written,
            # Without the counts of valid tokens and odd values: those `eval` and `inspect --scan` make.
            "inputs": [
                {
                    **{key: one[key] for key in ("path", "format", "layout", "rows", "bytes")},
                    "columns": {
                        role: {"column": column["column"], "dtype": column["dtype"]}
                        for role, column in one["columns"].items()
                    },
                    "notes": list(one["notes"]),
                }
                for one in body.pop("inputs")
            ],
            "skipped": list(body.pop("skipped")),
            "run": body.pop("run"),
        }
