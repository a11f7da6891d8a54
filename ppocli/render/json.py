"""Strict JSON (RFC 8259): the whole document, or one line for each file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppocli.core.report import EvalReport


def to_json(document: Mapping[str, Any], *, encoding: str = "utf-8") -> str:
    """Return a document as indented JSON that ends with a newline.

    Floats are the shortest text that reads back as the same number; -0.0 is 0.0. JSON is UTF-8: for any other
    `encoding` all but ASCII is escaped.

    Raises
    ------
    ValueError
        A NaN or an infinity: in a report these are null.
    """
    return _dumps(document, encoding, indent=2) + "\n"


def to_lines(documents: Iterable[Mapping[str, Any]], *, encoding: str = "utf-8") -> str:
    """Return documents as JSON, each on a line."""
    return "".join(_dumps(one, encoding, indent=None) + "\n" for one in documents)


def to_jsonl(report: EvalReport, *, encoding: str = "utf-8") -> str:
    """Return one line for each file, of kind "file", and the rest of the document as a last one, "total".

    By step, or by another column, lines are of kind "group" and have a `key`.
    """
    document = report.to_dict()
    groups = document.pop("groups", [])
    lines = []
    for group in groups:
        of_file = set(group["key"]) == {"file"}
        head = {"schema_version": document["schema_version"], "kind": "file" if of_file else "group"}
        key = group["key"] if of_file else {"key": group["key"]}
        lines.append({**head, **key, **{name: value for name, value in group.items() if name != "key"}})
    lines.append({**document, "kind": "total"})
    return to_lines(lines, encoding=encoding)


def _dumps(document: Any, encoding: str, *, indent: int | None) -> str:
    """Return the text; ASCII if the stream is not UTF-8, or if a file name has bytes that are not."""
    clean = _without_negative_zero(document)
    if encoding.lower().replace("-", "") == "utf8":
        text = _encoded(clean, indent, ensure_ascii=False)
        if text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text):
            return text
    return _encoded(clean, indent, ensure_ascii=True)


def _encoded(clean: Any, indent: int | None, *, ensure_ascii: bool) -> str:
    """Return the text, put together piece by piece: `json.dumps` lists all pieces, 40 MB for 5,000 groups."""
    out = StringIO()
    encoder = json.JSONEncoder(allow_nan=False, ensure_ascii=ensure_ascii, indent=indent)
    for piece in encoder.iterencode(clean):
        out.write(piece)
    return out.getvalue()


def _without_negative_zero(value: Any) -> Any:
    """Replace -0.0 by 0.0, tuples by lists."""
    if isinstance(value, float):
        return value or 0.0  # the same object, not a copy: of thousands of groups there are a lot of them
    if isinstance(value, Mapping):
        return {str(key): _without_negative_zero(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_negative_zero(one) for one in value]
    return value
