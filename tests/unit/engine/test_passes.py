"""Two passes: advantages normalised over the whole input. On policy the loss of a token is -advantage."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli

if TYPE_CHECKING:
    from ppocli.core.report import EvalReport


def evaluate(adv: list[float], **settings: Any) -> EvalReport:
    flat = np.full(len(adv), -1.0)
    arrays = {"log_probs": flat, "old_log_probs": flat, "advantages": np.array(adv)}
    return ppocli.evaluate(**arrays, adv_norm="batch", **settings)


def losses(report: EvalReport) -> list[float]:
    """The losses in stored order."""
    tokens = [token for token in report.worst if token.by == "loss"]
    return [token.loss for token in sorted(tokens, key=lambda one: one.where.row) if token.loss is not None]


@pytest.mark.parametrize(
    ("form", "ddof", "eps", "scale"),
    [
        ("add", 0, 0.5, 2.5),  # 1 and 5: mean 3, deviation 2 or, with ddof 1, sqrt(8)
        ("add", 1, 0.5, math.sqrt(8) + 0.5),
        ("max", 0, 0.5, 2.0),
        ("max", 0, 7.0, 7.0),
        ("max", 1, 0.5, math.sqrt(8)),
        ("var", 0, 5.0, 3.0),
        ("var", 1, 1.0, 3.0),
        ("add", 0, 0.0, 2.0),
    ],
)
def test_forms(form: str, ddof: int, eps: float, scale: float) -> None:
    report = evaluate([1.0, 5.0], adv_norm_form=form, adv_norm_ddof=ddof, adv_norm_eps=eps, worst=2)
    assert losses(report) == pytest.approx([2 / scale, -2 / scale], rel=1e-15)
    assert report.metrics["grad_abs_mean"] == pytest.approx(2 / scale, rel=1e-15)
    assert report.metrics["adv_mean"] == 3.0  # as stored
    assert report.settings["adv_norm_mean"] == 3.0
    assert report.settings["adv_norm_std"] == pytest.approx(math.sqrt(8) if ddof else 2.0, rel=1e-15)


@pytest.mark.parametrize("ddof", [0, 1])
def test_one_advantage_is_left_as_it_is_and_said(ddof: int) -> None:
    report = evaluate([3.0], adv_norm_ddof=ddof)
    assert report.metrics["policy_loss"] == -3.0
    assert "adv_norm_note" in report.settings


@pytest.mark.parametrize("form", ["add", "max", "var"])
@pytest.mark.parametrize("eps", [1e-8, 0.0])
def test_equal_advantages_become_zero(form: str, eps: float) -> None:
    report = evaluate([0.1] * 3000, adv_norm_form=form, adv_norm_eps=eps)
    assert report.metrics["policy_loss"] == 0.0
    assert report.metrics["grad_zero_frac"] == 1.0
    assert report.metrics["adv_mean"] == 0.1
    assert ("adv_norm_note" in report.settings) == (eps == 0.0)


def test_masked_advantages_do_not_count() -> None:
    report = evaluate([1.0, math.nan, 5.0, 1e9], adv_norm_eps=0.0, mask=[1, 0, 1, 0], worst=4)
    assert losses(report) == [1.0, -1.0]


def test_the_statistics_are_those_of_the_whole_input(tmp_path: Path) -> None:
    paths = []
    for k, adv in enumerate(([1.0, 5.0], [], [3.0, 7.0])):
        paths.append(tmp_path / f"{k}.parquet")
        flat = pa.array([-1.0] * len(adv), pa.float64())
        table = {"log_probs": flat, "old_log_probs": flat, "advantages": pa.array(adv, pa.float64())}
        pq.write_table(pa.table(table), paths[-1])
    report = ppocli.evaluate(paths, adv_norm="batch", adv_norm_eps=0.0)
    # 1, 5, 3 and 7: mean 4, deviation sqrt 5
    assert report.settings["adv_norm_mean"] == 4.0
    assert report.metrics["policy_loss"] == pytest.approx(0.0, abs=1e-16)
    first, empty, last = (one.metrics["policy_loss"] for one in report.groups)
    assert (first, last) == pytest.approx((1 / math.sqrt(5), -1 / math.sqrt(5)), rel=1e-15)
    assert empty is None


def test_an_advantage_that_is_not_finite() -> None:
    report = evaluate([1.0, math.nan, 5.0], adv_norm_eps=0.0, worst=3)
    assert report.metrics["policy_loss"] is None
    assert report.nulls["policy_loss"].nonfinite == "nan"
    assert report.metrics["policy_loss_finite"] == 0.0
    assert losses(report) == [1.0, -1.0]


def test_chunks_do_not_change_the_statistics() -> None:
    adv = list(np.random.default_rng(1).normal(3.0, 2.0, 5000))
    reports = [evaluate(adv, chunk_rows=rows) for rows in (1000, 2048, None)]
    assert len({(one.settings["adv_norm_mean"], one.metrics["policy_loss"]) for one in reports}) == 1
    mean = math.fsum(adv) / 5000
    assert reports[0].settings["adv_norm_mean"] == pytest.approx(mean, rel=1e-15)
    std = math.sqrt(math.fsum((x - mean) ** 2 for x in adv) / 5000)
    assert reports[0].settings["adv_norm_std"] == pytest.approx(std, rel=1e-14)


MEANS = ("policy_loss", "policy_loss_se", "unclipped_loss", "grad_abs_mean", "total_loss")
SHARES = ("clip_frac_active", "grad_zero_frac")


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_one_advantage_that_is_not_finite_makes_all_others_nan(bad: float) -> None:
    adv = np.array([1.0, bad, 5.0])
    with np.errstate(invalid="ignore"):
        normalised = (adv - adv.mean()) / (adv.std() + 1e-8)
    assert np.isnan(normalised).all()
    report = evaluate([1.0, bad, 5.0], adv_norm_eps=0.0, micro_batch=1, mask=[1, 1, 1])
    for name in (*MEANS, "policy_loss_by_agg.token-sum", "policy_loss_micro_batch_mean"):
        assert report.nulls[name].nonfinite == "nan", name
    assert report.metrics["policy_loss_finite"] == 0.0
    for name in SHARES:
        assert (report.metrics[name], report.nulls[name].nonfinite) == (None, None), name
    assert report.nulls["adv_max"].nonfinite == {math.inf: "inf", -math.inf: None}.get(bad, "nan")


def test_one_infinite_advantage_alone_is_left_as_it_is() -> None:
    assert evaluate([math.inf]).nulls["policy_loss"].nonfinite == "-inf"
    assert evaluate([math.inf, 1.0]).nulls["policy_loss"].nonfinite == "nan"


def written(path: Path, adv: list[float | None]) -> Path:
    flat = pa.array([-1.0] * len(adv))
    columns = {"log_probs": flat, "old_log_probs": flat, "advantages": pa.array(adv, pa.float64())}
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(("bad", "what"), [(math.inf, "1 +inf"), (None, "1 null")])
def test_files_are_not_normalised_by_what_another_lacks(tmp_path: Path, bad: float | None, what: str) -> None:
    paths = [written(tmp_path / "a.parquet", [1.0, 5.0]), written(tmp_path / "b.parquet", [1.0, bad, 5.0])]
    report = ppocli.evaluate(paths, adv_norm="batch", adv_norm_eps=0.0)
    first, second = report.groups
    for name in (*MEANS, *SHARES):
        assert first.metrics[name] is None, name
        assert first.nulls[name].reason == (
            f"advantages are normalised over the whole input, which has {what} in advantages"
        )
    assert first.nulls["policy_loss"].nonfinite == (None if bad is None else "nan")
    assert first.metrics["policy_loss_finite"] == second.metrics["policy_loss_finite"] == 0.0
    assert first.metrics["adv_mean"] == 3.0
    assert first.metrics["clip_frac"] == 0.0
    assert second.nulls["policy_loss"].reason == f"{what} in advantages at valid tokens"


@pytest.mark.parametrize(
    ("adv", "nonfinite"),
    [
        ([1e308, 1e308, 9e307], "nan"),  # the sum overflows
        ([1e308, -1e308, 0.0], None),  # the squares do: A / inf is 0
    ],
)
def test_statistics_that_overflow_give_no_loss(adv: list[float], nonfinite: str | None) -> None:
    report = evaluate(adv)
    for name in MEANS:
        assert report.metrics[name] is None
        assert report.nulls[name].nonfinite == nonfinite
        assert "overflows float64" in report.nulls[name].reason
        assert f"{name}_finite" not in report.metrics
    assert "overflows float64" in report.settings["adv_norm_note"]
    assert report.metrics["approx_kl_k1"] == 0.0
    spoiled = evaluate([*adv, math.inf])
    assert spoiled.nulls["policy_loss"].reason == "1 +inf in advantages at valid tokens"
    assert "policy_loss_finite" not in spoiled.metrics


def test_equal_advantages_near_the_end_of_float64_become_zero() -> None:
    report = evaluate([1e308] * 3)
    assert (report.metrics["policy_loss"], report.settings["adv_norm_mean"]) == (0.0, 1e308)
