"""Settings that belong to some objectives only: given with another one, they would change nothing."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Collection

    from ppocli.core.spec import LossSpec

_CLIPPED, _DPPO = ("ppo", "gspo", "decoupled"), ("dppo-tv", "dppo-kl")
_FLAGS = ("dual_clip", "delta")

OBJECTIVES_OF: dict[str, tuple[str, ...]] = {
    "dual_clip": _CLIPPED,
    "delta": _CLIPPED,
    "log_ratio_ceiling": ("gspo",),
    "sequence_ratio": ("gspo",),
    "ratio_eps": ("gspo",),
    "gspo_token_gradient": ("gspo",),
    "cispo_low": ("cispo",),
    "cispo_high": ("cispo",),
    "cispo_masked": ("cispo",),
    "ratio_level": ("cispo", "sapo"),
    "sapo_tau_pos": ("sapo",),
    "sapo_tau_neg": ("sapo",),
    "dppo_weight_cap": _DPPO,
    "dppo_two_sided": _DPPO,
    "dppo_kl_eps": _DPPO,  # frameworks give it to both; it is the divergence of dppo-kl that has it
    "dro_beta": ("dro",),
    "vespo_k_pos": ("vespo",),
    "vespo_lambda_pos": ("vespo",),
    "vespo_k_neg": ("vespo",),
    "vespo_lambda_neg": ("vespo",),
    "vespo_log_low": ("vespo",),
    "vespo_log_high": ("vespo",),
    "vespo_rollout_is": ("vespo",),
}
"""The objectives that use a setting; those that are not listed here go with every objective."""

OF_FRAMEWORKS = ("sequence_ratio", "ratio_level")
"""Settings that a framework's own metrics may depend on under any objective."""


def check_given(given: Collection[str], spec: LossSpec, *, like: bool) -> None:
    """Refuse settings that the objective does not use.

    Parameters
    ----------
    given : collection of str
        The settings given by hand; what a framework sets is its own business.
    spec : LossSpec
        The loss that they are part of.
    like : bool
        A framework's metrics are computed, too.

    Raises
    ------
    UsageProblem
    """
    for one in fields(spec):
        used = OBJECTIVES_OF.get(one.name)
        if used is None or one.name not in given or (like and one.name in OF_FRAMEWORKS):
            continue
        if spec.objective not in used and getattr(spec, one.name) != one.default:
            name = f"--{one.name.replace('_', '-')}" if one.name in _FLAGS else one.name
            raise UsageProblem(
                f"{name} is a setting of {', '.join(used)}, and changes nothing under {spec.objective}",
                hint=f"leave it out, or ask for --objective {used[0]}",
            )
