from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ppocli.engine.pipeline import read_ahead


def readers_alive() -> int:
    return sum(thread.name == "ppocli-reader" for thread in threading.enumerate())


def test_items_come_in_order() -> None:
    assert list(read_ahead(iter(range(50)))) == list(range(50))
    assert list(read_ahead(iter(()))) == []
    assert readers_alive() == 0


def test_an_exception_comes_after_the_items_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("row 2")

    items = read_ahead(source())
    assert next(items) == 1
    with pytest.raises(ValueError, match="row 2"):
        next(items)
    assert readers_alive() == 0


def test_no_more_than_the_depth_is_made_in_advance() -> None:
    made = []

    def source() -> Iterator[int]:
        for k in range(100):
            made.append(k)
            yield k

    items = read_ahead(source(), depth=2)
    assert next(items) == 0
    # One was taken, two wait, one may be in the producer's hands.
    assert len(made) <= 4
    items.close()  # type: ignore[attr-defined]
    assert readers_alive() == 0
    assert len(made) <= 5


def test_the_reader_ends_when_the_consumer_fails() -> None:
    def source() -> Iterator[int]:
        k = 0
        while True:
            yield k
            k += 1

    def consume() -> None:
        for item in read_ahead(source()):
            if item == 3:
                raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        consume()
    assert readers_alive() == 0
