from __future__ import annotations

from dataclasses import replace

import pytest
import reports

from ppocli.core.metrics import METRICS
from ppocli.core.report import ColumnReport, NullNote, Place, Skipped
from ppocli.core.spec import LossSpec
from ppocli.render.screen import BLOCKS, NONZERO_BLOCKS, Block, Screen, eval_screen

IN_HEADER = {"n_rows", "n_tokens", "n_masked", "n_sequences", "n_groups", "n_files"}


def titles(screen: Screen) -> list[str]:
    return [block.title or block.columns[0].header for block in screen.blocks]


def block(screen: Screen, title: str) -> Block:
    return next(one for one in screen.blocks if (one.title or one.columns[0].header) == title)


def rows(screen: Screen, title: str) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in block(screen, title).rows}


def test_every_metric_has_exactly_one_place() -> None:
    placed = [name for _, names in BLOCKS for name in names]
    placed += [name for _, _, names in NONZERO_BLOCKS for name in names]
    assert sorted([*placed, *IN_HEADER, "policy_loss_by_agg"]) == sorted(METRICS)


def test_region_and_active_clip_fractions_are_neighbours() -> None:
    names = list(rows(eval_screen(reports.full()), "objective"))
    for part in ("", "_low", "_high"):
        assert names.index(f"clip_frac_active{part}") == names.index(f"clip_frac{part}") + 1


def test_all_tables_are_there_when_all_metrics_are() -> None:
    assert titles(eval_screen(reports.full())) == [
        "objective",
        "aggregation",
        "correction",
        "ratio and KL",
        "sequences",
        "value, entropy, total",
        "advantages, returns",
        "overflow, underflow",
        "missing, not finite",
        "finding",
        "tokens with the largest |log_ratio|",
        "tokens with the largest |loss|",
    ]


def test_tables_without_metrics_are_left_out() -> None:
    screen = eval_screen(reports.report())
    assert "sequences" not in titles(screen)
    assert "value, entropy, total" not in titles(screen)
    assert not any("largest" in title for title in titles(screen))


def test_counts_of_zero_are_one_line() -> None:
    screen = eval_screen(reports.report({"overflow_float16": 3}))
    assert list(rows(screen, "overflow, underflow")) == ["overflow_float16"]
    clean = eval_screen(reports.report())
    assert block(clean, "overflow, underflow").text == "overflow, underflow of the ratio: none in any format"
    assert block(clean, "overflow, underflow").rows == ()
    assert block(clean, "finding").text == "findings: none"


def test_header_says_what_was_read_and_how() -> None:
    first, second, third = eval_screen(reports.report()).header
    assert third == "columns: log_probs, old_log_probs, advantages, mask"
    assert first == "rollouts.parquet  3 rows, 7 tokens, 2 masked, 3 sequences, float32"
    assert second == "PPO clip [0.8, 1.2]  agg token-mean  advantages as stored"


def test_header_names_every_setting_that_is_on() -> None:
    spec = LossSpec(
        clip_high=0.28,
        dual_clip=3,
        delta=2,
        log_ratio_clamp=20,
        agg="seq-mean-token-sum-norm",
        horizon=8192,
        adv_norm="batch",
        adv_norm_ddof=1,
        adv_norm_form="max",
        value_clip=0.2,
        micro_batch=4,
    )
    line = eval_screen(reports.report(settings=spec.to_dict())).header[1]
    assert line == (
        "PPO clip [0.8, 1.28]  agg seq-mean-token-sum-norm  dual clip 3  delta 2  log-ratio clamped to +-20  "
        "value clip 0.2  horizon 8192  micro-batch 4  "
        "advantages normalised over the batch: (A - mean) / max(std, 1e-08), ddof 1"
    )


def test_header_says_what_the_data_decided() -> None:
    normalised = {**LossSpec(adv_norm="batch").to_dict(), "adv_norm_mean": 0.5, "adv_norm_std": 2.0}
    line = eval_screen(reports.report(settings=normalised)).header[1]
    assert line.endswith("over the batch: (A - mean) / (std + 1e-08), ddof 0, mean 0.5, std 2")
    alone = {**LossSpec(adv_norm="batch").to_dict(), "adv_norm_note": "fewer than two: not normalised"}
    assert (
        eval_screen(reports.report(settings=alone))
        .header[1]
        .endswith("  advantages: fewer than two: not normalised")
    )


def test_header_shows_the_columns_when_something_was_inferred() -> None:
    columns = {"log_probs": ColumnReport("new_logp", "float32"), "mask": ColumnReport("mask", "bool")}
    inferred = reports.one_input(columns=columns, notes=("second axis read as tokens",))
    plain = reports.one_input("b.parquet")
    lines = eval_screen(reports.report(inputs=(inferred, inferred, plain))).header
    assert lines[2] == "columns: log_probs = 'new_logp', mask (2 of 3 files)"
    assert lines[3] == "note: second axis read as tokens (2 of 3 files)"
    alone = eval_screen(reports.report(inputs=(inferred,))).header
    assert alone[2] == "columns: log_probs = 'new_logp', mask"


def test_header_counts_and_names_skipped_files() -> None:
    skipped = tuple(Skipped(f"{k}.txt", "not Parquet or NPZ") for k in range(5))
    line = eval_screen(reports.report(skipped=skipped)).header[-1]
    assert line.startswith("skipped 5 files: 0.txt: not Parquet or NPZ; ")
    assert line.endswith("2.txt: not Parquet or NPZ; 2 more")


def test_mixed_types_are_both_named() -> None:
    half = reports.one_input("b", columns={"log_probs": ColumnReport("log_probs", "float16")})
    header = eval_screen(reports.report(inputs=(reports.one_input(), half))).header
    assert header[0].endswith("float32 and float16")


def test_a_reason_that_several_metrics_share_is_numbered_in_the_header() -> None:
    screen = eval_screen(reports.with_nulls())
    assert screen.header[-1] == "null [1]: 2 NaN in advantages (first: row 1, position 2)"
    assert rows(screen, "objective")["policy_loss"] == ("null (nan) [1]", "finite tokens: -0.5")
    assert rows(screen, "aggregation")["token-mean"] == ("null (nan) [1]", "sum over tokens / tokens")


def test_any_other_reason_stands_beside_its_null() -> None:
    screen = eval_screen(reports.with_nulls())
    assert rows(screen, "ratio and KL")["ratio_max"] == (
        "null (inf)",
        "a ratio overflows float64 (first: row 1, position 2)",
    )
    assert rows(screen, "value, entropy, total")["explained_variance"] == ("null", "all returns are equal")
    assert sum(line.startswith("null [") for line in screen.header) == 1


def test_a_twin_that_is_null_too_has_its_own_reason() -> None:
    nulls = {"adv_mean": NullNote("7 NaN", "nan"), "adv_mean_finite": NullNote("no finite token")}
    made = reports.report({"adv_mean": None, "adv_mean_finite": None}, nulls=nulls)
    assert block(eval_screen(made), "advantages, returns").rows == (
        ("adv_mean", "null (nan)", "7 NaN; finite tokens: null; no finite token"),
    )


def test_counts_that_are_null_are_told_by_their_twins() -> None:
    names = ("overflow_float16", "overflow_bfloat16", "underflow_float16", "underflow_bfloat16")
    metrics: dict[str, int | None] = dict.fromkeys(names)
    metrics |= {f"{name}_finite": 0 for name in names}
    nulls = {name: NullNote("3 NaN in log_probs") for name in names}
    none = eval_screen(reports.report(metrics, nulls=nulls))
    assert block(none, "overflow, underflow").rows == (("all", "null [1]", "finite tokens: 0"),)
    some = eval_screen(reports.report({**metrics, "overflow_float16_finite": 17}, nulls=nulls))
    assert block(some, "overflow, underflow").rows == (
        ("overflow_float16", "null [1]", "finite tokens: 17"),
        ("all others", "null [1]", "finite tokens: 0"),
    )


def test_place_of_a_null_names_the_file_when_there_are_several() -> None:
    made = reports.several()
    nulls = {"policy_loss": NullNote("1 NaN in advantages", "nan", Place("b.parquet", 4))}
    made = replace(made, metrics={**made.metrics, "policy_loss": None}, nulls=nulls)
    note = rows(eval_screen(made), "objective")["policy_loss"][1]
    assert note == "1 NaN in advantages (first: b.parquet, row 4)"


def test_several_files_have_a_row_each_and_a_total() -> None:
    table = block(eval_screen(reports.several()), "file")
    assert [one.header for one in table.columns] == [
        "file",
        "tokens",
        "policy_loss",
        "clip_frac",
        "approx_kl_k3",
    ]
    assert table.rows == (
        ("a.parquet", "1,048,576", "0", "0.5", "0.25"),
        ("b.parquet", "1,048,577", "null (nan)", "0.5", "0.25"),
        ("c.parquet", "1,048,578", "0.25", "0.5", "0.25"),
        ("total", "7", "-0.0124817", "0.1234", "0.00412306"),
    )


def test_the_metric_files_are_sorted_by_is_a_column() -> None:
    made = reports.several()
    made = replace(made, metrics={**made.metrics, "ess_frac": 0.9})
    table = block(eval_screen(made, sort="ess_frac"), "file")
    assert table.columns[-1].header == "ess_frac"
    assert [row[-1] for row in table.rows] == ["0.75", "0.76", "0.77", "0.9"]


def test_finding_has_place_and_advice() -> None:
    table = rows(eval_screen(reports.full()), "finding")
    assert table["warning PPO102"] == (
        "12",
        "12 ratios overflow float16\n"
        "--> rollouts.parquet, row 812,044, position 3, token 1555\n"
        "help: train this batch in float32 or bfloat16",
    )


def test_worst_tokens_leave_out_columns_that_nothing_fills() -> None:
    screen = eval_screen(reports.full())
    first = block(screen, "tokens with the largest |log_ratio|")
    headers = ["row", "pos", "token", "log_probs", "old\nlog_probs", "ratio", "advantage", "loss", "branch"]
    assert [one.header for one in first.columns] == headers
    assert first.rows == (("812,044", "3", "1555", "-0.5", "-1000.5", "inf", "2", "-2.4", "clipped"),)
    second = block(screen, "tokens with the largest |loss|")
    assert "token" not in [one.header for one in second.columns]
    assert second.rows[0][-3:] == ("-3", "4.94616", "unclipped")


@pytest.mark.parametrize("horizon", [None, 8192])
def test_horizon_stands_beside_its_aggregation(horizon: int | None) -> None:
    made = reports.report(settings=LossSpec(horizon=horizon).to_dict())
    note = rows(eval_screen(made), "aggregation")["seq-mean-token-sum-norm"][1]
    assert note == ("the same / horizon 8,192" if horizon else "the same / horizon")


def test_digits_change_tables_only_in_their_numbers() -> None:
    assert rows(eval_screen(reports.report(), digits=3), "objective")["policy_loss"][0] == "-0.0125"
    assert rows(eval_screen(reports.report(), digits=3), "objective")["clip_frac"][0] == "0.123"
