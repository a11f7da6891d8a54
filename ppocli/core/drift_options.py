"""What `drift` compares, and how: the options that its command line and its function share."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ppocli.core.roles import ROLES
from ppocli.core.rollout_rules import WeightRule
from ppocli.core.spec import LossSpec, choose
from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppocli.core.limits import Limit, LimitKind

DEFAULT_A, DEFAULT_B = "old_log_probs", "rollout_log_probs"
LOG_PROBS = tuple(name for name, role in ROLES.items() if role.kind == "log_prob")
COMPARABLE = tuple(name for name, role in ROLES.items() if role.kind in ("log_prob", "real"))
KEYS = ("sequence_id", "group_id", "step", "position", "token_id")
"""What tokens of two files can be matched by."""
BY = ("file", "total", "step")
PREFIX = "drift."
"""What limits of `check` begin with where they are on metrics of `drift`."""
DETAILS = ("auto", "full", "main")
CAPS = ("tis_cap", "mask_low", "mask_high")

FLOOR_METRICS = ("diff_abs_mean", "diff_abs_p99", "diff_abs_max", "drift_kl_k3")
"""What is compared with the noise floor."""

FULL_BYTES = 64 << 20
"""Up to this size of the input `detail` "auto" is "full"."""


@dataclass(frozen=True, slots=True)
class DriftCaps:
    """Bounds of truncated and of masked weights w = exp(a - b); None: not asked for.

    Attributes
    ----------
    tis_cap : float, optional
        Of min(w, tis_cap); positive.
    mask_low, mask_high : float, optional
        Weights outside of them count as 0; at least 0, and positive.

    Raises
    ------
    UsageProblem
        Not finite, out of range, or the lower bound above the upper.
    """

    tis_cap: float | None = None
    mask_low: float | None = None
    mask_high: float | None = None

    def __post_init__(self) -> None:
        for flag, value, above in (
            ("--tis-cap", self.tis_cap, True),
            ("--mask-low", self.mask_low, False),
            ("--mask-high", self.mask_high, True),
        ):
            if value is not None and not (0.0 <= value < math.inf and (value > 0.0 or not above)):
                least = "above 0" if above else "of at least 0"
                raise UsageProblem(f"{flag} is a finite number {least}, not {value:g}")
        if self.mask_low is not None and self.mask_high is not None and self.mask_low > self.mask_high:
            raise UsageProblem(f"--mask-low {self.mask_low:g} is above --mask-high {self.mask_high:g}")

    def rules(self) -> tuple[WeightRule, ...]:
        """Return the rules of the bounds that were given."""
        rules = []
        if self.tis_cap is not None:
            rules.append(WeightRule("token", cap=self.tis_cap))
        if self.mask_low is not None or self.mask_high is not None:
            rules.append(WeightRule("token", low=self.mask_low, cap=self.mask_high, mode="mask"))
        return tuple(rules)

    def given(self) -> dict[str, float]:
        """Return the bounds that were given, by name."""
        values = {name: getattr(self, name) for name in CAPS}
        return {name: value for name, value in values.items() if value is not None}


NO_CAPS = DriftCaps()


@dataclass(frozen=True, slots=True)
class DriftOptions:
    """What is compared, and how.

    Attributes
    ----------
    a, b : str, optional
        Roles. None: the trainer's and the sampler's log-probs, or the only ones that two files have.
    key : tuple of str
        What tokens of two files are matched by; empty: their position.
    roles : tuple of str
        Of two files: more roles to compare, each with itself.
    tis_cap, mask_low, mask_high : float, optional
        As in `DriftCaps`.
    detail : {"auto", "full", "main"}
        "full": also compare with `log_probs`, and say what corrections do to the policy loss, where the
        columns for it are there. That reads two more columns and takes about three times as long. "auto": up
        to `FULL_BYTES` of input.
    clip_low, clip_high : float
        The clip interval of that loss.
    floor : str, optional
        A saved report, or a file, of the trainer against itself.
    by : {"file", "total", "step"}
    worst : int
    limits : tuple of Limit
        What is judged, over all inputs; the metrics are those of `drift`, without "drift.".

    Raises
    ------
    UsageProblem
    """

    a: str | None = None
    b: str | None = None
    key: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    tis_cap: float | None = None
    mask_low: float | None = None
    mask_high: float | None = None
    detail: str = "auto"
    clip_low: float = 0.2
    clip_high: float = 0.2
    floor: str | None = None
    by: str = "file"
    worst: int = 0
    limits: tuple[Limit, ...] = ()

    def __post_init__(self) -> None:
        for flag, role in (("--a", self.a), ("--b", self.b)):
            if role is not None:
                choose(f"{flag}: role", role, LOG_PROBS)
        for key in self.key:
            choose("--key", key, KEYS)
        if {"position", "token_id"} <= set(self.key):
            raise UsageProblem("--key takes position or token_id, not both")
        for role in self.roles:
            choose("--roles: role", role, COMPARABLE)
        choose("--detail", self.detail, DETAILS)
        choose("--by", self.by, BY)
        if self.worst < 0:
            raise UsageProblem(f"--worst is a whole number of at least 0, not {self.worst}")
        self.caps  # noqa: B018 - makes them, and refuses wrong ones
        LossSpec(clip_low=self.clip_low, clip_high=self.clip_high)

    @property
    def caps(self) -> DriftCaps:
        """The bounds of weights."""
        return DriftCaps(self.tis_cap, self.mask_low, self.mask_high)

    def settings(self, *, full: bool) -> dict[str, Any]:
        """Return what changes a number, as it is echoed."""
        said: dict[str, Any] = {name: getattr(self, name) for name in CAPS}
        said["detail"] = "full" if full else "main"
        if full:
            said |= {"clip_low": self.clip_low, "clip_high": self.clip_high}
        if self.key:
            said["key"] = list(self.key)
        return said


def drift_limits(option: str, kind: LimitKind, pairs: Iterable[str]) -> list[Limit]:
    """Read limits on the metrics of `drift`, as `check` takes them: `diff_abs_p99=0.2`.

    Raises
    ------
    UsageProblem
        No metric of `drift`, a limit that is not finite, a metric given twice, or another form.
    """
    from ppocli.core.limits import limits_from

    named = [
        pair if pair.startswith(PREFIX) or not pair.partition("=")[0] else PREFIX + pair for pair in pairs
    ]
    return [replace(one, metric=one.metric.removeprefix(PREFIX)) for one in limits_from(option, kind, named)]


def words(text: str | None) -> tuple[str, ...]:
    """Return the words between commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip()) if text else ()
