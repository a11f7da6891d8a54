"""Rules about the data: each fault is counted and located, whatever the reading; healthy data are silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import healthy
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ppocli
from ppocli.core.report import Finding, Place
from ppocli.engine.advantages import is_normal

CODES = [f"PPO{number}" for number in range(402, 411)]


def found(code: str, arrays: dict[str, Any], **settings: Any) -> list[Finding]:
    return [one for one in ppocli.evaluate(**arrays, **settings).findings if one.code == code]


def tokens(n: int = 100, **changes: Any) -> dict[str, Any]:
    """Ordinary log-probs of tokens, on policy, with advantages +-1."""
    old = -np.random.default_rng(3).exponential(1.0, n) - 0.001
    usual = {"log_probs": old, "old_log_probs": old, "advantages": np.where(np.arange(n) % 2, 1.0, -1.0)}
    return {**usual, **changes}


def changed(values: Any, **at: Any) -> Any:
    """A copy with `index=value` replaced, written at3=-9.0."""
    out = np.array(values, float)
    for name, value in at.items():
        out[int(name.removeprefix("at"))] = value
    return out


@pytest.mark.parametrize("tens", range(20))
def test_healthy_batches_have_none_of_these_findings(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        batch = healthy.batch(seed)
        codes = {one.code for one in ppocli.evaluate(**batch, adv_norm="batch").findings}
        # Densities of continuous actions are above 0: an info.
        assert codes & {*CODES, "PPO201"} == (set() if "mask" in batch else {"PPO403"}), seed


@pytest.mark.parametrize("sentinel", [-9999.0, -1000.0, -100.0])
def test_a_placeholder_on_both_sides(sentinel: float) -> None:
    both = changed(tokens(5000)["log_probs"], at2047=sentinel, at4999=sentinel)
    one, two = found("PPO402", tokens(5000, log_probs=both, old_log_probs=both))
    assert (one.count, one.where) == (2, Place("<arrays>", 2047))
    assert {one.message, two.message} == {
        f"2 valid tokens with {role} exactly {sentinel:g}: a sentinel?"
        for role in ("log_probs", "old_log_probs")
    }


def test_zero_fill_opposite_an_unlikely_token() -> None:
    usual = tokens()["log_probs"]
    new = changed(usual, at5=-2.5, at6=-2.0, at7=-2.5, at90=-8.0)
    old = changed(usual, at5=0.0, at6=0.0, at7=-1e-9, at90=0.0)
    (one,) = found("PPO406", tokens(log_probs=new, old_log_probs=old))
    assert (one.severity, one.count, one.where) == ("warning", 2, Place("<arrays>", 5))
    assert one.message.startswith("2 valid tokens with old_log_probs exactly 0 opposite a log-prob below -2")
    mask = np.ones(100, bool)
    mask[[5, 90]] = False
    assert found("PPO406", tokens(log_probs=new, old_log_probs=old, mask=mask)) == []
    (other,) = found("PPO406", tokens(log_probs=old, old_log_probs=new))
    assert "with log_probs exactly 0" in other.message


@pytest.mark.parametrize(
    ("dtype", "largest", "explained"),
    [("float32", 2.0**-18, True), ("float32", 2.0**-17, False), ("float16", 2.0**-5, True),
     ("float16", 2.0**-4, False), ("float64", 1e-15, True), ("float64", 1e-9, False)],
)  # fmt: skip
def test_positive_log_probs_by_the_step_of_their_type(dtype: str, largest: float, explained: bool) -> None:
    new = changed(tokens()["log_probs"], at41=largest).astype(dtype)
    arrays = tokens(log_probs=new, old_log_probs=tokens()["log_probs"].astype(dtype))
    (one,) = found("PPO403", arrays)
    assert (one.severity, one.count, one.where) == ("info", 1, Place("<arrays>", 41))
    assert f"the largest is {largest:.6g}, in log_probs" in one.message
    assert (f"which rounding of {dtype} explains" in one.message) == explained
    (one,) = found("PPO403", {**arrays, "group_id": np.zeros(100, int)})
    assert one.severity == ("info" if explained else "warning")
    assert (f"more than rounding of {dtype} explains" in one.message) != explained


def bfloat16(values: Any) -> Any:
    """Cut float32 values to bfloat16 numbers."""
    return (np.asarray(values, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


@pytest.mark.parametrize(("largest", "severity"), [(0.25, "info"), (0.2578125, "warning")])
def test_positive_log_probs_in_a_float32_column_of_bfloat16_values(largest: float, severity: str) -> None:
    new = bfloat16(changed(tokens()["log_probs"], at41=largest))
    (one,) = found("PPO403", tokens(log_probs=new, group_id=np.zeros(100, int)))
    assert (one.severity, one.where) == (severity, Place("<arrays>", 41))
    assert "rounding of bfloat16 explains" in one.message


def test_padding_that_counts_is_told_with_the_loss_without_it() -> None:
    n = 40
    new = np.concatenate([np.full(30, -1.0), np.zeros(10)])
    adv = np.concatenate([np.full(30, 2.0), np.zeros(10)])
    arrays = {"log_probs": new, "old_log_probs": new, "advantages": adv}
    (one,) = found("PPO404", arrays)
    assert (one.count, one.where) == (10, Place("<arrays>", 30))
    # 30 tokens of -2 and 10 of 0: the mean is -1.5, and -2 without the zeros.
    assert one.message.endswith("padding? policy_loss is -1.5 with them and -2 without")
    assert found("PPO404", {**arrays, "mask": np.arange(n) < 30}) == []
    (other,) = found("PPO404", arrays, agg="token-sum")
    assert other.message.endswith("padding?")


def test_certain_tokens_of_a_group_without_a_difference_are_no_padding() -> None:
    new = changed(tokens()["log_probs"], at3=0.0, at8=0.0, at9=0.0)
    assert found("PPO404", tokens(log_probs=new, old_log_probs=new, advantages=np.zeros(100))) == []


def test_probabilities_and_negated_log_probs() -> None:
    usual = tokens()["log_probs"]
    (one,) = found("PPO407", tokens(log_probs=np.exp(usual)))
    assert (one.severity, one.count) == ("warning", 100)
    assert one.message == "all 100 values of log_probs are within 0 and 1: probabilities (--probs log_probs)?"
    assert one.where == Place("<arrays>", int(usual.argmax()))
    assert found("PPO403", tokens(log_probs=np.exp(usual))) == []
    one, two = found("PPO407", tokens(log_probs=-usual, old_log_probs=-usual))
    assert "all 100 values of log_probs are positive, up to" in one.message
    assert one.message.endswith("-log p (--neglogp log_probs)?")
    assert two.message.endswith("-log p (--neglogp old_log_probs)?")
    (ref,) = found("PPO407", tokens(ref_log_probs=-usual))
    assert "ref_log_probs" in ref.message


def test_one_log_prob_below_0_settles_what_a_column_is() -> None:
    positive = -tokens()["log_probs"]
    assert found("PPO407", tokens(log_probs=changed(positive, at99=-1e-30))) == []
    assert found("PPO407", tokens(log_probs=np.zeros(100))) == []
    assert found("PPO407", {role: values[:7] for role, values in tokens(log_probs=positive).items()}) == []
    mask = np.arange(100) < 99
    assert found("PPO407", tokens(log_probs=changed(positive, at99=-1.0), mask=mask)) != []
    read = ppocli.evaluate(**tokens(log_probs=positive), neglogp=frozenset({"log_probs"}))
    assert [one for one in read.findings if one.code == "PPO407"] == []
    assert read.metrics["log_ratio_abs_max"] == 0.0


def write(path: Path, columns: dict[str, Any]) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_ids_repeated_across_files_have_a_place(tmp_path: Path) -> None:
    flat = {"log_probs": [-1.0] * 4, "old_log_probs": [-1.0] * 4, "advantages": [1.0] * 4}
    first = write(tmp_path / "a.parquet", {**flat, "sequence_id": [1, 1, 2, 3]})
    second = write(tmp_path / "b.parquet", {**flat, "sequence_id": [9, 3, 8, 2]})
    (one,) = (x for x in ppocli.evaluate([first, second]).findings if x.code == "PPO405")
    assert (one.count, one.where) == (2, Place(second, 1))


@pytest.mark.parametrize("ids", [[5, 6, 7], ["x", None, "y"]])
def test_ids_of_rows_that_are_sequences(tmp_path: Path, ids: list[Any]) -> None:
    lists = [[-1.0, -2.0], [-1.0], [-0.5]]
    rows = {"log_probs": lists, "old_log_probs": lists, "advantages": [1.0, -1.0, 1.0]}
    first = write(tmp_path / "a.parquet", {**rows, "sequence_id": ids})
    second = write(tmp_path / "b.parquet", {**rows, "sequence_id": ids[::-1]})
    third = write(tmp_path / "c.parquet", {**rows, "sequence_id": [70, 80, 90]})
    (one,) = (x for x in ppocli.evaluate([first, third, second]).findings if x.code == "PPO405")
    assert (one.count, one.where) == (sum(x is not None for x in ids), Place(second, 0))
    assert ppocli.evaluate([first, third]).findings == ()
    assert ppocli.evaluate(second).findings == ()


def groups(values: list[list[float]]) -> dict[str, Any]:
    """Advantages by group, a token each, off policy a little."""
    flat = np.array([x for group in values for x in group])
    old = -np.random.default_rng(1).exponential(1.0, flat.size) - 0.01
    ids = np.repeat(np.arange(len(values)), [len(group) for group in values])
    return {"log_probs": old, "old_log_probs": old, "advantages": flat, "group_id": ids}


def test_groups_without_a_difference() -> None:
    varied = [[1.0, -1.0]]
    (one,) = found("PPO408", groups([*varied, [0.0, 0.0], *varied, [0.5, 0.5, 0.5]]))
    assert (one.severity, one.count, one.where) == ("info", 2, Place("<arrays>", 2))
    assert one.message == (
        "2 of 4 groups have no difference between their advantages: 1 only 0, 1 one other value"
    )
    (one,) = found("PPO408", groups([[0.0, 0.0]] * 3 + varied))
    assert (one.severity, one.count) == ("warning", 3)
    assert found("PPO408", groups([[0.0, 0.0], *varied, *varied])) == []
    assert found("PPO408", groups([[0.0, 0.0]] + varied * 2)) == []
    # All advantages are 0: that is said already.
    assert found("PPO408", groups([[0.0, 0.0]] * 4)) == []


def test_the_first_flat_group_of_a_later_file_has_its_row(tmp_path: Path) -> None:
    varied, flat = groups([[1.0, -1.0]] * 3), groups([[2.0, -2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    flat["group_id"] = flat["group_id"] + 10
    paths = [write(tmp_path / "a.parquet", varied), write(tmp_path / "b.parquet", flat)]
    report = ppocli.evaluate([paths[0], paths[1]])
    assert [one for one in report.findings if one.code == "PPO408"] == []
    report = ppocli.evaluate([paths[0], write(tmp_path / "c.parquet", groups([[0.0, 0.0]] * 6))])
    # The groups of both files have the ids 0 to 2: those of the first are not flat.
    (one,) = (x for x in report.findings if x.code == "PPO408")
    assert (one.count, one.where) == (3, Place(str(tmp_path / "c.parquet"), 6))


def normal(n: int, ddof: int = 0) -> Any:
    values = np.random.default_rng(5).normal(3.0, 2.0, n)
    return (values - values.mean()) / values.std(ddof=ddof)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize(("asked", "severity"), [("batch", "info"), ("minibatch:50", "warning")])
def test_normalised_advantages_that_are_to_be_normalised(ddof: int, asked: str, severity: str) -> None:
    arrays = tokens(advantages=normal(100, ddof))
    name, _, rows = asked.partition(":")
    settings = {"adv_norm": f"{name}:{rows}" if rows else name}
    (one,) = found("PPO409", arrays, **settings)
    assert (one.severity, one.count) == (severity, 100)
    assert "the 100 advantages have mean" in one.message
    assert found("PPO409", arrays) == []
    assert found("PPO409", tokens(advantages=normal(100, ddof) * 1.01), **settings) == []
    assert found("PPO409", tokens(advantages=normal(100, ddof) + 0.01), **settings) == []
    assert found("PPO409", tokens(advantages=normal(100, ddof) * 1.0005), **settings) == []
    assert found("PPO409", tokens(advantages=normal(100, ddof) + 0.0005), **settings) == []


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("epsilon", [0.0, 1e-8, 1e-5, 1e-4])
@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (0.3, 0.45), (-50.0, 1.0), (1000.0, 100.0)])
def test_normalised_in_float32(ddof: int, epsilon: float, mean: float, deviation: float) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        raw = rng.normal(mean, deviation, int(rng.integers(10, 5000))).astype(np.float32)
        done = (raw - raw.mean()) / (raw.std(ddof=ddof) + np.float32(epsilon))
        assert done.dtype == np.float32
        assert len(found("PPO409", tokens(len(done), advantages=done), adv_norm="batch")) == 1, seed


def test_advantages_are_not_taken_for_normalised_by_chance() -> None:
    # Of 20,000 batches with mean 0 and deviation 1 but for chance: about one in 50,000 would be.
    rng = np.random.default_rng(7)
    n = rng.integers(10, 5000, 20_000).astype(float)
    mean, square = rng.normal(0.0, 1.0, 20_000) / np.sqrt(n), rng.chisquare(n - 1)
    assert np.count_nonzero(is_normal(mean, square, n)) <= 2


def test_advantages_normalised_group_by_group() -> None:
    # Over all tokens the deviation is not 1, for the third group has no difference.
    parts = [list(normal(8)), list(normal(4)), [0.0] * 6]
    (one,) = found("PPO409", groups(parts), adv_norm="group")
    assert one.severity == "warning"
    assert "the advantages of 2 of 2 scopes have mean 0 and deviation 1" in one.message
    assert found("PPO409", groups([[1.5 * x for x in parts[0]], *parts[1:]]), adv_norm="group") == []


def critic(n: int = 4000) -> dict[str, Any]:
    """Advantages, old values and returns that are their sum, as float32."""
    rng = np.random.default_rng(2)
    adv, values = rng.normal(0, 2, n).astype(np.float32), rng.normal(20, 5, n).astype(np.float32)
    return tokens(n, advantages=adv, old_values=values, returns=adv + values)


def test_the_identity_of_returns_holds_or_fails_at_few_tokens() -> None:
    good = critic()
    assert found("PPO410", good) == []
    returns = good["returns"].copy()
    returns[[70, 2100, 3999]] += [0.5, -3.0, 1.0]
    (one,) = found("PPO410", {**good, "returns": returns})
    assert (one.severity, one.count, one.where) == ("warning", 3, Place("<arrays>", 2100))
    assert "at all but 3 of 4,000 tokens" in one.message
    assert "|returns - advantages - old_values| is 3" in one.message
    mask = np.ones(4000, bool)
    mask[[70, 2100, 3999]] = False
    assert found("PPO410", {**good, "returns": returns, "mask": mask}) == []
    values = {**good, "returns": returns, "values": good["old_values"]}
    del values["old_values"]
    (one,) = found("PPO410", values)
    assert "returns = advantages + values at all but" in one.message
    returns[70] = np.nan
    (one,) = found("PPO410", {**good, "returns": returns})
    assert one.count == 2


def test_advantages_of_another_rollout_are_told_from_normalised_ones() -> None:
    good = critic()
    adv = good["advantages"].astype(float)
    assert found("PPO410", {**good, "advantages": (adv - adv.mean()) / adv.std()}) == []
    assert found("PPO410", {**good, "advantages": bfloat16(adv), "returns": bfloat16(good["returns"])}) == []
    (one,) = found("PPO410", {**good, "advantages": adv[::-1].copy()})
    assert (one.severity, one.where is not None) == ("info", True)
    off = int((np.abs(good["returns"] - adv[::-1] - good["old_values"]) > 0.01)[:2048].sum())
    assert off <= one.count <= 2048  # the first block of 64
    assert f"other numbers than the advantages at {one.count:,} of 2,048 tokens compared" in one.message
    # `values` may be those of the updated critic: then nothing follows.
    values = {**good, "advantages": adv[::-1].copy(), "values": good["old_values"]}
    del values["old_values"]
    assert found("PPO410", values) == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_wide_column_that_holds_narrow_values(dtype: str) -> None:
    usual = tokens(1000)["log_probs"]
    arrays = tokens(1000, old_log_probs=bfloat16(usual).astype(dtype))
    (one,) = found("PPO201", arrays)
    assert (one.severity, one.count, one.where) == ("info", 1000, Place("<arrays>", 0))
    assert one.message.startswith("old_log_probs: all 1,000 values looked at are bfloat16 numbers")
    half = tokens(1000, old_log_probs=usual.astype(np.float16).astype(dtype))
    assert "are float16 numbers" in found("PPO201", half)[0].message
    # The same in any type; one that needs the width; behind a mask; too few different ones.
    half = tokens(1000, old_log_probs=usual.astype(np.float16))
    assert found("PPO201", half) == found(
        "PPO201", {**half, "old_log_probs": usual.astype(np.float16).astype(dtype)}
    )
    one_off = bfloat16(usual).astype(float)
    one_off[999] = usual[999]
    assert found("PPO201", tokens(1000, old_log_probs=one_off.astype(dtype))) == []
    mask = np.arange(1000) < 999
    assert found("PPO201", tokens(1000, old_log_probs=one_off.astype(dtype), mask=mask))[0].count == 999
    few = bfloat16(usual[:31])[np.arange(1000) % 31]
    assert found("PPO201", tokens(1000, old_log_probs=few.astype(dtype))) == []


def test_narrow_columns_of_some_files(tmp_path: Path) -> None:
    usual = tokens(1000)
    narrow = {**usual, "log_probs": bfloat16(usual["log_probs"])}
    paths = [write(tmp_path / "a.parquet", usual), write(tmp_path / "b.parquet", narrow)]
    (one,) = (x for x in ppocli.evaluate(paths).findings if x.code == "PPO201")
    assert (one.count, one.where) == (1000, Place(paths[1], 0))
    assert "log_probs: all 1,000 values looked at in 1 of 2 files are bfloat16 numbers" in one.message


def everything(n: int) -> dict[str, Any]:
    """A batch that every rule of the data has something to say of."""
    rng = np.random.default_rng(9)
    batch = critic(n)
    new = bfloat16(batch["log_probs"]).copy()
    old = batch["old_log_probs"].astype(np.float32)
    new[n // 3 :: 977], old[n // 3 :: 977] = -1000.0, -1000.0  # a number in bfloat16, too
    new[n // 5 :: 4001], old[n // 5 :: 4001] = -7.0, 0.0
    new[11::5003] = 0.375
    returns = batch["returns"].copy()
    returns[n // 2 :: 3001] += rng.normal(0, 5, returns[n // 2 :: 3001].size).astype(np.float32)
    ids = np.arange(n) // 100
    return {**batch, "log_probs": new, "old_log_probs": old, "returns": returns, "group_id": ids}


@pytest.mark.parametrize("layout", ["flat", "ids", "lists"])
def test_findings_do_not_depend_on_how_a_file_is_read(layout: str, tmp_path: Path) -> None:
    n = 40_000
    columns = everything(n)
    if layout == "ids":
        columns["sequence_id"] = np.arange(n) // 700
    table = pa.table(columns)
    if layout == "lists":
        ends = pa.array(np.arange(0, n + 1, 500), pa.int32())
        lists = {name: pa.ListArray.from_arrays(ends, pa.array(x)) for name, x in columns.items()}
        table = pa.table({**lists, "group_id": np.arange(n // 500)})
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=max(table.num_rows // 37, 1))
    wanted = None
    for name in ("a", "b"):
        for rows in (None, 300, 5000):
            path = tmp_path / f"{name}.parquet"
            report = ppocli.evaluate(path, chunk_rows=rows, threads=1 if rows else 2)
            said = [(one.code, one.count, one.message, one.where.row if one.where else None,
                     one.where.position if one.where else None) for one in report.findings]  # fmt: skip
            wanted = said if wanted is None else wanted
            assert said == wanted, (name, rows)
    assert {"PPO402", "PPO403", "PPO406", "PPO410", "PPO201"} <= {one[0] for one in wanted or ()}


@pytest.mark.parametrize(
    ("values", "said"),
    [([-1.0, 0.25, -2.5], "the largest is 0.25, in log_probs, which rounding of bfloat16 explains"),
     ([-1.0, 0.3125, -2.5], "the largest is 0.3125, in log_probs, more than rounding of bfloat16 explains"),
     ([-1.0009765625, 0.03125, -2.5],
      "the largest is 0.03125, in log_probs, which rounding of float16 explains"),
     ([-1.0009765625, 0.0625, -2.5],
      "the largest is 0.0625, in log_probs, more than rounding of float16 explains")],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bits"])
def test_what_rounding_explains_is_the_same_whatever_type_stores_the_values(
    values: list[float], said: str, dtype: str
) -> None:
    new = np.array(values, np.float32)
    if dtype == "bits":
        if new[0] != -1.0:
            pytest.skip("bfloat16 does not hold these values")
        stored, settings = (new.view(np.uint32) >> 16).astype(np.uint16), {"bits": "log_probs"}
    else:
        stored, settings = new.astype(dtype), {}
    arrays = {
        "log_probs": stored,
        "old_log_probs": new,
        "advantages": np.ones(3),
        "group_id": np.zeros(3, int),
    }
    (one,) = found("PPO403", arrays, **settings)
    assert one.message == f"2 log-probs above 0; {said}"


def test_a_file_of_wider_values_decides_what_rounding_explains(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a.npz", "b.npz", "c.npz")]
    for path, values in zip(paths, ([-1.0, 0.125], [-0.1, -0.2], []), strict=True):
        new = np.array(values, np.float32)
        np.savez(
            path,
            log_probs=new,
            old_log_probs=-np.abs(new),
            advantages=np.ones(new.size),
            group_id=new.astype(int),
        )
    for files, name in ((paths[::2], "which rounding of bfloat16"), (paths, "more than rounding of float32")):
        (one,) = [one for one in ppocli.evaluate(files).findings if one.code == "PPO403"]
        assert f"in log_probs, {name} explains" in one.message
