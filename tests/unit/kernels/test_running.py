"""Sums in a given order against NumPy's float32 and ml_dtypes' bfloat16, one addition after the other."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from ppocli.core.precision import PRECISIONS
from ppocli.kernels import running

BFLOAT16 = np.array(PRECISIONS["bfloat16"].rule)


def run(terms: np.ndarray, pieces: int = 1) -> np.ndarray:
    state = np.zeros(running.N_RUNNING)
    for part in np.array_split(terms, pieces):
        running.add_running(part, BFLOAT16, state)
    return state


def draw(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(n) * 10.0 ** rng.uniform(-6, 2, n)


def naive(terms: np.ndarray, kind: type) -> tuple[float, int, int, int]:
    """Sum, number of terms at its last move, terms but 0 that did not move it, and these since then."""
    total, moved, idle, since = kind(0.0), 0, 0, 0
    for n, term in enumerate(terms.astype(np.float32).astype(kind), start=1):
        after = kind(total + term)
        if after != total:
            moved, since = n, 0
        elif term != 0:
            idle, since = idle + 1, since + 1
        total = after
    return float(total), moved, idle, since


@pytest.mark.parametrize("seed", range(3))
def test_running_sums_are_those_of_the_types(seed: int) -> None:
    terms = draw(3000, seed)
    terms[::11] = 0.0
    state = run(terms)
    first, second = running.NAIVE, running.BFLOAT16
    assert tuple(state[first : first + 4]) == naive(terms, np.float32)
    assert tuple(state[second : second + 4]) == naive(terms, ml_dtypes.bfloat16)
    assert state[running.N_TERMS] == 3000
    assert run(terms, 7).tolist() == state.tolist()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_sums_that_cross_powers_of_two_with_many_ties(kind: type, seed: int) -> None:
    # Multiples of small powers of two: half steps, sums next to powers of two and at 0, on either side.
    rng = np.random.default_rng([seed, 5])
    terms = rng.integers(-9, 10, 5000) * 2.0 ** rng.integers(-12, [1, 3, 8, 11][seed], 5000)
    terms = terms.astype(kind).astype(np.float64)
    name = np.dtype(kind).name
    sums = np.zeros(1)
    for part in np.array_split(np.stack([np.zeros(5000), terms]), 3, axis=1):
        running.add_in_format(part.copy(), part.shape[1], np.array([PRECISIONS[name].rule]), sums)
    with np.errstate(over="ignore", invalid="ignore"):
        want = naive(terms, kind)
    assert np.array_equal(sums, [want[0]], equal_nan=True)
    if kind is not np.float16:
        which = running.NAIVE if kind is np.float32 else running.BFLOAT16
        assert tuple(run(terms, 4)[which : which + 4]) == want


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_a_sum_that_becomes_infinite_stays_so(name: str) -> None:
    kinds = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
    largest = PRECISIONS[name].max_finite
    for terms in ([largest / 2] * 3 + [-1.0] * 5, [largest, -largest, 1.0], [largest, largest, -np.inf, 1.0]):
        sums, total = np.zeros(1), kinds[name](0.0)
        table = np.stack([np.zeros(len(terms)), terms])
        running.add_in_format(table, len(terms), np.array([PRECISIONS[name].rule]), sums)
        with np.errstate(over="ignore", invalid="ignore"):
            for term in terms:
                total = kinds[name](total + kinds[name](term))
        assert np.array_equal(sums, [float(total)], equal_nan=True)


@pytest.mark.parametrize("scale", [1e-38, 1e38])
def test_a_bfloat16_sum_that_is_subnormal_or_overflows(scale: float) -> None:
    terms = np.abs(draw(50)) * scale
    with np.errstate(over="ignore"):
        want = naive(terms, ml_dtypes.bfloat16)
    assert tuple(run(terms)[running.BFLOAT16 : running.BFLOAT16 + 4]) == want


def test_a_compensated_sum_is_the_exact_one_rounded() -> None:
    terms = np.array([1.0, 1e8, 1.0, -1e8, 3e-9] * 40)
    state = run(terms)
    both = np.float32(state[running.NAIVE]) + np.float32(state[running.COMPENSATION])
    assert both == np.float32(math.fsum(terms.astype(np.float32).tolist())) == np.float32(80.0)
    assert state[running.NAIVE] != 80.0


def test_ones_stop_at_two_to_the_bits() -> None:
    state = run(np.ones(1000))
    assert state[running.BFLOAT16 : running.BFLOAT16 + 4].tolist() == [256.0, 256.0, 744.0, 744.0]
    state[running.NAIVE], state[running.NAIVE_MOVED] = 2.0**24 - 1.0, 2.0**24 - 1.0
    state[running.N_TERMS] = 2.0**24 - 1.0
    running.add_running(np.ones(500), BFLOAT16, state)
    assert state[running.NAIVE : running.NAIVE + 4].tolist() == [2.0**24, 2.0**24, 499.0, 499.0]


def test_tokens_that_do_not_count_are_no_terms() -> None:
    terms = draw(100)
    with_gaps = np.insert(terms, [0, 50, 100], np.nan)
    assert run(with_gaps).tolist() == run(terms).tolist()


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "tf32"])
def test_sums_in_a_format(name: str) -> None:
    kinds = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
    terms = draw(400).astype(np.float16).astype(np.float64)
    counts = np.where(np.arange(400) % 9 == 0, np.nan, 0.0)
    rules = np.array([PRECISIONS[name].rule] * 2)
    sums = np.zeros(2)
    behind = np.full((3, 7), np.nan)
    running.add_in_format(np.hstack([np.stack([counts, terms, -terms]), behind]), 400, rules, sums)
    total = 0.0
    for term in terms[np.isfinite(counts)].tolist():
        exact = total + term
        if name == "tf32":
            step = 2.0 ** (math.frexp(exact)[1] - 11)
            total = round(exact / step) * step
        else:
            total = float(kinds[name](exact))
    assert sums.tolist() == [total, -total]


def tree(values: list[np.float32]) -> np.float32:
    """A balanced tree over the largest power of two, then the rest, added from the small end."""
    if len(values) == 1:
        return values[0]
    half = 1 << (len(values).bit_length() - 1)
    if half == len(values):
        return np.float32(tree(values[: half // 2]) + tree(values[half // 2 :]))
    return np.float32(tree(values[:half]) + tree(values[half:]))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 13, 100])
@pytest.mark.parametrize("pieces", [1, 3])
def test_sums_of_runs_in_order_and_in_a_tree(n: int, pieces: int) -> None:
    runs = np.stack([draw(n, 1), draw(n, 2)], axis=1).astype(np.float32).astype(np.float64)
    in_order, levels, done = np.zeros(2), np.zeros((running.N_LEVELS, 2)), 0
    for part in np.array_split(runs, pieces):
        running.add_runs(part, in_order, levels, done)
        done += part.shape[0]
    folded = running.fold_tree(levels, n)
    for v in range(2):
        values = runs[:, v].astype(np.float32)
        assert in_order[v] == (np.add.accumulate(values, dtype=np.float32)[-1] if n else 0.0)
        assert folded[v] == (tree(list(values)) if n else 0.0)
