"""Saved reports: read strictly, and compared with what they are to be a baseline for."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ppocli.core.audit_spec import AuditOptions
from ppocli.core.report import SCHEMA_VERSION
from ppocli.core.spec import LossSpec
from ppocli.errors import InputError, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

JUDGED_KINDS = ("eval", "check")
WITHOUT_INFLUENCE = frozenset({"token_id", "step"})
"""Roles that no metric is computed from."""
MEASURED = ("adv_norm_mean", "adv_norm_std", "adv_norm_note", "horizon")
"""Settings that the data decide. The horizon counts only where a compared metric is divided by it."""

OF_AUDITS = tuple(one.name for one in fields(AuditOptions))
"""Settings of an audit made in passing: no metric that is compared depends on them."""


def is_saved_report(path: str) -> bool:
    """Whether a path names a JSON document rather than data: by its suffix, and because it is a file."""
    return path.lower().endswith(".json") and Path(path).is_file()


def load(path: str) -> dict[str, Any]:
    """Read a document that `ppocli eval` or `ppocli check` wrote with `-f json` or `--export`.

    Returns
    -------
    dict
        The document; of one of `check`, without its checks.

    Raises
    ------
    InputError
        Not readable, not strict JSON, not such a document, of another schema version, or made with
        --skip-bad, so that it does not speak of all files.
    """
    document = parse(path)
    kind = document.get("kind")
    if document.get("tool") != "ppocli" or kind not in JUDGED_KINDS:
        named = f"a document of kind {kind!r}" if document.get("tool") == "ppocli" else "no report of ppocli"
        raise InputError(
            f"{named} cannot be judged", where=path, hint="ppocli eval DATA --export report.json writes one"
        )
    if document.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            f"schema version {document.get('schema_version')!r}, not {SCHEMA_VERSION!r}",
            where=path,
            hint="make the report again with this version of ppocli",
        )
    _check_shape(document, path)
    missed = [one for one in document["skipped"] if str(one.get("reason", "")).startswith("unreadable")]
    if missed:
        raise InputError(
            f"the report leaves out {len(missed):,} files that could not be read, such as "
            f"'{missed[0].get('path')}'",
            where=path,
            hint="a gate judges every file: make the report without --skip-bad",
        )
    return {name: value for name, value in document.items() if name not in ("checks", "gate")}


def parse(path: str) -> dict[str, Any]:
    """Read strict JSON with an object at the top.

    Raises
    ------
    InputError
    """

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is not JSON")

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as problem:
        raise InputError(f"cannot be read: {problem.strerror or problem}", where=path) from problem
    except UnicodeDecodeError as problem:
        raise InputError("not a text file in UTF-8", where=path) from problem
    try:
        document = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"not a JSON document: {problem}", where=path) from problem
    if not isinstance(document, dict):
        raise InputError("no report of ppocli", where=path)
    return document


def _check_shape(document: Mapping[str, Any], path: str) -> None:
    """Refuse a document whose parts are not of the types that judging relies on."""
    parts = {
        "settings": dict, "metrics": dict, "nulls": dict, "run": dict, "inputs": list, "findings": list,
        "skipped": list,
    }  # fmt: skip
    for name, kind in parts.items():
        if not isinstance(document.get(name), kind):
            raise InputError(f"damaged report: no '{name}'", where=path)
    fields = {"inputs": ("path", "columns"), "findings": ("code", "severity", "count", "message", "advice")}
    for part, names in fields.items():
        for one in document[part]:
            if not isinstance(one, dict) or not all(name in one for name in names):
                raise InputError(f"damaged report: an entry of '{part}' is not complete", where=path)
    if any(one["severity"] not in ("error", "warning", "info") for one in document["findings"]):
        raise InputError("damaged report: a severity is not known", where=path)
    for group in document.get("groups", ()):
        if not isinstance(group, dict) or not all(
            isinstance(group.get(name), dict) for name in ("key", "metrics", "nulls")
        ):
            raise InputError("damaged report: a group is not complete", where=path)
    for holder in (document, *document.get("groups", ())):
        _check_metrics(holder["metrics"], path)
        drift = holder.get("drift", {"metrics": {"n_tokens": 0}, "nulls": {}})
        if not isinstance(drift, dict) or not all(
            isinstance(drift.get(name), dict) for name in ("metrics", "nulls")
        ):
            raise InputError("damaged report: the drift metrics are not complete", where=path)
        _check_metrics(drift["metrics"], path)


def _check_metrics(metrics: Mapping[str, Any], path: str) -> None:
    """Refuse metrics that are not finite numbers or null, and a report without its count of tokens."""
    if not isinstance(metrics.get("n_tokens"), int):
        raise InputError("damaged report: no count of tokens", where=path)
    for name, value in metrics.items():
        for number in value.values() if isinstance(value, dict) else (value,):
            is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
            if number is not None and not (is_number and abs(number) < float("inf")):
                raise InputError(f"damaged report: {name} is {number!r}, not a finite number", where=path)


def notes_on(document: Mapping[str, Any], path: str | None) -> list[str]:
    """Return what has to be said about a document that was read from a file."""
    if path is None:
        return []
    return [
        f"judged again from a report of ppocli {document.get('version')}: the data were not read, the "
        "findings are those of that run"
    ]


def refuse_other_options(document: Mapping[str, Any], asked: Mapping[str, Any], path: str) -> None:
    """Refuse options that would change the numbers of a saved report.

    Parameters
    ----------
    asked : mapping
        Settings of the command line; those with their default value ask for nothing.

    Raises
    ------
    UsageProblem
        Names every such option.
    """
    usual, made = LossSpec().to_dict(), {**LossSpec().to_dict(), **document["settings"]}
    differ = [name for name, value in asked.items() if value != usual.get(name) and value != made.get(name)]
    if differ:
        said = "; ".join(f"{one} is {made.get(one)!r} there, {asked[one]!r} is asked for" for one in differ)
        raise UsageProblem(
            f"'{path}' cannot be judged again with other settings: {said}",
            hint="leave the options out, or judge the data",
        )


def refuse_other_settings(
    settings: Mapping[str, Any], baseline: Mapping[str, Any], metrics: Iterable[str], path: str
) -> None:
    """Refuse a baseline that was made with other settings than these.

    Raises
    ------
    InputError
        Names every setting that differs, with both values.
    """
    usual = LossSpec().to_dict()
    now, then = ({**usual, **one} for one in (settings, baseline["settings"]))
    names = [name for name in dict.fromkeys((*now, *then)) if name not in (*MEASURED, *OF_AUDITS)]
    if _uses_horizon(now, metrics):
        names.append("horizon")
    differ = [name for name in names if now.get(name) != then.get(name)]
    if differ:
        said = "; ".join(
            f"{name} is {now.get(name)!r}, in the baseline {then.get(name)!r}" for name in differ
        )
        raise InputError(
            f"the baseline has other definitions: {said}",
            where=path,
            hint="give the same options, or make the baseline again",
        )


def refuse_other_definitions(
    document: Mapping[str, Any], baseline: Mapping[str, Any], metrics: Iterable[str], path: str
) -> None:
    """Refuse a baseline whose settings, roles or framework differ from those of a report.

    Raises
    ------
    InputError
        Names what differs.
    """
    refuse_other_settings(document["settings"], baseline, metrics, path)
    now, then = (_roles(one) for one in (document, baseline))
    if now != then:
        only = [
            f"{', '.join(sorted(roles))} only {where}"
            for roles, where in ((now - then, "here"), (then - now, "in the baseline"))
            if roles
        ]
        raise InputError(
            f"the baseline was made from other columns: {'; '.join(only)}",
            where=path,
            hint="a metric is comparable where it is computed from the same roles",
        )
    likes = [one.get("like") or {} for one in (document, baseline)]
    if any(likes[0].get(name) != likes[1].get(name) for name in ("name", "version", "definitions")):
        names = " and ".join(str(one.get("name")) for one in likes)
        raise InputError(f"the baseline follows another framework's definitions: {names}", where=path)


def _roles(document: Mapping[str, Any]) -> set[str]:
    """Return the roles that every input has a column for, and that metrics are computed from."""
    columns = [set(one["columns"]) for one in document["inputs"]]
    return set.intersection(*columns) - WITHOUT_INFLUENCE if columns else set()


def _uses_horizon(settings: Mapping[str, Any], metrics: Iterable[str]) -> bool:
    """Whether one of these metrics is divided by the horizon."""
    norm = "seq-mean-token-sum-norm"
    chosen = settings.get("agg") == norm
    return any(
        name.endswith(f".{norm}")
        or (chosen and name.removesuffix("_finite") in ("policy_loss", "total_loss"))
        for name in metrics
    )
