"""rl_games 1.6.5: `rl_games.common.common_losses` and the agents that call it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ppocli.core.measures import PresetMetric, measure
from ppocli.core.presets import Preset
from ppocli.core.presets.common import PADDING, coefficients, explained, over_padding, variances

if TYPE_CHECKING:
    from ppocli.core.spec import LossSpec

POLICY = measure("loss", "token-sum")
SMOOTH = measure("smooth_loss", "token-sum")
VALUE = measure("value_error", "token-sum")
ENTROPY = measure("column", "token-sum", role="entropy")


def total(spec: LossSpec, policy: float, value: float, entropy: float, valid: float, masked: float) -> float:
    """Return a_loss + critic_coef * c_loss / 2 - entropy_coef * entropy."""
    vf_coef, ent_coef = coefficients(spec, 1.0, 0.0)
    return over_padding(spec, policy + 0.5 * vf_coef * value - ent_coef * entropy, valid, masked)


ACTOR = PresetMetric(
    "losses/a_loss",
    "clipped surrogate of the normalised advantages; sum over valid steps / all steps, padding included",
    (POLICY, *PADDING),
    over_padding,
    kind="loss",
)
TOTAL = PresetMetric(
    "loss",
    "a_loss + critic_coef * c_loss / 2 - entropy_coef * entropy, without bounds_loss; 1 and 0 unless given",
    (POLICY, VALUE, ENTROPY, *PADDING),
    total,
)
RL_GAMES = Preset(
    name="rl-games",
    title="rl_games",
    version="1.6.5",
    spec={
        "adv_norm": "batch",
        "adv_norm_ddof": 1,
        "adv_norm_eps": 1e-8,
        "adv_norm_degenerate": "formula",
        "value_clip": 0.2,
    },
    metrics=(
        ACTOR,
        PresetMetric(
            "diagnostics/clip_frac",
            "ratio outside [1 - e_clip, 1 + e_clip]; mean",
            (measure("clip", kind="region"),),
            kind="clip fraction",
        ),
        PresetMetric(
            "info/kl",
            "k2, as for discrete actions; sum over valid steps / all steps, padding included",
            (measure("kl", "token-sum", estimator="k2"), *PADDING),
            over_padding,
            kind="approx KL",
        ),
        PresetMetric(
            "losses/c_loss",
            "larger of the plain and the clipped square, no factor; sum over valid steps / all steps",
            (VALUE, *PADDING),
            over_padding,
            kind="value loss",
        ),
        PresetMetric("losses/entropy", "sum over valid steps / all steps", (ENTROPY, *PADDING), over_padding),
        TOTAL,
        PresetMetric(
            "diagnostics/exp_var",
            "1 - var(returns - stored values) / var(returns), without a mask",
            variances("old_values", over="stored"),
            explained,
        ),
    ),
    tied={"value_clip": "clip_high"},
    spoils=("losses/a_loss", "losses/c_loss", "losses/entropy", "info/kl", "loss"),
    notes=(
        "old_logp_actions and neglogp of rl_games hold negated log-probs: negate them first",
        "for continuous actions info/kl is exact, KL(new || old) of Gaussians: log-probs do not hold it",
        "under a mask rl_games divides clip_frac by the batch size once more, and in exp_var by the "
        "variance of the values; here they are what is meant",
        "clip_value=False is value_clip=None; values are clipped by e_clip, as the ratio is",
    ),
)
SMOOTHED = replace(
    RL_GAMES,
    name="rl-games:smooth",
    metrics=(
        replace(
            ACTOR,
            text="surrogate with a sigmoid for the clip (use_smooth_clamp); sum over valid steps / all steps",
            measures=(SMOOTH, *PADDING),
        ),
        *RL_GAMES.metrics[1:5],
        replace(TOTAL, measures=(SMOOTH, *TOTAL.measures[1:])),
        RL_GAMES.metrics[6],
    ),
    notes=("policy_loss of ppocli itself keeps the hard clip", *RL_GAMES.notes),
)

PRESETS = {one.name: one for one in (RL_GAMES, SMOOTHED)}
