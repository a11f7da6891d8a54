"""verl 0.9.1 and OpenRLHF 0.11.2: their corrections for tokens of another policy, through our formulas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from goldens.batch import Answer, Batch, active
from goldens.rows import Arrays, NotExpressed, Row

from ppocli.core import reference, rollout_correction, token_objectives
from ppocli.core.rollout_rules import RejectionRule, WeightRule, parse_rejection
from ppocli.core.sequence_objectives import Sequences, log_sequence_ratio
from ppocli.core.spec import LossSpec

if TYPE_CHECKING:
    from ppocli.core.rollout_correction import Rejection

Floats = np.ndarray

# ---- verl: weights, rejection masks and off-policy metrics -------------------------------------------------

EPS = 1e-8
"""verl adds this to the denominators of its masked means."""

CLAMP = 20.0
PREFIX = "rollout_corr/"


class Rows:
    """The valid tokens of a (B, T) batch, and verl's means over tokens and over rows, empty ones included."""

    def __init__(self, arrays: Arrays) -> None:
        self.mask = arrays["mask"] != 0
        self.index = np.nonzero(self.mask)[0]
        self.sequences = Sequences.from_ids(self.index)
        self.n, self.total = self.index.size, self.mask.shape[0]
        self.filled = np.unique(self.index)
        self.old = arrays["old_log_probs"][self.mask]
        self.rollout = arrays["rollout_log_probs"][self.mask]
        self.log_ratio = reference.log_ratio(self.old, self.rollout)

    def mean(self, values: Floats) -> float:
        """Mean over tokens, with verl's epsilon."""
        return math.fsum(values) / (self.n + EPS)

    def row_means(self, values: Floats) -> Floats:
        """Mean of each row that has tokens, with verl's epsilon, (m,)."""
        return self.sequences.total(values) / (self.sequences.lengths + EPS)

    def all_rows(self, values: Floats) -> Floats:
        """Values of the rows with tokens among all rows, (B,); 0 for the others."""
        out = np.zeros(self.total)
        out[self.filled] = values
        return out


def verl(row: Row, arrays: Arrays) -> Answer:
    """One call of the whole correction."""
    settings, rows, answer = row["settings"], Rows(arrays), Answer()
    metrics = off_policy(rows)
    if settings.get("rollout_is"):
        metrics |= weighted(settings, rows, answer)
    kept = np.ones(rows.n, bool)
    if settings.get("rollout_rs"):
        kept = rejected(settings, rows, metrics)
    answer.masks["modified_response_mask"] = kept
    answer.outputs = {PREFIX + name: value for name, value in metrics.items()}
    return answer


def off_policy(rows: Rows) -> dict[str, float]:
    """Perplexities per row, empty rows with perplexity 1; KL and chi-square."""
    training = rows.all_rows(-rows.row_means(rows.old))
    rollout = rows.all_rows(-rows.row_means(rows.rollout))
    difference = training - rollout
    tokens = reference.ratio(rows.log_ratio, CLAMP)
    products = log_sequence_ratio(rows.log_ratio, rows.sequences, "product")
    return {
        "training_ppl": float(np.mean(np.exp(training))),
        "training_log_ppl": float(np.mean(training)),
        "kl": rows.mean(reference.kl_k1(rows.log_ratio)),
        "k3_kl": rows.mean(reference.kl_k3(rows.log_ratio)),
        "rollout_ppl": float(np.mean(np.exp(rollout))),
        "rollout_log_ppl": float(np.mean(rollout)),
        "log_ppl_diff": float(np.mean(difference)),
        "log_ppl_abs_diff": float(np.mean(np.abs(difference))),
        "log_ppl_diff_max": float(np.max(difference)),
        "log_ppl_diff_min": float(np.min(difference)),
        "ppl_ratio": float(np.mean(np.exp(difference))),
        "chi2_token": rows.mean(tokens * tokens) - 1.0,
        "chi2_seq": float(np.mean(np.exp(2.0 * np.clip(rows.all_rows(products), -CLAMP, CLAMP)))) - 1.0,
    }


def weighted(settings: Row, rows: Rows, answer: Answer) -> dict[str, float]:
    """verl's statistics of the weights; some of the bounded ones, some of the raw ones."""
    level, threshold = settings["rollout_is"], settings["rollout_is_threshold"]
    ends = [float(part) for part in str(threshold).split("_")]
    cap, low = ends[-1], ends[0] if len(ends) == 2 else None
    mode = "truncate" if low is None else "mask"
    rule = WeightRule(level, cap, low, mode, log_ratio_clamp=CLAMP)
    weights = rollout_correction.importance_weights(rows.log_ratio, rows.sequences, rule)
    applied, floor = weights.applied, 1.0 / cap if low is None else low
    logs = rollout_correction.level_log_ratio(rows.log_ratio, rows.sequences, level)
    mean = rows.mean(applied)
    out = {
        "rollout_is_mean": mean,
        "rollout_is_max": float(np.max(applied)),
        "rollout_is_min": float(np.min(applied)),
        "rollout_is_ratio_fraction_high": rows.mean(weights.raw > cap),
        "rollout_is_ratio_fraction_low": rows.mean(weights.raw < floor),
        "rollout_is_std": math.sqrt(max(rows.mean(applied * applied) - mean * mean, 0.0)),
        # Our effective sample size is exact; verl's two epsilons are put back here.
        "rollout_is_eff_sample_size": rollout_correction.ess_frac(applied)
        * (rows.n + EPS)
        / rows.n
        * ((mean + EPS) / np.mean(applied)) ** 2,
    }
    if level == "sequence":
        per_row = rows.all_rows(log_sequence_ratio(rows.log_ratio, rows.sequences, "product"))
        out["rollout_is_max"] = math.exp(min(per_row.max(), CLAMP))
        out["rollout_is_min"] = math.exp(per_row.min())
        out["rollout_is_ratio_fraction_high"] = float(np.mean(per_row > math.log(cap)))
        out["rollout_is_ratio_fraction_low"] = float(np.mean(per_row < math.log(floor)))
        assert np.array_equal(logs, per_row[rows.index])
    if rows.n == 1:
        out["rollout_is_std"] = 0.0
    by_row, raw_by_row = rows.all_rows(rows.row_means(applied)), rows.all_rows(rows.row_means(weights.raw))
    out |= {
        "rollout_is_seq_mean": float(np.mean(by_row)),
        "rollout_is_seq_std": sample_std(by_row),
        "rollout_is_seq_max": float(np.max(by_row)),
        "rollout_is_seq_min": float(np.min(by_row)),
        "rollout_is_seq_max_deviation": float(np.max(np.abs(by_row - 1.0))),
        "rollout_is_seq_fraction_high": float(np.mean(raw_by_row > cap)),
        "rollout_is_seq_fraction_low": float(np.mean(raw_by_row < floor)),
    }
    if low is not None:
        out["rollout_is_oob_ratio"] = rows.mean(weights.touched)
    if settings.get("rollout_is_batch_normalize"):
        # Over tokens verl's epsilon is in the one mean, over sequences in the mean of each.
        by_token = level == "token"
        lengths = rows.sequences.lengths
        share = 1.0 if by_token else rows.sequences.spread(lengths / (lengths + EPS))
        factor = rollout_correction.batch_norm_factor(applied * share, rows.sequences, level)
        factor *= rows.n / (rows.n + EPS) if by_token else 1.0
        out["rollout_is_batch_norm_factor"] = factor
        applied = applied / factor
    answer.values["rollout_is_weights"] = applied
    return out


def sample_std(values: Floats) -> float:
    """ddof 1; 0 for a single value."""
    return float(np.std(values, ddof=1)) if values.size > 1 else 0.0


def rejected(settings: Row, rows: Rows, metrics: dict[str, float]) -> np.ndarray:
    """Every option's statistics, and the tokens that all options keep."""
    options = settings["rollout_rs"].split(",")
    bounds = settings["rollout_rs_threshold"].split(",")
    rejections = []
    for option, bound in zip(options, bounds, strict=True):
        rule = parse_rejection(f"{option}:{bound}")
        assert rule.name == option
        rejection = rollout_correction.reject(
            rows.old, rows.rollout, rows.sequences, rule, log_ratio_clamp=CLAMP
        )
        rejections.append(rejection)
        metrics |= {f"rollout_rs_{option}_{k}": v for k, v in option_metrics(rule, rejection, rows).items()}
    kept = rollout_correction.kept_by_all(rejections, rows.n)
    metrics["rollout_rs_masked_fraction"] = rows.mean(~kept)
    metrics["rollout_rs_seq_masked_fraction"] = rows_hit(~kept, rows) / rows.total
    return kept


def rows_hit(tokens: np.ndarray, rows: Rows) -> int:
    """Rows with at least one of these tokens."""
    return int(np.count_nonzero(rows.sequences.total(tokens.astype(float))))


def option_metrics(rule: RejectionRule, rejection: Rejection, rows: Rows) -> dict[str, float]:
    """What verl logs about one option."""
    low, high = rollout_correction.decision_bounds(rule)
    by_token = rule.level == "token"
    values = rejection.statistic
    if rule.level == "seq_mean":
        values = values * rows.sequences.lengths / (rows.sequences.lengths + EPS)
    tokens = values if by_token else rows.sequences.spread(values)
    by_row = rows.row_means(values) if by_token else values
    own = values if by_token else by_row
    held = np.clip(tokens, 0.0 if math.isinf(low) else low, high)
    variance = rows.mean(held * held) - rows.mean(held) ** 2
    out = {
        "mean": rows.mean(tokens),
        "max": float(np.max(own)),
        "min": float(np.min(own)),
        "fraction_high": rows.mean(rejection.high) if by_token else float(np.mean(rejection.high)),
        "fraction_low": rows.mean(rejection.low) if by_token else float(np.mean(rejection.low)),
        "std": math.sqrt(max(variance, 0.0)) if rows.n > 1 else 0.0,
        "seq_mean": float(np.mean(by_row)),
        "seq_std": sample_std(by_row),
        "seq_max": float(np.max(by_row)),
        "seq_min": float(np.min(by_row)),
        "seq_max_deviation": float(np.max(np.abs(by_row))),
        "seq_fraction_high": float(np.mean(by_row > high)),
        "masked_fraction": rows.mean(~rejection.kept),
        "seq_masked_fraction": rows_hit(~rejection.kept, rows) / rows.filled.size,
    }
    if rule.statistic == "k1":
        out["seq_fraction_low"] = float(np.mean(by_row < low))
    return out


# ---- OpenRLHF: its correction modes ------------------------------------------------------------------------

PROB_CLAMP = 1e-6
"""OpenRLHF holds probabilities this far from 0 and 1 before its binary KL."""


def openrlhf(row: Row, arrays: Arrays) -> Answer:
    """The clipped surrogate times the weight of one correction mode."""
    settings, batch, answer = row["settings"], Batch(row, arrays), Answer()
    if "rollout_log_probs" not in arrays:
        raise NotExpressed("OpenRLHF without a correction")
    rollout = batch.valid("rollout_log_probs")
    bounds = LossSpec(
        clip_low=settings["clip_eps_low"],
        clip_high=settings["clip_eps_high"],
        dual_clip=settings.get("dual_clip"),
        log_ratio_clamp=CLAMP,
    )
    weights = np.full(batch.n, 1.0 / batch.n)
    answer.outputs["ppo_kl"] = batch.mean(-batch.log_ratio)
    if settings.get("policy_loss_type") == "gspo":
        log_ratio = reference.log_ratio(batch.log_probs, rollout)
        shared = batch.sequences.spread(log_sequence_ratio(log_ratio, batch.sequences))
        unclamped = LossSpec(clip_low=bounds.clip_low, clip_high=bounds.clip_high)
        terms = token_objectives.ppo(shared, batch.advantages, unclamped)
        # OpenRLHF takes the mean over sequences here, with an epsilon in each sequence's mean.
        lengths = batch.lengths[batch.index].astype(float)
        weights = 1.0 / ((lengths + EPS) * np.count_nonzero(batch.lengths))
    else:
        terms = token_objectives.ppo(batch.log_ratio, batch.advantages, bounds)
        weights = weights * openrlhf_weights(settings, batch, rollout, answer)
        answer.outputs["vllm_kl"] = batch.mean(rollout - batch.old_log_probs)
    answer.add_loss(terms, weights)
    answer.add_share("clip_ratio", active(terms.masks))
    answer.gradient = None
    return answer


def openrlhf_weights(settings: Row, batch: Batch, rollout: Floats, answer: Answer) -> Floats:
    """The weight of each valid token; the share that the mode filters."""
    low, high = settings["is_correction_threshold"]
    log_ratio = reference.log_ratio(batch.old_log_probs, rollout)
    if settings["is_correction_mode"] == "clip":
        held = rollout_correction.importance_weights(
            log_ratio, batch.sequences, WeightRule("token", high, low)
        )
        answer.outputs["is_filter_ratio"] = batch.mean(held.touched.astype(float))
        return held.applied
    by_token = settings["is_correction_level"] == "token"
    rule = RejectionRule("token" if by_token else "seq_mean", settings["is_correction_gating"], low, high)
    rejection = rollout_correction.reject(
        batch.old_log_probs, rollout, batch.sequences, rule, prob_clamp=PROB_CLAMP
    )
    if by_token:
        answer.outputs["is_filter_ratio"] = batch.mean((~rejection.kept).astype(float))
    else:
        # A row without a valid token counts as filtered.
        empty = batch.lengths.size - np.count_nonzero(batch.lengths)
        dropped = int(np.count_nonzero(rejection.low | rejection.high)) + empty
        answer.outputs["is_filter_ratio"] = dropped / batch.lengths.size
    plain = rollout_correction.importance_weights(log_ratio, batch.sequences, WeightRule())
    return np.where(rejection.kept, plain.raw, 0.0)


FUNCTIONS = {
    "verl.trainer.ppo.rollout_corr_helper.compute_rollout_correction_and_rejection_mask": verl,
    "openrlhf.models.loss.PolicyLoss": openrlhf,
}
"""By the peer's function."""
