"""`Tokens`: columns of valid tokens, and what several terms are made of, computed once. Float64 NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ppocli.core import reference, token_objectives
from ppocli.core.rollout_correction import Weights, importance_weights, kept_by_all, reject
from ppocli.core.sequence_objectives import Sequences, objective_terms
from ppocli.core.token_objectives import ObjectiveTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from ppocli.core.rollout_correction import Rejection
    from ppocli.core.spec import LossSpec

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

Known = TypeVar("Known")
NEW, OLD, ROLLOUT, REF = "log_probs", "old_log_probs", "rollout_log_probs", "ref_log_probs"


class Tokens:
    """Columns of tokens, and what several terms are made of, computed once.

    Parameters
    ----------
    columns : mapping of role to (n,) float64
        `advantages` are those that the loss uses.
    sequences : Sequences, optional
        Which tokens belong together, where these are whole sequences.
    valid : (n,) bool, optional
        Which tokens are not padding, where padding is there too. None: none is.
    """

    def __init__(
        self,
        columns: Mapping[str, Floats],
        sequences: Sequences | None = None,
        valid: NDArray[np.bool_] | None = None,
    ) -> None:
        self.columns = columns
        self.sequences = sequences
        self.n = next(iter(columns.values())).size
        self.valid = np.ones(self.n, dtype=np.bool_) if valid is None else valid
        self._known: dict[Any, Any] = {}
        self._weights: Weights | None = None

    def with_weights(self, weights: Weights | None) -> Tokens:
        """Return self, with weights that were made before some tokens of their sequences were dropped."""
        self._weights = weights
        return self

    def column(self, role: str) -> Floats:
        """Return a column."""
        return self.columns[role]

    def log_ratio(self, new: str = NEW, old: str = OLD) -> Floats:
        """Return the difference of two columns of log-probs."""
        return self.once((new, old), lambda: reference.log_ratio(self.columns[new], self.columns[old]))

    def ratio(self, new: str = NEW, old: str = OLD, clamp: float | None = None) -> Floats:
        """Return exp of that difference, held within plus or minus `clamp` first."""
        return self.once((new, old, clamp), lambda: reference.ratio(self.log_ratio(new, old), clamp))

    def together(self) -> Sequences:
        """Return which tokens belong together; without sequences each token is one."""
        if self.sequences is None:
            ones = np.ones(self.n, dtype=np.int64)
            return self.once("alone", lambda: Sequences(np.arange(self.n), ones))
        return self.sequences

    def weights(self, spec: LossSpec) -> Weights | None:
        """Return the importance weights against the rollout policy, or None where the loss has none."""
        rule = spec.weight_rule
        if rule is None or self._weights is not None:
            return self._weights
        pair = spec.correction_pair
        weights = self.once(
            (rule, pair), lambda: importance_weights(self.log_ratio(*pair), self.together(), rule)
        )
        if spec.rollout_rs_mode != "clamp" or not spec.rejections:
            return weights
        kept = self.kept(spec)
        applied = np.where(kept, weights.raw, weights.applied)
        return Weights(weights.raw, applied, weights.low & ~kept, weights.high & ~kept)

    def kept(self, spec: LossSpec) -> Bools:
        """Return which tokens satisfy every rule, (n,) bool."""
        if not spec.rejections:
            return np.ones(self.n, np.bool_)
        return self.once(("kept", spec), lambda: self._satisfying(spec))

    def _satisfying(self, spec: LossSpec) -> Bools:
        """Apply the rules."""
        return kept_by_all(self.rejected(spec), self.n)

    def rejected(self, spec: LossSpec) -> list[Rejection]:
        """Return what each rule decides."""
        if not spec.rejections:
            return []
        numerator, denominator = (self.columns[role] for role in spec.correction_pair)
        clamp, prob_clamp = spec.rollout_is_clamp, spec.rollout_rs_prob_clamp
        return [
            reject(
                numerator, denominator, self.together(), rule, log_ratio_clamp=clamp, prob_clamp=prob_clamp
            )
            for rule in spec.rejections
        ]

    def advantages(self, spec: LossSpec) -> Floats:
        """Return the advantages of the loss: those of the tokens, or their sequence's mean."""
        given = self.columns["advantages"]
        if spec.adv_level == "token":
            return given
        together = self.together()
        return self.once("mean advantage", lambda: together.spread(together.mean(given)))

    def terms(self, spec: LossSpec) -> ObjectiveTerms:
        """Return loss, gradient and clip decisions, weighted where the loss is."""
        return self.once(spec, lambda: self._weighted(spec))

    def _weighted(self, spec: LossSpec) -> ObjectiveTerms:
        """Compute the terms of the objective and multiply them by the weights."""
        plain = spec
        if spec.objective == "decoupled":
            # Its weights are those of tokens unless another level is asked for; bounds need one.
            level = "token" if spec.rollout_is == "none" else spec.rollout_is
            plain = replace(spec, objective="ppo", rollout_is=level)
        terms = objective_terms(
            self.columns[NEW], self.columns[OLD], self.advantages(spec), plain,
            sequences=self.together() if plain.shares_terms else None,
            log_correction=self.log_correction(plain),
        )  # fmt: skip
        factor = self.factor(spec)
        if factor is None:
            return terms
        used = self.advantages(spec)
        loss, gradient = (
            token_objectives.weighted(factor, term, used) for term in (terms.loss, terms.gradient)
        )
        return ObjectiveTerms(loss, gradient, terms.masks)

    def log_correction(self, spec: LossSpec) -> Floats | None:
        """Return what is added to log w of each sequence in vespo, weights below 1e-8 held there, or None.

        A weight of the sequence counts once, weights of tokens as their product.
        """
        weights = self.weights(spec) if spec.vespo_rollout_is else None
        if weights is None:
            return None
        logs = np.log(np.maximum(weights.applied, 1e-8))
        return self.together().total(logs) if spec.rollout_is == "token" else self.together().mean(logs)

    def factor(self, spec: LossSpec) -> Floats | None:
        """Return what each token's loss is multiplied by: its weight, and 0 where it is held back."""
        weights = None if spec.vespo_rollout_is else self.weights(spec)
        factor = None if weights is None else weights.applied
        if factor is not None and spec.objective == "gmpo":
            factor = self._geometric(factor)
        counted = self.counted(spec)
        return factor if counted is None else np.where(counted, 1.0 if factor is None else factor, 0.0)

    def counted(self, spec: LossSpec) -> Bools | None:
        """Return the tokens that keep their loss although all of them count, or None: all."""
        counted = self.kept(spec) if spec.rejections and spec.rollout_rs_mode == "zero" else None
        if spec.off_policy_threshold is not None:
            anchor = self.log_ratio(NEW, OLD if spec.off_policy_anchor == "old" else ROLLOUT)
            drift = -self.together().spread(self.together().mean(anchor))
            near = (self.advantages(spec) >= 0.0) | (drift <= spec.off_policy_threshold)
            counted = near if counted is None else counted & near
        return counted

    def _geometric(self, weights: Floats) -> Floats:
        """Return the geometric mean of a sequence's weights, which gmpo has inside its own mean.

        With 1e-10 added to each, as in verl: a weight of 0 does not erase its sequence.
        """
        together = self.together()
        return together.spread(np.exp(together.mean(np.log(weights + 1e-10))))

    def once(self, key: Any, compute: Callable[[], Known]) -> Known:
        """Return what is known under a key, computed at the first call."""
        if key not in self._known:
            self._known[key] = compute()
        known: Known = self._known[key]
        return known
