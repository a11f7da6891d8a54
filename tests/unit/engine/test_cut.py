"""Pieces of a span: where they start in each way of cutting."""

from __future__ import annotations

import numpy as np

from ppocli.engine.cut import GROUPS, MICRO_BATCHES, SEQUENCES, by_id, by_row, cut
from ppocli.engine.span import Span


def flags(n: int, *places: int) -> np.ndarray:
    out = np.zeros(n, dtype=bool)
    out[list(places)] = True
    return out


def test_runs_are_cut_in_every_way() -> None:
    got = cut(600, {SEQUENCES: flags(600, 0, 10, 300), GROUPS: flags(600, 300)})
    assert got.starts.tolist() == [0, 10, 256, 300, 512, 0, 256, 300, 512]
    assert got.run_pieces.tolist() == [[0, 2, 4, 5], [5, 6, 8, 9]]
    assert got.places == {SEQUENCES: slice(0, 5), GROUPS: slice(5, 9)}
    assert got.ranged == 1
    assert [starts.tolist() for _, starts in got.ways()] == [[0, 10, 256, 300, 512], [0, 256, 300, 512]]


def test_ways_that_cut_alike_share_their_pieces() -> None:
    got = cut(10, {SEQUENCES: flags(10, 3), GROUPS: flags(10, 0, 3), MICRO_BATCHES: flags(10)})
    assert got.starts.tolist() == [0, 3, 0]
    assert got.places == {SEQUENCES: slice(0, 2), GROUPS: slice(0, 2), MICRO_BATCHES: slice(2, 3)}
    assert got.ranged == 0


def test_nothing_to_sum_for_is_no_way() -> None:
    got = cut(5000, {})
    assert (got.starts.size, got.run_pieces.shape, got.places, got.ranged) == (0, (0, 21), {}, -1)
    assert list(got.of_block(1)) == []


def test_pieces_of_a_block() -> None:
    got = cut(5000, {SEQUENCES: flags(5000, 2047, 4999), GROUPS: flags(5000)})
    pieces = [[got.starts[which].tolist() for which in got.of_block(block)] for block in range(3)]
    runs = [list(range(first, min(first + 2048, 5000), 256)) for first in (0, 2048, 4096)]
    assert pieces == [[[*runs[0], 2047], runs[0]], [runs[1], runs[1]], [[*runs[2], 4999], runs[2]]]


def test_rows_and_every_third_of_them() -> None:
    span = Span(100, 9, {}, np.array([98, 101, 101, 104, 107, 109]), 20)
    assert np.flatnonzero(by_row(span)).tolist() == [1, 4, 7]
    # Rows 21 and 22 begin at token 101, row 21 without a token.
    assert np.flatnonzero(by_row(span, 0, 3)).tolist() == [1, 7]
    assert np.flatnonzero(by_row(span, 1, 3)).tolist() == [4]
    assert np.flatnonzero(by_row(span, 2, 3)).tolist() == [1]
    flat = Span(10, 9, {})
    assert np.flatnonzero(by_row(flat, 0, 4)).tolist() == [2, 6]
    assert np.flatnonzero(by_row(flat, 1, 4)).tolist() == [1, 5]


def test_ids_and_nulls_among_them() -> None:
    arrays = {
        "group_id": np.array([1, 1, 2, 2, 2]),
        "group_id present": np.array([1, 1, 1, 0, 1], dtype=np.uint8),
        "step": np.array([0, 1, 1, 1, 1]),
    }
    span = Span(0, 5, arrays)
    assert np.flatnonzero(by_id(span, "group_id")).tolist() == [2, 3, 4]
    assert np.flatnonzero(by_id(span, "group_id", "step")).tolist() == [1, 2, 3, 4]
