"""The kernel that compares two columns against exact sums of its terms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from kernel_sums import exp, expm1_minus_x

from ppocli.core.drift_partials import (
    BANDS,
    EXTREMES,
    HISTOGRAM_BINS,
    LANE_SUMS,
    LARGE_BIN,
    NEGATIVE_BINS,
    PIECE,
    PROBABILITIES,
    SUM,
    SUMS,
    bin_bounds,
)
from ppocli.kernels import drift, drift_layout, drift_loss, layout

BOUND = Fraction(1, 2**47)
SIZES = (0, 1, 7, 8, 9, 255, 256, 257, 2047, 2048, 2049, 5000)
NONE = np.zeros(0, dtype=np.uint8)
RULES = np.array([[0.0, 1.1, 0.0, 1.1], [0.9, 1.2, 0.0, 0.0]])


@dataclass
class Rows:
    """What the kernel writes."""

    sums: np.ndarray
    by_rule: np.ndarray
    moments: np.ndarray
    extremes: np.ndarray
    pieces: np.ndarray
    bad: np.ndarray
    bins: np.ndarray

    def bits(self) -> bytes:
        arrays = (self.sums, self.by_rule, self.moments, self.extremes, self.pieces, self.bad, self.bins)
        return b"".join(array.tobytes() for array in arrays)


def evaluate(
    a: np.ndarray,
    b: np.ndarray,
    mask: np.ndarray = NONE,
    *,
    starts: np.ndarray | None = None,
    workers: int = 1,
) -> Rows:
    """Call the kernel; what it does not write stays NaN."""
    n = len(a)
    n_blocks = -(-n // layout.BLOCK)
    starts = np.zeros(0, dtype=np.int64) if starts is None else starts
    rows = Rows(
        np.full((n_blocks, len(SUMS)), np.nan), np.full((n_blocks, len(RULES), 3), np.nan),
        np.full((n_blocks, 2 + drift_layout.N_MOMENTS), np.nan),
        np.full((n_blocks, len(EXTREMES), 2), np.nan),
        np.full((starts.size, len(PIECE)), np.nan), np.full(n_blocks, -1), np.zeros(0),
    )  # fmt: skip
    work = drift_layout.PairWorkspace(workers)
    work.scratch[:] = np.nan  # nothing may depend on what was there
    drift.evaluate_pairs(
        work, [a, b], mask, n, np.arange(n_blocks), starts,
        np.searchsorted(starts, np.arange(n_blocks + 1) * layout.BLOCK), RULES, rows.sums, rows.by_rule,
        rows.moments, rows.extremes, rows.pieces, rows.bad,
    )  # fmt: skip
    rows.bins = work.histogram()
    return rows


def draw(n: int, spread: float = 0.05, dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Two columns that hold values of float32."""
    rng = np.random.default_rng(n)
    b = -rng.exponential(1.0, n)
    a = b + rng.normal(0.0, spread, n)
    a[::7] = b[::7]
    return tuple(values.astype(np.float32).astype(dtype) for values in (a, b))


def terms(a: list[float], b: list[float]) -> dict[str, list[Fraction]]:
    """Exact terms of each sum at tokens that all count."""
    out: dict[str, list[Fraction]] = {
        name: [] for name in ("diff", "diff_sq", "diff_abs", "k3", "weight", "mult")
    }
    out["weight_sq"] = []
    for x in (p - q for p, q in zip(a, b, strict=True)):
        weight = exp(x)
        for name, term in (
            ("diff", Fraction(x)), ("diff_sq", Fraction(x) ** 2), ("diff_abs", abs(Fraction(x))),
            ("k3", expm1_minus_x(x)), ("weight", weight), ("weight_sq", weight**2), ("mult", exp(abs(x))),
        ):  # fmt: skip
            out[name].append(term)
    return out


def check(rows: Rows, a: np.ndarray, b: np.ndarray, valid: np.ndarray) -> None:
    """Compare sums, counts and extremes with exact ones."""
    a, b = a.astype(float)[valid], b.astype(float)[valid]
    for name, exact in terms(a.tolist(), b.tolist()).items():
        error = abs(sum(map(Fraction, rows.sums[:, SUM[name]].tolist())) - sum(exact))
        assert error <= BOUND * sum(map(abs, exact)), name
    d = a - b
    w = np.array([float(exp(x)) for x in d.tolist()])
    total = {name: rows.sums[:, SUM[name]].sum() for name in LANE_SUMS}
    assert rows.sums[:, SUM["n"]].sum() == valid.sum()
    assert total["equal"] == (d == 0.0).sum()
    for k, (low, high) in enumerate(BANDS):
        assert total[f"band_{k}"] == ((w >= low) & (w <= high)).sum()
    for k, bound in enumerate(PROBABILITIES):
        below = b < math.log(bound)
        assert total[f"n below {k}"] == below.sum()
        assert total[f"diff below {k}"] == pytest.approx(math.fsum(d[below]), rel=1e-12, abs=1e-15)
        assert total[f"diff_abs below {k}"] == pytest.approx(math.fsum(abs(d[below])), rel=1e-13)
    assert rows.bad.tolist() == [0] * len(rows.bad)
    if d.size:
        assert rows.extremes[:, 0, 0].min() == d.min()
        assert rows.extremes[:, 0, 1].max() == d.max()
        gap = max(float(abs(exp(p) - exp(q))) for p, q in zip(a.tolist(), b.tolist(), strict=True))
        assert rows.extremes[:, 1, 1].max() == pytest.approx(gap, rel=1e-12)
    check_bins(rows.bins, d)


def check_bins(bins: np.ndarray, d: np.ndarray) -> None:
    """Every difference is in its bin."""
    assert bins.sum() == d.size
    for index in np.flatnonzero(bins):
        size_index = int(index) % NEGATIVE_BINS
        low, high = bin_bounds(size_index)
        side = d < 0.0 if index >= NEGATIVE_BINS else d >= 0.0
        inside = side & (np.abs(d) > low) & (np.abs(d) <= high)
        inside |= side & (size_index == 0) & (d == 0.0)
        assert bins[index] == inside.sum()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_sum(n: int, dtype: Any) -> None:
    a, b = draw(n, dtype=dtype)
    check(evaluate(a, b), a, b, np.ones(n, dtype=bool))


@pytest.mark.parametrize("spread", [1e-6, 1e-3, 1.0, 30.0])
def test_every_sum_near_and_far(spread: float) -> None:
    a, b = draw(2000, spread)
    check(evaluate(a, b), a, b, np.ones(2000, dtype=bool))


@pytest.mark.parametrize("n", [9, 257, 5000])
@pytest.mark.parametrize("kind", ["random", "none valid", "first run masked", "one valid"])
def test_masked_tokens_are_not_there(n: int, kind: str) -> None:
    valid = {
        "random": np.random.default_rng(1).random(n) < 0.6,
        "none valid": np.zeros(n, dtype=bool),
        "first run masked": np.arange(n) >= 256,
        "one valid": np.arange(n) == n - 1,
    }[kind]
    a, b = draw(n)
    a[~valid], b[~valid] = np.nan, np.inf
    check(evaluate(a, b, valid.astype(np.uint8)), a, b, valid)


@pytest.mark.parametrize("spread", [0.01, 0.2])
def test_rules_replace_weights_outside_their_bounds(spread: float) -> None:
    a, b = draw(5000, spread)
    valid = np.random.default_rng(2).random(5000) < 0.8
    rows = evaluate(a, b, valid.astype(np.uint8))
    w = np.exp((a - b)[valid])
    for r, (low, high, below, above) in enumerate(RULES):
        applied = np.where(w < low, below, np.where(w > high, above, w))
        got = rows.by_rule[:, r].sum(axis=0)
        assert got[0] == pytest.approx(math.fsum(applied), rel=1e-13)
        assert got[1] == pytest.approx(math.fsum(applied**2), rel=1e-13)
        assert got[2] == ((w < low) | (w > high)).sum()


def test_moments_give_the_correlation_of_probabilities() -> None:
    a, b = draw(9000, 0.3)
    rows = evaluate(a, b)
    n = rows.sums[:, SUM["n"]]
    off = rows.sums[:, [SUM["prob_a"], SUM["prob_b"]]]
    state = np.zeros(9)
    drift.merge_moments(n, off + n[:, None] * rows.moments[:, :2], rows.moments, state)
    p, q = np.exp(a), np.exp(b)
    assert state[7] / math.sqrt(state[5] * state[6]) == pytest.approx(np.corrcoef(p, q)[0, 1], rel=1e-11)
    assert state[5] / state[0] == pytest.approx(np.var(p), rel=1e-11)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_a_block_with_a_value_that_is_not_finite_is_given_back(value: float, side: int) -> None:
    columns = draw(6000)
    columns[side][3000] = value
    rows = evaluate(*columns)
    assert rows.bad.tolist() == [0, 1, 0]
    assert rows.bins.sum() == 6000 - 2048


def test_pieces_hold_the_sums_of_their_tokens() -> None:
    a, b = draw(3000)
    mask = (np.random.default_rng(3).random(3000) < 0.7).astype(np.uint8)
    starts = np.unique([*range(0, 3000, 256), 5, 6, 300, 2050, 2999])
    rows = evaluate(a, b, mask, starts=starts)
    for piece, begin, end in zip(rows.pieces, starts, [*starts[1:], 3000], strict=True):
        on = mask[begin:end] != 0
        d = (a - b)[begin:end][on]
        named = dict(zip(PIECE, piece, strict=True))
        assert named["n"] == on.sum()
        assert named["diff"] == pytest.approx(math.fsum(d), rel=1e-12, abs=1e-16)
        assert named["diff_abs"] == pytest.approx(math.fsum(abs(d)), rel=1e-13)
        assert named["k3"] == pytest.approx(math.fsum(float(expm1_minus_x(x)) for x in d.tolist()), rel=1e-12)


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_workers_change_no_bit(workers: int) -> None:
    n = 400_000
    rng = np.random.default_rng(0)
    b = -rng.exponential(1.0, n).astype(np.float32)
    a = (b + rng.normal(0.0, 0.2, n)).astype(np.float32)
    mask = (rng.random(n) < 0.9).astype(np.uint8)
    one, other = (evaluate(a, b, mask, workers=k) for k in (1, workers))
    for rows in (one, other):
        rows.sums = rows.sums[:, : len(LANE_SUMS)]
    assert one.bits() == other.bits()


def test_float32_and_float64_of_the_same_values_give_the_same_bits() -> None:
    one, other = (evaluate(*draw(5000, 0.2, dtype)) for dtype in (np.float32, np.float64))
    for rows in (one, other):
        rows.sums = rows.sums[:, : len(LANE_SUMS)]
    assert one.bits() == other.bits()


@pytest.mark.parametrize(
    ("size", "index"),
    [
        (2.0**-41, 0), (2.0**-40, 0), (math.nextafter(2.0**-40, 1.0), 1), (0.5, 1 + 128 * 39 - 1),
        (math.nextafter(0.5, 1.0), 1 + 128 * 39), (1.0, 1 + 128 * 40 - 1), (1024.0, LARGE_BIN - 1),
        (math.nextafter(1024.0, 2000.0), LARGE_BIN), (5000.0, LARGE_BIN),
    ],
)  # fmt: skip
def test_bins_end_with_their_upper_bound(size: float, index: int) -> None:
    bins = evaluate(np.array([0.0, -size]), np.array([-size, 0.0])).bins
    assert bins[index] == 1
    assert bins[NEGATIVE_BINS + index] == 1
    assert bins.size == HISTOGRAM_BINS


# ------------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize("n", [1, 9, 300, 5000])
@pytest.mark.parametrize(("apart", "moved"), [(0.3, 0.4), (0.003, 0.4), (0.3, 0.02), (0.003, 0.02)])
def test_losses_times_weights(n: int, apart: float, moved: float) -> None:
    """Runs with weights outside of the rules' bounds and without, with large log-ratios and without."""
    a, b = draw(n, apart)
    rng = np.random.default_rng(n + 1)
    new, adv = a + rng.normal(0.0, moved, n), rng.normal(0.0, 1.0, n)
    adv[::5] = 0.0
    mask = (rng.random(n) < 0.8).astype(np.uint8)
    n_blocks = -(-n // layout.BLOCK)
    p = np.full(layout.N_PARAMETERS, np.inf)
    p[layout.P_CLIP_FLOOR], p[layout.P_CLIP_CEILING] = 0.8, 1.3
    sums, bad = np.full((n_blocks, 2 + len(RULES)), np.nan), np.full(n_blocks, -1)
    starts = np.arange(0, n, 256)
    pieces = np.zeros((starts.size, len(PIECE)))
    drift_loss.evaluate_losses(
        drift_loss.LossWorkspace(1), [a, b, new, adv], mask, n, np.arange(n_blocks), starts,
        np.searchsorted(starts, np.arange(n_blocks + 1) * layout.BLOCK), RULES, p, sums, pieces, bad,
    )  # fmt: skip
    on = mask != 0
    ratio, w = np.exp(new - a)[on], np.exp(a - b)[on]
    loss = -np.minimum(ratio * adv[on], np.clip(ratio, 0.8, 1.3) * adv[on])
    assert bad.tolist() == [0] * n_blocks
    assert sums[:, 0].sum() == on.sum()
    assert sums[:, 1].sum() == pytest.approx(math.fsum(loss), rel=1e-12, abs=1e-14)
    for r, (low, high, below, above) in enumerate(RULES):
        applied = np.where(w < low, below, np.where(w > high, above, w))
        assert sums[:, 2 + r].sum() == pytest.approx(math.fsum(applied * loss), rel=1e-12, abs=1e-14)
    assert pieces[:, PIECE.index("loss")].sum() == pytest.approx(math.fsum(loss), rel=1e-12, abs=1e-14)
    assert pieces[:, PIECE.index("n_loss")].sum() == on.sum()


@pytest.mark.parametrize("column", range(4))
def test_a_loss_of_a_value_that_is_not_finite_is_given_back(column: int) -> None:
    a, b = draw(100)
    columns = [a, b, a.copy(), np.zeros(100)]  # an advantage of 0 would hide it
    columns[column][50] = np.nan
    sums, bad = np.zeros((1, 2 + len(RULES))), np.zeros(1, dtype=np.int64)
    p = np.full(layout.N_PARAMETERS, 1.0)
    drift_loss.evaluate_losses(
        drift_loss.LossWorkspace(1), columns, NONE, 100, np.arange(1), np.zeros(0, dtype=np.int64),
        np.zeros(2, dtype=np.int64), RULES, p, sums, np.zeros((0, len(PIECE))), bad,
    )  # fmt: skip
    assert bad.tolist() == [1]
