"""What a gate found: every check as it was judged, and the document it was judged on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from ppocli.core.report import Number, Place
from ppocli.core.shown import Shown

Status = Literal["pass", "fail", "skip", "error"]
CheckKind = Literal["max", "min", "expect", "baseline", "finding", "findings", "profile"]


def place_from(where: Mapping[str, Any] | None) -> Place | None:
    """Return a place from its entry in a document."""
    if where is None:
        return None
    return Place(where["path"], where["row"], where.get("position"), where.get("token_id"))


@dataclass(frozen=True, slots=True)
class Check:
    """One judgement.

    Attributes
    ----------
    name : str
        What was asked, the same from run to run: `approx_kl_k3 <= 0.05`, `PPO101`.
    kind : {"max", "min", "expect", "baseline", "finding", "findings", "profile"}
        "findings" is the one check that stands for all rules when none of those that are judged was hit.
    status : {"pass", "fail", "skip", "error"}
        "skip": not judged, and that was allowed. "error": nothing was there to be judged.
    source : str
        Where the check comes from: an option, a line of a file, a profile.
    reason : str
        Why it is not "pass", or what a passing check could not see.
    metric : str, optional
    value, limit, tolerance : number, optional
        What was found; the bound, or the value expected; how far from it is allowed.
    key : mapping
        The group that was judged, such as its file; empty for the whole input.
    where : Place, optional
    """

    name: str
    kind: CheckKind
    status: Status
    source: str
    reason: str = ""
    metric: str | None = None
    value: Number = None
    limit: Number = None
    tolerance: float | None = None
    key: Mapping[str, Any] = field(default_factory=dict)
    where: Place | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `checks`; what does not apply is left out, `value` stays where a metric is."""
        out = {name: one for name, one in asdict(self).items() if one not in (None, "", {})}
        if self.metric is not None:
            out["value"] = self.value
        if self.where is not None:
            out["where"] = {name: one for name, one in asdict(self.where).items() if one is not None}
        return out


class Judged(Protocol):
    """What was judged: a report with its checks."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every check."""

    @property
    def exit_code(self) -> int:
        """What the command exits with."""


def count(checks: Iterable[Check], status: Status) -> int:
    """Return how many checks ended so."""
    return sum(one.status == status for one in checks)


def failed(checks: Iterable[Check]) -> bool:
    """Tell whether a check failed, or had nothing to judge."""
    return any(one.status in ("fail", "error") for one in checks)


@dataclass(frozen=True, slots=True, repr=False)
class CheckReport(Shown):
    """The result of `ppocli check`.

    Attributes
    ----------
    document : mapping
        The document of `ppocli eval` that was judged, with the findings that the gate added.
    checks : tuple of Check
    gate : mapping
        All that decided besides the limits: severities, codes, profiles, the baseline; and `notes`, what
        could not be judged.
    exit_code : int
    """

    document: Mapping[str, Any]
    checks: tuple[Check, ...]
    gate: Mapping[str, Any]
    exit_code: int

    def __eq__(self, other: object) -> bool:
        """Compare everything but `run`, which describes the run and not the data."""
        if not isinstance(other, CheckReport):
            return NotImplemented
        mine, its = self.to_dict(), other.to_dict()
        return {**mine, "run": None} == {**its, "run": None}

    def count(self, status: Status) -> int:
        """Return how many checks ended so."""
        return count(self.checks, status)

    @property
    def failed(self) -> bool:
        """Whether a check failed, or had nothing to judge."""
        return failed(self.checks)

    @property
    def status(self) -> str:
        """`failed`, else `findings` when a rule of level warning or error was hit, else `ok`."""
        graver = any(one["severity"] != "info" for one in self.document["findings"])
        return "failed" if self.failed else "findings" if graver else "ok"

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `-f json` prints: that of `eval`, with `checks` and `gate`."""
        body = dict(self.document)
        run = body.pop("run")
        head = {"kind": "check", "status": self.status, "exit_code": int(self.exit_code)}
        checks = [one.to_dict() for one in self.checks]
        return {**body, **head, "checks": checks, "gate": dict(self.gate), "run": run}
