"""What every name means: metrics, roles, aggregations, findings, and the column names of roles."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ppocli.core.audit_metrics import AUDIT_METRICS, AuditMetric
from ppocli.core.drift_metrics import DRIFT_METRICS
from ppocli.core.metrics import METRICS, Metric
from ppocli.core.objective_texts import OBJECTIVE_TEXTS
from ppocli.core.precision import PRECISIONS, Precision
from ppocli.core.presets import FAMILIES, Preset, all_presets, preset
from ppocli.core.profiles import PROFILES
from ppocli.core.roles import AMBIGUOUS, NEGATED, PROBABILITIES, ROLES, Role
from ppocli.core.rules import RULES, Rule
from ppocli.core.spec import AGGREGATIONS, LossSpec
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
    bare = name.removeprefix("drift.").removesuffix("_finite")
    if bare in DRIFT_METRICS:
        return _drift_metric(DRIFT_METRICS[bare])
    if name in ROLES:
        return _role(ROLES[name])
    if name in OBJECTIVE_TEXTS:
        return _objective(name)
    if name.partition(":")[0] in FAMILIES:
        profile = PROFILES[name].lines() if name in PROFILES else []
        return [*_preset(preset(name)), *profile]
    setting = name.removeprefix("--").replace("-", "_")  # as it is typed on the command line
    if setting in SETTINGS:
        return [
            f"{setting}: setting of the loss",
            SETTINGS[setting],
            f"Set with --set {setting}=VALUE or its own option.",
        ]
    if setting == "clip_eps":
        return [
            f"{setting}: setting of the loss",
            "One value for clip_low and clip_high: the ratio is clipped to [1 - clip_eps, 1 + clip_eps].",
            "Set with --clip-eps VALUE. Default: 0.2.",
        ]
    if name in AGGREGATION_TEXTS:
        return [f"{name}: aggregation", f"{AGGREGATION_TEXTS[name]}.", f"Chosen with --agg {name}."]
    if name.upper() in RULES:
        return _rule(RULES[name.upper()])
    if name in PROFILES:
        return PROFILES[name].lines()
    if name in AUDIT_METRICS:
        return _audit_metric(AUDIT_METRICS[name])
    if name in PRECISIONS:
        return _precision(PRECISIONS[name])
    return _column(name)


def listing() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return everything that can be explained: a title, then names with a line each."""
    return [
        ("Metrics", [(one.name, one.text) for one in METRICS.values()]),
        ("Metrics of drift", [(f"drift.{one.name}", one.text) for one in DRIFT_METRICS.values()]),
        ("Roles", [(one.name, one.text) for one in ROLES.values()]),
        ("Aggregations", [(name, AGGREGATION_TEXTS[name]) for name in AGGREGATIONS]),
        ("Objectives", [(name, one.formula) for name, one in OBJECTIVE_TEXTS.items()]),
        ("Frameworks", [(one.name, f"{one.title} {one.version}") for one in all_presets()]),
        (
            "Settings of the loss",
            [(name, text.split(". ")[0].rstrip(".")) for name, text in SETTINGS.items()],
        ),
        ("Findings", [(rule.code, rule.title) for rule in RULES.values()]),
        ("Profiles of ppocli check", [(one.name, one.text) for one in PROFILES.values()]),
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


def _drift_metric(metric: Metric) -> list[str]:
    """Explain a metric of `drift`."""
    unit = f", {_UNITS[metric.unit]}" if metric.unit in _UNITS else ""
    lines = [f"drift.{metric.name}: metric of drift{unit}", f"{metric.text}."]
    if metric.sequences:
        lines.append("Taken over sequences: reported where the input has sequences.")
    if metric.needs:
        lines.append(
            "a and b are the two log-probs of a token: by default old_log_probs and rollout_log_probs."
        )
        lines.append(
            f"NAME_finite beside it: over the tokens with finite values. In limits: drift.{metric.name}."
        )
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


def _objective(name: str) -> list[str]:
    """Explain an objective."""
    one = OBJECTIVE_TEXTS[name]
    lines = [
        f"{name}: objective",
        f"Loss of a token, to be minimised: {one.formula}.",
        f"{one.clipped}.",
        f"Source: {one.source}.",
        f"Chosen with --objective {name}.",
    ]
    if one.settings:
        lines.insert(3, f"Settings: {', '.join(one.settings)}.")
    using = [p.name for p in all_presets() if p.spec.get("objective", "ppo") == name]
    if using:
        lines.append(f"The objective of: {', '.join(using)}.")
    return lines


def _preset(one: Preset) -> list[str]:
    """Explain a preset: its settings, its metrics, what its users should know."""
    lines = [f"{one.name}: {one.title} {one.version}"]
    if one.spec:
        lines.append(f"Settings: {', '.join(f'{name} {value}' for name, value in one.spec.items())}.")
    lines += [f"{metric.name}: {metric.text}." for metric in one.metrics]
    lines += [f"Columns also found as: {', '.join(names)} ({role})." for role, names in one.aliases.items()]
    lines += [f"Note: {note}." for note in one.notes]
    lines.append(f"Chosen with --like {one.name}; --set and the options override its settings.")
    return lines


def _settings() -> dict[str, str]:
    """Return the settings of the loss and what they are, from the documentation of `LossSpec`."""
    texts: dict[str, list[str]] = {}
    names: list[str] = []
    body = (LossSpec.__doc__ or "").partition("Attributes\n")[2].partition("Raises\n")[0]
    for line in body.splitlines():
        head, colon, _ = line.strip().partition(" : ")
        if colon and len(line) - len(line.lstrip()) == 4:
            names = head.split(", ")
        elif line.startswith("        "):
            for name in names:
                texts.setdefault(name, []).append(line.strip())
    return {name: " ".join(lines).replace("`", "") for name, lines in texts.items()}


SETTINGS = _settings()
"""Every setting of the loss that has a text of its own."""


def _rule(rule: Rule) -> list[str]:
    """Explain a finding."""
    judged = {
        "error": "Fails 'ppocli check'",
        "warning": "Fails 'ppocli check' with --fail-on warning",
        "info": "Never fails 'ppocli check'",
    }
    at_worst = f"{rule.severity}, at worst {rule.worst}" if rule.worst else rule.severity
    return [
        f"{rule.code}: finding, {at_worst}",
        f"{rule.title}.",
        *([f"Found where: {rule.decided}."] if rule.decided else []),
        f"What to do: {rule.advice}.",
        f"False alarm: {rule.false_alarm}.",
        f"{judged[rule.gravest]}.",
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
    names = [
        *(*METRICS, *DRIFT_METRICS, *ROLES, *AGGREGATIONS),
        *(*OBJECTIVE_TEXTS, *SETTINGS, *FAMILIES, *RULES, *PROFILES),
        *(*AUDIT_METRICS, *PRECISIONS),
    ]
    raise UsageProblem(f"nothing is known by the name '{name}'", hint=nearest(name, names))
