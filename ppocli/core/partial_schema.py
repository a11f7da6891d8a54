"""The part of the JSON Schema that speaks of partials: what `eval --partials` writes and `merge` reads."""

from __future__ import annotations

from typing import Any

from ppocli.core.partial_document import DTYPES, PARTIALS_VERSION
from ppocli.core.roles import ROLES

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_SHA256: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_TOTALS: Schema = {
    "type": "object",
    "description": "sums as pairs of float64, moments, extremes with [row, position, token_id], counts; the "
    "names are ppocli's own and belong to partials_version",
}
_IDS: Schema = {
    "type": "array",
    "items": {"$ref": "#/$defs/array"},
    "minItems": 2,
    "maxItems": 2,
    "description": "the ids of sequences, each once, and the first row of each",
}


def partials_parts() -> Schema:
    """Return the properties of the document besides its head and `settings`."""
    return {
        "partials_version": {"const": PARTIALS_VERSION},
        "like": {"type": ["string", "null"], "description": "the framework of --like"},
        "worst": {**_COUNT, "description": "how many of the worst tokens each file keeps"},
        "n_paths": {**_COUNT, "description": "inputs of the run, those that could not be read included"},
        "files": {"type": "array", "items": {"$ref": "#/$defs/partial"}},
    }


def definitions() -> Schema:
    """Return the definitions: one file, and an array of numbers."""
    array: Schema = {
        "type": "object",
        "properties": {
            "dtype": {"enum": list(DTYPES)},
            "shape": {"type": "array", "items": _COUNT},
            "zlib": {**_TEXT, "contentEncoding": "base64"},
        },
        "required": ["dtype", "shape", "zlib"],
        "additionalProperties": False,
    }
    texts = {
        "type": "object",
        "propertyNames": {"enum": list(ROLES)},
        "additionalProperties": {"type": "array", "items": _TEXT},
    }
    state = {
        "input": {"$ref": "#/$defs/input"},
        "totals": _TOTALS,
        "measures": {"type": "array", "items": _TOTALS},
        "ids": {"anyOf": [{"type": "null"}, _IDS]},
        "texts": texts,
        "worst": {"type": "object"},
        "drift": {"anyOf": [{"type": "null"}, _TOTALS]},
        "drift_problem": {"type": ["string", "null"]},
    }
    partial = {
        "bytes": {**_COUNT, "description": "the size of the file"},
        "fingerprint": {**_SHA256, "description": "of its size, its first and its last 64 KiB"},
        "state": _closed(state),
        "sha256": {**_SHA256, "description": "of the canonical text of the other three"},
    }
    return {"partial": _closed(partial), "array": array}


def _closed(properties: Schema) -> Schema:
    """Return the schema of an object with exactly these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
