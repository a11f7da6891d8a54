"""TRL 1.16.0: the losses of its GRPO trainer through our formulas on arrays."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from goldens.batch import ROUNDING, Answer, Batch

from ppocli.core import reference, sequence_objectives, token_objectives
from ppocli.core.spec import LossSpec
from ppocli.core.token_objectives import ObjectiveTerms

if TYPE_CHECKING:
    from goldens.rows import Arrays, Row

SURROGATES = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
VESPO_CLAMP = 20.0
VESPO_LOG_WEIGHT = (math.log(1e-8), 20.0)
"""vespo clamps the tokens' log-ratios and then the logarithm of the sequence's weight."""

WEIGHTS_ARE_CORRECTIONS = "weights against the rollout policy are not an objective"


def compute_loss(row: Row, arrays: Arrays) -> Answer:
    """One loss: objective, masks of tokens, importance weight, reference KL, aggregation."""
    settings, batch, answer = row["settings"], Batch(row, arrays), Answer()
    log_ratio = shared_log_ratio(settings, batch)
    loss_type = settings["loss_type"]
    rule = {"cispo": cispo, "sapo": sapo, "vespo": vespo}.get(loss_type, surrogate)
    terms = rule(settings, batch, log_ratio, answer)
    weights = token_weights(settings, batch)
    weights_of_objective = weights * kept(settings, batch)
    if "importance_sampling_ratio" in arrays and loss_type != "vespo":
        weights_of_objective = weights_of_objective * batch.valid("importance_sampling_ratio")
    answer.add_loss(terms, weights_of_objective)
    if settings["beta"]:
        add_kl(settings, batch, log_ratio, weights, answer)
    entropy = batch.valid("entropy") if "entropy" in arrays else np.zeros(batch.n)
    answer.outputs["entropy"] = batch.mean(entropy)
    for name in row["outputs"]:
        if name.startswith("sampling/"):
            answer.missing[name] = WEIGHTS_ARE_CORRECTIONS
    spoil(batch, answer)
    return answer


def shared_log_ratio(settings: Row, batch: Batch) -> np.ndarray:
    """Each token's log-ratio, or its sequence's mean, (n,)."""
    if settings["importance_sampling_level"] == "token":
        return batch.log_ratio
    log_s = sequence_objectives.log_sequence_ratio(batch.log_ratio, batch.sequences)
    return batch.sequences.spread(log_s)


def surrogate(settings: Row, batch: Batch, log_ratio: np.ndarray, answer: Answer) -> ObjectiveTerms:
    """The clipped surrogate with an upper bound delta on the unclipped branch.

    A delta below 1 + epsilon_high is the clip for A > 0, and for A < 0 leaves 1 + epsilon_high as a bound on
    the loss, that is a dual clip. TRL's clip metrics look at min(ratio, delta).
    """
    low, high, delta = settings["epsilon_low"], settings["epsilon_high"], settings["delta"]
    hidden = delta is not None and delta <= 1.0 + high
    bounds = (
        LossSpec(clip_low=low, clip_high=delta - 1.0, dual_clip=1.0 + high)
        if hidden
        else LossSpec(clip_low=low, clip_high=high, delta=delta)
    )
    sequence = settings["importance_sampling_level"] == "sequence"
    if sequence:
        spec = replace(bounds, objective="gspo")
        terms = sequence_objectives.gspo(batch.log_ratio, batch.advantages, batch.sequences, spec)
    else:
        terms = token_objectives.ppo(log_ratio, batch.advantages, bounds)
    rounding = ROUNDING if sequence else 0.0
    answer.doubtful = batch.near(log_ratio, 1.0 - low, 1.0 + high, delta or 0.0, rounding=rounding)
    cut_high = np.zeros(batch.n, bool) if hidden else terms.masks.active_high
    add_clip_ratios(sequence, batch, terms.masks.active_low, cut_high, answer)
    return terms


def add_clip_ratios(sequence: bool, batch: Batch, low: np.ndarray, high: np.ndarray, answer: Answer) -> None:
    """The five clip ratios: a vote per token, at sequence level a vote per row, empty ones included."""
    unclear = answer.doubtful
    if sequence:
        dirty = batch.dirty_rows("log_probs", "old_log_probs")[batch.index]
        low, high = low & ~dirty, high & ~dirty
    rows = {name: batch.row_mean(mask) for name, mask in (("low", low), ("high", high), ("both", low | high))}
    unclear_rows = batch.row_mean(unclear)
    mean = np.mean if sequence else (lambda values: float(values @ batch.lengths) / max(batch.n, 1))
    answer.outputs |= {
        "clip_ratio/low_mean": float(mean(rows["low"])),
        "clip_ratio/high_mean": float(mean(rows["high"])),
        "clip_ratio/region_mean": float(mean(rows["both"])),
        "clip_ratio/low_min": float(rows["low"].min()),
        "clip_ratio/high_max": float(rows["high"].max()),
    }
    for name in ("low_mean", "high_mean", "region_mean"):
        answer.slack[f"clip_ratio/{name}"] = float(mean(unclear_rows))
    for name in ("low_min", "high_max"):
        answer.slack[f"clip_ratio/{name}"] = float(unclear_rows.max())


def cispo(settings: Row, batch: Batch, log_ratio: np.ndarray, answer: Answer) -> ObjectiveTerms:
    """epsilon_high is the bound itself; nothing bounds from below."""
    high = settings["epsilon_high"]
    sequence = settings["importance_sampling_level"] == "sequence"
    terms = token_objectives.cispo(batch.log_probs, log_ratio, batch.advantages, 0.0, high, None)
    answer.doubtful = batch.near(log_ratio, high, rounding=ROUNDING if sequence else 0.0)
    chosen = terms.masks.active_high
    if sequence:
        chosen = chosen & ~batch.dirty_rows("log_probs", "old_log_probs")[batch.index]
    rows, unclear = batch.row_mean(chosen), batch.row_mean(answer.doubtful)
    shares = np.ones(rows.size) if sequence else batch.lengths
    answer.outputs["cispo_clip_ratio"] = float(np.average(rows, weights=shares))
    answer.slack["cispo_clip_ratio"] = float(np.average(unclear, weights=shares))
    return terms


def sapo(settings: Row, batch: Batch, log_ratio: np.ndarray, answer: Answer) -> ObjectiveTerms:
    """The soft gate; at sequence level on the sequence's ratio."""
    temperatures = settings["sapo_temperature_pos"], settings["sapo_temperature_neg"]
    terms = token_objectives.sapo(log_ratio, batch.advantages, *temperatures, None)
    if settings["importance_sampling_level"] == "token":
        return terms
    gradient = sequence_objectives.through_sequence(terms.gradient, batch.sequences)
    return ObjectiveTerms(terms.loss, gradient, terms.masks)


def vespo(settings: Row, batch: Batch, log_ratio: np.ndarray, answer: Answer) -> ObjectiveTerms:
    """The sequence's weight with its two clamps; the rollout correction multiplies it."""
    clamped = np.clip(batch.log_ratio, -VESPO_CLAMP, VESPO_CLAMP)
    log_w = batch.sequences.total(clamped)
    if "importance_sampling_ratio" in batch.arrays:
        log_w = log_w + log_correction(batch)
    log_w = batch.sequences.spread(np.clip(log_w, *VESPO_LOG_WEIGHT))
    negative = batch.advantages < 0.0
    phi = sequence_objectives.vespo_weight(
        log_w,
        np.where(negative, settings["vespo_k_neg"], settings["vespo_k_pos"]),
        np.where(negative, settings["vespo_lambda_neg"], settings["vespo_lambda_pos"]),
    )
    add_phi_mean(settings, batch, phi, answer)
    nothing = token_objectives.unclipped(phi)
    return token_objectives.weighted_log_probs(phi, batch.log_probs, batch.advantages, nothing)


def log_correction(batch: Batch) -> np.ndarray:
    """The logarithm of the rollout correction of each sequence, weights below 1e-8 held there, (m,)."""
    weights = batch.arrays["importance_sampling_ratio"]
    logs = np.log(np.maximum(batch.valid("importance_sampling_ratio"), 1e-8))
    # One weight per row counts once, one per token as a product.
    return batch.sequences.mean(logs) if weights.shape[1:] == (1,) else batch.sequences.total(logs)


def add_phi_mean(settings: Row, batch: Batch, phi: np.ndarray, answer: Answer) -> None:
    """The mean of phi: over tokens with an advantage per token, else over rows, a NaN row counting as 0."""
    if batch.arrays["advantages"].ndim == 2:
        answer.outputs["vespo/phi_seq_mean"] = batch.mean(phi)
        return
    rows = batch.row_mean(phi)
    rows[batch.dirty_rows("log_probs", "old_log_probs")] = 0.0
    # A row without a token has log w = 0, and phi(1) = 1.
    rows[batch.lengths == 0] = 1.0
    answer.outputs["vespo/phi_seq_mean"] = float(rows.mean())


def kept(settings: Row, batch: Batch) -> np.ndarray:
    """Which tokens the off-policy and the entropy mask leave, (n,) of 0 and 1."""
    out = np.ones(batch.n)
    threshold = settings["off_policy_mask_threshold"]
    if threshold is not None:
        against = "rollout_log_probs" if "rollout_log_probs" in batch.arrays else "old_log_probs"
        drift = batch.row_mean(batch.valid(against) - batch.log_probs)[batch.index]
        out *= (batch.advantages >= 0.0) | (drift <= threshold)
    if settings["top_entropy_quantile"] < 1.0:
        entropy = batch.valid("entropy")
        out *= entropy >= np.quantile(entropy, 1.0 - settings["top_entropy_quantile"])
    return out


def add_kl(settings: Row, batch: Batch, log_ratio: np.ndarray, weights: np.ndarray, answer: Answer) -> None:
    """k3 against the reference, times the ratio if so set; it joins the loss after all weights and masks."""
    kl = reference.kl_k3(batch.valid("ref_log_probs") - batch.log_probs)
    if settings["use_bias_correction_kl"]:
        ratio = reference.ratio(log_ratio)
        bounded = settings["loss_type"] in SURROGATES and settings["delta"] is not None
        kl = kl * (np.minimum(ratio, settings["delta"]) if bounded else ratio)
    answer.outputs["kl"] = batch.mean(kl)
    penalty = settings["beta"] * math.fsum(weights * kl)
    answer.outputs["loss"] += penalty
    answer.scale["loss"] += penalty
    answer.gradient = None


def token_weights(settings: Row, batch: Batch) -> np.ndarray:
    """The weight of each valid token's loss in the aggregate, (n,)."""
    rows, accumulation = batch.lengths.size, settings["gradient_accumulation_steps"]
    per_step = settings["num_items_in_batch"] * accumulation / settings["steps_per_generation"]
    lengths = batch.lengths[batch.index].astype(float)
    divisor = {
        "grpo": lengths * rows * accumulation,
        "sapo": lengths * rows * accumulation,
        "bnpo": np.full(batch.n, float(batch.n * accumulation)),
        "dr_grpo": np.full(batch.n, float(rows * settings["max_completion_length"] * accumulation)),
        "luspo": np.full(batch.n, float(rows * accumulation)),
    }.get(settings["loss_type"], np.full(batch.n, per_step))
    return 1.0 / divisor


def spoil(batch: Batch, answer: Answer) -> None:
    """TRL multiplies by the mask everywhere: what padding that is not finite reaches is NaN."""
    dirty = {name: bool(batch.dirty_rows(name).any()) for name in batch.arrays}
    columns = ("log_probs", "old_log_probs", "advantages", "importance_sampling_ratio")
    reference_kl = "kl" in answer.outputs and any(
        dirty[name] for name in ("log_probs", "ref_log_probs", "old_log_probs")
    )
    if reference_kl or any(dirty.get(name, False) for name in columns):
        answer.spoil("loss")
    if reference_kl:
        answer.spoil("kl")
    if dirty.get("entropy", False):
        answer.spoil("entropy")


FUNCTIONS = {"trl.trainer.grpo_trainer.GRPOTrainer._compute_loss": compute_loss}
"""By the peer's function."""
