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
