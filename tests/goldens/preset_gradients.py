"""Gradients of presets: d loss / d log_probs of each token, where peers gave it by autograd.

Their numbers are compared through `evaluate` (`goldens.presets`); here the same settings are used on arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from goldens.batch import ROUNDING, Answer, Batch
from goldens.presets import MAPPINGS
from goldens.rows import NotExpressed

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
    batch = Batch(row, {**arrays, **{name: np.asarray(values) for name, values in asked.arrays.items()}})
    roles = ("rollout_log_probs",) if spec.needs_rollout else ()
    columns = {role: batch.valid(role) for role in ("log_probs", "old_log_probs", "advantages", *roles)}
    tokens = Tokens(columns, batch.sequences)
    answer = Answer()
    answer.gradient = token_weights(spec, batch, asked.like) * tokens.terms(spec).gradient
    bounds = (1.0 - spec.clip_low, 1.0 + spec.clip_high, spec.dual_clip or 0.0, spec.delta or 0.0)
    if spec.objective == "cispo":
        bounds = spec.cispo_bounds
    log_ratio = batch.log_ratio
    if spec.shares_ratio:
        log_ratio = batch.sequences.spread(batch.sequences.mean(log_ratio))
    answer.doubtful = batch.near(log_ratio, *bounds, rounding=ROUNDING if spec.shares_ratio else 0.0)
    if spec.objective == "vespo":
        # NaN in the padding makes a peer's weight of the whole sequence 0.
        answer.doubtful |= batch.dirty_rows("log_probs", "old_log_probs")[batch.index]
    return answer


def token_weights(spec: LossSpec, batch: Batch, like: str) -> np.ndarray:
    """The weight of each valid token's loss in the aggregate, (n,)."""
    lengths = batch.lengths[batch.index] + spec.seq_eps
    if like == "liger:luspo":
        return lengths / batch.mask.size
    if spec.agg == "token-mean":
        return np.full(batch.n, spec.loss_scale / ((spec.denominator or batch.n) + spec.mean_eps))
    rows = batch.lengths.size if spec.count_empty else np.count_nonzero(batch.lengths)
    within = {"seq-mean-token-mean": lengths, "seq-mean-token-sum": 1.0}.get(spec.agg, spec.horizon)
    return np.full(batch.n, spec.loss_scale / (spec.denominator or rows)) / within


FUNCTIONS = dict.fromkeys(
    (
        "trl.trainer.grpo_trainer.GRPOTrainer._compute_loss",
        "liger_kernel.chunked_loss.grpo_loss.LigerFusedLinearGRPOFunction.ppo_loss_fn",
        "nemo_rl.algorithms.loss.loss_functions.ClippedPGLossFn",
    ),
    gradient,
)
"""By the peer's function."""
