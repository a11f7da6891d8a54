"""What each objective is, in words: for `explain`, and for the notes beside its clip fractions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


@dataclass(frozen=True, slots=True)
class ObjectiveText:
    """One objective.

    Attributes
    ----------
    formula : str
        The loss of a token, to be minimised.
    clipped : str
        What `clip_frac` counts under it.
    settings : tuple of str
        The settings that only it has, or that mean something else under it.
    source : str
    region : str
        The quantity that is bounded, for notes in tables; empty where nothing is.
    """

    formula: str
    clipped: str
    settings: tuple[str, ...]
    source: str
    region: str = ""


_NOTHING = "Nothing is clipped: clip fractions are 0"
_CLIP = ("clip_low", "clip_high")

OBJECTIVE_TEXTS: dict[str, ObjectiveText] = {
    "ppo": ObjectiveText(
        "-min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)",
        "Clipped: the ratio strictly outside the interval",
        (*_CLIP, "dual_clip", "delta", "log_ratio_clamp"),
        "Schulman et al. 2017, arXiv:1707.06347",
        "ratio",
    ),
    "is": ObjectiveText(
        "-ratio * A", _NOTHING, ("log_ratio_clamp",), "Schulman et al. 2015, arXiv:1502.05477"
    ),
    "reinforce": ObjectiveText("-A * log_probs", _NOTHING, (), "Williams 1992"),
    "gspo": ObjectiveText(
        "ppo with s = exp(mean log_ratio over the sequence) in place of the token's ratio",
        "Clipped: s strictly outside the interval; a token has its sequence's decision, its own advantage",
        (*_CLIP, "sequence_ratio", "log_ratio_ceiling", "dual_clip", "delta"),
        "Zheng et al. 2025, arXiv:2507.18071",
        "sequence ratio",
    ),
    "cispo": ObjectiveText(
        "-w * A * log_probs, the weight w = clip(ratio, cispo_low, cispo_high) a constant",
        "Clipped: the ratio strictly outside the bounds of the weight; no gradient is cut",
        ("cispo_low", "cispo_high", *_CLIP),
        "MiniMax 2025, arXiv:2506.13585",
        "ratio",
    ),
    "sapo": ObjectiveText(
        "-A * (4 / tau) * sigmoid(tau * (ratio - 1)), tau = sapo_tau_pos where A > 0, else sapo_tau_neg",
        "The gate is soft: clip fractions are 0",
        ("sapo_tau_pos", "sapo_tau_neg"),
        "Gao et al. 2025, arXiv:2511.20347",
    ),
    "gmpo": ObjectiveText(
        "-g * A, g = exp(mean over the sequence of log_ratio, bounded on the side that A pushes to)",
        "Clipped: log_ratio below -clip_low or above clip_high, token by token",
        _CLIP,
        "Zhao et al. 2025, arXiv:2507.20673",
        "log_ratio",
    ),
    "dppo-tv": ObjectiveText(
        "-ratio * A, 0 where exp(log_probs) - exp(old_log_probs) is beyond its bound on the side A pushes to",
        "Clipped: the difference of the probabilities below -clip_low or above clip_high",
        (*_CLIP, "dppo_weight_cap"),
        "Qi et al. 2026, arXiv:2602.04879",
        "probability difference",
    ),
    "dppo-kl": ObjectiveText(
        "-ratio * A, 0 where the binary KL of the probability is beyond its bound on the side A pushes to",
        "Clipped: the KL above clip_low where the probability fell, above clip_high where it rose",
        (*_CLIP, "dppo_weight_cap", "dppo_kl_eps"),
        "Qi et al. 2026, arXiv:2602.04879",
        "binary KL",
    ),
    "dro": ObjectiveText(
        "-A * log_probs + dro_beta / 2 * log_ratio^2",
        _NOTHING,
        ("dro_beta",),
        "Richemond et al. 2024, arXiv:2405.19107",
    ),
    "vespo": ObjectiveText(
        "-phi * A * log_probs, the constant phi = w^k * exp(lambda * (1 - w)), w = exp(sum log_ratio)",
        _NOTHING,
        ("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"),
        "Shen et al. 2026, arXiv:2602.10693",
    ),
    "decoupled": ObjectiveText(
        "ppo against old_log_probs, times the constant exp(old_log_probs - rollout_log_probs)",
        "Clipped: the ratio strictly outside the interval",
        (*_CLIP, "rollout_is_cap", "dual_clip"),
        "Hilton et al. 2021, arXiv:2110.00641",
        "ratio",
    ),
}
"""Every objective by name."""


def bounds_of(settings: Mapping[str, Any]) -> tuple[float, float]:
    """Return the two bounds that an objective compares its quantity with."""
    objective, low, high = settings["objective"], settings["clip_low"], settings["clip_high"]
    if objective == "cispo":
        ends = settings["cispo_low"], settings["cispo_high"]
        return 1.0 - low if ends[0] is None else ends[0], 1.0 + high if ends[1] is None else ends[1]
    if objective in ("gmpo", "dppo-tv", "dppo-kl"):
        return -low, high
    return 1.0 - low, 1.0 + high


def clip_ends(settings: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the clip interval as bounds on log_ratio; None on a side without one.

    Where the objective bounds the ratio of a sequence, they are bounds on the mean log_ratio of a sequence.
    """
    region = OBJECTIVE_TEXTS[settings["objective"]].region
    low, high = bounds_of(settings)
    if region == "log_ratio":
        return low, high
    if region not in ("ratio", "sequence ratio"):
        return None, None
    return _log_or_none(low), _log_or_none(high)


def _log_or_none(bound: float) -> float | None:
    """Return the logarithm of a bound that a ratio can reach."""
    return math.log(bound) if 0.0 < bound < math.inf else None
