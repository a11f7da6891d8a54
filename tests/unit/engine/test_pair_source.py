"""Two files side by side: what is paired, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.errors import InputError, UsageProblem

LENGTHS = [3, 1, 0, 4, 2]


def write(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.table(columns), path)
    return path


def split(values: np.ndarray) -> list[np.ndarray]:
    return np.split(values, np.cumsum(LENGTHS)[:-1])


@pytest.fixture
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    b = -rng.exponential(1.0, 10)
    ids = np.repeat(np.arange(5), LENGTHS)
    position = np.concatenate([np.arange(n) for n in LENGTHS])
    return {"a": b + rng.normal(0, 0.1, 10), "b": b, "ids": ids, "position": position}


def expected(data: dict[str, np.ndarray]) -> float:
    return float(np.mean(np.abs(data["a"] - data["b"])))


def flat(path: Path, role: str, data: dict[str, np.ndarray], rows: slice = slice(None)) -> Path:
    side = data["a"] if role == "old_log_probs" else data["b"]
    return write(
        path, **{role: side[rows], "sequence_id": data["ids"][rows], "position": data["position"][rows]}
    )


def lists(path: Path, role: str, data: dict[str, np.ndarray], rows: slice = slice(None)) -> Path:
    side = data["a"] if role == "old_log_probs" else data["b"]
    return write(path, **{role: split(side)[rows], "sequence_id": np.arange(5)[rows]})


@pytest.mark.parametrize("form_a", [flat, lists])
@pytest.mark.parametrize("form_b", [flat, lists])
@pytest.mark.parametrize("key", [(), ("sequence_id",), ("sequence_id", "position"), ("position",)])
def test_flat_and_lists_pair_up(
    tmp_path: Path, data: dict[str, np.ndarray], form_a: Any, form_b: Any, key: tuple[str, ...]
) -> None:
    if "sequence_id" in key and lists in (form_a, form_b) and form_a is not form_b:
        pass  # a list's id stands for all its tokens
    a = form_a(tmp_path / "a.parquet", "old_log_probs", data)
    b = form_b(tmp_path / "b.parquet", "rollout_log_probs", data)
    report = ppocli.drift(a, b, key=key)
    assert report.metrics["n_tokens"] == 10
    assert report.metrics["diff_abs_mean"] == pytest.approx(expected(data), rel=1e-14)
    assert report.metrics["n_sequences"] == 4


@pytest.mark.parametrize("chunk_rows", [1, 3, 100])
def test_shards_of_different_size_pair_up(
    tmp_path: Path, data: dict[str, np.ndarray], chunk_rows: int
) -> None:
    for name, part in (("1", slice(0, 2)), ("2", slice(2, 10))):
        flat(tmp_path / "a" / f"{name}.parquet", "old_log_probs", data, part)
    for name, part in (("1", slice(0, 5)), ("2", slice(5, 6)), ("3", slice(6, 10))):
        flat(tmp_path / "b" / f"{name}.parquet", "rollout_log_probs", data, part)
    report = ppocli.drift(
        tmp_path / "a", tmp_path / "b", key=("sequence_id", "position"), chunk_rows=chunk_rows
    )
    assert report.metrics["diff_abs_mean"] == pytest.approx(expected(data), rel=1e-14)
    names = [f"{Path(one.path).parent.name}{Path(one.path).stem}" for one in report.inputs]
    assert names == ["a1", "a2", "b1", "b2", "b3"]


def refused(*arguments: Any, **settings: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        ppocli.drift(*arguments, **settings)
    return caught.value


def test_the_first_key_that_differs_is_named(tmp_path: Path, data: dict[str, np.ndarray]) -> None:
    a = flat(tmp_path / "a.parquet", "old_log_probs", data)
    moved = {name: values.copy() for name, values in data.items()}
    for values in moved.values():
        values[[5, 6]] = values[[6, 5]]
    b = flat(tmp_path / "b.parquet", "rollout_log_probs", moved)
    problem = refused(a, b, key=("sequence_id", "position"))
    assert problem.message == (
        "the keys differ: sequence_id = 3, position = 1 on side a, sequence_id = 3, position = 2 on side b"
    )
    assert problem.where == f"{a}, token 5\n{b}, token 5"
    # Ids alone do not show it, and nobody asked for positions.
    assert ppocli.drift(a, b, key="sequence_id").metrics["n_tokens"] == 10


def test_text_keys_are_named_as_text(tmp_path: Path) -> None:
    a = write(tmp_path / "a.parquet", old_log_probs=[-1.0, -2.0], sequence_id=["x", "y"])
    b = write(tmp_path / "b.parquet", rollout_log_probs=[-1.0, -2.0], sequence_id=["x", "z"])
    assert "sequence_id = y on side a, sequence_id = z on side b" in refused(a, b, key="sequence_id").message


def test_a_null_key_differs_from_everything(tmp_path: Path) -> None:
    a = write(tmp_path / "a.parquet", old_log_probs=[-1.0, -2.0], sequence_id=pa.array([1, None]))
    b = write(tmp_path / "b.parquet", rollout_log_probs=[-1.0, -2.0], sequence_id=pa.array([1, 2]))
    assert (
        "sequence_id = null on side a, sequence_id = 2 on side b" in refused(a, b, key="sequence_id").message
    )


def test_a_key_without_a_column_says_what_to_do(tmp_path: Path, data: dict[str, np.ndarray]) -> None:
    a = write(tmp_path / "a.parquet", old_log_probs=[-1.0, -2.0])
    b = write(tmp_path / "b.parquet", rollout_log_probs=[-1.0, -2.0])
    problem = refused(a, b, key="sequence_id")
    assert problem.message == "no column for the key 'sequence_id'"
    assert str(problem.hint).startswith("leave it out of --key")


@pytest.mark.parametrize("short", ["a", "b"])
def test_a_side_that_ends_early_is_refused(tmp_path: Path, data: dict[str, np.ndarray], short: str) -> None:
    a = flat(tmp_path / "a.parquet", "old_log_probs", data, slice(0, 7 if short == "a" else 10))
    b = flat(tmp_path / "b.parquet", "rollout_log_probs", data, slice(0, 7 if short == "b" else 10))
    problem = refused(a, b)
    assert "7" in problem.message
    assert str(a) in str(problem)
    assert str(b) in str(problem)


def test_the_first_row_whose_length_differs_is_named(tmp_path: Path) -> None:
    a = write(tmp_path / "a.parquet", old_log_probs=[[-1.0, -2.0], [-1.0], [-1.0, -1.0]])
    b = write(tmp_path / "b.parquet", rollout_log_probs=[[-1.0, -2.0], [-1.0, -1.0], [-1.0]])
    problem = refused(a, b)
    assert problem.message == "the lengths differ: 1 tokens on side a, 2 on b"
    assert problem.where == f"{a}, row 1, old_log_probs\n{b}, row 1, rollout_log_probs"


@pytest.mark.parametrize("chunk_rows", [1, 2, 1000])
def test_lengths_are_compared_across_chunks(tmp_path: Path, chunk_rows: int) -> None:
    rows = [[-1.0] * n for n in (2, 0, 5, 1, 3)]
    a = write(tmp_path / "a.parquet", old_log_probs=rows)
    b = write(tmp_path / "b.parquet", rollout_log_probs=[*rows[:3], rows[4], rows[3]])
    problem = refused(a, b, chunk_rows=chunk_rows)
    assert "1 tokens on side a, 3 on b" in problem.message
    assert "row 3" in str(problem)


def test_masks_of_both_sides_count(tmp_path: Path) -> None:
    a = write(tmp_path / "a.parquet", old_log_probs=[-1.0, -2.0, -3.0], mask=[True, True, False])
    b = write(tmp_path / "b.parquet", rollout_log_probs=[-1.0, -2.5, -3.0], mask=[False, True, False])
    report = ppocli.drift(a, b)
    assert (report.metrics["n_tokens"], report.metrics["n_masked"]) == (1, 2)
    assert report.metrics["diff_mean"] == 0.5
    says = "only tokens that count on both sides are compared"
    assert report.notes == (f"the masks differ at 1 token: {says}",)
    # Over several files of side a the tokens are added up, and the line stands once.
    for name, part in (("1", slice(0, 1)), ("2", slice(1, 3))):
        whole = pq.read_table(a).to_pydict()
        write(tmp_path / "a" / f"{name}.parquet", old_log_probs=whole["old_log_probs"][part],
              mask=[not one for one in whole["mask"][part]])  # fmt: skip
    again = ppocli.drift(tmp_path / "a", b, allow_empty=True)
    assert again.notes == (f"the masks differ at 2 tokens: {says}",)
    assert f"note: the masks differ at 2 tokens: {says}" in _screen(again)
    assert list(again.to_dict()["notes"]) == [f"the masks differ at 2 tokens: {says}"]


def test_the_only_log_probs_of_a_file_are_taken(tmp_path: Path) -> None:
    a = write(tmp_path / "a.parquet", ref_log_probs=[-1.0, -2.0])
    b = write(tmp_path / "b.parquet", ref_log_probs=[-1.0, -2.5])
    report = ppocli.drift(a, b)
    assert (report.a, report.b) == ("ref_log_probs of a", "ref_log_probs of b")
    assert report.metrics["diff_mean"] == 0.25


def test_a_role_that_is_named_means_the_column_of_that_name(tmp_path: Path) -> None:
    a = write(tmp_path / "a.parquet", log_probs=[-1.0, -2.0])
    b = write(tmp_path / "b.parquet", log_probs=[-1.0, -2.5])
    assert ppocli.drift(a, b, a="log_probs", b="log_probs").metrics["diff_mean"] == 0.25


def test_more_roles_of_two_files(tmp_path: Path) -> None:
    rows: dict[str, Any] = {"values": [1.0, 2.0], "ref_log_probs": [-1.0, -2.0]}
    a = write(tmp_path / "a.parquet", old_log_probs=[-1.0, -2.0], **rows)
    rows = {"values": [1.5, 2.0], "ref_log_probs": [-1.0, -2.5]}
    b = write(tmp_path / "b.parquet", rollout_log_probs=[-1.0, -2.0], **rows)
    report = ppocli.drift(a, b, roles=("values", "ref_log_probs"))
    values, ref = report.comparisons
    assert (values.name, values.a, values.b) == ("values", "values of a", "values of b")
    assert values.metrics["diff_mean"] == -0.25
    assert values.metrics["bit_equal_frac"] == 0.5
    assert "drift_kl_k1" not in values.metrics
    assert ref.metrics["drift_kl_k1"] == -0.25


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"key": ("sequence",)}, "'sequence' is not known"),
        ({"key": ("position", "token_id")}, "position or token_id, not both"),
        ({"a": "values"}, "'values' is not known"),
        ({"roles": ("mask",)}, "'mask' is not known"),
        ({"tis_cap": 0.0}, "--tis-cap is a finite number above 0"),
        ({"by": "row"}, "'row' is not known"),
        ({"detail": "most"}, "'most' is not known"),
        ({"worst": -1}, "--worst"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        ppocli.drift("a.parquet", "b.parquet", **settings)


def test_keys_and_roles_are_for_two_files(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", old_log_probs=[-1.0], rollout_log_probs=[-1.0])
    with pytest.raises(UsageProblem, match="for two files"):
        ppocli.drift(path, key="sequence_id")
    with pytest.raises(UsageProblem, match="for two files"):
        ppocli.drift(path, roles="values")
    with pytest.raises(UsageProblem, match="both 'old_log_probs'"):
        ppocli.drift(path, b="old_log_probs")


def test_a_file_without_the_columns_says_which_to_choose(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", log_probs=[-1.0], rollout_log_probs=[-1.0])
    problem = refused(path)
    assert "old_log_probs" in problem.message
    assert "--a ROLE and --b ROLE choose others" in str(problem.hint)


@pytest.mark.parametrize("chunk_rows", [1, 3, 1000])
def test_what_each_file_holds_is_counted_in_it(tmp_path: Path, chunk_rows: int) -> None:
    """Values that are no numbers stand in the file where they are, not in that of their partners."""
    nan, inf = float("nan"), float("inf")
    a = write(
        tmp_path / "a.parquet",
        old_log_probs=[-1.0, nan, -1.0, -1.0, -1.0, -1.0],
        # A column of the other side's role, which is not read here.
        rollout_log_probs=[nan] * 6,
        values=[0.0, 1.0, 2.0, inf, 4.0, 5.0],
        mask=[True, True, True, True, True, False],
    )
    write(
        tmp_path / "b" / "1.parquet", rollout_log_probs=pa.array([-1.0, -1.0, None]), values=[0.0, 1.0, nan]
    )
    write(
        tmp_path / "b" / "2.parquet",
        rollout_log_probs=[-inf, nan, nan],
        values=[3.0, 4.0, nan],
        mask=[True, True, True],
    )
    report = ppocli.drift(a, tmp_path / "b", roles="values", chunk_rows=chunk_rows)
    side_a, first, second = report.inputs
    assert [(one.tokens, one.masked) for one in report.inputs] == [(5, 1), (3, 0), (2, 1)]

    def counts(one: Any, role: str) -> tuple[int, ...]:
        column = one.columns[role]
        return column.n_null, column.n_nan, column.n_posinf, column.n_neginf

    assert counts(side_a, "old_log_probs") == (0, 1, 0, 0)
    assert counts(side_a, "values") == (0, 0, 1, 0)
    assert counts(side_a, "rollout_log_probs") == (0, 0, 0, 0)
    assert counts(first, "rollout_log_probs") == (1, 0, 0, 0)
    assert counts(second, "rollout_log_probs") == (0, 1, 0, 1)
    assert counts(first, "values") == (0, 1, 0, 0)
    assert counts(second, "values") == (0, 0, 0, 0)
    [told] = [one for one in report.findings if one.message.startswith("rollout_log_probs")]
    assert f"the first at token 2 of '{tmp_path / 'b' / '1.parquet'}'" in told.message
    assert told.where is not None
    assert (told.where.path, told.where.row) == (str(a), 2)


def test_keys_that_look_alike_are_told_apart(tmp_path: Path) -> None:
    a = write(tmp_path / "a.parquet", old_log_probs=[-1.0], sequence_id=["1"])
    b = write(tmp_path / "b.parquet", rollout_log_probs=[-1.0], sequence_id=[1])
    assert refused(a, b, key="sequence_id").message.endswith("; one is text, the other a number")
    a = write(tmp_path / "a.parquet", old_log_probs=[-1.0], sequence_id=pa.array([None], pa.int64()))
    b = write(tmp_path / "b.parquet", rollout_log_probs=[-1.0], sequence_id=pa.array([None], pa.int64()))
    assert refused(a, b, key="sequence_id").message.endswith("; null is equal to nothing")


def test_keys_may_be_typed_as_on_the_command_line(tmp_path: Path, data: dict[str, np.ndarray]) -> None:
    a = flat(tmp_path / "a.parquet", "old_log_probs", data)
    b = flat(tmp_path / "b.parquet", "rollout_log_probs", data)
    for key in ("sequence_id, position", ["sequence_id", "position"]):
        assert ppocli.drift(a, b, key=key).settings["key"] == ["sequence_id", "position"]
    assert "key" not in ppocli.drift(a, b, key=None, roles=None).settings


def test_a_floor_of_data_cannot_hold_a_role_twice(tmp_path: Path) -> None:
    a = write(tmp_path / "a.parquet", log_probs=[-1.0, -2.0])
    b = write(tmp_path / "b.parquet", log_probs=[-1.5, -2.0])
    floor = write(tmp_path / "floor.parquet", old_log_probs=[-1.0], rollout_log_probs=[-1.25])
    with pytest.raises(UsageProblem, match="--floor needs a saved report where both sides are log_probs"):
        ppocli.drift(a, b, a="log_probs", b="log_probs", floor=str(floor))


def _screen(report: ppocli.DriftReport) -> str:
    from ppocli.render.console import Look
    from ppocli.render.formats import drift_text

    return drift_text(report, "md", Look())
