"""What an audit is asked for: every choice that changes one of its numbers or verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ppocli.core.precision import PRECISIONS
from ppocli.core.spec import LossSpec, choose
from ppocli.errors import UsageProblem

DEFAULT_FORMATS = ("float32", "bfloat16", "float16")

ACCUMULATIONS: dict[str, str] = {
    "float32": "float32, eight lanes in each run of 256 tokens, runs one after the other",
    "same": "the format itself, one token after the other",
    "pairwise": "float32, eight lanes in each run of 256 tokens, runs in a binary tree",
    "compensated": "float32 with the rounding errors carried along: the exact sum, rounded to float32",
}
"""How the token losses of the arithmetic question are added up."""

VERDICTS = ("ok", "warning", "error")
FAIL_ON = ("never", "warning", "error")


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The settings of an audit.

    Attributes
    ----------
    formats : tuple of str
        Names of `PRECISIONS`, in the order in which they are reported.
    accumulate : str
        One of `ACCUMULATIONS`.
    loss_tolerance : float
        Largest error of policy_loss that is all right, over the mean |token loss|; positive.
    fail_on : {"never", "warning", "error"}
        From which verdict on the exit code is 1.
    with_advantages : bool
        The advantages are stored in the format as well.

    Raises
    ------
    UsageProblem
        No format, one that is not known or is named twice, a tolerance that is not positive and finite.
    """

    formats: tuple[str, ...] = DEFAULT_FORMATS
    accumulate: str = "float32"
    loss_tolerance: float = 1e-3
    fail_on: str = "never"
    with_advantages: bool = False

    def __post_init__(self) -> None:
        if not self.formats:
            raise UsageProblem("--formats names no format", hint=f"some of: {', '.join(PRECISIONS)}")
        for name in self.formats:
            choose("--formats: format", name, PRECISIONS)
            if self.formats.count(name) > 1:
                raise UsageProblem(f"--formats names {name} twice")
        choose("--accumulate", self.accumulate, ACCUMULATIONS)
        choose("--fail-on", self.fail_on, FAIL_ON)
        if not 0.0 < self.loss_tolerance < math.inf:
            raise UsageProblem(f"--loss-tolerance is a positive number, not {self.loss_tolerance:g}")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings by name, as they are echoed in `settings`."""
        return {
            "formats": list(self.formats),
            "accumulate": self.accumulate,
            "loss_tolerance": self.loss_tolerance,
            "fail_on": self.fail_on,
            "with_advantages": self.with_advantages,
        }


def check_audited(spec: LossSpec, *, token_mean: bool = False) -> None:
    """Refuse a loss that an audit cannot recompute: any that the compiled kernels do not compute.

    Parameters
    ----------
    token_mean : bool
        Also refuse every aggregation but the token mean.

    Raises
    ------
    UsageProblem
        Names the setting.
    """
    scope = f"--adv-norm {spec.adv_norm}"
    if spec.adv_norm == "batch":
        scope = f"--adv-norm-unit {spec.adv_norm_unit}"
    for other, option in (
        (spec.objective != "ppo", f"--objective {spec.objective}"),
        (spec.rollout_is != "none", f"--rollout-is {spec.rollout_is}"),
        (bool(spec.rollout_rs), f"--rollout-rs {' '.join(spec.rollout_rs)}"),
        (spec.off_policy_threshold is not None, f"--set off_policy_threshold={spec.off_policy_threshold}"),
        (spec.adv_level != "token", f"--set adv_level={spec.adv_level}"),
        (spec.scoped, scope),
    ):
        if other:
            raise UsageProblem(
                f"{option} cannot be audited: an audit recomputes the objective ppo, without corrections, "
                "with advantages as stored or normalised over the whole input",
                hint="make no audit, or leave out the option, or the --like that sets it",
            )
    assert spec.in_kernels
    if token_mean and spec.agg != "token-mean":
        raise UsageProblem(
            f"--agg {spec.agg}: an audit compares the token mean of the loss", hint="--agg token-mean"
        )


def formats_of(text: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names in a list separated by commas, or those of a sequence."""
    parts = text.split(",") if isinstance(text, str) else text
    return tuple(name for part in parts if (name := part.strip()))
