"""What a run found, as frozen values: Python numbers, text, tuples and dictionaries, never NumPy scalars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ppocli.core.shown import Shown

if TYPE_CHECKING:
    from ppocli.core.audit_report import AuditResult

SCHEMA_VERSION = "1"

Nonfinite = Literal["nan", "inf", "-inf"]
Severity = Literal["error", "warning", "info"]
Number = float | int | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a token stands. Rows and positions count from 0; `position` is None without sequences."""

    path: str
    row: int
    position: int | None = None
    token_id: int | None = None


@dataclass(frozen=True, slots=True)
class NullNote:
    """Why a metric is null, where the first cause stands, and what float64 arithmetic would have given."""

    reason: str
    nonfinite: Nonfinite | None = None
    where: Place | None = None


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """The column that plays a role in one input, with its values at valid tokens counted."""

    column: str
    dtype: str
    n_null: int = 0
    n_nan: int = 0
    n_posinf: int = 0
    n_neginf: int = 0


@dataclass(frozen=True, slots=True)
class InputReport:
    """One input.

    Attributes
    ----------
    path, format, layout : str
        `layout` is one of "flat", "list", "padded", "list<list>", "packed".
    rows, tokens, masked : int
        Rows stored; valid tokens; masked tokens.
    bytes : int
        Size of the file.
    columns : mapping of role to ColumnReport
    notes : tuple of str
        What was inferred: a role found by alias, an axis squeezed, a scalar repeated, null rows passed over.
    """

    path: str
    format: str
    layout: str
    rows: int
    bytes: int
    tokens: int = 0
    masked: int = 0
    columns: Mapping[str, ColumnReport] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not read, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that was hit: stable code, how often, where first, what it means and what to do."""

    code: str
    severity: Severity
    count: int
    message: str
    advice: str
    where: Place | None = None


@dataclass(frozen=True, slots=True)
class WorstToken:
    """One of the tokens with the largest |log_ratio| or |loss|; what overflows float64 is None."""

    by: Literal["log_ratio", "loss"]
    where: Place
    log_probs: float
    old_log_probs: float
    advantage: Number
    log_ratio: Number
    ratio: Number
    loss: Number
    branch: str


@dataclass(frozen=True, slots=True)
class Bin:
    """A bar of a histogram: `n` tokens between `low` and `high`; None: without a bound on that side."""

    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Group:
    """The metrics of one file, step or other key.

    `drift` is as in `EvalReport`; `change` is what some metrics changed by against the group before, where
    groups have an order: not between files.
    """

    key: Mapping[str, Any]
    metrics: Mapping[str, Any]
    nulls: Mapping[str, NullNote]
    drift: Mapping[str, Any] = field(default_factory=dict)
    change: Mapping[str, Number] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LikeReport:
    """A framework's metrics under its own names.

    Attributes
    ----------
    name, title, version : str
        The preset, the project, and its version.
    metrics : mapping of name to number or None
    nulls : mapping of name to NullNote
    definitions : mapping of name to str
    notes : tuple of str
    """

    name: str
    title: str
    version: str
    metrics: Mapping[str, Number]
    nulls: Mapping[str, NullNote]
    definitions: Mapping[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class EvalReport(Shown):
    """The result of `ppocli eval`.

    Attributes
    ----------
    settings : mapping
        Every option that changes a number.
    inputs, skipped : tuple
    metrics : mapping of name to number or None
        `policy_loss_by_agg` maps aggregation to number or None. Names are those of `ppocli.core.metrics`.
    nulls : mapping of name to NullNote
        One entry for each None in `metrics`; nested names are dotted.
    findings, groups, worst : tuple
    places : mapping of name to Place
        Where extremes stand.
    like : LikeReport, optional
        With `like`: the framework's own metrics.
    run : mapping
        All that is not deterministic: times, threads, versions.
    drift : mapping
        The trainer against the sampler, where a rollout column is there: `a`, `b`, `metrics`, `nulls`.
    audit : AuditResult, optional
        What lower precision would have done to the loss, where that was asked for.
    histograms : mapping of name to tuple of Bin
        "log_ratio" and "log_ratio_abs", in nats, over the tokens where it is finite, before any clamp; empty
        without such a token. A token on the edge between two bars is in the one with the even centre.
    """

    settings: Mapping[str, Any]
    inputs: tuple[InputReport, ...]
    skipped: tuple[Skipped, ...]
    metrics: Mapping[str, Any]
    nulls: Mapping[str, NullNote]
    findings: tuple[Finding, ...] = ()
    groups: tuple[Group, ...] = ()
    worst: tuple[WorstToken, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    like: LikeReport | None = None
    exit_code: int = 0
    run: Mapping[str, Any] = field(default_factory=dict, compare=False)
    drift: Mapping[str, Any] = field(default_factory=dict)
    audit: AuditResult | None = None
    histograms: Mapping[str, tuple[Bin, ...]] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """`ok`, or `findings` when a rule of level warning or error was hit."""
        return "findings" if any(one.severity != "info" for one in self.findings) else "ok"

    def with_exit_code(self, code: int) -> EvalReport:
        """Return the same report with another exit code."""
        return replace(self, exit_code=int(code))

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `-f json` prints; keys without content are left out."""
        from ppocli import __version__

        body = asdict(replace(self, audit=None, groups=()))
        # Of thousands of groups no deep copy is made.
        body["groups"] = tuple(_group_document(one) for one in self.groups)
        if self.audit is not None:
            body["audit"] = self.audit.to_dict()
            body["nulls"] |= {name: asdict(note) for name, note in self.audit.nulls().items()}
        run = body.pop("run")
        exit_code = body.pop("exit_code")
        head = {
            "schema_version": SCHEMA_VERSION,
            "tool": "ppocli",
            "version": __version__,
            "kind": "eval",
            "status": self.status,
            "exit_code": exit_code,
        }
        always = ("settings", "inputs", "skipped", "metrics", "nulls", "findings")
        kept = {key: value for key, value in body.items() if value or key in always}
        return {**head, **_without_none(kept), "run": run}


def _group_document(group: Group) -> dict[str, Any]:
    """Return the entry of a group."""
    nulls = {name: asdict(note) for name, note in group.nulls.items()}
    drift = dict(group.drift)
    if drift:
        drift["nulls"] = {name: asdict(note) for name, note in drift["nulls"].items()}
    return {
        "key": dict(group.key),
        "metrics": dict(group.metrics),
        "nulls": nulls,
        "drift": drift,
        "change": dict(group.change),
    }


def _without_none(body: dict[str, Any]) -> dict[str, Any]:
    """Drop absent fields of places and notes; a None in `metrics` or `settings` is a value and stays."""
    out: dict[str, Any] = {}
    for key, value in body.items():
        if key in ("metrics", "settings", "audit"):
            out[key] = value
        else:
            out[key] = pruned(value)
    return out


def pruned(value: Any) -> Any:
    """Drop optional fields that are None, empty `drift` and `change`, below `value`; `metrics` stay whole."""
    if isinstance(value, dict):
        optional = ("where", "nonfinite", "position", "token_id")
        return {
            key: (one if key == "metrics" else pruned(one))
            for key, one in value.items()
            if not (one is None and key in optional) and not (key in ("drift", "change") and not one)
        }
    if isinstance(value, (list, tuple)):
        return [pruned(one) for one in value]
    return value
