"""Gradients of presets: d loss / d log_probs of each token, where peers gave it by autograd.

Their numbers are compared through `evaluate` (`goldens.presets`); here the same settings are used on arrays.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from goldens.batch import ROUNDING, Answer, Batch
from goldens.presets import MAPPINGS
from goldens.rows import NotExpressed

from ppocli.core.measures import AGG, resolve
from ppocli.core.presets import preset
from ppocli.core.tokens import Tokens

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

    from ppocli.core.spec import LossSpec


def gradient(row: Row, arrays: Arrays) -> Answer:
    """The gradient of the policy's loss; penalties have one of their own."""
    asked = MAPPINGS[row["function"]](row, dict(arrays))
    spec = preset(asked.like).loss_spec(asked.settings)
    if spec.kl_coef or spec.ent_coef:
        raise NotExpressed("gradients of penalties")
    given = {name: np.stack(list(values)) for name, values in asked.arrays.items()}
    batch = Batch(row, {**arrays, **given})
    roles = ("rollout_log_probs",) if spec.reads_rollout else ()
    columns = {role: batch.valid(role) for role in ("log_probs", "old_log_probs", "advantages", *roles)}
    tokens = Tokens(columns, batch.sequences)
    answer = Answer()
    answer.gradient = token_weights(spec, batch, asked.like) * tokens.terms(spec).gradient
    log_ratio, rounding = batch.log_ratio, 0.0
    if spec.shares_ratio:
        log_ratio, rounding = batch.sequences.spread(batch.sequences.mean(log_ratio)), ROUNDING
    answer.doubtful = batch.near(log_ratio, *decisions(spec), rounding=rounding)
    if spec.objective == "vespo":
        # NaN in the padding makes a peer's weight of the whole sequence 0.
        answer.doubtful |= batch.dirty_rows("log_probs", "old_log_probs")[batch.index]
    return answer


def decisions(spec: LossSpec) -> tuple[float, ...]:
    """The ratios at which the gradient changes."""
    if spec.objective == "cispo":
        return spec.cispo_bounds
    if spec.objective == "gmpo":
        return math.exp(-spec.clip_low), math.exp(spec.clip_high)
    return 1.0 - spec.clip_low, 1.0 + spec.clip_high, spec.dual_clip or 0.0, spec.delta or 0.0


def token_weights(spec: LossSpec, batch: Batch, like: str) -> np.ndarray:
    """The weight of each valid token's loss in the aggregate, (n,)."""
    one = next(metric.measures[0] for metric in preset(like).metrics if metric.kind == "loss")
    how = resolve(one, spec)
    lengths = batch.lengths[batch.index] + spec.seq_eps
    if one.term == "loss_times_length":
        return lengths / batch.mask.size
    scale, denominator = (spec.loss_scale, spec.denominator) if one.reduce == AGG else (1.0, None)
    if spec.agg == "token-sum" and one.reduce == AGG:
        return np.full(batch.n, scale)
    if how.over == "token":
        eps = one.option("mean_eps", spec.mean_eps)
        return np.full(batch.n, scale / ((denominator or batch.n) + eps))
    rows = batch.lengths.size if how.over == "row" else np.count_nonzero(batch.lengths)
    norm = spec.agg == "seq-mean-token-sum-norm" and one.reduce == AGG
    within = lengths if how.within == "mean" else (spec.horizon or batch.mask.shape[1]) if norm else 1.0
    return np.full(batch.n, scale / (denominator or rows)) / within


FUNCTIONS = dict.fromkeys(
    (
        "trl.trainer.grpo_trainer.GRPOTrainer._compute_loss",
        "liger_kernel.chunked_loss.grpo_loss.LigerFusedLinearGRPOFunction.ppo_loss_fn",
        "nemo_rl.algorithms.loss.loss_functions.ClippedPGLossFn",
        *(
            f"verl.trainer.ppo.core_algos.POLICY_LOSS_REGISTRY['{mode}']"
            for mode in ("vanilla", "gspo", "sapo", "cispo", "dro", "geo_mean")
        ),
        "openrlhf.models.loss.PolicyLoss",
        "areal.utils.functional.ppo_actor_loss_fn",
        "areal.utils.functional.sapo_loss_fn",
    ),
    gradient,
)
"""By the peer's function."""
