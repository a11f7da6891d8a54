"""The JSON Schema of what `ppocli audit -f json` prints, and of the audit inside that of `eval`."""

from __future__ import annotations

from typing import Any

from ppocli.core.audit_metrics import ARITHMETIC, AUDIT_METRICS, STORAGE, metrics_of
from ppocli.core.audit_spec import ACCUMULATIONS, FAIL_ON, VERDICTS
from ppocli.core.precision import PRECISIONS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_COUNT_OR_NULL: Schema = {"type": ["integer", "null"], "minimum": 0}
_NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
_FORMATS = list(PRECISIONS)

NULL_NAMES = (
    rf"^audit\.({'|'.join(_FORMATS)})\.({STORAGE}|{ARITHMETIC})\.({'|'.join(AUDIT_METRICS)})(_finite)?$"
)
"""The names of an audit's nulls."""


def audit_settings() -> Schema:
    """Return the schemas of the settings of an audit."""
    return {
        "formats": {"type": "array", "items": {"enum": _FORMATS}, "minItems": 1},
        "accumulate": {"enum": list(ACCUMULATIONS)},
        "loss_tolerance": {"type": "number", "exclusiveMinimum": 0},
        "fail_on": {"enum": list(FAIL_ON)},
        "with_advantages": {"type": "boolean"},
    }


def audit_schema() -> Schema:
    """Return the schema of `audit`: for each format both questions."""
    questions = {STORAGE: _answer(STORAGE), ARITHMETIC: _answer(ARITHMETIC)}
    return {
        "type": "object",
        "propertyNames": {"enum": _FORMATS},
        "additionalProperties": _object(questions, optional=(ARITHMETIC,)),
    }


def audit_parts() -> Schema:
    """Return the schemas of what an audit's document has beside that of `eval`; `reduction` may be absent."""
    candidate = _candidate()
    sizes = [f"{name}_abs_{p}" for name in ("log_prob", "log_ratio") for p in ("p50", "p99")]
    return {
        "verdict": {"enum": list(VERDICTS)},
        "recommendation": {"anyOf": [candidate, {"type": "null"}]},
        "candidates": {"type": "array", "items": candidate},
        "sizes": _object(dict.fromkeys(sizes, _NUMBER_OR_NULL)),
        "log_ratio_histogram": {
            "type": "array",
            "items": _object({"from": {"type": "number", "minimum": 0}, "count": _COUNT}),
        },
        "holds": {
            "type": "object",
            "propertyNames": {"enum": ["log_probs", "old_log_probs"]},
            "additionalProperties": {"type": "array", "items": {"enum": ["bfloat16", "float16"]}},
        },
        "reduction": _reduction(),
    }


def _object(properties: Schema, optional: tuple[str, ...] = ()) -> Schema:
    """Return the schema of an object with exactly these keys."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _answer(question: str) -> Schema:
    """Return the schema of a format's metrics under a question."""
    properties: Schema = {}
    for metric in metrics_of(question):
        values = _COUNT_OR_NULL if metric.unit == "count" else _NUMBER_OR_NULL
        properties[metric.name] = {**values, "description": metric.text}
    twins = {f"{name}_finite": one for name, one in properties.items()}
    flip = _object(
        {
            "where": {"$ref": "#/$defs/place"},
            "direction": {"enum": ["on", "off"]},
            "ratio": _NUMBER_OR_NULL,
            "reference_ratio": _NUMBER_OR_NULL,
        }
    )
    rest: Schema = {
        "verdict": {"enum": list(VERDICTS)},
        "reasons": {"type": "array", "items": _TEXT},
        "worst_flip": flip,
    }
    return _object({**properties, **twins, **rest}, optional=(*twins, "worst_flip"))


def _candidate() -> Schema:
    """Return the schema of a storage format with the arithmetic on it."""
    return _object(
        {
            "storage": {"enum": [*_FORMATS, "float64"]},
            "arithmetic": {"enum": ["float32", "float64"]},
            "clip_flips": _COUNT_OR_NULL,
            "policy_loss_scaled_error": _NUMBER_OR_NULL,
        }
    )


def _reduction() -> Schema:
    """Return the schema of the sums in several orders."""
    orders = ("naive", "blocked", "pairwise", "compensated", "bfloat16")
    walked = ("naive", "bfloat16")
    return _object(
        {
            "exact": _NUMBER_OR_NULL,
            "sums": _object(dict.fromkeys(orders, _NUMBER_OR_NULL)),
            "stops": _object(dict.fromkeys(walked, _COUNT_OR_NULL)),
            "idle": _object(dict.fromkeys(walked, _COUNT)),
        }
    )
