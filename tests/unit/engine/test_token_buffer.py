"""Tokens that are kept until there are enough: what some of them lack is 1, and arrays are used again."""

from __future__ import annotations

import numpy as np

from ppocli.engine.token_buffer import TokenBuffer


def test_tokens_stand_one_after_the_other_in_the_types_asked_for() -> None:
    buffer = TokenBuffer(4, {"owner": np.int32})
    values, owner = np.array([0.5, 1.5, 2.5], dtype=np.float32), np.array([7, 8, 9])
    buffer.add({"x": values, "owner": owner}, 1, 2)
    buffer.add({"x": values, "owner": owner}, 0, 1)
    assert buffer.n == 3
    taken = buffer.take()
    assert taken["x"].tolist() == [1.5, 2.5, 0.5]
    assert taken["owner"].tolist() == [8, 9, 7]
    assert (taken["x"].dtype, taken["owner"].dtype) == (np.float32, np.int32)


def test_an_array_that_some_tokens_lack_is_1_there() -> None:
    buffer = TokenBuffer(5, {})
    x, mask = np.array([3.0, 4.0]), np.array([0, 0], dtype=np.uint8)
    buffer.add({"x": x}, 0, 1)
    buffer.add({"x": x, "mask": mask}, 0, 2)
    buffer.add({"x": x}, 0, 2)
    assert buffer.take()["mask"].tolist() == [1, 0, 0, 1, 1]


def test_tokens_that_were_taken_out_leave_nothing_behind() -> None:
    buffer = TokenBuffer(3, {})
    buffer.add({"x": np.array([1, 2, 3]), "mask": np.zeros(3, dtype=np.uint8)}, 0, 3)
    buffer.take()
    assert buffer.n == 0
    buffer.add({"x": np.array([4, 5])}, 0, 2)
    taken = buffer.take()
    assert taken["x"].tolist() == [4, 5]
    assert taken["mask"].tolist() == [1, 1]


def test_what_was_added_may_change_afterwards() -> None:
    buffer, values = TokenBuffer(2, {}), np.array([1, 2])
    buffer.add({"x": values}, 0, 2)
    values[:] = 0
    assert buffer.take()["x"].tolist() == [1, 2]
