"""Reading several parts of an input at once, handed over in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")

MOST_WORKERS = 8
"""Parts that are read at once, however many processors there are: each holds a few batches in memory."""

DEPTH = 1
"""Items of a part that wait to be taken."""


def n_workers(n_parts: int) -> int:
    """Return how many threads read `n_parts` parts: as many as there are processors for this process."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(n_parts, cpus, MOST_WORKERS))


def in_order(parts: Sequence[Callable[[], Iterator[Item]]], workers: int) -> Iterator[Item]:
    """Yield the items of the first part, then of the second, and so on; each is made on one thread.

    No part is begun more than `workers` parts ahead of the one that is taken from. What a part raises is
    raised here, after its items. When the consumer stops early the threads end at their next item.
    """
    line = _Line(parts, workers)
    threads = [threading.Thread(target=line.work, name="ppocli-parts", daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        yield from line.take()
    finally:
        line.stop()
        for thread in threads:
            thread.join()


class _Line(Generic[Item]):
    """What the threads of `in_order` share."""

    def __init__(self, parts: Sequence[Callable[[], Iterator[Item]]], ahead: int) -> None:
        self._parts, self._ahead = parts, ahead
        self._changed = threading.Condition()
        self._waiting: list[deque[Item]] = [deque() for _ in parts]
        self._ended: list[BaseException | bool] = [False] * len(parts)
        self._begun = self._taken = 0
        self._stopped = False

    def take(self) -> Iterator[Item]:
        """Yield all items in order."""
        for index, waiting in enumerate(self._waiting):
            with self._changed:
                self._taken = index
                self._changed.notify_all()
            while True:
                with self._changed:
                    while not (waiting or self._ended[index]):
                        self._changed.wait()
                    if not waiting:
                        break
                    item = waiting.popleft()
                    self._changed.notify_all()
                yield item
                del item
            end = self._ended[index]
            if isinstance(end, BaseException):
                raise end

    def stop(self) -> None:
        """Let the threads end."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def work(self) -> None:
        """Read one part after the other; run by each thread."""
        while (index := self._next()) is not None:
            end: BaseException | bool = True
            try:
                for item in self._parts[index]():
                    if not self._put(index, item):
                        return
                    del item
            except BaseException as problem:
                end = problem
            with self._changed:
                self._ended[index] = end
                self._changed.notify_all()

    def _next(self) -> int | None:
        """Return the next part to read, once it is not too far ahead; None at the end."""
        with self._changed:
            while not self._stopped and self._taken + self._ahead <= self._begun < len(self._parts):
                self._changed.wait()
            if self._stopped or self._begun == len(self._parts):
                return None
            self._begun += 1
            return self._begun - 1

    def _put(self, index: int, item: Item) -> bool:
        """Hand an item over, once there is room; return False where nobody wants it any more."""
        with self._changed:
            while not self._stopped and len(self._waiting[index]) >= DEPTH:
                self._changed.wait()
            self._waiting[index].append(item)
            self._changed.notify_all()
            return not self._stopped
