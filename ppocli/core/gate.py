"""What a gate asks for: everything that decides whether a report passes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ppocli.core.glossary import nearest
from ppocli.core.rules import RULES
from ppocli.core.spec import check_by, choose
from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from ppocli.core.limits import Limit, Tolerance
    from ppocli.core.report import Severity

FAIL_ON = ("error", "warning", "never")
ON_POLICY_METRIC = "log_ratio_abs_max"
JUDGED = tuple(rule for rule in RULES.values() if not rule.code.startswith("PPO5"))
"""Rules that a gate can hit; PPO5xx are those of `ppocli drift`."""
RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Gate:
    """Everything that decides whether a report passes.

    Attributes
    ----------
    limits : tuple of Limit
    tolerances : tuple of Tolerance
        Judged against a baseline.
    fail_on : {"error", "warning", "never"}
        Findings of this severity, or a graver one, fail.
    select, ignore : tuple of str
        Codes, or how they begin ("PPO1"): only these findings are judged, these are not.
    by : str
        "total"; or limits are judged for each "file", for each training "step", or for each value of the
        column so named, instead of the whole input.
    expect_on_policy : bool
        Every |log_ratio| is at most `on_policy_tol`.
    allow_empty : bool
        No valid token: what cannot be judged is skipped, and the exit code is not 5.
    exit_zero : bool
        A failed check does not change the exit code.
    profiles : tuple of str
        Published sets of limits that are part of `limits`.

    Raises
    ------
    UsageProblem
        An unknown word or code, a tolerance that is not finite, or a gate that could never fail.
    """

    limits: tuple[Limit, ...] = ()
    tolerances: tuple[Tolerance, ...] = ()
    fail_on: str = "error"
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    by: str = "total"
    expect_on_policy: bool = False
    on_policy_tol: float = 1e-6
    allow_empty: bool = False
    exit_zero: bool = False
    profiles: tuple[str, ...] = ()

    OPTIONS: ClassVar[tuple[str, ...]] = (
        "fail_on", "select", "ignore", "expect_on_policy", "on_policy_tol", "exit_zero",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for name in ("limits", "tolerances", "select", "ignore", "profiles"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        choose("--fail-on", self.fail_on, FAIL_ON)
        check_by(self.by)
        if not 0.0 <= self.on_policy_tol < math.inf:
            raise UsageProblem(f"--on-policy-tol is a finite number of nats, not {self.on_policy_tol:g}")
        for option, codes in (("--select", self.select), ("--ignore", self.ignore)):
            for code in codes:
                _check_code(option, code)
        self._refuse_if_toothless()

    def judges(self, code: str, severity: Severity) -> bool:
        """Whether a finding of this code and severity fails the gate."""
        return self.fail_on != "never" and RANK[severity] <= FAIL_ON.index(self.fail_on) and self.names(code)

    def names(self, code: str) -> bool:
        """Whether findings of this code are judged at all."""
        chosen = not self.select or code.startswith(self.select)
        return chosen and not (self.ignore and code.startswith(self.ignore))

    def _refuse_if_toothless(self) -> None:
        """Refuse a gate that can never fail."""
        if self.select and not any(self.judges(rule.code, rule.gravest) for rule in JUDGED):
            raise UsageProblem(
                f"--select {' '.join(self.select)} with --fail-on {self.fail_on} judges nothing",
                hint="'ppocli explain CODE' gives the severity of a finding; --fail-on warning judges more",
            )
        asked = self.limits or self.tolerances or self.expect_on_policy
        if not asked and not any(self.judges(rule.code, rule.gravest) for rule in JUDGED):
            raise UsageProblem("nothing to judge: no limit is given, and no finding can fail this gate",
                               hint="for example: --max approx_kl_k3=0.05")  # fmt: skip


def _check_code(option: str, code: str) -> None:
    """Refuse what no code begins with."""
    if not code or not any(one.startswith(code) for one in RULES):
        raise UsageProblem(f"{option}: no finding has the code '{code}'", hint=nearest(code.upper(), RULES))
