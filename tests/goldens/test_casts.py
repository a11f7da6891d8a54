"""Rounding to narrow formats against the casts of PyTorch and ml_dtypes, and against quantised int8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from goldens.rows import Row, arrays_of

from ppocli.core.precision import PRECISIONS
from ppocli.kernels._jit import jit
from ppocli.kernels.rounding import round_to, scaled

CASTS = "torch.Tensor.to(dtype) / ml_dtypes astype"
TABLES = "torch decode of all 256 float8 bit patterns"
TORCH = {"float8_e4m3fn": "float8_e4m3fn_saturating"}
INT8 = "int8 symmetric abs-max"
BITS = {
    "float32": (np.uint32, np.float32),
    "bfloat16": (np.uint16, ml_dtypes.bfloat16),
    "float16": (np.uint16, np.float16),
    "float8_e4m3fn": (np.uint8, ml_dtypes.float8_e4m3fn),
    "float8_e5m2": (np.uint8, ml_dtypes.float8_e5m2),
}


def covers(row: Row) -> bool:
    return row["function"].startswith((CASTS, TABLES, INT8))


@jit
def scale_all(x: Any, scale: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = scaled(x[i], scale[i])


def test_row(folder: Path, row: Row) -> None:
    arrays = arrays_of(folder, row)
    if row["function"].startswith(CASTS):
        check_casts(arrays)
    elif row["function"].startswith(TABLES):
        check_tables(arrays)
    else:
        check_int8(arrays)


def same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Equal in all bits; a NaN is a NaN."""
    return (got.view(np.uint64) == want.view(np.uint64)) | (np.isnan(got) & np.isnan(want))


def decoded(arrays: dict[str, np.ndarray], who: str, name: str) -> np.ndarray:
    pattern, kind = BITS[name]
    with np.errstate(invalid="ignore"):
        return arrays[f"{who}_bits_{name}"].view(pattern).view(kind).astype(np.float64)


def check_casts(arrays: dict[str, np.ndarray]) -> None:
    values = arrays["values"].astype(np.float64)
    # From float64, PyTorch goes by way of float32, and so does ml_dtypes 0.6.0 to eight bits: one step
    # further where that lands on a tie. Ours never does.
    by_float32 = round_to(values, PRECISIONS["float32"].rule)
    for name in BITS:
        rule = PRECISIONS[TORCH.get(name, name)].rule
        assert same(round_to(by_float32, rule), decoded(arrays, "torch", name)).all(), name
        if name != "float32":
            start = by_float32 if name.startswith("float8") else values
            ours = round_to(start, PRECISIONS[name].rule)
            assert same(ours, decoded(arrays, "ml_dtypes", name)).all(), name
    twice = round_to(by_float32, PRECISIONS["float16"].rule)
    apart = twice != round_to(values, PRECISIONS["float16"].rule)
    assert apart.sum() == (2 + 3 if arrays["values"].dtype == np.float64 else 2), "2 NaN, 3 ties"


def check_tables(arrays: dict[str, np.ndarray]) -> None:
    """What 256 patterns stand for is left as it is."""
    for name in ("float8_e4m3fn", "float8_e5m2"):
        values = arrays[f"decode_{name}"].astype(np.float64)
        assert same(round_to(values, PRECISIONS[name].rule), values).all()
        assert np.unique(values[np.isfinite(values)]).size == {"float8_e4m3fn": 253, "float8_e5m2": 247}[name]


def check_int8(arrays: dict[str, np.ndarray]) -> None:
    """One scale for all, and one for each row."""
    values = arrays["values"].astype(np.float64)
    for scope in ("tensor", "row"):
        scale = np.broadcast_to(arrays[f"scale_{scope}"], values.shape).astype(np.float64)
        largest = np.abs(values).max(axis=None if scope == "tensor" else -1, keepdims=True)
        assert (scale == (largest.astype(np.float32) / np.float32(127.0)).astype(np.float64)).all()
        out = np.empty(values.size)
        scale_all(values.ravel(), np.ascontiguousarray(scale).ravel(), out)
        assert out.reshape(values.shape).tolist() == arrays[f"dequant_{scope}"].astype(np.float64).tolist()
        numbers = arrays[f"q_{scope}"].astype(np.float32) * arrays[f"scale_{scope}"]
        assert out.reshape(values.shape).tolist() == numbers.astype(np.float64).tolist()
