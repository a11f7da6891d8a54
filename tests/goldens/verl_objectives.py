"""verl 0.9.1: clip-cov and kl-cov, which need the whole batch at once, through our formulas on arrays."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from goldens.batch import Answer, Batch

from ppocli.core import covariance_objectives as covariance
from ppocli.core import reference, token_objectives
from ppocli.core.spec import LossSpec

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

    from ppocli.core.token_objectives import ObjectiveTerms

EPS = 1e-8
"""verl adds this to the number of tokens in a masked mean."""


def policy_loss(row: Row, arrays: Arrays) -> Answer:
    """One row of the registry of policy losses; all of them are token means."""
    mode, batch, answer = row["settings"]["loss_mode"], Batch(row, arrays), Answer()
    terms, weights = {"clip_cov": clip_cov, "kl_cov": kl_cov}[mode](row, batch, answer)
    answer.add_loss(terms, weights)
    drift = np.abs(batch.log_ratio) if mode == "kl_cov" else reference.kl_k1(batch.log_ratio)
    answer.outputs["actor/ppo_kl"] = batch.mean(drift) * (batch.n / (batch.n + EPS))
    answer.scale["actor/ppo_kl"] = batch.mean(np.abs(drift))
    return answer


COVARIANCE_ROUNDING = 1e-7
"""verl's means have the epsilon in their denominators, and ours have not."""


def clip_cov(row: Row, batch: Batch, answer: Answer) -> tuple[ObjectiveTerms, np.ndarray]:
    """Which candidates are dropped is torch's draw, unless all of them are."""
    settings = row["settings"]
    bounds = LossSpec(clip_low=settings["clip_ratio_low"], clip_high=settings["clip_ratio_high"])
    limits = settings["clip_cov_lb"], settings["clip_cov_ub"]
    candidates = covariance.clip_cov_candidates(
        batch.log_probs, batch.log_ratio, batch.advantages, bounds, *limits
    )
    count = covariance.clip_cov_count(batch.n, int(candidates.sum()), settings["clip_cov_ratio"])
    part = covariance.covariance(batch.log_probs, batch.advantages)
    answer.doubtful = batch.near(batch.log_ratio, 1.0 - bounds.clip_low, 1.0 + bounds.clip_high)
    for limit in limits:
        answer.doubtful |= np.abs(part - limit) <= COVARIANCE_ROUNDING
    answer.outputs["actor/pg_clipfrac"] = count / (batch.n + EPS)
    answer.slack["actor/pg_clipfrac"] = int(answer.doubtful.sum()) / batch.n
    if count < candidates.sum():
        answer.missing["loss"] = "the tokens are a random draw of torch"
    weights = token_weights(batch)
    loss = covariance.clip_cov_loss(batch.log_ratio, batch.advantages, bounds, candidates)
    plain = token_objectives.ppo(batch.log_ratio, batch.advantages, bounds)
    answer.slack["loss"] = math.fsum(np.abs(weights * plain.loss)[answer.doubtful])
    return replace(plain, loss=loss), weights


def kl_cov(row: Row, batch: Batch, answer: Answer) -> tuple[ObjectiveTerms, np.ndarray]:
    """The unclipped surrogate with a penalty on the tokens of largest covariance; ties may go either way."""
    settings = row["settings"]
    share, coefficient = settings["kl_cov_ratio"], settings["ppo_kl_coef"]
    chosen = covariance.kl_cov_chosen(batch.log_probs, batch.advantages, share)
    part = covariance.covariance(batch.log_probs, batch.advantages)
    tied = np.abs(part - part[chosen].min()) <= COVARIANCE_ROUNDING
    weights = token_weights(batch)
    plain = token_objectives.importance_sampling(batch.log_ratio, batch.advantages, LossSpec())
    loss = covariance.kl_cov_loss(batch.log_ratio, batch.advantages, LossSpec(), chosen, coefficient)
    if tied.sum() > (tied & chosen).sum():
        answer.slack["loss"] = math.fsum(np.abs(weights * coefficient * batch.log_ratio)[tied])
    return replace(plain, loss=loss), weights


def token_weights(batch: Batch) -> np.ndarray:
    """The weight of each valid token's loss, rollout weights included, (n,)."""
    weights = np.full(batch.n, 1.0 / batch.n)
    return weights * batch.valid("rollout_is_weights") if "rollout_is_weights" in batch.arrays else weights


FUNCTIONS = {
    f"verl.trainer.ppo.core_algos.POLICY_LOSS_REGISTRY['{mode}']": policy_loss
    for mode in ("clip_cov", "kl_cov")
}
"""By the peer's function."""
