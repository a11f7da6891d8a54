"""AReaL 1.0.4 and SkyRL 0.4.0: their policy losses through our formulas on arrays."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from goldens.batch import ROUNDING, Answer, Batch, active
from goldens.rows import Arrays, NotExpressed, Row
from goldens.verl_objectives import doubtful, held_below, near_sequence

from ppocli.core import reference, sequence_objectives, token_objectives
from ppocli.core.spec import LossSpec
from ppocli.core.token_objectives import ObjectiveTerms

# ---- AReaL -----------------------------------------------------------------------------------------------

OVER_MASK = "/avg_over_original_mask"
SEQUENCE_ADVANTAGE = "sequence"
"""At this level AReaL gives every token its sequence's mean advantage."""


def areal_actor(row: Row, arrays: Arrays) -> Answer:
    """Clipped surrogate, dual clip, sequence level, and the behaviour weight of the decoupled objective."""
    settings, batch, answer = row["settings"], Batch(row, arrays), Answer()
    high = settings["eps_clip_higher"]
    bounds = LossSpec(
        clip_low=settings["eps_clip"],
        clip_high=settings["eps_clip"] if high is None else high,
        dual_clip=settings["c_clip"],
    )
    sequence = settings.get("importance_sampling_level") == SEQUENCE_ADVANTAGE
    log_ratio, advantages = areal_level(batch, sequence)
    if sequence:
        spec = replace(bounds, objective="gspo")
        terms = sequence_objectives.gspo(batch.log_ratio, advantages, batch.sequences, spec)
    elif settings["decoupled"]:
        # The weight is AReaL's own, after its rejection rules.
        weight = batch.valid("behave_imp_weight")
        terms = token_objectives.decoupled(log_ratio, advantages, weight, bounds)
    else:
        terms = token_objectives.ppo(log_ratio, advantages, bounds)
    at = (1.0 - bounds.clip_low, 1.0 + bounds.clip_high, bounds.dual_clip or 0.0)
    answer.doubtful = batch.near(log_ratio, *at, rounding=ROUNDING if sequence else 0.0)
    kept = batch.valid("behave_imp_weight") != 0.0 if settings["decoupled"] else np.ones(batch.n, bool)
    areal_outputs(row, batch, log_ratio, terms, kept, answer)
    return answer


def areal_level(batch: Batch, sequence: bool) -> tuple[np.ndarray, np.ndarray]:
    """Log-ratio and advantage of each token, or the means over its sequence, (n,) each."""
    if not sequence:
        return batch.log_ratio, batch.advantages
    log_s = sequence_objectives.log_sequence_ratio(batch.log_ratio, batch.sequences)
    spread = batch.sequences.spread
    return spread(log_s), spread(batch.sequences.mean(batch.advantages))


def areal_outputs(
    row: Row, batch: Batch, log_ratio: np.ndarray, terms: ObjectiveTerms, kept: np.ndarray, answer: Answer
) -> None:
    """What both losses report: plain means over the tokens of the mask; rejected ones count as 0."""
    weights = np.full(batch.n, 1.0 / max(batch.n, 1))
    answer.add_loss(terms, weights, "loss", f"loss{OVER_MASK}")
    answer.outputs[f"importance_weight{OVER_MASK}"] = batch.mean(kept * reference.ratio(log_ratio))
    # The sign is that of the current minus the old policy.
    answer.outputs[f"approx_kl{OVER_MASK}"] = -batch.mean(reference.kl_k1(batch.log_ratio))
    answer.scale[f"approx_kl{OVER_MASK}"] = batch.mean(np.abs(batch.log_ratio))
    answer.masks = {"clip_mask": kept & active(terms.masks), "dual_clip_mask": kept & terms.masks.dual}
    for name, mask in answer.masks.items():
        answer.add_share(f"{name}{OVER_MASK}", mask)
    for name in row["outputs"]:
        if name.startswith("behave_") or name == "filtered_fraction":
            answer.missing[name] = "the rejection rules are a correction, not an objective"


def areal_sapo(row: Row, arrays: Arrays) -> Answer:
    """The soft gate on the token's ratio or on the sequence's."""
    settings, batch, answer = row["settings"], Batch(row, arrays), Answer()
    sequence = settings["importance_sampling_level"] == SEQUENCE_ADVANTAGE
    log_ratio, advantages = areal_level(batch, sequence)
    temperatures = settings["tau_pos"], settings["tau_neg"]
    terms = token_objectives.sapo(log_ratio, advantages, *temperatures, None)
    if sequence:
        gradient = sequence_objectives.through_sequence(terms.gradient, batch.sequences)
        terms = ObjectiveTerms(terms.loss, gradient, terms.masks)
    areal_outputs(row, batch, log_ratio, terms, np.ones(batch.n, bool), answer)
    # The gate is the loss of A = -1 under one temperature.
    one = -np.ones(batch.n)
    gates = [token_objectives.sapo(log_ratio, one, tau, tau, None).loss for tau in temperatures]
    for name, gate in zip(("sapo_scaled_gate_pos", "sapo_scaled_gate_neg"), gates, strict=True):
        answer.outputs[f"{name}{OVER_MASK}"] = batch.mean(gate)
    answer.outputs[f"sapo_soft_gate{OVER_MASK}"] = batch.mean(np.where(advantages > 0.0, *gates))
    return answer


# ---- SkyRL -----------------------------------------------------------------------------------------------

SKYRL = "skyrl.backends.skyrl_train.utils.ppo_utils."
SKYRL_CLAMP = 20.0
SKYRL_GSPO_CEILING = 10.0
SKYRL_EPS = 1e-8


def skyrl_loss(row: Row, arrays: Arrays) -> Answer:
    """Advantages are scaled by the reduction, then losses are summed: the same as weighing the losses."""
    name = row["function"].removeprefix(SKYRL)
    if name in ("rollout_is_policy_loss", "dppo_policy_loss") and "rollout_log_probs" in arrays:
        # The ratio is taken against the sampler.
        arrays["old_log_probs"] = arrays["rollout_log_probs"]
    if name == "compute_policy_loss_cispo" and row["settings"]["cispo"]["cispo_anchor"] != "old":
        arrays["old_log_probs"] = arrays["rollout_log_probs"]
    batch, answer = Batch(row, arrays), Answer()
    terms = SKYRL_LOSSES[name](row["settings"], batch, answer)
    answer.add_loss(terms, skyrl_weights(row["settings"], batch))
    if batch.dirty_rows("log_probs", "old_log_probs", "advantages").any():
        # SkyRL multiplies by the mask.
        spoilt = ("loss", "importance_ratio", "cispo/ratio_mean", "cispo/ratio_clamped_mean")
        answer.spoil(*(name for name in spoilt if name in answer.outputs))
    return answer


def skyrl_weights(settings: Row, batch: Batch) -> np.ndarray:
    """The weight of each valid token's loss in the sum, (n,)."""
    rows, lengths = batch.lengths.size, batch.lengths[batch.index].astype(float)
    reduction = settings["loss_reduction"]
    if reduction == "token_mean":
        return np.full(batch.n, 1.0 / max(batch.n, 1))
    if reduction == "sequence_mean":
        return 1.0 / (rows * lengths)
    if reduction == "seq_mean_token_sum_norm":
        return np.full(batch.n, 1.0 / (rows * settings["max_seq_len"]))
    raise NotExpressed(f"the reduction '{reduction}'")


def skyrl_sapo(settings: Row, batch: Batch, answer: Answer) -> ObjectiveTerms:
    """The soft gate of the clamped log-ratio."""
    sapo = settings["sapo"]
    answer.outputs["clip_ratio"] = 0.0
    return token_objectives.sapo(
        batch.log_ratio, batch.advantages, sapo["tau_pos"], sapo["tau_neg"], SKYRL_CLAMP
    )


def skyrl_gspo(settings: Row, batch: Batch, answer: Answer) -> ObjectiveTerms:
    """The sequence's geometric ratio, held below exp(10); one vote per token."""
    bounds = LossSpec(clip_low=settings["eps_clip_low"], clip_high=settings["eps_clip_high"])
    log_ratio, shared = held_below(batch, SKYRL_GSPO_CEILING)
    spec = replace(bounds, objective="gspo")
    terms = sequence_objectives.gspo(log_ratio, batch.advantages, batch.sequences, spec)
    answer.doubtful = near_sequence(batch, shared, bounds)
    seen = ~batch.dirty_rows("log_probs", "old_log_probs")[batch.index]
    answer.add_share("clip_ratio", active(terms.masks) & seen)
    return terms


def skyrl_cispo(settings: Row, batch: Batch, answer: Answer) -> ObjectiveTerms:
    """Bounds around 1; the ratio is computed in float32."""
    low, high = (
        1.0 - settings["cispo"]["cispo_eps_clip_low"],
        1.0 + settings["cispo"]["cispo_eps_clip_high"],
    )
    terms = token_objectives.cispo(batch.log_probs, batch.log_ratio, batch.advantages, low, high, SKYRL_CLAMP)
    answer.doubtful = batch.near(batch.log_ratio, low, high)
    answer.add_share("clip_ratio", terms.masks.low | terms.masks.high)
    ratio = reference.ratio(batch.log_ratio, SKYRL_CLAMP)
    answer.outputs |= {
        "cispo/ratio_mean": batch.mean(ratio),
        "cispo/ratio_clamped_mean": batch.mean(np.clip(ratio, low, high)),
        "cispo/ratio_max": float(ratio.max()),
        "cispo/ratio_min": float(ratio.min()),
    }
    return terms


def skyrl_importance_sampling(settings: Row, batch: Batch, answer: Answer) -> ObjectiveTerms:
    """The unclipped surrogate, without a clamp."""
    answer.outputs["importance_ratio"] = batch.mean(reference.ratio(batch.log_ratio))
    return token_objectives.importance_sampling(batch.log_ratio, batch.advantages, LossSpec())


def skyrl_rollout_is(settings: Row, batch: Batch, answer: Answer) -> ObjectiveTerms:
    """-w A log_probs with the ratio as a constant weight, 0 outside the open interval."""
    low, high = 1.0 - settings["eps_clip_low"], 1.0 + settings["eps_clip_high"]
    ratio = reference.ratio(batch.log_ratio, SKYRL_CLAMP)
    inside = (ratio > low) & (ratio < high)
    answer.doubtful = batch.near(batch.log_ratio, low, high)
    answer.add_share("clip_ratio", ~inside)
    whole = np.abs(skyrl_weights(settings, batch) * ratio * batch.advantages * batch.log_probs)
    answer.slack["loss"] = math.fsum(whole[answer.doubtful])
    nothing = token_objectives.unclipped(ratio)
    weight = np.where(inside, ratio, 0.0)
    return token_objectives.weighted_log_probs(weight, batch.log_probs, batch.advantages, nothing)


def skyrl_dppo(settings: Row, batch: Batch, answer: Answer) -> ObjectiveTerms:
    """The trust region in probabilities; a token without advantage is never dropped."""
    dppo = settings["dppo"]
    spec = LossSpec(
        {"binary_tv": "dppo-tv", "binary_kl": "dppo-kl"}[dppo["dppo_type"]],
        clip_low=dppo["delta_low"],
        clip_high=dppo["delta_high"],
        log_ratio_clamp=SKYRL_CLAMP,
        dppo_kl_eps=SKYRL_EPS,
    )
    terms = token_objectives.dppo(batch.log_probs, batch.old_log_probs, batch.advantages, spec)
    answer.doubtful = doubtful(spec, batch, None)
    answer.add_share("clip_ratio", active(terms.masks))
    ratio = reference.ratio(batch.log_ratio, SKYRL_CLAMP)
    whole = np.abs(skyrl_weights(settings, batch) * ratio * batch.advantages)
    answer.slack["loss"] = math.fsum(whole[answer.doubtful])
    return terms


SKYRL_LOSSES = {
    "sapo_policy_loss": skyrl_sapo,
    "gspo_policy_loss": skyrl_gspo,
    "compute_policy_loss_cispo": skyrl_cispo,
    "importance_sampling_loss": skyrl_importance_sampling,
    "rollout_is_policy_loss": skyrl_rollout_is,
    "dppo_policy_loss": skyrl_dppo,
}

FUNCTIONS = {
    "areal.utils.functional.ppo_actor_loss_fn": areal_actor,
    "areal.utils.functional.sapo_loss_fn": areal_sapo,
} | {SKYRL + name: skyrl_loss for name in SKYRL_LOSSES}
"""By the peer's function."""
