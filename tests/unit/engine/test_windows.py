"""Windows of whole sequences, cut by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import ppocli
from ppocli.engine import windows
from ppocli.engine.span import Span
from ppocli.engine.windows import Interleaved, NotTogether, Window, Windows


def spans_of(ids: list[int], *sizes: int, rows: bool = False) -> Iterator[Span]:
    """Spans of these sizes; each token's value is its index in the file."""
    codes = np.array(ids)
    starts = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1))
    at = 0
    for size in sizes:
        arrays: dict[str, Any] = {"value": np.arange(at, at + size, dtype=float)}
        row_starts = None
        if rows:
            first = int(np.searchsorted(starts, at, side="right")) - 1
            row_starts = starts[first:]
        else:
            arrays["sequence_id"] = codes[at : at + size]
        yield Span(at, size, arrays, row_starts)
        at += size
    assert at == len(ids)


def run(ids: list[int], *sizes: int, rows: bool = False, hold: bool = False) -> tuple[list[Any], list[Any]]:
    """The sequences that were evaluated, and the sum of each token's sequence beside the spans."""
    seen: list[list[float]] = []

    def evaluate(window: Window) -> dict[str, np.ndarray]:
        values, bounds = window.arrays["value"], window.offsets
        parts = [values[a:b] for a, b in pairwise(bounds)]
        seen.extend(part.tolist() for part in parts)
        return {"total": np.concatenate([np.full(part.size, part.sum()) for part in parts])}

    stage = Windows("f", not rows, hold, evaluate)
    out = [span.arrays["total"].tolist() for span in stage.through(spans_of(ids, *sizes, rows=rows))]
    return seen, [x for part in out for x in part]


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("sizes", [(6,), (1, 1, 1, 1, 1, 1), (4, 2), (2, 4), (5, 1)])
def test_sequences_are_whole_whatever_the_spans(sizes: tuple[int, ...], rows: bool) -> None:
    seen, totals = run([3, 3, 5, 7, 7, 7], *sizes, rows=rows)
    assert seen == [[0.0, 1.0], [2.0], [3.0, 4.0, 5.0]]
    assert totals == [1.0, 1.0, 2.0, 12.0, 12.0, 12.0]


def test_a_span_is_given_out_when_its_last_sequence_has_ended() -> None:
    stage = Windows("f", True, False, lambda window: {"n": np.zeros(window.arrays["value"].size)})
    given = stage.through(spans_of([1, 1, 2, 2, 2, 3], 2, 2, 2))
    assert [span.origin for span in given] == [0, 2, 4]


def test_an_id_that_comes_back_is_noticed() -> None:
    with pytest.raises(Interleaved):
        run([1, 1, 2, 2, 1, 1], 2, 2, 2)
    with pytest.raises(Interleaved):
        run([9, 3, 5, 3], 4)


def test_ids_in_any_order_are_fine_as_long_as_none_comes_back() -> None:
    seen, _ = run([9, 9, 3, 5, 5, 4], 3, 3)
    assert seen == [[0.0, 1.0], [2.0], [3.0, 4.0], [5.0]]


def test_interleaved_sequences_are_brought_together_when_held() -> None:
    seen, totals = run([1, 2, 1, 2, 1], 2, 3, hold=True)
    assert seen == [[0.0, 2.0, 4.0], [1.0, 3.0]]
    assert totals == [6.0, 4.0, 6.0, 4.0, 6.0]


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "HELD_BYTES", 40)
    with pytest.raises(NotTogether, match="too large to sort"):
        run([1, 2, 1, 2, 1, 2], 6, hold=True)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "KNOWN_IDS", 3)
    seen, _ = run(list(range(10)), 5, 5)  # ascending ids need no memory
    assert len(seen) == 10
    with pytest.raises(NotTogether, match="out of order"):
        run([9, 8, 7, 6, 5, 4], 6)


def test_a_null_id_is_refused() -> None:
    span = Span(
        0, 2, {"value": np.zeros(2), "sequence_id": np.array([1, 0]), "sequence_id present": np.array([1, 0])}
    )
    stage = Windows("f", True, False, lambda window: {})
    with pytest.raises(NotTogether, match="sequence_id is null") as caught:
        list(stage.through(iter([span])))
    assert caught.value.where == "f, row 1"


def test_an_id_that_comes_back_after_many_others_is_one_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "KNOWN_IDS", 3000)
    rng = np.random.default_rng(2)
    ids = np.concatenate([np.arange(9000), [5, 17]])
    old = -rng.exponential(1.0, ids.size)
    columns = {
        "log_probs": old + rng.normal(0.0, 0.3, ids.size),
        "old_log_probs": old,
        "advantages": rng.normal(0.0, 1.0, ids.size),
        "sequence_id": ids,
    }
    order = np.argsort(ids, kind="stable")
    together = ppocli.evaluate(**{role: x[order] for role, x in columns.items()}, objective="gspo")
    apart = ppocli.evaluate(**columns, objective="gspo", chunk_rows=2048)
    assert apart.metrics["policy_loss"] == pytest.approx(together.metrics["policy_loss"], rel=2**-47)
