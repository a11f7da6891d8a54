"""Terms and settings that classic libraries brought, on numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ppocli.core.spec import LossSpec
from ppocli.core.terms import TERMS
from ppocli.core.tokens import Tokens
from ppocli.errors import UsageProblem


def term(name: str, spec: LossSpec | None = None, /, **columns: Any) -> list[float]:
    """The values of a term; what is not a column is an option."""
    options = {key: columns.pop(key) for key in list(columns) if not isinstance(columns[key], list)}
    arrays = {role: np.array(values, dtype=np.float64) for role, values in columns.items()}
    out: list[float] = TERMS[name].compute(Tokens(arrays), spec or LossSpec(), **options).tolist()
    return out


POLICY: dict[str, Any] = {
    # Ratios 1, 1/2, 3/2, 4.
    "log_probs": [0.0, math.log(0.5), math.log(1.5), math.log(4.0)],
    "old_log_probs": [0.0, 0.0, 0.0, 0.0],
    "advantages": [1.0, -2.0, 1.0, -1.0],
}


def test_sizes_of_losses() -> None:
    # -1; max(1, 1.6) = 1.6; -min(1.5, 1.2) = -1.2; 4.
    assert term("loss", **POLICY) == pytest.approx([-1.0, 1.6, -1.2, 4.0])
    assert term("loss", absolute=True, **POLICY) == pytest.approx([1.0, 1.6, 1.2, 4.0])


def test_terms_of_the_ratio() -> None:
    spec = LossSpec(clip_high=0.28, dual_clip=3.0)
    assert term("ratio_distance", **POLICY) == pytest.approx([0.0, 0.5, 0.5, 3.0])
    assert term("clipped_ratio", spec, **POLICY) == pytest.approx([1.0, 0.8, 1.28, 1.28])
    # Only the last one: A < 0 and ratio 4 > 3.
    assert term("dual_ratio", spec, **POLICY) == pytest.approx([0.0, 0.0, 0.0, 4.0])
    held = LossSpec(log_ratio_clamp=math.log(2.0))
    assert term("ratio", held, clamp="loss", **POLICY) == pytest.approx([1.0, 0.5, 1.5, 2.0])
    assert term("ratio", held, **POLICY) == pytest.approx([1.0, 0.5, 1.5, 4.0])
    assert term("kl", held, clamp="loss", **POLICY)[3] == pytest.approx(-math.log(2.0))
    assert term("kl", held, **POLICY)[3] == pytest.approx(-math.log(4.0))


def test_nan_counts_as_outside_the_logarithms_of_the_bounds() -> None:
    columns = {"log_probs": [math.nan, 0.1, 0.19, -0.23], "old_log_probs": [0.0] * 4}
    # log 1.2 = 0.182, log 0.8 = -0.223.
    assert term("outside_log", **columns) == [1.0, 0.0, 1.0, 1.0]
    # clip_low = 1 has no lower bound.
    low = {"log_probs": [-700.0], "old_log_probs": [0.0]}
    assert term("outside_log", LossSpec(clip_low=1.0), **low) == [0.0]


def test_a_sigmoid_for_the_clip() -> None:
    # low 0.8, width 0.4. Ratio 1 is the middle: s = 0.8 + 0.4 / 2 = 1. Ratio 4: exp(4 (0.5 - 8)) = e^-30.
    middle = {"log_probs": [0.0], "old_log_probs": [0.0], "advantages": [2.0]}
    assert term("smooth_loss", **middle) == pytest.approx([-2.0])
    high = {"log_probs": [math.log(4.0)] * 2, "old_log_probs": [0.0] * 2, "advantages": [1.0, -1.0]}
    s = 0.8 + 0.4 / (1.0 + math.exp(-30.0))
    assert term("smooth_loss", **high) == pytest.approx([-s, 4.0], rel=1e-14)
    nothing = {"log_probs": [2000.0], "old_log_probs": [0.0], "advantages": [0.0]}
    assert term("smooth_loss", **nothing) == [0.0]


VALUES: dict[str, Any] = {
    "values": [1.0, 3.0, -1.0],
    "returns": [0.5, 0.0, 0.0],
    "old_values": [0.9, 1.0, -1.0],
}


@pytest.mark.parametrize(
    ("error", "delta", "expected"),
    [
        ("square", 1.0, [0.25, 9.0, 1.0]),
        ("abs", 1.0, [0.5, 3.0, 1.0]),
        ("huber", 2.0, [0.125, 2.0 * (3.0 - 1.0), 0.5]),
        ("smooth-l1", 2.0, [0.0625, 2.0, 0.25]),
    ],
)
def test_errors_of_values(error: str, delta: float, expected: list[float]) -> None:
    spec = LossSpec(value_error=error, value_error_delta=delta)
    assert term("value_error", spec, **VALUES) == pytest.approx(expected)
    assert term("value_error", error=error, delta=delta, **VALUES) == pytest.approx(expected)


def test_an_error_is_capped() -> None:
    spec = LossSpec(value_error_cap=4.0, value_clip=0.5)
    # The second value moves from 3 to 1.5: squares 9 and 2.25.
    assert term("value_error", spec, **VALUES) == [0.25, 4.0, 1.0]
    assert term("value_error", spec, capped=False, **VALUES) == [0.25, 9.0, 1.0]
    assert term("value_error", spec, form="clipped", **VALUES) == [0.25, 2.25, 1.0]


def test_what_a_prediction_leaves() -> None:
    assert term("residual", role="old_values", **VALUES) == pytest.approx([-0.4, -1.0, 1.0])
    assert TERMS["residual"].roles(LossSpec(), {"role": "old_values"}) == ("returns", "old_values")


def test_logarithms_of_weights_within_bounds() -> None:
    columns = {"old_log_probs": [0.0, 1.0, -2.0], "rollout_log_probs": [0.5, 0.0, 0.0]}
    spec = LossSpec(objective="decoupled", rollout_is_cap=2.0, rollout_is_mode="mask")
    # Weights e^-0.5, e > 2, e^-2.
    assert term("weight", spec, kind="log", **columns) == [-0.5, 0.0, -2.0]
    assert term("weight", LossSpec(), kind="log", **columns) == [-0.5, 1.0, -2.0]


@pytest.mark.parametrize(
    "bad",
    [
        {"value_error": "cube"},
        {"value_error_delta": 0.0},
        {"value_error_cap": 0.0},
        {"value_error_cap": math.inf},
        {"adv_norm_degenerate": "nan"},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem) as caught:
        LossSpec(**bad)
    assert next(iter(bad)) in caught.value.message
