"""Values that are not finite under losses in which a token's term is made of its whole sequence."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli

NAN, INF = math.nan, math.inf


def test_an_infinite_ratio_of_a_sequence_reaches_all_its_tokens() -> None:
    # s = exp(mean(inf, 0)) = inf: the loss of A = 1 is clipped to -1.2, that of A = -1 is +inf.
    got = ppocli.evaluate(
        log_probs=[[INF, -1.0]], old_log_probs=[[-1.0, -1.0]], advantages=[[1.0, -1.0]], objective="gspo"
    )
    assert got.metrics["policy_loss"] is None
    assert got.nulls["policy_loss"].nonfinite == "inf"
    assert got.nulls["policy_loss_by_agg.seq-mean-token-mean"].nonfinite == "inf"
    # Without that token s = 1, and the loss of the other one is 1.
    assert got.metrics["policy_loss_finite"] == 1.0


def test_an_infinite_ratio_that_the_clip_bounds_leaves_a_finite_loss() -> None:
    got = ppocli.evaluate(
        log_probs=[[INF, -1.0]], old_log_probs=[[-1.0, -1.0]], advantages=[[1.0, 1.0]], objective="gspo"
    )
    assert got.nulls["policy_loss"].nonfinite is None


def test_a_null_beside_an_infinity_is_no_nan(tmp_path: Path) -> None:
    columns = {
        "log_probs": [[INF, None, -1.0]],
        "old_log_probs": [[-1.0, -1.0, -1.0]],
        "advantages": [[1.0, 1.0, -1.0]],
    }
    path = tmp_path / "null.parquet"
    pq.write_table(pa.table(columns), path)
    # Over the values present s is infinite: losses of -1.2 and +inf.
    assert ppocli.evaluate(path, objective="gspo").nulls["policy_loss"].nonfinite == "inf"


@pytest.mark.parametrize("objective", ["gspo", "gmpo", "vespo"])
def test_the_finite_twin_is_without_tokens_that_have_no_advantage(objective: str) -> None:
    # The ratio of the sequence is made of the other tokens alone, as if that one were masked.
    columns = {"log_probs": [[-1.0, -2.0, -1.5]], "old_log_probs": [[-1.1, -1.9, -1.0]]}
    got = ppocli.evaluate(**columns, advantages=[[1.0, -0.5, NAN]], objective=objective)
    masked = ppocli.evaluate(**columns, advantages=[[1.0, -0.5, 7.0]], mask=[[1, 1, 0]], objective=objective)
    for name in ("policy_loss", "grad_abs_mean"):
        assert got.metrics[name] is None
        assert got.metrics[f"{name}_finite"] == masked.metrics[name]
    # log_ratio is 0.1, -0.1, -0.5: the region is that of the log-probs, all three of them.
    if objective == "gspo":
        whole = ppocli.evaluate(**columns, advantages=[[1.0, -0.5, 7.0]], objective=objective)
        assert got.metrics["clip_frac"] == whole.metrics["clip_frac"]


def test_losses_that_overflow_raise_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = ppocli.evaluate(
            log_probs=[[-1.0, -1.0]],
            old_log_probs=[[-900.0, -900.0]],
            advantages=[[1.0, -1.0]],
            objective="is",
        )
    assert got.nulls["policy_loss"].nonfinite == "nan"
