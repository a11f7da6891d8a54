"""The part of the JSON Schema that speaks of gates: `checks` and `gate`."""

from __future__ import annotations

from typing import Any, get_args

from ppocli.core.check_report import CheckKind, Status
from ppocli.core.gate import FAIL_ON

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_WORDS: Schema = {"type": "array", "items": _TEXT}
_FLAG: Schema = {"type": "boolean"}
_NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}


def checks_schema() -> Schema:
    """Return the schema of `checks`: one entry for each judgement."""
    properties: Schema = {
        "name": {"type": "string", "minLength": 1},
        "kind": {"enum": list(get_args(CheckKind))},
        "status": {"enum": list(get_args(Status))},
        "source": _TEXT,
        "reason": {"type": "string", "minLength": 1},
        "metric": _TEXT,
        "value": _NUMBER_OR_NULL,
        "limit": {"type": "number"},
        "tolerance": {"type": "number", "minimum": 0},
        "key": {"type": "object", "minProperties": 1},
        "where": {"$ref": "#/$defs/place"},
    }
    entry = _closed(properties, ("name", "kind", "status", "source"))
    # What does not pass says why.
    entry["if"] = {"properties": {"status": {"const": "pass"}}}
    entry["else"] = {"required": ["reason"]}
    return {"type": "array", "items": entry}


def gate_schema() -> Schema:
    """Return the schema of `gate`: what decided besides the limits."""
    file = {"type": ["string", "null"]}
    count = {"type": "integer", "minimum": 1}
    first = {
        "check": _TEXT,
        "key": {"type": "object", "minProperties": 1},
        "value": _NUMBER_OR_NULL,
        "n_failed": count,
        "n_groups": count,
    }
    properties: Schema = {
        "fail_on": {"enum": list(FAIL_ON)},
        "select": _WORDS,
        "ignore": _WORDS,
        "by": {"type": "string", "minLength": 1},
        "profiles": _WORDS,
        "expect_on_policy": _FLAG,
        "on_policy_tol": {"type": "number", "minimum": 0},
        "allow_empty": _FLAG,
        "exit_zero": _FLAG,
        "report": file,
        "baseline": file,
        "notes": _WORDS,
        "first_failed": {"type": "array", "items": _closed(first, ("check", "key", "n_failed", "n_groups"))},
    }
    return _closed(properties, tuple(properties))


def _closed(properties: Schema, required: tuple[str, ...]) -> Schema:
    """Return the schema of an object without other keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
