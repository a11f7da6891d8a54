"""Presets whose metrics depend on the loss, and settings that decide which columns they need."""

from __future__ import annotations

from typing import Any

import pytest

from ppocli.core.measures import METRIC, resolve
from ppocli.core.presets import all_presets, preset
from ppocli.core.terms import TERMS
from ppocli.errors import UsageProblem

CORRECTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"rollout_is": "token", "rollout_is_cap": 2.0},
    {"rollout_is": "sequence", "rollout_is_cap": 2.0, "rollout_is_low": 0.5, "rollout_is_mode": "mask"},
    {"rollout_rs": ("token_k1:0.6_1.4", "seq_mean_k3:0.01", "veto:1e-4")},
    {"rollout_is": "token", "rollout_is_cap": 2.0, "rollout_rs": ("seq_max_k2:0.5",)},
)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_metrics_under_a_correction(correction: dict[str, Any]) -> None:
    for one in all_presets():
        spec = one.loss_spec(correction)
        metrics = one.metrics_under(spec)
        names = [metric.name for metric in metrics]
        assert len(names) == len(set(names)), one.name
        for metric in metrics:
            for part in metric.measures:
                if part.term == METRIC:
                    continue
                resolve(part, spec)
                # A penalty without a coefficient needs no column.
                free = part.term == "entropy_bonus" or part.option("penalty")
                assert TERMS[part.term].roles(spec, part.term_options) or free, (one.name, metric.name)
        kinds = [metric.kind for metric in metrics if metric.kind]
        assert len(kinds) == len(set(kinds)), one.name


def test_metrics_that_need_a_correction_are_not_there_without_one() -> None:
    plain = preset("openrlhf")
    assert "train/is_filter_ratio" not in {one.name for one in plain.metrics_under(plain.loss_spec())}
    clipped = plain.loss_spec({"rollout_is": "token", "rollout_is_low": 0.5, "rollout_is_cap": 5.0})
    assert "train/is_filter_ratio" in {one.name for one in plain.metrics_under(clipped)}
    unclipped = preset("skyrl").loss_spec({"value_clip": None})
    names = {one.name for one in preset("skyrl").metrics_under(unclipped)}
    assert "critic/values_clipfrac" not in names


def test_what_a_mask_spoils_may_depend_on_the_aggregation() -> None:
    verl = preset("verl")
    assert not verl.spoilt("actor/pg_loss", verl.loss_spec())
    assert verl.spoilt("actor/pg_loss", verl.loss_spec({"agg": "seq-mean-token-sum"}))
    gspo = preset("verl:gspo")
    assert gspo.spoilt("actor/pg_loss", gspo.loss_spec())
    assert not gspo.spoilt("actor/ppo_kl", gspo.loss_spec({"agg": "seq-mean-token-sum"}))


def test_columns_that_a_correction_reads() -> None:
    decoupled = preset("areal:decoupled").loss_spec()
    assert decoupled.reads_rollout
    assert not decoupled.drops
    bypass = preset("verl:bypass_mode_reinforce").loss_spec({"rollout_rs": ("token_k1:2",)})
    assert not bypass.reads_rollout
    assert bypass.drops
    assert preset("areal:gspo").loss_spec().needs_sequences
    assert not preset("areal:sapo").loss_spec().needs_sequences
    assert preset("areal:sapo").loss_spec({"ratio_level": "sequence"}).needs_sequences


@pytest.mark.parametrize(
    "wrong",
    [
        {"rollout_rs_mode": "keep"},
        {"ratio_level": "word"},
        {"adv_level": "row"},
        {"ref_kl": "k4"},
        {"rollout_rs_prob_clamp": -1e-6},
    ],
)
def test_settings_outside_their_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem):
        preset("verl").loss_spec(wrong)
