"""Clip intervals as bounds on the log-ratio."""

from __future__ import annotations

from typing import Any

import pytest

from ppocli.core.objective_texts import clip_ends
from ppocli.core.spec import LossSpec


@pytest.mark.parametrize(
    ("settings", "low", "high"),
    [
        pytest.param({"clip_low": 0.2, "clip_high": 0.28}, -0.2231435513, 0.2468600779, id="ratio"),
        pytest.param(
            {"objective": "gspo", "clip_low": 0.5, "clip_high": 1.0},
            -0.6931471806,
            0.6931471806,
            id="sequence",
        ),
        pytest.param({"objective": "gmpo", "clip_low": 0.4, "clip_high": 0.3}, -0.4, 0.3, id="log-ratio"),
        pytest.param(
            {"objective": "cispo", "cispo_low": 0.0, "cispo_high": 5.0}, None, 1.6094379124, id="no lower end"
        ),
        pytest.param({"objective": "is"}, None, None, id="nothing is clipped"),
        pytest.param({"objective": "dppo-tv"}, None, None, id="not the ratio"),
    ],
)
def test_ends_on_the_log_ratio(settings: dict[str, Any], low: float | None, high: float | None) -> None:
    ends = clip_ends(LossSpec(**settings).to_dict())
    for end, expected in zip(ends, (low, high), strict=True):
        assert end == (None if expected is None else pytest.approx(expected, rel=1e-9))
