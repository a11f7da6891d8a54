"""verl 0.9.1: its policy losses through our formulas on arrays."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from goldens.batch import ROUNDING, Answer, Batch, active
from goldens.rows import Arrays, NotExpressed, Row

from ppocli.core import covariance_objectives as covariance
from ppocli.core import reference, sequence_objectives, token_objectives
from ppocli.core.sequence_objectives import Sequences, objective_terms
from ppocli.core.spec import LossSpec
from ppocli.core.token_objectives import ObjectiveTerms

EPS = 1e-8
"""verl adds this to the number of tokens in a masked mean, to a sequence's length and inside dppo_kl."""

CLAMP = 20.0
GSPO_CEILING = 10.0
"""gspo holds the logarithm of a sequence's ratio below this; from above only."""

UNCLAMPED = ("gspo", "geo_mean", "dro", "clip_cov", "kl_cov")
"""Modes without the clamp of the log-ratio."""

OBJECTIVES = {
    "vanilla": "ppo",
    "sapo": "sapo",
    "gpg": "reinforce",
    "cispo": "cispo",
    "dro": "dro",
    "dppo_tv": "dppo-tv",
    "dppo_kl": "dppo-kl",
}


def policy_loss(row: Row, arrays: Arrays) -> Answer:
    """One row of the registry of policy losses."""
    settings, batch = row["settings"], Batch(row, arrays)
    mode = settings["loss_mode"]
    if settings.get("rollout_is_weights") and "rollout_is_weights" not in arrays:
        raise NotExpressed("rollout weights without their array")
    answer = Answer()
    rule = {"gspo": gspo, "geo_mean": geo_mean, "clip_cov": clip_cov, "kl_cov": kl_cov}.get(mode, by_token)
    terms, weights = rule(row, batch, answer)
    answer.add_loss(terms, weights)
    share = batch.n / (batch.n + EPS)
    if mode != "gpg":
        log_ratio = batch.log_ratio if mode in UNCLAMPED else np.clip(batch.log_ratio, -CLAMP, CLAMP)
        drift = np.abs(log_ratio) if mode == "kl_cov" else reference.kl_k1(log_ratio)
        answer.outputs["actor/ppo_kl"] = batch.mean(drift) * share
        answer.scale["actor/ppo_kl"] = batch.mean(np.abs(drift))
    if spoilt(mode, settings, batch):
        answer.spoil("loss")
    return answer


def bounds_of(settings: Row) -> LossSpec:
    """The bounds of a row; the clamp where the mode has one."""
    return LossSpec(
        clip_low=bound(settings, "clip_ratio_low"),
        clip_high=bound(settings, "clip_ratio_high"),
        dual_clip=settings["clip_ratio_c"] if settings["loss_mode"] == "vanilla" else None,
        log_ratio_clamp=None if settings["loss_mode"] in UNCLAMPED else CLAMP,
    )


def bound(settings: Row, name: str) -> float:
    """One side of the interval: its own value, else `clip_ratio`, else 0.2 where the mode has neither."""
    own = settings.get(name)
    return float(settings.get("clip_ratio", 0.2) if own is None else own)


def by_token(row: Row, batch: Batch, answer: Answer) -> tuple[ObjectiveTerms, np.ndarray]:
    """Objectives of single tokens."""
    settings, bounds = row["settings"], bounds_of(row["settings"])
    mode, cap = settings["loss_mode"], settings.get("clip_ratio_c")
    spec = replace(
        bounds,
        objective=OBJECTIVES[mode],
        sapo_tau_pos=settings.get("tau_pos", 1.0),
        sapo_tau_neg=settings.get("tau_neg", 1.0),
        dro_beta=settings.get("dro_beta", 0.0),
        dppo_weight_cap=cap,
        dppo_kl_eps=EPS,
    )
    terms = objective_terms(batch.log_probs, batch.old_log_probs, batch.advantages, spec)
    answer.doubtful = doubtful(spec, batch, cap)
    weights = token_weights(settings, batch)
    share = batch.n / (batch.n + EPS)
    masks = terms.masks
    if mode in ("vanilla", "sapo"):
        answer.add_share("actor/pg_clipfrac", active(masks), share)
        answer.add_share("actor/pg_clipfrac_lower", masks.dual, share)
    elif mode == "cispo":
        answer.add_share("actor/pg_clipfrac", masks.low | masks.high, share)
        answer.outputs["actor/pg_clipfrac_lower"] = 0.0
    elif mode.startswith("dppo"):
        # A token without advantage is tested against the lower threshold and counts as dropped.
        dropped = active(masks) | (masks.low & (batch.advantages == 0.0))
        weight = np.minimum(reference.ratio(batch.log_ratio, CLAMP), cap)
        answer.add_share("actor/pg_clipfrac", dropped, share)
        answer.add_share("actor/pg_clipfrac_lower", (weight >= cap) & ~dropped, share)
        # Whether a token is dropped changes the loss by all of its term.
        whole = np.abs(weights * weight * batch.advantages * batch.log_probs)
        answer.slack["loss"] = math.fsum(whole[answer.doubtful])
    return terms, weights


def doubtful(spec: LossSpec, batch: Batch, cap: float | None) -> np.ndarray:
    """Tokens within rounding of a bound of their objective."""
    low, high = spec.clip_low, spec.clip_high
    if not spec.objective.startswith("dppo"):
        return batch.near(batch.log_ratio, 1.0 - low, 1.0 + high, cap or 0.0)
    if spec.objective == "dppo-tv":
        distance = np.abs(np.exp(batch.log_probs) - np.exp(batch.old_log_probs))
    else:
        distance = token_objectives.binary_kl(batch.log_probs, batch.old_log_probs, spec.dppo_kl_eps)
    width = max(ROUNDING, batch.rounding)
    near = (np.abs(distance - low) <= width) | (np.abs(distance - high) <= width)
    return near | batch.near(batch.log_ratio, cap or 0.0)


def gspo(row: Row, batch: Batch, answer: Answer) -> tuple[ObjectiveTerms, np.ndarray]:
    """The sequence's geometric ratio, held below exp(10); the value of gspo, the gradient of GSPO-token."""
    spec = replace(bounds_of(row["settings"]), objective="gspo", gspo_token_gradient=True)
    log_ratio, shared = held_below(batch, GSPO_CEILING)
    terms = sequence_objectives.gspo(log_ratio, batch.advantages, batch.sequences, spec)
    terms.gradient[shared > GSPO_CEILING] = 0.0
    answer.doubtful = near_sequence(batch, shared, spec)
    # Where NaN in the padding reaches a row's ratio, no comparison holds.
    seen = ~batch.dirty_rows("log_probs", "old_log_probs")[batch.index]
    answer.add_share("actor/pg_clipfrac", active(terms.masks) & seen, batch.n / (batch.n + EPS))
    answer.outputs["actor/pg_clipfrac_lower"] = 0.0
    return terms, token_weights(row["settings"], batch)


def held_below(batch: Batch, ceiling: float) -> tuple[np.ndarray, np.ndarray]:
    """Log-ratios whose mean over a sequence is at most the ceiling, and the mean as it was, (n,) each."""
    shared = batch.sequences.spread(sequence_objectives.log_sequence_ratio(batch.log_ratio, batch.sequences))
    return np.where(shared > ceiling, ceiling, batch.log_ratio), shared


def near_sequence(batch: Batch, shared: np.ndarray, bounds: LossSpec) -> np.ndarray:
    """Tokens whose sequence's ratio is within rounding of a bound."""
    return batch.near(shared, 1.0 - bounds.clip_low, 1.0 + bounds.clip_high, rounding=ROUNDING)


def geo_mean(row: Row, batch: Batch, answer: Answer) -> tuple[ObjectiveTerms, np.ndarray]:
    """gmpo with lengths L + 1e-8, every row counting; rollout weights join the geometric mean.

    Scaled log-ratios and bounds give ours that length: their mean over L tokens is a sum over L + 1e-8.
    """
    bounds = bounds_of(row["settings"])
    loss, gradient = np.empty(batch.n), np.empty(batch.n)
    for i in np.flatnonzero(batch.lengths):
        of, length = batch.index == i, int(batch.lengths[i])
        f = length / (length + EPS)
        scaled = LossSpec(clip_low=bounds.clip_low * f, clip_high=bounds.clip_high * f)
        one = Sequences.from_ids(batch.index[of])
        terms = sequence_objectives.gmpo(batch.log_ratio[of] * f, batch.advantages[of], one, scaled)
        loss[of], gradient[of] = terms.loss, terms.gradient * f
    weights = 1.0 / ((batch.lengths + EPS) * batch.lengths.size)[batch.index]
    if "rollout_is_weights" in batch.arrays:
        logs = np.log(batch.valid("rollout_is_weights") + 1e-10)
        weights = weights * np.exp(batch.row_mean(logs))[batch.index]
    spec = replace(bounds, objective="gmpo")
    terms = objective_terms(
        batch.log_probs, batch.old_log_probs, batch.advantages, spec, sequences=batch.sequences
    )
    answer.doubtful = batch.near(batch.log_ratio, math.exp(-bounds.clip_low), math.exp(bounds.clip_high))
    region, share = terms.masks.low | terms.masks.high, batch.n / (batch.n + EPS)
    # Not the sides: both are the whole region, split by the sign of the advantage.
    answer.add_share("actor/pg_clipfrac", region & (batch.advantages > 0.0), share)
    answer.add_share("actor/pg_clipfrac_lower", region & (batch.advantages < 0.0), share)
    return ObjectiveTerms(loss, gradient, terms.masks), weights


COVARIANCE_ROUNDING = 1e-7
"""verl's means have the epsilon in their denominators, and ours have not."""


def clip_cov(row: Row, batch: Batch, answer: Answer) -> tuple[ObjectiveTerms, np.ndarray]:
    """Which candidates are dropped is torch's draw, unless all of them are."""
    settings, bounds = row["settings"], bounds_of(row["settings"])
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
    weights = token_weights(settings, batch)
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
    weights = token_weights(settings, batch)
    plain = token_objectives.importance_sampling(batch.log_ratio, batch.advantages, LossSpec())
    loss = covariance.kl_cov_loss(batch.log_ratio, batch.advantages, LossSpec(), chosen, coefficient)
    if tied.sum() > (tied & chosen).sum():
        answer.slack["loss"] = math.fsum(np.abs(weights * coefficient * batch.log_ratio)[tied])
    return replace(plain, loss=loss), weights


def token_weights(settings: Row, batch: Batch) -> np.ndarray:
    """The weight of each valid token's loss in the aggregate, rollout weights included, (n,)."""
    agg = "seq-mean-token-mean" if settings["loss_mode"] == "sapo" else settings["loss_agg_mode"]
    info = settings.get("global_batch_info") or {}
    lengths = batch.lengths[batch.index].astype(float)
    sequences = info.get("global_batch_size") or np.count_nonzero(batch.lengths)
    horizon = info.get("loss_scale_factor") or batch.mask.shape[1]
    divisor = {
        "token-mean": np.full(batch.n, float(info.get("batch_num_tokens") or batch.n)),
        "token-sum": np.ones(batch.n),
        "seq-mean-token-mean": (lengths + EPS) * sequences,
        "seq-mean-token-sum": np.full(batch.n, float(sequences)),
        "seq-mean-token-sum-norm": np.full(batch.n, float(sequences * horizon)),
    }[agg]
    weights = info.get("dp_size", 1) / divisor
    return weights * batch.valid("rollout_is_weights") if "rollout_is_weights" in batch.arrays else weights


def spoilt(mode: str, settings: Row, batch: Batch) -> bool:
    """Whether a masked value that is not finite reaches the loss: where verl multiplies by the mask."""
    columns = ("log_probs", "old_log_probs", "advantages", "rollout_is_weights")
    if not batch.dirty_rows(*(name for name in columns if name in batch.arrays)).any():
        return False
    return mode in ("gspo", "sapo", "geo_mean") or settings["loss_agg_mode"].startswith("seq")


FUNCTIONS = {
    f"verl.trainer.ppo.core_algos.POLICY_LOSS_REGISTRY['{mode}']": policy_loss
    for mode in (*OBJECTIVES, "gspo", "geo_mean", "clip_cov", "kl_cov")
}
"""By the peer's function."""
