"""The parts of the JSON Schema that only the document of `ppocli drift` has."""

from __future__ import annotations

from typing import Any

from ppocli.core.check_schema import checks_schema
from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.core.drift_options import KEYS
from ppocli.core.rollout_rules import WEIGHT_LEVELS, WEIGHT_MODES

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number"}
_NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}


def definitions() -> Schema:
    """Return the definitions by name; they refer to `place`, `input`, `finding` of the whole schema."""
    return {
        "drift_metrics": _metrics(),
        "drift_nulls": _nulls(),
        "drift_short": closed(
            {
                "a": _TEXT,
                "b": _TEXT,
                "metrics": {"$ref": "#/$defs/drift_metrics"},
                "nulls": {"$ref": "#/$defs/drift_nulls"},
            }
        ),
    }


def properties(reading: Schema) -> tuple[Schema, tuple[str, ...]]:
    """Return the properties of the document beside those that every document has, and which are optional."""
    metrics, nulls = {"$ref": "#/$defs/drift_metrics"}, {"$ref": "#/$defs/drift_nulls"}
    part = closed(
        {
            "n": _COUNT,
            "diff_mean": _NUMBER,
            "diff_abs_mean": _NUMBER,
            "drift_kl_k3": _NUMBER,
            "low": _NUMBER,
            "high": _NUMBER,
            "step": {"type": ["integer", "string", "null"]},
        },
        optional=("diff_mean", "diff_abs_mean", "drift_kl_k3", "low", "high", "step"),
    )
    versus = {"a": _TEXT, "b": _TEXT, "metrics": metrics, "nulls": nulls}
    out = {
        "settings": _settings(reading),
        "a": _TEXT,
        "b": _TEXT,
        "inputs": _list({"$ref": "#/$defs/input"}),
        "metrics": metrics,
        "nulls": nulls,
        "by_position": _list(part),
        "by_probability": _list(part),
        "by_step": _list(part),
        "sequences": _list(_sequence()),
        "histogram": _list(closed({"low": _NUMBER, "high": _NUMBER_OR_NULL, "n": _COUNT})),
        "corrections": _list(_correction()),
        "comparisons": _list(closed({"name": _TEXT, **versus})),
        "checks": checks_schema(),
        "floor": closed({"path": _TEXT, "times": _numbers(), "metrics": _numbers()}),
        "notes": _list(_TEXT),
        "findings": _list({"$ref": "#/$defs/finding"}),
        "groups": _list(
            closed({"key": {"type": "object", "minProperties": 1}, "metrics": metrics, "nulls": nulls})
        ),
        "worst": _list(_worst()),
        "places": {
            "type": "object",
            "propertyNames": {"enum": list(DRIFT_METRICS)},
            "additionalProperties": {"$ref": "#/$defs/place"},
        },
    }
    always = ("settings", "a", "b", "inputs", "metrics", "nulls", "findings")
    return out, tuple(name for name in out if name not in always)


def closed(fields: Schema, optional: tuple[str, ...] = ()) -> Schema:
    """Return the schema of an object with exactly these keys."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _numbers() -> Schema:
    """Return the schema of some metrics with a number each."""
    return {"type": "object", "propertyNames": {"enum": list(DRIFT_METRICS)}, "additionalProperties": _NUMBER}


def _settings(reading: Schema) -> Schema:
    own: Schema = {
        "detail": {"enum": ["full", "main"]},
        "tis_cap": _NUMBER_OR_NULL,
        "mask_low": _NUMBER_OR_NULL,
        "mask_high": _NUMBER_OR_NULL,
        "clip_low": _NUMBER,
        "clip_high": _NUMBER,
        "key": {"type": "array", "items": {"enum": list(KEYS)}},
    }
    return closed({**own, **reading}, optional=("clip_low", "clip_high", "key", *reading))


def _metrics() -> Schema:
    """Return the schema of `metrics`: each name of the catalogue, its `_finite` twin, no other."""
    fields: Schema = {}
    for metric in DRIFT_METRICS.values():
        if metric.unit == "count":
            values: Schema = {"type": ["integer", "null"] if metric.sequences else "integer", "minimum": 0}
        else:
            values = _NUMBER_OR_NULL
        fields[metric.name] = {**values, "description": metric.text}
        if metric.needs:
            twin = f"the same over the tokens whose values are finite on both sides: {metric.text}"
            fields[f"{metric.name}_finite"] = {**values, "description": twin}
    required = ("n_rows", "n_tokens", "n_masked")
    return closed(fields, optional=tuple(name for name in fields if name not in required))


def _nulls() -> Schema:
    """Return the schema of `nulls`: a reason for each null, under its name."""
    names = [one.name for one in DRIFT_METRICS.values() if one.needs or one.sequences]
    note = closed(
        {
            "reason": {"type": "string", "minLength": 1},
            "nonfinite": {"enum": ["nan", "inf", "-inf"]},
            "where": {"$ref": "#/$defs/place"},
        },
        optional=("nonfinite", "where"),
    )
    twins = [f"{name}_finite" for name in names]
    return {"type": "object", "propertyNames": {"enum": [*names, *twins]}, "additionalProperties": note}


def _sequence() -> Schema:
    values = dict.fromkeys(("diff_mean", "diff_abs_mean", "drift_kl_k3", "share"), _NUMBER)
    return closed({"where": {"$ref": "#/$defs/place"}, "n": _COUNT, **values})


def _correction() -> Schema:
    values = (
        "low",
        "cap",
        "touched_frac",
        "seq_touched_frac",
        "weight_mean",
        "ess_frac",
        "loss",
        "loss_change",
    )
    fields: Schema = {"level": {"enum": list(WEIGHT_LEVELS)}, "mode": {"enum": list(WEIGHT_MODES)}}
    return closed({**fields, **dict.fromkeys(values, _NUMBER)}, optional=values)


def _worst() -> Schema:
    values = dict.fromkeys(("a", "b", "diff"), _NUMBER)
    return closed({"where": {"$ref": "#/$defs/place"}, **values, "weight": _NUMBER_OR_NULL})
