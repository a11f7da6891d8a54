"""The kernel of the optional columns against exact sums of its terms."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from kernel_sums import EXTRAS, Loss, Sums, extras

from ppocli.core.partials import COLUMNS, EXTREMES, LANE_SUMS, MOMENTS, PIECE, SELECTIONS, SUM
from ppocli.kernels import layout
from ppocli.kernels.blocks import Workspace
from ppocli.kernels.extras import evaluate_extras

BOUND = Fraction(1, 2**47)
NONE = np.zeros(0, dtype=np.uint8)
USES = {name: 1 << which for name, which in layout.SELECTION.items() if name not in layout.BASE_SELECTIONS}
ROLES = EXTRAS


def draw(n: int, dtype: Any = np.float64) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    columns = {role: rng.normal(0.0, 1.0, n) for role in ROLES}
    columns["old_values"] = columns["values"] + rng.normal(0.0, 0.2, n)
    columns["log_probs"] = -rng.exponential(1.0, n)
    columns["ref_log_probs"] = columns["log_probs"] + rng.normal(0.0, 0.3, n)
    columns["rollout_log_probs"] = columns["log_probs"] + rng.normal(0.0, 0.1, n)
    return {role: values.astype(np.float32).astype(dtype) for role, values in columns.items()}


def evaluate(
    columns: dict[str, np.ndarray], mask: np.ndarray = NONE, clip: float = np.inf, *,
    names: tuple[str, ...] = tuple(USES), starts: np.ndarray | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Call the kernel; what it does not write stays NaN."""
    n = len(next(iter(columns.values())))
    n_blocks = -(-n // layout.BLOCK)
    starts = np.zeros(0, dtype=np.int64) if starts is None else starts
    p = np.full(layout.N_PARAMETERS, np.inf)
    p[layout.P_VALUE_CLIP] = clip
    rows = {
        "sums": np.full((n_blocks, layout.N_SUMS), np.nan),
        "squares": np.full((n_blocks, len(MOMENTS), 2), np.nan),
        "extremes": np.full((n_blocks, len(EXTREMES), 2), np.nan),
        "pieces": np.full((starts.size, layout.N_PIECE), np.nan),
        "bad": np.full(n_blocks, -1),
        "positive": np.full(n_blocks, -1),
    }
    workspace = Workspace(1)
    workspace.scratch[:] = np.nan
    evaluate_extras(
        workspace, [columns.get(role, NONE) for role in COLUMNS], mask, n, np.arange(n_blocks),
        sum(USES[name] for name in names), sum(1 << c for c, role in enumerate(COLUMNS) if role in columns),
        starts,
        np.searchsorted(starts, np.arange(-(-n // layout.RUN) + 1) * layout.RUN)[None], p, *rows.values(),
    )  # fmt: skip
    return rows


def oracle(columns: dict[str, np.ndarray], valid: np.ndarray, clip: float) -> Sums:
    return extras(
        {role: v.astype(float)[valid].tolist() for role, v in columns.items()}, Loss(value_clip=clip)
    )


def check(
    rows: dict[str, np.ndarray], columns: dict[str, np.ndarray], valid: np.ndarray, clip: float
) -> None:
    expected = oracle(columns, valid, clip)
    for name, owner in LANE_SUMS.items():
        if owner in USES:
            got = sum(map(Fraction, rows["sums"][:, SUM[name]].tolist()))
            assert abs(got - expected.total(name)) <= BOUND * expected.size(name), name
    for name in USES:
        assert rows["sums"][:, SUM[f"n_{name}"]].sum() == valid.sum()
    assert rows["bad"].tolist() == [0] * len(rows["bad"])
    assert rows["positive"].sum() == expected.total("positive")
    for m, name in enumerate(MOMENTS):
        if LANE_SUMS[name] in USES and len(rows["sums"]) == 1 and valid.any():
            centre, square = rows["squares"][0, m]
            values = np.array([float(x) for x in expected.terms[name]])
            assert square == pytest.approx(np.sum((values - centre) ** 2), rel=1e-12), name
    for e, name in enumerate(EXTREMES):
        if LANE_SUMS.get(name) in USES and valid.any():
            terms = [float(x) for x in expected.terms[name]]
            assert rows["extremes"][:, e, 0].min() == min(terms)
            assert rows["extremes"][:, e, 1].max() == max(terms)


@pytest.mark.parametrize("n", [1, 8, 255, 257, 2048, 2049, 5000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clip", [np.inf, 0.15])
def test_every_sum(n: int, dtype: Any, clip: float) -> None:
    columns = draw(n, dtype)
    check(evaluate(columns, clip=clip), columns, np.ones(n, dtype=bool), clip)


@pytest.mark.parametrize("n", [1, 9, 300, 2049])
def test_masked_tokens_are_not_there(n: int) -> None:
    valid = np.random.default_rng(4).random(n) < 0.5
    columns = draw(n)
    for values in columns.values():
        values[~valid] = np.nan
    check(evaluate(columns, valid.astype(np.uint8), 0.15), columns, valid, 0.15)


def test_each_selection_alone_has_the_same_bits() -> None:
    columns = draw(3000)
    whole = evaluate(columns)
    for name in USES:
        needed = SELECTIONS[name]
        alone = evaluate({role: columns[role] for role in needed}, names=(name,))
        for sum_name in (*(s for s, owner in LANE_SUMS.items() if owner == name), f"n_{name}"):
            assert alone["sums"][:, SUM[sum_name]].tobytes() == whole["sums"][:, SUM[sum_name]].tobytes(), (
                sum_name
            )


@pytest.mark.parametrize("role", ROLES)
def test_a_block_with_a_bad_value_is_given_back(role: str) -> None:
    columns = draw(5000)
    columns[role][4999] = np.nan
    assert evaluate(columns)["bad"].tolist() == [0, 0, 1]


def test_pieces() -> None:
    n = 700
    columns, valid = draw(n), np.random.default_rng(5).random(n) < 0.7
    starts = np.array([0, 10, 11, 256, 512, 600], dtype=np.int64)
    pieces = evaluate(columns, valid.astype(np.uint8), starts=starts)["pieces"]
    for start, stop, piece in zip(starts, [*starts[1:], n], pieces, strict=True):
        here = slice(start, stop)
        expected = oracle({role: v[here] for role, v in columns.items()}, valid[here], np.inf)
        for name in ("value", "entropy", "ref_k3"):
            assert piece[PIECE.index(f"n_{name}")] == valid[here].sum()
            error = abs(Fraction(piece[PIECE.index(name)]) - expected.total(name))
            assert error <= BOUND * expected.size(name)
