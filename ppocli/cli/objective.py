"""The options that define the loss, and the `LossSpec` they are turned into."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Annotated, Any

from ppocli.cli.declare import OBJECTIVE, real_option, whole_option, word_option
from ppocli.core.own_settings import check_given
from ppocli.core.spec import ADV_NORM_FORMS, AGGREGATIONS, OBJECTIVES, LossSpec, choose
from ppocli.errors import UsageProblem

_NOT_SETTINGS = ("like", "clip_eps", "set_")


@dataclass(frozen=True, slots=True)
class ObjectiveOptions:
    """The definition of the loss. What is None was not given: the default, or what `--like` says, holds."""

    like: Annotated[
        str | None,
        word_option(
            OBJECTIVE,
            "--like",
            metavar="NAME",
            text="Loss and metrics of a framework, under its own names: verl, trl:dapo, sb3, ... "
            "Other options override its settings.",
        ),
    ] = None
    objective: Annotated[
        str | None,
        word_option(
            OBJECTIVE,
            "--objective",
            metavar="NAME",
            text=f"The objective: {', '.join(OBJECTIVES)}. Default ppo.",
        ),
    ] = None
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
    rollout_is: Annotated[
        str | None,
        word_option(
            OBJECTIVE,
            "--rollout-is",
            metavar="token|sequence|geometric",
            text="Multiply each loss by exp(old_log_probs - rollout_log_probs): the token's, the product "
            "over its sequence, or its geometric mean.",
        ),
    ] = None
    rollout_is_cap: Annotated[
        float | None, real_option(OBJECTIVE, "--rollout-is-cap", "That weight is at most X.")
    ] = None
    rollout_rs: Annotated[
        list[str] | None,
        word_option(
            OBJECTIVE,
            "--rollout-rs",
            metavar="MODE:BOUNDS",
            text="Drop tokens or sequences where the two policies differ too much, for example "
            "token_k1:0.5_2, seq_mean_k3:0.01 or veto:1e-4. Repeatable.",
        ),
    ] = None
    agg: Annotated[
        str | None,
        word_option(
            OBJECTIVE,
            "--agg",
            metavar="NAME",
            text=f"Which aggregation policy_loss is: {', '.join(AGGREGATIONS)}. Default token-mean. "
            "All are reported.",
        ),
    ] = None
    horizon: Annotated[
        int | None,
        whole_option(
            OBJECTIVE,
            "--horizon",
            "Divisor of seq-mean-token-sum-norm. Default: the largest stored length.",
        ),
    ] = None
    adv_norm: Annotated[
        str | None,
        word_option(
            OBJECTIVE,
            "--adv-norm",
            metavar="none|batch|minibatch:N|group",
            text="Normalise the advantages over the whole input, over every N stored rows, or over each "
            "group. Default none.",
        ),
    ] = None
    adv_norm_unit: Annotated[
        str | None,
        word_option(
            OBJECTIVE,
            "--adv-norm-unit",
            metavar="token|sequence",
            text="Statistics over tokens (default), or over sequences by their mean advantage.",
        ),
    ] = None
    adv_norm_ddof: Annotated[
        int | None,
        whole_option(
            OBJECTIVE, "--adv-norm-ddof", "0 or 1: the standard deviation divides by n - N. Default 0."
        ),
    ] = None
    adv_norm_eps: Annotated[
        float | None,
        real_option(OBJECTIVE, "--adv-norm-eps", "Guard against division by zero. Default 1e-8."),
    ] = None
    adv_norm_form: Annotated[
        str | None,
        word_option(
            OBJECTIVE,
            "--adv-norm-form",
            metavar="|".join(ADV_NORM_FORMS),
            text="Divide by std + eps (add, default), max(std, eps) or sqrt(std^2 + eps).",
        ),
    ] = None
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
    set_: Annotated[
        list[str] | None,
        word_option(
            OBJECTIVE,
            "--set",
            metavar="NAME=VALUE",
            text="Any other setting of the loss, for example sapo_tau_neg=1.05 (ppocli explain --list names "
            "them). Repeatable.",
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Return what was given; `--clip-low` and `--clip-high` win over `--clip-eps`, options over `--set`.

        Raises
        ------
        UsageProblem
            A name or a value that cannot be read.
        """
        if self.clip_eps is not None and not 0.0 <= self.clip_eps <= 1.0:
            raise UsageProblem(f"--clip-eps is a number between 0 and 1, not {self.clip_eps:g}")
        given = dict(_setting(text) for text in self.set_ or ())
        if self.clip_eps is not None:
            given |= {"clip_low": self.clip_eps, "clip_high": self.clip_eps}
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name not in _NOT_SETTINGS and value is not None:
                given[one.name] = tuple(value) if one.name == "rollout_rs" else value
        return given

    def loss_spec(self) -> LossSpec:
        """Return the loss.

        Raises
        ------
        UsageProblem
            A value outside its range, a setting of another objective, or a framework that is not known.
        """
        given = self.settings()
        if self.like is None:
            spec = LossSpec(**given)
        else:
            from ppocli.core.presets import preset

            spec = preset(self.like).loss_spec(given)
        check_given(given, spec, like=self.like is not None)
        return spec


def _setting(text: str) -> tuple[str, Any]:
    """Return the name and the value of NAME=VALUE, by the type of the setting."""
    name, equals, value = text.partition("=")
    kinds = {one.name: str(one.type) for one in fields(LossSpec)}
    choose("--set", name, kinds)
    if not equals:
        raise UsageProblem(f"--set {name} needs a value", hint=f"--set {name}=VALUE")
    kind = kinds[name]
    if value == "none" and kind.endswith("None"):
        return name, None
    if kind.startswith("tuple"):
        return name, tuple(part for part in value.split(",") if part)
    if kind.startswith("bool"):
        return name, {"true": True, "false": False}.get(value, value)
    if kind.startswith("str"):
        return name, value
    try:
        number = float(value)
    except ValueError:
        raise UsageProblem(f"--set {name}: '{value}' is not a number") from None
    return name, int(number) if kind.startswith("int") and math.isfinite(
        number
    ) and number % 1 == 0 else number
