"""Presets of frameworks for language models: votes, sequences without a token, corrections, by hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ppocli
from ppocli.core.presets import FAMILIES, Preset, all_presets

if TYPE_CHECKING:
    from ppocli.core.report import LikeReport

MINE = ("trl", "liger", "nemo-rl", "slime", "prime-rl", "roll", "open-instruct")

# Three sequences of two tokens, the second without a valid one. Ratios 2, 1/2; -; 3, 1.
RATIO = np.array([[2.0, 0.5], [9.0, 9.0], [3.0, 1.0]])
OLD = np.full((3, 2), math.log(0.2))
MASK = np.array([[1, 1], [0, 0], [1, 1]])
ADVANTAGES = np.array([1.0, 1.0, 1.0])
ROLLOUT = OLD - np.log(np.array([[2.0, 0.5], [1.0, 1.0], [4.0, 1.0]]))


def like(name: str, **more: Any) -> tuple[LikeReport, dict[str, Any]]:
    arrays = {"log_probs": OLD + np.log(RATIO), "old_log_probs": OLD, "advantages": ADVANTAGES, "mask": MASK}
    report = ppocli.evaluate(**{**arrays, **more}, like=name)
    assert report.like is not None
    return report.like, dict(report.metrics)


@pytest.mark.parametrize(
    "one", [one for one in all_presets() if one.name.partition(":")[0] in MINE], ids=lambda one: one.name
)
class TestData:
    def test_names_and_kinds(self, one: Preset) -> None:
        names = [metric.name for metric in one.metrics]
        assert len(names) == len(set(names))
        assert set(one.spoils) <= set(names)
        kinds = [metric.kind for metric in one.metrics if metric.kind]
        assert len(kinds) == len(set(kinds))
        assert all(metric.text for metric in one.metrics)
        assert one.name.partition(":")[0] in FAMILIES

    def test_the_four_main_columns_give_a_policy_loss_or_a_reason(self, one: Preset) -> None:
        report, _ = like(one.name)
        kind = next(metric.name for metric in one.metrics if metric.kind == "loss")
        if report.metrics[kind] is None:
            # A penalty against the reference is on by default there.
            assert report.nulls[kind].reason == "no column for ref_log_probs"
        for name, value in report.metrics.items():
            assert (value is None) == (name in report.nulls), name

    def test_no_number_depends_on_how_the_input_is_cut(self, one: Preset) -> None:
        rng = np.random.default_rng(7)
        old = -rng.exponential(1.0, (40, 300))
        more = {
            "log_probs": old + rng.normal(0, 0.3, old.shape),
            "old_log_probs": old,
            "rollout_log_probs": old + rng.normal(0, 0.1, old.shape),
            "ref_log_probs": old + rng.normal(0, 0.2, old.shape),
            "entropy": rng.uniform(0, 2, old.shape),
            "advantages": rng.normal(0, 1, old.shape),
            "mask": (rng.uniform(size=old.shape) < 0.8).astype(int),
        }
        whole, _ = like(one.name, **more)
        cut, _ = like(one.name, **more, chunk_rows=301, threads=1)
        assert whole.metrics == cut.metrics


class TestVotes:
    def test_of_tokens(self) -> None:
        # Ratios 2 and 3 are above 1.2, with A > 0.
        report, _ = like("trl")
        assert report.metrics["clip_ratio/high_mean"] == 2 / 4
        assert report.metrics["clip_ratio/high_max"] == 1 / 2
        assert report.metrics["clip_ratio/low_mean"] == 0.0

    def test_of_sequences_empty_ones_vote_no(self) -> None:
        # Geometric means 1, 1 and sqrt 3.
        report, _ = like("trl:gspo")
        assert report.metrics["clip_ratio/high_mean"] == pytest.approx(1 / 3, rel=1e-15)
        assert report.metrics["clip_ratio/high_max"] == 1.0

    def test_a_sequence_without_a_token_is_the_smallest_share(self) -> None:
        report, _ = like("trl", advantages=-ADVANTAGES, mask=[[0, 1], [0, 0], [0, 0]])
        assert report.metrics["clip_ratio/low_mean"] == 1.0
        assert report.metrics["clip_ratio/low_min"] == 0.0

    def test_weights_of_sequences_empty_ones_have_1(self) -> None:
        # Products of old / rollout: 1 and 4.
        report, _ = like("trl", rollout_log_probs=ROLLOUT, rollout_is="sequence", rollout_is_cap=3.0)
        name = "sampling/importance_sampling_ratio"
        assert report.metrics[f"{name}/mean"] == pytest.approx((1 + 1 + 3) / 3, rel=1e-15)
        assert report.metrics[f"{name}/max"] == 3.0


class TestMeans:
    def test_sequences_without_a_token_count_where_the_framework_counts_them(self) -> None:
        # Losses -1.2, -0.5; -1.2, -1: means -0.85, -1.1.
        assert like("trl:grpo")[0].metrics["loss"] == pytest.approx(-1.95 / 3, rel=1e-15)
        assert like("slime")[0].metrics["train/pg_loss"] == pytest.approx(-1.95 / 3, rel=1e-15)
        assert like("roll")[0].metrics["actor/pg_loss@sum"] == pytest.approx(-1.95 / 2, rel=1e-15)

    def test_padding_counts_where_the_framework_counts_it(self) -> None:
        # Padding: loss -1.2 twice.
        report, _ = like("roll:token-mean")
        assert report.metrics["actor/pg_loss@sum"] == pytest.approx((-3.9 - 2.4) / 4, rel=1e-15)
        assert report.metrics["actor/ppo_ratio_clipfrac@sum"] == (3 + 2) / 4

    def test_luspo_of_liger_weighs_by_valid_length_and_divides_by_all_positions(self) -> None:
        report, _ = like("liger:luspo", kl_coef=0.0)
        assert report.metrics["loss"] == pytest.approx(2 * -3.9 / 6, rel=1e-15)

    def test_padding_that_is_not_finite_spoils(self) -> None:
        new = OLD + np.log(RATIO)
        new[1, 0] = math.nan
        report, metrics = like("trl", log_probs=new)
        assert report.nulls["loss"].nonfinite == "nan"
        assert report.metrics["clip_ratio/high_mean"] == 2 / 4
        assert metrics["policy_loss"] == pytest.approx(-3.9 / 4, rel=1e-15)


class TestCorrections:
    def test_rules_that_zero_keep_the_divisor(self) -> None:
        # Weights 2, 1/2; 4, 1: those outside [0.6, 3] have loss 0.
        report, metrics = like(
            "open-instruct", rollout_log_probs=ROLLOUT, kl_coef=0.0, clip_high=0.2, rollout_is="token",
            rollout_rs=("token_ratio:0.6_3",), rollout_rs_mode="zero",
        )  # fmt: skip
        expected = (2 * -1.2 + 0 + 0 - 1.0) / 4
        assert report.metrics["loss/policy_avg"] == pytest.approx(expected, rel=1e-15)
        assert metrics["policy_loss"] == pytest.approx(expected, rel=1e-15)
        assert metrics["n_tokens"] == 4
        assert report.metrics["val/rho_drop_frac"] == 2 / 4
        assert report.metrics["val/rho_drop_high_frac"] == 1 / 4

    def test_off_policy_sequences_with_a_negative_advantage_have_loss_0(self) -> None:
        # The mean of old - new is 0 and -log(3) / 2: with A < 0 only the second is near enough to keep.
        report, metrics = like("slime", advantages=-ADVANTAGES, off_policy_threshold=-0.1)
        expected = (3.0 + 1.0) / 2 / 3
        assert report.metrics["train/pg_loss"] == pytest.approx(expected, rel=1e-15)
        assert metrics["policy_loss_by_agg"]["token-mean"] == pytest.approx(1.0, rel=1e-15)
        assert report.metrics["train/opsm_clipfrac"] == pytest.approx(1 / 3, rel=1e-15)
