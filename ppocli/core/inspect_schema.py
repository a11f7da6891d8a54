"""The JSON Schema of what `ppocli inspect -f json` prints."""

from __future__ import annotations

from typing import Any

from ppocli.core.roles import ROLES

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_COUNT_OR_NULL: Schema = {"type": ["integer", "null"], "minimum": 0}
_NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
_ROLE: Schema = {"enum": list(ROLES)}


def file_schema() -> Schema:
    """Return the schema of one entry of `files`: a file as its footer or headers describe it."""
    properties: Schema = {
        "path": _TEXT,
        "format": {"enum": ["parquet", "npz", "arrow", "jsonl", "npy"]},
        "version": _TEXT,
        "writer": _TEXT,
        "bytes": _COUNT,
        "footer_bytes": _COUNT,
        "rows": _COUNT_OR_NULL,
        "parts": {**_COUNT, "description": "row groups, arrays, record batches or fields"},
        "layout": {"enum": ["flat", "list", "padded", "list<list>", "packed", None]},
        "columns": {"type": "array", "items": _column()},
        "schema": {"type": "integer", "minimum": 1},
        "missing": {"type": "array", "items": _ROLE, "description": "roles that eval cannot do without"},
        "ready": {"type": "boolean"},
        "problem": {**_TEXT, "description": "why eval would refuse the file"},
        "advice": {**_TEXT, "description": "what to do next, a line to type where there is one"},
        "plan": _plan(),
        "notes": {"type": "array", "items": _TEXT},
        "scan": _scan(),
    }
    return _object(properties, optional=("version", "writer", "footer_bytes", "problem", "plan", "scan"))


def _object(properties: Schema, optional: tuple[str, ...] = ()) -> Schema:
    """Return the schema of an object with exactly these keys."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _column() -> Schema:
    """Return the schema of one stored column or array."""
    limit: Schema = {
        "type": ["number", "boolean", "null"],
        "description": "of the footer's statistics: all rows, masked tokens included, NaN left out",
    }
    infinity: Schema = {"enum": ["inf", "-inf"]}
    properties: Schema = {
        "name": _TEXT,
        "type": _TEXT,
        "compression": {"type": ["string", "null"]},
        "bytes": _COUNT_OR_NULL,
        "values": {**_COUNT_OR_NULL, "description": "a null or empty list counts as one"},
        "n_null": {**_COUNT_OR_NULL, "description": "as the footer counts: null and empty lists too"},
        "min": limit,
        "max": limit,
        "nonfinite": {**_object({"min": infinity, "max": infinity}, ("min", "max")), "minProperties": 1},
        "role": _ROLE,
        "found_by": {"enum": ["name", "alias", "option"]},
        "shape": {"type": "array", "items": _COUNT},
        "order": {"enum": ["C", "F"]},
        "mappable": {"type": "boolean"},
    }
    return _object(properties, ("nonfinite", "role", "found_by", "shape", "order", "mappable"))


def _plan() -> Schema:
    """Return the schema of a read plan."""
    rows: Schema = {"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2}
    counts = dict.fromkeys(
        ("bytes", "n_batches", "batch_tokens", "batch_bytes", "memory", "temporary"), _COUNT
    )
    return _object({"columns": {"type": "array", "items": _TEXT}, "batch_rows": rows, **counts})


def _scan() -> Schema:
    """Return the schema of what a scan counted."""
    names = ("n_null", "n_nan", "n_posinf", "n_neginf", "n_zero", "n_masked_odd")
    properties: Schema = {
        **dict.fromkeys(names, _COUNT),
        "zero_frac": _NUMBER_OR_NULL,
        "min": _NUMBER_OR_NULL,
        "max": _NUMBER_OR_NULL,
        "constant": {"type": "boolean"},
        "exact_in": {"type": "array", "items": {"enum": ["float32", "bfloat16", "float16"]}},
    }
    return _object(
        {
            "tokens": _COUNT,
            "masked": _COUNT,
            "longest_row": _COUNT_OR_NULL,
            "n_sequences": _COUNT_OR_NULL,
            "n_empty_sequences": _COUNT_OR_NULL,
            "columns": {
                "type": "object",
                "propertyNames": _ROLE,
                "additionalProperties": _object(properties),
            },
        }
    )
