from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ppocli.core.chunk import Chunk, Column, Ids
from ppocli.engine import same
from ppocli.engine.same import difference


def chunks(values: Any, lengths: list[int] | None = None, cut: int = 1, **more: Any) -> list[Chunk]:
    """Cut rows into chunks of `cut` rows."""
    values = np.asarray(values)
    lengths = lengths or [1] * len(values)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    made = []
    for row in range(0, len(lengths), cut):
        stop = min(row + cut, len(lengths))
        here = slice(ends[row], ends[stop])
        present = more.get("present")
        made.append(
            Chunk(
                first_row=row,
                n_rows=stop - row,
                n_tokens=int(ends[stop] - ends[row]),
                columns={"log_probs": Column(values[here], None if present is None else present[here])},
                mask=None if "mask" not in more else more["mask"][here],
                offsets=ends[row : stop + 1] - ends[row] if more.get("nested") else None,
                step=Ids(more["step"][here]) if "step" in more else None,
            )
        )
    return made


def test_cuts_and_widening_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same, "_BLOCK", 4)
    values = np.array([-1.5, np.nan, -0.0, np.inf, 1e-30, 2.0, 3.0], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    exact = (bits.astype(np.uint32) << 16).view(np.float32)
    for cut in (1, 2, 3, 7):
        assert difference(chunks(values, cut=cut), chunks(values)) is None
        assert difference(chunks(values, cut=cut), chunks(values.astype(np.float64))) is None
        assert difference(chunks(bits, cut=cut), chunks(exact)) is None


@pytest.mark.parametrize("at", [0, 3, 4, 6])
def test_one_bit(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same, "_BLOCK", 4)
    values = np.arange(7.0)
    other = values.copy()
    other[at] = np.nextafter(other[at], 9)
    assert difference(chunks(values), chunks(other, cut=7)) == f"'log_probs' differs at token {at}"
    assert difference(chunks(np.array([0.0])), chunks(np.array([-0.0]))) == "'log_probs' differs at token 0"


def test_nulls_masks_ids_and_lengths() -> None:
    values, present = np.arange(4.0), np.array([1, 0, 1, 1], np.uint8)
    other = values.copy()
    other[1] = 99.0  # at a null
    assert difference(chunks(values, present=present), chunks(other, present=present)) is None
    assert (
        difference(chunks(values, present=present), chunks(other)) == "'log_probs present' differs at token 1"
    )
    every = np.ones(4, np.uint8)
    assert difference(chunks(values), chunks(values, mask=every, present=every)) is None
    assert difference(chunks(values), chunks(values, mask=present)) == "'mask' differs at token 1"
    steps = np.array([1, 1, 2, 2])
    assert difference(chunks(values, step=steps), chunks(values, step=steps, cut=4)) is None
    assert (
        difference(chunks(values, step=steps), chunks(values, step=steps[::-1].copy()))
        == "'step' differs at token 0"
    )
    assert difference(chunks(values, step=steps), chunks(values)) == "'step' is missing in one of the two"
    rows = chunks(values, [1, 3], nested=True)
    assert difference(rows, chunks(values, [1, 3], cut=2, nested=True)) is None
    assert difference(rows, chunks(values, [2, 2], nested=True)) == "the lengths of the rows differ"


def test_more_and_fewer_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same, "_BLOCK", 4)
    assert "from token 4 on" in str(difference(chunks(np.zeros(6)), chunks(np.zeros(7))))
    assert (
        difference(chunks(np.zeros(4)), chunks(np.zeros(9)))
        == "the numbers of tokens differ: one has 4, the other has more"
    )
    assert difference([], []) is None
