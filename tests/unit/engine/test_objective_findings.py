"""Rules about precision and the objective: what hits them, and what does not by a little."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core.report import Finding, Place


def found(code: str | None = None, **arrays: Any) -> list[Finding]:
    """The findings of a batch, of one code if it is given."""
    report = ppocli.evaluate(**arrays)
    return [one for one in report.findings if code in (None, one.code)]


def test_one_token_carries_the_kl() -> None:
    old = np.full(100, -1.0)
    new = old + np.where(np.arange(100) == 41, -3.0, 0.1)
    [one] = found("PPO303", log_probs=new, old_log_probs=old, advantages=np.ones(100))
    # k3 of -3 is exp(-3) - 1 + 3 = 2.0498, of 0.1 it is 0.0051709: 80 % of 2.0498 + 99 * 0.0051709 = 2.5617.
    assert (one.count, one.where) == (1, Place("<arrays>", 41))
    assert "one token of 100 has 80% of approx_kl_k3; its log-ratio is -3." in one.message
    assert "Without it the KL is 0.00517, not 0.0256" in one.message
    # Not with few tokens, not where it has half, not where its ratio is near 1.
    few = slice(41, 90)
    assert found("PPO303", log_probs=new[few], old_log_probs=old[few], advantages=np.ones(49)) == []
    two = np.where(np.arange(100) == 42, -4.0, new)
    assert found("PPO303", log_probs=two, old_log_probs=old, advantages=np.ones(100)) == []
    near = old + np.where(np.arange(100) == 41, 0.9, 0.0)
    assert found("PPO303", log_probs=near, old_log_probs=old, advantages=np.ones(100)) == []


def test_one_token_that_overflows_is_left_to_the_rule_of_overflow() -> None:
    old = np.full(60, -1.0)
    new = np.where(np.arange(60) == 7, 900.0, -1.1)
    codes = [one.code for one in found(log_probs=new, old_log_probs=old, advantages=np.ones(60))]
    assert "PPO102" in codes
    assert "PPO303" not in codes


@pytest.mark.parametrize(
    ("below", "above", "severity"),
    [(150, 51, None), (150, 50, "info"), (50, 150, "info"), (199, 20, "info"), (200, 20, "warning"),
     (0, 101, "warning"), (99, 0, None)],
)  # fmt: skip
def test_sides_of_the_interval(below: int, above: int, severity: str | None) -> None:
    log_ratio = np.zeros(2000)
    log_ratio[:below] = -0.3
    log_ratio[-above or 2000 :] = 0.3
    old = np.full(2000, -1.0)
    got = found("PPO305", log_probs=old + log_ratio, old_log_probs=old, advantages=np.ones(2000))
    assert [one.severity for one in got] == ([severity] if severity else [])
    if got:
        assert got[0].count == below + above
        assert f"{below:,} ratios below the interval and {above:,} above it, of 2,000" in got[0].message


@pytest.mark.parametrize(
    "bounds", [{"clip_low": 0.2, "clip_high": 0.7}, {"clip_low": 1.0}, {"clip_low": 0.0}]
)
def test_unequal_bounds_explain_unequal_sides(bounds: dict[str, float]) -> None:
    old = np.full(1000, -1.0)
    new = old + np.where(np.arange(1000) < 500, -0.3, 0.0)
    columns = {"log_probs": new, "old_log_probs": old, "advantages": np.ones(1000)}
    assert found("PPO305", **columns, **bounds) == []
    assert found("PPO305", **columns, clip_low=0.2, clip_high=0.28) != []


def test_few_clipped_of_many_tokens_are_no_asymmetry() -> None:
    old = np.full(4000, -1.0)
    new = old + np.where(np.arange(4000) < 199, -0.3, 0.0)
    assert found("PPO305", log_probs=new, old_log_probs=old, advantages=np.ones(4000)) == []


def test_all_advantages_zero() -> None:
    old, zero = np.full(5, -1.0), np.zeros(5)
    [one] = found("PPO304", log_probs=old, old_log_probs=old, advantages=zero)
    assert (one.count, one.message) == (5, "the advantage is exactly 0 at all 5 valid tokens")
    almost = np.array([0.0, 0.0, 0.0, 0.0, 1e-300])
    assert found("PPO304", log_probs=old, old_log_probs=old, advantages=almost) == []
    masked = np.array([1, 1, 1, 1, 0])
    assert found("PPO304", log_probs=old, old_log_probs=old, advantages=almost, mask=masked) != []
    none = np.zeros(5, dtype=int)
    assert found("PPO304", log_probs=old, old_log_probs=old, advantages=zero, mask=none) == []


@pytest.mark.parametrize("role", ["values", "old_values"])
def test_returns_that_do_not_vary(role: str) -> None:
    base = {"log_probs": [-1.0, -2.0], "old_log_probs": [-1.0, -2.0], "advantages": [1.0, -1.0]}
    [one] = found("PPO306", **base, **{role: [0.1, 0.2]}, returns=[0.5, 0.5])
    assert (one.count, one.message) == (2, "the return is 0.5 at all 2 valid tokens")
    assert found("PPO306", **base, **{role: [0.1, 0.2]}, returns=[0.5, 0.25]) == []
    assert found("PPO306", **base, returns=[0.5, 0.5]) == []
    single = {name: values[:1] for name, values in base.items()}
    assert found("PPO306", **single, **{role: [0.1]}, returns=[0.5]) == []


def idle(rollout: Any, **changes: Any) -> list[Finding]:
    old = np.array([-1.0, -2.0, -3.0, -0.5])
    columns = {"log_probs": old, "old_log_probs": old, "rollout_log_probs": rollout, "advantages": np.ones(4)}
    return found("PPO301", **{**columns, **changes})


def test_idle_clip() -> None:
    # old - rollout is 0.5 everywhere: k3 = expm1(0.5) - 0.5 = 0.14872.
    [one] = idle(np.array([-1.5, -2.5, -3.5, -1.0]))
    assert (one.severity, one.count) == ("warning", 4)
    assert "all 4 ratios are exactly 1, though KL(rollout || old) is 0.149" in one.message
    # k3 of 0.3 is 0.04986, of 0.31 it is 0.05343; the limit is 0.05.
    assert idle(np.array([-1.3, -2.3, -3.3, -0.8])) == []
    assert idle(np.array([-1.31, -2.31, -3.31, -0.81])) != []


def test_idle_clip_looks_at_valid_finite_tokens() -> None:
    far = np.array([-1.0, -2.0, -3.0, -9.5])
    assert idle(far) != []
    assert idle(far, mask=np.array([1, 1, 1, 0])) == []
    assert idle(np.array([math.nan, math.inf, -math.inf, math.nan])) == []
    assert idle(np.array([math.nan, -2.0, -3.0, -9.5])) != []


def test_a_clip_that_moves_is_not_idle() -> None:
    moved = np.array([-1.0, -2.0, -3.0, -0.5000001])
    assert idle(np.array([-1.5, -2.5, -3.5, -1.0]), log_probs=moved) == []


def test_idle_clip_over_files_does_not_depend_on_how_they_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for name in ("a", "b"):
        old = -rng.random(5000)
        rollout = old + rng.normal(0, 0.4, 5000)
        np.savez(tmp_path / f"{name}.npz", log_probs=old, old_log_probs=old, rollout_log_probs=rollout,
                 advantages=np.ones(5000))  # fmt: skip
    messages = {
        tuple(one.message for one in ppocli.evaluate(tmp_path, chunk_rows=rows).findings)
        for rows in (1, 37, 100000)
    }
    [[message]] = messages
    assert "all 10,000 ratios are exactly 1" in message


def test_a_rollout_column_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    columns = {"log_probs": [[-1.0, -2.0]], "old_log_probs": [[-1.0, -2.0]], "advantages": [[1.0, 1.0]]}
    lengths = {"fits": [[-5.0, -6.0]], "does not": [[-5.0, -6.0, -7.0]]}
    codes = {}
    for name, rollout in lengths.items():
        pq.write_table(pa.table({**columns, "rollout_log_probs": rollout}), tmp_path / f"{name}.parquet")
        findings = ppocli.evaluate(tmp_path / f"{name}.parquet").findings
        codes[name] = [one.code for one in findings]
    assert codes == {"fits": ["PPO301"], "does not": []}


def test_a_kl_below_float32() -> None:
    old = np.full(4, -1.0)
    base = {"old_log_probs": old, "advantages": np.ones(4)}
    assert len(found("PPO210", log_probs=old + 1e-5, **base)) == 1  # k3 5e-11
    assert found("PPO210", log_probs=old, **base) == []
    assert found("PPO210", log_probs=old + 1e-3, **base) == []  # k3 5e-7


def test_clamped_log_ratios_are_counted() -> None:
    old = np.zeros(3) - 30
    new = np.array([-30.0, -24.0, -37.0])
    columns = {"log_probs": new, "old_log_probs": old, "advantages": np.ones(3)}
    [one] = found("PPO105", **columns, log_ratio_clamp=5.0)
    assert (one.count, one.severity, one.where) == (2, "info", Place("<arrays>", 2))
    assert one.message == "2 of 3 log-ratios clamped to +-5"
    assert found("PPO105", **columns, log_ratio_clamp=7.0) == []
    assert found("PPO105", **columns) == []
