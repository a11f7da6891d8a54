"""Sequences and groups against dictionaries of fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from kernel_sums import exp

from ppocli.core.partials import (
    FLAG_LOSS_NAN,
    FLAG_RATIO_NEGINF,
    FLAG_RATIO_POSINF,
    KEYED,
    PIECE,
    SEQUENCE_SUM,
)
from ppocli.kernels import sequence

BOUND = Fraction(1, 2**100)
NONE = np.zeros(0, dtype=np.uint8)
COUNTS = [PIECE.index(f"n_{name}") for name in KEYED]
SUMS = [PIECE.index(name) for name in KEYED]
LOW, HIGH, FLAGS = (PIECE.index(name) for name in ("adv_min", "adv_max", "flags"))


def draw_pieces(n: int) -> np.ndarray:
    """Pieces of one to twenty tokens, some without a valid one."""
    rng = np.random.default_rng(n)
    pieces = np.zeros((n, len(PIECE)))
    pieces[:, 0] = rng.integers(1, 20, n)
    pieces[:, 1] = rng.integers(0, pieces[:, 0] + 1)
    pieces[:, COUNTS] = pieces[:, 1:2] - rng.integers(0, 2, (n, len(KEYED))).clip(0, pieces[:, 1:2])
    pieces[:, SUMS] = np.where(pieces[:, COUNTS] > 0, rng.normal(0, 1, (n, len(KEYED))), 0.0)
    pieces[:, LOW], pieces[:, HIGH] = rng.normal(-1, 1, n), rng.normal(1, 1, n)
    return pieces


class Targets:
    """Sums and extremes over sequences that nothing was added to yet."""

    def __init__(self) -> None:
        n = len(SEQUENCE_SUM)
        self.hi, self.lo = np.zeros(n), np.zeros(n)
        self.nonfinite, self.terms = np.zeros((n, 3), dtype=np.int64), np.zeros((n, 3), dtype=np.int64)
        self.extremes = np.tile([np.inf, -np.inf], (sequence.N_EXTREMES, 1))
        self.places = np.full((sequence.N_EXTREMES, 2), -1)

    def all(self) -> tuple[Any, ...]:
        return 0.8, 1.2, self.hi, self.lo, self.nonfinite, self.terms, self.extremes, self.places

    def exact(self, name: str) -> Fraction:
        return Fraction(self.hi[SEQUENCE_SUM[name]]) + Fraction(self.lo[SEQUENCE_SUM[name]])


def check_sums(targets: Targets, sequences: list[np.ndarray]) -> None:
    """Compare with sums over sequences, each given as its pieces."""
    expected: dict[str, list[Fraction]] = {name: [] for name in SEQUENCE_SUM}
    for pieces in sequences:
        if pieces[:, 1].sum() == 0:
            expected["n_empty"].append(Fraction(1))
            continue
        expected["n_sequences"].append(Fraction(1))
        for name, count, total in zip(KEYED, COUNTS, SUMS, strict=True):
            n, sum_ = int(pieces[:, count].sum()), sum(map(Fraction, pieces[:, total].tolist()))
            if n:
                expected[f"n_{name}"].append(Fraction(1))
                expected[f"{name}_mean"].append(sum_ / n)
                expected[f"{name}_sum"].append(sum_)
                if name == "log_ratio":
                    expected["n_whole_ratio"].append(Fraction(1))
                    geo = exp(float(sum_ / n))
                    expected["ratio_geo"].append(geo)
                    expected["ratio_product"].append(exp(float(sum_)))
                    expected["outside"].append(Fraction(not Fraction(0.8) <= geo <= Fraction(1.2)))
    for name, terms in expected.items():
        slack = Fraction(1, 2**50) if name in ("ratio_geo", "ratio_product") else Fraction(1, 2**52)
        assert abs(targets.exact(name) - sum(terms)) <= slack * sum(map(abs, terms)), name


def check_state(state: np.ndarray, pieces: np.ndarray, first_row: int) -> None:
    """Compare the state of a sequence or group with its pieces."""
    assert state[sequence.STORED] == pieces[:, 0].sum()
    assert state[sequence.VALID] == pieces[:, 1].sum()
    for k, (count, total) in enumerate(zip(COUNTS, SUMS, strict=True)):
        assert state[sequence.COUNT + k] == pieces[:, count].sum()
        exact = sum(map(Fraction, pieces[:, total].tolist()))
        got = Fraction(state[sequence.HI + k]) + Fraction(state[sequence.LO + k])
        assert abs(got - exact) <= BOUND * sum(abs(Fraction(x)) for x in pieces[:, total].tolist())
    assert state[sequence.ADV_MIN] == pieces[:, LOW].min()
    assert state[sequence.ADV_MAX] == pieces[:, HIGH].max()
    assert state[sequence.FIRST_ROW] == first_row


# ---- one row after the other -----------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 7, 200])
def test_rows(step: int) -> None:
    rng = np.random.default_rng(step)
    rows = np.cumsum(rng.integers(0, 2, 200)) + 5
    pieces = draw_pieces(200)
    targets, state, open_row = Targets(), np.zeros(sequence.N_STATE), np.full(1, -1)
    for start in range(0, 200, step):
        some = slice(start, start + step)
        sequence.add_rows(rows[some], pieces[some], state, open_row, *targets.all())
    assert open_row[0] == rows[-1]
    check_state(state, pieces[rows == rows[-1]], rows[-1])
    sequence.close_sequence(state, *targets.all())
    found = [pieces[rows == row] for row in np.unique(rows)]
    check_sums(targets, found)
    lengths = [p[:, 0].sum() for p in found]
    assert targets.extremes[sequence.X_LENGTH].tolist() == [min(lengths), max(lengths)]
    first = [int(np.unique(rows)[lengths.index(bound)]) for bound in (min(lengths), max(lengths))]
    assert targets.places[sequence.X_LENGTH].tolist() == first  # the first of equal ones


def test_steps_change_no_bit() -> None:
    rows, pieces, answers = np.repeat(np.arange(60), 3), draw_pieces(180), []
    for step in (1, 11, 180):
        targets, state, open_row = Targets(), np.zeros(sequence.N_STATE), np.full(1, -1)
        for start in range(0, 180, step):
            some = slice(start, start + step)
            sequence.add_rows(rows[some], pieces[some], state, open_row, *targets.all())
        sequence.close_sequence(state, *targets.all())
        answers.append(targets.hi.tobytes() + targets.lo.tobytes() + targets.extremes.tobytes())
    assert answers[0] == answers[1] == answers[2]


def test_extremes_of_ratios_and_their_rows() -> None:
    pieces = np.zeros((4, len(PIECE)))
    pieces[:, 0] = pieces[:, 1] = pieces[:, COUNTS[1]] = [2, 4, 1, 3]
    pieces[:, SUMS[1]] = [1.0, -2.0, 0.7, -2.0]
    targets, state, open_row = Targets(), np.zeros(sequence.N_STATE), np.full(1, -1)
    sequence.add_rows(np.array([10, 20, 30, 40]), pieces, state, open_row, *targets.all())
    sequence.close_sequence(state, *targets.all())
    assert targets.extremes[sequence.X_LOG_RATIO].tolist() == [-2.0, 1.0]
    assert targets.places[sequence.X_LOG_RATIO].tolist() == [20, 10]
    assert targets.extremes[sequence.X_GEO].tolist() == [-2.0 / 3.0, 0.7]
    assert targets.places[sequence.X_GEO].tolist() == [40, 30]


def test_a_sequence_without_a_valid_token_has_a_length_and_a_count_of_its_own() -> None:
    targets, state = Targets(), np.zeros(sequence.N_STATE)
    state[sequence.STORED], state[sequence.FIRST_ROW] = 9.0, 3.0
    sequence.close_sequence(state, *targets.all())
    assert np.flatnonzero(targets.hi).tolist() == [SEQUENCE_SUM["n_empty"]]
    assert targets.exact("n_empty") == 1
    assert targets.places[sequence.X_EMPTY].tolist() == [3, 3]
    assert targets.extremes[sequence.X_LENGTH].tolist() == [9.0, 9.0]
    assert targets.extremes[sequence.X_GEO].tolist() == [np.inf, -np.inf]


def test_a_product_that_overflows_is_counted() -> None:
    pieces = np.zeros((1, len(PIECE)))
    pieces[0, 0] = pieces[0, 1] = pieces[0, COUNTS[1]] = 100
    pieces[0, SUMS[1]] = 800.0
    targets, state, open_row = Targets(), np.zeros(sequence.N_STATE), np.full(1, -1)
    sequence.add_rows(np.array([0]), pieces, state, open_row, *targets.all())
    sequence.close_sequence(state, *targets.all())
    assert targets.nonfinite[SEQUENCE_SUM["ratio_product"]].tolist() == [0, 1, 0]
    assert float(targets.exact("ratio_geo")) == pytest.approx(math.exp(8.0), rel=1e-15)
    assert targets.exact("log_ratio_sum") == 800


@pytest.mark.parametrize(
    ("flags", "geo", "total", "loss"),
    [
        (0, [0, 0, 0], [0, 0, 0], [0, 0, 0]),
        (FLAG_RATIO_POSINF, [0, 1, 0], [0, 1, 0], [0, 0, 0]),
        (FLAG_RATIO_NEGINF, [0, 0, 0], [0, 0, 1], [0, 0, 0]),  # exp(-inf) is 0
        (FLAG_RATIO_POSINF | FLAG_RATIO_NEGINF, [1, 0, 0], [1, 0, 0], [0, 0, 0]),
        (FLAG_LOSS_NAN, [0, 0, 0], [0, 0, 0], [1, 0, 0]),
    ],
)
def test_what_left_out_tokens_would_have_made(
    flags: int, geo: list[int], total: list[int], loss: list[int]
) -> None:
    pieces = np.zeros((2, len(PIECE)))
    pieces[:, :2] = 3
    pieces[0, FLAGS] = flags
    targets, state, open_row = Targets(), np.zeros(sequence.N_STATE), np.full(1, -1)
    sequence.add_rows(np.array([0, 0]), pieces, state, open_row, *targets.all())
    sequence.close_sequence(state, *targets.all())
    tallies = {name: targets.terms[which].tolist() for name, which in SEQUENCE_SUM.items()}
    assert tallies["ratio_geo"] == tallies["ratio_product"] == geo
    assert tallies["log_ratio_sum"] == total
    assert tallies["loss_mean"] == tallies["loss_sum"] == loss


# ---- keys ------------------------------------------------------------------------------------------------


class Table:
    """An empty table of states."""

    def __init__(self, capacity: int, slots: int, width: int = sequence.N_STATE) -> None:
        self.slots = np.full(slots, -1, dtype=np.int32)
        self.keys = np.zeros((capacity, 2), dtype=np.int64)
        self.states = np.full((capacity, width), np.nan)
        self.touched = np.full(capacity, -1)
        self.n = 0

    def add(
        self, first: Any, second: Any, pieces: np.ndarray, *, limit: int = 10**9, known: np.ndarray = NONE,
        rows: Any = None, clock: int = 0,
    ) -> int:  # fmt: skip
        rows = np.arange(len(pieces)) if rows is None else np.asarray(rows)
        self.n, taken = sequence.add_keyed(
            self.slots, self.keys, self.states, self.touched, self.n, limit,
            np.asarray(first), np.asarray(second), known, rows, pieces, clock,
        )  # fmt: skip
        return taken


def test_states_by_key() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.integers(-3, 3, 500), rng.choice([-(2**63), -1, 0, 7, 2**40, 2**63 - 1], 500)
    pieces, table = draw_pieces(500), Table(64, 256)
    for start in (0, 100, 101):
        stop = {0: 100, 100: 101, 101: 500}[start]
        some = slice(start, stop)
        rows = np.arange(start, stop) * 2
        assert table.add(first[some], second[some], pieces[some], rows=rows, clock=start) == stop - start
    sight: dict[tuple[int, int], list[int]] = {}
    for j, key in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        sight.setdefault(key, []).append(j)
    assert table.keys[: table.n].tolist() == [list(key) for key in sight]  # in order of first sight
    for at, (key, where) in enumerate(sight.items()):
        check_state(table.states[at], pieces[where], where[0] * 2)
        assert table.touched[at] == where[-1]
        assert sequence.find(table.slots, table.keys, *key) == at
    assert sequence.find(table.slots, table.keys, 99, 99) == -1


def test_keys_that_meet_in_one_slot() -> None:
    # Sixteen keys in a table of sixteen slots but one: every chain of probes is walked to its end.
    keys = np.arange(15) * 2**32
    table = Table(15, 16)
    table.add(keys, keys, draw_pieces(15))
    assert [sequence.find(table.slots, table.keys, k, k) for k in keys.tolist()] == list(range(15))
    assert sequence.find(table.slots, table.keys, 1, 1) == -1


def test_null_ids_are_passed_over() -> None:
    pieces, table = draw_pieces(4), Table(4, 16)
    known = np.array([1, 0, 1, 0], dtype=np.uint8)
    assert table.add([0, 0, 0, 0], [5, 5, 6, 7], pieces, known=known) == 4
    assert table.n == 2
    check_state(table.states[0], pieces[:1], 0)
    check_state(table.states[1], pieces[2:3], 2)


def test_the_limit_stops_before_a_new_key() -> None:
    pieces, table = draw_pieces(6), Table(2, 16)
    assert table.add([0] * 6, [1, 2, 1, 3, 1, 2], pieces, limit=2) == 3
    assert table.n == 2
    check_state(table.states[0], pieces[[0, 2]], 0)
    assert table.touched.tolist() == [2, 1]
    assert table.add([0] * 2, [1, 2], pieces[4:], limit=2, clock=4) == 2
    assert table.touched.tolist() == [4, 5]


def test_growth_and_forgetting() -> None:
    table, pieces = Table(8, 32), draw_pieces(8)
    table.add([1] * 8, np.arange(8), pieces)
    larger = np.full(64, -1, dtype=np.int32)
    sequence.rebuild(larger, table.keys, 8)
    assert [sequence.find(larger, table.keys, 1, k) for k in range(8)] == list(range(8))
    sequence.rebuild(larger, table.keys, 3)
    assert [sequence.find(larger, table.keys, 1, k) for k in range(8)] == [0, 1, 2, -1, -1, -1, -1, -1]
    # A state at the place of a forgotten one starts anew.
    table.slots, table.n = larger, 3
    table.add([1], [70], pieces[:1], rows=[44])
    check_state(table.states[3], pieces[:1], 44)


def test_groups_of_several_files() -> None:
    pieces = draw_pieces(9)
    one, other = Table(8, 32), Table(8, 32)
    one.add([0] * 4, [1, 2, 1, 3], pieces[:4])
    other.add([0] * 5, [3, 4, 1, 4, 3], pieces[4:], rows=[50, 60, 70, 80, 90])
    arguments = one.slots, one.keys, one.states, one.n
    n = sequence.merge_keyed(*arguments, 100, other.keys, other.states, other.n)
    assert n == 4
    for at, (where, row) in enumerate((([0, 2, 6], 0), ([1], 1), ([3, 4, 8], 3), ([5, 7], 60))):
        check_state(one.states[at], pieces[where], row)
    assert sequence.merge_keyed(*arguments[:3], n, 4, np.array([[9, 9]]), other.states, 1) == -1


@pytest.mark.parametrize("n_keyed", [0, 1, 2, 4])
def test_narrow_states_keep_the_first_sums(n_keyed: int) -> None:
    pieces = draw_pieces(9)
    for which in (*COUNTS[n_keyed:], *SUMS[n_keyed:]):
        pieces[:, which] = 0.0  # no columns for them
    narrow, wide = Table(8, 32, sequence.width_of(n_keyed)), Table(8, 32)
    for table, some in ((narrow, slice(0, 4)), (wide, slice(4, 9))):
        table.add([0] * len(pieces[some]), np.arange(9)[some] % 3, pieces[some], rows=np.arange(9)[some])
    for at, state in enumerate(sequence.widened(narrow.states[: narrow.n])):
        check_state(state, pieces[:4][at::3], at)
    for k in range(len(KEYED)):
        pair, of_wide = np.zeros((2, 2))
        n = sequence.mean_over_groups(narrow.states, narrow.n, k, pair)
        assert n == sequence.mean_over_groups(sequence.widened(narrow.states), narrow.n, k, of_wide)
        assert pair.tolist() == of_wide.tolist()
    n = sequence.merge_keyed(
        wide.slots, wide.keys, wide.states, wide.n, 100, narrow.keys, narrow.states, narrow.n
    )
    assert n == 3
    for at in range(3):
        group = int(wide.keys[at, 1])
        check_state(wide.states[at], pieces[group::3], next(r for r in range(4, 9) if r % 3 == group))


def test_mean_over_groups() -> None:
    pieces, table = draw_pieces(40), Table(16, 64)
    table.add([0] * 40, np.arange(40) % 7, pieces)
    for k, (count, total) in enumerate(zip(COUNTS, SUMS, strict=True)):
        means = []
        for group in range(7):
            mine = pieces[group::7]
            if mine[:, count].sum():
                means.append(sum(map(Fraction, mine[:, total].tolist())) / int(mine[:, count].sum()))
        pair = np.zeros(2)
        assert sequence.mean_over_groups(table.states, table.n, k, pair) == len(means)
        assert float(Fraction(pair[0]) + Fraction(pair[1])) == pytest.approx(float(sum(means)), rel=1e-15)
    assert sequence.mean_over_groups(table.states, 0, 0, np.zeros(2)) == 0
