from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from ppocli.io.ahead import DEPTH, in_order


def part(first: int, n: int, made: list[int] | None = None) -> Iterator[int]:
    for k in range(first, first + n):
        if made is not None:
            made.append(k)
        yield k


def alive() -> int:
    return sum(thread.name == "ppocli-parts" for thread in threading.enumerate())


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_items_come_in_the_order_of_the_parts(workers: int) -> None:
    sizes = [0, 3, 0, 7, 1, 1, 1, 20, 0]
    parts = [partial(part, 100 * k, size) for k, size in enumerate(sizes)]
    expected = [100 * k + i for k, size in enumerate(sizes) for i in range(size)]
    assert list(in_order(parts, workers)) == expected
    assert list(in_order([], workers)) == []
    assert alive() == 0


def test_parts_are_made_at_once() -> None:
    both = threading.Barrier(2, timeout=30)

    def meeting(k: int) -> Iterator[int]:
        both.wait()
        yield k

    assert list(in_order([partial(meeting, 0), partial(meeting, 1)], 2)) == [0, 1]


def test_what_is_made_in_advance_is_bounded() -> None:
    made: list[int] = []
    parts = [partial(part, 10 * k, 1, made) for k in range(50)]
    items = in_order(parts, 3)
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert alive() == 0
    assert len(made) <= 3

    made.clear()
    items = in_order([partial(part, 0, 1000, made)], 1)
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    # One was taken, `DEPTH` wait, one was in the thread's hands, one more may replace it.
    assert len(made) <= DEPTH + 3


def test_a_failure_comes_after_the_items_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 7
        raise ValueError("row 2")

    items = in_order([partial(part, 0, 2), failing, partial(part, 50, 2)], 3)
    assert [next(items) for _ in range(3)] == [0, 1, 7]
    with pytest.raises(ValueError, match="row 2"):
        next(items)
    assert alive() == 0
