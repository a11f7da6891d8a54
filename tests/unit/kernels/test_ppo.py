"""The kernel of the main columns against exact sums of its terms."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_sums import Loss, Sums, base

from ppocli.core.partials import COLUMNS, EXTREMES, LANE_SUMS, MOMENTS, PIECE, SELECTIONS, SUM
from ppocli.kernels import layout, ppo
from ppocli.kernels.blocks import Workspace, stored

BOUND = Fraction(1, 2**47)
SIZES = (0, 1, 7, 8, 9, 255, 256, 257, 2047, 2048, 2049, 5000)
COUNTS = (
    "log_ratio_zero",
    "below",
    "above",
    "active_low",
    "active_high",
    "dual",
    "delta",
    "grad_zero",
    "adv_zero",
)
NONE = np.zeros(0, dtype=np.uint8)
USES = {name: 1 << layout.SELECTION[name] for name in layout.BASE_SELECTIONS}
ALL = sum(USES.values())


def parameters(p: Loss) -> np.ndarray:
    return np.array([p.low, p.high, p.dual, p.delta, p.clamp, p.shift, p.scale, p.value_clip])


@dataclass
class Rows:
    """What the kernel writes."""

    sums: np.ndarray
    squares: np.ndarray
    extremes: np.ndarray
    pieces: np.ndarray
    bad: np.ndarray
    positive: np.ndarray
    bins: np.ndarray

    def bits(self) -> bytes:
        arrays = (self.sums, self.squares, self.extremes, self.pieces, self.bad, self.positive, self.bins)
        return b"".join(array.tobytes() for array in arrays)

    def total(self, name: str) -> float:
        return float(self.sums[:, SUM[name]].sum())


def evaluate(
    columns: dict[str, np.ndarray], mask: np.ndarray = NONE, p: Loss | None = None, *, uses: int = ALL,
    starts: np.ndarray | None = None, workers: int = 1, wanted: np.ndarray | None = None,
    other_starts: np.ndarray | None = None, ranged: int = 0, bad: int = -1,
) -> Rows:  # fmt: skip
    """Call the kernel; what it does not write stays NaN."""
    n = len(next(iter(columns.values())))
    n_blocks = -(-n // layout.BLOCK)
    ways = [one for one in (starts, other_starts) if one is not None]
    starts = np.concatenate([np.zeros(0, dtype=np.int64), *ways])
    runs = np.arange(-(-n // layout.RUN) + 1) * layout.RUN
    before = np.cumsum([0, *(one.size for one in ways)])
    run_pieces = [np.searchsorted(one, runs) + at for one, at in zip(ways, before, strict=False)]
    rows = Rows(
        np.full((n_blocks, layout.N_SUMS), np.nan), np.full((n_blocks, len(MOMENTS), 2), np.nan),
        np.full((n_blocks, len(EXTREMES), 2), np.nan), np.full((starts.size, layout.N_PIECE), np.nan),
        np.full(n_blocks, bad), np.full(n_blocks, -1), np.zeros(0),
    )  # fmt: skip
    workspace = Workspace(workers)
    workspace.scratch[:] = np.nan  # nothing may depend on what was there
    has = sum(1 << c for c, role in enumerate(COLUMNS) if role in columns)
    ppo.evaluate_base(
        workspace, [columns.get(role, NONE) for role in COLUMNS], mask, n,
        np.arange(n_blocks) if wanted is None else wanted, uses, has, starts,
        np.array(run_pieces, dtype=np.int64).reshape(-1, runs.size), ranged, parameters(p or Loss()),
        rows.sums, rows.squares, rows.extremes, rows.pieces, rows.bad, rows.positive,
    )  # fmt: skip
    rows.bins = workspace.histogram()
    return rows


def draw(n: int, spread: float = 0.2, dtype: Any = np.float64) -> dict[str, np.ndarray]:
    """Columns that hold values of float32."""
    rng = np.random.default_rng(n)
    old = -rng.exponential(1.0, n)
    new = old + rng.normal(0.0, spread, n)
    new[::7] = old[::7]
    adv = rng.normal(0.0, 1.0, n)
    adv[::5] = 0.0
    named = zip(("log_probs", "old_log_probs", "advantages"), (new, old, adv), strict=True)
    return {role: values.astype(np.float32).astype(dtype) for role, values in named}


def oracle(columns: dict[str, np.ndarray], valid: np.ndarray, p: Loss) -> Sums:
    new, old, adv = (
        columns[r].astype(float)[valid].tolist() for r in ("log_probs", "old_log_probs", "advantages")
    )
    return base(new, old, adv, p)


def check(rows: Rows, columns: dict[str, np.ndarray], valid: np.ndarray, p: Loss) -> None:
    """Compare all sums, moments, extremes and counts with exact ones."""
    expected = oracle(columns, valid, p)
    owned = [name for name, owner in LANE_SUMS.items() if owner in USES]
    for name in owned:
        slack = 16 * BOUND if name.startswith("raw_ratio") else BOUND  # only weights of the sample size
        if name in COUNTS:
            assert rows.total(name) == expected.total(name), name
        else:
            error = abs(sum(map(Fraction, rows.sums[:, SUM[name]].tolist())) - expected.total(name))
            assert error <= slack * expected.size(name), name
    for name in USES:
        assert rows.total(f"n_{name}") == valid.sum()
    assert rows.positive.sum() == expected.total("positive")
    assert rows.bad.tolist() == [0] * len(rows.bad)
    check_moments(rows, expected)


def check_moments(rows: Rows, expected: Sums) -> None:
    """Second moments about the centres that were used, and extremes."""
    position = 0
    for b, row in enumerate(rows.sums):
        n = int(row[SUM["n_ratio"]])
        for m, name in enumerate(MOMENTS[:4]):
            centre, square = (Fraction(x) for x in rows.squares[b, m].tolist())
            values = expected.terms.get(name, [])[position : position + n]
            exact = float(sum((x - centre) ** 2 for x in values))
            # Each value is rounded by at most an ulp of the largest.
            rounding = n**0.5 * 2.0**-52 * float(max(map(abs, values), default=0))
            slack = 1e-12 * exact + 2 * exact**0.5 * rounding + rounding**2
            assert abs(float(square) - exact) <= slack, name
        for name in ("log_ratio", "loss", "adv"):
            low, high = rows.extremes[b, EXTREMES.index(name)]
            terms = [float(x) for x in expected.terms.get(name, [])[position : position + n]]
            assert low == pytest.approx(min(terms, default=np.inf), rel=4e-16, abs=0)
            assert high == pytest.approx(max(terms, default=-np.inf), rel=4e-16, abs=0)
        position += n


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_sum(n: int, dtype: Any) -> None:
    columns = draw(n, dtype=dtype)
    check(evaluate(columns), columns, np.ones(n, dtype=bool), Loss())


@pytest.mark.parametrize("spread", [1e-6, 3.0, 30.0])
def test_every_sum_near_and_far_from_policy(spread: float) -> None:
    columns = draw(2000, spread)
    check(evaluate(columns), columns, np.ones(2000, dtype=bool), Loss())


@pytest.mark.parametrize(
    "p",
    [
        Loss(dual=3.0), Loss(delta=1.5), Loss(clamp=0.25),
        Loss(dual=1.5, delta=2.0, clamp=1.0, low=0.9, high=1.5), Loss(low=-0.5, high=4.0),
        Loss(shift=0.3, scale=2.5), Loss(dual=2.0, shift=-1.0, scale=0.5),
    ],
    ids=str,
)  # fmt: skip
def test_guards_and_normalised_advantages(p: Loss) -> None:
    columns = draw(600, 0.8)
    check(evaluate(columns, p=p), columns, np.ones(600, dtype=bool), p)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", ["random", "none valid", "first run masked", "one valid"])
def test_masked_tokens_are_not_there(n: int, kind: str) -> None:
    rng = np.random.default_rng(1)
    valid = {
        "random": rng.random(n) < 0.6,
        "none valid": np.zeros(n, dtype=bool),
        "first run masked": np.arange(n) >= 300,
        "one valid": np.arange(n) == n - 1,
    }[kind]
    columns = draw(n)
    for values in columns.values():
        values[~valid] = rng.choice([np.nan, np.inf, -np.inf, 1e300], (~valid).sum())
    check(evaluate(columns, valid.astype(np.uint8)), columns, valid, Loss())


@pytest.mark.parametrize("n", [1, 100, 2049])
def test_the_histogram_counts_valid_tokens(n: int) -> None:
    columns = draw(n, 3.0)
    columns["log_probs"][: n // 3] = columns["old_log_probs"][: n // 3] + np.linspace(-40, 40, n // 3)
    valid = np.random.default_rng(2).random(n) < 0.7
    expected = np.zeros(layout.HISTOGRAM_BINS, dtype=np.int64)
    for x in (columns["log_probs"] - columns["old_log_probs"])[valid].tolist():
        expected[round(min(max(x * 128, -4097.0), 4097.0)) + 4097] += 1
    for mask, want in ((valid.astype(np.uint8), expected), (np.zeros(n, np.uint8), np.zeros_like(expected))):
        assert evaluate(columns, mask).bins.tolist() == want.tolist()


def test_bins_at_their_limits() -> None:
    x = np.array(
        [0.0, -0.0, 1 / 256 - 1e-9, 1 / 256 + 1e-9, -1 / 128, 32.0, 32.01, 1e9, -32.0, -800.0, 5e-324]
    )
    bins = evaluate({"log_probs": x, "old_log_probs": np.zeros(11), "advantages": np.ones(11)}).bins
    assert {int(i) - 4097: int(bins[i]) for i in np.flatnonzero(bins)} == {
        -4097: 1, -4096: 1, -1: 1, 0: 4, 1: 1, 4096: 1, 4097: 2,
    }  # fmt: skip


def test_infinite_ratios_and_advantages_of_zero() -> None:
    columns = {
        "log_probs": np.array([800.0, 800.0, 800.0, -800.0, -800.0]),
        "old_log_probs": np.zeros(5),
        "advantages": np.array([0.0, 2.0, -2.0, 3.0, -3.0]),
    }
    rows = evaluate(columns)
    total = {name: rows.total(name) for name in ("ratio", "loss", "grad_abs", "grad_zero")}
    # 0; clipped to -1.2 * 2; inf; exp(-800) = 0: the loss is 0, or 0.8 * 3 behind the clip.
    assert total == {"ratio": np.inf, "loss": np.inf, "grad_abs": np.inf, "grad_zero": 4.0}
    assert np.isnan(rows.total("unclipped"))  # -inf + inf
    assert rows.extremes[0, EXTREMES.index("loss")].tolist() == [-2.4, np.inf]
    without = {role: values[[0, 1, 3, 4]] for role, values in columns.items()}
    assert evaluate(without).total("loss") == -2.4 + 0.8 * 3.0


@pytest.mark.parametrize("p", [Loss(), Loss(dual=2.0), Loss(delta=3.0), Loss(clamp=1.0)], ids=str)
def test_deviations_of_losses_that_hardly_vary(p: Loss) -> None:
    # Far above the interval with A < 0 each loss is large, and nearly the same.
    rng = np.random.default_rng(6)
    n = 600
    columns = {
        "log_probs": 5.0 + rng.normal(0.0, 1e-5, n),
        "old_log_probs": np.zeros(n),
        "advantages": np.full(n, -1.0),
    }
    rows = evaluate(columns, p=p)
    centre, square = rows.squares[0, MOMENTS.index("loss")]
    losses = [float(x) for x in oracle(columns, np.ones(n, dtype=bool), p).terms["loss"]]
    assert abs(centre - np.mean(losses)) <= np.std(losses) + 1e-15 * abs(centre)
    exact = float(sum((Fraction(x) - Fraction(float(centre))) ** 2 for x in losses))
    assert square == pytest.approx(exact, rel=1e-7, abs=n * (4e-16 * max(losses)) ** 2)


# ---- one answer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_change_no_bit(workers: int) -> None:
    columns, starts = draw(140_000), np.arange(0, 140_000, 256)
    one = evaluate(columns, starts=starts)
    assert evaluate(columns, starts=starts, workers=workers).bits() == one.bits()


def test_float_types_change_no_bit() -> None:
    wide, narrow = draw(5000), draw(5000, dtype=np.float32)
    mixed = {**narrow, "old_log_probs": wide["old_log_probs"]}
    assert evaluate(wide).bits() == evaluate(narrow).bits() == evaluate(mixed).bits()


def test_each_selection_alone_has_the_same_bits() -> None:
    columns = draw(3000)
    mask = (np.random.default_rng(3).random(3000) < 0.8).astype(np.uint8)
    whole = evaluate(columns, mask)
    for name, bit in USES.items():
        alone = evaluate({role: columns[role] for role in SELECTIONS[name]}, mask, uses=bit)
        for sum_name in (*(s for s, owner in LANE_SUMS.items() if owner == name), f"n_{name}"):
            assert alone.sums[:, SUM[sum_name]].tobytes() == whole.sums[:, SUM[sum_name]].tobytes(), sum_name
        for m, moment in enumerate(MOMENTS):
            if LANE_SUMS[moment] == name:
                assert alone.squares[:, m].tobytes() == whole.squares[:, m].tobytes(), moment
        others = [SUM[s] for s, owner in LANE_SUMS.items() if owner != name]
        assert np.isnan(alone.sums[:, others]).all()  # nothing else is written


def test_guards_that_never_act_change_no_bit() -> None:
    columns, starts = draw(5000), np.arange(0, 5000, 128)
    plain, guarded = evaluate(columns, starts=starts), evaluate(columns, p=Loss(clamp=50.0), starts=starts)
    raw = [SUM["raw_ratio"], SUM["raw_ratio_sq"]]
    assert guarded.sums[:, raw] == pytest.approx(plain.sums[:, raw], rel=1e-13)
    guarded.sums[:, raw] = plain.sums[:, raw]
    assert guarded.bits() == plain.bits()


def test_only_the_wanted_blocks_are_written() -> None:
    columns = draw(9000)
    whole, some = evaluate(columns), evaluate(columns, wanted=np.array([1, 4]))
    assert some.sums[[1, 4]].tobytes() == whole.sums[[1, 4]].tobytes()
    assert np.isnan(some.sums[[0, 2, 3]]).all()
    assert some.bad.tolist() == [-1, 0, -1, -1, 0]


OTHER_PROCESSOR = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
import importlib.util
spec = importlib.util.spec_from_file_location("test_ppo", {file!r})
module = importlib.util.module_from_spec(spec)
sys.modules["test_ppo"] = module
spec.loader.exec_module(module)
sys.stdout.buffer.write(module.evaluate(module.draw(5000, 0.5)).bits())
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="names x86 processors")
@pytest.mark.parametrize(("cpu", "features"), [("nehalem", "+sse4.2"), ("haswell", "+avx2,+fma")])
def test_same_bits_on_processors_with_shorter_vectors(cpu: str, features: str, tmp_path: Path) -> None:
    code = OTHER_PROCESSOR.format(paths=sys.path, file=__file__)
    settings = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features, "PPOCLI_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **settings},
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert run.stdout == evaluate(draw(5000, 0.5)).bits()


# ---- values that are not finite, memory ------------------------------------------------------------------


@pytest.mark.parametrize("role", ["log_probs", "old_log_probs", "advantages"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_block_with_a_bad_value_is_given_back(role: str, value: float) -> None:
    columns = draw(5000)
    clean = evaluate(columns)
    columns[role][2500] = value
    rows = evaluate(columns)
    assert rows.bad.tolist() == [0, 1, 0]
    assert rows.positive[1] == 0
    assert rows.sums[[0, 2]].tobytes() == clean.sums[[0, 2]].tobytes()
    # Nothing of the block is in the bins, which blocks share.
    assert rows.bins.sum() == 5000 - 2048
    assert (rows.bins <= clean.bins).all()


def test_the_infinities_of_both_columns_do_not_hide_each_other() -> None:
    columns = draw(300)
    columns["log_probs"][7] = columns["old_log_probs"][7] = -np.inf
    assert evaluate(columns).bad.tolist() == [1]


def test_finite_values_whose_sums_overflow_are_in_the_bins_when_they_are_known_to_be_finite() -> None:
    columns = draw(5000)
    columns["log_probs"][[2500, 2508]] = 1e308
    columns["old_log_probs"][2600] = 1.5e308
    columns["log_probs"][2600] = -1.5e308
    assert evaluate(columns).bad.tolist() == [0, 1, 0]
    rows = evaluate(columns, bad=ppo.KNOWN_FINITE)
    assert rows.bad.tolist() == [0, 0, 0]
    assert rows.bins.sum() == 5000
    assert rows.bins[[0, -1]].tolist() == [1, 2]
    above = sum(int((columns[role] > 0.0).sum()) for role in ("log_probs", "old_log_probs"))
    assert rows.positive.sum() == above


BEHIND_THE_END = """
import ctypes, mmap, sys
import numpy as np
{evaluate}
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.PAGESIZE
def at_the_end(values):
    memory = mmap.mmap(-1, 2 * page)
    whole = np.frombuffer(memory, dtype=np.uint8)
    assert libc.mprotect(ctypes.c_void_p(whole.ctypes.data + page), page, 0) == 0
    out = whole[page - values.nbytes : page].view(values.dtype)
    out[:] = values
    return out
for n in (1, 7, 9, 250, 257):
    columns = module.draw(n, dtype=np.float32)
    mask = np.arange(n, dtype=np.uint8) % 2
    here = module.evaluate(columns, mask)
    moved = {{role: at_the_end(values) for role, values in columns.items()}}
    there = module.evaluate(moved, at_the_end(mask))
    assert here.bits() == there.bits(), n
print("ok")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="protects memory with Linux's C library")
def test_nothing_is_read_behind_the_end_of_a_column() -> None:
    load_module = OTHER_PROCESSOR.format(paths=sys.path, file=__file__).rpartition("sys.stdout")[0]
    run = subprocess.run(
        [sys.executable, "-c", BEHIND_THE_END.format(evaluate=load_module)],
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (run.returncode, run.stdout) == (0, b"ok\n"), run.stderr


def test_strided_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        stored([np.zeros(10)[::2]], NONE, 5)


# ---- pieces ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 9, 256, 300, 2049, 5000])
@pytest.mark.parametrize("masked", [False, True])
def test_pieces(n: int, masked: bool) -> None:
    rng = np.random.default_rng(n)
    columns = draw(n)
    cuts = (
        rng.choice(np.arange(1, n), min(n // 20, n - 1), replace=False) if n > 1 else np.zeros(0, dtype=int)
    )
    starts = np.unique(np.concatenate([np.arange(0, n, layout.RUN), cuts])).astype(np.int64)
    valid = rng.random(n) < 0.5 if masked else np.ones(n, dtype=bool)
    rows = evaluate(columns, valid.astype(np.uint8) if masked else NONE, starts=starts)
    for start, stop, piece in zip(starts, [*starts[1:], n], rows.pieces, strict=True):
        here = slice(start, stop)
        expected = oracle({r: v[here] for r, v in columns.items()}, valid[here], Loss())
        adv = columns["advantages"][here][valid[here]]
        for name in ("log_ratio", "loss"):
            assert piece[PIECE.index(f"n_{name}")] == valid[here].sum()
            error = abs(Fraction(piece[PIECE.index(name)]) - expected.total(name))
            assert error <= BOUND * expected.size(name)
        assert piece[layout.PIECE_ADV_MIN] == min(adv, default=np.inf)
        assert piece[layout.PIECE_ADV_MAX] == max(adv, default=-np.inf)


def test_each_way_of_cutting_has_the_pieces_it_has_alone() -> None:
    columns, n = draw(3000), 3000
    runs = np.arange(0, n, layout.RUN)
    fine = np.unique(np.concatenate([runs, np.arange(0, n, 7)]))
    coarse = np.unique(np.concatenate([runs, np.arange(0, n, 700)]))
    alone = [evaluate(columns, starts=starts).pieces for starts in (fine, coarse)]
    unranged = [evaluate(columns, starts=starts, ranged=-1).pieces for starts in (fine, coarse)]
    for ranged in (0, 1):
        both = evaluate(columns, starts=fine, other_starts=coarse, ranged=ranged).pieces
        one, other = both[: fine.size], both[fine.size :]
        expected = (alone[0], unranged[1]) if ranged == 0 else (unranged[0], alone[1])
        assert one.tobytes() == expected[0].tobytes()
        assert other.tobytes() == expected[1].tobytes()
    assert np.isnan(unranged[0][:, layout.PIECE_ADV_MIN]).all()
