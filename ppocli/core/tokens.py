"""`Tokens`: columns of valid tokens, and what several terms are made of, computed once. Float64 NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ppocli.core import reference, token_objectives
from ppocli.core.rollout_correction import importance_weights
from ppocli.core.sequence_objectives import Sequences, objective_terms
from ppocli.core.spec import SEQUENCE_OBJECTIVES
from ppocli.core.token_objectives import ObjectiveTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from ppocli.core.rollout_correction import Weights
    from ppocli.core.spec import LossSpec

    Floats = NDArray[np.float64]

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
    """

    def __init__(self, columns: Mapping[str, Floats], sequences: Sequences | None = None) -> None:
        self.columns = columns
        self.sequences = sequences
        self.n = next(iter(columns.values())).size
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
        return self._once((new, old), lambda: reference.log_ratio(self.columns[new], self.columns[old]))

    def ratio(self, new: str = NEW, old: str = OLD, clamp: float | None = None) -> Floats:
        """Return exp of that difference, held within plus or minus `clamp` first."""
        return self._once((new, old, clamp), lambda: reference.ratio(self.log_ratio(new, old), clamp))

    def together(self) -> Sequences:
        """Return which tokens belong together; without sequences each token is one."""
        if self.sequences is None:
            ones = np.ones(self.n, dtype=np.int64)
            return self._once("alone", lambda: Sequences(np.arange(self.n), ones))
        return self.sequences

    def weights(self, spec: LossSpec) -> Weights | None:
        """Return the importance weights against the rollout policy, or None where the loss has none."""
        rule = spec.weight_rule
        if rule is None or self._weights is not None:
            return self._weights
        log_ratio = self.log_ratio(OLD, ROLLOUT)
        return self._once(rule, lambda: importance_weights(log_ratio, self.together(), rule))

    def terms(self, spec: LossSpec) -> ObjectiveTerms:
        """Return loss, gradient and clip decisions, weighted where the loss is."""
        return self._once(spec, lambda: self._weighted(spec))

    def _weighted(self, spec: LossSpec) -> ObjectiveTerms:
        """Compute the terms of the objective and multiply them by the weights."""
        plain = spec
        if spec.objective == "decoupled":
            # Its weights are those of tokens unless another level is asked for; bounds need one.
            level = "token" if spec.rollout_is == "none" else spec.rollout_is
            plain = replace(spec, objective="ppo", rollout_is=level)
        sequences = self.together() if plain.objective in SEQUENCE_OBJECTIVES else None
        terms = objective_terms(
            self.columns[NEW], self.columns[OLD], self.columns["advantages"], plain, sequences=sequences
        )
        weights = self.weights(spec)
        if weights is None:
            return terms
        with np.errstate(over="ignore", invalid="ignore"):
            loss = token_objectives.product(weights.applied, terms.loss) + 0.0
            gradient = token_objectives.product(weights.applied, terms.gradient) + 0.0
        return ObjectiveTerms(loss, gradient, terms.masks)

    def _once(self, key: Any, compute: Callable[[], Known]) -> Known:
        """Return what is known under a key, computed at the first call."""
        if key not in self._known:
            self._known[key] = compute()
        known: Known = self._known[key]
        return known
