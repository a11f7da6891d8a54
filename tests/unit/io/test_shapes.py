from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppocli.core.chunk import ReadOptions
from ppocli.errors import InputError
from ppocli.io.arrays import ArrayReader
from ppocli.io.npz import NpzReader
from ppocli.io.shapes import Placement, Plan, plan_layout
from ppocli.io.source import open_input

Shape = tuple[int, ...]


def plan(layout: str = "auto", sum_dims: bool = False, **shapes: Shape) -> Plan:
    names = {role: f"my_{role}" for role in shapes}
    return plan_layout("f.npz", shapes, names, ReadOptions(layout=layout, sum_dims=sum_dims))


def refusal(layout: str = "auto", sum_dims: bool = False, **shapes: Shape) -> InputError:
    with pytest.raises(InputError) as caught:
        plan(layout, sum_dims, **shapes)
    assert caught.value.where == "f.npz"
    return caught.value


def spreads(found: Plan) -> dict[str, str]:
    return {role: one.spread for role, one in found.placements.items()}


def test_flat() -> None:
    found = plan(log_probs=(5,), advantages=(5,))
    assert (found.layout, found.n_rows, found.row_tokens, found.notes) == ("flat", 5, None, ())


def test_column_vectors_pair_with_vectors() -> None:
    found = plan(log_probs=(3, 1), old_log_probs=(3, 1), advantages=(3,))
    assert (found.layout, found.n_rows) == ("flat", 3)
    assert found.notes == ("trailing axis of 1 dropped: log_probs, old_log_probs",)


def test_only_one_trailing_axis_is_dropped_and_no_leading_one() -> None:
    assert plan(log_probs=(4, 3, 1), advantages=(4, 3)).n_rows == 4
    assert plan(log_probs=(1, 3)).row_tokens == 3
    assert "more than two axes" in refusal(log_probs=(2, 3, 4)).message
    assert "(2, 3, 4)" in refusal(log_probs=(2, 3, 4)).message


def test_padded_with_values_per_row_and_for_all() -> None:
    found = plan(log_probs=(2, 3), advantages=(2,), values=(2, 1), rewards=(), mask=(2, 3), group_id=(2,))
    assert (found.layout, found.n_rows, found.row_tokens) == ("padded", 2, 3)
    assert spreads(found) == {
        "log_probs": "token",
        "advantages": "row",
        "values": "row",
        "rewards": "all",
        "mask": "token",
        "group_id": "row",
    }
    assert "advantages: one value per row, repeated over its tokens" in found.notes
    assert "rewards: one value, repeated over all tokens" in found.notes
    assert not any("group_id" in note for note in found.notes)


def test_a_mask_with_tokens_settles_what_the_second_axis_is() -> None:
    said = "second axis read as tokens; --sum-dims if these are action dimensions"
    assert said in plan(log_probs=(2, 3), advantages=(2,)).notes
    assert said not in plan(log_probs=(2, 3), advantages=(2,), mask=(2, 3)).notes
    assert said not in plan(log_probs=(2, 3), advantages=(2, 3)).notes


def test_scalars() -> None:
    found = plan(log_probs=(), advantages=())
    assert (found.layout, found.n_rows, found.row_tokens) == ("flat", 1, None)
    assert spreads(plan(log_probs=(4,), advantages=()))["advantages"] == "all"


def test_time_first() -> None:
    found = plan("time", log_probs=(7, 2, 1), advantages=(7, 2), values=(2,))
    assert (found.n_rows, found.row_tokens) == (2, 7)
    assert found.placements["log_probs"] == Placement("token", swapped=True)
    assert found.placements["values"] == Placement("row")
    assert "first axis read as time, second as sequences (--layout time)" in found.notes
    assert plan("time", log_probs=(7, 1), advantages=(7, 1)).row_tokens == 7


def test_dimensions() -> None:
    found = plan(sum_dims=True, log_probs=(5, 3), advantages=(5,))
    assert (found.layout, found.n_rows) == ("flat", 5)
    assert found.placements["log_probs"] == Placement("token", dims=3)
    assert "log_probs: summed over the last axis (3 action dimensions)" in found.notes
    found = plan(sum_dims=True, log_probs=(4, 5, 3), old_log_probs=(4, 5), advantages=(4, 5))
    assert (found.n_rows, found.row_tokens) == (4, 5)
    assert found.placements["old_log_probs"].dims == 1
    assert found.placements["log_probs"].dims == 3
    found = plan(sum_dims=True, log_probs=(4, 5, 3), advantages=(4,))
    assert (found.row_tokens, found.placements["advantages"].spread) == (5, "row")
    assert plan(sum_dims=True, old_log_probs=(5, 3), rollout_log_probs=(5, 3)).n_rows == 5


def test_packed() -> None:
    found = plan(log_probs=(1, 4), sequence_id=(1, 4))
    assert found.layout == "packed"
    assert plan(log_probs=(2, 4), sequence_id=(2,)).layout == "padded"


def test_lengths_that_differ_name_both_columns_and_lengths() -> None:
    error = refusal(log_probs=(200_000,), old_log_probs=(200_000,), advantages=(199_999,))
    assert error.message == "'my_log_probs' has 200000 values and 'my_advantages' has 199999"


@pytest.mark.parametrize(
    "shapes",
    [
        {"log_probs": (2, 3), "advantages": (3,)},
        {"log_probs": (2, 3), "advantages": (3, 2)},
        {"log_probs": (3,), "advantages": (2, 3)},
        {"log_probs": (2, 3), "old_log_probs": (2,)},
        {"log_probs": (2, 3), "old_log_probs": ()},
        {"log_probs": (2,), "old_log_probs": (), "advantages": (2,)},
        {"log_probs": (2, 3), "advantages": (1, 3)},
        {"log_probs": (6,), "advantages": (2, 3)},
    ],
)
def test_other_shapes_are_refused_by_both(shapes: dict[str, Shape]) -> None:
    message = refusal(**shapes).message
    assert message.count("has shape") == 2
    for role in ("log_probs", next(role for role in shapes if shapes[role] != shapes["log_probs"])):
        assert f"'my_{role}' has shape {shapes[role]}" in message


def test_hints_name_the_option_that_fits() -> None:
    assert "--layout time" in str(refusal(log_probs=(7, 2), advantages=(2,)).hint)
    assert "--sum-dims" in str(refusal(log_probs=(2, 3, 4), advantages=(2, 3)).hint)


def test_no_log_probs_at_all() -> None:
    assert plan(advantages=(2, 3), mask=(2, 3)).row_tokens == 3
    assert plan(token_id=(4,)).n_rows == 4


NOT_USED = [
    (ReadOptions(layout="time"), "--layout time: not used, no array has the two axes time and sequence"),
    (ReadOptions(layout="env"), "--layout env: not used, no array has the two axes time and environment"),
    (ReadOptions(sum_dims=True), "--sum-dims: not used, the log-probs have one value per token"),
]


@pytest.mark.parametrize(("options", "note"), NOT_USED)
def test_options_that_change_nothing_are_said(options: ReadOptions, note: str, tmp_path: Path) -> None:
    flat = {role: np.zeros(6, np.float32) for role in ("log_probs", "old_log_probs", "advantages")}
    np.savez(tmp_path / "flat.npz", **flat)
    pq.write_table(pa.table(flat), tmp_path / "flat.parquet")
    for name in ("flat.npz", "flat.parquet"):
        report = open_input(str(tmp_path / name), options, {}).report
        assert report.notes == (note,)
    assert ArrayReader(flat, options).report.notes == (note,)
    column = {role: values.reshape(6, 1) for role, values in flat.items()}
    if options.sum_dims:
        assert note in ArrayReader(column, options).report.notes


@pytest.mark.parametrize(("options", "note"), NOT_USED)
def test_options_that_are_used_are_not_said_to_be_not(
    options: ReadOptions, note: str, tmp_path: Path
) -> None:
    square = np.zeros((6, 2), np.float32)
    adv = np.zeros(6, np.float32) if options.sum_dims else square
    arrays = {"log_probs": square, "old_log_probs": square, "advantages": adv}
    assert note not in ArrayReader(arrays, options).report.notes
    np.savez(tmp_path / "a.npz", **arrays)
    assert note not in open_input(str(tmp_path / "a.npz"), options, {}).report.notes
    if options.sum_dims:
        table = pa.table({role: values.tolist() for role, values in arrays.items()})
        pq.write_table(table, tmp_path / "a.parquet")
        assert note not in open_input(str(tmp_path / "a.parquet"), options, {}).report.notes


def test_lists_of_parquet_have_no_time_axis(tmp_path: Path) -> None:
    rows = [[-1.0, -1.0]] * 3
    table = pa.table({"log_probs": rows, "old_log_probs": rows, "advantages": rows})
    pq.write_table(table, tmp_path / "a.parquet")
    report = open_input(str(tmp_path / "a.parquet"), ReadOptions(layout="time"), {}).report
    assert NOT_USED[0][1] in report.notes


def test_flat_arrays_environment_by_environment(tmp_path: Path) -> None:
    # SB3 after training: two steps of three environments; rewards alone keep (time, environment).
    flat = np.array([[0.0], [10.0], [1.0], [11.0], [2.0], [12.0]], np.float32)
    rewards = np.array([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]], np.float32)
    path = str(tmp_path / "sb3.npz")
    np.savez(path, log_probs=-flat, old_log_probs=-flat, advantages=flat, rewards=rewards)
    with pytest.raises(InputError, match=r"shape \(6, 1\) and 'rewards' has shape \(2, 3\)") as caught:
        NpzReader(path, ReadOptions(), {})
    assert "--layout env" in str(caught.value.hint)
    reader = NpzReader(path, ReadOptions(layout="env"), {})
    assert (reader.report.layout, reader.report.rows) == ("padded", 3)
    (chunk,) = reader.chunks(("log_probs", "advantages", "rewards"), 100)
    assert chunk.columns["rewards"].values.tolist() == flat.reshape(-1).tolist()
    assert chunk.columns["advantages"].values.tolist() == flat.reshape(-1).tolist()
    assert chunk.offsets is not None
    assert chunk.offsets.tolist() == [0, 2, 4, 6]
    (chunk,) = NpzReader(path, ReadOptions(layout="env"), {}).chunks(("log_probs",), 100)
    assert chunk.columns["log_probs"].values.tolist() == (-flat).reshape(-1).tolist()


def test_env_without_two_dimensional_arrays_is_flat() -> None:
    found = plan("env", log_probs=(6, 1), rewards=(6,))
    assert (found.layout, found.n_rows) == ("flat", 6)
