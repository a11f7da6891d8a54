"""Made-up rollouts: what is in them, and that they come out the same again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.engine.synth import MOST, PATHOLOGIES, columns_of, pathology_named
from ppocli.engine.synth_pairs import as_bfloat16
from ppocli.errors import InputError, UsageProblem

LOG_PROBS = ("log_probs", "old_log_probs", "rollout_log_probs", "ref_log_probs")


def log_ratio(columns: dict[str, Any]) -> np.ndarray:
    """Of the valid tokens, in float64."""
    new, old = (columns[role].astype(np.float64) for role in ("log_probs", "old_log_probs"))
    return (new - old)[columns["mask"]]


def test_a_healthy_batch_is_what_it_says() -> None:
    c = columns_of("healthy", sequences=40, tokens=50, seed=3)
    assert {x.shape for x in c.values()} == {(40, 50), (40,)}
    assert {role for role in c if c[role].ndim == 1} == {"advantages", "rewards", "group_id"}
    assert all((c[role] < 0.0).all() and c[role].dtype == np.float32 for role in LOG_PROBS)
    lengths = c["mask"].sum(axis=1)
    assert (c["mask"] == (np.arange(50) < lengths[:, None])).all()
    assert lengths.min() >= 16
    for group in range(5):
        mine = c["group_id"] == group
        assert mine.sum() == 8
        assert set(c["rewards"][mine].tolist()) == {0.0, 1.0}
        assert abs(float(c["advantages"][mine].astype(float).sum())) < 1e-5
        assert float(c["advantages"][mine].astype(float).std()) == pytest.approx(1.0, rel=1e-4)
    assert 0.005 < np.abs(log_ratio(c)).mean() < 0.1


@pytest.mark.parametrize("name", PATHOLOGIES)
def test_the_same_seed_gives_the_same_and_another_one_something_else(name: str) -> None:
    size = {"sequences": 32, "tokens": 32}
    one, again, other = (columns_of(name, **size, seed=seed) for seed in (5, 5, 6))
    assert one.keys() == again.keys() == other.keys()
    assert all(np.array_equal(one[role], again[role], equal_nan=name == "nan") for role in one)
    assert any(not np.array_equal(one[role], other[role]) for role in one)


def test_faults_are_where_and_what_they_say() -> None:
    def only(name: str) -> dict[str, Any]:
        return columns_of(name, sequences=48, tokens=40)

    assert np.isnan(log_ratio(only("nan"))).sum() == 3
    x = log_ratio(only("overflow"))
    assert (x > math.log(65504)).sum() == max(8, int(0.005 * x.size))
    assert set(np.abs(x[np.abs(x) > 5]).round(1).tolist()) <= {11.8, 12.2}
    assert (np.abs(log_ratio(only("clamp-bound"))) == 10.0).sum() == 8
    assert (log_ratio(only("far-apart")) < -20.0).sum() == 8
    bits = only("bfloat16")
    assert all((bits[role].view(np.uint32) & 0xFFFF == 0).all() for role in LOG_PROBS)
    assert np.abs(log_ratio(only("small-steps"))).max() < 0.006
    assert np.abs(log_ratio(only("tiny-kl"))).max() < 2e-5
    assert (log_ratio(only("idle-clip")) == 0.0).all()
    assert np.sort(np.abs(log_ratio(only("one-token"))))[-2:].tolist() < [0.5, 9.1]
    assert (only("zero-advantages")["advantages"] == 0.0).all()
    assert log_ratio(only("one-sided")).max() < -0.15
    assert np.unique(only("constant-returns")["returns"]).tolist() == [0.5]
    assert (~only("masked-sequences")["mask"].any(axis=1)).nonzero()[0].tolist() == [3, 11, 19, 27, 35, 43]
    assert (only("placeholder")["log_probs"] == -100.0).sum() >= 8
    assert all((only("negated")[role] > 0.0).all() for role in LOG_PROBS)
    new = only("above-zero")["log_probs"]
    assert (int((new > 0.0).sum()), float(new.max())) == (8, pytest.approx(0.009))
    c = only("zeroed")
    missing = c["old_log_probs"] == 0.0
    assert (int(missing.sum()), bool((c["log_probs"][missing] < -2.0).all())) == (8, True)
    c = only("flat-groups")
    zero = [bool((c["advantages"][c["group_id"] == group] == 0.0).all()) for group in range(6)]
    assert zero == [True, True, False, True, True, True]
    c = only("other-returns")
    off = np.abs(c["returns"] - c["old_values"] - c["advantages"])[c["mask"]]
    assert sorted({round(float(one), 4) for one in off}) == [0.0, 0.5]
    assert int((off > 0.1).sum()) == max(8, int(0.01 * off.size))
    padded = only("padding")
    assert padded["mask"].all()
    zero = padded["log_probs"] == 0.0
    assert zero.any()
    for role in ("old_log_probs", "rollout_log_probs", "advantages"):
        assert (padded[role][zero] == 0.0).all()


def test_rounding_to_bfloat16_is_to_nearest_even() -> None:
    # Between 1 and 2 the step is 2^-7; halves go to the even neighbour.
    x = np.array([1.0 + 2**-8, 1.0 + 3 * 2**-8, 1.0 + 2**-8 + 2**-20, -0.3])
    assert as_bfloat16(x).tolist() == [1.0, 1.0 + 2**-6, 1.0 + 2**-7, -0.30078125]


def test_the_file_holds_what_the_arrays_do(tmp_path: Path) -> None:
    path = tmp_path / "made.parquet"
    made = ppocli.synth(path, "PPO303", sequences=40, tokens=33, seed=2)
    columns = columns_of("one-token", sequences=40, tokens=33, seed=2)
    assert (made.name, made.sequences, made.tokens) == ("one-token", 40, int(columns["mask"].sum()))
    table = pq.read_table(path)
    assert np.array_equal(np.array(table["log_probs"].to_pylist(), dtype=np.float32), columns["log_probs"])
    assert table["advantages"].to_pylist() == columns["advantages"].tolist()
    assert ppocli.evaluate(path).metrics == ppocli.evaluate(**columns).metrics
    again = tmp_path / "again.parquet"
    ppocli.synth(again, "one-token", sequences=40, tokens=33, seed=2)
    assert again.read_bytes() == path.read_bytes()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["again.parquet", "made.parquet"]


def test_a_file_is_not_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "made.parquet"
    path.write_bytes(b"mine")
    with pytest.raises(InputError, match="the file exists"):
        ppocli.synth(path)
    assert path.read_bytes() == b"mine"
    ppocli.synth(path, overwrite=True)
    assert ppocli.check(path).exit_code == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sequences": 31}, "--sequences is a whole number of at least 32, not 31"),
        ({"tokens": 0}, "--tokens is a whole number of at least 32, not 0"),
        ({"seed": -1}, "--seed is a whole number of at least 0, not -1"),
        ({"sequences": 1 << 15, "tokens": 33}, "more than 1,048,576 tokens"),
    ],
)
def test_sizes_that_are_refused(given: dict[str, int], words: str) -> None:
    assert MOST == 1_048_576
    with pytest.raises(UsageProblem, match=words):
        columns_of("healthy", **given)


def test_names_and_codes() -> None:
    assert pathology_named("temperature") == pathology_named("PPO502") == pathology_named("ppo502")
    with pytest.raises(UsageProblem) as problem:
        pathology_named("temperatur")
    assert problem.value.hint is not None
    assert problem.value.hint.startswith("did you mean 'temperature'?")
    for code in ("PPO106", "PPO405", "PPO510", "PPO999"):
        with pytest.raises(UsageProblem):
            pathology_named(code)
