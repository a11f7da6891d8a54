"""PPO201: which columns hold only numbers of a narrow format, and when that says nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ppocli

N = 5000


def halves(n: int = N, seed: int = 0) -> np.ndarray:
    """Multiples of 1/64 from -2 to -1: numbers of bfloat16 and of float16, 64 different ones."""
    return -1.0 - np.random.default_rng(seed).integers(0, 64, n) / 64


def draw(n: int = N) -> np.ndarray:
    return -1.0 - np.random.default_rng(9).random(n)


def found(**columns: Any) -> list[tuple[int, str]]:
    n = len(columns["log_probs"])
    usual = {"old_log_probs": draw(n), "advantages": np.ones(n)}
    findings = ppocli.evaluate(**{**usual, **columns}).findings
    assert all(one.severity == "info" for one in findings if one.code == "PPO201")
    return [(one.count, one.message) for one in findings if one.code == "PPO201"]


BOTH = "every value of log_probs is a bfloat16 and a float16 number"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("chunk_rows", [1, 700, N])
def test_a_wide_column_with_narrow_values(dtype: Any, chunk_rows: int) -> None:
    assert found(log_probs=halves().astype(dtype), chunk_rows=chunk_rows) == [(N, BOTH)]


def test_each_format_and_each_column_by_itself() -> None:
    fine = halves() - 2.0**-10  # ten bits after the point: float16, and not bfloat16
    assert found(log_probs=fine) == [(N, "every value of log_probs is a float16 number")]
    large = halves() * 2.0**20  # beyond float16
    assert found(log_probs=large) == [(N, "every value of log_probs is a bfloat16 number")]
    both = found(log_probs=draw(), old_log_probs=fine, ref_log_probs=large)
    assert [message for _, message in both] == [
        "every value of old_log_probs is a float16 number",
        "every value of ref_log_probs is a bfloat16 number",
    ]


@pytest.mark.parametrize("place", [0, 255, 256, 2048, N - 1])
def test_one_other_value_is_enough_to_the_contrary(place: int) -> None:
    new = halves()
    new[place] -= 1e-9
    assert found(log_probs=new) == []
    # But for a masked one, or one that is not finite.
    assert found(log_probs=new, mask=np.arange(N) != place) == [(N - 1, BOTH)]
    new[place] = np.nan
    assert found(log_probs=new) == [(N - 1, BOTH)]


def test_few_values_or_few_different_ones_say_nothing() -> None:
    grid = np.arange(N) % 8 / 8 - 2.0
    assert found(log_probs=grid[:64]) == [(64, BOTH)]
    assert found(log_probs=grid[:63]) == []
    assert found(log_probs=np.arange(N) % 7 / 8 - 2.0) == []


def test_columns_of_narrow_types_are_named_as_well() -> None:
    assert found(log_probs=halves().astype(np.float16)) == [(N, BOTH)]
    fine = (halves() - 2.0**-10).astype(np.float16)
    assert found(log_probs=fine) == [(N, "every value of log_probs is a float16 number")]


def test_every_file_has_to_hold_them(tmp_path: Path) -> None:
    def write(name: str, new: np.ndarray) -> None:
        np.savez(tmp_path / f"{name}.npz", log_probs=new, old_log_probs=draw(new.size),
                 advantages=np.ones(new.size))  # fmt: skip

    def said() -> list[tuple[int, str]]:
        return [(one.count, one.message) for one in ppocli.evaluate(tmp_path).findings]

    write("a", halves(40))
    write("b", halves(30, seed=1) - 2.0**-10)
    assert said() == [(70, "every value of log_probs is a float16 number")]
    write("c", draw(10))
    assert said() == []


def test_an_audit_in_passing_raises_its_findings_too() -> None:
    from ppocli.core.audit_spec import AuditOptions

    # 0.5 and 0.5 + 2^-11: bfloat16, with a step of 2^-9 there, holds one number for both.
    old = np.full(100, -0.5)
    columns = {"log_probs": old - 2.0**-11, "old_log_probs": old, "advantages": np.ones(100)}
    report = ppocli.evaluate(**columns, audit=AuditOptions(formats=("bfloat16",)))
    [one] = [one for one in report.findings if one.code == "PPO203"]
    assert (one.count, one.severity) == (100, "info")
    assert one.message == "log-probs stored as bfloat16 round 100.0% of the log-ratios to 0"
    assert [one for one in ppocli.evaluate(**columns).findings if one.code == "PPO203"] == []
