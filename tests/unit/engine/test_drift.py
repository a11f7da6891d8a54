"""The engine of `drift`: sequences that close early, steps, placeholders, the short form in `eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.engine import pair_sequences
from ppocli.errors import InputError


def drift(**columns: Any) -> ppocli.DriftReport:
    return ppocli.drift(**columns)


def batch(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    b = -rng.exponential(1.0, n)
    return {"old_log_probs": b + rng.normal(0.0, 0.1, n), "rollout_log_probs": b}


@pytest.mark.parametrize("chunk_rows", [1, 5, 1000])
def test_more_open_sequences_than_are_kept(monkeypatch: pytest.MonkeyPatch, chunk_rows: int) -> None:
    monkeypatch.setattr(pair_sequences, "OPEN_LIMIT", 4)
    ids = np.repeat(np.arange(20), 3)
    columns = batch(60)
    report = drift(**columns, sequence_id=ids, chunk_rows=chunk_rows)
    d = (columns["old_log_probs"] - columns["rollout_log_probs"]).reshape(20, 3)
    assert report.metrics["n_sequences"] == 20
    assert report.metrics["chi2_seq"] == pytest.approx(np.mean(np.exp(2.0 * d.sum(axis=1))) - 1.0, rel=1e-12)
    assert report.metrics["log_ppl_diff"] == pytest.approx(-d.mean(), rel=1e-11)


def test_an_id_that_comes_back_after_its_sequence_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_sequences, "OPEN_LIMIT", 4)
    ids = np.array([*range(10), 0])
    report = drift(**batch(11), sequence_id=ids)
    for name in ("chi2_seq", "ppl_ratio", "n_sequences", "seq_diff_sum_max"):
        assert report.metrics[name] is None
        assert "a sequence_id came back" in report.nulls[name].reason
    assert report.by_position == ()
    assert report.sequences == ()
    assert report.metrics["diff_mean"] is not None


def test_tokens_without_an_id_are_in_no_sequence(tmp_path: Path) -> None:
    columns = batch(6)
    path = tmp_path / "a.parquet"
    ids = pa.array([1, 1, None, None, 2, None])
    pq.write_table(pa.table({**columns, "sequence_id": ids}), path)
    report = ppocli.drift(path)
    d = columns["old_log_probs"] - columns["rollout_log_probs"]
    assert report.metrics["n_sequences"] == 2
    assert report.metrics["seq_diff_sum_max"] == pytest.approx(max(d[0] + d[1], d[4]), rel=1e-14)
    assert sum(part.n for part in report.by_position) == 3


def test_sequences_that_span_spans_keep_their_positions() -> None:
    n = 3 * 2048 + 100
    report = drift(**batch(n), sequence_id=np.zeros(n, dtype=int), chunk_rows=500)
    assert [(part.low, part.high, part.n) for part in report.by_position] == [
        (0, 0, 1), (1, 7, 7), (8, 63, 56), (64, 511, 448), (512, 4095, 3584), (4096, 32767, n - 4096),
    ]  # fmt: skip
    assert report.worst == ()
    [worst] = drift(**batch(n), sequence_id=np.zeros(n, dtype=int), chunk_rows=500, worst=1).worst
    assert worst.where.position == worst.where.row


def test_by_step() -> None:
    columns = batch(9)
    steps = np.array([3, 3, 1, 1, 1, 3, 2, 2, 2])
    report = drift(**columns, step=steps, by="step")
    d = columns["old_log_probs"] - columns["rollout_log_probs"]
    assert [part.step for part in report.by_step] == [1, 2, 3]
    for part in report.by_step:
        of = steps == part.step
        assert part.n == of.sum()
        assert part.diff_mean == pytest.approx(d[of].mean(), rel=1e-12)
        assert part.diff_abs_mean == pytest.approx(np.abs(d[of]).mean(), rel=1e-13)
    assert drift(**columns, step=steps).by_step == ()


@pytest.mark.parametrize(
    ("a", "b", "code", "says"),
    [
        (-10.8, 0.0, "PPO504", "1 valid token with rollout_log_probs exactly 0"),
        (0.0, -3.0, "PPO504", "1 valid token with old_log_probs exactly 0"),
        (-0.6, -9999.0, "PPO505", "1 valid token with rollout_log_probs exactly -9999"),
        (1.0, -0.5, "PPO505", "1 valid token with old_log_probs exactly 1"),
    ],
)
def test_placeholders_are_counted_and_located(a: float, b: float, code: str, says: str) -> None:
    columns = batch(5000)
    columns["old_log_probs"][3000], columns["rollout_log_probs"][3000] = a, b
    found = {one.code: one for one in drift(**columns).findings}
    assert says in found[code].message
    assert found[code].count == 1
    assert found[code].where is not None
    assert found[code].where.row == 3000


@pytest.mark.parametrize(("a", "b"), [(-1.5, 0.0), (-95.0, -100.0), (-0.2, 0.0)])
def test_what_is_no_placeholder(a: float, b: float) -> None:
    columns = batch(500)
    columns["old_log_probs"][300], columns["rollout_log_probs"][300] = a, b
    assert not {one.code for one in drift(**columns).findings} & {"PPO504", "PPO505"}


def test_masked_placeholders_are_no_finding() -> None:
    columns = batch(50)
    columns["rollout_log_probs"][30] = -9999.0
    mask = np.arange(50) != 30
    assert drift(**columns, mask=mask).findings == ()


def test_differences_that_overflow_are_infinite_and_said() -> None:
    report = drift(old_log_probs=[-1.0, -1.0], rollout_log_probs=[-1.0, -1000.0])
    for name in ("weight_mean", "weight_max", "drift_kl_k3", "chi2_token", "mult_prob_error"):
        assert report.metrics[name] is None
        assert report.nulls[name].nonfinite == "inf"
    assert report.metrics["ess_frac"] is None
    assert report.nulls["ess_frac"].reason == "the weights leave the range of float64"
    assert report.metrics["diff_abs_max"] == 999.0


def test_weights_near_the_end_of_float64_keep_their_sample_size() -> None:
    report = drift(old_log_probs=[-1.0, -1.0, -3.0], rollout_log_probs=[-601.0, -601.0, -3.0])
    assert report.metrics["ess_frac"] == pytest.approx(2.0 / 3.0, rel=1e-12)
    assert report.metrics["chi2_token"] is None


def test_a_difference_of_minus_700_has_a_finite_error() -> None:
    report = drift(old_log_probs=[-709.5], rollout_log_probs=[0.0])
    assert report.metrics["mult_prob_error"] == pytest.approx(np.exp(709.5), rel=1e-13)


def test_long_sequences_are_listed_by_their_sum() -> None:
    columns = batch(100)
    columns["old_log_probs"][40:60] += 1.0
    ids = np.repeat(np.arange(10), 10)
    report = drift(**columns, sequence_id=ids)
    assert [one.where.row for one in report.sequences[:2]] in ([40, 50], [50, 40])
    d = np.abs(columns["old_log_probs"] - columns["rollout_log_probs"])
    sums = np.sort(d.reshape(10, 10).sum(axis=1))[::-1]
    assert [one.share for one in report.sequences] == pytest.approx(list(sums / d.sum()), rel=1e-12)


def test_eval_shows_the_short_form_where_a_rollout_column_is_there(tmp_path: Path) -> None:
    columns = {**batch(200), "advantages": np.ones(200)}
    columns["log_probs"] = columns["old_log_probs"] + 0.01
    report = ppocli.evaluate(**columns)
    full = ppocli.drift(**columns)
    assert (report.drift["a"], report.drift["b"]) == ("old_log_probs", "rollout_log_probs")
    assert report.drift["metrics"] == full.metrics
    assert report.to_dict()["drift"] == full.short()
    del columns["rollout_log_probs"]
    assert "drift" not in ppocli.evaluate(**columns).to_dict()


def test_the_short_form_covers_the_files_that_have_both_columns(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        columns = {**batch(50, seed=ord(name)), "advantages": np.ones(50)}
        columns["log_probs"] = columns["old_log_probs"]
        if name == "b":
            del columns["rollout_log_probs"]
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    report = ppocli.evaluate(tmp_path)
    assert report.drift["metrics"]["n_files"] == 2
    assert report.drift["metrics"]["n_tokens"] == 100
    assert [one.drift.get("metrics", {}).get("n_tokens") for one in report.groups] == [50, None, 50]
    assert ["drift" in one for one in report.to_dict()["groups"]] == [True, False, True]
    alone = ppocli.evaluate(tmp_path / "c.parquet")
    assert report.groups[2].drift["metrics"] == alone.drift["metrics"]


def test_the_short_form_has_sequences_only_where_every_file_has(tmp_path: Path) -> None:
    for name in ("a", "b"):
        columns = {**batch(50, seed=ord(name)), "advantages": np.ones(50)}
        columns["log_probs"] = columns["old_log_probs"]
        if name == "a":
            columns["sequence_id"] = np.arange(50)
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    short = ppocli.evaluate(tmp_path).drift
    assert short["metrics"]["chi2_seq"] is None
    assert short["nulls"]["chi2_seq"].reason == f"{tmp_path / 'b.parquet'} has no sequences"


def test_a_rollout_column_that_does_not_fit_is_left_out_and_named(tmp_path: Path) -> None:
    columns = {"log_probs": [[-1.0, -2.0]], "old_log_probs": [[-1.0, -2.0]], "advantages": [[1.0, 1.0]]}
    for name, rollout in (("a", [[-1.0, -2.0, -3.0]]), ("b", [[-1.5, -2.5]])):
        pq.write_table(pa.table({**columns, "rollout_log_probs": rollout}), tmp_path / f"{name}.parquet")
    report = ppocli.evaluate(tmp_path)
    assert report.metrics["n_tokens"] == 4
    assert (report.drift["metrics"]["n_files"], report.drift["metrics"]["diff_mean"]) == (1, 0.5)
    [note] = [one for one in report.inputs[0].notes if "drift" in one]
    assert note.startswith("rollout_log_probs left out of drift: ")
    assert not report.inputs[1].notes
    from ppocli.render.console import Look
    from ppocli.render.formats import eval_text

    assert "trainer - sampler, 1 of 2 files" in eval_text(report, "md", Look())


def test_differences_that_leave_float64_are_in_every_count() -> None:
    """-inf, inf and 0: two of three are above 1, their median is 0, that of their sizes is not known."""
    a, b = np.array([-1e308, 1e308, -1.0]), np.array([1e308, -1e308, -1.0])
    report = drift(old_log_probs=a, rollout_log_probs=b)
    metrics = report.metrics
    assert (metrics["frac_abs_gt_0_5"], metrics["frac_abs_gt_1"]) == (2 / 3, 2 / 3)
    assert (metrics["diff_p50"], metrics["diff_abs_p50"], metrics["diff_abs_p90"]) == (0.0, None, None)
    assert sum(bar.n for bar in report.histogram) == 3
    assert (report.histogram[-1].low, report.histogram[-1].n) == (1024.0, 2)


@pytest.mark.parametrize("far", [1e9, 1e17, float(np.finfo(np.float32).max), 1e300, 1e308])
def test_values_that_are_no_log_probs_are_in_no_band_and_no_cause(far: float) -> None:
    a, b = np.array([-far, -1.0, -1.0, -2.0, -3.0]), np.array([-1.0, -far, -1.0, -2.1, -3.1])
    report = drift(old_log_probs=a, rollout_log_probs=b)
    bands = ("band_0_999_1_002", "band_1pct", "band_5pct", "band_10pct")
    assert [report.metrics[name] for name in bands] == [0.2] * 4
    assert {one.code for one in report.findings} <= {"PPO505"}


@pytest.mark.parametrize("side", ["old_log_probs", "rollout_log_probs"])
@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_the_smallest_number_of_a_format_stands_for_a_missing_value(side: str, kind: str) -> None:
    columns = batch(200)
    columns[side] = columns[side].copy()
    columns[side][[3, 70]] = float(np.finfo(kind).min)
    [one] = [one for one in drift(**columns).findings if one.code.startswith("PPO50")]
    assert (one.code, one.count, one.where and one.where.row) == ("PPO505", 2, 3)
    assert f"{side} exactly {float(np.finfo(kind).min):.17g}:" in one.message


def test_nothing_of_a_skipped_file_is_in_the_sample(tmp_path: Path) -> None:
    """The offset of a file that breaks off is no cause for the differences of the others."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "runs"
    folder.mkdir()
    n = 8192
    b = -rng.exponential(2.0, n).astype(np.float32)
    table = pa.table({"old_log_probs": b - np.float32(0.3), "rollout_log_probs": b})
    bad = folder / "a.parquet"
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, bad, row_group_size=n // 2, **plain)
    content = bytearray(bad.read_bytes())
    content[pq.ParquetFile(bad).metadata.row_group(1).column(0).data_page_offset + 1000] ^= 255
    bad.write_bytes(content)
    c = -rng.exponential(2.0, 200)
    noisy = pa.table({"old_log_probs": c + rng.normal(0.0, 0.01, 200), "rollout_log_probs": c})
    pq.write_table(noisy, folder / "b.parquet")
    report = ppocli.drift(folder, skip_bad=True, chunk_rows=2048)
    assert [Path(one.path).name for one in report.skipped] == ["a.parquet"]
    assert report.findings == ()


def test_steps_that_are_text_and_tokens_without_a_step(tmp_path: Path) -> None:
    columns = batch(8)
    steps = ["b", None, "a", "a", None, "b", "c", None]
    pq.write_table(pa.table({**columns, "step": pa.array(steps)}), tmp_path / "a.parquet")
    report = ppocli.drift(tmp_path / "a.parquet", by="step", chunk_rows=1)
    d = columns["old_log_probs"] - columns["rollout_log_probs"]
    assert [part.step for part in report.by_step] == ["a", "b", "c", None]
    for part in report.by_step:
        of = [k for k, step in enumerate(steps) if step == part.step]
        assert part.n == len(of)
        assert part.diff_mean == pytest.approx(d[of].mean(), rel=1e-12)
        assert part.diff_abs_mean == pytest.approx(np.abs(d[of]).mean(), rel=1e-12)
    assert [part.get("step", "left out") for part in report.to_dict()["by_step"]] == ["a", "b", "c", None]


def test_more_steps_than_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_sequences, "STEP_LIMIT", 3)
    assert len(drift(**batch(6), step=[1, 2, 3, 1, 2, 3], by="step").by_step) == 3
    with pytest.raises(InputError, match="more than 3 steps"):
        drift(**batch(6), step=[1, 2, 3, 4, 2, 3], by="step")


def test_by_step_without_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column for step, which --by step needs"):
        drift(**batch(6), by="step")
    columns = batch(6)
    for name, role in (("a", "old_log_probs"), ("b", "rollout_log_probs")):
        pq.write_table(pa.table({role: columns[role]}), tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match="no column for step, which --by step needs"):
        ppocli.drift(tmp_path / "a.parquet", tmp_path / "b.parquet", by="step")


@pytest.fixture
def policies(tmp_path: Path) -> dict[str, np.ndarray]:
    """Three policies and advantages: side a in two shards, of which the first has all, side b in two."""
    rng = np.random.default_rng(8)
    columns = {**batch(40), "advantages": rng.normal(0.0, 1.0, 40)}
    columns["log_probs"] = columns["old_log_probs"] + rng.normal(0.0, 0.2, 40)
    for folder, role, cut in (("a", "old_log_probs", 25), ("b", "rollout_log_probs", 10)):
        (tmp_path / folder).mkdir()
        for name, part in (("1", slice(0, cut)), ("2", slice(cut, 40))):
            kept = [*("log_probs", "advantages"), role] if folder == "a" and name == "1" else [role]
            table = pa.table({one: columns[one][part] for one in kept})
            pq.write_table(table, tmp_path / folder / f"{name}.parquet")
    return columns


@pytest.mark.parametrize("chunk_rows", [3, 1000])
def test_three_policies_in_two_folders(
    tmp_path: Path, policies: dict[str, np.ndarray], chunk_rows: int
) -> None:
    report = ppocli.drift(tmp_path / "a", tmp_path / "b", chunk_rows=chunk_rows)
    new, old, rollout, adv = (
        policies[name] for name in ("log_probs", "old_log_probs", "rollout_log_probs", "advantages")
    )
    assert report.metrics["diff_abs_mean"] == pytest.approx(np.abs(old - rollout).mean(), rel=1e-13)
    assert [one.name for one in report.comparisons] == ["update", "staleness"]
    for one, b in zip(report.comparisons, (old, rollout), strict=True):
        assert one.metrics["n_tokens"] == 25
        assert one.metrics["diff_abs_mean"] == pytest.approx(np.abs(new - b)[:25].mean(), rel=1e-13)
    ratio = np.exp(new - old)[:25]
    plain = -np.minimum(ratio * adv[:25], np.clip(ratio, 0.8, 1.2) * adv[:25])
    weight = np.minimum(np.exp(old - rollout)[:25], 2.0)
    [one] = [
        one for one in report.corrections if (one.level, one.mode, one.cap) == ("token", "truncate", 2.0)
    ]
    assert one.loss == pytest.approx(np.mean(weight * plain), rel=1e-12)
    assert one.loss_change == pytest.approx(np.mean(weight * plain) - np.mean(plain), rel=1e-10)
    assert any("are numbers, in 1 of 2 files" in note for note in report.notes)


def test_a_third_policy_in_a_later_shard_is_found(tmp_path: Path, policies: dict[str, np.ndarray]) -> None:
    (tmp_path / "a" / "1.parquet").rename(tmp_path / "a" / "3.parquet")
    for name, part in (("1", slice(25, 40)), ("2", slice(0, 25))):
        table = pa.table({"rollout_log_probs": policies["rollout_log_probs"][part]})
        pq.write_table(table, tmp_path / "b" / f"{name}.parquet")
    report = ppocli.drift(tmp_path / "a", tmp_path / "b")
    assert [(one.name, one.metrics["n_tokens"]) for one in report.comparisons] == [
        ("update", 25), ("staleness", 25),
    ]  # fmt: skip
    size = np.abs(policies["log_probs"] - policies["old_log_probs"])[:25].mean()
    assert report.comparisons[0].metrics["diff_abs_mean"] == pytest.approx(size, rel=1e-13)


def test_a_screen_says_which_part_of_the_tokens_a_comparison_covers(
    tmp_path: Path, policies: dict[str, np.ndarray]
) -> None:
    from ppocli.render.console import Look
    from ppocli.render.formats import drift_text

    text = drift_text(ppocli.drift(tmp_path / "a", tmp_path / "b"), "md", Look())
    assert text.count(", at 25 of 40 tokens") == 2


def test_limits_of_the_function() -> None:
    columns = batch(50)
    size = float(np.abs(columns["old_log_probs"] - columns["rollout_log_probs"]).max())
    report = drift(**columns, max={"diff_abs_max": size}, min={"drift.n_tokens": 51})
    assert [(one.metric, one.status) for one in report.checks] == [
        ("diff_abs_max", "pass"), ("n_tokens", "fail"),
    ]  # fmt: skip
    assert (report.status, report.exit_code) == ("failed", 1)
    assert drift(**columns).checks == ()


def test_the_loss_of_a_later_shard_counts(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    columns = {**batch(30), "advantages": rng.normal(0.0, 1.0, 30)}
    columns["log_probs"] = columns["old_log_probs"] + rng.normal(0.0, 0.3, 30)
    sides = ("old_log_probs", "rollout_log_probs")
    pq.write_table(pa.table({name: columns[name][:10] for name in sides}), tmp_path / "1.parquet")
    pq.write_table(pa.table({name: one[10:] for name, one in columns.items()}), tmp_path / "2.parquet")
    report = ppocli.drift(tmp_path)
    new, old, rollout, adv = (columns[name][10:] for name in ("log_probs", *sides, "advantages"))
    ratio = np.exp(new - old)
    plain = -np.minimum(ratio * adv, np.clip(ratio, 0.8, 1.2) * adv)
    masked = np.where(
        (np.exp(old - rollout) >= 0.5) & (np.exp(old - rollout) <= 2.0), np.exp(old - rollout), 0
    )
    [one] = [one for one in report.corrections if (one.level, one.mode, one.cap) == ("token", "mask", 2.0)]
    assert one.loss == pytest.approx(np.mean(masked * plain), rel=1e-12)
    assert any("are numbers, in 1 of 2 files" in note for note in report.notes)


def test_each_file_by_itself_gives_the_same_steps(tmp_path: Path) -> None:
    """Texts are numbered anew in every file, and tokens without a step have no number."""
    from ppocli.core.drift_options import DriftOptions
    from ppocli.core.progress import NoProgress
    from ppocli.engine.by_file import Here
    from ppocli.engine.drift import drift_files

    for name, steps in (("1", ["x", None, "y", "x"]), ("2", ["y", "w", None, None])):
        columns = batch(4, seed=int(name))
        pq.write_table(pa.table({**columns, "step": pa.array(steps)}), tmp_path / f"{name}.parquet")
    paths, options = [str(tmp_path)], DriftOptions(by="step")
    report = drift_files(paths, None, options, where=Here(NoProgress()))
    assert [(part.step, part.n) for part in report.by_step] == [("w", 1), ("x", 2), ("y", 2), (None, 3)]
    assert report == drift_files(paths, None, options)


def test_eval_counts_what_the_sampler_left_out(tmp_path: Path) -> None:
    columns = {**batch(6), "advantages": np.ones(6), "mask": [True] * 5 + [False]}
    columns["log_probs"] = columns["old_log_probs"]
    columns["rollout_log_probs"] = pa.array(
        [None, float("nan"), float("inf"), float("-inf"), -1.0, float("nan")]
    )
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    report = ppocli.evaluate(tmp_path / "a.parquet")
    column = report.inputs[0].columns["rollout_log_probs"]
    assert (column.n_null, column.n_nan, column.n_posinf, column.n_neginf) == (1, 1, 1, 1)
    assert report.metrics["n_nan"] == 0
    saved = ppocli.merge([_partials(tmp_path)])
    assert saved.inputs == report.inputs


def _partials(folder: Path) -> Path:
    import json

    path = folder / "parts.json"
    path.write_text(json.dumps(ppocli.partials(folder / "a.parquet")), encoding="utf-8")
    return path


@pytest.mark.parametrize("b", ["rollout_log_probs", "ref_log_probs"])
def test_a_role_that_is_named_is_the_column_of_that_name(tmp_path: Path, b: str) -> None:
    """Beside a rollout column alone `log_probs` may be either policy of the trainer, until somebody says."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"log_probs": [-1.0, -2.0], b: [-1.0, -2.5]}), path)
    with pytest.raises(InputError, match="'log_probs' is ambiguous"):
        ppocli.drift(path, b=b)
    for sides, mean in (({"a": "log_probs", "b": b}, 0.25), ({"a": b, "b": "log_probs"}, -0.25)):
        report = ppocli.drift(path, **sides)
        assert report.metrics["diff_mean"] == mean
    # What --col says stays.
    pq.write_table(pa.table({"log_probs": [-1.0], "x": [-3.0], b: [-1.0]}), path)
    assert ppocli.drift(path, a="log_probs", b=b, columns={"log_probs": "x"}).metrics["diff_mean"] == -2.0
    with pytest.raises(InputError, match="'log_probs' is ambiguous"):
        ppocli.drift(path, a="old_log_probs", b=b)


def test_a_comparison_that_only_a_skipped_file_has_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    columns = {**batch(4096), "log_probs": np.full(4096, -1.0)}
    bad = folder / "a.parquet"
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(pa.table(columns), bad, **plain)
    content = bytearray(bad.read_bytes())
    content[pq.ParquetFile(bad).metadata.row_group(0).column(0).data_page_offset + 1000] ^= 255
    bad.write_bytes(content)
    pq.write_table(pa.table(batch(10)), folder / "b.parquet")
    report = ppocli.drift(folder, skip_bad=True)
    assert [Path(one.path).name for one in report.skipped] == ["a.parquet"]
    assert report.metrics["n_tokens"] == 10
    assert report.comparisons == ()


def test_a_loss_over_a_part_of_the_tokens_says_so() -> None:
    columns = {**batch(8), "advantages": np.array([1.0, -1.0, 2.0, np.nan, 1.0, 1.0, np.inf, 1.0])}
    columns["log_probs"] = columns["old_log_probs"] + 0.1
    columns["log_probs"][7] = np.nan
    report = drift(**columns)
    new, old, rollout, adv = (
        columns[name][[0, 1, 2, 4, 5]]
        for name in ("log_probs", "old_log_probs", "rollout_log_probs", "advantages")
    )
    ratio, weight = np.exp(new - old), np.minimum(np.exp(old - rollout), 2.0)
    plain = -np.minimum(ratio * adv, np.clip(ratio, 0.8, 1.2) * adv)
    [one] = [one for one in report.corrections if (one.level, one.mode) == ("token", "truncate")]
    assert one.loss_change == pytest.approx(np.mean(weight * plain - plain), rel=1e-9)
    assert [note for note in report.notes if "loss" in note] == [
        "the change of the loss is over 5 of 8 tokens: those with log_probs and advantages that are numbers"
    ]
    columns["advantages"], columns["log_probs"] = np.ones(8), columns["old_log_probs"]
    assert not [note for note in drift(**columns).notes if "loss" in note]
