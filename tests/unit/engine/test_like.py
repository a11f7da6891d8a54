"""Measures and presets through `evaluate`, against numbers worked out by hand or by plain loops."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core.measures import measure
from ppocli.core.sequence_objectives import Sequences
from ppocli.core.spec import LossSpec
from ppocli.engine.measures import Batch, MeasureSet, MeasureTotals, Wanted

SPEC = LossSpec()


def deviation_of(parts: list[list[np.ndarray]], reduce: str, ddof: int = 0) -> float:
    """A variance of rewards: of files, of batches; with sequences where a batch is a list of them."""
    wanted = Wanted(SPEC, measure("column", reduce, role="rewards", ddof=ddof))
    measures = MeasureSet((wanted,))
    total = MeasureTotals(1)
    for file in parts:
        totals = measures.start(frozenset({"rewards"}), sequences=True)
        for values in file:
            batch = Batch({"rewards": values}, np.ones(values.size, np.bool_))
            for which, rows, part in measures.evaluate(batch, totals):
                totals.add(which, rows, part)
        total.merge(totals)
    value, nonfinite = measures.value(wanted, total, None)
    assert nonfinite is None
    return value


@pytest.mark.parametrize("ddof", [0, 1])
def test_variances_do_not_lose_digits_to_a_large_mean(ddof: int) -> None:
    values = 1e9 + np.tile([0.0, 1.0, 2.0, 3.0], 2048)
    # Of 0, 1, 2, 3 the squares about 1.5 are 5 in all.
    expected = 2048 * 5.0 / (values.size - ddof)
    cut = [[values[:4096], values[4096:6144]], [values[6144:]]]
    assert deviation_of(cut, "token-var", ddof) == pytest.approx(expected, rel=1e-14)
    assert deviation_of([[values]], "token-std", ddof) == pytest.approx(math.sqrt(expected), rel=1e-14)


def test_variances_are_the_same_bits_however_batches_are_cut() -> None:
    values = np.random.default_rng(5).normal(3.0, 1.0, 3 * 2048)
    whole = deviation_of([[values]], "token-var")
    assert deviation_of([[values[:2048], values[2048:]]], "token-var") == whole
    assert whole == pytest.approx(statistics.pvariance(values.tolist()), rel=1e-12)


def test_equal_values_have_no_variance_and_one_value_none_with_ddof_1() -> None:
    assert deviation_of([[np.full(3, 0.1)]], "token-var", 1) == 0.0
    assert math.isnan(deviation_of([[np.full(1, 0.1)]], "token-var", 1))


def test_variances_over_sequences() -> None:
    values = np.array([1.0, 2.0, 6.0, 1e6, 1e6 + 2.0])
    offsets = np.array([0, 3, 5])
    assert Sequences.from_offsets(offsets).lengths.tolist() == [3, 2]
    for reduce, expected in (
        # Means 3 and 1e6 + 1.
        ("seq-var-token-mean", (1e6 + 1.0 - 3.0) ** 2 / 4.0),
        ("seq-var-token-max", (1e6 + 2.0 - 6.0) ** 2 / 4.0),
    ):
        wanted = Wanted(SPEC, measure("column", reduce, role="rewards"))
        measures = MeasureSet((wanted,))
        totals = measures.start(frozenset({"rewards"}), sequences=True)
        batch = Batch({"rewards": values}, np.ones(5, np.bool_), offsets)
        for which, rows, part in measures.evaluate(batch, totals):
            totals.add(which, rows, part)
        assert measures.value(wanted, totals, None)[0] == pytest.approx(expected, rel=1e-14)


def one_step(**settings: object) -> ppocli.EvalReport:
    return ppocli.evaluate(
        log_probs=[-0.1], old_log_probs=[-0.3], advantages=[1.5], values=[0.5], returns=[1.0],
        old_values=[0.4], entropy=[0.7], **settings,
    )  # fmt: skip


def test_one_step_is_nan_where_a_framework_divides_by_no_deviation() -> None:
    report = one_step(like="cleanrl")
    assert report.like is not None
    assert report.like.metrics["losses/policy_loss"] is None
    assert report.like.nulls["losses/policy_loss"].nonfinite == "nan"
    assert report.like.metrics["losses/clipfrac"] == 1.0
    # 0.25 against (0.4 + 0.1 - 1)^2, the same value: half of 0.25.
    assert report.like.metrics["losses/value_loss"] == pytest.approx(0.125)
    assert report.like.nulls["losses/explained_variance"].nonfinite == "nan"
    # The report's own loss is under the same settings: not a number, and not 0.
    assert report.metrics["policy_loss"] is None
    assert report.nulls["policy_loss"].nonfinite == "nan"
    assert "cannot be normalised" in report.nulls["policy_loss"].reason
    assert report.metrics["clip_frac"] == 1.0


def test_one_step_is_left_as_it_is_where_a_framework_skips_it() -> None:
    report = one_step(like="sb3")
    assert report.like is not None
    assert report.like.metrics["train/policy_gradient_loss"] == pytest.approx(-1.5 * 1.2)


def test_one_step_is_0_where_the_deviation_has_a_floor() -> None:
    # (1.5 - 1.5) / max(0, 1e-4)
    report = one_step(like="rllib")
    assert report.like is not None
    assert report.like.metrics["policy_loss"] == 0.0
    assert report.metrics["policy_loss"] == 0.0


def padded(**changes: np.ndarray) -> dict[str, np.ndarray]:
    """Two steps and one of padding: ratios 1, 2, and e^0.5 in the padding."""
    return {
        "log_probs": np.array([[0.0, math.log(2.0)], [0.5, 0.0]]),
        "old_log_probs": np.zeros((2, 2)),
        "advantages": np.array([[1.0, 1.0], [9.0, -2.0]]),
        "mask": np.array([[1, 1], [0, 1]]),
        **changes,
    }


def test_means_over_padding_are_means_over_padding() -> None:
    like = ppocli.evaluate(**padded(), like="torchrl").like
    assert like is not None
    # Loss over the three valid steps: -1, -1.2, 2. The rest over all four.
    assert like.metrics["loss_objective"] == pytest.approx((-1.0 - 1.2 + 2.0) / 3.0)
    assert like.metrics["clip_fraction"] == 0.5
    assert like.metrics["kl_approx"] == pytest.approx(-(math.log(2.0) + 0.5) / 4.0)
    assert like.metrics["max_ratio"] == pytest.approx(2.0)
    first, second = 4.0 + math.exp(0.5), 6.0 + math.e
    assert like.metrics["ESS"] == pytest.approx(first * first / (4.0 * second))
    # rl_games divides the sum over valid steps by all of them.
    like = ppocli.evaluate(**padded(), like="rl-games", adv_norm="none").like
    assert like is not None
    assert like.metrics["losses/a_loss"] == pytest.approx((-1.0 - 1.2 + 2.0) / 4.0)


def test_nan_in_the_padding_spoils_what_is_multiplied_by_the_mask() -> None:
    nan = np.array([[0.0, 0.0], [math.nan, 0.0]])
    # RLinf selects the ratio, and multiplies the product with the advantage.
    like = ppocli.evaluate(**padded(old_log_probs=nan), like="rlinf").like
    assert like is not None
    assert like.metrics["actor/policy_loss"] == pytest.approx((-1.0 - 1.2 + 2.0) / 3.0)
    like = ppocli.evaluate(**padded(advantages=nan + 1.0), like="rlinf").like
    assert like is not None
    assert like.metrics["actor/policy_loss"] is None
    assert like.nulls["actor/policy_loss"].nonfinite == "nan"
    assert like.metrics["actor/ratio"] == pytest.approx(4.0 / 3.0)


def test_a_decoupled_loss_with_a_threshold() -> None:
    columns = {
        "log_probs": [0.0, 0.0],
        "old_log_probs": [0.0, 0.0],
        "rollout_log_probs": [math.log(2.0), -1.0],
        "advantages": [3.0, 5.0],
    }
    # Weights 1/2 and e: the second is above 2 and dropped.
    like = ppocli.evaluate(**columns, like="rlinf:decoupled", rollout_is_cap=2.0).like
    assert like is not None
    assert like.metrics["actor/policy_loss"] == pytest.approx(-1.5)
    assert like.metrics["actor/behav_clip_fraction"] == 0.5
    assert like.metrics["actor/behav_approx_kl"] == pytest.approx(math.log(2.0))
    # Without a preset the dropped token counts with weight 0.
    report = ppocli.evaluate(**columns, objective="decoupled", rollout_is_cap=2.0, rollout_is_mode="mask")
    assert report.metrics["policy_loss"] == pytest.approx(-0.75)


@pytest.mark.parametrize("name", ["trl:grpo", "verl", "verl:geo_mean", "slime", "roll", "nemo-rl:gspo"])
def test_a_stored_sequence_without_a_token_counts_in_every_layout(tmp_path: Path, name: str) -> None:
    rows = {
        "log_probs": [[-1.0, -1.2], [], [-0.5]],
        "old_log_probs": [[-1.1, -1.0], [], [-0.6]],
        "rollout_log_probs": [[-1.1, -1.1], [], [-0.7]],
        "advantages": [[1.0, 2.0], [], [-1.0]],
    }
    lists = {role: pa.array(values, pa.list_(pa.float64())) for role, values in rows.items()}
    pq.write_table(pa.table(lists), tmp_path / "lists.parquet")
    flat: dict[str, list[float]] = {
        role: [x for row in values for x in (row or [-9.0])] for role, values in rows.items()
    }
    ids = {"mask": [1, 1, 0, 1], "sequence_id": [7, 7, 3, 5]}
    pq.write_table(pa.table({**flat, **ids}), tmp_path / "flat.parquet")
    padded = {role: np.array([(row + [-9.0] * 2)[:2] for row in values]) for role, values in rows.items()}
    np.savez(tmp_path / "padded.npz", **padded, mask=np.array([[1, 1], [0, 0], [1, 0]], bool))

    found = [
        ppocli.evaluate(tmp_path / file, like=name).like
        for file in ("lists.parquet", "flat.parquet", "padded.npz")
    ]
    assert found[0] is not None
    assert found[0] == found[1] == found[2]
    if name == "trl:grpo":  # ratios e^0.1, e^-0.2 -> -(1.1052 * 1 + 0.8187 * 2) / 2 and e^0.1 -> 1.1052, of 3
        first = -(math.exp(0.1) + 2.0 * math.exp(-0.2)) / 2.0
        assert found[0].metrics["loss"] == pytest.approx((first + math.exp(0.1)) / 3.0, rel=1e-12)
    if name == "roll":
        assert found[0].metrics["actor/total_samples@sum"] == 3.0
