"""The JSON Schema (draft 2020-12) of the document that `-f json` prints, built from the catalogues."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ppocli.core import drift_schema, partial_schema
from ppocli.core.audit_schema import NULL_NAMES, audit_parts, audit_schema, audit_settings
from ppocli.core.check_schema import checks_schema, gate_schema
from ppocli.core.inspect_schema import file_schema
from ppocli.core.metrics import METRICS, Metric
from ppocli.core.parity_report import KINDS
from ppocli.core.report import SCHEMA_VERSION
from ppocli.core.roles import ROLES
from ppocli.core.rules import RULES
from ppocli.core.spec import (
    ADV_NORM_FORMS,
    ADV_NORM_UNITS,
    AGGREGATIONS,
    OBJECTIVES,
    RATIO_LEVELS,
    REF_KLS,
    REJECTION_MODES,
    ROLLOUT_IS,
    SEQUENCE_RATIOS,
    LossSpec,
)
from ppocli.core.trend import TREND
from ppocli.errors import ExitCode

BY_AGGREGATION = "policy_loss_by_agg"

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number"}
_NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}


def document_schema() -> Schema:
    """Return the schema of the documents that `-f json` prints.

    Every name that may occur is listed, in `metrics` with its type and its definition; an unknown name or a
    wrong type does not validate. Only `run`, which describes the run and not the data, is open.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ppocli report",
        "oneOf": [
            {"$ref": f"#/$defs/{kind}"}
            for kind in (
                "eval",
                "check",
                "drift",
                "audit_report",
                "inspect",
                "convert",
                "parity",
                "partials",
            )
        ],
        "$defs": {
            "eval": _eval("eval", {}),
            "check": _eval("check", {"checks": checks_schema(), "gate": gate_schema()}),
            "drift": _drift(),
            "audit_report": _audit_report(),
            "audit": audit_schema(),
            "inspect": _inspect(),
            "convert": _convert(),
            "parity": _parity(),
            "partials": _object(
                {
                    **_head("partials"),
                    "settings": {"$ref": "#/$defs/settings"},
                    **partial_schema.partials_parts(),
                }
            ),
            **partial_schema.definitions(),
            "file": file_schema(),
            "settings": _settings(),
            "place": _place(),
            "input": _input(),
            "metrics": _metrics(),
            "nulls": _nulls(),
            "group": _group(),
            "finding": _finding(),
            "worst": _worst(),
            "like": _like(),
            "histograms": _histograms(),
            **drift_schema.definitions(),
        },
    }


def _head(kind: str) -> Schema:
    """Return the schema of what every document begins with."""
    return {
        "schema_version": {"const": SCHEMA_VERSION},
        "tool": {"const": "ppocli"},
        "version": _TEXT,
        "kind": {"const": kind},
        "status": {"enum": ["ok", "findings", "failed"]},
        "exit_code": {"enum": [code.value for code in ExitCode]},
        "skipped": {"type": "array", "items": _object({"path": _TEXT, "reason": _TEXT})},
        "run": {"type": "object"},
    }


def _eval(kind: str, more: Schema) -> Schema:
    """Return the schema of the document of `ppocli eval`, or with `more` of `ppocli check`."""
    return _object(
        {
            **_head(kind),
            **more,
            "settings": {"$ref": "#/$defs/settings"},
            "inputs": _list_of("input"),
            "metrics": {"$ref": "#/$defs/metrics"},
            "nulls": {"$ref": "#/$defs/nulls"},
            "groups": _list_of("group"),
            "findings": _list_of("finding"),
            "worst": _list_of("worst"),
            "drift": {"$ref": "#/$defs/drift_short"},
            "places": {
                "type": "object",
                "propertyNames": {"enum": list(METRICS)},
                "additionalProperties": {"$ref": "#/$defs/place"},
            },
            "like": {"$ref": "#/$defs/like"},
            "audit": {"$ref": "#/$defs/audit"},
            "histograms": {"$ref": "#/$defs/histograms"},
        },
        optional=("groups", "worst", "places", "like", "drift", "audit", "histograms"),
    )


def _drift() -> Schema:
    """Return the schema of the document of `ppocli drift`."""
    properties, optional = drift_schema.properties(_reading())
    return _object({**_head("drift"), **properties}, optional=optional)


def _audit_report() -> Schema:
    """Return the schema of the document of `ppocli audit`."""
    of_eval = _eval("audit", audit_parts())["properties"]
    kept = {key: one for key, one in of_eval.items() if key not in ("groups", "worst", "like", "drift")}
    return _object(kept, optional=("places", "reduction", "histograms"))


def _inspect() -> Schema:
    """Return the schema of the document of `ppocli inspect`."""
    reading = _reading()
    return _object(
        {
            **_head("inspect"),
            "settings": _object({**reading, "scan": {"type": "boolean"}}, optional=tuple(reading)),
            "files": _list_of("file"),
            "n_schemas": _COUNT,
        }
    )


def _convert() -> Schema:
    """Return the schema of the document of `ppocli convert`."""
    column = {"type": _TEXT, "origin": _TEXT, "per": {"enum": ["token", "row"]}}
    reading = _reading()
    by_role = {"type": "object", "propertyNames": {"enum": list(ROLES)}}
    layouts = {"enum": ["flat", "list", "padded", "list<list>", "packed"]}
    source = {
        **{"path": _TEXT, "format": _TEXT, "layout": layouts, "rows": _COUNT, "bytes": _COUNT},
        "columns": {**by_role, "additionalProperties": _object({"column": _TEXT, "dtype": _TEXT})},
        "notes": {"type": "array", "items": _TEXT},
    }
    written = {
        "path": _TEXT,
        **dict.fromkeys(("bytes", "rows", "tokens"), _COUNT),
        "layout": {"enum": ["list", "flat"]},
        "columns": {**by_role, "additionalProperties": _object(column)},
        "left_out": {"type": "array", "items": _TEXT},
        "verified": {"type": "boolean"},
    }
    return _object(
        {
            **_head("convert"),
            "settings": _object(reading, optional=tuple(reading)),
            "output": _object(written),
            "inputs": {"type": "array", "items": _object(source)},
        }
    )


def _parity() -> Schema:
    """Return the schema of the document of `ppocli parity`."""
    cell = _object(
        {
            "name": _TEXT,
            "value": _NUMBER_OR_NULL,
            "definition": _TEXT,
            "reason": _TEXT,
            "nonfinite": {"enum": ["nan", "inf", "-inf"]},
        },
        optional=("reason", "nonfinite"),
    )
    kinds = {"enum": list(KINDS)}
    framework = {
        "name": _TEXT,
        "title": _TEXT,
        "version": _TEXT,
        "settings": {"type": "object"},
        "metrics": {"type": "object", "propertyNames": kinds, "additionalProperties": cell},
    }
    spread = _object({"min": _NUMBER, "max": _NUMBER, "n": _COUNT})
    return _object(
        {
            **_head("parity"),
            "settings": {"type": "object"},
            "inputs": _list_of("input"),
            "n_tokens": _COUNT,
            "frameworks": {"type": "array", "items": _object(framework)},
            "spread": {"type": "object", "propertyNames": kinds, "additionalProperties": spread},
        }
    )


def _object(properties: Schema, optional: tuple[str, ...] = ()) -> Schema:
    """Return the schema of an object with exactly these keys."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list_of(definition: str) -> Schema:
    """Return the schema of a list of one of the definitions."""
    return {"type": "array", "items": {"$ref": f"#/$defs/{definition}"}}


def _settings() -> Schema:
    """Return the schema of `settings`: `LossSpec`, how columns are read, what the data decided."""
    plain = {"str": "string", "float": "number", "int": "integer", "bool": "boolean"}
    allowed = {
        "objective": OBJECTIVES,
        "agg": AGGREGATIONS,
        "adv_norm_unit": ADV_NORM_UNITS,
        "sequence_ratio": SEQUENCE_RATIOS,
        "rollout_is": ROLLOUT_IS,
        "rollout_rs_mode": REJECTION_MODES,
        "ratio_level": RATIO_LEVELS,
        "adv_level": RATIO_LEVELS,
        "ref_kl": REF_KLS,
        "adv_norm_form": ADV_NORM_FORMS,
    }
    properties: Schema = {}
    for one in fields(LossSpec):
        if str(one.type).startswith("tuple"):
            properties[one.name] = {"type": "array", "items": _TEXT}
            continue
        types = [plain[word] if word != "None" else "null" for word in str(one.type).split(" | ")]
        properties[one.name] = {"enum": list(allowed[one.name])} if one.name in allowed else {"type": types}
    reading = _reading()
    decided: Schema = {"adv_norm_mean": _NUMBER, "adv_norm_std": _NUMBER, "adv_norm_note": _TEXT}
    optional = (*reading, *decided, *audit_settings())
    return _object({**properties, **reading, **decided, **audit_settings()}, optional=optional)


def _reading() -> Schema:
    """Return the schemas of the settings about how columns are read."""
    return {
        "columns": {"type": "object", "propertyNames": {"enum": list(ROLES)}, "additionalProperties": _TEXT},
        "layout": {"enum": ["auto", "time", "env"]},
        "sum_dims": {"type": "boolean"},
        **{key: {"type": "array", "items": {"enum": list(ROLES)}} for key in ("bits", "neglogp", "probs")},
    }


def _place() -> Schema:
    """Return the schema of a `where`."""
    parts = {"path": _TEXT, "row": _COUNT, "position": _COUNT, "token_id": {"type": "integer"}}
    return _object(parts, optional=("position", "token_id"))


def _input() -> Schema:
    """Return the schema of one entry of `inputs`."""
    counts = dict.fromkeys(("n_null", "n_nan", "n_posinf", "n_neginf"), _COUNT)
    column = _object({"column": _TEXT, "dtype": _TEXT, **counts})
    return _object(
        {
            "path": _TEXT,
            "format": _TEXT,
            "layout": {"enum": ["flat", "list", "padded", "list<list>", "packed"]},
            "rows": _COUNT,
            "bytes": _COUNT,
            "tokens": _COUNT,
            "masked": _COUNT,
            "columns": {
                "type": "object",
                "propertyNames": {"enum": list(ROLES)},
                "additionalProperties": column,
            },
            "notes": {"type": "array", "items": _TEXT},
        }
    )


def _is_nullable(metric: Metric) -> bool:
    """Tell whether a metric can be null: it depends on a column or on sequences."""
    return bool(metric.needs) or metric.sequences


def _metrics() -> Schema:
    """Return the schema of `metrics`: each name of the catalogue, its `_finite` twin, no other."""
    properties: Schema = {}
    for metric in METRICS.values():
        if metric.name == BY_AGGREGATION:
            values = _object(dict.fromkeys(AGGREGATIONS, _NUMBER_OR_NULL), optional=AGGREGATIONS)
        elif metric.unit == "count":
            values = {"type": ["integer", "null"] if _is_nullable(metric) else "integer", "minimum": 0}
        else:
            values = _NUMBER_OR_NULL
        properties[metric.name] = {**values, "description": metric.text}
        if metric.needs:
            twin = f"the same over the tokens whose columns are finite: {metric.text}"
            properties[f"{metric.name}_finite"] = {**values, "description": twin}
    required = ("n_rows", "n_tokens", "n_masked")
    return _object(properties, optional=tuple(name for name in properties if name not in required))


def _nulls() -> Schema:
    """Return the schema of `nulls`: a reason for each null, under its name; nested names are dotted."""
    names = [metric.name for metric in METRICS.values() if _is_nullable(metric)]
    names += [f"{BY_AGGREGATION}.{aggregation}" for aggregation in AGGREGATIONS]
    twins = [f"{metric.name}_finite" for metric in METRICS.values() if metric.needs]
    twins += [f"{BY_AGGREGATION}_finite.{aggregation}" for aggregation in AGGREGATIONS]
    known = {"anyOf": [{"enum": [*names, *twins]}, {"pattern": NULL_NAMES}]}
    return {"type": "object", "propertyNames": known, "additionalProperties": _note()}


def _group() -> Schema:
    """Return the schema of one entry of `groups`."""
    key = {"type": "object", "minProperties": 1}
    parts = {name: {"$ref": f"#/$defs/{name}"} for name in ("metrics", "nulls")}
    parts["drift"] = {"$ref": "#/$defs/drift_short"}
    parts["change"] = _object(dict.fromkeys(TREND, _NUMBER_OR_NULL), optional=TREND)
    return _object({"key": key, **parts}, optional=("drift", "change"))


def _like() -> Schema:
    """Return the schema of `like`: a framework's metrics under its own names."""
    text = {"type": "object", "additionalProperties": _TEXT}
    return _object(
        {
            "name": _TEXT,
            "title": _TEXT,
            "version": _TEXT,
            "metrics": {"type": "object", "additionalProperties": _NUMBER_OR_NULL},
            "nulls": {"type": "object", "additionalProperties": _note()},
            "definitions": text,
            "notes": {"type": "array", "items": _TEXT},
        }
    )


def _histograms() -> Schema:
    """Return the schema of `histograms`: the open bars of each have null for an end."""
    bars = _object({"low": _NUMBER_OR_NULL, "high": _NUMBER_OR_NULL, "n": _COUNT})
    return _object(
        {name: {"type": "array", "items": bars, "minItems": 1} for name in ("log_ratio", "log_ratio_abs")}
    )


def _note() -> Schema:
    """Return the schema of the reason for a null."""
    return _object(
        {
            "reason": {"type": "string", "minLength": 1},
            "nonfinite": {"enum": ["nan", "inf", "-inf"]},
            "where": {"$ref": "#/$defs/place"},
        },
        optional=("nonfinite", "where"),
    )


def _finding() -> Schema:
    """Return the schema of one finding."""
    return _object(
        {
            "code": {"enum": list(RULES)},
            "severity": {"enum": ["error", "warning", "info"]},
            "count": _COUNT,
            "message": _TEXT,
            "advice": _TEXT,
            "where": {"$ref": "#/$defs/place"},
        },
        optional=("where",),
    )


def _worst() -> Schema:
    """Return the schema of one worst token."""
    return _object(
        {
            "by": {"enum": ["log_ratio", "loss"]},
            "where": {"$ref": "#/$defs/place"},
            "log_probs": _NUMBER,
            "old_log_probs": _NUMBER,
            "advantage": _NUMBER_OR_NULL,
            "log_ratio": _NUMBER_OR_NULL,
            "ratio": _NUMBER_OR_NULL,
            "loss": _NUMBER_OR_NULL,
            "branch": _TEXT,
        }
    )
