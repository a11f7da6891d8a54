"""`LossSpec`: every choice that changes a number. One value drives the kernels, the report and `explain`."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ppocli.errors import UsageProblem

if TYPE_CHECKING:
    from ppocli.core.rollout_rules import RejectionRule, WeightRule

AGGREGATIONS = (
    "token-mean",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
    "token-sum",
    "group-mean",
)
ADV_NORMS = ("none", "batch", "minibatch", "group")
"""What the advantages are normalised over; "minibatch" goes with a number of rows, as "minibatch:256"."""

ADV_NORM_UNITS = ("token", "sequence")
ADV_NORM_FORMS = ("add", "max", "var")
ADV_NORM_DEGENERATE = ("keep", "formula")
VALUE_ERRORS = ("square", "abs", "huber", "smooth-l1")
OBJECTIVES = (
    "ppo",
    "is",
    "reinforce",
    "gspo",
    "cispo",
    "sapo",
    "gmpo",
    "dppo-tv",
    "dppo-kl",
    "dro",
    "vespo",
    "decoupled",
)
SEQUENCE_OBJECTIVES = ("gspo", "gmpo", "vespo")
"""Those in which a token's loss depends on its whole sequence."""

SEQUENCE_RATIOS = ("geometric", "product")
ANCHORS = ("old", "rollout")
ROLLOUT_IS = ("none", "token", "sequence", "geometric")
REJECTION_MODES = ("drop", "zero", "clamp")
RATIO_LEVELS = ("token", "sequence")
REF_KLS = ("k1", "k2", "k3", "abs", "ratio-k1")


@dataclass(frozen=True, slots=True)
class LossSpec:
    """The definition of the loss and of its companions.

    Attributes
    ----------
    objective : str
        One of `OBJECTIVES`; the formulas are in `core.token_objectives` and `core.sequence_objectives`.
    clip_low, clip_high : float
        The ratio is clipped to [1 - clip_low, 1 + clip_high]; 0 <= clip_low <= 1, clip_high >= 0. They bound
        the logarithm of the ratio in gmpo, the difference of the probabilities in dppo-tv, the divergence in
        dppo-kl.
    dual_clip : float, optional
        c > 1: where the advantage is negative, a token's loss is at most -c * advantage.
    delta : float, optional
        Upper bound on the ratio of the unclipped branch; greater than 1 + clip_high.
    log_ratio_clamp : float, optional
        Ratios, losses and clip fractions use log_ratio clamped to plus or minus this; KLs and overflow do
        not. In gspo it holds the sequence's.
    log_ratio_ceiling : float, optional
        gspo: the logarithm of a sequence's ratio is at most this (verl and SkyRL: 10); positive.
    cispo_low, cispo_high : float, optional
        Absolute bounds of the ratio, 0 <= cispo_low <= cispo_high. None: 1 - clip_low and 1 + clip_high.
        TRL bounds from above only: cispo_low = 0.
    cispo_masked : bool
        cispo: tokens clipped on the side that A pushes to are dropped (ROLL: cispo_use_unified_mask).
    sapo_tau_pos, sapo_tau_neg : float
        Temperatures of the gate for A > 0 and for all others; positive.
    sequence_ratio : {"geometric", "product"}
        gspo: exp(mean log_ratio) or exp(sum log_ratio).
    ratio_level : {"token", "sequence"}
        cispo, sapo: the ratio is the token's, or its sequence's geometric mean (TRL, Liger).
    ratio_eps : float
        gspo: added to a sequence's number of tokens in its geometric mean; at least 0, 1e-8 in NeMo-RL.
    gspo_token_gradient : bool
        gspo: each token keeps the gradient of its own loss (GSPO-token) instead of the sequence's mean.
    dppo_weight_cap : float, optional
        c > 0: the loss is -min(ratio, c) A log_probs, the weight a constant (verl). None: -ratio A.
    dppo_two_sided : bool
        A token outside the trust region is dropped whatever the sign of A (ipo of prime-rl).
    dppo_kl_eps : float
        Added to 1 - p on both sides of the binary KL; at least 0, 1e-8 in verl and SkyRL.
    dro_beta : float
        Weight of the quadratic penalty, at least 0.
    vespo_k_pos, vespo_lambda_pos, vespo_k_neg, vespo_lambda_neg : float
        Exponents of the weight for A >= 0 and for A < 0: k at least 0, lambda positive. The defaults are
        TRL's.
    vespo_log_low, vespo_log_high : float, optional
        Bounds of the logarithm of the sequence's ratio w; TRL: log 1e-8 and 20.
    vespo_rollout_is : bool
        vespo: the importance weight against the rollout policy multiplies w, not the loss (TRL).
    off_policy_threshold : float, optional
        A token with A < 0 has loss 0 where the mean of anchor - log_probs over its sequence is above this,
        nats (TRL's off_policy_mask_threshold, slime's opsm_delta).
    off_policy_anchor : {"old", "rollout"}
        That anchor: old_log_probs, or rollout_log_probs.
    rollout_is : {"none", "token", "sequence", "geometric"}
        Each token's loss is multiplied by the importance weight exp(old_log_probs - rollout_log_probs) of
        this level (`core.rollout_rules.WeightRule`).
    rollout_is_cap, rollout_is_low : float, optional
        Bounds of that weight. None: no bound.
    rollout_is_mode : {"truncate", "mask"}
        A weight outside the bounds is held at the bound, or 0.
    rollout_is_clamp : float, optional
        The logarithm of the weight, and the log-ratio in rules, is held within plus or minus this; 20 in
        verl.
    rollout_rs : tuple of str
        Rules that tokens must satisfy (`core.rollout_rules.parse_rejection`).
    rollout_rs_mode : {"drop", "zero", "clamp"}
        What happens to a token that a rule does not allow. "drop": it is left out, as if it were masked.
        "zero": its loss is 0 and it still counts. "clamp": its weight is held within the bounds of
        `rollout_is`, which then do not concern the other tokens.
    rollout_rs_prob_clamp : float
        binary_kl in a rule: probabilities are held this far from 0 and 1; 1e-6 in OpenRLHF.
    rollout_bypass : bool
        `old_log_probs` are those of the rollout policy: weights and rules compare `log_probs` with them, and
        `rollout_log_probs` are not needed.
    agg : str
        Which aggregation `policy_loss` is; one of `AGGREGATIONS`.
    horizon : int, optional
        Divisor of "seq-mean-token-sum-norm". None: the largest stored length.
    denominator : float, optional
        Divisor of a preset's loss instead of the number of tokens or sequences; positive.
    loss_scale : float
        Multiplies a preset's loss.
    count_empty : bool
        A preset's means over sequences also count those without a valid token, as 0.
    mean_eps : float
        Added to the number of tokens in the means of a preset; at least 0.
    seq_eps : float
        Added to a sequence's number of tokens in the means of a preset; at least 0.
    adv_level : {"token", "sequence"}
        "sequence": each token has the mean advantage of its sequence.
    adv_norm : {"none", "batch", "minibatch:N", "group"}
        (A - mean) / (std + eps), with the statistics of the whole input, of every N stored rows, or of each
        (step, group_id). A scope of one value is left as it is.
    adv_norm_unit : {"token", "sequence"}
        Statistics over valid tokens, or over sequences by their mean advantage.
    adv_norm_ddof : {0, 1}
        Standard deviations of the advantages divide by n - ddof.
    adv_norm_eps : float
        Guards the division by that standard deviation; at least 0.
    adv_norm_form : {"add", "max", "var"}
        (A - m)/(s + eps), (A - m)/max(s, eps), (A - m)/sqrt(s^2 + eps).
    adv_norm_degenerate : {"keep", "formula"}
        A single advantage, or advantages that do not vary with eps 0. "keep": left as it is; only centred.
        "formula": what the formula gives, NaN where it divides by 0 or by the ddof 1 deviation of one value.
    value_error : {"square", "abs", "huber", "smooth-l1"}
        Of a preset's value loss (`value_loss` is always the square): e^2; |e|; e^2 / 2 where |e| < d, else
        d (|e| - d / 2), with d = value_error_delta; that divided by d.
    value_error_delta : float
        Positive.
    value_error_cap : float, optional
        The error of a value is at most this in a preset's value loss (RLlib's vf_clip_param); positive.
    value_clip : float, optional
        The value loss takes the larger of the plain and the clipped square.
    vf_coef, ent_coef, kl_coef : float, optional
        Coefficients of `total_loss`. None: the defaults 0.5, 0, 0 for the terms whose columns exist.
    ref_kl : {"k1", "k2", "k3", "abs", "ratio-k1"}
        The estimate of KL(new || ref) that a preset's loss is penalised with: x = log_probs - ref_log_probs,
        x^2 / 2, expm1(-x) + x, |x|, or ratio * x (estimator 3 of open-instruct).
    ref_kl_clamp, ref_kl_cap : float, optional
        x is held within plus or minus the one, the estimate within plus or minus the other; positive.
    ref_kl_ratio : bool
        The estimate is multiplied by the ratio of the objective (TRL: use_bias_correction_kl).
    log_ratio_penalty : float
        Coefficient of log_ratio^2 in a preset's loss; at least 0 (prime-rl: kl_tau).
    micro_batch : int, optional
        Also report the mean over micro-batches of this many stored rows of their means.

    Raises
    ------
    UsageProblem
        A value outside the ranges above.
    """

    objective: str = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    delta: float | None = None
    log_ratio_clamp: float | None = None
    log_ratio_ceiling: float | None = None
    cispo_low: float | None = None
    cispo_high: float | None = None
    cispo_masked: bool = False
    sapo_tau_pos: float = 1.0
    sapo_tau_neg: float = 1.05
    sequence_ratio: str = "geometric"
    ratio_level: str = "token"
    ratio_eps: float = 0.0
    gspo_token_gradient: bool = False
    dppo_weight_cap: float | None = None
    dppo_two_sided: bool = False
    dppo_kl_eps: float = 0.0
    dro_beta: float = 0.05
    vespo_k_pos: float = 2.0
    vespo_lambda_pos: float = 3.0
    vespo_k_neg: float = 3.0
    vespo_lambda_neg: float = 2.0
    vespo_log_low: float | None = None
    vespo_log_high: float | None = None
    vespo_rollout_is: bool = False
    off_policy_threshold: float | None = None
    off_policy_anchor: str = "old"
    rollout_is: str = "none"
    rollout_is_cap: float | None = None
    rollout_is_low: float | None = None
    rollout_is_mode: str = "truncate"
    rollout_is_clamp: float | None = None
    rollout_rs: tuple[str, ...] = ()
    rollout_rs_mode: str = "drop"
    rollout_rs_prob_clamp: float = 0.0
    rollout_bypass: bool = False
    agg: str = "token-mean"
    horizon: int | None = None
    denominator: float | None = None
    loss_scale: float = 1.0
    count_empty: bool = False
    mean_eps: float = 0.0
    seq_eps: float = 0.0
    adv_level: str = "token"
    adv_norm: str = "none"
    adv_norm_unit: str = "token"
    adv_norm_ddof: int = 0
    adv_norm_eps: float = 1e-8
    adv_norm_form: str = "add"
    adv_norm_degenerate: str = "keep"
    value_error: str = "square"
    value_error_delta: float = 1.0
    value_error_cap: float | None = None
    value_clip: float | None = None
    vf_coef: float | None = None
    ent_coef: float | None = None
    kl_coef: float | None = None
    ref_kl: str = "k3"
    ref_kl_clamp: float | None = None
    ref_kl_cap: float | None = None
    ref_kl_ratio: bool = False
    log_ratio_penalty: float = 0.0
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, _typed(one.name, str(one.type), getattr(self, one.name)))
        choose("--objective", self.objective, OBJECTIVES)
        choose("sequence_ratio", self.sequence_ratio, SEQUENCE_RATIOS)
        choose("ratio_level", self.ratio_level, RATIO_LEVELS)
        choose("off_policy_anchor", self.off_policy_anchor, ANCHORS)
        choose("adv_level", self.adv_level, RATIO_LEVELS)
        choose("ref_kl", self.ref_kl, REF_KLS)
        choose("--agg", self.agg, AGGREGATIONS)
        choose("--adv-norm", self.adv_norm.partition(":")[0], ADV_NORMS)
        choose("--adv-norm-unit", self.adv_norm_unit, ADV_NORM_UNITS)
        if self.adv_norm.partition(":")[0] == "minibatch" or ":" in self.adv_norm:
            _check_minibatch(self.adv_norm)
        choose("--adv-norm-form", self.adv_norm_form, ADV_NORM_FORMS)
        choose("adv_norm_degenerate", self.adv_norm_degenerate, ADV_NORM_DEGENERATE)
        choose("value_error", self.value_error, VALUE_ERRORS)
        _within("--clip-low", self.clip_low, 0.0, 1.0)
        _within("--clip-high", self.clip_high, 0.0, math.inf)
        if self.dual_clip is not None and not 1.0 < self.dual_clip < math.inf:
            raise UsageProblem(
                f"--dual-clip is a bound on the ratio above 1, not {self.dual_clip:g}",
                hint="3 is what verl and Tianshou use: --dual-clip 3",
            )
        if self.delta is not None and not 1.0 + self.clip_high < self.delta < math.inf:
            raise UsageProblem(
                f"--delta must be above 1 + clip_high = {1.0 + self.clip_high:g}, not {self.delta:g}",
                hint="a smaller delta would cut ratios that the clip lets through",
            )
        if self.log_ratio_clamp is not None and not 0.0 < self.log_ratio_clamp < math.inf:
            raise UsageProblem(
                f"--log-ratio-clamp is a positive number of nats, not {self.log_ratio_clamp:g}"
            )
        if self.value_clip is not None and not 0.0 < self.value_clip < math.inf:
            raise UsageProblem(f"--value-clip is a positive number, not {self.value_clip:g}")
        for flag, count in (("--horizon", self.horizon), ("--micro-batch", self.micro_batch)):
            if count is not None and count < 1:
                raise UsageProblem(f"{flag} is a whole number of at least 1, not {count}")
        if self.adv_norm_ddof not in (0, 1):
            raise UsageProblem(f"--adv-norm-ddof is 0 or 1, not {self.adv_norm_ddof}")
        _within("--adv-norm-eps", self.adv_norm_eps, 0.0, math.inf)
        for flag, coefficient in (
            ("--vf-coef", self.vf_coef),
            ("--ent-coef", self.ent_coef),
            ("--kl-coef", self.kl_coef),
        ):
            if coefficient is not None and not math.isfinite(coefficient):
                raise UsageProblem(f"{flag} must be finite, not {coefficient:g}")

        for name in _AT_LEAST_0 + _ABOVE_0:
            _check(name, getattr(self, name), above_zero=name in _ABOVE_0)
        low, high = self.cispo_bounds
        if low > high:
            raise UsageProblem(f"cispo_low = {low:g} is above cispo_high = {high:g}")

        _check_correction(self)

    @property
    def weight_rule(self) -> WeightRule | None:
        """How tokens are weighted; decoupled weights each token unless another level is asked for."""
        from ppocli.core.rollout_rules import WeightRule

        level = "token" if self.objective == "decoupled" and self.rollout_is == "none" else self.rollout_is
        if level == "none":
            return None
        bounds = self.rollout_is_cap, self.rollout_is_low
        return WeightRule(level, *bounds, self.rollout_is_mode, self.rollout_is_clamp)

    @property
    def rejections(self) -> tuple[RejectionRule, ...]:
        """By which rules tokens are dropped."""
        from ppocli.core.rollout_rules import parse_rejection

        return tuple(parse_rejection(text) for text in self.rollout_rs)

    @property
    def needs_rollout(self) -> bool:
        """Whether the loss is corrected for tokens of another policy."""
        return self.objective == "decoupled" or self.rollout_is != "none" or bool(self.rollout_rs)

    @property
    def scoped(self) -> bool:
        """Whether advantages are normalised over something else than all tokens of the input."""
        return self.adv_norm != "none" and (self.adv_norm != "batch" or self.adv_norm_unit != "token")

    @property
    def adv_norm_rows(self) -> int:
        """The N of minibatch:N, or 0."""
        return int(self.adv_norm.partition(":")[2] or 0)

    @property
    def in_kernels(self) -> bool:
        """Whether the compiled kernels compute the loss; any other one is computed beside them."""
        return (
            self.objective == "ppo"
            and not self.needs_rollout
            and self.off_policy_threshold is None
            and self.adv_level == "token"
            and not self.scoped
        )

    @property
    def drops(self) -> bool:
        """Whether rules leave tokens out."""
        return bool(self.rollout_rs) and self.rollout_rs_mode == "drop"

    @property
    def reads_rollout(self) -> bool:
        """Whether the column rollout_log_probs is needed."""
        anchored = self.off_policy_threshold is not None and self.off_policy_anchor == "rollout"
        return (self.needs_rollout and not self.rollout_bypass) or anchored

    @property
    def correction_pair(self) -> tuple[str, str]:
        """The columns that weights and rules compare: of the loss's policy, of the one that sampled."""
        if self.rollout_bypass:
            return "log_probs", "old_log_probs"
        return "old_log_probs", "rollout_log_probs"

    @property
    def needs_sequences(self) -> bool:
        """Whether a token's loss depends on which tokens belong together."""
        return (
            self.shares_terms
            or self.off_policy_threshold is not None
            or self.adv_level == "sequence"
            or self.rollout_is not in ("none", "token")
            or any(rule.level != "token" for rule in self.rejections)
        )

    @property
    def shares_terms(self) -> bool:
        """Whether the terms of the objective itself depend on which tokens belong together."""
        shared = self.objective in ("cispo", "sapo") and self.ratio_level == "sequence"
        return self.objective in SEQUENCE_OBJECTIVES or shared

    @property
    def shares_ratio(self) -> bool:
        """Whether the tokens of a sequence have one ratio, the geometric mean."""
        return self.objective == "gspo" or self.ratio_level == "sequence"

    @property
    def cispo_bounds(self) -> tuple[float, float]:
        """The interval that cispo clips the ratio to."""
        low, high = self.cispo_low, self.cispo_high
        return 1.0 - self.clip_low if low is None else low, 1.0 + self.clip_high if high is None else high

    def to_dict(self) -> dict[str, Any]:
        """Return all settings by name, as they are echoed in `settings`."""
        return {**asdict(self), "rollout_rs": list(self.rollout_rs)}


_AT_LEAST_0 = (
    "cispo_low",
    "cispo_high",
    "dppo_kl_eps",
    "dro_beta",
    "vespo_k_pos",
    "vespo_k_neg",
    "ratio_eps",
    "log_ratio_penalty",
    "mean_eps",
    "seq_eps",
    "rollout_rs_prob_clamp",
)
_ABOVE_0 = (
    "log_ratio_ceiling",
    "sapo_tau_pos",
    "sapo_tau_neg",
    "vespo_lambda_pos",
    "vespo_lambda_neg",
    "dppo_weight_cap",
    "denominator",
    "value_error_delta",
    "value_error_cap",
    "ref_kl_clamp",
    "ref_kl_cap",
)


def _check(name: str, value: float | None, *, above_zero: bool = False) -> None:
    """Refuse a number that is negative, not finite or, with `above_zero`, zero; None passes."""
    if value is not None and not (0.0 <= value < math.inf and (value > 0.0 or not above_zero)):
        least = "above 0" if above_zero else "of at least 0"
        raise UsageProblem(f"{name} is a finite number {least}, not {value:g}")


FRAMEWORK_ONLY = (
    "denominator",
    "loss_scale",
    "count_empty",
    "mean_eps",
    "log_ratio_penalty",
    "ref_kl",
    "ref_kl_clamp",
    "ref_kl_cap",
    "ref_kl_ratio",
    "value_error",
    "value_error_delta",
    "value_error_cap",
)
"""Settings that change the metrics of a preset, and none of ppocli's own."""


def check_without_preset(spec: LossSpec) -> None:
    """Refuse settings that would change nothing without a preset.

    Raises
    ------
    UsageProblem
    """
    for one in fields(spec):
        if one.name in FRAMEWORK_ONLY and getattr(spec, one.name) != one.default:
            raise UsageProblem(
                f"{one.name} is a setting of frameworks' losses, and changes no metric without one",
                hint="name the framework: --like NAME",
            )


def _check_minibatch(adv_norm: str) -> None:
    """Refuse anything but minibatch:N."""
    name, _, rows = adv_norm.partition(":")
    if name != "minibatch" or not rows.isdecimal() or int(rows) < 1:
        raise UsageProblem(f"--adv-norm '{adv_norm}' is not known", hint="minibatch:N, N stored rows")


def _check_correction(spec: LossSpec) -> None:
    """Refuse rules that cannot be used, and bounds of a weight that is not asked for."""
    choose("rollout_is", spec.rollout_is, ROLLOUT_IS)
    choose("rollout_rs_mode", spec.rollout_rs_mode, REJECTION_MODES)
    if spec.weight_rule is None:
        for name in ("rollout_is_cap", "rollout_is_low"):
            if getattr(spec, name) is not None:
                hint = "--rollout-is token, sequence or geometric"
                raise UsageProblem(f"{name} bounds a weight, and no weight is asked for", hint=hint)
    spec.rejections  # noqa: B018 - reads the rules, and refuses wrong ones
    for name in ("loss_scale", "vespo_log_low", "vespo_log_high", "off_policy_threshold"):
        value = getattr(spec, name)
        if value is not None and not math.isfinite(value):
            raise UsageProblem(f"{name} must be finite, not {value:g}")


def _typed(name: str, kind: str, value: Any) -> Any:
    """Return a setting as plain text, whole number or float; NumPy's numbers become Python's."""
    if value is None and kind.endswith("None"):
        return None
    try:
        if kind.startswith("str") and isinstance(value, str):
            return value
        if kind.startswith("tuple") and not isinstance(value, str):
            return tuple(str(one) for one in value)
        if kind.startswith("bool") and isinstance(value, (bool, int)):
            return bool(value)
        if kind.startswith("int") and not isinstance(value, bool):
            return operator.index(value)
        if kind.startswith("float") and not isinstance(value, (bool, str)):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise UsageProblem(f"{name} must be of type {kind.removesuffix(' | None')}, not {value!r}")


def check_by(by: Any) -> None:
    """Refuse what cannot be the name of a group: "total", "file", "step" or a column.

    Raises
    ------
    UsageProblem
    """
    if not isinstance(by, str) or not by:
        raise UsageProblem(f"--by takes file, total, step or the name of a column, not {by!r}")


def choose(what: str, value: str, allowed: Iterable[str]) -> str:
    """Return `value` if it is one of `allowed`; otherwise raise UsageProblem with the nearest one."""
    names = list(allowed)
    if value in names:
        return value
    near = difflib.get_close_matches(value, names, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise UsageProblem(f"{what} '{value}' is not known", hint=f"{hint}one of: {', '.join(names)}")


def _within(flag: str, value: float, low: float, high: float) -> None:
    """Refuse a number outside [low, high), or outside [low, high] when `high` is finite; NaN is outside."""
    if not (low <= value <= high) or math.isinf(value):
        bound = f"between {low:g} and {high:g}" if math.isfinite(high) else f"of at least {low:g}"
        raise UsageProblem(f"{flag} is a finite number {bound}, not {value:g}")
