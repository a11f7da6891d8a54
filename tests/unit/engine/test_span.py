from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from ppocli.core.chunk import Chunk, Column, Ids
from ppocli.engine.span import LARGE, Assembler, Span

BLOCK = 4


def flat(start: int, stop: int, *, nulls: Iterable[int] = (), masked: Iterable[int] = ()) -> Chunk:
    """Tokens whose log-prob is their index in the file."""
    tokens = np.arange(start, stop)
    present = (~np.isin(tokens, list(nulls))).astype(np.uint8) if nulls else None
    mask = (~np.isin(tokens, list(masked))).astype(np.uint8) if masked else None
    columns = {"log_probs": Column(tokens.astype(np.float64), present)}
    return Chunk(first_row=start, n_rows=stop - start, n_tokens=stop - start, columns=columns, mask=mask)


def rows(first_row: int, start: int, lengths: list[int], groups: Ids | None = None) -> Chunk:
    """Rows of tokens whose log-prob is their index in the file."""
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    n = int(offsets[-1])
    columns = {"log_probs": Column(np.arange(start, start + n, dtype=np.float64))}
    return Chunk(first_row, len(lengths), n, columns, offsets=offsets, group_id=groups)


def spans_of(*chunks: Chunk) -> list[Span]:
    assembler = Assembler(BLOCK)
    out = [span for chunk in chunks for span in assembler.push(chunk)]
    return [*out, *assembler.finish()]


def test_every_span_but_the_last_holds_whole_blocks() -> None:
    for cuts in ([0, 11], [0, 1, 2, 3, 11], [0, 3, 8, 11], [0, 4, 8, 11], [0, 7, 7, 11]):
        spans = spans_of(*(flat(a, b) for a, b in pairwise(cuts)))
        assert [span.origin % BLOCK for span in spans] == [0] * len(spans)
        assert all(span.n_tokens % BLOCK == 0 for span in spans[:-1])
        assert sum(span.n_tokens for span in spans) == 11
        joined = np.concatenate([span.arrays["log_probs"] for span in spans])
        assert joined.tolist() == list(range(11))


def test_chunks_without_nulls_or_mask_join_those_that_have_them() -> None:
    (span,) = spans_of(flat(0, 1), flat(1, 2, nulls=[1]), flat(2, 3, masked=[2]), flat(3, 4))
    assert span.arrays["log_probs present"].tolist() == [1, 0, 1, 1]
    assert span.arrays["mask"].tolist() == [1, 1, 0, 1]


def test_rows_of_tokens_where_rows_are_empty() -> None:
    # Rows 0 and 1 hold nothing, row 2 tokens 0 to 4, row 3 nothing, row 4 tokens 5 and 6, row 5 nothing.
    for chunks in (
        [rows(0, 0, [0, 0, 5, 0, 2, 0])],
        [rows(0, 0, [0]), rows(1, 0, [0, 5]), rows(3, 5, [0, 2, 0])],
    ):
        spans = spans_of(*chunks)
        found = [span.rows_of(np.arange(span.n_tokens) + span.origin) for span in spans]
        assert np.concatenate(found).tolist() == [2, 2, 2, 2, 2, 4, 4]
        assert spans[-1].start_of_row(4) == 5


def test_a_row_that_goes_on_keeps_its_start() -> None:
    first, second = spans_of(rows(7, 0, [1, 2]), rows(9, 3, [3]))
    assert (first.origin, second.origin) == (0, 4)
    assert second.rows_of(np.array([4, 5])).tolist() == [9, 9]
    assert second.start_of_row(9) == 3  # in the span before


def test_an_id_of_a_row_is_spread_over_its_tokens() -> None:
    groups = Ids(np.array([5, 6, 7]), np.array([1, 1, 0], dtype=np.uint8))
    (span,) = spans_of(rows(0, 0, [3, 0, 1], groups))
    assert span.arrays["group_id"].tolist() == [5, 5, 5, 7]
    assert span.arrays["group_id present"].tolist() == [1, 1, 1, 0]


def test_nothing_gives_nothing() -> None:
    assert spans_of() == []
    assert spans_of(flat(0, 0), rows(0, 0, [0, 0])) == []


def test_a_chunk_is_not_copied_to_follow_an_open_block() -> None:
    first, second = flat(0, 3), flat(3, 3 + BLOCK * 2 * LARGE)
    spans = spans_of(first, second)
    assert [(span.origin, span.n_tokens) for span in spans] == [
        (0, BLOCK),
        (BLOCK, 3 + BLOCK * 2 * LARGE - BLOCK - 3),
        (BLOCK * 2 * LARGE, 3),
    ]
    assert np.shares_memory(spans[1].arrays["log_probs"], second.columns["log_probs"].values)
    joined = np.concatenate([span.arrays["log_probs"] for span in spans])
    assert joined.tolist() == list(range(3 + BLOCK * 2 * LARGE))


def test_parts_of_a_span_know_their_rows() -> None:
    (span,) = spans_of(rows(4, 0, [3, 6, 3]))
    parts = list(span.parts(4))
    assert [(part.origin, part.n_tokens) for part in parts] == [(0, 4), (4, 4), (8, 4)]
    found = [part.rows_of(np.arange(4) + part.origin).tolist() for part in parts]
    assert found == [[4, 4, 4, 5], [5, 5, 5, 5], [5, 6, 6, 6]]
