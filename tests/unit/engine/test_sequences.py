"""Sequences, groups and micro-batches. Unless said the two policies agree, so that a loss is -advantage."""

from __future__ import annotations

import math
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core.partials import SEQUENCE_SUM
from ppocli.core.spec import LossSpec
from ppocli.engine import accumulate, sequences
from ppocli.engine.sequences import MicroBatches
from ppocli.engine.totals import Totals, make_plan

if TYPE_CHECKING:
    from ppocli.core.report import EvalReport


def write(path: Path, adv: Any, log_ratios: Any = None, **more: Any) -> Path:
    """A file whose old log-probs are all -1."""
    advantages = adv if isinstance(adv, pa.Array) else pa.array(adv)
    if pa.types.is_list(advantages.type):
        old = [[-1.0] * len(one.as_py()) for one in advantages]
        new = [[-1.0 + x for x in one] for one in log_ratios] if log_ratios else old
    else:
        old = [-1.0] * len(advantages)
        new = [-1.0 + x for x in log_ratios] if log_ratios else old
    pq.write_table(pa.table({"log_probs": new, "old_log_probs": old, "advantages": advantages, **more}), path)
    return path


def by_agg(report: EvalReport) -> dict[str, float]:
    return dict(report.metrics["policy_loss_by_agg"])


def test_rows_of_lists(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [[1.0, 2.0, 3.0], [], [5.0]])
    report = ppocli.evaluate(path)
    assert by_agg(report) == {
        "token-mean": -11 / 4,
        "seq-mean-token-mean": -(2 + 5) / 2,
        "seq-mean-token-sum": -(6 + 5) / 2,
        "seq-mean-token-sum-norm": -(6 + 5) / 2 / 3,
        "token-sum": -11.0,
    }
    assert report.metrics["n_sequences"] == 2
    assert report.settings["horizon"] == 3


def test_a_sequence_without_a_valid_token_counts_only_for_the_horizon(tmp_path: Path) -> None:
    mask = [[0, 0, 0, 0], [0, 1], [1, 1]]
    path = write(tmp_path / "a.parquet", [[9.0] * 4, [9.0, 4.0], [1.0, 1.0]], mask=mask)
    report = ppocli.evaluate(path)
    assert report.metrics["n_sequences"] == 2
    assert report.settings["horizon"] == 4  # the longest stored one, masked tokens included
    assert by_agg(report)["seq-mean-token-sum-norm"] == -(4 + 2) / 2 / 4
    assert by_agg(ppocli.evaluate(path, horizon=10))["seq-mean-token-sum-norm"] == -(4 + 2) / 2 / 10


@pytest.mark.parametrize(
    "ids",
    [
        [7, -3, 7, -3, 7, 0],
        ["x", "", "x", "", "x", "y"],
        [2**63 - 1, -(2**63), 2**63 - 1, -(2**63), 2**63 - 1, 0],
    ],
    ids=["numbers", "text", "extreme"],
)
def test_interleaved_ids(tmp_path: Path, ids: list[Any]) -> None:
    path = write(tmp_path / "a.parquet", [1.0, 10.0, 2.0, 20.0, 3.0, 5.0], sequence_id=ids)
    report = ppocli.evaluate(path)
    assert report.metrics["n_sequences"] == 3
    assert by_agg(report)["seq-mean-token-mean"] == -(2 + 15 + 5) / 3
    assert by_agg(report)["seq-mean-token-sum"] == -(6 + 30 + 5) / 3


def test_a_token_without_an_id_counts_in_token_metrics_only(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [1.0, 3.0, 50.0], sequence_id=pa.array([4, 4, None]))
    report = ppocli.evaluate(path)
    assert by_agg(report)["token-mean"] == -18.0
    assert by_agg(report)["seq-mean-token-mean"] == -2.0
    assert any("sequence_id is null for 1" in note for note in report.inputs[0].notes)


def test_packed_rows(tmp_path: Path) -> None:
    # Sequence 0 goes on in the second row.
    path = write(tmp_path / "a.parquet", [[1.0, 5.0], [3.0], []], sequence_id=[[0, 1], [0], []])
    report = ppocli.evaluate(path)
    assert report.metrics["n_sequences"] == 2
    assert by_agg(report)["seq-mean-token-mean"] == -(2 + 5) / 2


def test_a_sequence_over_many_blocks(tmp_path: Path) -> None:
    lengths = [1, 2047, 2049, 5000, 255]
    adv = [[float(k)] * n for k, n in enumerate(lengths, 1)]
    report = ppocli.evaluate(write(tmp_path / "a.parquet", adv), chunk_rows=100)
    assert by_agg(report)["seq-mean-token-mean"] == -3.0
    assert by_agg(report)["seq-mean-token-sum"] == -sum(k * n for k, n in enumerate(lengths, 1)) / 5


def test_ids_mean_nothing_across_files(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{k}.parquet", [1.0, 3.0 + k], sequence_id=[1, 1]) for k in range(2)]
    report = ppocli.evaluate(paths)
    assert report.metrics["n_sequences"] == 2
    assert by_agg(report)["seq-mean-token-mean"] == -(2 + 2.5) / 2


def test_a_file_without_sequences_leaves_the_run_without_sequence_metrics(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a.parquet", [[1.0, 3.0]]), write(tmp_path / "b.parquet", [5.0])]
    for order in (paths, paths[::-1]):
        report = ppocli.evaluate(order, agg="seq-mean-token-mean")
        assert report.metrics["policy_loss"] is None
        assert report.nulls["policy_loss"].reason == f"seq-mean-token-mean: {paths[1]} has no sequences"
        values = {Path(one.key["file"]).name: one.metrics["policy_loss"] for one in report.groups}
        assert values == {"a.parquet": -2.0, "b.parquet": None}


@pytest.mark.parametrize("chunk_rows", [100, 2048, None])
def test_the_position_counts_the_stored_tokens_of_the_sequence(
    tmp_path: Path, chunk_rows: int | None
) -> None:
    # Two sequences take turns; every third token is masked, and the worst one is token 4,501.
    log_ratios = [0.0] * 5000
    log_ratios[4501] = 0.5
    more = {"sequence_id": [k % 2 for k in range(5000)], "mask": [int(k % 3 > 0) for k in range(5000)]}
    path = write(tmp_path / "a.parquet", [1.0] * 5000, log_ratios, **more)
    report = ppocli.evaluate(path, worst=1, chunk_rows=chunk_rows)
    place = report.worst[0].where
    assert (place.row, place.position) == (4501, 2250)
    assert report.places["ratio_max"] == place


def test_ratios_of_sequences(tmp_path: Path) -> None:
    # Sums 0.5, -0.5 and 0; means 0.25, -0.5 and 0: two of the three geometric ratios lie outside [0.8, 1.2].
    log_ratios = [[0.25, 0.25], [-0.5], [0.5, -0.5]]
    path = write(tmp_path / "a.parquet", [[1.0, 1.0], [1.0], [1.0, 1.0]], log_ratios)
    report = ppocli.evaluate(path)
    metrics = report.metrics
    assert metrics["seq_ratio_geo"] == pytest.approx((math.exp(0.25) + math.exp(-0.5) + 1) / 3, rel=1e-15)
    assert metrics["seq_ratio_product"] == pytest.approx((math.exp(0.5) + math.exp(-0.5) + 1) / 3, rel=1e-15)
    assert metrics["seq_clip_frac"] == pytest.approx(2 / 3, rel=1e-15)
    assert (metrics["seq_log_ratio_min"], metrics["seq_log_ratio_max"]) == (-0.5, 0.5)
    assert metrics["seq_log_ratio_mean"] == 0.0
    assert report.places["seq_log_ratio_max"].row == 0
    assert report.places["seq_ratio_geo_min"].row == 1


def test_a_product_that_overflows_is_infinite_and_the_others_stay(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [[1.0, 1.0], [1.0]], [[400.0, 400.0], [0.0]])
    report = ppocli.evaluate(path)
    assert report.metrics["seq_ratio_product"] is None
    assert report.nulls["seq_ratio_product"].nonfinite == "inf"
    assert report.metrics["seq_log_ratio_max"] == 800.0
    assert report.metrics["seq_ratio_geo_max"] == pytest.approx(math.exp(400.0), rel=1e-14)


class TestManyOpen:
    """More sequences than are kept open: here eight, of which the four longest untouched are closed."""

    @pytest.fixture(autouse=True)
    def eight(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sequences, "OPEN_LIMIT", 8)

    def test_sequences_that_do_not_come_back(self, tmp_path: Path) -> None:
        ids = [k // 2 for k in range(80)]
        report = ppocli.evaluate(write(tmp_path / "a.parquet", [float(k) for k in ids], sequence_id=ids))
        assert report.metrics["n_sequences"] == 40
        assert by_agg(report)["seq-mean-token-sum"] == -2 * 19.5

    def test_as_many_as_are_kept_may_be_interleaved(self, tmp_path: Path) -> None:
        ids = list(range(8)) * 5
        report = ppocli.evaluate(write(tmp_path / "a.parquet", [float(k) for k in ids], sequence_id=ids))
        assert report.metrics["n_sequences"] == 8
        assert by_agg(report)["seq-mean-token-sum"] == -5 * 3.5

    def test_the_touched_ones_stay_open(self, tmp_path: Path) -> None:
        # At 8 the sequences 4 to 7 are closed; 0 to 3 go on.
        ids = [0, 1, 2, 3, 4, 5, 6, 7, 3, 2, 1, 0, 8, 0, 1, 2, 3, 8]
        report = ppocli.evaluate(write(tmp_path / "a.parquet", [1.0] * 18, sequence_id=ids))
        assert report.metrics["n_sequences"] == 9
        assert by_agg(report)["seq-mean-token-sum"] == -2.0

    @pytest.mark.parametrize("chunk_rows", [1, 3, None])
    def test_one_that_comes_back_makes_sequence_metrics_null(
        self, tmp_path: Path, chunk_rows: int | None
    ) -> None:
        ids = [*range(9), 0]
        path = write(tmp_path / "a.parquet", [1.0] * 10, sequence_id=ids)
        report = ppocli.evaluate(path, chunk_rows=chunk_rows, agg="seq-mean-token-mean")
        why = f"{path} row 9: a sequence_id came back after 8 others were open"
        assert report.nulls["policy_loss"].reason == f"seq-mean-token-mean: {why}"
        assert report.nulls["n_sequences"].reason == why
        assert report.metrics["seq_ratio_geo"] is None
        assert by_agg(report)["token-mean"] == -1.0


def test_groups_are_told_apart_by_step_and_id(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.parquet", [[1.0], [3.0], [5.0], [7.0]], group_id=[1, 1, 1, 2], step=[0, 0, 1, 1]
    )
    report = ppocli.evaluate(path, agg="group-mean")
    assert report.metrics["n_groups"] == 3
    assert report.metrics["policy_loss"] == -(2 + 5 + 7) / 3
    assert report.metrics["zero_variance_group_frac"] == pytest.approx(2 / 3, rel=1e-15)


def test_groups_go_on_in_the_next_file(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a.parquet", [1.0, 2.0], group_id=["p", "q"]),
        write(tmp_path / "b.parquet", [4.0, 6.0], group_id=["q", "q"]),
    ]
    report = ppocli.evaluate(paths, agg="group-mean")
    assert report.metrics["n_groups"] == 2
    assert report.metrics["policy_loss"] == -(1 + 4) / 2
    assert report.metrics["zero_variance_group_frac"] == 0.5


def test_more_groups_than_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppocli.engine.sequences.GROUP_LIMIT", 3)
    monkeypatch.setattr("ppocli.engine.passes.GROUP_LIMIT", 3)
    many = write(tmp_path / "a.parquet", [1.0] * 5, group_id=[0, 1, 2, 3, 4])
    some = [write(tmp_path / f"{k}.parquet", [1.0] * 2, group_id=[2 * k, 2 * k + 1]) for k in range(2)]
    for source in (many, some):
        report = ppocli.evaluate(source)
        assert report.metrics["n_groups"] is None
        assert "groups" in report.nulls["n_groups"].reason
        assert by_agg(report)["token-mean"] == -1.0


def test_micro_batches_go_over_file_borders(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a.parquet", [[1.0, 3.0], [], [4.0]]),
        write(tmp_path / "b.parquet", [[8.0, 10.0, 12.0], [20.0], [30.0]]),
    ]
    # Six rows: (1, 3, nothing), (4, 8, 10, 12), (20, 30)
    report = ppocli.evaluate(paths, micro_batch=2)
    assert report.metrics["policy_loss_micro_batch_mean"] == -(2 + 8.5 + 25) / 3
    assert report.metrics["policy_loss"] == -88 / 8


def test_micro_batches_of_flat_rows(tmp_path: Path) -> None:
    # 2,999 rows and then 2,001: micro-batches of 1,000 rows whose token k has the advantage k // 1000.
    paths = [
        write(tmp_path / "a.parquet", [float(k // 1000) for k in range(2999)]),
        write(
            tmp_path / "b.parquet", [float(k // 1000) for k in range(2999, 5000)], mask=[1] + [0, 1] * 1000
        ),
    ]
    for chunk_rows in (100, 2048, None):
        report = ppocli.evaluate(paths, micro_batch=1000, chunk_rows=chunk_rows)
        assert report.metrics["policy_loss_micro_batch_mean"] == -(0 + 1 + 2 + 3 + 4) / 5
    # Half of the tokens of the last two micro-batches are masked.
    assert report.metrics["policy_loss"] == -(1000 * (1 + 2) + 500 * (3 + 4)) / 4000


def test_a_micro_batch_without_a_valid_token_counts_nowhere(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [1.0, 3.0, 50.0, 50.0, 5.0], mask=[1, 1, 0, 0, 1])
    for chunk_rows in (1, 2, None):
        report = ppocli.evaluate(path, micro_batch=2, chunk_rows=chunk_rows)
        assert report.metrics["policy_loss_micro_batch_mean"] == -(2 + 5) / 2


def test_arrays_by_time(tmp_path: Path) -> None:
    adv = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 60.0]])
    arrays = {"log_probs": np.full((3, 2), -1.0), "old_log_probs": np.full((3, 2), -1.0), "advantages": adv}
    assert by_agg(ppocli.evaluate(**arrays))["seq-mean-token-sum"] == -96 / 3
    in_time = ppocli.evaluate(**arrays, layout="time")
    assert by_agg(in_time)["seq-mean-token-sum"] == -96 / 2
    assert in_time.settings["horizon"] == 3
    deeper = {name: values[..., None] for name, values in arrays.items()}
    assert ppocli.evaluate(**deeper, layout="time").metrics == in_time.metrics


def test_files_share_the_horizon_of_the_run(tmp_path: Path) -> None:
    more = {"values": [[3.0] * 2], "returns": [[1.0] * 2]}
    longer = {"values": [[3.0] * 5], "returns": [[1.0] * 5]}
    paths = [
        write(tmp_path / "a.parquet", [[1.0, 2.0]], **more),
        write(tmp_path / "b.parquet", [[1.0, 2.0, 3.0, 4.0, 5.0]], **longer),
    ]
    report = ppocli.evaluate(paths, agg="seq-mean-token-sum-norm", vf_coef=0.25)
    assert report.settings["horizon"] == 5
    norms = [group.metrics["policy_loss_by_agg"]["seq-mean-token-sum-norm"] for group in report.groups]
    assert norms == [-3 / 5, -15 / 5]
    assert [group.metrics["policy_loss"] for group in report.groups] == norms
    # The squared error of every value is 4.
    assert [group.metrics["total_loss"] for group in report.groups] == [(-3 + 2) / 5, (-15 + 5) / 5]
    assert report.metrics["total_loss"] == (-18 + 7) / 2 / 5
    for group, path in zip(report.groups, paths, strict=True):
        alone = ppocli.evaluate(path, agg="seq-mean-token-sum-norm", vf_coef=0.25, horizon=5)
        assert group.metrics == alone.metrics
    given = ppocli.evaluate(paths, agg="seq-mean-token-sum-norm", vf_coef=0.25, horizon=10)
    assert [group.metrics["policy_loss"] for group in given.groups] == [-3 / 10, -15 / 10]


def test_files_without_sequences_have_no_horizon(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.parquet", [1.0, 2.0]) for name in "ab"]
    report = ppocli.evaluate(paths)
    assert "horizon" not in report.settings or report.settings["horizon"] is None
    assert [group.metrics["policy_loss"] for group in report.groups] == [-1.5, -1.5]


def test_a_nan_in_one_file_leaves_its_finite_twin_over_the_same_horizon(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a.parquet", [[1.0, float("nan"), 2.0]]),
        write(tmp_path / "b.parquet", [[1.0] * 6]),
    ]
    report = ppocli.evaluate(paths, agg="seq-mean-token-sum-norm")
    spoiled = report.groups[0].metrics
    assert spoiled["policy_loss"] is None
    assert spoiled["policy_loss_finite"] == -3 / 6
    assert spoiled["policy_loss_by_agg_finite"]["seq-mean-token-sum-norm"] == -3 / 6


@pytest.mark.parametrize("bad", [math.inf, -math.inf])
def test_extremes_among_sequences_that_all_hold_an_infinity(tmp_path: Path, bad: float) -> None:
    report = ppocli.evaluate(write(tmp_path / "a.parquet", [[1.0, 1.0], [1.0]], [[0.5, bad], [bad]]))
    kind = "inf" if bad > 0 else "-inf"
    for name in ("seq_log_ratio_min", "seq_log_ratio_max", "seq_log_ratio_mean"):
        assert report.nulls[name].nonfinite == kind, name
    for name in ("seq_ratio_geo_min", "seq_ratio_geo_max", "ratio_max"):
        assert report.nulls[name].nonfinite == ("inf" if bad > 0 else None), name
    assert report.metrics["seq_log_ratio_min_finite"] == report.metrics["seq_log_ratio_max_finite"] == 0.5


def test_extremes_among_sequences_some_of_which_hold_an_infinity(tmp_path: Path) -> None:
    report = ppocli.evaluate(
        write(tmp_path / "a.parquet", [[1.0], [1.0], [1.0, 1.0]], [[math.inf], [0.25], [0.5, -0.5]])
    )
    assert report.nulls["seq_log_ratio_min"].nonfinite is None
    assert report.nulls["seq_log_ratio_max"].nonfinite == "inf"
    assert report.nulls["seq_ratio_geo_min"].nonfinite is None
    adv = ppocli.evaluate(write(tmp_path / "b.parquet", [[math.inf], [math.inf]]))
    assert adv.nulls["adv_min"].nonfinite == adv.nulls["adv_max"].nonfinite == "inf"


def test_extremes_of_sequences_are_there_where_only_their_sum_overflows() -> None:
    report = ppocli.evaluate(
        log_probs=np.full(2, 1e308), old_log_probs=np.zeros(2), advantages=np.ones(2), sequence_id=[0, 1]
    )
    assert report.metrics["seq_log_ratio_min"] == report.metrics["seq_log_ratio_max"] == 1e308
    assert report.nulls["seq_log_ratio_mean"].nonfinite == "inf"


def test_a_group_whose_loss_overflows_is_not_left_out_of_the_mean(tmp_path: Path) -> None:
    adv, ratios = [[-1.0], [1.0], [1.0]], [[800.0], [0.0], [0.0]]
    path = write(tmp_path / "a.parquet", adv, ratios, group_id=[0, 1, 1])
    report = ppocli.evaluate(path, agg="group-mean")
    assert report.metrics["policy_loss"] is None
    assert report.nulls["policy_loss"].nonfinite == "inf"
    spoiled = write(tmp_path / "b.parquet", [*adv, [math.nan]], [*ratios, [0.0]], group_id=[0, 1, 1, 1])
    report = ppocli.evaluate(spoiled, agg="group-mean")
    assert report.metrics["policy_loss_finite"] is None
    assert report.nulls["policy_loss_finite"].nonfinite == "inf"
    assert report.metrics["policy_loss_by_agg_finite"]["group-mean"] is None


def test_a_span_with_many_pieces_is_evaluated_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(8)
    lengths = rng.integers(0, 5, size=6_000)
    new, old, adv = (rng.normal(size=int(lengths.sum())) for _ in range(3))
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    columns = {"log_probs": new, "old_log_probs": old, "advantages": adv}
    table = pa.table({name: pa.ListArray.from_arrays(ends, pa.array(x)) for name, x in columns.items()})
    pq.write_table(table, tmp_path / "f.parquet")
    seen: list[int] = []
    real = accumulate.FileAccumulator._add

    def watched(self: Any, span: Any, *rest: Any) -> None:
        seen.append(span.n_tokens)
        real(self, span, *rest)

    monkeypatch.setattr(accumulate.FileAccumulator, "_add", watched)
    whole = ppocli.evaluate(tmp_path / "f.parquet", micro_batch=7)
    assert len(seen) == 2  # the whole blocks, and the rest
    seen.clear()
    monkeypatch.setattr(accumulate, "MOST_PIECES", 1_000)
    parts = ppocli.evaluate(tmp_path / "f.parquet", micro_batch=7)
    assert len(seen) > 3
    assert all(n % 2048 == 0 for n in seen[:-1])
    assert parts.metrics == whole.metrics
    assert parts.places == whole.places
    # Each sequence's mean of log-ratios, by loops.
    starts = ends.to_pylist()
    sums = [math.fsum((new[a:b] - old[a:b]).tolist()) for a, b in pairwise(starts) if b > a]
    assert parts.metrics["seq_log_ratio_mean"] == pytest.approx(math.fsum(sums) / len(sums), rel=1e-12)


def test_closing_many_sequences_takes_little_memory() -> None:
    n = 100_000
    plan = make_plan(LossSpec(), {"log_probs", "old_log_probs", "advantages"})
    stage = sequences.SequenceStage(
        "x", plan, Totals(), by_id=True, by_row=False, by_group=False, micro=MicroBatches(0), base_row=0
    )
    stage.open_rows.reserve(n)
    stage.open_rows.n = n
    stage.open_rows.states[:, 0] = stage.open_rows.states[:, 1] = 1.0
    tracemalloc.start()
    stage.finish()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stage.totals.seq_hi[SEQUENCE_SUM["n_sequences"]] == n
    assert peak < 8_000_000  # 1.4 kB for each of 4,096, and the order of all
