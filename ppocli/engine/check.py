"""The gate: a report and what is asked of it, to judged checks. Reads no data, so a saved report will do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppocli.core.check_report import Check, CheckReport, Status, place_from
from ppocli.core.gate import ON_POLICY_METRIC, RANK, Gate
from ppocli.core.limits import Limit, Tolerance, plain
from ppocli.engine.impossible import CODE as IMPOSSIBLE_CODE
from ppocli.engine.impossible import impossible_findings
from ppocli.engine.lookup import Reading, read
from ppocli.engine.on_policy import CODE as ON_POLICY_CODE
from ppocli.engine.on_policy import on_policy_finding
from ppocli.errors import ExitCode, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Document = dict[str, Any]


def judge(document: Mapping[str, Any], gate: Gate, baseline: Mapping[str, Any] | None = None) -> CheckReport:
    """Judge a report.

    A check passes only if its value is a number and keeps its limit, equality included: a comparison is
    written `not (value <= limit)`, so that a NaN fails. A metric that is null, or whose column is missing,
    fails; a limit of a profile is skipped where the column is missing.

    Parameters
    ----------
    document : mapping
        What `EvalReport.to_dict()` returns, or `load` read from a file.
    gate : Gate
    baseline : mapping, optional
        The document that `gate.tolerances` refer to; see `refuse_other_definitions`.

    Returns
    -------
    CheckReport
        `exit_code` is 5 where there is no valid token, 1 where a check failed, else 0.

    Raises
    ------
    InputError
        `gate.by` asks for groups that the report does not have.
    """
    judged = _with_own_findings(document, gate)
    limits = _limits(gate)
    checks = list(limited(judged, gate))
    if baseline is not None:
        whole = _Part(judged, judged, {})
        checks += [_compared(whole, baseline, one, gate) for one in gate.tolerances]
    checks += _unjudged_profiles(checks, limits)
    checks += _findings(judged, gate)
    code = ExitCode.OK
    if not judged["metrics"]["n_tokens"] and not gate.allow_empty:
        code = ExitCode.EMPTY
    elif any(one.status in ("fail", "error") for one in checks) and not gate.exit_zero:
        code = ExitCode.GATE_FAILED
    echo = {**_echo(gate, limits), "first_failed": list(first_failed(checks))}
    return CheckReport(judged, tuple(checks), echo, int(code))


def limited(document: Mapping[str, Any], gate: Gate) -> Iterator[Check]:
    """Yield the check of each limit, of each part of the document that the gate speaks of."""
    limits = _limits(gate)
    return (_limited(part, one, gate) for part in _parts(document, gate) for one in limits)


def first_failed(checks: Sequence[Check]) -> Iterator[Document]:
    """Yield for each limit that some groups break the first of them, in the order of the groups."""
    by_name: dict[str, list[Check]] = {}
    for one in checks:
        if one.key:
            by_name.setdefault(one.name, []).append(one)
    for name, own in by_name.items():
        broken = [one for one in own if one.status in ("fail", "error")]
        if broken:
            yield {
                "check": name,
                "key": dict(broken[0].key),
                "value": broken[0].value,
                "n_failed": len(broken),
                "n_groups": len(own),
            }


class _Part:
    """What is judged at a time: the whole input or a group of it."""

    def __init__(self, document: Mapping[str, Any], body: Mapping[str, Any], key: Mapping[str, Any]) -> None:
        self.document, self.body, self.key = document, body, key

    def read(self, metric: str) -> Reading:
        """Return a metric of this part."""
        return read(self.document, self.body, metric)

    @property
    def is_empty(self) -> bool:
        """Whether no token is valid here."""
        return not self.body["metrics"]["n_tokens"]

    @property
    def is_all(self) -> bool:
        """Whether this is the whole input, or as empty as that."""
        return not self.document["metrics"]["n_tokens"] or not self.key


def _parts(document: Mapping[str, Any], gate: Gate) -> Iterator[_Part]:
    """Yield what the limits are judged on."""
    if gate.by == "total":
        yield _Part(document, document, {})
        return
    groups = [one for one in document.get("groups", ()) if set(one["key"]) == {gate.by}]
    inputs = document["inputs"]
    if gate.by == "file" and len(inputs) == 1:
        yield _Part(document, document, {"file": inputs[0]["path"]})
    elif not document["metrics"]["n_tokens"]:
        yield _Part(document, document, {})
    elif not groups or (gate.by == "file" and len(groups) != len(inputs)):
        raise InputError(
            f"--by {gate.by}: the report does not have the metrics of each {gate.by}",
            hint="judge the data themselves",
        )
    else:
        yield from (_Part(document, group, group["key"]) for group in groups)


def _limits(gate: Gate) -> tuple[Limit, ...]:
    """Return all limits, the one of --expect-on-policy included."""
    if not gate.expect_on_policy:
        return gate.limits
    return (*gate.limits, Limit(ON_POLICY_METRIC, "max", gate.on_policy_tol, source="--expect-on-policy"))


def _limited(part: _Part, limit: Limit, gate: Gate) -> Check:
    """Judge one limit."""
    value, limit_value = part.read(limit.metric), limit.value
    text = plain(limit_value)
    name = {
        "max": f"{limit.metric} <= {text}",
        "min": f"{limit.metric} >= {text}",
        "expect": f"{limit.metric} = {text} +- {plain(limit.tolerance)}",
    }[limit.kind]
    status: Status = "pass"
    reason = ""
    if value.number is None:
        status, reason = _absent(part, value, gate, optional=limit.profile is not None)
    elif limit.kind == "max" and not (value.number <= limit_value):
        status, reason = "fail", f"{_text(value.number)} is more than {text}"
    elif limit.kind == "min" and not (value.number >= limit_value):
        status, reason = "fail", f"{_text(value.number)} is less than {text}"
    elif limit.kind == "expect":
        away = abs(value.number - limit_value)
        if not (away <= limit.tolerance):
            status, reason = "fail", f"{_text(value.number)} is {_text(away)} away from {text}"
    tolerance = limit.tolerance if limit.kind == "expect" else None
    return Check(
        name, limit.kind, status, limit.source, reason, limit.metric, value.number, limit_value, tolerance,
        part.key, value.where,
    )  # fmt: skip


def _compared(part: _Part, baseline: Mapping[str, Any], tolerance: Tolerance, gate: Gate) -> Check:
    """Judge one metric against its value in the baseline."""
    value, base = part.read(tolerance.metric), read(baseline, baseline, tolerance.metric)
    name = f"{tolerance.metric} within {tolerance.text} of the baseline"
    status: Status = "pass"
    reason, allowed = "", None
    if value.number is None:
        status, reason = _absent(part, value, gate, optional=False)
    elif base.number is None:
        status, reason = "fail", f"null in the baseline: {base.reason}"
    else:
        away, allowed = abs(value.number - base.number), tolerance.around(base.number)
        if not (away <= allowed):
            status, reason = "fail", f"{_text(value.number)} is {_text(away)} away from {_text(base.number)}"
    return Check(
        name, "baseline", status, tolerance.source, reason, tolerance.metric, value.number, base.number,
        allowed, part.key, value.where,
    )  # fmt: skip


def _absent(part: _Part, value: Reading, gate: Gate, *, optional: bool) -> tuple[Status, str]:
    """Return status and reason of a check whose metric is not a number."""
    if part.is_empty:
        if gate.allow_empty:
            return "skip", "no valid token, which --allow-empty allows"
        return ("error" if part.is_all else "fail"), "no valid token"
    return ("skip" if optional and value.is_missing else "fail"), value.reason


def _text(value: float) -> str:
    """Return a number in full; whole numbers without a point."""
    return str(value) if isinstance(value, int) else plain(value)


def _unjudged_profiles(checks: list[Check], limits: tuple[Limit, ...]) -> Iterator[Check]:
    """Yield a failure for each profile none of whose limits was judged: it would pass on nothing."""
    profiles = dict.fromkeys(one.profile for one in limits if one.profile)
    for profile in profiles:
        own = [one for one in checks if one.source == f"profile {profile}"]
        skipped = [one for one in own if one.status == "skip"]
        if own and len(skipped) == len(own) and not any("--allow-empty" in one.reason for one in own):
            reasons = "; ".join(dict.fromkeys(one.reason for one in skipped))
            yield Check(
                f"profile {profile}", "profile", "fail", f"profile {profile}",
                f"none of its {len({one.name for one in own})} limits could be judged: {reasons}",
            )  # fmt: skip


def _findings(document: Mapping[str, Any], gate: Gate) -> Iterator[Check]:
    """Yield a failure for each finding that is judged, or one pass where there is none."""
    if gate.fail_on == "never":
        return
    failed = False
    for one in document["findings"]:
        code, severity = one["code"], one["severity"]
        # Judged as a limit already.
        if code == ON_POLICY_CODE and gate.expect_on_policy:
            continue
        would_fail = gate.judges(code, severity)
        if would_fail or (severity == "error" and not gate.names(code)):
            failed |= would_fail
            yield Check(
                code, "finding", "fail" if would_fail else "skip", "--fail-on",
                one["message"] if would_fail else f"not judged by --select or --ignore: {one['message']}",
                value=one["count"], where=place_from(one.get("where")),
            )  # fmt: skip
    if not failed:
        level = "error" if gate.fail_on == "error" else "error or warning"
        which = f" among {', '.join(gate.select)}" if gate.select else ""
        yield Check(f"no finding of severity {level}{which}", "findings", "pass", "--fail-on", value=0)


def _with_own_findings(document: Mapping[str, Any], gate: Gate) -> Document:
    """Return the document with PPO106, and with PPO302 if it should be on policy and is not."""
    findings = [one for one in document["findings"] if one["code"] not in (ON_POLICY_CODE, IMPOSSIBLE_CODE)]
    findings += impossible_findings(document)
    if gate.expect_on_policy:
        findings += on_policy_finding(document, gate.on_policy_tol)
    findings.sort(key=lambda one: (RANK[one["severity"]], one["code"]))
    return {**document, "findings": findings}


def _echo(gate: Gate, limits: tuple[Limit, ...]) -> dict[str, Any]:
    """Return what decided, for the document."""
    notes = [] if limits or gate.tolerances else ["no limit is given: only findings are judged"]
    return {
        "fail_on": gate.fail_on,
        "select": list(gate.select),
        "ignore": list(gate.ignore),
        "by": gate.by,
        "profiles": list(gate.profiles),
        "expect_on_policy": gate.expect_on_policy,
        "on_policy_tol": gate.on_policy_tol,
        "allow_empty": gate.allow_empty,
        "exit_zero": gate.exit_zero,
        "report": None,
        "baseline": None,
        "notes": notes,
    }
