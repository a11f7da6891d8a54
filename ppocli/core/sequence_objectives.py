"""Objectives in which a token's loss depends on its whole sequence: gspo, gmpo, vespo. Float64 NumPy.

Arguments are arrays of valid tokens, (n,) float64, and `Sequences`, which says which of them belong together.
Conventions and zero advantages as in `core.token_objectives`. L is a sequence's number of valid tokens.
Losses are per token, so that every aggregation applies; "seq-mean-token-mean" gives the papers' mean over
sequences.

References
----------
.. [1] Zheng et al., "Group Sequence Policy Optimization", arXiv:2507.18071 (gspo, GSPO-token).
.. [2] Ahmadian et al., "Back to Basics", arXiv:2402.14740 (one ratio for the whole sequence: the product).
.. [3] Zhao et al., "Geometric-Mean Policy Optimization", arXiv:2507.20673 (gmpo).
.. [4] Shen et al., "VESPO", arXiv:2602.10693 (vespo).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocli.core import reference
from ppocli.core.token_objectives import (
    ObjectiveTerms,
    bounded_cispo,
    clamped,
    held,
    product,
    sapo,
    signed_masks,
    token_terms,
    unclipped,
    weighted_log_probs,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppocli.core.reference import ClipMasks
    from ppocli.core.spec import LossSpec

    Floats = NDArray[np.float64]


PIECE = 256
"""Tokens of a sequence that are summed at a time: errors grow with a sum's parts, not with its terms."""


class Sequences:
    """Which tokens belong together. A sequence without a valid token is not there: it counts nowhere.

    Attributes
    ----------
    index : (n,) integer
        The sequence of each token, 0 ... m - 1, every number taken.
    lengths : (m,) int64
        Valid tokens of each sequence, at least 1.
    """

    __slots__ = ("_cuts", "_first_cuts", "_order", "index", "lengths")

    def __init__(self, index: NDArray[np.intp], lengths: NDArray[np.int64]) -> None:
        self.index, self.lengths = index, lengths
        together = bool((index[1:] >= index[:-1]).all())
        self._order = None if together else np.argsort(index, kind="stable")
        n_pieces = -(-lengths // PIECE)
        self._first_cuts = np.cumsum(n_pieces) - n_pieces
        within = np.arange(int(n_pieces.sum())) - np.repeat(self._first_cuts, n_pieces)
        self._cuts = np.repeat(np.cumsum(lengths) - lengths, n_pieces) + PIECE * within

    @classmethod
    def from_ids(cls, ids: NDArray[Any]) -> Sequences:
        """Make them from one label per token, equal labels being one sequence, in order of the labels."""
        index = np.unique(ids, return_inverse=True)[1].reshape(-1)
        return cls(index, np.bincount(index).astype(np.int64))

    @classmethod
    def from_offsets(cls, offsets: NDArray[np.int64]) -> Sequences:
        """Make them from the bounds of contiguous sequences, (m + 1,); empty ones are left out."""
        lengths = np.diff(offsets)
        lengths = lengths[lengths > 0].astype(np.int64)
        return cls(np.repeat(np.arange(lengths.size), lengths), lengths)

    def total(self, values: Floats) -> Floats:
        """Return the sum over the tokens of each sequence, (m,)."""
        return self._reduce(np.add, values)

    def largest(self, values: Floats) -> Floats:
        """Return the largest value of each sequence, (m,)."""
        return self._reduce(np.maximum, values)

    def mean(self, values: Floats) -> Floats:
        """Return the mean over the tokens of each sequence, (m,)."""
        return self.total(values) / self.lengths

    def spread(self, values: Floats) -> Floats:
        """Return each sequence's value at every one of its tokens, (n,)."""
        return values[self.index]

    def _reduce(self, operation: np.ufunc, values: Floats) -> Floats:
        """Reduce in pieces, then the pieces."""
        if self.lengths.size == 0:
            return np.zeros(0)
        ordered = values if self._order is None else values[self._order]
        pieces = operation.reduceat(ordered, self._cuts)
        out: Floats = operation.reduceat(pieces, self._first_cuts)
        return out


def objective_terms(
    log_probs: Floats,
    old_log_probs: Floats,
    advantages: Floats,
    spec: LossSpec,
    *,
    rollout_log_probs: Floats | None = None,
    sequences: Sequences | None = None,
    log_correction: Floats | None = None,
) -> ObjectiveTerms:
    """Return loss, gradient and clip decisions of each token under any objective.

    Parameters
    ----------
    log_probs, old_log_probs, advantages : (n,) float64
    spec : LossSpec
    rollout_log_probs : (n,) float64, optional
        Needed by decoupled.
    sequences : Sequences, optional
        Needed by gspo, gmpo, vespo and a `ratio_level` of "sequence".
    log_correction : (m,) float64, optional
        vespo: added to the logarithm of each sequence's ratio.

    Raises
    ------
    UsageProblem
        Something that the objective needs is missing.
    """
    if not spec.shares_terms or sequences is None:
        return token_terms(log_probs, old_log_probs, advantages, spec, rollout_log_probs)
    log_ratio = reference.log_ratio(log_probs, old_log_probs)
    if spec.objective == "sapo":
        return sequence_sapo(log_ratio, advantages, sequences, spec)
    if spec.objective == "gspo":
        return gspo(log_ratio, advantages, sequences, spec)
    if spec.objective == "gmpo":
        return gmpo(log_ratio, advantages, sequences, spec)
    if spec.objective == "vespo":
        return vespo(log_probs, log_ratio, advantages, sequences, spec, log_correction)
    shared = sequences.spread(log_sequence_ratio(log_ratio, sequences))
    if spec.objective == "cispo":
        return bounded_cispo(log_probs, shared, advantages, spec)
    terms = sapo(shared, advantages, spec.sapo_tau_pos, spec.sapo_tau_neg, spec.log_ratio_clamp)
    return replace(terms, gradient=through_sequence(terms.gradient, sequences))


def log_sequence_ratio(log_ratio: Floats, sequences: Sequences, kind: str = "geometric") -> Floats:
    """Return the logarithm of each sequence's ratio, (m,), nats; it is finite where the ratio overflows.

    "geometric": mean log_ratio [1]_. "product": sum log_ratio [2]_.
    """
    return sequences.mean(log_ratio) if kind == "geometric" else sequences.total(log_ratio)


def through_sequence(gradient: Floats, sequences: Sequences, kind: str = "geometric") -> Floats:
    """Return d (sum of loss) / d log_probs of each token, where losses depend on the sequence's ratio.

    `gradient` holds each token's d loss / d log(sequence ratio). Every token of a sequence moves that
    logarithm by 1 / L ("geometric") or 1 ("product"), so each of them has the mean or the sum.
    """
    over = sequences.mean(gradient) if kind == "geometric" else sequences.total(gradient)
    return sequences.spread(over)


def length_share(sequences: Sequences, spec: LossSpec) -> Floats | float:
    """Return L / (L + ratio_eps) of each token's sequence: what the eps makes of a geometric mean."""
    if not spec.ratio_eps or spec.sequence_ratio != "geometric":
        return 1.0
    return sequences.spread(sequences.lengths / (sequences.lengths + spec.ratio_eps))


def gspo(log_ratio: Floats, advantages: Floats, sequences: Sequences, spec: LossSpec) -> ObjectiveTerms:
    """Return loss = -min(s A, clip(s, 1 - clip_low, 1 + clip_high) A), s the sequence's ratio [1]_.

    `dual_clip`, `delta` and `log_ratio_clamp` act on s as they do on a token's ratio in `reference.ppo_loss`;
    log s is at most `log_ratio_ceiling`, and has no slope where that holds it back.
    The masks are the token vote: every token has its sequence's ratio and its own advantage.

    gradient = the sequence's mean (product ratio: sum) of d loss / d log s: s depends on all its tokens. With
    `gspo_token_gradient` each token keeps d loss / d log s of its own loss; the two agree where the ratio is
    geometric and all advantages of a sequence are equal.
    """
    kind = spec.sequence_ratio
    share = length_share(sequences, spec)
    shared = sequences.spread(log_sequence_ratio(log_ratio, sequences, kind)) * share
    held_back = spec.log_ratio_ceiling is not None and shared > spec.log_ratio_ceiling
    shared = np.where(held_back, spec.log_ratio_ceiling or 0.0, shared)
    gradient = np.where(held_back, 0.0, reference.loss_gradient(shared, advantages, spec))
    if not spec.gspo_token_gradient:
        gradient = through_sequence(gradient, sequences, kind) * share
    return ObjectiveTerms(
        reference.ppo_loss(shared, advantages, spec),
        gradient,
        reference.clip_masks(shared, advantages, spec),
    )


def sequence_sapo(
    log_ratio: Floats, advantages: Floats, sequences: Sequences, spec: LossSpec
) -> ObjectiveTerms:
    """Return `sapo` of the sequence's geometric ratio in place of the token's.

    gradient = the sequence's mean of d loss / d log(ratio).
    """
    shared = sequences.spread(log_sequence_ratio(log_ratio, sequences))
    terms = sapo(shared, advantages, spec.sapo_tau_pos, spec.sapo_tau_neg, spec.log_ratio_clamp)
    return ObjectiveTerms(terms.loss, through_sequence(terms.gradient, sequences), terms.masks)


def sequence_votes(log_ratio: Floats, advantages: Floats, sequences: Sequences, spec: LossSpec) -> ClipMasks:
    """Return the clip decisions of gspo with one vote per sequence, (m,) bool.

    The sequence's ratio against the bounds; the active masks take the sign of the sequence's mean advantage.
    """
    log_s = log_sequence_ratio(log_ratio, sequences, spec.sequence_ratio)
    return reference.clip_masks(log_s, sequences.mean(advantages), spec)


def gmpo(log_ratio: Floats, advantages: Floats, sequences: Sequences, bounds: LossSpec) -> ObjectiveTerms:
    """Return loss = -g A with g = exp(mean over the sequence of e), a geometric mean of clipped ratios [3]_.

    Per token e = min(log_ratio, clip_high) where A > 0, max(log_ratio, -clip_low) where A < 0, 0 where A = 0:
    the bounds are those of the logarithm. The sequence's mean loss is -g mean(A). `seq_eps` is added to the
    length in both means.

    gradient = -g mean(A); 0 for a token that is clipped on the side that A pushes to, where |log_ratio| >
    log_ratio_clamp and where A = 0. The region is log_ratio < -clip_low or log_ratio > clip_high, decided by
    each token.
    """
    bounded = clamped(log_ratio, bounds.log_ratio_clamp)
    masks = signed_masks(bounded < -bounds.clip_low, bounded > bounds.clip_high, advantages)
    exponent = np.where(masks.active_high, bounds.clip_high, bounded)
    exponent = np.where(masks.active_low, -bounds.clip_low, exponent)
    exponent = np.where(advantages == 0.0, 0.0, exponent)
    lengths = sequences.lengths + bounds.seq_eps
    geometric = sequences.spread(reference.ratio(sequences.total(exponent) / lengths))
    mean_advantage = sequences.spread(sequences.total(advantages) / lengths)
    flat = masks.active_low | masks.active_high | (advantages == 0.0)
    with np.errstate(over="ignore"):
        loss = -product(geometric, advantages)
        slope = held(-product(geometric, mean_advantage), log_ratio, bounds.log_ratio_clamp)
    return ObjectiveTerms(loss + 0.0, np.where(flat & ~np.isnan(loss), 0.0, slope) + 0.0, masks)


def vespo(
    log_probs: Floats,
    log_ratio: Floats,
    advantages: Floats,
    sequences: Sequences,
    spec: LossSpec,
    log_correction: Floats | None = None,
) -> ObjectiveTerms:
    """Return loss = -phi(w) A log_probs, w = exp(sum log_ratio) the sequence's ratio, phi a constant [4]_.

    phi is `vespo_weight` with `vespo_k_pos`, `vespo_lambda_pos` where A >= 0 and `_neg` where A < 0.
    gradient = -phi A. Nothing counts as clipped.
    """
    phi = vespo_phi(log_ratio, advantages, sequences, spec, log_correction)
    return weighted_log_probs(phi, log_probs, advantages, unclipped(log_probs))


def vespo_phi(
    log_ratio: Floats,
    advantages: Floats,
    sequences: Sequences,
    spec: LossSpec,
    log_correction: Floats | None = None,
) -> Floats:
    """Return phi of each token, (n,).

    `log_ratio_clamp` holds each token's log_ratio, `vespo_log_low` and `vespo_log_high` hold log w, to which
    `log_correction`, (m,), has been added.
    """
    log_w = log_sequence_ratio(clamped(log_ratio, spec.log_ratio_clamp), sequences, "product")
    if log_correction is not None:
        log_w = log_w + log_correction
    if spec.vespo_log_low is not None or spec.vespo_log_high is not None:
        log_w = np.clip(log_w, spec.vespo_log_low, spec.vespo_log_high)
    negative = advantages < 0.0
    return vespo_weight(
        sequences.spread(log_w),
        np.where(negative, spec.vespo_k_neg, spec.vespo_k_pos),
        np.where(negative, spec.vespo_lambda_neg, spec.vespo_lambda_pos),
    )


def vespo_weight(log_w: Floats, k: Floats, lam: Floats) -> Floats:
    """Return phi = w^k exp(lam (1 - w)) through its logarithm, k log w + lam - lam w [4]_.

    lam > 0. 1 at w = 1; 0 where w overflows and, with k > 0, where it is 0.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.exp(k * log_w + lam - lam * np.exp(log_w))
