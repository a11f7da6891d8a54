"""The options that define the loss, and the `LossSpec` they are turned into."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

from ppocli.cli.declare import OBJECTIVE, real_option, whole_option, word_option
from ppocli.core.spec import ADV_NORM_FORMS, ADV_NORMS, AGGREGATIONS, LossSpec
from ppocli.errors import UsageProblem


@dataclass(frozen=True, slots=True)
class ObjectiveOptions:
    """The definition of the loss."""

    objective: Annotated[
        str, word_option(OBJECTIVE, "--objective", metavar="NAME", text="The objective: ppo (default).")
    ] = "ppo"
    clip_eps: Annotated[
        float | None,
        real_option(OBJECTIVE, "--clip-eps", "Clip the ratio to [1 - X, 1 + X]. Default 0.2."),
    ] = None
    clip_low: Annotated[
        float | None, real_option(OBJECTIVE, "--clip-low", "Lower end 1 - X; overrides --clip-eps.")
    ] = None
    clip_high: Annotated[
        float | None, real_option(OBJECTIVE, "--clip-high", "Upper end 1 + X; overrides --clip-eps.")
    ] = None
    dual_clip: Annotated[
        float | None,
        real_option(
            OBJECTIVE,
            "--dual-clip",
            "Where the advantage is negative, the loss of a token is at most C * |advantage|; C > 1.",
            "C",
        ),
    ] = None
    delta: Annotated[
        float | None,
        real_option(
            OBJECTIVE, "--delta", "Upper bound on the ratio of the unclipped branch; above 1 + clip-high."
        ),
    ] = None
    log_ratio_clamp: Annotated[
        float | None,
        real_option(
            OBJECTIVE,
            "--log-ratio-clamp",
            "Clamp log_ratio to +-X nats before exp, for ratios, losses and clip fractions only.",
        ),
    ] = None
    agg: Annotated[
        str,
        word_option(
            OBJECTIVE,
            "--agg",
            metavar="NAME",
            text=f"Which aggregation policy_loss is: {', '.join(AGGREGATIONS)}. Default token-mean. "
            "All are reported.",
        ),
    ] = "token-mean"
    horizon: Annotated[
        int | None,
        whole_option(
            OBJECTIVE,
            "--horizon",
            "Divisor of seq-mean-token-sum-norm. Default: the largest stored length.",
        ),
    ] = None
    adv_norm: Annotated[
        str,
        word_option(
            OBJECTIVE,
            "--adv-norm",
            metavar="|".join(ADV_NORMS),
            text="batch: normalise the advantages over the valid tokens of the whole input. Default none.",
        ),
    ] = "none"
    adv_norm_ddof: Annotated[
        int,
        whole_option(
            OBJECTIVE, "--adv-norm-ddof", "0 or 1: the standard deviation divides by n - N. Default 0."
        ),
    ] = 0
    adv_norm_eps: Annotated[
        float, real_option(OBJECTIVE, "--adv-norm-eps", "Guard against division by zero. Default 1e-8.")
    ] = 1e-8
    adv_norm_form: Annotated[
        str,
        word_option(
            OBJECTIVE,
            "--adv-norm-form",
            metavar="|".join(ADV_NORM_FORMS),
            text="Divide by std + eps (add, default), max(std, eps) or sqrt(std^2 + eps).",
        ),
    ] = "add"
    micro_batch: Annotated[
        int | None,
        whole_option(
            OBJECTIVE,
            "--micro-batch",
            "Also report the mean over micro-batches of N rows of their mean, as trainers log it.",
        ),
    ] = None
    value_clip: Annotated[
        float | None,
        real_option(
            OBJECTIVE,
            "--value-clip",
            "Value loss: the larger of the plain square and the one with values kept within X of old_values.",
        ),
    ] = None
    vf_coef: Annotated[
        float | None, real_option(OBJECTIVE, "--vf-coef", "Weight of value_loss in total_loss. Default 0.5.")
    ] = None
    ent_coef: Annotated[
        float | None, real_option(OBJECTIVE, "--ent-coef", "Weight of entropy_mean in total_loss. Default 0.")
    ] = None
    kl_coef: Annotated[
        float | None, real_option(OBJECTIVE, "--kl-coef", "Weight of ref_kl_k3 in total_loss. Default 0.")
    ] = None

    def loss_spec(self) -> LossSpec:
        """Return the loss; `--clip-low` and `--clip-high` win over `--clip-eps`.

        Raises
        ------
        UsageProblem
            A value outside its range.
        """
        if self.clip_eps is not None and not 0.0 <= self.clip_eps <= 1.0:
            raise UsageProblem(f"--clip-eps is a number between 0 and 1, not {self.clip_eps:g}")
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "clip_eps"}
        for end in ("clip_low", "clip_high"):
            if values[end] is None:
                values[end] = self.clip_eps
            if values[end] is None:
                del values[end]
        return LossSpec(**values)
