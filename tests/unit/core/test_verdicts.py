from __future__ import annotations

from typing import Any

import pytest

from ppocli.core.audit_spec import AuditOptions, formats_of
from ppocli.core.verdicts import REFERENCE, Candidate, judge, recommend, worst_of
from ppocli.errors import UsageProblem

GOOD: dict[str, Any] = {
    "policy_loss": -0.5,
    "policy_loss_scaled_error": 1e-4,
    "clip_flips": 0,
    "ratio_overflow": 0,
    "ratio_underflow": 0,
    "rounded_to_zero_frac": 0.0,
    "grad_error": 0.0,
    "grad_reversed": 0,
    "approx_kl_k3": 1.0,
    "approx_kl_k3_error": 0.0,
}


def level(*, n_tokens: int = 1000, n_left_out: int = 0, **changes: Any) -> str:
    return judge({**GOOD, **changes}, n_tokens, n_left_out, 1e-3).level


def test_within_all_limits() -> None:
    verdict = judge(GOOD, 1000, 0, 1e-3)
    assert (verdict.level, verdict.reasons) == ("ok", ())


@pytest.mark.parametrize(
    ("name", "fine", "warning", "error"),
    [
        ("policy_loss_scaled_error", 1e-3, 1.01e-3, 1.01e-2),
        ("clip_flips", 0, 1, 11),
        ("rounded_to_zero_frac", 0.1, 0.11, 0.51),
        ("grad_error", 0.01, 0.011, 0.11),
    ],
)
def test_what_is_graded(name: str, fine: float, warning: float, error: float) -> None:
    assert [level(**{name: value}) for value in (fine, warning, error)] == ["ok", "warning", "error"]


def test_ends_of_the_limits_are_still_inside() -> None:
    assert level(clip_flips=10) == "warning"  # 1 %
    assert level(policy_loss_scaled_error=1e-2) == "warning"
    assert level(rounded_to_zero_frac=0.5) == "warning"
    assert level(grad_error=0.1) == "warning"


@pytest.mark.parametrize("name", ["ratio_underflow", "grad_reversed"])
def test_what_is_a_warning_whenever_it_occurs(name: str) -> None:
    assert level(**{name: 1}) == "warning"
    assert level(**{name: 1000}) == "warning"


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [
        (1.1, 0.1, "ok"),  # 10 % of 1
        (1.2, 0.2, "warning"),
        (0.5, -0.5, "warning"),
        (2.5, 1.5, "error"),
        (0.2, 0.2, "ok"),  # 0 in float64: nothing to compare with
        (None, None, "ok"),
    ],
)
def test_the_kl_is_compared_with_itself(value: float, error: float, expected: str) -> None:
    assert level(approx_kl_k3=value, approx_kl_k3_error=error) == expected


def test_a_mean_of_rounded_sums_is_a_warning_at_most() -> None:
    assert level(rounded_sums_scaled_error=1e-3) == "ok"
    assert level(rounded_sums_scaled_error=1.0) == "warning"
    assert level(rounded_sums_scaled_error=None) == "warning"


def test_what_is_an_error_whenever_it_occurs() -> None:
    assert level(ratio_overflow=1) == "error"
    assert level(policy_loss=None, policy_loss_scaled_error=None) == "error"
    assert level(n_left_out=1) == "error"
    assert judge(GOOD, 1000, 1, 1e-3).reasons == ("1 token with a value that is not finite",)
    assert level(n_tokens=0) == "error"


def test_the_gravest_reason_comes_first() -> None:
    verdict = judge({**GOOD, "clip_flips": 1, "ratio_overflow": 2, "grad_error": 0.5}, 1000, 0, 1e-3)
    assert verdict.reasons == (
        "ratio overflows: 2 tokens",
        "gradient error: 50.00%",
        "clip decision flips: 1 token (0.001 of all)",
    )


def test_the_worst_of_levels() -> None:
    assert worst_of([]) == "ok"
    assert worst_of(["ok", "warning", "ok"]) == "warning"
    assert worst_of(["warning", "error", "ok"]) == "error"


def test_fewest_bytes_then_float32_then_the_smallest_error() -> None:
    options = AuditOptions()
    narrow = Candidate("bfloat16", "float64", 0, 2e-4)
    half = Candidate("float16", "float64", 0, 1e-4)
    wide = Candidate("float32", "float32", 0, 0.0)
    assert recommend([wide, narrow, half], options) == half
    assert (
        recommend([wide, narrow, half, Candidate("bfloat16", "float32", 0, 9e-4)], options).arithmetic
        == "float32"
    )
    assert recommend([wide, Candidate("int8", "float64", 0, 1e-3)], options).storage == "int8"
    assert recommend([wide, Candidate("int8", "float64", 1, 0.0)], options) == wide
    assert recommend([wide, Candidate("int8", "float64", 0, 1.1e-3)], options) == wide
    assert recommend([wide, Candidate("int8", "float64", None, None)], options) == wide
    assert recommend([], options) == REFERENCE
    assert [one.n_bytes for one in (narrow, wide, REFERENCE, Candidate("int8", "float32", 0, 0.0))] == [
        2,
        4,
        8,
        1,
    ]


def test_formats_of_a_list() -> None:
    assert formats_of(" float32, bfloat16,") == ("float32", "bfloat16")
    assert formats_of(["int8"]) == ("int8",)
    assert formats_of("") == ()


@pytest.mark.parametrize(
    "wrong",
    [{"formats": ()}, {"formats": ("float31",)}, {"loss_tolerance": float("inf")}, {"accumulate": "x"}],
)
def test_wrong_options(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem):
        AuditOptions(**wrong)
