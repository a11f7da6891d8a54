"""Checksums taken block by block."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ppocli.io.checksum import Checksum


@pytest.mark.parametrize("block", [1, 9, 1 << 16, (1 << 16) + 1, 1 << 20])
def test_the_sum_does_not_depend_on_the_blocks(block: int) -> None:
    # The check value of CRC-32 is that of the digits 1 to 9.
    nine = Checksum()
    for start in range(0, 9, block):
        nine.add(b"123456789"[start : start + block])
    assert nine.value() == 0xCBF43926
    data = memoryview(np.arange(3 << 18, dtype=np.uint32)).cast("B")
    if block > 9:
        sums = []
        for size in (block, 1 << 17):
            one = Checksum()
            for start in range(0, len(data), size):
                one.add(data[start : start + size])
            sums.append(one.value())
            one.close()
        assert sums[0] == sums[1]


def test_nothing_has_the_sum_0_and_no_thread() -> None:
    before = threading.active_count()
    one = Checksum()
    assert one.value() == 0
    one.add(b"x")
    assert threading.active_count() == before
    one.close()
