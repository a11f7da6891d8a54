"""Advantages normalised within scopes, against NumPy on each scope."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.errors import InputError, UsageProblem

B, T = 24, 31


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    old = -rng.exponential(1.0, (B, T))
    return {
        "log_probs": old + rng.normal(0.0, 0.1, (B, T)),
        "old_log_probs": old,
        "advantages": rng.normal(2.0, 3.0, (B, T)),
        "mask": rng.random((B, T)) < 0.7,
        "group_id": np.repeat(np.arange(B // 4), 4),
    }


def normalised(values: np.ndarray, ddof: int, eps: float, form: str) -> np.ndarray:
    s = values.std(ddof=ddof)
    return (values - values.mean()) / {"add": s + eps, "max": max(s, eps), "var": np.sqrt(s * s + eps)}[form]


def surrogate(columns: dict[str, np.ndarray], used: np.ndarray) -> float:
    ratio = np.exp(columns["log_probs"] - columns["old_log_probs"])
    loss = -np.minimum(ratio * used, np.clip(ratio, 0.8, 1.2) * used)
    return float(loss[columns["mask"]].mean())


def scopes(kind: str) -> list[np.ndarray]:
    """The rows of each scope."""
    if kind == "batch":
        return [np.arange(B)]
    size = 4 if kind == "group" else 5
    return [np.arange(first, min(first + size, B)) for first in range(0, B, size)]


@pytest.mark.parametrize("kind", ["group", "minibatch:5"])
@pytest.mark.parametrize(("ddof", "eps", "form"), [(0, 1e-8, "add"), (1, 0.5, "max"), (1, 0.5, "var")])
def test_over_tokens(kind: str, ddof: int, eps: float, form: str) -> None:
    columns = batch()
    used = columns["advantages"].copy()
    for rows in scopes(kind):
        chosen = np.zeros((B, T), bool)
        chosen[rows] = columns["mask"][rows]
        used[chosen] = normalised(columns["advantages"][chosen], ddof, eps, form)
    got = ppocli.evaluate(**columns, adv_norm=kind, adv_norm_ddof=ddof, adv_norm_eps=eps, adv_norm_form=form)
    assert got.metrics["policy_loss"] == pytest.approx(surrogate(columns, used), rel=1e-11)
    assert got.metrics["adv_mean"] == pytest.approx(columns["advantages"][columns["mask"]].mean(), rel=1e-12)


@pytest.mark.parametrize("kind", ["batch", "group", "minibatch:5"])
def test_over_sequences(kind: str) -> None:
    columns = batch()
    means = np.array([columns["advantages"][i][columns["mask"][i]].mean() for i in range(B)])
    used = columns["advantages"].copy()
    for rows in scopes(kind):
        used[rows] = (used[rows] - means[rows].mean()) / (means[rows].std() + 1e-8)
    got = ppocli.evaluate(**columns, adv_norm=kind, adv_norm_unit="sequence")
    assert got.metrics["policy_loss"] == pytest.approx(surrogate(columns, used), rel=1e-11)


def test_a_scope_of_one_value_is_left_as_it_is_and_said() -> None:
    columns: dict[str, Any] = {
        "log_probs": np.zeros(3),
        "old_log_probs": np.zeros(3),
        "advantages": np.array([1.0, 3.0, 5.0]),
    }
    got = ppocli.evaluate(**columns, adv_norm="minibatch:2")
    assert got.metrics["policy_loss"] == pytest.approx(-(-1.0 + 1.0 + 5.0) / 3)
    assert got.settings["adv_norm_note"] == "2 scopes; 1 of one value, left as they are"


def test_equal_advantages_of_a_scope_become_exactly_zero() -> None:
    columns = {"log_probs": np.zeros(4), "old_log_probs": np.zeros(4), "advantages": np.full(4, 0.1)}
    assert ppocli.evaluate(**columns, adv_norm="minibatch:4").metrics["policy_loss"] == 0.0


def test_minibatches_go_on_from_one_file_into_the_next(tmp_path: Path) -> None:
    advantages = np.arange(10.0) ** 2
    flat = {"log_probs": np.full(10, -1.0), "old_log_probs": np.full(10, -1.0), "advantages": advantages}
    for name, part in (("a", slice(0, 4)), ("b", slice(4, 10))):
        table = pa.table({role: values[part] for role, values in flat.items()})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    whole = ppocli.evaluate(**flat, adv_norm="minibatch:3")
    split = ppocli.evaluate([tmp_path / "a.parquet", tmp_path / "b.parquet"], adv_norm="minibatch:3")
    assert split.metrics["policy_loss"] == pytest.approx(whole.metrics["policy_loss"], rel=2**-47)


def test_one_answer_however_it_is_read(tmp_path: Path) -> None:
    columns = {role: values.ravel() for role, values in batch().items() if role != "group_id"}
    columns["group_id"] = np.repeat(np.arange(B * T // 8), 8)
    for name, rows in (("small", 100), ("large", 10**6)):
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=rows)
    one = ppocli.evaluate(tmp_path / "small.parquet", adv_norm="group", chunk_rows=64)
    other = ppocli.evaluate(tmp_path / "large.parquet", adv_norm="group")
    assert dict(one.metrics) == dict(other.metrics)


def test_groups_need_their_column() -> None:
    columns = batch()
    del columns["group_id"]
    with pytest.raises(InputError, match="no column for group_id") as caught:
        ppocli.evaluate(**columns, adv_norm="group")
    assert caught.value.hint == "--col group_id=COLUMN, or --adv-norm batch"


def test_a_unit_of_sequences_needs_sequences() -> None:
    flat = {role: values.ravel() for role, values in batch().items() if role != "group_id"}
    for adv_norm in ("batch", "minibatch:8"):
        with pytest.raises(InputError, match="no sequences, which --adv-norm-unit sequence needs") as caught:
            ppocli.evaluate(**flat, adv_norm=adv_norm, adv_norm_unit="sequence")
        assert caught.value.hint is not None
        assert caught.value.hint.startswith("--col sequence_id=COLUMN")


@pytest.mark.parametrize("adv_norm", ["minibatch", "minibatch:0", "minibatch:x", "group:4", "batches"])
def test_unknown_scopes_are_refused(adv_norm: str) -> None:
    with pytest.raises(UsageProblem, match="--adv-norm"):
        ppocli.evaluate(**batch(), adv_norm=adv_norm)


@pytest.mark.parametrize("kind", ["group", "minibatch:400"])
def test_deviations_do_not_lose_digits_to_a_large_mean(kind: str) -> None:
    # Of 0, 1, 2, 3 the mean is 1.5 and the variance 1.25; log-ratios of 0 make the loss -mean(A) = 0, and
    # zeros in place of half of the ratio's exponents weigh the signs.
    n = 400
    advantages = 1e9 + np.tile([0.0, 1.0, 2.0, 3.0], n // 4)
    new = np.where(np.tile([0, 1, 2, 3], n // 4) == 3, -0.9, -1.0)
    got = ppocli.evaluate(
        log_probs=new,
        old_log_probs=np.full(n, -1.0),
        advantages=advantages,
        group_id=np.zeros(n, int),
        adv_norm=kind,
        adv_norm_eps=0.0,
    )
    used = [x / 1.25**0.5 for x in (-1.5, -0.5, 0.5, 1.5 * float(np.exp(0.1)))]
    assert got.metrics["policy_loss"] == pytest.approx(-sum(used) / 4, rel=1e-12)


@pytest.mark.parametrize("unit", ["token", "sequence"])
@pytest.mark.parametrize("size", [1e180, 8e307])
def test_a_scope_whose_moments_overflow_has_no_loss(size: float, unit: str) -> None:
    columns: dict[str, Any] = {
        "log_probs": np.full((6, 3), -1.0),
        "old_log_probs": np.full((6, 3), -1.0),
        "advantages": np.tile([[size], [size], [-size]], (2, 3)),
    }
    columns["advantages"][3:] = 1.0
    got = ppocli.evaluate(**columns, adv_norm="minibatch:3", adv_norm_unit=unit)
    assert got.metrics["policy_loss"] is None
    assert got.nulls["policy_loss"].nonfinite == "nan"
    assert "the mean or the deviation of 1 overflows float64" in got.settings["adv_norm_note"]


@pytest.mark.parametrize("kind", ["batch", "group", "minibatch:4"])
@pytest.mark.parametrize("unit", ["token", "sequence"])
@pytest.mark.parametrize("infinite", [np.inf, -np.inf])
def test_an_infinite_advantage_makes_nan_of_its_scope(kind: str, unit: str, infinite: float) -> None:
    # In float64 the mean is infinite, the deviation inf - inf = NaN, and so is what is divided by it.
    columns = batch()
    columns["advantages"][2, 3], columns["mask"][2, 3] = infinite, True
    got = ppocli.evaluate(**columns, adv_norm=kind, adv_norm_unit=unit)
    assert got.nulls["policy_loss"].nonfinite == "nan"
    assert got.nulls["policy_loss"].where is not None
    assert got.metrics["policy_loss_finite"] is not None


def test_a_scope_that_the_formula_leaves_undefined_makes_the_loss_null() -> None:
    # The last of three scopes has one value: its deviation with ddof 1 is 0 / 0.
    columns = {"log_probs": np.full(7, -1.0), "old_log_probs": np.full(7, -1.0), "advantages": np.arange(7.0)}
    got = ppocli.evaluate(**columns, adv_norm="minibatch:3", adv_norm_ddof=1, adv_norm_degenerate="formula")
    assert got.metrics["policy_loss"] is None
    assert got.metrics["policy_loss_by_agg"]["token-mean"] is None
    assert got.nulls["policy_loss"].nonfinite == "nan"
    assert "cannot be normalised" in got.nulls["policy_loss"].reason
    # What depends on the sign of that token's advantage is null, too, and over the others beside it.
    for name in ("clip_frac_active", "grad_zero_frac", "dual_clip_frac"):
        if name in got.metrics:
            assert got.metrics[name] is None
            assert "the advantages of 1 token cannot be normalised" in got.nulls[name].reason
            assert got.nulls[name].nonfinite is None
    # On policy, a token is flat where its advantage is 0: the middle ones of the two other scopes.
    assert got.metrics["grad_zero_frac_finite"] == pytest.approx(2 / 6)
    assert got.metrics["clip_frac"] == 0.0
