from __future__ import annotations

import pytest

from ppocli.render.bars import bar


@pytest.mark.parametrize(
    ("n", "most", "want"), [(0, 10, ""), (10, 10, "####"), (5, 10, "##"), (1, 1000, "#"), (0, 0, "")]
)
def test_bars(n: int, most: int, want: str) -> None:
    assert bar(n, most, 4) == want
