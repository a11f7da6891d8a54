"""Our metrics against numbers that other projects' own code gave."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from goldens import objectives
from goldens.mapping import FUNCTIONS, NotExpressed, verl_bound
from goldens.rows import Arrays, Row, arrays_of, close, tolerance

import ppocli


def covers(row: Row) -> bool:
    """All rows but those that only the formulas on arrays, or the audit, express."""
    known = row["function"] in objectives.FUNCTIONS or row["peer"] == "lowprec"
    return row["function"] in FUNCTIONS or not known


def evaluate(**roles_and_settings: Any) -> dict[str, Any]:
    """Two axes are (sequence, token); (B, 1) would be read as flat, so it goes in as a list of sequences."""
    given = {
        name: list(value) if isinstance(value, np.ndarray) and value.shape[1:] == (1,) else value
        for name, value in roles_and_settings.items()
    }
    return dict(ppocli.evaluate(**given).metrics)


def test_row(folder: Path, row: Row) -> None:
    if row["function"] not in FUNCTIONS:
        pytest.skip(f"{row['peer']}: {row['function']} has no mapping yet")
    arrays = arrays_of(folder, row)
    gradient = arrays.pop("grad_log_probs", None)
    arrays.pop("kl", None)
    try:
        ours = FUNCTIONS[row["function"]](row, dict(arrays), evaluate)
    except NotExpressed as reason:
        pytest.skip(str(reason))
    slope = ours.pop("sum |grad_log_probs|", None)
    assert ours.keys() == row["outputs"].keys()
    for name, want in row["outputs"].items():
        close(ours[name], want, name, rel=tolerance(row, name), slack=flips(row, arrays, name))
    if slope is not None and gradient is not None and "boundary" not in row["input"]:
        close(slope, float(np.nansum(np.abs(gradient))), "gradient", rel=tolerance(row, "grad"))


def flips(row: Row, arrays: Arrays, name: str) -> float:
    """The share of tokens whose log-ratio is within 4 units of a bound: their decision may go either way."""
    if "boundary" not in row["input"] or "clipfrac" not in name:
        return 0.0
    settings = row["settings"]
    low, high = verl_bound(settings, "clip_ratio_low"), verl_bound(settings, "clip_ratio_high")
    ratios = (1 - low, 1 + high, settings["clip_ratio_c"])
    log_ratio = arrays["log_probs"] - arrays["old_log_probs"]
    near = np.zeros(log_ratio.shape, bool)
    for bound in map(math.log, ratios):
        near |= np.abs(log_ratio - bound) <= 4.0 * np.spacing(abs(bound))
    return float(near[arrays["mask"] != 0].mean())
