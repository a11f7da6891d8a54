"""Totals over blocks and files: strict values, what float64 would have given, extremes with their places."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core.partials import PIECE
from ppocli.engine.totals import KeyedTable
from ppocli.kernels import sequence

if TYPE_CHECKING:
    from ppocli.core.report import EvalReport

NAN, INF = math.nan, math.inf
NO_IDS = np.zeros(0, dtype=np.uint8)
BORDERS = (0, 255, 256, 2047, 2048, 4999)
"""First and last tokens of runs and blocks, and the last of all."""


def evaluate(new: Any, old: Any = None, adv: Any = None, **more: Any) -> EvalReport:
    log_probs = np.array(new, dtype=np.float64)
    arrays = {
        "log_probs": log_probs,
        "old_log_probs": np.full(log_probs.shape, -1.0) if old is None else np.array(old, dtype=np.float64),
        "advantages": np.ones(log_probs.shape) if adv is None else np.array(adv, dtype=np.float64),
    }
    return ppocli.evaluate(**arrays, **more)


@pytest.mark.parametrize("place", BORDERS)
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_one_bad_value_at_a_border(place: int, value: float) -> None:
    new = np.full(5000, -1.0)
    new[place] = value
    report = evaluate(new, adv=np.arange(5000) % 2)
    metrics = report.metrics
    kinds = {"n_nan": int(value != value), "n_posinf": int(value == INF), "n_neginf": int(value == -INF)}
    assert {name: metrics[name] for name in kinds} == kinds
    for name in ("policy_loss", "approx_kl_k1", "ratio_max", "clip_frac", "entropy_estimate"):
        assert metrics[name] is None
        note = report.nulls[name]
        assert note.where is not None
        assert note.where.row == place
    ones = 2500 - place % 2
    assert metrics["policy_loss_finite"] == -ones / 4999
    assert metrics["approx_kl_k1_finite"] == 0.0
    assert metrics["ratio_p50_finite"] == 1.0
    assert metrics["overflow_float16_finite"] == 0
    assert metrics["adv_mean"] == 0.5  # the advantages are whole
    assert metrics["adv_max"] == 1.0


def test_bad_values_in_several_blocks_and_columns() -> None:
    new, adv = np.full(6000, -1.0), np.ones(6000)
    new[[0, 2048, 2049]] = NAN
    adv[[1, 5999]] = INF
    report = evaluate(new, adv=adv, entropy=np.where(np.arange(6000) == 4000, NAN, 2.0))
    metrics, columns = report.metrics, report.inputs[0].columns
    assert (metrics["n_nan"], metrics["n_posinf"]) == (4, 2)
    assert (columns["log_probs"].n_nan, columns["advantages"].n_posinf, columns["entropy"].n_nan) == (3, 2, 1)
    assert report.nulls["policy_loss"].reason == "3 NaN in log_probs; 2 +inf in advantages at valid tokens"
    assert metrics["policy_loss_finite"] == -1.0
    assert metrics["policy_loss_by_agg_finite"]["token-sum"] == -5995.0
    assert metrics["adv_mean_finite"] == 1.0
    assert metrics["entropy_mean_finite"] == 2.0
    assert metrics["zero_log_ratio_frac_finite"] == 1.0


def test_a_masked_value_may_be_anything() -> None:
    new, old, adv = [NAN, -1.0, INF, -1.0], [-1.0, -1.0, -1.0, -1.0], [1.0, 2.0, NAN, 4.0]
    report = evaluate(
        new, old, adv, mask=[0, 1, 0, 1], values=[INF, 1.0, NAN, 1.0], returns=[0.0, 2.0, 0.0, 4.0]
    )
    assert report.metrics["policy_loss"] == -3.0
    assert report.metrics["value_loss"] == (1 + 9) / 2
    assert report.nulls == {}
    assert report.findings == ()


@pytest.mark.parametrize(
    ("new", "adv", "policy_loss", "unclipped_loss", "kl_k1"),
    [
        ([NAN, -1.0], [1.0, 1.0], "nan", "nan", "nan"),
        ([INF, -1.0], [1.0, 1.0], None, "-inf", "-inf"),  # clipped at 1.2
        ([INF, -1.0], [-1.0, 1.0], "inf", "inf", "-inf"),
        ([-INF, -1.0], [1.0, 1.0], None, None, "inf"),  # the ratio is 0
        ([INF, INF], [-1.0, 1.0], "inf", "nan", "-inf"),
        ([INF, -INF], [1.0, 1.0], None, "-inf", "nan"),
        ([INF, -1.0], [0.0, 1.0], None, None, "-inf"),  # a zero advantage adds exactly 0
        ([-1.0, -1.0], [INF, 1.0], "-inf", "-inf", "value"),
        ([-1.0, -1.0], [INF, -INF], "nan", "nan", "value"),
    ],
)
def test_what_float64_arithmetic_would_have_given(
    new: list[float], adv: list[float], policy_loss: str | None, unclipped_loss: str | None, kl_k1: str | None
) -> None:
    report = evaluate(new, adv=adv)
    wanted = {"policy_loss": policy_loss, "unclipped_loss": unclipped_loss, "approx_kl_k1": kl_k1}
    for name, kind in wanted.items():
        if kind == "value":
            assert report.metrics[name] == 0.0
        else:
            assert report.metrics[name] is None
            assert report.nulls[name].nonfinite == kind


def test_finite_values_whose_ratio_overflows_stay_in() -> None:
    clipped = evaluate([999.0, -1.0])
    assert clipped.metrics["policy_loss"] == -(1.2 + 1) / 2
    assert clipped.metrics["grad_abs_mean"] == 0.5
    assert clipped.nulls["ratio_mean"].nonfinite == "inf"
    assert clipped.metrics["log_ratio_abs_max"] == 1000.0
    assert clipped.metrics["overflow_float64"] == 1
    free = evaluate([999.0, -1.0], adv=[-1.0, 1.0])
    assert free.nulls["policy_loss"].nonfinite == "inf"
    assert free.metrics["clip_frac"] == 0.5


def test_moments_over_blocks_and_files(tmp_path: Path) -> None:
    # Far from 0, so that sums of squares would lose everything: 1e8 + {0, 1} and 1e8 + {4, 5}
    paths = []
    for k, low in enumerate((0.0, 4.0)):
        adv = 1e8 + low + np.arange(5000) % 2
        paths.append(tmp_path / f"{k}.parquet")
        flat = np.full(5000, -1.0)
        table = {"log_probs": flat, "old_log_probs": flat, "advantages": adv, "rewards": adv}
        pq.write_table(pa.table(table), paths[-1])
    report = ppocli.evaluate(paths)
    assert report.metrics["adv_mean"] == 1e8 + 2.5
    # 0, 1, 4 and 5 in equal shares: variance 17 / 4
    assert report.metrics["adv_std"] == pytest.approx(math.sqrt(17 / 4), rel=1e-12)
    assert report.metrics["reward_std"] == report.metrics["adv_std"]
    assert [one.metrics["adv_std"] for one in report.groups] == [0.5, 0.5]


def test_a_column_that_does_not_vary_has_exactly_its_mean() -> None:
    value = 0.1
    report = evaluate(np.full(5001, -1.0), adv=np.full(5001, value), entropy=np.full(5001, value))
    assert report.metrics["adv_mean"] == value
    assert report.metrics["adv_std"] == 0.0
    assert report.metrics["entropy_mean"] == value
    assert report.metrics["policy_loss"] == -value
    assert report.metrics["policy_loss_se"] == 0.0


def test_extremes_and_their_first_places() -> None:
    log_ratios, adv = np.zeros(5000), np.zeros(5000)
    log_ratios[[2048, 4000]], log_ratios[[255, 3000]] = 0.5, -0.75
    adv[[4999]], adv[[256, 257]] = 3.0, -2.0
    report = evaluate(-1.0 + log_ratios, adv=adv, chunk_rows=100)
    assert report.metrics["ratio_max"] == math.exp(0.5)
    assert report.metrics["ratio_min"] == math.exp(-0.75)
    assert report.metrics["log_ratio_abs_max"] == 0.75
    rows = {name: place.row for name, place in report.places.items()}
    wanted = {"ratio_max": 2048, "ratio_min": 255, "adv_max": 4999, "adv_min": 256}
    assert {name: rows[name] for name in wanted} == wanted


def test_values_at_the_end_of_float64_are_extremes_like_others() -> None:
    report = evaluate([-1.0, -1.0, -1.0], adv=[1.5e308, 1.5e308, -1.5e308])
    assert (report.metrics["adv_min"], report.metrics["adv_max"]) == (-1.5e308, 1.5e308)
    tiny = evaluate([-1.0, -1.0], adv=[5e-324, 5e-324])
    assert tiny.metrics["adv_mean"] == 5e-324
    assert tiny.metrics["policy_loss"] == -5e-324


def test_zeros_of_either_sign() -> None:
    report = evaluate([0.0, -0.0], [-0.0, 0.0], [-0.0, 0.0])
    assert report.metrics["zero_log_ratio_frac"] == 1.0
    assert report.metrics["zero_advantage_frac"] == 1.0
    for name in ("policy_loss", "adv_min", "adv_max", "approx_kl_k1"):
        assert math.copysign(1.0, report.metrics[name]) == 1.0


def test_a_column_of_some_files_only_gives_no_metric_of_the_run(tmp_path: Path) -> None:
    table = {"log_probs": [-1.0], "old_log_probs": [-1.0], "advantages": [1.0]}
    pq.write_table(pa.table({**table, "entropy": [2.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table(table), tmp_path / "b.parquet")
    report = ppocli.evaluate([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert "entropy_mean" not in report.metrics
    assert [one.metrics.get("entropy_mean") for one in report.groups] == [2.0, None]


def test_many_files_of_one_row(tmp_path: Path) -> None:
    paths = []
    for k in range(40):
        paths.append(tmp_path / f"f{k}.parquet")
        table = {"log_probs": [-1.0], "old_log_probs": [-1.0], "advantages": [float(k)]}
        pq.write_table(pa.table(table), paths[-1])
    report = ppocli.evaluate(paths)
    assert report.metrics["policy_loss"] == -19.5
    assert report.metrics["adv_std"] == pytest.approx(math.sqrt((40**2 - 1) / 12), rel=1e-14)
    assert (report.metrics["n_files"], report.metrics["n_rows"]) == (40, 40)


def test_quantiles_in_the_end_bins_are_at_the_bound_of_the_clamp() -> None:
    new = np.concatenate([np.full(2, -90.0), np.full(3, -1.0), np.full(5, 500.0)])
    for clamp in (1.5, 20.0, 32.0):
        metrics = evaluate(new, log_ratio_clamp=clamp).metrics
        expected = {"p01": math.exp(-clamp), "p50": 1.0, "p95": math.exp(clamp), "p99": math.exp(clamp)}
        assert {name: metrics[f"ratio_{name}"] for name in expected} == pytest.approx(expected, rel=1e-15)
    for clamp in (None, 33.0):
        report = evaluate(new, log_ratio_clamp=clamp)
        assert report.metrics["ratio_p50"] == 1.0
        assert report.metrics["ratio_p95"] is None
        assert "32 nats" in report.nulls["ratio_p95"].reason


def test_one_value_throughout_has_a_mean_even_where_its_sum_overflows() -> None:
    huge = np.full(4, 1e308)
    more = {"returns": huge, "rewards": -huge, "entropy": huge}
    report = evaluate([-1.0] * 4, adv=huge, ent_coef=0.25, **more)
    expected = {
        "adv_mean": 1e308, "adv_std": 0.0, "return_mean": 1e308, "return_std": 0.0, "reward_mean": -1e308,
        "reward_std": 0.0, "entropy_mean": 1e308, "policy_loss": -1e308, "policy_loss_se": 0.0,
        "total_loss": -1.25e308,
    }  # fmt: skip
    assert {name: report.metrics[name] for name in expected} == expected
    assert report.metrics["policy_loss_by_agg"] == {"token-mean": -1e308, "token-sum": None}
    assert report.nulls["policy_loss_by_agg.token-sum"].nonfinite == "-inf"
    report = evaluate(np.full(4, 708.0))
    assert report.metrics["ratio_mean"] == report.metrics["ratio_max"] == pytest.approx(math.exp(709.0))
    assert report.metrics["ratio_std"] == 0.0


def test_a_left_out_infinity_still_spoils_the_mean_of_one_value() -> None:
    report = evaluate([-1.0] * 3, adv=[1e308, INF, 1e308])
    assert report.metrics["adv_mean"] is None
    assert report.nulls["adv_mean"].nonfinite == "inf"
    assert report.metrics["adv_mean_finite"] == 1e308
    assert report.nulls["adv_std"].nonfinite == "nan"


def test_quantiles_of_finite_values_whose_sum_or_difference_overflows() -> None:
    new, old = np.full(3000, -1.0), np.full(3000, -1.0)
    new[:1000] = -0.5
    new[[7, 15, 2100]], old[[7, 15, 2100]] = 1e308, 0.0
    report = evaluate(new, old)
    assert report.metrics["ratio_p50"] == 1.0
    assert report.metrics["ratio_p95"] == pytest.approx(math.exp(0.5), rel=1 / 256)
    new[8], old[8] = 1e308, -1e308
    new[9], old[9] = -1e308, 1e308
    report = evaluate(new, old)
    assert report.metrics["ratio_p50"] == 1.0
    assert report.metrics["ratio_p95"] == pytest.approx(math.exp(0.5), rel=1 / 256)
    assert report.metrics["ratio_min"] == 0.0
    assert report.nulls["ratio_max"].nonfinite == "inf"
    assert report.nulls["ratio_max"].where is not None
    assert report.nulls["ratio_max"].where.row == 8
    assert report.metrics["overflow_float64"] == 4
    assert report.metrics["underflow_float64"] == 1


@pytest.mark.parametrize("in_use", [False, True])
def test_a_table_that_grows_keeps_its_rows(in_use: bool) -> None:
    """Also where something still looks at arrays with pages of their own, which then cannot be moved."""
    table, looked_at = KeyedTable.narrow(2, timed=True), []
    for n in (10_000, 30_000, 100_000, 300_000):
        table.reserve(n)
        assert table.keys.shape[0] >= n
        first = np.arange(table.n, n)
        table.n, taken = sequence.add_keyed(
            table.slots, table.keys, table.states, table.touched, table.n, n, first * 3, first, NO_IDS,
            first * 7, np.zeros((first.size, len(PIECE))), 0,
        )  # fmt: skip
        assert taken == first.size
        if in_use:
            looked_at.append((table.keys, table.states[:5].copy(), table.states))
    every = np.arange(300_000)
    assert np.array_equal(table.keys[: table.n], np.column_stack([every * 3, every]))
    assert np.array_equal(table.states[: table.n, sequence.FIRST_ROW], every * 7.0)
    assert np.array_equal(table.touched[: table.n], np.r_[0:10_000, 0:20_000, 0:70_000, 0:200_000])
    assert [sequence.find(table.slots, table.keys, 3 * k, k) for k in (0, 9_999, 299_999)] == [
        0,
        9_999,
        299_999,
    ]
    assert sequence.find(table.slots, table.keys, 3, 2) == -1
    for keys, before, states in looked_at:
        assert np.array_equal(keys[:10_000, 1], every[:10_000])
        assert np.array_equal(states[:5], before)
