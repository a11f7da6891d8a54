from __future__ import annotations

import math
import sys
import types
from typing import Any

import numpy as np
import pytest

from ppocli.core.reference import ppo_clip_loss
from ppocli.errors import EmptyInput, InputError, UsageProblem

LN2 = math.log(2.0)


def test_the_check_value() -> None:
    loss = ppo_clip_loss(math.log(0.4), math.log(0.2), 2.0)
    assert loss == -2.4
    assert type(loss) is float


def test_the_mean_over_tokens() -> None:
    # -(1.2 * 1), -(2 * -1), -(0.5 * 1), -(0.8 * -1): mean of -1.2, 2, -0.5, 0.8.
    new = np.array([LN2, LN2, -LN2, -LN2])
    assert ppo_clip_loss(new, np.zeros(4), np.array([1.0, -1.0, 1.0, -1.0])) == pytest.approx(
        0.275, rel=1e-15
    )


def test_eps_clip_moves_both_bounds() -> None:
    assert ppo_clip_loss([LN2, -LN2], [0.0, 0.0], [1.0, -1.0], eps_clip=0.1) == pytest.approx(
        (-1.1 + 0.9) / 2
    )
    assert ppo_clip_loss([LN2], [0.0], [1.0], 0.0) == -1.0
    assert ppo_clip_loss([LN2], [0.0], [1.0], 1.0) == pytest.approx(-2.0)


@pytest.mark.parametrize("eps", [-0.1, 1.1, math.nan, math.inf])
def test_an_eps_outside_its_range_is_refused(eps: float) -> None:
    with pytest.raises(UsageProblem, match="between 0 and 1"):
        ppo_clip_loss([0.0], [0.0], [1.0], eps)


def test_nan_gives_nan() -> None:
    for place in range(3):
        arguments = [np.full(3, -1.0), np.full(3, -1.0), np.ones(3)]
        arguments[place][1] = math.nan
        assert math.isnan(ppo_clip_loss(*arguments))
    assert math.isnan(ppo_clip_loss([math.nan], [0.0], [0.0]))


def test_a_zero_advantage_adds_exactly_zero() -> None:
    assert ppo_clip_loss([1000.0, 0.0], [0.0, 0.0], [0.0, 1.0]) == -0.5
    only = ppo_clip_loss([1000.0], [0.0], [0.0])
    assert only == 0.0
    assert math.copysign(1.0, only) == 1.0


def test_overflow_is_infinite_unless_the_clip_holds_it() -> None:
    assert ppo_clip_loss([1000.0], [0.0], [-1.0]) == math.inf
    assert ppo_clip_loss([1000.0], [0.0], [1.0]) == -1.2


# ---- shapes ----------------------------------------------------------------------------------------------


def test_kept_axes_of_length_one_broadcast() -> None:
    new = np.log(np.array([[1.1, 1.0, 0.9], [1.0, 1.0, 1.0]]))
    # Advantages 1 and -2 per row: -(1.1 + 1 + 0.9) + 2 * 3, over 6 tokens.
    assert ppo_clip_loss(new, np.zeros((2, 3)), np.array([[1.0], [-2.0]])) == pytest.approx(0.5, rel=1e-15)


def test_single_values_go_with_everything() -> None:
    new = np.zeros((2, 3))
    for one in (-1.0, np.float64(-1.0), np.array(-1.0), np.array([-1.0]), np.array([[[-1.0]]])):
        assert ppo_clip_loss(new, new, one) == 1.0
    assert ppo_clip_loss(0.0, np.zeros(5), 3.0) == -3.0


@pytest.mark.parametrize(
    ("shapes", "named"),
    [
        (((4,), (4,), (4, 1)), ["(4,)", "(4, 1)", "advantages"]),
        (((4, 1), (4,), (4,)), ["(4,)", "(4, 1)", "log_probs_new"]),
        (((4, 1), (1, 4), (1, 1)), ["(4, 1)", "(1, 4)"]),
        (((3,), (4,), (4,)), ["(3,)", "(4,)"]),
        (((2, 3), (2, 3), (3,)), ["(2, 3)", "(3,)"]),
        (((2, 3), (3, 2), (2, 3)), ["(2, 3)", "(3, 2)"]),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes: tuple[tuple[int, ...], ...], named: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        ppo_clip_loss(*(np.full(shape, -1.0) for shape in shapes))
    for word in named:
        assert word in caught.value.message


@pytest.mark.parametrize(
    "shapes", [((0,), (0,), (0,)), ((0,), (0,), ()), ((3,), (3,), (0,)), ((0, 5), (0, 5), ())]
)
def test_no_token_is_an_error(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(EmptyInput, match="empty"):
        ppo_clip_loss(*(np.full(shape, -1.0) for shape in shapes))


# ---- types -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_])
def test_integer_log_probs_are_refused(place: int, dtype: type) -> None:
    arguments: list[np.ndarray] = [np.zeros(2), np.zeros(2), np.ones(2)]
    arguments[place] = np.zeros(2, dtype)
    with pytest.raises(InputError, match=("log_probs_new", "log_probs_old")[place]):
        ppo_clip_loss(*arguments)


def test_whole_numbers_are_fine_as_advantages() -> None:
    assert ppo_clip_loss([0.0, 0.0], [0.0, 0.0], np.array([1, 3])) == -2.0


@pytest.mark.parametrize(
    "bad",
    [
        np.array(["a"]),
        np.array([None]),
        np.array([1j]),
        [[1.0], [1.0, 2.0]],
        np.zeros(1, "V2"),
        np.ma.masked_array([1.0], [True]),
    ],
    ids=["text", "object", "complex", "ragged", "raw bytes", "masked"],
)
def test_what_is_not_a_number_is_refused(bad: Any) -> None:
    with pytest.raises(InputError, match="log_probs_new"):
        ppo_clip_loss(bad, 0.0, 1.0)


def test_half_precision_is_widened_before_any_arithmetic() -> None:
    # 1 + 2^-10 and 2^-24 are float16 values whose difference is not: 1 + 2^-10 - 2^-24.
    new, old = np.array([1 + 2.0**-10], np.float16), np.array([2.0**-24], np.float16)
    exact = math.exp(1 + 2.0**-10 - 2.0**-24)
    assert ppo_clip_loss(new, old, [-1.0]) == pytest.approx(exact, rel=1e-15)


def test_a_long_column_of_halves_does_not_saturate() -> None:
    ones = np.ones(5000, np.float16)
    assert ppo_clip_loss(ones, ones, ones) == -1.0


def test_bfloat16_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    # 1.0078125 = 1 + 2^-7 is the bfloat16 next to 1.
    new = np.array([1.0078125], ml_dtypes.bfloat16)
    assert ppo_clip_loss(new, [1.0], [-1.0]) == pytest.approx(math.exp(2.0**-7), rel=1e-15)
    with pytest.raises(InputError, match="int4"):
        ppo_clip_loss(np.zeros(1, ml_dtypes.int4), [1.0], [-1.0])


class FakeTensor:
    """As much of a torch tensor as is looked at; it refuses to become an array before `detach`."""

    def __init__(self, values: Any, floating: bool = True, ready: bool = False) -> None:
        self.values, self.ready = np.asarray(values), ready
        self.dtype = types.SimpleNamespace(is_floating_point=floating)

    def detach(self) -> FakeTensor:
        return FakeTensor(self.values, self.dtype.is_floating_point, ready=True)

    def cpu(self) -> FakeTensor:
        return self

    def double(self) -> FakeTensor:
        return FakeTensor(self.values.astype(np.float64), ready=self.ready)

    def numpy(self) -> np.ndarray:
        assert self.ready, "not detached"
        return self.values

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise RuntimeError("not detached")


def test_torch_tensors_are_detached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=FakeTensor))
    new, old = FakeTensor(np.array([LN2], np.float32)), FakeTensor([0.0])
    assert ppo_clip_loss(new, old, FakeTensor([2.0])) == pytest.approx(-2.4)
    with pytest.raises(InputError, match="int64"):
        ppo_clip_loss(FakeTensor(np.array([1]), floating=False), old, 1.0)


def test_torch_is_not_imported() -> None:
    before = "torch" in sys.modules
    ppo_clip_loss([0.0], [0.0], [1.0])
    assert ("torch" in sys.modules) == before
