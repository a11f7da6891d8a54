"""What every name means: metrics, roles, aggregations, findings, and the column names of roles."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ppocli.core.audit_metrics import AUDIT_METRICS, AuditMetric
from ppocli.core.metrics import METRICS, Metric
from ppocli.core.precision import PRECISIONS, Precision
from ppocli.core.roles import AMBIGUOUS, NEGATED, PROBABILITIES, ROLES, Role
from ppocli.core.rules import RULES, Rule
from ppocli.core.spec import AGGREGATIONS
from ppocli.errors import UsageProblem

AGGREGATION_TEXTS: dict[str, str] = {
    "token-mean": "sum over all valid tokens, divided by their number",
    "seq-mean-token-mean": "mean over sequences of the mean over their valid tokens",
    "seq-mean-token-sum": "mean over sequences of the sum over their valid tokens",
    "seq-mean-token-sum-norm": "mean over sequences of the sum over their valid tokens, over the horizon",
    "token-sum": "sum over all valid tokens",
    "group-mean": "mean over groups of the mean over the group's valid tokens",
}

_UNITS = {"nats": "nats", "fraction": "a fraction, 0 to 1", "ratio": "a ratio", "count": "a count"}
_KINDS = {
    "log_prob": "log-probabilities in nats, floating point",
    "real": "real numbers, floating point",
    "mask": "true or false; integers and floats must be 0 or 1",
    "id": "whole numbers or text",
}


def explain(name: str) -> list[str]:
    """Return the lines that explain a name; the first is a title, the others are its text.

    Raises
    ------
    UsageProblem
        A name that is in no catalogue.
    """
    if name in METRICS:
        return _metric(METRICS[name])
    if name.endswith("_finite") and name.removesuffix("_finite") in METRICS:
        base = name.removesuffix("_finite")
        return [
            f"{name}: metric",
            f"{base}, taken over the tokens whose columns for it are all finite.",
            f"Reported beside {base} where that is null because of a null, NaN or infinite value.",
        ]
    if name in ROLES:
        return _role(ROLES[name])
    if name in AGGREGATION_TEXTS:
        return [f"{name}: aggregation", f"{AGGREGATION_TEXTS[name]}.", f"Chosen with --agg {name}."]
    if name.upper() in RULES:
        return _rule(RULES[name.upper()])
    if name in AUDIT_METRICS:
        return _audit_metric(AUDIT_METRICS[name])
    if name in PRECISIONS:
        return _precision(PRECISIONS[name])
    return _column(name)


def listing() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return everything that can be explained: a title, then names with a line each."""
    return [
        ("Metrics", [(one.name, one.text) for one in METRICS.values()]),
        ("Roles", [(one.name, one.text) for one in ROLES.values()]),
        ("Aggregations", [(name, AGGREGATION_TEXTS[name]) for name in AGGREGATIONS]),
        ("Findings", [(rule.code, rule.title) for rule in RULES.values()]),
        ("Metrics of an audit", [(n, one.text) for n, one in AUDIT_METRICS.items() if n not in METRICS]),
        ("Number formats", [(one.name, one.text) for one in PRECISIONS.values()]),
    ]


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint: the most similar of `names`, if one is similar, and how to list them all."""
    near = difflib.get_close_matches(name, list(names), n=1)
    guess = f"did you mean '{near[0]}'? " if near else ""
    return f"{guess}'ppocli explain --list' lists all names"


def _metric(metric: Metric) -> list[str]:
    """Explain a metric."""
    unit = f", {_UNITS[metric.unit]}" if metric.unit in _UNITS else ""
    lines = [f"{metric.name}: metric{unit}", f"{metric.text}."]
    if metric.sequences:
        lines.append("Taken over sequences: reported where the input has sequences.")
    elif metric.needs:
        lines.append("Taken over valid tokens: those that the mask does not exclude.")
    if metric.needs:
        lines.append(f"Needs: {', '.join(metric.needs)}.")
    return lines


def _role(role: Role) -> list[str]:
    """Explain a role and list the column names under which it is found."""
    lines = [f"{role.name}: role of a column", f"{role.text}.", f"Values: {_KINDS[role.kind]}."]
    if role.aliases:
        lines.append(f"Also found as: {', '.join(role.aliases)}.")
    unclear = [column for column, roles in AMBIGUOUS.items() if role.name in roles and column != role.name]
    if unclear:
        lines.append(
            f"May also be meant by: {', '.join(unclear)}; taken only where other columns make it clear."
        )
    lines.append(f"Set by hand: --col {role.name}=COLUMN.")
    return lines


def _rule(rule: Rule) -> list[str]:
    """Explain a finding."""
    return [
        f"{rule.code}: finding, {rule.severity}",
        f"{rule.title}.",
        f"What to do: {rule.advice}.",
        f"False alarm: {rule.false_alarm}.",
    ]


def _audit_metric(metric: AuditMetric) -> list[str]:
    """Explain a number that an audit reports for a format."""
    unit = f", {_UNITS[metric.unit]}" if metric.unit in _UNITS else ""
    questions = " and ".join(metric.questions)
    return [f"{metric.name}: metric of an audit{unit}", f"{metric.text}.", f"Questions: {questions}."]


def _precision(one: Precision) -> list[str]:
    """Explain a number format."""
    use = "storage and arithmetic" if one.arithmetic else "storage"
    return [f"{one.name}: number format", f"{one.text}.", f"Bytes: {one.n_bytes}. Audited: {use}."]


def _column(name: str) -> list[str]:
    """Explain the name of a column that is not itself a role."""
    lowered = name.lower()
    for role in ROLES.values():
        if lowered in role.aliases:
            return [f"{name}: column name", f"Read as {role.name}: {role.text}."]
    if lowered in AMBIGUOUS:
        roles = " or ".join(AMBIGUOUS[lowered])
        return [f"{name}: column name", f"May mean {roles}. Where that is unclear: --col ROLE={name}."]
    if lowered in NEGATED:
        return [f"{name}: column name", "Holds minus the log-prob, so it is never taken. Store its negative."]
    if lowered in PROBABILITIES:
        return [f"{name}: column name", "Holds probabilities, so it is never taken. Store their logarithms."]
    names = [*METRICS, *ROLES, *AGGREGATIONS, *RULES, *AUDIT_METRICS, *PRECISIONS]
    raise UsageProblem(f"nothing is known by the name '{name}'", hint=nearest(name, names))
