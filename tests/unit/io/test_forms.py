"""Columns that do not hold log-probs as they are wanted: minus the log-prob, or the probability."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.core.chunk import Chunk, ReadOptions
from ppocli.core.roles import ROLES
from ppocli.errors import InputError
from ppocli.io.arrays import ArrayReader
from ppocli.io.source import open_input

OLD = "old_log_probs"


def write(path: Path, columns: dict[str, Any]) -> str:
    if path.suffix == ".npz":
        np.savez(path, **columns)
    else:
        pq.write_table(pa.table({name: pa.array(list(one)) for name, one in columns.items()}), path)
    return str(path)


def read(path: str, **options: Any) -> tuple[Chunk, tuple[str, ...]]:
    reader = open_input(path, ReadOptions(**options), {})
    (chunk,) = reader.chunks(tuple(ROLES), 1 << 18)
    return chunk, reader.report.notes


def values(chunk: Chunk, role: str = OLD) -> list[float]:
    return chunk.columns[role].values.tolist()


@pytest.mark.parametrize("name", ["f.npz", "f.parquet"])
@pytest.mark.parametrize("column", ["neglogpacs", "OLDNEGLOGPAC", "old_logp_actions", "old_log_probs"])
def test_minus_the_log_prob(tmp_path: Path, name: str, column: str) -> None:
    stored = np.array([0.5, 0.0, np.inf, 1.25], np.float32)
    path = write(tmp_path / name, {"log_probs": -stored, column: stored, "advantages": stored})
    chunk, notes = read(path, neglogp=frozenset({OLD}))
    assert values(chunk) == [-0.5, 0.0, -math.inf, -1.25]
    assert chunk.columns[OLD].values.dtype == np.float32
    assert values(chunk, "log_probs") == [-0.5, 0.0, -math.inf, -1.25]
    assert values(chunk, "advantages") == [0.5, 0.0, math.inf, 1.25]
    assert "old_log_probs: minus the stored values (--neglogp)" in notes


@pytest.mark.parametrize("name", ["f.npz", "f.parquet"])
def test_probabilities(tmp_path: Path, name: str) -> None:
    stored = np.array([1.0, 0.5, 0.0, 0.25], np.float32)
    path = write(tmp_path / name, {"log_probs": stored, "action_prob": stored, "advantages": stored})
    chunk, notes = read(path, probs=frozenset({OLD}))
    assert values(chunk) == [0.0, math.log(0.5), -math.inf, math.log(0.25)]
    assert "old_log_probs: logarithms of the stored values (--probs)" in notes
    chunk, _ = read(path, probs=frozenset({OLD, "log_probs"}))
    assert values(chunk, "log_probs") == values(chunk)


def test_a_probability_below_zero_is_not_a_number(tmp_path: Path) -> None:
    path = write(tmp_path / "f.npz", dict.fromkeys(["log_probs", OLD, "advantages"], np.array([-0.25])))
    assert math.isnan(values(read(path, probs=frozenset({OLD}))[0])[0])


def test_bfloat16(tmp_path: Path) -> None:
    half = np.array([0.5, 2.0], ml_dtypes.bfloat16)
    path = write(tmp_path / "f.npz", {"log_probs": half, OLD: half, "advantages": np.ones(2)})
    chunk, _ = read(path, neglogp=frozenset({OLD}), probs=frozenset({"log_probs"}))
    assert chunk.columns[OLD].values.view(ml_dtypes.bfloat16).tolist() == [-0.5, -2.0]
    assert values(chunk, "log_probs") == [math.log(0.5), math.log(2.0)]


@pytest.mark.parametrize("name", ["f.npz", "f.parquet"])
def test_logarithms_are_taken_before_dimensions_are_summed(tmp_path: Path, name: str) -> None:
    pairs = np.array([[0.5, 0.25], [1.0, 0.125]], np.float32)
    path = write(tmp_path / name, {"log_probs": -pairs, OLD: pairs, "advantages": [1.0, 2.0]})
    chunk, _ = read(path, probs=frozenset({OLD}), sum_dims=True)
    assert values(chunk) == pytest.approx([math.log(0.125), math.log(0.125)], abs=1e-15)
    chunk, _ = read(path, neglogp=frozenset({OLD}), sum_dims=True)
    assert values(chunk) == [-0.75, -1.125]


def test_arrays_in_memory() -> None:
    arrays = {"log_probs": [-1.0], OLD: [1.0], "advantages": [1.0]}
    reader = ArrayReader(arrays, ReadOptions(neglogp=frozenset({OLD})))
    assert values(next(reader.chunks(tuple(ROLES), 10))) == [-1.0]
    assert reader.report.notes == ("old_log_probs: minus the stored values (--neglogp)",)


def test_the_roles_own_name_goes_before_a_name_for_negated_values(tmp_path: Path) -> None:
    columns = {"log_probs": [-1.0], OLD: [1.0], "neglogp": [2.0], "advantages": [1.0]}
    path = write(tmp_path / "f.npz", {name: np.array(one) for name, one in columns.items()})
    assert values(read(path, neglogp=frozenset({OLD}))[0]) == [-1.0]
    named = read(path, neglogp=frozenset({OLD}), columns={OLD: "neglogp"})[0]
    assert values(named) == [-2.0]


def test_without_the_option_the_line_to_type_is_given(tmp_path: Path) -> None:
    columns = {"log_probs": [-1.0], "neglogpacs": [1.0], "action_prob": [0.5], "advantages": [1.0]}
    path = write(tmp_path / "f.npz", {name: np.array(one) for name, one in columns.items()})
    with pytest.raises(InputError) as caught:
        read(path)
    assert "--col old_log_probs=neglogpacs --neglogp old_log_probs" in str(caught.value.hint)
    assert "--col old_log_probs=action_prob --probs old_log_probs" in str(caught.value.hint)
