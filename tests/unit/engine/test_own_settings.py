"""Settings of some objectives: they change something under these, and are refused under the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ppocli
from ppocli.core.own_settings import OBJECTIVES_OF, check_given
from ppocli.core.presets import all_presets
from ppocli.core.spec import OBJECTIVES, LossSpec
from ppocli.errors import UsageProblem

CHANGED: dict[str, Any] = {
    "dual_clip": 1.5,
    "delta": 1.3,
    "log_ratio_ceiling": 0.01,
    "sequence_ratio": "product",
    "ratio_eps": 0.5,
    "gspo_token_gradient": True,
    "cispo_low": 0.99,
    "cispo_high": 1.01,
    "cispo_masked": True,
    "ratio_level": "sequence",
    "sapo_tau_pos": 2.0,
    "sapo_tau_neg": 2.0,
    "dppo_weight_cap": 1.01,
    "dppo_two_sided": True,
    "dppo_kl_eps": 0.1,
    "dro_beta": 1.0,
    "vespo_k_pos": 1.0,
    "vespo_lambda_pos": 1.0,
    "vespo_k_neg": 1.0,
    "vespo_lambda_neg": 1.0,
    "vespo_log_low": -0.01,
    "vespo_log_high": 0.01,
    "vespo_rollout_is": True,
}
"""Another value for each setting."""

NO_EFFECT = {("dppo_kl_eps", "dppo-tv")}
"""Allowed because frameworks give it to both."""


def columns() -> dict[str, Any]:
    """Far from on policy, and the first sequence by the same amount at each token."""
    rng = np.random.default_rng(4)
    old = -rng.exponential(1.0, (12, 10)) - 0.5
    log_ratio = rng.normal(0.0, 0.6, old.shape)
    log_ratio[0], log_ratio[1] = 0.9, -0.9
    new = np.minimum(old + log_ratio, -1e-3)
    advantages = rng.normal(0.0, 1.0, old.shape)
    advantages[0] = -1.0
    return {
        "log_probs": new,
        "old_log_probs": old,
        "rollout_log_probs": old + rng.normal(0.0, 0.3, old.shape),
        "advantages": advantages,
    }


def loss_of(**settings: Any) -> tuple[Any, Any]:
    metrics = ppocli.evaluate(**columns(), **settings).metrics
    return metrics["policy_loss"], metrics["grad_abs_mean"]


def test_every_setting_has_another_value() -> None:
    assert CHANGED.keys() == OBJECTIVES_OF.keys()
    assert all(getattr(LossSpec(), name) != value for name, value in CHANGED.items())
    assert set().union(*OBJECTIVES_OF.values()) <= set(OBJECTIVES)


@pytest.mark.parametrize(("name", "objective"), [(n, o) for n, used in OBJECTIVES_OF.items() for o in used])
def test_it_changes_the_loss_where_it_is_used(name: str, objective: str) -> None:
    base = {"objective": objective, **({"rollout_is": "token"} if name == "vespo_rollout_is" else {})}
    same = loss_of(**base) == loss_of(**base, **{name: CHANGED[name]})
    assert same == ((name, objective) in NO_EFFECT)


@pytest.mark.parametrize("name", OBJECTIVES_OF)
def test_it_is_refused_where_it_is_not(name: str) -> None:
    for objective in set(OBJECTIVES) - set(OBJECTIVES_OF[name]):
        with pytest.raises(UsageProblem, match=f"and changes nothing under {objective}") as caught:
            ppocli.evaluate(**columns(), objective=objective, **{name: CHANGED[name]})
        assert caught.value.hint == f"leave it out, or ask for --objective {OBJECTIVES_OF[name][0]}"
        # The value that holds anyway asks for nothing.
        check_given((name,), LossSpec(objective=objective), like=False)


@pytest.mark.parametrize("name", OBJECTIVES_OF)
def test_without_it_an_objective_that_does_not_use_it_is_the_same(name: str) -> None:
    """What is refused would have changed neither loss nor gradient; but a weight that vespo alone moves."""
    if name == "vespo_rollout_is":
        return
    for objective in set(OBJECTIVES) - set(OBJECTIVES_OF[name]):
        both = LossSpec(objective=objective), LossSpec(**{"objective": objective, name: CHANGED[name]})
        assert loss_under(both[0]) == loss_under(both[1]), objective


def loss_under(spec: LossSpec) -> list[float]:
    """By the NumPy formulas, token by token."""
    from ppocli.core.sequence_objectives import Sequences, objective_terms

    c = {role: values.ravel() for role, values in columns().items()}
    sequences = Sequences.from_ids(np.repeat(np.arange(12), 10))
    terms = objective_terms(
        c["log_probs"], c["old_log_probs"], c["advantages"], spec,
        rollout_log_probs=c["rollout_log_probs"], sequences=sequences,
    )  # fmt: skip
    made: list[float] = [*np.asarray(terms.loss).tolist(), *np.asarray(terms.gradient).tolist()]
    return made


def test_what_a_framework_sets_is_its_own_business() -> None:
    for one in all_presets():
        spec = one.loss_spec()
        check_given(spec.to_dict(), spec, like=True)
    ppocli.evaluate(**columns(), like="verl:sapo", objective="ppo")
    with pytest.raises(UsageProblem, match="sapo_tau_pos is a setting of sapo"):
        ppocli.evaluate(**columns(), like="verl", sapo_tau_pos=2.0)
    # A framework's own clip fraction may be that of sequences, whatever the objective.
    ppocli.evaluate(**columns(), like="verl", ratio_level="sequence")
