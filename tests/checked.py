"""Results of gates made by hand, for what shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import reports

from ppocli.core.gate import Gate
from ppocli.core.limits import Limit, profile_limits
from ppocli.core.report import EvalReport, Finding, Place
from ppocli.engine.check import judge

if TYPE_CHECKING:
    from ppocli.core.check_report import CheckReport

LIMITS = (
    Limit("clip_frac", "max", 0.1, source="--max"),
    Limit("approx_kl_k3", "max", 0.00412306, source="pyproject.toml:12"),
    Limit("entropy_mean", "min", 0.5, source="--min"),
)


def judged(made: EvalReport | None = None, *limits: Limit, **gate: Any) -> CheckReport:
    """Judge a report made by hand; by default a limit is broken, one just kept, one without a column."""
    return judge((made or reports.report()).to_dict(), Gate(limits=limits or LIMITS, **gate))


def mixed() -> CheckReport:
    """One check of every kind: failed, passed, skipped; a finding that fails, one that only warns."""
    findings = (
        Finding("PPO101", "error", 2, "2 NaN at valid tokens", "look", Place("rollouts.parquet", 1, 2, 1555)),
        reports.overflow(),
    )
    limits = (*LIMITS, *profile_limits(["slime"]))
    return judged(reports.report({"entropy_estimate": 0.5}, findings=findings), *limits, profiles=("slime",))


def files() -> CheckReport:
    """Three files; a limit on the policy loss fails in two of them."""
    return judged(reports.several(), Limit("policy_loss", "max", 0.125, source="--max"), by="file")


def many(n: int) -> CheckReport:
    """As many failed checks and warnings as asked for."""
    limits = tuple(Limit("n_tokens", "max", 6 - k, source="--max") for k in range(n))
    findings = tuple(replace(reports.overflow(), count=k + 1) for k in range(n))
    return judged(reports.report(findings=findings), *limits)


BY_NAME = {
    "mixed": mixed,
    "files": files,
    "steps": lambda: judged(reports.steps(), Limit("policy_loss", "max", 0.5, source="--max"), by="step"),
    "passed": lambda: judged(None, Limit("clip_frac", "max", 1.0)),
    "empty": lambda: judged(reports.empty()),
    "odd": lambda: judged(reports.odd_names(), Limit("policy_loss", "max", -1.0, source="--max"), by="file"),
}
