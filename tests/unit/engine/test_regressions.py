"""Faults that were found by hand, each with the smallest input that showed it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core.report import Place
from ppocli.errors import InputError, UsageProblem


def written(path: Path, **columns: object) -> str:
    """Write flat columns, with log-probs of 0 and advantages of 1 where none are given."""
    n = len(next(iter(columns.values())))  # type: ignore[arg-type]
    usual = {"log_probs": np.zeros(n), "old_log_probs": np.zeros(n), "advantages": np.ones(n)}
    pq.write_table(pa.table({**usual, **columns}), path)
    return str(path)


def test_a_nan_elsewhere_does_not_spoil_a_deviation() -> None:
    log_probs = np.zeros(2048)
    log_probs[0] = np.nan
    report = ppocli.evaluate(
        log_probs=log_probs, old_log_probs=np.zeros(2048), advantages=1e8 + np.tile([0.0, 1.0], 1024)
    )
    assert report.metrics["adv_std"] == 0.5


def test_an_id_that_returns_after_a_million_others_is_noticed(tmp_path: Path) -> None:
    ids = np.concatenate([np.arange(1_600_000), [5]])
    report = ppocli.evaluate(written(tmp_path / "ids.parquet", sequence_id=ids))
    assert report.metrics["n_sequences"] is None
    assert "row 1600000" in report.nulls["n_sequences"].reason
    assert report.metrics["policy_loss"] == -1.0


def test_only_null_ids(tmp_path: Path) -> None:
    path = written(tmp_path / "null.parquet", sequence_id=pa.array([None] * 4, pa.int64()))
    report = ppocli.evaluate(path, agg="seq-mean-token-sum-norm")
    assert report.metrics["policy_loss"] is None
    assert "no valid token belongs to a sequence" in report.nulls["policy_loss"].reason
    assert report.metrics["n_sequences"] == 0


def test_rows_of_lists_are_sequences_whatever_ids_stand_beside_them(tmp_path: Path) -> None:
    table = pa.table(
        {
            "log_probs": [[0.0, 0.0], [0.0, 0.1]],
            "old_log_probs": [[0.0, 0.0], [0.0, 0.0]],
            "advantages": [1.0, 2.0],
            "sequence_id": [7, 7],
            "token_id": [[1, 2], [3, 4]],
        }
    )
    pq.write_table(table, tmp_path / "lists.parquet")
    report = ppocli.evaluate(tmp_path / "lists.parquet", worst=1)
    assert report.metrics["n_sequences"] == 2
    assert report.worst[0].where == Place(str(tmp_path / "lists.parquet"), 1, 1, 4)


def test_positions_in_packed_rows_are_not_taken_for_places_in_the_row(tmp_path: Path) -> None:
    table = pa.table(
        {
            "log_probs": [[0.0, 0.0, 0.0, 0.5]],
            "old_log_probs": [[0.0] * 4],
            "advantages": [[1.0] * 4],
            "sequence_id": [[0, 0, 1, 1]],
            "token_id": [[10, 11, 12, 13]],
        }
    )
    pq.write_table(table, tmp_path / "packed.parquet")
    (token, _) = ppocli.evaluate(tmp_path / "packed.parquet", worst=1).worst
    assert token.where == Place(str(tmp_path / "packed.parquet"), 0, 1, None)


def test_a_file_without_groups_beside_one_with_groups(tmp_path: Path) -> None:
    paths = [
        written(tmp_path / "a.parquet", group_id=[1, 1, 2, 2]),
        written(tmp_path / "b.parquet", advantages=np.full(4, 3.0)),
    ]
    report = ppocli.evaluate(paths, agg="group-mean")
    assert report.metrics["policy_loss"] is None
    assert "b.parquet has no group_id" in report.nulls["policy_loss"].reason
    assert report.metrics["n_groups"] is None


def test_null_groups_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "g.parquet", group_id=pa.array([1, None, None, 2]))
    (one,) = ppocli.evaluate(path).inputs
    assert "group_id or step is null for 2 tokens: they count in no group metric" in one.notes


def test_a_file_that_fails_while_it_is_read_is_skipped_on_request(tmp_path: Path) -> None:
    good = written(tmp_path / "good.parquet", advantages=np.full(4, 2.0))
    bad = written(tmp_path / "bad.parquet", mask=[1.0, 0.5, 1.0, 1.0], log_probs=np.full(4, 3.0))
    with pytest.raises(InputError):
        ppocli.evaluate([bad, good])
    report = ppocli.evaluate([bad, good], skip_bad=True, worst=2)
    assert report.metrics["policy_loss"] == -2.0
    assert [one.path for one in report.skipped] == [bad]
    assert {token.where.path for token in report.worst} == {good}


def test_the_total_is_null_where_the_value_loss_cannot_be_had(tmp_path: Path) -> None:
    path = written(tmp_path / "v.parquet", values=np.zeros(4), returns=np.ones(4))
    report = ppocli.evaluate(path, value_clip=0.2)
    assert report.metrics["total_loss"] is None
    assert "old_values" in report.nulls["total_loss"].reason


def test_a_placeholder_beside_a_nan_is_found() -> None:
    log_probs = np.full(8, -1.0)
    log_probs[2], log_probs[5] = np.nan, 1.0
    report = ppocli.evaluate(log_probs=log_probs, old_log_probs=np.full(8, -1.0), advantages=np.ones(8))
    assert {one.code: one.count for one in report.findings} == {"PPO101": 1, "PPO402": 1, "PPO403": 1}


@pytest.mark.parametrize(
    "settings",
    [
        {"by": "x"},
        {"worst": -1},
        {"threads": 0},
        {"chunk_rows": -5},
        {"clip_eps": "0.2"},
        {"horizon": 1.5},
        {"agg": None},
    ],
)
def test_settings_out_of_range_are_usage_problems(settings: dict[str, object]) -> None:
    with pytest.raises(UsageProblem):
        ppocli.evaluate(log_probs=[0.0], old_log_probs=[0.0], advantages=[1.0], **settings)


def test_numbers_of_numpy_become_numbers_of_python() -> None:
    report = ppocli.evaluate(
        log_probs=[0.0], old_log_probs=[0.0], advantages=[1.0], clip_eps=np.float32(0.25)
    )
    assert type(report.settings["clip_low"]) is float
    assert report.settings["clip_low"] == 0.25


@pytest.mark.parametrize(
    "settings",
    [
        {"adv_norm": "batch"},
        {"adv_norm": "minibatch:3"},
        {"adv_norm": "minibatch:3", "adv_norm_unit": "sequence"},
        {"adv_norm": "group"},
        {"micro_batch": 3},
        {"like": "sb3"},
    ],
)
@pytest.mark.parametrize("broken", ["advantages", "log_probs"])
def test_nothing_of_a_skipped_file_stays_in_statistics(
    tmp_path: Path, broken: str, settings: dict[str, Any]
) -> None:
    n = 6000  # more than one block, so that a first part has been added when the damage is met
    rng = np.random.default_rng(3)
    paths = []
    for name, mean in (("a", 0.0), ("bad", 50.0), ("c", 1.0)):
        old = -rng.exponential(1.0, n)
        columns = {
            "log_probs": old + rng.normal(0.0, 0.1, n),
            "old_log_probs": old,
            "advantages": rng.normal(mean, 1.0, n),
            "sequence_id": np.arange(n) // 4,
            "group_id": np.arange(n) // 8,
        }
        paths.append(str(tmp_path / f"{name}.parquet"))
        pq.write_table(
            pa.table(columns), paths[-1], row_group_size=3000, compression="none", use_dictionary=False,
            write_page_checksum=True,
        )  # fmt: skip
    footer = pq.read_metadata(paths[1]).row_group(1)
    column = next(c for c in map(footer.column, range(5)) if c.path_in_schema == broken)
    data = bytearray(Path(paths[1]).read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    Path(paths[1]).write_bytes(data)

    without = ppocli.evaluate([paths[0], paths[2]], **settings)
    skipping = ppocli.evaluate(paths, skip_bad=True, chunk_rows=1000, **settings)
    assert [one.path for one in skipping.skipped] == [paths[1]]
    assert skipping.metrics == without.metrics
    assert skipping.like == without.like


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("denominator", 7.0),
        ("loss_scale", 3.0),
        ("count_empty", True),
        ("mean_eps", 1.0),
        ("log_ratio_penalty", 1.0),
        ("ref_kl", "k1"),
        ("value_error", "huber"),
    ],
)
def test_a_setting_that_would_change_nothing_is_refused(name: str, value: Any) -> None:
    columns = {"log_probs": [-1.0, -1.0], "old_log_probs": [-1.0, -1.0], "advantages": [1.0, 2.0]}
    with pytest.raises(UsageProblem, match=f"{name} is a setting of frameworks' losses"):
        ppocli.evaluate(**columns, **{name: value})
    assert ppocli.evaluate(**columns, like="verl", **{name: value}).settings[name] == value


@pytest.mark.parametrize(
    ("dtype", "bits"), [("float16", 0x7C01), ("float32", 0x7F800001), ("float64", 0x7FF0000000000001)]
)
def test_a_signalling_nan_is_counted_without_a_warning(tmp_path: Path, dtype: str, bits: int) -> None:
    new = np.full(64, -1.0, dtype)
    new.view(f"u{new.itemsize}")[9] = bits
    old = np.where(np.arange(64) % 2, -1.5, -0.75).astype(dtype)
    path = tmp_path / "a.npz"
    np.savez(path, log_probs=new, old_log_probs=old, advantages=np.ones(64, dtype), step=np.arange(64) // 32)
    report = ppocli.evaluate(path, by="step", worst=1)
    assert report.metrics["n_nan"] == 1
    assert report.nulls["policy_loss"].where == Place(str(path), 9)
    # Odd tokens have the ratio exp(0.5), clipped to 1.2, but for token 9; even ones have exp(-0.25) < 0.8.
    exact = -(31 * 1.2 + 32 * math.exp(-0.25)) / 63
    assert report.metrics["policy_loss_finite"] == pytest.approx(exact, rel=1e-12)
    audit = ppocli.audit(path, formats=("int8", "float16"), with_advantages=True)
    assert audit.evaluation.metrics["n_nan"] == 1
