"""`audit` against the loss in exact arithmetic, token by token; its places, sums, verdicts and one answer."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from audit_oracle import Bounds, Token, audit, nearest

import ppocli
from ppocli.core.audit_spec import AuditOptions
from ppocli.core.presets import preset
from ppocli.core.report import Place
from ppocli.core.spec import FRAMEWORK_ONLY
from ppocli.errors import ExitCode, InputError, UsageProblem

if TYPE_CHECKING:
    from ppocli.core.audit_report import Answer, AuditReport

ROLES = ("log_probs", "old_log_probs", "advantages")


def draw(n: int = 3000, spread: float = 0.3, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng([n, seed])
    old = -rng.exponential(2.0, n)
    adv = rng.normal(0.0, 1.0, n)
    adv[::9] = 0.0
    return {"log_probs": old + rng.normal(0.0, spread, n), "old_log_probs": old, "advantages": adv}


def columns_of(arrays: dict[str, Any]) -> tuple[Any, Any, Any]:
    return arrays["log_probs"], arrays["old_log_probs"], arrays["advantages"]


def storage(report: AuditReport, name: str) -> Answer:
    return report.audit.formats[name].storage


def arithmetic(report: AuditReport, name: str) -> Answer:
    answer = report.audit.formats[name].arithmetic
    assert answer is not None
    return answer


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def expected(reference: list[Token], tokens: list[Token], low: float, high: float) -> dict[str, float]:
    """What both questions share, from the tokens."""
    pairs = list(zip(reference, tokens, strict=True))
    n = len(tokens)
    ratios = [t.ratio for t in tokens]
    flips = [(r.side != 0, t.side != 0) for r, t in pairs if (r.side != 0) != (t.side != 0)]
    return {
        "approx_kl_k1": mean([-t.log_ratio for t in tokens]),
        "approx_kl_k2": mean([t.k2 for t in tokens]),
        "approx_kl_k3": mean([t.k3 for t in tokens]),
        "clip_frac": sum(not low <= x <= high for x in ratios) / n,
        "clip_frac_active": sum(t.side != 0 for t in tokens) / n,
        "ess_frac": math.fsum(ratios) ** 2 / (n * math.fsum(x * x for x in ratios)),
        "ratio_mean": mean(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "ratio_error_max": max(abs(t.ratio - r.ratio) / r.ratio for r, t in pairs),
        "log_ratio_error_max": max(abs(t.log_ratio - r.log_ratio) for r, t in pairs),
        "clip_flips": len(flips),
        "clip_flips_on": sum(now for _, now in flips),
        "clip_flips_off": sum(was for was, _ in flips),
        "ratio_overflow": 0,
        "ratio_underflow": 0,
        "zero_log_ratio_frac": sum(t.log_ratio == 0 for t in tokens) / n,
        "rounded_to_zero_frac": sum(t.log_ratio == 0 != r.log_ratio for r, t in pairs) / n,
        "grad_abs_mean": mean([abs(t.gradient) for t in tokens]),
        "grad_error": math.fsum(abs(t.gradient - r.gradient) for r, t in pairs)
        / math.fsum(abs(r.gradient) for r in reference),
        "grad_vanished": sum(r.gradient != 0 == t.gradient for r, t in pairs),
        "grad_appeared": sum(r.gradient == 0 != t.gradient for r, t in pairs),
        "grad_reversed": 0,
    }


def check(answer: Answer, want: dict[str, float]) -> None:
    for name, value in want.items():
        got = answer.metrics[name]
        assert got == pytest.approx(value, rel=1e-12, abs=1e-15), name
        assert isinstance(got, int) == isinstance(value, int), name
    assert answer.nulls == {}


@pytest.mark.parametrize("name", ["float32", "tf32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_storage(name: str) -> None:
    arrays = draw()
    report = ppocli.audit(**arrays, formats=name)
    columns = columns_of(arrays)
    reference, tokens = (audit(columns, one, None, Bounds()) for one in (None, name))
    want = expected(reference, tokens, 0.8, 1.2)
    want["policy_loss"] = mean([t.loss for t in tokens])
    was = expected(reference, reference, 0.8, 1.2)
    was["policy_loss"] = mean([t.loss for t in reference])
    answer = storage(report, name)
    check(answer, want)
    for key in ("policy_loss", "approx_kl_k1", "approx_kl_k3", "clip_frac", "clip_frac_active", "ess_frac"):
        error = answer.metrics[f"{key}_error"]
        assert error == pytest.approx(want[key] - was[key], rel=1e-9, abs=1e-15)
        assert report.evaluation.metrics[key] == pytest.approx(was[key], rel=1e-12)
    loss, size = was["policy_loss"], mean([abs(t.loss) for t in reference])
    off = abs(want["policy_loss"] - loss)
    assert answer.metrics["policy_loss_rel_error"] == pytest.approx(off / abs(loss), rel=1e-7)
    assert answer.metrics["policy_loss_scaled_error"] == pytest.approx(off / size, rel=1e-7)


def runs_in_order(losses: list[float]) -> float:
    """Float32: eight lanes in each run of 256 tokens, folded in float64; runs one after the other."""
    total = np.float32(0.0)
    for start in range(0, len(losses), 256):
        lanes = np.zeros(8, dtype=np.float32)
        for place, loss in enumerate(losses[start : start + 256]):
            lanes[place % 8] += np.float32(loss)
        total += np.float32(math.fsum(lanes.tolist()))
    return float(total)


def runs_in_a_tree(losses: list[float]) -> float:
    runs = [np.float32(runs_in_order(losses[start : start + 256])) for start in range(0, len(losses), 256)]
    # Runs behind the end of the last block of 2,048 tokens are there, and 0.
    runs += [np.float32(0.0)] * (-len(runs) % 8)
    while len(runs) > 1:
        # From the right, so that what is left over is the small end.
        odd = [runs.pop()] if len(runs) % 2 else []
        runs = [np.float32(a + b) for a, b in zip(runs[::2], runs[1::2], strict=True)] + odd
    return float(runs[0])


def in_format(losses: list[float], name: str) -> float:
    total = 0.0
    for loss in losses:
        total = nearest(total + loss, name)
    return total


SUMS = {
    "float32": lambda losses, _: runs_in_order(losses),
    "pairwise": lambda losses, _: runs_in_a_tree(losses),
    "compensated": lambda losses, _: float(np.float32(math.fsum(losses))),
    "same": in_format,
}


@pytest.mark.parametrize("accumulate", SUMS)
@pytest.mark.parametrize("name", ["float32", "tf32", "bfloat16", "float16"])
def test_arithmetic(name: str, accumulate: str) -> None:
    arrays = draw(2048 + 700)
    report = ppocli.audit(**arrays, formats=name, accumulate=accumulate, dual_clip=3.0, clip_high=0.28)
    columns, bounds = columns_of(arrays), Bounds(0.8, 1.28, dual=3.0)
    reference = audit(columns, None, None, bounds)
    tokens = audit(columns, name, name, bounds)
    want = expected(reference, tokens, nearest(0.8, name), nearest(1.28, name))
    for key in ("approx_kl_k1", "approx_kl_k2", "approx_kl_k3"):
        want[key] = nearest(want[key], name)
    n = len(tokens)
    total = SUMS[accumulate]([t.loss for t in tokens], name)
    want["policy_loss"] = nearest(total / n, name)
    want["policy_loss_of_rounded_sums"] = nearest(nearest(total, name) / nearest(float(n), name), name)
    answer = arithmetic(report, name)
    check(answer, want)
    assert answer.metrics["policy_loss"] == want["policy_loss"]
    assert answer.metrics["policy_loss_of_rounded_sums"] == want["policy_loss_of_rounded_sums"]


def test_a_count_beyond_the_format_makes_the_masked_mean_zero() -> None:
    # float16 ends at 65,504: 70,000 tokens are infinitely many, and the sum of the losses is infinite too.
    ones = np.ones(70_000)
    report = ppocli.audit(log_probs=-ones, old_log_probs=-ones, advantages=1e-3 * ones, formats="float16")
    metrics = arithmetic(report, "float16").metrics
    assert metrics["policy_loss"] == nearest(-1e-3, "float16")
    assert metrics["policy_loss_of_rounded_sums"] == 0.0
    assert metrics["rounded_sums_scaled_error"] == 1.0
    assert arithmetic(report, "float16").verdict.reasons == (
        "sum and number of tokens, each rounded to the format, give a loss that is off by 1 of the mean "
        "|token loss|",
    )
    report = ppocli.audit(log_probs=-ones, old_log_probs=-ones, advantages=ones, formats="float16")
    note = arithmetic(report, "float16").nulls["policy_loss_of_rounded_sums"]
    assert note.nonfinite == "nan"  # infinity over infinity
    assert arithmetic(report, "float16").metrics["policy_loss"] == -1.0


# ------------------------------------------------------------------------------------------- places, steps


def sequences(arrays: dict[str, Any], lengths: list[int]) -> dict[str, list[Any]]:
    cuts = np.cumsum(lengths)[:-1]
    return {role: np.split(values, cuts) for role, values in arrays.items()}


def test_the_worst_flip_is_the_largest_change_of_a_ratio() -> None:
    arrays = draw(6000)
    lengths = [700, 1, 2500, 1299, 1500]
    report = ppocli.audit(**sequences(arrays, lengths), formats="bfloat16")
    columns = columns_of(arrays)
    reference = audit(columns, None, None, Bounds())
    for steps, answer in ((None, storage(report, "bfloat16")), ("bfloat16", arithmetic(report, "bfloat16"))):
        tokens = audit(columns, "bfloat16", steps, Bounds())
        changes = [
            abs(t.ratio - r.ratio) if (t.side != 0) != (r.side != 0) else -1.0
            for r, t in zip(reference, tokens, strict=True)
        ]
        token = int(np.argmax(changes))
        row = int(np.searchsorted(np.cumsum(lengths), token, side="right"))
        flip = answer.worst_flip
        assert flip is not None
        assert flip.where == Place("<arrays>", row, token - sum(lengths[:row]))
        assert flip.direction == ("on" if tokens[token].side else "off")
        assert flip.ratio == pytest.approx(tokens[token].ratio, rel=1e-15)
        assert flip.reference_ratio == pytest.approx(reference[token].ratio, rel=1e-15)


def test_a_flip_in_a_sequence_told_by_its_id_and_with_a_token_id(tmp_path: Path) -> None:
    old = np.full(10, -20.0)
    new = old + 0.01
    new[6] = -19.93  # bfloat16 makes 0.125 of 0.07
    table = {"log_probs": new, "old_log_probs": old, "advantages": np.ones(10)}
    ids = {"sequence_id": [1, 2] * 5, "token_id": list(range(100, 110))}
    pq.write_table(pa.table({**table, **ids}), tmp_path / "a.parquet")
    flip = storage(
        ppocli.audit(tmp_path / "a.parquet", formats="bfloat16", clip_eps=0.1), "bfloat16"
    ).worst_flip
    assert flip is not None
    # The fourth token of sequence 1, in row 6.
    assert flip.where == Place(str(tmp_path / "a.parquet"), 6, 3, 106)
    assert (flip.direction, flip.ratio) == ("on", pytest.approx(math.exp(0.125)))


def test_no_flip_has_no_place() -> None:
    report = ppocli.audit(**draw(100, 0.01), formats="float32")
    assert storage(report, "float32").worst_flip is None
    assert storage(report, "float32").metrics["clip_flips"] == 0


def test_steps_at_the_quantiles_of_the_log_probs() -> None:
    # |log_prob| 5 has steps of 2^-5 in bfloat16 and of 2^-8 in float16; 50 has 2^-2 and 2^-5.
    n = 1000
    new = np.where(np.arange(n) < 20, -50.0, -5.0)
    drift = np.where(np.arange(n) < 300, 0.01, 0.2)
    report = ppocli.audit(
        log_probs=new, old_log_probs=new - drift, advantages=np.ones(n), formats="bfloat16,float16"
    )
    assert report.audit.sizes["log_prob_abs_p50"] == pytest.approx(5.0, rel=0.03)
    assert report.audit.sizes["log_prob_abs_p99"] == pytest.approx(50.0, rel=0.03)
    assert report.audit.sizes["log_ratio_abs_p50"] == pytest.approx(0.2, rel=0.03)
    narrow, wide = (storage(report, name).metrics for name in ("bfloat16", "float16"))
    assert (narrow["step_p50"], narrow["step_p99"]) == (2.0**-5, 2.0**-2)
    assert (wide["step_p50"], wide["step_p99"]) == (2.0**-8, 2.0**-5)
    assert (narrow["below_step_frac"], wide["below_step_frac"]) == (0.3, 0.0)
    histogram = dict(report.audit.histogram)
    assert histogram[2.0**-7] == 300  # 0.01 is between 1/128 and 1/64
    assert histogram[2.0**-3] == 700
    assert sum(histogram.values()) == n


# ------------------------------------------------------------------------------------------- int8


def int8(values: np.ndarray, scale: Any) -> np.ndarray:
    """What a symmetric quantiser in float32 leaves."""
    number = np.clip(np.rint(values.astype(np.float32) / np.float32(scale)), -127, 127)
    return (number * np.float32(scale)).astype(np.float64)


def scale_of(values: np.ndarray) -> np.float32:
    return np.float32(np.abs(values).astype(np.float32).max()) / np.float32(127.0)


def loss_of(new: np.ndarray, old: np.ndarray, adv: np.ndarray) -> float:
    return mean([t.loss for t in audit((new, old, adv), None, None, Bounds())])


def test_int8_has_the_scale_of_all_valid_values() -> None:
    arrays = draw(3000)
    mask = np.random.default_rng(0).random(3000) < 0.7
    for role in ROLES[:2]:
        arrays[role][~mask] = -9999.0  # would take the whole range
    report = ppocli.audit(**arrays, mask=mask, formats="int8")
    kept = {role: values[mask] for role, values in arrays.items()}
    new, old = (int8(kept[role], scale_of(kept[role])) for role in ROLES[:2])
    metrics = storage(report, "int8").metrics
    assert metrics["policy_loss"] == pytest.approx(loss_of(new, old, kept["advantages"]), rel=1e-12)
    assert metrics["step_p50"] == metrics["step_p99"] == float(scale_of(kept["log_probs"]))
    assert report.audit.formats["int8"].arithmetic is None


def test_half_a_step_of_int8_is_no_power_of_two() -> None:
    # The largest log-prob is 127, so that the step is 1; then 190.5, and it is 1.5.
    drift = np.repeat([0.3, 0.6, 0.9], [1, 10, 100])
    for largest, hidden in ((127.0, 1), (190.5, 11)):
        new = np.full(111, -1.0)
        new[-1] = -largest
        report = ppocli.audit(
            log_probs=new, old_log_probs=new - drift, advantages=np.ones(111), formats="int8"
        )
        metrics = storage(report, "int8").metrics
        assert metrics["step_p50"] == largest / 127.0
        assert metrics["below_step_frac"] == hidden / 111


def by_sequence(arrays: dict[str, Any], codes: np.ndarray) -> float:
    """The loss with one scale for each column and sequence."""
    stored = [np.empty(codes.size) for _ in range(2)]
    for code in np.unique(codes):
        here = codes == code
        for k, role in enumerate(ROLES[:2]):
            stored[k][here] = int8(arrays[role][here], scale_of(arrays[role][here]))
    return loss_of(*stored, arrays["advantages"])


@pytest.mark.parametrize("chunk_rows", [None, 7])
def test_int8_per_sequence_of_lists(chunk_rows: int | None) -> None:
    arrays, lengths = draw(5000), [1, 2047, 900, 0, 2052]
    report = ppocli.audit(**sequences(arrays, lengths), formats="int8_per_sequence", chunk_rows=chunk_rows)
    codes = np.repeat(np.arange(5), lengths)
    answer = storage(report, "int8_per_sequence")
    assert answer.metrics["policy_loss"] == pytest.approx(by_sequence(arrays, codes), rel=1e-12)
    assert answer.nulls["step_p50"].reason == "the step is another one in each sequence"


def test_int8_per_sequence_of_interleaved_ids_in_two_files(tmp_path: Path) -> None:
    losses, n = [], 2500
    for k in range(2):
        arrays = draw(n, seed=k)
        codes = np.random.default_rng(k).integers(0, 40, n)
        pq.write_table(
            pa.table({**arrays, "sequence_id": codes}), tmp_path / f"{k}.parquet", row_group_size=300
        )
        losses.append(by_sequence(arrays, codes))
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    report = ppocli.audit(paths, formats="int8_per_sequence")
    metrics = storage(report, "int8_per_sequence").metrics
    assert metrics["policy_loss"] == pytest.approx(mean(losses), rel=1e-12)


def test_int8_per_sequence_without_sequences_is_not_audited() -> None:
    report = ppocli.audit(**draw(100), formats="int8_per_sequence")
    answer = storage(report, "int8_per_sequence")
    assert set(answer.metrics.values()) == {None}
    assert answer.nulls.keys() == answer.metrics.keys()
    assert "no sequences" in answer.nulls["policy_loss"].reason
    assert answer.verdict.level == "error"
    assert all(one.clip_flips is None for one in report.audit.candidates)


# ------------------------------------------------------------------------------------------- values left out


def test_values_that_are_not_finite_make_strict_metrics_null() -> None:
    arrays = draw(500)
    spoiled = {role: values.copy() for role, values in arrays.items()}
    spoiled["log_probs"][7], spoiled["advantages"][400] = np.nan, np.inf
    keep = np.ones(500, bool)
    keep[[7, 400]] = False
    report = ppocli.audit(**spoiled, formats="bfloat16")
    alone = ppocli.audit(**{role: values[keep] for role, values in arrays.items()}, formats="bfloat16")
    assert report.audit.n_left_out == 2
    for (_, got), (_, want) in zip(
        report.audit.formats["bfloat16"].answers(), alone.audit.formats["bfloat16"].answers(), strict=True
    ):
        for name, value in want.metrics.items():
            assert got.metrics[name] is None
            assert got.nulls[name].reason == "2 valid tokens are not finite"
            assert got.metrics[f"{name}_finite"] == pytest.approx(value, rel=1e-9, abs=1e-7)
        assert got.verdict.level == "error"
        assert got.verdict.reasons[0] == "2 tokens with a value that is not finite"
    assert report.audit.recommendation is None


def test_a_loss_that_is_not_finite_in_the_format() -> None:
    arrays = {"log_probs": [-1.0, -1.0], "old_log_probs": [-13.0, -1.0], "advantages": [-1.0, 1.0]}
    report = ppocli.audit(**arrays, formats="float16,bfloat16")
    answer = arithmetic(report, "float16")
    assert answer.metrics["policy_loss"] is None
    assert answer.nulls["policy_loss"].nonfinite == "inf"
    assert answer.metrics["ratio_overflow"] == 1
    assert answer.verdict.level == "error"
    assert arithmetic(report, "bfloat16").metrics["ratio_overflow"] == 0


def test_nothing_to_audit() -> None:
    report = ppocli.audit(**draw(4), mask=np.zeros(4), formats="bfloat16")
    assert report.exit_code == ExitCode.EMPTY
    assert set(storage(report, "bfloat16").metrics.values()) == {None}
    assert report.audit.verdict == "error"
    assert report.audit.reduction is None
    json.dumps(report.to_dict(), allow_nan=False)


# ------------------------------------------------------------------------------------------- one answer


def document(report: AuditReport) -> dict[str, Any]:
    made = report.to_dict()
    for key in ("run", "inputs", "settings"):
        del made[key]
    return json.loads(json.dumps(made).replace(".float64.parquet", ".parquet"))


FORMATS = "float32,tf32,bfloat16,float16,float8_e4m3fn,int8,int8_per_sequence"


@pytest.mark.parametrize("accumulate", ["float32", "same", "pairwise"])
def test_chunks_row_groups_threads_and_types_change_nothing(tmp_path: Path, accumulate: str) -> None:
    n = 30_000
    arrays = {role: values.astype(np.float16).astype(np.float32) for role, values in draw(n).items()}
    arrays["log_probs"][[77, 9000]] = np.nan
    lengths = np.random.default_rng(1).multinomial(n, [1 / 40] * 40)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())

    def write(path: Path, dtype: str, group: int) -> Path:
        lists = {r: pa.ListArray.from_arrays(offsets, pa.array(v.astype(dtype))) for r, v in arrays.items()}
        pq.write_table(pa.table(lists), path, row_group_size=group)
        return path

    plain = write(tmp_path / "a.parquet", "float32", 40)
    options: dict[str, Any] = {"formats": FORMATS, "accumulate": accumulate, "dual_clip": 3.0}
    want = document(ppocli.audit(plain, **options))
    assert document(ppocli.audit(plain, **options, chunk_rows=3)) == want
    assert document(ppocli.audit(plain, **options, threads=1)) == want
    write(plain, "float32", 3)
    assert document(ppocli.audit(plain, **options)) == want
    write(plain, "float64", 11)
    assert document(ppocli.audit(plain, **options)) == want


def test_float32_columns_lose_nothing_in_float32() -> None:
    arrays = {role: values.astype(np.float32) for role, values in draw(5000).items()}
    metrics = storage(ppocli.audit(**arrays), "float32").metrics
    for name in metrics:
        if name.endswith(("_error", "_error_max", "_flips", "_zero_frac")) and name != "zero_log_ratio_frac":
            assert metrics[name] == 0, name


def test_other_formats_change_nothing() -> None:
    arrays = draw(5000)
    alone = ppocli.audit(**arrays, formats="bfloat16").to_dict()["audit"]["bfloat16"]
    many = ppocli.audit(**arrays, formats="int8,tf32,bfloat16,float8_e5m2").to_dict()["audit"]["bfloat16"]
    assert alone == many


def test_a_file_that_breaks_off_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    paths = []
    for k in range(3):
        paths.append(tmp_path / f"{k}.parquet")
        arrays = {role: values.astype(np.float32) for role, values in draw(20_000, seed=k).items()}
        pq.write_table(
            pa.table(arrays), paths[-1], row_group_size=4096, write_page_checksum=True, compression="none"
        )
    whole = ppocli.audit([paths[0], paths[2]], formats=FORMATS, accumulate="same")
    spoiled = bytearray(paths[1].read_bytes())
    spoiled[len(spoiled) // 2] ^= 0xFF
    paths[1].write_bytes(bytes(spoiled))
    with pytest.raises(InputError):
        ppocli.audit(paths, formats="bfloat16")
    kept = ppocli.audit(paths, formats=FORMATS, accumulate="same", skip_bad=True, chunk_rows=4096)
    assert len(kept.evaluation.skipped) == 1
    for name in ("audit", "reduction", "sizes", "log_ratio_histogram", "candidates"):
        assert kept.to_dict()[name] == whole.to_dict()[name], name


@pytest.mark.parametrize("accumulate", ["float32", "same"])
def test_a_file_whose_advantages_break_off_gives_int8_no_scale(tmp_path: Path, accumulate: str) -> None:
    # Its log-probs, which the first pass reads, are whole and a thousand times as large.
    paths = [tmp_path / f"{k}.parquet" for k in range(3)]
    for k, path in enumerate(paths):
        arrays = draw(6000, seed=k)
        if k == 1:
            arrays = {**arrays, **{role: arrays[role] * 1000.0 for role in ROLES[:2]}}
        pq.write_table(
            pa.table(arrays), path, write_page_checksum=True, compression="none", use_dictionary=False
        )
    whole = ppocli.audit([paths[0], paths[2]], formats="int8,float16", accumulate=accumulate)
    spoiled = bytearray(paths[1].read_bytes())
    place = pq.ParquetFile(paths[1]).metadata.row_group(0).column(2).data_page_offset
    spoiled[place + 1000] ^= 0xFF
    paths[1].write_bytes(bytes(spoiled))
    kept = ppocli.audit(paths, formats="int8,float16", accumulate=accumulate, skip_bad=True)
    assert [one.path for one in kept.evaluation.skipped] == [str(paths[1])]
    for name in ("audit", "reduction", "sizes", "log_ratio_histogram", "candidates"):
        assert kept.to_dict()[name] == whole.to_dict()[name], name


# ------------------------------------------------------------------------------------------- the input itself


def test_columns_that_hold_narrow_values_are_named() -> None:
    arrays = draw(4000)
    arrays["log_probs"][0] = -1.23e-6  # below the steps of float16, which holds all larger ones of bfloat16
    arrays["log_probs"] = np.array([nearest(x, "bfloat16") for x in arrays["log_probs"].tolist()])
    arrays["old_log_probs"] = arrays["old_log_probs"].astype(np.float16).astype(np.float64)
    report = ppocli.audit(**arrays)
    assert report.audit.holds == {"log_probs": ("bfloat16",), "old_log_probs": ("float16",)}
    said = [one for one in report.evaluation.findings if one.code == "PPO201"]
    assert [one.message for one in said] == [
        "every value of log_probs is a bfloat16 number",
        "every value of old_log_probs is a float16 number",
    ]
    assert "bounds storage from here on" in said[0].advice
    # A single other value at a valid token is enough to the contrary; at a masked one it is not.
    mask = np.ones(4000)
    mask[3999], arrays["log_probs"][3999] = 0, -0.1
    assert "log_probs" in ppocli.audit(**arrays, mask=mask).audit.holds
    assert "log_probs" not in ppocli.audit(**arrays).audit.holds


def test_a_constant_column_says_nothing_about_its_format() -> None:
    report = ppocli.audit(log_probs=[-0.5, -0.5], old_log_probs=[-0.5, -0.75], advantages=[1.0, 2.0])
    assert report.audit.holds == {"old_log_probs": ("bfloat16", "float16")}


def test_order_of_the_sum() -> None:
    # The first loss is 2^24; to that float32 adds nothing of the ones that follow, one by one.
    n = 3000
    advantages = np.full(n, -1.0)
    advantages[0] = -(2.0**24)
    ones = np.full(n, -1.0)
    reduction = ppocli.audit(log_probs=ones, old_log_probs=ones, advantages=advantages).audit.reduction
    assert reduction is not None
    assert reduction.exact == 2.0**24 + 2999
    assert reduction.sums["naive"] == 2.0**24
    assert reduction.sums["compensated"] == float(np.float32(2.0**24 + 2999))
    losses = (-advantages).tolist()
    assert reduction.sums["blocked"] == runs_in_order(losses)
    assert reduction.sums["pairwise"] == runs_in_a_tree(losses)
    assert reduction.sums["bfloat16"] == 2.0**24
    assert reduction.stops == {"naive": 1, "bfloat16": 1}
    assert reduction.idle == {"naive": 2999, "bfloat16": 2999}


# ------------------------------------------------------------------------------------------- verdicts, gate


def test_the_cheapest_format_that_does_no_harm() -> None:
    # Drift of 0.1 at -1: float8_e5m2 and e4m3fn see none of it or twice as much, bfloat16 most of it.
    old = np.full(400, -1.0)
    arrays = {
        "log_probs": old + 0.1,
        "old_log_probs": old,
        "advantages": np.where(np.arange(400) % 2, 1.0, -1.0),
    }
    report = ppocli.audit(**arrays, formats="float32,bfloat16,float8_e4m3fn", loss_tolerance=0.02)
    candidates = {(one.storage, one.arithmetic): one for one in report.audit.candidates}
    assert len(candidates) == 6
    assert report.audit.recommendation == candidates["float8_e4m3fn", "float32"]
    report = ppocli.audit(**arrays, formats="float32,bfloat16,float8_e4m3fn", clip_eps=0.11)
    # exp(0.1) is 1.105, within; 0.9 in e4m3fn is 0.875, and exp(0.125) is outside: decisions flip.
    assert storage(report, "float8_e4m3fn").metrics["clip_flips"] == 200
    assert report.audit.recommendation.storage == "bfloat16"  # type: ignore[union-attr]


def test_float64_is_recommended_where_all_else_does_harm() -> None:
    # In float32 -1 + 3e-8 is -1: the loss of advantages that cancel changes by all of it.
    new = np.full(10, -1.0) + 3e-8
    arrays = {"log_probs": new, "old_log_probs": np.full(10, -1.0), "advantages": np.ones(10)}
    report = ppocli.audit(**arrays, formats="float32", loss_tolerance=1e-9)
    one = report.audit.recommendation
    assert one is not None
    assert (one.storage, one.arithmetic, one.n_bytes) == ("float64", "float64", 8)


def test_tf32_is_not_recommended_as_nothing_is_stored_in_it() -> None:
    report = ppocli.audit(**draw(500, 0.01), formats="tf32,float16,float32", loss_tolerance=0.5)
    assert {one.storage for one in report.audit.candidates} == {"float16", "float32"}
    assert list(report.audit.formats) == ["tf32", "float16", "float32"]
    alone = ppocli.audit(**draw(500, 0.01), formats="tf32", loss_tolerance=0.5).audit
    assert alone.candidates == ()
    assert alone.recommendation is not None
    assert alone.recommendation.storage == "float64"


@pytest.mark.parametrize(("fail_on", "code"), [("never", 0), ("error", 0), ("warning", ExitCode.GATE_FAILED)])
def test_the_gate_is_about_the_gravest_verdict(fail_on: str, code: int) -> None:
    arrays = {"log_probs": [-20.07] + [-1.0] * 200, "old_log_probs": [-20.0] + [-1.0625] * 200}
    report = ppocli.audit(
        **arrays,
        advantages=[-1.0] * 201,
        formats="bfloat16",
        fail_on=fail_on,
        clip_eps=0.1,
        loss_tolerance=0.1,
    )
    assert report.audit.verdict == "warning"
    assert storage(report, "bfloat16").metrics["clip_flips"] == 1
    assert (report.exit_code, report.status) == (code, "failed" if code else "ok")


def test_a_gate_fails_on_tokens_that_could_not_be_audited() -> None:
    arrays = {"log_probs": [-1.0, math.nan], "old_log_probs": [-1.0, -1.0], "advantages": [1.0, 1.0]}
    assert ppocli.audit(**arrays, formats="float32", fail_on="error").exit_code == ExitCode.GATE_FAILED


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"formats": "bf16"}, "format 'bf16' is not known"),
        ({"formats": "float32,float32"}, "twice"),
        ({"formats": ""}, "no format"),
        ({"accumulate": "kahan"}, "kahan"),
        ({"loss_tolerance": 0.0}, "positive"),
        ({"loss_tolerance": math.nan}, "positive"),
        ({"fail_on": "ok"}, "'ok' is not known"),
        ({"agg": "token-sum"}, "--agg token-sum: an audit compares the token mean"),
        ({"like": "trl:grpo"}, "--agg seq-mean-token-mean: an audit compares the token mean"),
        ({"objective": "gspo"}, "--objective gspo cannot be audited"),
        ({"like": "verl:gspo"}, "--objective gspo cannot be audited"),
        ({"worst": 3}, "worst is not a setting of an audit"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        ppocli.audit(**draw(4), **settings)


def test_advantages_may_be_stored_too_and_normalised() -> None:
    arrays = draw(2000)
    report = ppocli.audit(**arrays, formats="bfloat16", with_advantages=True, adv_norm="batch")
    adv = arrays["advantages"]
    m, s = math.fsum(adv) / 2000, math.sqrt(math.fsum((adv - math.fsum(adv) / 2000) ** 2) / 2000) + 1e-8
    used = [(nearest(a, "bfloat16") - m) / s for a in adv.tolist()]
    tokens = audit((arrays["log_probs"], arrays["old_log_probs"], used), "bfloat16", None, Bounds())
    metrics = storage(report, "bfloat16").metrics
    assert metrics["policy_loss"] == pytest.approx(mean([t.loss for t in tokens]), rel=1e-9)


# ------------------------------------------------------------------------------------------- known numbers

STEPS_AT_20 = {
    "log_probs": [-20.07, -12.03, -5.02, -1.004, -0.3, -23.93],
    "old_log_probs": [-20.0, -12.0, -5.0, -1.0, -0.3, -24.07],
    "advantages": [1.0] * 6,
}


def test_steps_of_an_eighth_at_minus_20() -> None:
    report = ppocli.audit(**STEPS_AT_20)
    narrow, half = (storage(report, name).metrics for name in ("bfloat16", "float16"))
    assert narrow["policy_loss"] == pytest.approx(-1.007324679220197, rel=1e-9)
    assert (narrow["clip_frac"], narrow["clip_flips"]) == (pytest.approx(1 / 6), 1)
    assert narrow["approx_kl_k1"] == pytest.approx(-0.014322916666666666, rel=1e-9)
    assert narrow["approx_kl_k3"] == pytest.approx(0.00700599866815408, rel=1e-9)
    assert narrow["ratio_max"] == pytest.approx(1.2840254166877414, rel=1e-9)
    assert half["policy_loss"] == pytest.approx(-1.003092394827717, rel=1e-9)
    assert (half["clip_frac"], half["clip_flips"]) == (0.0, 0)
    assert half["approx_kl_k3"] == pytest.approx(0.001790311494383707, rel=1e-9)


def test_a_masked_sentinel_takes_no_part() -> None:
    arrays = {
        "log_probs": [-0.1, -1.0, -5.0, -9999.0],
        "old_log_probs": [-0.2, -1.1, -4.5, -9999.0],
        "advantages": [1.0] * 4,
        "mask": [1, 1, 1, 0],
    }
    report = ppocli.audit(**arrays, formats="float8_e4m3fn,float8_e5m2,bfloat16,int8")
    want = {
        "float8_e4m3fn": (-0.948859403401039, 0.09114583333333333, 0.04000523673437241, 1.1331484530668263),
        "float8_e5m2": (-0.8220548604930894, 0.3020833333333333, 0.12413819382642273, 1.0982851403078258),
        "bfloat16": (-0.9395695357764813, 0.09944661458333333, 0.03901615035981467, 1.1068990974236574),
    }
    for name, values in want.items():
        metrics = storage(report, name).metrics
        got = [metrics[key] for key in ("policy_loss", "approx_kl_k1", "approx_kl_k3", "ratio_max")]
        assert got == pytest.approx(values, rel=1e-9)
        assert metrics["clip_frac"] == pytest.approx(1 / 3)
    assert storage(report, "int8").metrics["step_p50"] == float(np.float32(5.0) / np.float32(127.0))


@pytest.mark.parametrize("like", ["trl:grpo", "cleanrl"])
def test_measures_of_a_framework_change_nothing(tmp_path: Path, like: str) -> None:
    n = 3 * 8192
    arrays = draw(n)
    # First sequences as a whole, then in turns: the framework's means over sequences make the file be read
    # again, when a part of it was audited.
    ids = np.arange(n) // 1000
    ids[-8192:] = 100 + np.arange(8192) % 7
    table = pa.table({**arrays, "sequence_id": ids})
    pq.write_table(table, tmp_path / "b.parquet")
    pq.write_table(table.slice(0, 2500), tmp_path / "a.parquet")
    options = AuditOptions(formats=("bfloat16", "int8_per_sequence"), accumulate="same")
    ours = {
        name: one for name, one in preset(like).loss_spec().to_dict().items() if name not in FRAMEWORK_ONLY
    }
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    alone = ppocli.evaluate(paths, **ours, audit=options)
    beside = ppocli.evaluate(paths, like=like, audit=options, chunk_rows=2048)
    assert beside.like is not None
    assert beside.audit is not None
    assert beside.audit == alone.audit
    assert beside.metrics == alone.metrics
    if like == "trl:grpo":
        assert beside.audit.reduction == ppocli.audit(paths, like=like, agg="token-mean").audit.reduction


@pytest.mark.parametrize("adv", [[2.0], [2.0, 2.0], [1e308, -1e308, 1e308]])
def test_advantages_that_cannot_be_normalised_give_no_verdict(adv: list[float]) -> None:
    values = {"log_probs": [-1.0] * len(adv), "old_log_probs": [-1.5] * len(adv), "advantages": adv}
    settings = {"adv_norm": "batch", "adv_norm_eps": 0.0, "adv_norm_ddof": 1}
    form = {} if len(adv) == 3 else {"adv_norm_degenerate": "formula"}
    assert ppocli.evaluate(**values, **settings, **form).metrics["policy_loss"] is None
    with pytest.raises(InputError, match="no loss to audit"):
        ppocli.audit(**values, **settings, **form)


def test_a_file_that_is_skipped_at_the_end_leaves_the_recommendation_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n, plain = 8192, {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    exact = -np.floor(rng.exponential(8.0, n)).astype(
        np.float32
    )  # small integers: any 16-bit format holds them
    for name, old, new in (
        ("a.parquet", exact, exact),
        ("b.parquet", exact, (exact + rng.normal(0.0, 0.3, n)).astype(np.float32)),
    ):
        table = pa.table({"log_probs": new, "old_log_probs": old, "advantages": rng.normal(0.0, 1.0, n)})
        pq.write_table(table, tmp_path / name, row_group_size=n // 2, **plain)
    bad = tmp_path / "b.parquet"
    content = bytearray(bad.read_bytes())
    content[pq.ParquetFile(bad).metadata.row_group(1).column(0).data_page_offset + 1000] ^= 255
    bad.write_bytes(content)
    paths = [tmp_path / "a.parquet", bad]
    report = ppocli.audit(paths, formats="bfloat16", skip_bad=True, chunk_rows=2048)
    assert len(report.evaluation.skipped) == 1
    found = report.audit.recommendation
    assert found is not None
    assert (found.storage, found.arithmetic) == ("bfloat16", "float32")


def test_a_ratio_that_becomes_nan_is_the_worst_flip_and_has_no_extremes() -> None:
    """-1000 is NaN in e4m3fn: exp(-1000 + 999) is clipped in float64, and nothing is known of it there."""
    new, old = np.array([-1.0, -1000.0, -1.0]), np.array([-1.5, -999.0, -1.0])
    report = ppocli.audit(
        log_probs=new, old_log_probs=old, advantages=np.array([1.0, -1.0, 1.0]), formats="float8_e4m3fn"
    )
    answer = storage(report, "float8_e4m3fn")
    assert (answer.metrics["clip_flips_off"], answer.metrics["ratio_overflow"]) == (1, 1)
    assert answer.worst_flip is not None
    assert (answer.worst_flip.where.row, answer.worst_flip.ratio) == (1, None)
    for name in ("ratio_min", "ratio_max", "ratio_error_max", "log_ratio_error_max"):
        assert answer.metrics[name] is None
        assert answer.nulls[name].nonfinite == "nan"


def test_squares_of_ratios_that_overflow_give_no_effective_sample_size() -> None:
    """exp(400) is a float64 and its square is not: 0 would be wrong, the answer is about 1 / n."""
    new = np.array([0.0, -1.0])
    report = ppocli.audit(
        log_probs=new, old_log_probs=np.array([-400.0, -1.0]), advantages=np.ones(2), formats="float32"
    )
    assert storage(report, "float32").metrics["ess_frac"] is None
